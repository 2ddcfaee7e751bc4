// SPDX-License-Identifier: BSD-3-Clause
// A clock of a few nanoseconds, and a meter on which the modules below the report tell how long the
// calling thread spends in the real MPI and in copies. It runs while somebody reads it.
#ifndef FR_FABRAIL_CORE_METER_H
#define FR_FABRAIL_CORE_METER_H

#include "fabrail/core.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

// Ticks of a clock that all cores share: invariant on every processor that GPUs are put beside.
static inline uint64_t fr_core_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
#error "no clock for this processor"
#endif
}

enum fr_meter_kind { FR_METER_MPI, FR_METER_COPY, FR_METER_COUNT };

// Of one thread. A span within a span belongs to the outer one.
struct fr_meter {
    bool on;
    bool inside;
    uint64_t ticks[FR_METER_COUNT];
};
extern FR_TLS struct fr_meter fr_core_meter;

// Called with each span that is to be told while it is not NULL; written once, before the first
// span.
typedef void (*fr_meter_hook_fn)(enum fr_meter_kind kind, uint64_t begin, uint64_t end);
extern fr_meter_hook_fn fr_core_meter_hook;

// What polls, and so comes again and again, is counted and not told.
void fr_core_meter_add(enum fr_meter_kind kind, uint64_t begin, bool polls);

// Begins a span; what it returns goes to end, on the same thread. One load where the meter is off.
static inline uint64_t fr_core_meter_begin(void)
{
    if (!FR_UNLIKELY(fr_core_meter.on) || fr_core_meter.inside)
        return 0;
    fr_core_meter.inside = true;
    return fr_core_ticks();
}
static inline void fr_core_meter_end(enum fr_meter_kind kind, uint64_t begin)
{
    if (FR_UNLIKELY(begin))
        fr_core_meter_add(kind, begin, false);
}

#endif
