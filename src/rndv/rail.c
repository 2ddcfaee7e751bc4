// SPDX-License-Identifier: BSD-3-Clause
// Scheme rail: the bytes wait in memory of the sender's workspace, which is registered with all of
// its NICs; the receiver reads them over all of these at once, fragment by fragment as they are
// there, and copies to where they belong while others are on the wire.
//
// That is device memory on a side whose NICs reach it, and they write straight to the application's
// there if it can be registered; else it is page-locked memory. What the other side has is all the
// same. The sender's own buffer is not read: it could not have it back while somebody may be
// reading.
//
// It needs the sender for nothing but to say how far its copies are. What cannot be read at all
// goes by fragments over MPI in the end; after the first byte a failure is the message's.
#include "config.h"

#include "path/packed.h"
#include "rndv/fragments.h"
#include "rndv/hmem.h"
#include "rndv/rails.h"
#include "rndv/send.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_SHIFT = 18, // fragments of 256 KiB
    MOST_SHIFT = 22,  // 4 MiB
    FRAGMENTS = 16,   // that messages between have
    WINDOW = 32,      // reads of a message under way at once
};

static unsigned shift_of(size_t bytes)
{
    unsigned shift = LEAST_SHIFT;
    while (shift < MOST_SHIFT && bytes >> shift > FRAGMENTS)
        shift++;
    return shift;
}

// ---- the sender

static enum fr_status register_lease(const struct fr_workspace_lease *lease,
                                     struct fr_rail_region **region)
{
    const struct fr_rail_memory memory = {
        .address = lease->address,
        .bytes = lease->bytes,
        .id = fr_workspace_id(lease),
        .kind = FR_RAIL_HOST,
    };
    return fr_rail_register(fr_rndv_rails(), &memory, region);
}

static enum fr_status describe(struct fr_rndv_send *send, struct fr_rndv_key *key)
{
    unsigned char data[FR_RAIL_KEY_MAX];
    uintptr_t first = fr_path_given_address(&send->staging);
    size_t offset = send->region_offset + (first - (uintptr_t)send->staging.lease.address);
    size_t bytes = fr_rail_describe(send->region, offset, send->bytes, data);
    if (bytes > sizeof(key->data))
        return FR_ERR_UNSUPPORTED;
    memcpy(key->data, data, bytes);
    key->bytes = (uint32_t)bytes;
    return FR_OK;
}

static enum fr_status stage(struct fr_rndv_send *send)
{
    enum fr_policy_path path = send->rail_on_device ? FR_PATH_PEER : FR_PATH_HOST;
    enum fr_status status = fr_rndv_stage_open(send, path);
    send->region_offset = 0;
    if (status == FR_OK && send->rail_on_device)
        status =
            fr_rndv_hmem_register_lease(&send->staging.lease, &send->region, &send->region_offset);
    else if (status == FR_OK)
        status = register_lease(&send->staging.lease, &send->region);
    return status;
}

static enum fr_status start(struct fr_rndv_send *send, struct fr_rndv_place *place, uint64_t *ready)
{
    if (fr_rndv_rails() == NULL)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = stage(send);
    if (status == FR_OK)
        status = describe(send, &place->key);
    if (status != FR_OK)
        return status;
    place->shift = shift_of(send->bytes);
    fr_rndv_rails_serve(1);
    send->serves = true;
    if (send->rail_on_device)
        return fr_rndv_stage_begin_on_device(send, ready);
    fr_rndv_stage_begin(send, (size_t)1 << place->shift, 1);
    *ready = 0;
    return FR_OK;
}

static void cancel(struct fr_rndv_send *send)
{
    if (send->serves)
        fr_rndv_rails_serve(-1);
    send->serves = false;
    if (send->region != NULL)
        fr_rail_release(fr_rndv_rails(), send->region);
    send->region = NULL;
}

// ---- the receiver

