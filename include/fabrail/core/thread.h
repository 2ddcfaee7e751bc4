// SPDX-License-Identifier: BSD-3-Clause
// Threads of Fabrail's own. All signals are blocked in them, since they are the program's business.
//
// A process that exits without MPI_Finalize leaves its threads alone. They begin nothing from then
// on, since MPI and the driver end meanwhile.
#ifndef FR_CORE_THREAD_H
#define FR_CORE_THREAD_H

#include "fabrail/core.h"

#include <pthread.h>
#include <sys/types.h>

// A thread that does something again and again, or sleeps while there is nothing to do. Statically
// initialised by FR_THREAD_INIT; the rest is private to thread.c.
struct fr_thread {
    void (*run)(void);
    bool (*has_work)(void);
    pthread_t id;
    pthread_mutex_t mutex;
    pthread_cond_t wanted;
    enum { FR_THREAD_UNSTARTED, FR_THREAD_RUNS, FR_THREAD_OVER } state; // guarded by the mutex
    _Atomic bool runs;
    _Atomic bool stops;
    _Atomic bool is_busy;
    _Atomic int sleeps;
    struct fr_thread *next;
};

// `call` is the thread's function. `work` says whether there is something to do. It is called with
// a lock held, and takes none that is held where fr_thread_wake is called.
#define FR_THREAD_INIT(call, work)                                                                 \
    {                                                                                              \
        .run = (call), .has_work = (work), .mutex = PTHREAD_MUTEX_INITIALIZER,                     \
        .wanted = PTHREAD_COND_INITIALIZER                                                         \
    }

// Starts the thread unless it has been started. Returns whether it runs. One that has ended, or
// could not be started, is not started again.
bool fr_thread_start(struct fr_thread *thread);

// Returns whether the thread runs.
static inline bool fr_thread_runs(const struct fr_thread *thread)
{
    return atomic_load_explicit(&thread->runs, memory_order_acquire);
}

// Returns whether the thread has been told to end.
static inline bool fr_thread_stops(const struct fr_thread *thread)
{
    return atomic_load(&thread->stops);
}

// Called by the thread before each turn. Sleeps until there is work, if it may. Returns false when
// the thread shall end.
FR_MUST_CHECK bool fr_thread_next(struct fr_thread *thread, bool may_sleep);

// Wakes a thread that sleeps, after there has come to be work. Cheap when it does not sleep.
void fr_thread_wake(struct fr_thread *thread);

// Ends the thread and waits for that. Does nothing where it does not run.
void fr_thread_stop(struct fr_thread *thread);

#endif
