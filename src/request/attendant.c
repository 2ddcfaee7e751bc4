// SPDX-License-Identifier: BSD-3-Clause
// The attendant, a thread of Fabrail's that exists under MPI_THREAD_MULTIPLE alone. Others may
// depend on this process while its threads are in calls of MPI's own, or outside of MPI. They ask
// for the bytes of sends that wait in their buffers, or have no room for what it is to receive. The
// attendant gives and receives these.
//
// It begins with the first message of device memory, or the first nonblocking receive. It sleeps
// while there is nothing to attend to. A process that exits without MPI_Finalize leaves it alone,
// and it calls nothing from then on.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { LEAST_NAP_NS = 20000, MOST_NAP_NS = 5000000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_t thread;   // begun once
static bool started;       // under the mutex
static void (*look)(void); // written before the thread starts
static _Atomic bool allowed;
static _Atomic bool runs;
static _Atomic bool stops;
static _Atomic bool looks; // is just doing so
static _Atomic int sleeps;

static bool has_work(void)
{
    return fr_rndv_any_waiting() || fr_request_any_tracked();
}

static void sleep_until_wanted(void)
{
    pthread_mutex_lock(&mutex);
    (void)atomic_exchange(&sleeps, 1); // who wakes it has written before what is looked at now
    while (!atomic_load(&stops) && !has_work())
        pthread_cond_wait(&wanted, &mutex);
    atomic_store(&sleeps, 0);
    pthread_mutex_unlock(&mutex);
}

void fr_request_attend(void)
{
    fr_rndv_progress(NULL); // those on other hosts say only now that they wait
    fr_request_notice_awaited();
    if (atomic_load(&stops))
        return;
    if (!fr_rndv_any_waiting() && !atomic_load_explicit(&fr_request_awaited, memory_order_relaxed))
        return;
    fr_job_progress();
    fr_request_advance_all();
    (void)fr_request_receive_early();
}

// Naps are short while sends leave, and grow otherwise: most calls look after others themselves.
static void *run(void *nothing)
{
    static const struct fr_wait begin = {.nap_ns = LEAST_NAP_NS, .longest_nap_ns = MOST_NAP_NS};
    struct fr_wait naps = begin;
    size_t waiting = 0;
    while (!atomic_load(&stops)) {
        if (!has_work())
            sleep_until_wanted();
        atomic_store(&looks, true);
        if (!atomic_load(&stops))
            look();
        atomic_store(&looks, false);
        if (waiting != fr_rndv_waiting_count)
            naps = begin;
        waiting = fr_rndv_waiting_count;
        (void)fr_wait_step(&naps);
    }
    return nothing;
}

// Called when the process exits. What MPI and the driver have registered to be called then comes
// later, since both were there before. It waits a moment for a look to end, and no longer: that
// look may want what this thread holds.
static void leave_alone(void)
{
    enum { NAPS = 100, NAP_NS = 1000000 };
    atomic_store(&allowed, false);
    atomic_store(&stops, true);
    atomic_store(&runs, false);
    for (int i = 0; i < NAPS && atomic_load(&looks) && !pthread_equal(thread, pthread_self()); i++)
        fr_time_sleep(NAP_NS);
    pthread_mutex_lock(&mutex);
    if (started)
        pthread_detach(thread); // it ends by itself
    started = false;
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&mutex);
}

// Starts the thread with all signals blocked, since they are the program's own business.
static bool start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_lock(&mutex);
    if (!started && atomic_load(&allowed)) {
        pthread_sigmask(SIG_SETMASK, &all, &before);
        started = atexit(leave_alone) == 0 && pthread_create(&thread, NULL, run, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        atomic_store(started ? &runs : &allowed, started);
    }
    pthread_mutex_unlock(&mutex);
    return atomic_load(&runs);
}

void fr_request_attendant_allow(void (*call)(void))
{
    look = call;
    atomic_store(&allowed, true);
}

bool fr_request_is_attended(void)
{
    return atomic_load_explicit(&runs, memory_order_acquire) ||
           (atomic_load_explicit(&allowed, memory_order_relaxed) && start());
}

bool fr_request_attendant_wake(void)
{
    if (!fr_request_is_attended())
        return false;
    if (atomic_fetch_or(&sleeps, 0) == 0)
        return true;
    pthread_mutex_lock(&mutex);
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&mutex);
    return true;
}

void fr_request_attendant_stop(void)
{
    atomic_store(&allowed, false);
    pthread_mutex_lock(&mutex);
    bool joins = started;
    started = false;
    atomic_store(&runs, false);
    atomic_store(&stops, true);
    pthread_cond_signal(&wanted);
    pthread_mutex_unlock(&mutex);
    if (joins)
        pthread_join(thread, NULL);
}
