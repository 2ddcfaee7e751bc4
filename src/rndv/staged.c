// SPDX-License-Identifier: BSD-3-Clause
// Scheme staged get: the bytes wait in the sender's device workspace, which the receiver has
// mapped. It serves buffers that the receiver has not mapped, or never can. It also serves other
// hosts of a clique, where a sender cannot take back what somebody may be reading.
//
// The receiver of a large message is told step by step what is there, so that pulling overlaps with
// copying. On one host even small messages are advertised before they are copied. Where one kernel
// packs a message, the receiver's kernel is launched before that one is done, and waits for it at a
// gate beside the bytes.
#include "config.h"

#include "fabrail/ipc.h"
#include "fabrail/job.h"
#include "rndv/send.h"

// Gets workspace and fills in the message's location. Returns FR_ERR_NOT_FOUND when the receiver
// has not mapped it.
static enum fr_status find_workspace(struct fr_rndv_send *send, struct fr_rndv_location *location)
{
    struct fr_device_range range;
    enum fr_status status = fr_rndv_stage_open(send, FR_PATH_PEER);
    if (status != FR_OK)
        return status;
    const struct fr_staging_view *staged = &send->stage.view;
    location->address = staged->stage_base;
    range = fr_staging_lease_range(&staged->lease);
    status = fr_ipc_export(&range, staged->lease.address, staged->lease.bytes, &location->handle);
    if (status == FR_OK && !fr_rndv_is_mapped_by(send->address.to, &location->handle, true))
        return FR_ERR_NOT_FOUND;
    return status;
}

static enum fr_status start(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_location *location, uint64_t *ready)
{
    bool may_gate = facts->here && !facts->takes_turns && send->address.to != fr_job_rank();
    enum fr_status status = find_workspace(send, location);
    return status == FR_OK ? fr_rndv_stage_begin_on_device(send, may_gate, ready) : status;
}

static enum fr_status copy(struct fr_rndv_send *send)
{
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    fr_staging_view_copy_in(&send->stage.view, &batch);
    return fr_device_batch_finish(&batch);
}

// A receiver that has not mapped the workspace does so when it begins. If it cannot, this process
// has to be in MPI still, so a waiting send leaves in another way.
enum fr_status fr_rndv_staged_take_over(struct fr_rndv_send *send)
{
    struct fr_rndv_location location = {.scheme = FR_SCHEME_STAGED_GET};
    enum fr_status status = find_workspace(send, &location);
    if (status == FR_ERR_NOT_FOUND && send->scheme != &fr_rndv_waiting)
        status = fr_ipc_needs_descriptor(&location.handle)
                     ? fr_ipc_send_descriptor(&location.handle, fr_job_process_of(send->address.to),
                                              1, false)
                     : FR_OK;
    if (status == FR_OK)
        status = copy(send);
    if (status != FR_OK) {
        fr_rndv_stage_close(send);
        return status;
    }
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    slot->location = location;
    slot->extra.gate.count = 0;
    atomic_store_explicit(&slot->ready, send->bytes, memory_order_release);
    send->scheme = &fr_rndv_staged_get;
    return FR_OK;
}

const struct fr_rndv_scheme fr_rndv_staged_get = {
    .id = FR_SCHEME_STAGED_GET,
    .flags = FR_RNDV_NEEDS_PUSH | FR_RNDV_REFUSABLE | FR_RNDV_GATED,
    .start = start,
    .progress = fr_rndv_stage_push,
    .begin = fr_rndv_get_begin,
    .pull = fr_rndv_get_pull,
    .end = fr_rndv_get_end,
};
