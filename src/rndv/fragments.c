// SPDX-License-Identifier: BSD-3-Clause
// Copies of received fragments from where they arrive to the program's memory. They overlap with
// fragments that are still to come.
#include "config.h"

#include "fabrail/staging/packed.h"
#include "rndv/fragments.h"

static size_t room_of(const struct fr_rndv_fragments *in)
{
    size_t room = in->recv->view->out_bytes;
    return in->bytes < room ? in->bytes : room;
}

// Returns whether a fragment can be copied on before the rest is there.
static bool can_overlap(const struct fr_rndv_fragments *in)
{
    const struct fr_staging_view *view = in->recv->view;
    const struct fr_layout *layout = view->blocks[0].layout;
    return !view->absolute && (layout->contiguous || room_of(in) % layout->size_bytes == 0);
}

// By sender. Two that share an entry only seem to give more.
static _Atomic unsigned come_from[256];

void fr_rndv_fragments_note_from(int rank)
{
    atomic_fetch_add_explicit(&come_from[(unsigned)rank % FR_ARRAY_LENGTH(come_from)], 1,
                              memory_order_relaxed);
}

unsigned fr_rndv_fragments_from(int rank)
{
    return atomic_load_explicit(&come_from[(unsigned)rank % FR_ARRAY_LENGTH(come_from)],
                                memory_order_relaxed);
}

enum fr_status fr_rndv_fragments_bounce(struct fr_rndv_fragments *in)
{
    enum fr_status status = fr_staging_borrow(in->bytes, &in->bounce);
    if (status != FR_OK)
        return status;
    in->memory = in->bounce.address;
    fr_staging_view_at(in->recv->view, in->bounce, &in->into, &in->block);
    if (!in->to_device)
        in->into.path = FR_PATH_HOST; // copies from workspace are those of this path
    in->overlaps = can_overlap(in);
    return FR_OK;
}

// Chooses where fragments go: where MPI's own data would, if there is room for all of them in one
// piece.
static enum fr_status choose_memory(struct fr_rndv_fragments *in)
{
    struct fr_staging_view *view = in->recv->view;
    in->to_device = fr_staging_is_staged(view);
    in->into = *view;
    if (!fr_staging_is_packed(view) || in->bytes > view->out_bytes || in->recv->elsewhere)
        return fr_rndv_fragments_bounce(in);
    if (view->lease.reservation != NULL && fr_rndv_fragments_bounce(in) == FR_OK)
        return FR_OK; // it is page-locked, if there is room
    in->memory = (unsigned char *)fr_staging_given_room(view);
    in->overlaps = in->to_device && can_overlap(in);
    return FR_OK;
}

static void begin(struct fr_rndv_fragments *in, struct fr_rndv_recv *recv)
{
    size_t bytes = (size_t)recv->incoming->bytes;
    *in = (struct fr_rndv_fragments){
        .recv = recv,
        .bytes = bytes,
        .shift = recv->incoming->location.shift,
        .count = fr_rndv_fragments_count(bytes, recv->incoming->location.shift),
    };
    fr_device_batch_begin(&in->batch);
}

enum fr_status fr_rndv_fragments_open(struct fr_rndv_fragments *in, struct fr_rndv_recv *recv)
{
    begin(in, recv);
    return choose_memory(in);
}

void fr_rndv_fragments_open_at(struct fr_rndv_fragments *in, struct fr_rndv_recv *recv,
                               uintptr_t address)
{
    begin(in, recv);
    in->memory = (unsigned char *)address;
}

enum fr_status fr_rndv_fragments_open_workspace(struct fr_rndv_fragments *in,
                                                struct fr_rndv_recv *recv)
{
    begin(in, recv);
    enum fr_status status =
        fr_staging_borrow_device(recv->view->range.device, in->bytes, &in->bounce);
    if (status != FR_OK)
        return status;
    in->memory = in->bounce.address;
    fr_staging_view_at(recv->view, in->bounce, &in->into, &in->block);
    in->into.path = FR_PATH_PEER;
    in->to_device = true;
    in->overlaps = can_overlap(in);
    return FR_OK;
}

void fr_rndv_fragments_copy(struct fr_rndv_fragments *in)
{
    const struct fr_layout *layout = in->recv->view->blocks[0].layout;
    size_t room = room_of(in);
    in->recv->arrived = in->done;
    size_t arrived = in->done << in->shift;
    size_t last = arrived < room ? arrived : room;
    if (!layout->contiguous)
        last -= last % layout->size_bytes;
    if (!in->overlaps || last <= in->copied)
        return;
    fr_staging_copy_slice(&in->into, FR_FROM_STAGE, in->copied, last, &in->batch);
    in->copied = last;
}

void fr_rndv_fragments_close(struct fr_rndv_fragments *in)
{
    struct fr_rndv_recv *recv = in->recv;
    const struct fr_staging_view *view = recv->view;
    if (recv->status == FR_OK && in->to_device && !in->overlaps)
        fr_staging_view_copy_out(&in->into, room_of(in), &in->batch);
    enum fr_status copied = fr_device_batch_finish(&in->batch);
    if (recv->status == FR_OK)
        recv->status = copied;
    if (recv->status == FR_OK && !in->to_device && in->bounce.address != NULL && !in->overlaps)
        fr_staging_copy_on_host(view, in->bounce.address, room_of(in), false);
    fr_staging_return(&in->bounce);
}
