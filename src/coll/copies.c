// SPDX-License-Identifier: BSD-3-Clause
// Copies to and from workspace.
#include "config.h"

#include "fabrail/coll/copies.h"

#include "fabrail/ipc/engine.h"

// Splits a copy around the part that is left out of it. Returns the bytes that remain.
static size_t part(const struct fr_coll_copy *copy, bool out, struct fr_device_push_piece *pieces)
{
    const struct fr_device_push_piece *piece = &copy->piece;
    size_t first = copy->own.address - (out ? piece->src : piece->dst);
    size_t last = first + copy->own.bytes;
    pieces[0] = *piece;
    pieces[1] = (struct fr_device_push_piece){.bytes = 0};
    if (copy->own.bytes == 0 || piece->bytes == 0)
        return piece->bytes;
    pieces[0].bytes = first;
    pieces[1] = (struct fr_device_push_piece){
        .dst = piece->dst + last, .src = piece->src + last, .bytes = piece->bytes - last};
    return piece->bytes - copy->own.bytes;
}

bool fr_coll_copy_begin(const struct fr_coll_copy *copy, bool out, bool is_synced,
                        struct fr_device_work *work)
{
    struct fr_device_push_piece pieces[FR_ROUND_COPIES];
    size_t bytes = part(copy, out, pieces);
    if (bytes == 0)
        return false;
    fr_device_push_begin(
        &copy->range, pieces, FR_ROUND_COPIES, fr_ipc_engine(FR_SIZE_COPY_CE, bytes),
        (unsigned)fr_core_settings()->peer_sms, is_synced ? FR_ORIGIN_SYNCED : FR_ORIGIN_APP, work);
    return true;
}

bool fr_coll_copy_plan(const struct fr_coll_copy *copy, bool out, struct fr_device_move *move)
{
    if (part(copy, out, out ? move->after : move->before) == 0)
        return true;
    if (!move->range)
        move->range = &copy->range;
    return fr_device_barrier_kernel_copies(&copy->piece) && fr_coll_can_spare(copy, move->range);
}
