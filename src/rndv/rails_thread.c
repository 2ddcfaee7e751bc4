// SPDX-License-Identifier: BSD-3-Clause
// The progress thread (FABRAIL_PROGRESS). It polls rails over which others read, where a provider
// wants a CPU for that. It calls no MPI function.
#include "config.h"

#include "fabrail/core/thread.h"
#include "rndv/own_rails.h"

enum { LEAST_NAP_NS = 20000, MOST_NAP_NS = 1000000, GROWTH = 16 };

static void run(void);
static bool has_work(void);
static struct fr_thread thread = FR_THREAD_INIT(run, has_work);
static _Atomic long served;           // messages that others may be reading
static _Atomic unsigned long changes; // how often `served` has changed
static struct fr_rails *polled;
static int own_device;

static bool has_work(void)
{
    return atomic_load(&served) > 0;
}

// Returns the length of the next nap. Bytes are mostly read soon after they are there to be read,
// so naps are short at first. They grow as long as nothing changes.
static long next_nap(long nap_ns, bool moved)
{
    static unsigned long seen;
    unsigned long now = atomic_load_explicit(&changes, memory_order_relaxed);
    bool anew = moved || now != seen;
    seen = now;
    nap_ns = anew ? LEAST_NAP_NS : nap_ns + nap_ns / GROWTH;
    return nap_ns < MOST_NAP_NS ? nap_ns : MOST_NAP_NS;
}

static void run(void)
{
    long nap_ns = LEAST_NAP_NS;
    if (own_device >= 0 && fr_device_adopt(own_device) != FR_OK)
        fr_warn("the thread for rails has no context of device %d", own_device);
    if (!fr_rail_stay_near(polled))
        fr_debug("the thread for rails stays on the cores of its rank");
    while (fr_thread_next(&thread, true)) {
        nap_ns = next_nap(nap_ns, fr_rail_poll(polled));
        (void)fr_rail_wait(polled, nap_ns);
    }
}

// The thread is needed since a rank may be in a blocking call of the MPI library for as long as it
// takes others to read from it.
bool fr_rndv_thread_start(struct fr_rails *rails, int device)
{
    enum fr_progress_use use = fr_core_settings()->progress;
    bool is_needed = fr_rail_needs_polls(rails);
    if (use == FR_PROGRESS_MANUAL && is_needed)
        fr_info("no rails: they want a thread to poll them, and FABRAIL_PROGRESS=manual");
    if (use == FR_PROGRESS_MANUAL || (use == FR_PROGRESS_AUTO && !is_needed))
        return !is_needed;
    polled = rails;
    own_device = device;
    atomic_store(&served, use >= FR_PROGRESS_THREAD ? 1 : 0);
    bool runs = fr_thread_start(&thread);
    if (!runs)
        fr_warn("no thread could be started for rails%s",
                is_needed ? ", so that messages take another way" : "");
    return runs || !is_needed;
}

void fr_rndv_thread_serve(int change)
{
    if (!fr_thread_runs(&thread))
        return;
    atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed);
    if (atomic_fetch_add(&served, change) <= 0 && change > 0)
        fr_thread_wake(&thread);
}

void fr_rndv_thread_stop(void)
{
    fr_thread_stop(&thread);
}
