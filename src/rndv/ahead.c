// SPDX-License-Identifier: BSD-3-Clause
// The kernel that stands by for the message of a receive. To begin a copy takes microseconds, which
// is most of what a short message takes. So a call that waits for one receive launches a kernel for
// the copy before it waits. Receives are served that have no room for an RTS, so that nothing but a
// few bytes can come.
//
// There is one at a time. It belongs to the call of the thread that is in MPI, as calls come one at
// a time where there is any.
#include "config.h"

#include "fabrail/rndv/ahead.h"

#include "fabrail/core/time.h"
#include "fabrail/device/aperture.h"
#include "fabrail/device/standby.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/job.h"
#include "fabrail/policy/scheme.h"
#include "fabrail/rndv.h"
#include "fabrail/staging/packed.h"
#include "rndv/ahead_int.h"
#include "rndv/ledger.h"

static struct {
    const struct fr_staging_view *view; // that the bytes are for; NULL: there is no kernel
    struct fr_device_standby kernel;
} standby;

// Receives that are still to go without a kernel that waits, since one has waited in vain.
static _Atomic unsigned patient;

bool fr_rndv_ahead_may(void)
{
    unsigned left = atomic_load_explicit(&patient, memory_order_relaxed);
    if (left > 0)
        atomic_store_explicit(&patient, left - 1, memory_order_relaxed);
    return left == 0;
}

void fr_rndv_ahead_in_vain(void)
{
    enum { PATIENT = 64 };
    atomic_store_explicit(&patient, PATIENT, memory_order_relaxed);
}

// Returns whether a process of this host takes turns with this one on its GPU. Looks once a
// millisecond, since there may be many.
static bool takes_turns(int device)
{
    enum { AGAIN_NS = 1000000 };
    static bool turns;
    static int64_t looked_ns;
    int64_t now = fr_time_ns();
    fr_rndv_ledger_use_device(device);
    if (FR_LIKELY(looked_ns != 0 && now - looked_ns < AGAIN_NS))
        return turns;
    looked_ns = now;
    turns = false;
    for (int rank = 0; rank < fr_job_size() && !turns; rank++)
        turns = fr_rndv_ledger_takes_turns_with(rank);
    return turns;
}

static bool is_by_cpu(const struct fr_staging_view *view)
{
    const char *why_not;
    return view->out_bytes <= fr_ipc_tuned(FR_SIZE_CPU_WRITE) &&
           fr_device_aperture_way(view->range.device, &why_not) != NULL;
}

static bool stands_by(const struct fr_staging_view *view)
{
    const struct fr_policy_receive facts = {
        .room = view->out_bytes,
        .rts_bytes = FR_RNDV_RTS_BYTES,
        .one_piece = !view->absolute && fr_staging_view_is_in_one_piece(view),
        .takes_turns = takes_turns(view->range.device),
        .by_cpu = is_by_cpu(view),
    };
    return fr_policy_stands_by(&facts);
}

static uintptr_t destination_of(const struct fr_staging_view *view)
{
    return view->base + (uintptr_t)view->blocks[0].user_offset;
}

void fr_rndv_standby_begin(const struct fr_staging_view *view)
{
    fr_rndv_standby_end(); // of a call that was left
    if (view->out_bytes >= FR_RNDV_RTS_BYTES || !fr_device_owns(&view->range) || !stands_by(view) ||
        !fr_rndv_ahead_may())
        return;
    if (fr_device_standby_begin(&view->range, destination_of(view), view->out_bytes,
                                &standby.kernel))
        standby.view = view;
    else
        fr_rndv_ahead_in_vain();
}

void fr_rndv_standby_end(void)
{
    if (FR_LIKELY(standby.view == NULL))
        return;
    standby.view = NULL;
    fr_rndv_ahead_in_vain();
    fr_device_standby_end(&standby.kernel);
}

bool fr_rndv_standby_put(const struct fr_staging_view *view, size_t limit_bytes)
{
    if (FR_LIKELY(standby.view == NULL) || standby.view != view ||
        standby.kernel.dst != destination_of(view) || !fr_staging_is_packed(view) ||
        view->path != FR_PATH_HOST)
        return false; // an error handler may have left the call whose kernel this is
    size_t bytes = limit_bytes < view->out_bytes ? limit_bytes : view->out_bytes;
    const void *data = (const void *)fr_staging_given_address(view);
    if (fr_device_standby_copy(&standby.kernel, data, bytes) != FR_OK)
        return false;
    standby.view = NULL;
    return true;
}
