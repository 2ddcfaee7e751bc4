// SPDX-License-Identifier: BSD-3-Clause
// Memory with an alignment of its own, from malloc. A program may bring an allocator without
// aligned_alloc; memory that the C library's gives is then none that the program's free takes.
#ifndef FR_FABRAIL_CORE_ALIGNED_H
#define FR_FABRAIL_CORE_ALIGNED_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Returns memory, NULL where there is none. `alignment` is a power of two, at least that of a
// pointer.
static inline void *fr_aligned_new(size_t alignment, size_t bytes)
{
    void *memory = malloc(bytes + alignment + sizeof(void *));
    if (!memory)
        return NULL;
    uintptr_t first = (uintptr_t)memory + sizeof(void *);
    void **aligned = (void **)((first + alignment - 1) & ~(uintptr_t)(alignment - 1));
    aligned[-1] = memory;
    return aligned;
}

static inline void fr_aligned_free(void *aligned)
{
    if (aligned)
        free(((void **)aligned)[-1]);
}

#endif
