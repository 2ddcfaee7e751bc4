// SPDX-License-Identifier: BSD-3-Clause
// The library's export.c with a question that only tests ask. Programs that link this have no
// other copy of that file.
#include "ipc/export.c"

#include "memory_usage.h"

size_t export_usage(void)
{
    return count_exports();
}
