// SPDX-License-Identifier: BSD-3-Clause
// How Fabrail waits. The caller looks whether what it waits for has come, and takes a step between
// two looks. It also makes the progress that other processes need of this one meanwhile:
//
//     struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
//     while (!has_come()) {
//         if (fr_wait_step(&wait))
//             make_progress();
//         if (fr_wait_judge(&wait, fr_core_settings()->timeout_s) == FR_WAIT_OVER)
//             return false;
//     }
//
// Any thread may wait, outside of signal handlers and without a lock.
#ifndef FR_FABRAIL_CORE_WAIT_H
#define FR_FABRAIL_CORE_WAIT_H

#include "fabrail/core.h"
#include "fabrail/core/time.h"

#include <sched.h>

enum {
    FR_WAIT_SPINS = 1000, // for looks at memory that another process writes: tens of microseconds
    FR_WAIT_POLLS = 64,   // for looks that poll a device, a rail or the MPI library: about as long
};

// One wait of one thread. It holds nothing that must be freed. The caller sets the first six
// members; with zeros, each step yields the core.
struct fr_wait {
    unsigned spins;         // steps before the first that may yield
    unsigned steps_a_yield; // steps from one yield to the next after those; 0 counts as 1
    unsigned eager_yields;  // yields before steps sleep in place of yielding
    int64_t nap_ns;         // how long such a step sleeps; 0: steps never sleep
    int64_t longest_nap_ns; // if more than nap_ns, a step sleeps a sixteenth of the time waited so
                            // far, between both bounds
    bool pauses; // steps that do not yield call fr_wait_pause; for looks that only load from memory
    // Written by the functions below.
    unsigned steps;    // taken so far
    unsigned yields;   // steps that yielded or slept; the caller may set it to 0 again
    int64_t began_ns;  // when the clock was first read, 0: not yet
    int64_t warned_ns; // when fr_wait_judge last said that the wait is long
};

// Spares the core between two looks at memory, for some tens of nanoseconds.
static inline void fr_wait_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); // yield is too short there to spare anything
#endif
}

// Yields the core once. Meant for a wait for another thread of this process that is about to let go
// of something. Such a wait has no deadline and logs nothing.
static inline void fr_wait_yield(void)
{
    (void)sched_yield();
}

// Takes one step. Returns whether it yielded the core or slept; the caller then makes progress for
// others. Reads the clock only to find out how long to sleep.
bool fr_wait_step(struct fr_wait *wait);

// Returns the nanoseconds since the clock was first read for this wait. The first call reads it,
// and returns 0.
int64_t fr_wait_ns(struct fr_wait *wait);

enum fr_wait_verdict {
    FR_WAIT_ON,   // it goes on
    FR_WAIT_LONG, // it goes on; ten seconds have passed since it began or since the last such
                  // verdict, so the caller logs it
    FR_WAIT_OVER, // it has lasted as long as it may
};

// Judges a wait that may last for `limit_s` seconds, such as the setting FABRAIL_TIMEOUT; 0 is no
// limit. Reads the clock. Returns FR_WAIT_LONG at most once in ten seconds.
enum fr_wait_verdict fr_wait_judge(struct fr_wait *wait, uint64_t limit_s);

#endif
