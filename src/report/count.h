// SPDX-License-Identifier: BSD-3-Clause
// A counter that only its own thread writes and any thread reads. Private to module report.
#ifndef FR_REPORT_COUNT_H
#define FR_REPORT_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t fr_count;

// Adds to a counter of the calling thread.
static inline void fr_count_add(fr_count *count, uint64_t by)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + by, memory_order_relaxed);
}

// Returns a counter, of any thread.
static inline uint64_t fr_count_get(const fr_count *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

#endif
