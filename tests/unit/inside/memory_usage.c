// SPDX-License-Identifier: BSD-3-Clause
// The library's mapping.c with a question that only tests ask. Programs that link this have no
// other copy of that file.
#include "ipc/mapping.c"

#include "memory_usage.h"

struct memory_usage memory_usage(void)
{
    struct memory_usage now = {.exports = export_usage()};
    fr_core_lock(&lock);
    now.mappings = HASH_COUNT(table);
    now.mapped_bytes = mapped_bytes;
    fr_core_unlock(&lock);
    return now;
}
