// SPDX-License-Identifier: BSD-3-Clause
// Memory that the workspace has and has lent, for tests: the library itself need not tell.
#ifndef FR_TESTS_UNIT_INSIDE_WORKSPACE_USAGE_H
#define FR_TESTS_UNIT_INSIDE_WORKSPACE_USAGE_H

#include <stddef.h>

struct workspace_usage {
    size_t pinned_bytes;   // lent or not
    size_t pageable_bytes; // lent or not
    size_t lent_bytes;     // of blocks
};
struct workspace_usage workspace_usage(void);

#endif
