// SPDX-License-Identifier: BSD-3-Clause
// How this library waits. The room that waits looks whether something has come, and takes a step
// between two looks; what others need of this process meanwhile it sees to itself:
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
    FR_WAIT_SPINS = 1000, // looks at memory that another process writes: tens of microseconds
    FR_WAIT_POLLS = 64,   // looks that poll a device, a rail or the MPI library: about as long
};

// One wait of one thread; it needs no end. The caller sets the first five, where it wants something
// else than zeros: then each step yields the core.
struct fr_wait {
    unsigned spins;         // the first steps, none of which yields
    unsigned steps_a_yield; // after those, steps from one yield to the next; 0 counts as 1
    unsigned eager_yields;  // before steps sleep in place of yielding
    int64_t nap_ns;         // how long such a step sleeps; 0: none ever does
    int64_t longest_nap_ns; // if more than that, a step sleeps a sixteenth of the time waited so
                            // far, between both bounds
    bool pauses;            // steps that do not yield spare the core a moment, since the looks are
                            // loads of memory and nothing more
    // Written by the functions below.
    unsigned steps;   // taken so far
    unsigned yields;  // of these, those that yielded or slept; the caller may set it to 0 again
    int64_t began_ns; // when the clock was read first, 0: never
    int64_t told_ns;  // when fr_wait_judge last said that the wait is long
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

// Yields the core once. For a wait that depends on a thread of this process alone, which is just
// about to let go of something: such a wait has no deadline, and says nothing.
static inline void fr_wait_yield(void)
{
    (void)sched_yield();
}

// Takes one step. Returns whether it yielded the core or slept, which is when to make progress for
// others. Reads the clock only to find out how long to sleep.
bool fr_wait_step(struct fr_wait *wait);

// Returns for how many nanoseconds the wait has lasted since the clock was first read for it, which
// the first call does.
int64_t fr_wait_ns(struct fr_wait *wait);

enum fr_wait_verdict {
    FR_WAIT_ON,   // it goes on
    FR_WAIT_LONG, // it goes on, and ten seconds more have passed: time for the caller to say so
    FR_WAIT_OVER, // it has lasted for as long as it may
};

// Judges a wait that may last for `limit_s` seconds, 0 for any time, such as the setting
// FABRAIL_TIMEOUT. Reads the clock, and returns FR_WAIT_LONG at most once in ten seconds.
enum fr_wait_verdict fr_wait_judge(struct fr_wait *wait, uint64_t limit_s);

#endif