// A message on its way in.
struct reading {
    struct fr_rndv_fragments in;
    struct fr_rail_region *region; // where they go
    size_t offset;                 // of the first, in it
    size_t begun;                  // fragments; those that are not done are under way
    size_t arrived;                // of the done ones
    struct fr_rail_transfer *transfers[WINDOW];
};

static enum fr_status register_workspace(struct reading *reading,
                                         const struct fr_workspace_lease *lease)
{
    reading->offset = (size_t)(reading->in.place - (unsigned char *)lease->address);
    return register_lease(lease, &reading->region);
}

// The application's own, which is there until its receive is over, and is registered no longer than
// that: nobody tells when it is freed. NICs refuse some memory.
static enum fr_status register_application(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    const struct fr_rail_memory memory = {
        .address = in->place, .bytes = in->bytes, .kind = FR_RAIL_HOST};
    reading->offset = 0;
    if (fr_rail_register(fr_rndv_rails(), &memory, &reading->region) == FR_OK)
        return FR_OK;
    enum fr_status status = fr_rndv_fragments_bounce(in);
    return status == FR_OK ? register_workspace(reading, &in->bounce) : status;
}

// Memory of Fabrail's stays registered.
static enum fr_status register_place(struct reading *reading)
{
    const struct fr_rndv_fragments *in = &reading->in;
    if (in->bounce.address != NULL)
        return register_workspace(reading, &in->bounce);
    if (fr_path_is_staged(in->recv->view))
        return register_workspace(reading, &in->recv->view->lease);
    return register_application(reading);
}

// The application's device memory, if it lies in one piece and a NIC takes it.
static enum fr_status open_direct(struct reading *reading, struct fr_rndv_recv *recv)
{
    const struct fr_path_view *view = recv->view;
    uintptr_t address = view->base + (uintptr_t)view->blocks[0].user_offset;
    size_t bytes = (size_t)recv->incoming->bytes;
    if (!fr_path_view_is_in_one_piece(view) || bytes > view->out_bytes)
        return FR_ERR_UNSUPPORTED;
    enum fr_status status =
        fr_rndv_hmem_register(&view->range, address, bytes, &reading->region, &reading->offset);
    if (status != FR_OK)
        return status;
    status = fr_device_quiesce(&view->range, address, bytes);
    if (status == FR_OK)
        fr_rndv_fragments_open_at(&reading->in, recv, address);
    else
        fr_rail_release(fr_rndv_rails(), reading->region);
    return status;
}

// Device memory of the workspace, from where a copy takes a fraction of what the wire does.
static enum fr_status open_beside(struct reading *reading, struct fr_rndv_recv *recv)
{
    enum fr_status status = fr_rndv_fragments_open_beside(&reading->in, recv);
    if (status != FR_OK)
        return status;
    status = fr_rndv_hmem_register_lease(&reading->in.bounce, &reading->region, &reading->offset);
    if (status != FR_OK)
        fr_workspace_return(&reading->in.bounce);
    return status;
}

static enum fr_status open_on_device(struct reading *reading, struct fr_rndv_recv *recv)
{
    if (recv->view->absolute || !fr_rndv_hmem_reaches(&recv->view->range))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = open_direct(reading, recv);
    if (status != FR_OK)
        status = open_beside(reading, recv);
    recv->on_device = status == FR_OK;
    return status;
}

static enum fr_status open_on_host(struct reading *reading, struct fr_rndv_recv *recv)
{
    enum fr_status status = fr_rndv_fragments_open(&reading->in, recv);
    if (status != FR_OK)
        return status;
    status = register_place(reading);
    if (status == FR_OK)
        return FR_OK;
    recv->status = status; // nothing is copied
    fr_rndv_fragments_close(&reading->in);
    return status;
}

