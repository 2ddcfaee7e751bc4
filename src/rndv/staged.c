// SPDX-License-Identifier: BSD-3-Clause
// Scheme staged get: the bytes wait in device memory of the sender's workspace, which the receiver
// has mapped. For memory that it has not mapped, or never can, and for other hosts of a clique,
// where a sender cannot take back what somebody may be reading.
//
// Large messages are told of step by step, so that pulling overlaps with copying. On one host even
// small ones are announced before they are copied.
#include "config.h"

#include "memory/memory.h"
#include "rndv/send.h"
#include "world/world.h"

// FR_ERR_NOT_FOUND when the receiver has not mapped the workspace.
static enum fr_status find_workspace(struct fr_rndv_send *send)
{
    struct fr_device_range range;
    int to = send->address.to;
    enum fr_status status = fr_rndv_stage_open(send, FR_PATH_PEER);
    if (status != FR_OK)
        return status;
    fr_device_classify(send->staging.lease.address, 1, &range);
    status = fr_memory_export(&range, send->staging.lease.address, send->staging.lease.bytes,
                              &send->handle);
    if (status == FR_OK && to != fr_world_rank() &&
        !fr_memory_is_mapped_by(to, &send->handle, true))
        status = FR_ERR_NOT_FOUND;
    return status;
}

static enum fr_status start(struct fr_rndv_send *send, struct fr_rndv_place *place, uint64_t *ready)
{
    enum fr_status status = find_workspace(send);
    if (status != FR_OK)
        return status;
    place->address = send->staging.stage_base;
    place->handle = send->handle;
    return fr_rndv_stage_begin_on_device(send, ready);
}

const struct fr_rndv_scheme fr_rndv_staged_get = {
    .id = FR_SCHEME_STAGED_GET,
    .start = start,
    .progress = fr_rndv_stage_push,
    .wait_ns = fr_rndv_stage_wait_ns,
    .may_leave = fr_rndv_stage_may_leave,
    .begin = fr_rndv_get_begin,
    .pull = fr_rndv_get_pull,
    .end = fr_rndv_get_end,
};
