// SPDX-License-Identifier: BSD-3-Clause
// The thread that acts on messages about windows while the application computes, or waits in MPI.
// It calls MPI, so it runs in programs with MPI_THREAD_MULTIPLE alone.
#include "config.h"

#include "rma/far.h"

#include <pthread.h>
#include <signal.h>

enum { LEAST_NAP_NS = 20000, MOST_NAP_NS = 1000000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // also held while the thread ends
static unsigned users;
static bool is_running;
static pthread_t thread;
static _Atomic bool stops;

static void *run(void *nothing)
{
    struct fr_wait wait = {.nap_ns = LEAST_NAP_NS, .longest_nap_ns = MOST_NAP_NS};
    uint64_t seen = 0;
    int device = fr_device_known();
    if (device >= 0 && fr_device_adopt(device) != FR_OK)
        fr_warn("the thread for windows has no context of device %d", device);
    while (!atomic_load(&stops)) {
        fr_rma_progress();
        if (seen != fr_rma_messages_taken())
            wait = (struct fr_wait){.nap_ns = LEAST_NAP_NS, .longest_nap_ns = MOST_NAP_NS};
        seen = fr_rma_messages_taken();
        (void)fr_wait_step(&wait);
    }
    return nothing;
}

// All signals are blocked in the thread, since they are the program's own business.
static void start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    atomic_store(&stops, false);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_running = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop(void)
{
    if (!is_running)
        return;
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
    is_running = false;
}

bool fr_rma_thread_start(void)
{
    pthread_mutex_lock(&mutex);
    if (users == 0)
        start();
    bool runs = is_running;
    users += runs;
    pthread_mutex_unlock(&mutex);
    return runs;
}

void fr_rma_thread_stop(void)
{
    pthread_mutex_lock(&mutex);
    if (--users == 0)
        stop();
    pthread_mutex_unlock(&mutex);
}

void fr_rma_end(void)
{
    pthread_mutex_lock(&mutex);
    stop();
    pthread_mutex_unlock(&mutex);
}
