// SPDX-License-Identifier: BSD-3-Clause
// Threads of Fabrail's own, and their end where the process exits.
#include "config.h"

#include "fabrail/core/thread.h"

#include "fabrail/core/time.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_thread *started FR_GUARDED_BY(lock);
static pid_t owner FR_GUARDED_BY(lock); // a child of fork has none of the threads

// Tells a thread to end. Returns whether it ran.
static bool tell_to_end(struct fr_thread *thread)
{
    pthread_mutex_lock(&thread->mutex);
    bool runs = thread->state == FR_THREAD_RUNS;
    thread->state = FR_THREAD_OVER;
    atomic_store(&thread->runs, false);
    atomic_store(&thread->stops, true);
    pthread_cond_signal(&thread->wanted);
    pthread_mutex_unlock(&thread->mutex);
    return runs;
}

// Has a thread begin nothing more. Waits a moment for what it is doing, and no longer: it may want
// what the exiting thread holds.
static void leave_alone(struct fr_thread *thread)
{
    enum { NAPS = 100, NAP_NS = 1000000 };
    if (!tell_to_end(thread))
        return;
    bool is_own = pthread_equal(thread->id, pthread_self());
    for (int i = 0; i < NAPS && atomic_load(&thread->is_busy) && !is_own; i++)
        fr_time_sleep(NAP_NS);
    pthread_detach(thread->id); // it ends by itself
}

// Called when the process exits. Functions that MPI and the driver registered for that before the
// last thread was started come later.
static void leave_all_alone(void)
{
    fr_core_lock(&lock);
    struct fr_thread *first = owner == getpid() ? started : NULL;
    fr_core_unlock(&lock);
    for (struct fr_thread *thread = first; thread; thread = thread->next)
        leave_alone(thread);
}

static void *run(void *thread)
{
    ((struct fr_thread *)thread)->run();
    return NULL;
}

static bool create(struct fr_thread *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = atexit(leave_all_alone) == 0 && pthread_create(&thread->id, NULL, run, thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!runs)
        return false;
    fr_core_lock(&lock);
    thread->next = started;
    started = thread;
    owner = getpid();
    fr_core_unlock(&lock);
    return true;
}

bool fr_thread_start(struct fr_thread *thread)
{
    fr_core_set_serial(false);
    pthread_mutex_lock(&thread->mutex);
    if (thread->state == FR_THREAD_UNSTARTED && !atomic_load(&thread->stops)) {
        bool runs = create(thread);
        thread->state = runs ? FR_THREAD_RUNS : FR_THREAD_OVER;
        atomic_store(&thread->runs, runs);
    }
    pthread_mutex_unlock(&thread->mutex);
    return fr_thread_runs(thread);
}

static void sleep_until_wanted(struct fr_thread *thread)
{
    atomic_store(&thread->is_busy, false);
    pthread_mutex_lock(&thread->mutex);
    (void)atomic_exchange(&thread->sleeps, 1); // who wakes it has written what is looked at now
    while (!atomic_load(&thread->stops) && !thread->has_work())
        pthread_cond_wait(&thread->wanted, &thread->mutex);
    atomic_store(&thread->sleeps, 0);
    pthread_mutex_unlock(&thread->mutex);
}

bool fr_thread_next(struct fr_thread *thread, bool may_sleep)
{
    if (may_sleep && !thread->has_work())
        sleep_until_wanted(thread);
    atomic_store(&thread->is_busy, true);
    if (!atomic_load(&thread->stops))
        return true;
    atomic_store(&thread->is_busy, false);
    return false;
}

void fr_thread_wake(struct fr_thread *thread)
{
    if (atomic_fetch_or(&thread->sleeps, 0) == 0) // a load would not come after what was written
        return;
    pthread_mutex_lock(&thread->mutex);
    pthread_cond_signal(&thread->wanted);
    pthread_mutex_unlock(&thread->mutex);
}

void fr_thread_stop(struct fr_thread *thread)
{
    if (tell_to_end(thread))
        pthread_join(thread->id, NULL);
}
