// SPDX-License-Identifier: BSD-3-Clause
// The clock and the sleep that all modules use. Times are nanoseconds, and signed: the difference
// of moments that two threads have read may be negative.
//
// Any thread may call these functions at any time, also in a signal handler.
#ifndef FR_FABRAIL_CORE_TIME_H
#define FR_FABRAIL_CORE_TIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define FR_SECOND_NS INT64_C(1000000000)

// Returns the time of one of the system's clocks.
static inline int64_t fr_time_read_ns(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * FR_SECOND_NS + now.tv_nsec;
}

// Returns the time since some moment before the process began. The clock never goes back and nobody
// sets it. The result is never 0, so that 0 may stand for no moment. Takes about 20 ns.
static inline int64_t fr_time_ns(void)
{
    return fr_time_read_ns(CLOCK_MONOTONIC);
}

// Returns the time of the clock of fr_time_ns as it was up to 10 ms ago. Costs about a third of
// fr_time_ns.
static inline int64_t fr_time_coarse_ns(void)
{
    return fr_time_read_ns(CLOCK_MONOTONIC_COARSE);
}

// Returns whether `every_ns` have passed from the moment in `*last_ns` to `now_ns`. If so, writes
// `now_ns` there. If several threads ask at once, one of them gets true.
static inline bool fr_time_is_due(_Atomic int64_t *last_ns, int64_t now_ns, int64_t every_ns)
{
    int64_t last = atomic_load_explicit(last_ns, memory_order_relaxed);
    return now_ns - last >= every_ns && atomic_compare_exchange_strong(last_ns, &last, now_ns);
}

// Keeps the calling thread off the cores for `ns` nanoseconds, or until a signal has come.
static inline void fr_time_sleep(int64_t ns)
{
    const struct timespec nap = {.tv_sec = ns / FR_SECOND_NS, .tv_nsec = (long)(ns % FR_SECOND_NS)};
    (void)nanosleep(&nap, NULL);
}

#endif
