// SPDX-License-Identifier: BSD-3-Clause
// The attendant, a thread of Fabrail's that exists under MPI_THREAD_MULTIPLE alone. Others may
// depend on this process while its threads are in calls of MPI's own, or outside of MPI. They ask
// for the bytes of sends that wait in their buffers, have no room for what it is to receive, or
// have an access to a window done. The attendant does all that.
//
// It begins with the first message of a process that uses a device, or a window whose ranks send
// each other messages. It sleeps while there is nothing to attend to. A process that exits without
// MPI_Finalize leaves it alone, and it calls nothing from then on.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request.h"
#include "fabrail/rndv/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { LEAST_NAP_NS = 20000, MOST_NAP_NS = 5000000, MOST_NAP_FOR_WINDOWS_NS = 1000000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_t thread;    // begun once
static bool started;        // under the mutex
static bool (*look)(void);  // written before the thread starts
static _Atomic int windows; // that it is needed for
static _Atomic bool allowed;
static _Atomic bool runs;
static _Atomic bool stops;
static _Atomic bool looks; // is just doing so
static _Atomic int sleeps;

static bool has_work(void)
{
    return fr_rndv_any_waiting() || fr_request_any_tracked() || atomic_load(&windows) > 0;
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

// Naps are short while sends leave or others are served, and grow otherwise: most calls look after
// others themselves.
static void *run(void *nothing)
{
    struct fr_wait naps = {.nap_ns = LEAST_NAP_NS};
    size_t waiting = 0;
    int device = fr_device_known();
    if (device >= 0 && fr_device_adopt(device) != FR_OK)
        fr_warn("the thread that looks after other ranks has no context of device %d", device);
    while (!atomic_load(&stops)) {
        bool moved = false;
        if (!has_work())
            sleep_until_wanted();
        atomic_store(&looks, true);
        if (!atomic_load(&stops))
            moved = look();
        atomic_store(&looks, false);
        if (moved || waiting != fr_rndv_waiting_count)
            naps = (struct fr_wait){.nap_ns = LEAST_NAP_NS};
        waiting = fr_rndv_waiting_count;
        naps.longest_nap_ns = atomic_load(&windows) > 0 ? MOST_NAP_FOR_WINDOWS_NS : MOST_NAP_NS;
        (void)fr_wait_step(&naps);
    }
    return nothing;
}

// Called when the process exits. Functions that MPI and the driver have registered for that come
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
static bool start(bool (*call)(void))
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_lock(&mutex);
    if (!started && !atomic_load(&stops)) {
        look = call;
        pthread_sigmask(SIG_SETMASK, &all, &before);
        started = atexit(leave_alone) == 0 && pthread_create(&thread, NULL, run, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        atomic_store(started ? &runs : &allowed, started);
    }
    pthread_mutex_unlock(&mutex);
    return atomic_load(&runs);
}

void fr_request_attendant_allow(bool (*call)(void))
{
    look = call;
    atomic_store(&allowed, true);
}

bool fr_request_attendant_keep(bool (*call)(void))
{
    atomic_fetch_add(&windows, 1);
    if (!start(call))
        return false;
    (void)fr_request_attendant_wake();
    return true;
}

void fr_request_attendant_let_go(void)
{
    atomic_fetch_sub(&windows, 1);
}

bool fr_request_is_attended(void)
{
    return atomic_load_explicit(&runs, memory_order_acquire) ||
           (atomic_load_explicit(&allowed, memory_order_relaxed) && fr_device_known() >= 0 &&
            start(look));
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
