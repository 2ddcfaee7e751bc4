// SPDX-License-Identifier: BSD-3-Clause
// The rails of this process: opened when a message could first go over them, moved on, and closed.
#include "config.h"

#include "fabrail/job.h"
#include "rndv/hmem.h"
#include "rndv/rail_connect.h"
#include "rndv/rail_put_send.h"

#include <stdlib.h>

enum opened { CLOSED, OPENING, OPEN, NONE };

static _Atomic int opened;          // enum opened
static _Atomic int own_device = -1; // device
static struct fr_rails *rails;      // while open
static bool outdone;                // MPI may use something better
static _Atomic long served_count;   // messages to be read from here, and processes that may read

struct fr_rails *fr_rndv_rails(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) == OPEN ? rails : NULL;
}

bool fr_rndv_rails_are_none(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) == NONE;
}

void fr_rndv_rails_use_device(int device)
{
    if (FR_UNLIKELY(atomic_load_explicit(&own_device, memory_order_relaxed) != device))
        atomic_store_explicit(&own_device, device, memory_order_relaxed);
}

// ---- opening

static void forget_workspace(uint64_t id)
{
    struct fr_rails *own = fr_rndv_rails();
    if (own != NULL)
        fr_rail_forget(own, id);
}

// Returns the device to open rails for. A process that others open rails to may not have handed MPI
// a buffer yet.
static int find_device(void)
{
    int device = atomic_load_explicit(&own_device, memory_order_relaxed);
    return device < 0 && fr_device_in_use() ? fr_device_current() : device;
}

static enum fr_status open_all(void)
{
    struct fr_rail_options options = fr_rail_options();
    char gpu[FR_DEVICE_BUS_ID];
    int device = find_device();
    options.rank = (unsigned)fr_job_rank();
    if (fr_device_bus_id(device, gpu))
        options.gpu = gpu;
    fr_rndv_hmem_prepare(device, &options);
    enum fr_status status = fr_rail_open(&options, &rails);
    if (status != FR_OK)
        goto forget_device;
    status = fr_rndv_rail_probe_open(rails);
    if (status != FR_OK)
        goto close;
    outdone = fr_rail_has_better(rails);
    if (outdone)
        fr_info("rails go over sockets, and this host has better: they take FABRAIL_RAIL=force");
    bool reaches = fr_rndv_hmem_open(rails, device);
    status = fr_rndv_thread_start(rails, reaches ? device : -1) ? FR_OK : FR_ERR_UNSUPPORTED;
    if (status != FR_OK)
        goto close;
    fr_staging_watch(forget_workspace);
    return FR_OK;

close:
    fr_rail_close(rails);
    rails = NULL;
    fr_rndv_rail_probe_close();
forget_device:
    fr_rndv_hmem_close();
    return status;
}

// A thread that comes while another one opens the rails does without them.
struct fr_rails *fr_rndv_rails_open_once(void)
{
    int expected = CLOSED;
    if (atomic_load_explicit(&opened, memory_order_acquire) == CLOSED &&
        atomic_compare_exchange_strong(&opened, &expected, OPENING))
        atomic_store_explicit(&opened, open_all() == FR_OK ? OPEN : NONE, memory_order_release);
    return fr_rndv_rails();
}

// A single rail offers nothing that MPI has not, and less where MPI has something better.
bool fr_rndv_rails_are_worth_it(void)
{
    return fr_core_settings()->rail == FR_RAIL_FORCE || (fr_rail_count(rails) > 1 && !outdone);
}

// ---- moving on

void fr_rndv_rails_serve(int change)
{
    atomic_fetch_add_explicit(&served_count, change, memory_order_relaxed);
    fr_rndv_thread_serve(change);
}

void fr_rndv_rails_poll(void)
{
    bool due = fr_rndv_retry_queue_is_due();
    bool serves = atomic_load_explicit(&served_count, memory_order_relaxed) > 0;
    if (FR_LIKELY(!due && !serves))
        return;
    struct fr_rails *own = fr_rndv_rails();
    if (own != NULL)
        (void)fr_rail_poll(own);
    if (due)
        fr_rndv_rail_connect_step();
}

void fr_rndv_rails_close(void)
{
    fr_rndv_thread_stop();
    fr_rndv_rail_connect_close();
    fr_staging_watch(NULL);
    if (atomic_exchange(&opened, CLOSED) == OPEN) {
        fr_rail_close(rails);
        fr_rndv_hmem_close();
        fr_rndv_rail_probe_close();
    }
    fr_rndv_rail_put_send_close();
    fr_rndv_rail_put_recv_close();
    rails = NULL;
    atomic_store_explicit(&served_count, 0, memory_order_relaxed);
}
