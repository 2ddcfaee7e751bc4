// SPDX-License-Identifier: BSD-3-Clause
// The library's staging.c with a question that only tests ask. Programs that link this have no
// other copy of that file.
#include "staging/staging.c"

#include "workspace_usage.h"

struct workspace_usage workspace_usage(void)
{
    fr_core_lock(&workspace_lock);
    struct workspace_usage now = {usage.pinned_bytes, usage.pageable_bytes, lent_bytes};
    fr_core_unlock(&workspace_lock);
    return now;
}
