// SPDX-License-Identifier: BSD-3-Clause
// The thread of queued tasks. It calls no function of MPI. FABRAIL_PROGRESS=thread makes it look
// often, so that tasks go on while the program computes. Otherwise it looks now and then, for the
// sake of ranks that wait for this one while it is in a call of the MPI library.
#include "config.h"

#include "coll/queue_thread.h"

#include "fabrail/coll/queue.h"
#include "fabrail/core/thread.h"

enum {
    NAPS_BEFORE_SLEEP = 32, // with nothing to do, so that a steady program need not wake it
    SHORT_NAP_NS = 10000,
    MOST_SHORT_NAP_NS = 100000,
    LONG_NAP_NS = 200000,
    MOST_LONG_NAP_NS = 1000000,
    QUIET_NS = 2000, // more than from a call to its wait
};

static void run(void);
static bool has_work(void);
static struct fr_thread thread = FR_THREAD_INIT(run, has_work);
static _Atomic bool is_tried;

static bool has_work(void)
{
    return fr_coll_queue_count() > 0;
}

// Returns whether the thread looks so often that it would come between a call and its wait.
static bool looks_often(void)
{
    return fr_core_settings()->progress >= FR_PROGRESS_THREAD;
}

static struct fr_wait begin_naps(void)
{
    if (looks_often())
        return (struct fr_wait){
            .eager_yields = 20, .nap_ns = SHORT_NAP_NS, .longest_nap_ns = MOST_SHORT_NAP_NS};
    return (struct fr_wait){.nap_ns = LONG_NAP_NS, .longest_nap_ns = MOST_LONG_NAP_NS};
}

static void run(void)
{
    struct fr_wait naps = begin_naps();
    unsigned idle = 0;
    fr_job_control_stays_here = true;
    while (fr_thread_next(&thread, idle > NAPS_BEFORE_SLEEP)) {
        bool any = has_work();
        if (any && idle > 0)
            naps = begin_naps();
        idle = any ? 0 : idle + 1;
        if (any)
            fr_coll_queue_progress_untended(looks_often() ? QUIET_NS : 0);
        (void)fr_wait_step(&naps);
    }
}

void fr_coll_queue_thread_wake(void)
{
    if (FR_UNLIKELY(!atomic_load_explicit(&is_tried, memory_order_relaxed)) &&
        !atomic_exchange(&is_tried, true) && !fr_thread_start(&thread))
        fr_warn("no thread could be started for nonblocking collectives, which go on only in "
                "calls of MPI functions");
    fr_thread_wake(&thread);
}

bool fr_coll_queue_has_thread(void)
{
    return fr_thread_runs(&thread);
}

void fr_coll_queue_stop(void)
{
    fr_thread_stop(&thread);
}