static enum fr_status begin(struct fr_rndv_recv *recv)
{
    const struct fr_rndv_incoming *incoming = recv->incoming;
    if (!fr_rndv_rails_reach(incoming->from) || incoming->key.bytes > sizeof(incoming->key.data) ||
        incoming->shift < LEAST_SHIFT || incoming->shift > MOST_SHIFT)
        return FR_ERR_UNSUPPORTED;
    struct reading *reading = calloc(1, sizeof(*reading));
    if (reading == NULL)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = open_on_device(reading, recv);
    if (status != FR_OK)
        status = open_on_host(reading, recv);
    if (status != FR_OK) {
        free(reading);
        return status;
    }
    recv->state = reading;
    return FR_OK;
}

static bool is_ready(struct reading *reading)
{
    struct fr_rndv_incoming *incoming = reading->in.recv->incoming;
    size_t first = reading->begun << reading->in.shift;
    uint64_t last =
        first + fr_rndv_fragment_bytes(reading->in.bytes, reading->in.shift, reading->begun);
    if (incoming->ready < last)
        fr_rndv_incoming_refresh(incoming);
    if (incoming->ready == FR_RNDV_NEVER)
        reading->in.recv->status = FR_ERR_DEVICE;
    return incoming->ready != FR_RNDV_NEVER && incoming->ready >= last;
}

static void read_on(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    const struct fr_rndv_incoming *incoming = in->recv->incoming;
    while (in->recv->status == FR_OK && reading->begun < in->count &&
           reading->begun - in->done < WINDOW && is_ready(reading)) {
        size_t first = reading->begun << in->shift;
        enum fr_status status =
            fr_rail_read(fr_rndv_rails(), (unsigned)incoming->from, incoming->key.data,
                         incoming->key.bytes, first, reading->region, reading->offset + first,
                         fr_rndv_fragment_bytes(in->bytes, in->shift, reading->begun),
                         &reading->transfers[reading->begun % WINDOW]);
        if (status != FR_OK)
            in->recv->status = status;
        else
            reading->begun++;
    }
}

// After a failure those under way are taken back, and end.
static void look_at_reads(struct reading *reading)
{
    struct fr_rndv_fragments *in = &reading->in;
    enum fr_status status = FR_OK;
    while (in->done < reading->begun) {
        struct fr_rail_transfer *oldest = reading->transfers[in->done % WINDOW];
        if (!fr_rail_test(oldest, &status)) {
            if (in->recv->status != FR_OK)
                fr_rail_cancel(oldest);
            return;
        }
        fr_rail_finish(oldest);
        in->done++;
        reading->arrived += status == FR_OK;
        if (in->recv->status == FR_OK)
            in->recv->status = status;
    }
}

static bool pull(struct fr_rndv_recv **recvs, size_t count)
{
    bool over = true;
    for (size_t i = 0; i < count; i++) {
        struct reading *reading = recvs[i]->state;
        read_on(reading);
        look_at_reads(reading);
        if (recvs[i]->status == FR_OK)
            fr_rndv_fragments_copy(&reading->in);
        bool failed = recvs[i]->status != FR_OK;
        recvs[i]->untouched = failed && recvs[i]->status != FR_ERR_DEVICE && reading->arrived == 0;
        over = over && reading->in.done == (failed ? reading->begun : reading->in.count);
    }
    (void)fr_rail_poll(fr_rndv_rails());
    return over;
}

static void end(struct fr_rndv_recv *recv)
{
    struct reading *reading = recv->state;
    fr_rail_release(fr_rndv_rails(), reading->region); // before its memory may go
    fr_rndv_fragments_close(&reading->in);
    if (!recv->untouched)
        fr_rndv_incoming_end(recv->incoming, recv->status == FR_OK);
    free(reading);
    recv->state = NULL;
}

static bool rest(void)
{
    return fr_rail_rest(fr_rndv_rails());
}

const struct fr_rndv_scheme fr_rndv_rail = {
    .id = FR_SCHEME_RAIL,
    .start = start,
    .progress = fr_rndv_stage_push,
    .wait_ns = fr_rndv_stage_wait_ns,
    .may_leave = fr_rndv_stage_may_leave,
    .cancel = cancel,
    .begin = begin,
    .pull = pull,
    .end = end,
    .rest = rest,
};
