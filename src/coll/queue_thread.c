// SPDX-License-Identifier: BSD-3-Clause
// The thread of queued tasks. It calls no function of MPI. FABRAIL_PROGRESS=thread makes it look
// often, so that tasks go on while the program computes. Otherwise it looks now and then, for the
// sake of ranks that wait for this one while it is in a call of the MPI library.
#include "config.h"

#include "coll/queue_thread.h"

#include "fabrail/coll/queue.h"

#include <pthread.h>
#include <signal.h>

enum {
    NAPS_BEFORE_SLEEP = 32, // with nothing to do, so that a steady program need not wake it
    SHORT_NAP_NS = 10000,
    MOST_SHORT_NAP_NS = 100000,
    LONG_NAP_NS = 200000,
    MOST_LONG_NAP_NS = 1000000,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static enum { UNSTARTED, RUNS, FAILED } state; // guarded by the mutex
static _Atomic bool is_started;
static _Atomic bool stops;
static _Atomic bool sleeps;

static struct fr_wait begin_naps(void)
{
    if (fr_core_settings()->progress >= FR_PROGRESS_THREAD)
        return (struct fr_wait){
            .eager_yields = 20, .nap_ns = SHORT_NAP_NS, .longest_nap_ns = MOST_SHORT_NAP_NS};
    return (struct fr_wait){.nap_ns = LONG_NAP_NS, .longest_nap_ns = MOST_LONG_NAP_NS};
}

static void sleep_until_wanted(void)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&sleeps, true);
    while (!atomic_load(&stops) && fr_coll_queue_count() == 0)
        pthread_cond_wait(&wanted, &mutex);
    atomic_store(&sleeps, false);
    pthread_mutex_unlock(&mutex);
}

static void *run(void *nothing)
{
    struct fr_wait naps = begin_naps();
    unsigned idle = 0;
    fr_job_control_stays_here = true;
    while (!atomic_load(&stops)) {
        bool any = fr_coll_queue_count() > 0;
        if (any && idle > 0)
            naps = begin_naps();
        idle = any ? 0 : idle + 1;
        if (any)
            fr_coll_queue_progress();
        else if (idle > NAPS_BEFORE_SLEEP)
            sleep_until_wanted();
        (void)fr_wait_step(&naps);
    }
    return nothing;
}

// Starts the thread with all signals blocked, since they are the program's own business.
static void start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_lock(&mutex);
    if (state == UNSTARTED) {
        pthread_sigmask(SIG_SETMASK, &all, &before);
        state = pthread_create(&thread, NULL, run, NULL) == 0 ? RUNS : FAILED;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (state == FAILED)
            fr_warn("no thread could be started for nonblocking collectives, which go on only in "
                    "calls of MPI functions");
    }
    pthread_mutex_unlock(&mutex);
    atomic_store(&is_started, true);
}

void fr_coll_queue_thread_wake(void)
{
    if (FR_UNLIKELY(!atomic_load(&is_started)))
        start();
    if (!atomic_load(&sleeps))
        return;
    pthread_mutex_lock(&mutex);
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&mutex);
}

bool fr_coll_queue_has_thread(void)
{
    pthread_mutex_lock(&mutex);
    bool runs = state == RUNS;
    pthread_mutex_unlock(&mutex);
    return runs;
}

void fr_coll_queue_stop(void)
{
    pthread_mutex_lock(&mutex);
    bool runs = state == RUNS;
    state = FAILED;
    atomic_store(&stops, true);
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&mutex);
    if (runs)
        pthread_join(thread, NULL);
}
