// SPDX-License-Identifier: BSD-3-Clause
// Facts about shared memory that are remembered, for tests: the library itself need not tell.
#ifndef FR_TESTS_UNIT_INSIDE_MEMORY_USAGE_H
#define FR_TESTS_UNIT_INSIDE_MEMORY_USAGE_H

#include <stddef.h>

struct memory_usage {
    size_t exports;
    size_t mappings;     // refusals included
    size_t mapped_bytes; // of other processes' memory
};
struct memory_usage memory_usage(void);
size_t export_usage(void);

#endif
