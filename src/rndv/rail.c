// SPDX-License-Identifier: BSD-3-Clause
// Scheme rail, with its sender; the receiver is in rail_recv.c. The bytes wait in the sender's
// workspace, which is registered with all of its NICs. The receiver reads them over all rails at
// once, fragment by fragment as they are there. It copies fragments to where they belong while
// others are on the wire.
//
// On a side whose NICs reach device memory, the workspace is device memory. NICs then write
// straight to the program's memory there if it can be registered. On another side the workspace is
// page-locked memory. Both sides need not be alike. The program's buffer on the sender is not read:
// the program could not have it back while somebody may be reading.
//
// The sender only has to say how far its copies are. Where policy prefers writes, the receiver asks
// it to write (rail_put_send.h).
#include "config.h"

#include "fabrail/staging/packed.h"
#include "rndv/hmem.h"
#include "rndv/own_rails.h"
#include "rndv/rail_put_send.h"
#include "rndv/rail_recv.h"

#include <stdlib.h>
#include <string.h>

enum { FRAGMENTS = 16 }; // of messages that are neither short nor long

static unsigned shift_of(size_t bytes)
{
    unsigned shift = FR_RNDV_RAIL_LEAST_SHIFT;
    while (shift < FR_RNDV_RAIL_MOST_SHIFT && bytes >> shift > FRAGMENTS)
        shift++;
    return shift;
}

static enum fr_status describe(const struct fr_rndv_send *send, struct fr_rndv_key *key)
{
    const struct fr_rndv_rail_send *rail = send->state;
    unsigned char data[FR_RAIL_KEY_MAX];
    size_t bytes = fr_rail_describe(rail->region, rail->offset, send->bytes, data);
    if (bytes > sizeof(key->data))
        return FR_ERR_UNSUPPORTED;
    memcpy(key->data, data, bytes);
    key->bytes = (uint16_t)bytes;
    key->verbs = (uint16_t)fr_rndv_rail_put_send_verbs();
    return FR_OK;
}

static enum fr_status stage(struct fr_rndv_send *send, bool on_device)
{
    struct fr_rndv_rail_send *rail = send->state;
    const struct fr_staging_view *staged = &send->stage.view;
    enum fr_status status = fr_rndv_stage_open(send, on_device ? FR_PATH_PEER : FR_PATH_HOST);
    if (status == FR_OK && on_device)
        status = fr_rndv_hmem_register_lease(&staged->lease, &rail->region, &rail->offset);
    else if (status == FR_OK)
        status = fr_rndv_rail_register_lease(&staged->lease, &rail->region);
    if (status == FR_OK)
        rail->offset += fr_staging_given_address(staged) - (uintptr_t)staged->lease.address;
    return status;
}

static enum fr_status start(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_location *location, uint64_t *ready)
{
    bool on_device = fr_policy_rails_read_device(facts);
    if (fr_rndv_rails() == NULL)
        return FR_ERR_UNSUPPORTED;
    struct fr_rndv_rail_send *rail = calloc(1, sizeof(*rail));
    send->state = rail;
    if (rail == NULL)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = stage(send, on_device);
    if (status == FR_OK)
        status = describe(send, &location->key);
    if (status != FR_OK)
        return status;
    location->shift = shift_of(send->bytes);
    fr_rndv_rails_serve(1);
    rail->serves = true;
    rail->writes = fr_rndv_rail_put_send_is_likely();
    if (on_device)
        return fr_rndv_stage_begin_on_device(send, false, ready);
    fr_rndv_stage_begin(send, (size_t)1 << location->shift, 1);
    *ready = 0;
    return FR_OK;
}

static bool progress(struct fr_rndv_send *send)
{
    bool gone = fr_rndv_stage_push(send);
    fr_rndv_rail_put_send_step(send->index, send);
    return gone;
}

// A sender that is to write needs the program in MPI for that, as scheme pipeline does. It waits no
// longer than it is asked to write: the receiver reads what it has not written, or is gone.
static int64_t wait_ns(const struct fr_rndv_send *send)
{
    const struct fr_rndv_rail_send *rail = send->state;
    return rail->writes ? fr_rndv_pipeline.wait_ns(send) : FR_RNDV_LEAST_WAIT_NS;
}

static bool may_leave(const struct fr_rndv_send *send, enum fr_rndv_state state, bool waited)
{
    const struct fr_rndv_rail_send *rail = send->state;
    bool is_requested = state == FR_RNDV_PULLING && fr_rndv_rail_put_send_is_requested(send->index);
    return !rail->writes || (waited && !is_requested);
}

static bool is_quiet(const struct fr_rndv_send *send)
{
    return !fr_rndv_rail_put_send_is_requested(send->index);
}

static void cancel(struct fr_rndv_send *send)
{
    struct fr_rndv_rail_send *rail = send->state;
    if (rail == NULL)
        return;
    if (send->entered)
        fr_rndv_rail_put_send_stop(send);
    if (rail->serves)
        fr_rndv_rails_serve(-1);
    rail->serves = false;
    if (rail->region != NULL)
        fr_rail_release(fr_rndv_rails(), rail->region);
    rail->region = NULL;
}

// Gives up the rails to the receiver: where one message has failed the next is not tried.
static void note_failure(const struct fr_rndv_send *send)
{
    fr_rndv_rails_give_up(send->address.to);
}

static bool rest(void)
{
    return fr_rail_rest(fr_rndv_rails());
}

const struct fr_rndv_scheme fr_rndv_rail = {
    .id = FR_SCHEME_RAIL,
    .flags = FR_RNDV_NEEDS_PUSH | FR_RNDV_REFUSABLE | FR_RNDV_BY_NETWORK | FR_RNDV_ANSWERS,
    .start = start,
    .progress = progress,
    .wait_ns = wait_ns,
    .may_leave = may_leave,
    .is_quiet = is_quiet,
    .cancel = cancel,
    .note_failure = note_failure,
    .begin = fr_rndv_rail_begin,
    .pull = fr_rndv_rail_pull,
    .end = fr_rndv_rail_end,
    .rest = rest,
};
