// SPDX-License-Identifier: BSD-3-Clause
// The attendant, a thread of Fabrail's that exists under MPI_THREAD_MULTIPLE alone. Others may
// depend on this process while its threads are in calls of MPI's own, or outside of MPI. They ask
// for the bytes of sends that wait in their buffers, or for bytes in another way than they were
// offered. They have no room for what it is to receive, or have an access to a window done. The
// attendant does all that.
//
// It begins with the first message of a process that uses a device, or a window whose ranks send
// each other messages. It sleeps while there is nothing to attend to, though there may be
// persistent requests that are not started. A process that exits without MPI_Finalize leaves it
// alone, and it calls nothing from then on.
#include "config.h"

#include "fabrail/core/thread.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request.h"
#include "fabrail/request/attendant.h"
#include "fabrail/rndv/progress.h"

enum { LEAST_NAP_NS = 20000, MOST_NAP_NS = 5000000, MOST_NAP_FOR_WINDOWS_NS = 1000000 };

static void run(void);
static bool has_work(void);
static struct fr_thread thread = FR_THREAD_INIT(run, has_work);
static bool (*look)(void);  // written before the thread starts
static _Atomic int windows; // that it is needed for
static _Atomic bool allowed;

static bool has_work(void)
{
    return fr_rndv_any_waiting() || fr_rndv_any_detached() || fr_request_any_active() ||
           atomic_load(&windows) > 0;
}

void fr_request_attend(void)
{
    fr_rndv_progress(NULL); // those on other hosts say only now that they wait
    fr_request_notice_awaited();
    if (fr_thread_stops(&thread))
        return;
    if (!fr_rndv_any_waiting() && !atomic_load_explicit(&fr_request_awaited, memory_order_relaxed))
        return;
    fr_job_progress();
    fr_request_advance_all();
    (void)fr_request_receive_early();
}

// Naps are short while sends leave or others are served, and grow otherwise: most calls look after
// others themselves.
static void run(void)
{
    struct fr_wait naps = {.nap_ns = LEAST_NAP_NS};
    size_t waiting = 0;
    int device = fr_device_known();
    if (device >= 0 && fr_device_adopt(device) != FR_OK)
        fr_warn("the thread that looks after other ranks has no context of device %d", device);
    while (fr_thread_next(&thread, true)) {
        bool moved = look();
        if (moved || waiting != fr_rndv_waiting_count)
            naps = (struct fr_wait){.nap_ns = LEAST_NAP_NS};
        waiting = fr_rndv_waiting_count;
        naps.longest_nap_ns = atomic_load(&windows) > 0 ? MOST_NAP_FOR_WINDOWS_NS : MOST_NAP_NS;
        (void)fr_wait_step(&naps);
    }
}

static bool start(void)
{
    bool runs = fr_thread_start(&thread);
    if (!runs)
        atomic_store(&allowed, false);
    return runs;
}

void fr_request_attendant_allow(bool (*call)(void))
{
    look = call;
    atomic_store(&allowed, true);
}

bool fr_request_attendant_keep(bool (*call)(void))
{
    atomic_fetch_add(&windows, 1);
    if (!fr_thread_runs(&thread))
        look = call;
    if (!start())
        return false;
    fr_thread_wake(&thread);
    return true;
}

void fr_request_attendant_let_go(void)
{
    atomic_fetch_sub(&windows, 1);
}

bool fr_request_is_attended(void)
{
    return fr_thread_runs(&thread) || (atomic_load_explicit(&allowed, memory_order_relaxed) &&
                                       fr_device_known() >= 0 && start());
}

bool fr_request_attendant_wake(void)
{
    if (!fr_request_is_attended())
        return false;
    fr_thread_wake(&thread);
    return true;
}

void fr_request_attendant_stop(void)
{
    atomic_store(&allowed, false);
    fr_thread_stop(&thread);
}
