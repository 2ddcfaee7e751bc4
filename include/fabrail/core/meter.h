// SPDX-License-Identifier: BSD-3-Clause
// A clock that costs a few nanoseconds, and a meter of the time that the calling thread spends in
// the real MPI, in copies and in waiting for other ranks. Modules below the report tell it their
// spans. It runs only while the report or the trace has turned it on.
#ifndef FR_FABRAIL_CORE_METER_H
#define FR_FABRAIL_CORE_METER_H

#include "fabrail/core.h"

// Returns the ticks of a clock that all cores share. Its rate is constant on every processor that
// GPUs are put beside.
static inline uint64_t fr_core_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc(); // its header has a megabyte of other functions
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
#error "no clock for this processor"
#endif
}

// FR_METER_WAIT is time in which another rank had not come yet, so that nothing could be moved.
enum fr_meter_kind { FR_METER_MPI, FR_METER_COPY, FR_METER_WAIT, FR_METER_COUNT };

// The meter of one thread. A span within a span belongs to the outer one.
struct fr_meter {
    bool on;
    bool inside;
    uint64_t ticks[FR_METER_COUNT];
};
extern FR_OWN FR_TLS struct fr_meter fr_core_meter;

// Function that hears of each span for the trace, while it is not NULL. It is written once, before
// the first span.
typedef void (*fr_meter_hook_fn)(enum fr_meter_kind kind, uint64_t begin, uint64_t end);
extern FR_OWN fr_meter_hook_fn fr_core_meter_hook;

// Adds the span from `begin` until now to the thread's meter. `polls` marks a span of a call that
// comes again and again: it is counted, and the hook does not hear of it.
void fr_core_meter_add(enum fr_meter_kind kind, uint64_t begin, bool polls);

// Begin and end a span. The value that the first function returns goes to the second, on the same
// thread. Each costs one load or test where the meter is off.
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

// Turns the thread's time in the real MPI so far into waiting. Called when the real MPI has brought
// no data, but the notice that a message can be fetched. Returns the ticks that were turned.
static inline uint64_t fr_core_meter_waited(void)
{
    uint64_t ticks = fr_core_meter.on ? fr_core_meter.ticks[FR_METER_MPI] : 0;
    if (FR_UNLIKELY(ticks)) {
        fr_core_meter.ticks[FR_METER_WAIT] += ticks;
        fr_core_meter.ticks[FR_METER_MPI] = 0;
    }
    return ticks;
}

#endif
