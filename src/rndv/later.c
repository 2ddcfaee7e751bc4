// SPDX-License-Identifier: BSD-3-Clause
// Scheme later: the bytes stay in the sender's buffer, since there is no room for a copy of them
// and the receiver cannot fetch them there.
//
// The receiver refuses it, as it does a scheme that it cannot use, and waits for another one. The
// sender gives that wherever it makes progress, once there is room: or else one message at a time,
// since what holds the room may be messages that the receiver takes after this one. Where room
// comes before the receiver does, the bytes leave as those of scheme get do.
#include "config.h"

#include "rndv/send.h"

static enum fr_status start(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_place *place, uint64_t *ready)
{
    (void)send;
    (void)facts;
    (void)place;
    *ready = 0;
    return FR_OK;
}

static bool progress(struct fr_rndv_send *send)
{
    (void)send;
    return false; // the bytes stay
}

static enum fr_status give(struct fr_rndv_send *send)
{
    bool fits = fr_rndv_send_fits_device(send) || fr_workspace_has_room(send->bytes);
    if (!fits && !fr_rndv_stage_take_turn(send))
        return FR_ERR_LIMIT;
    return fr_rndv_send_move_out(send) ? FR_OK : FR_ERR_NO_MEMORY;
}

static enum fr_status begin(struct fr_rndv_recv *recv)
{
    (void)recv;
    return FR_ERR_UNSUPPORTED;
}

const struct fr_rndv_scheme fr_rndv_later = {
    .id = FR_SCHEME_LATER,
    .flags = FR_RNDV_REFUSABLE | FR_RNDV_BY_NETWORK | FR_RNDV_UNDECIDED,
    .start = start,
    .progress = progress,
    .give = give,
    .begin = begin,
};
