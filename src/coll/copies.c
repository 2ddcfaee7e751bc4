// SPDX-License-Identifier: BSD-3-Clause
// Copies to and from workspace.
#include "config.h"

#include "coll/copies.h"

#include "coll/task.h"
#include "memory/engine.h"

#include <string.h>

// A copy but for what it need not have.
struct copies {
    const struct fr_coll_copy *whole;
    struct fr_device_push_piece pieces[FR_ROUND_COPIES];
};

static struct copies copies_around(const struct fr_coll_copy *copy, const struct fr_coll_slot *own,
                                   uintptr_t workspace)
{
    const struct fr_device_push_piece *piece = &copy->piece;
    struct copies copies = {.whole = copy, .pieces = {*piece}};
    size_t first = own->address - workspace, last = first + own->bytes;
    if (own->bytes == 0 || piece->bytes == 0)
        return copies;
    copies.pieces[0].bytes = first;
    copies.pieces[1] = (struct fr_device_push_piece){
        .dst = piece->dst + last, .src = piece->src + last, .bytes = piece->bytes - last};
    return copies;
}

static struct copies copies_before(const struct fr_coll_part *part)
{
    return copies_around(&part->before, &part->own_before, part->before.piece.dst);
}

static struct copies copies_after(const struct fr_coll_part *part)
{
    return copies_around(&part->after, &part->own_after, part->after.piece.src);
}

static size_t bytes_of(const struct copies *copies)
{
    return copies->pieces[0].bytes + copies->pieces[1].bytes;
}

static void begin(const struct copies copies, struct fr_device_work *work)
{
    fr_device_push_begin(&copies.whole->range, copies.pieces, FR_ROUND_COPIES,
                         fr_memory_engine(FR_SIZE_COPY_CE, bytes_of(&copies)),
                         (unsigned)fr_core_settings()->peer_sms, work);
}

void fr_coll_copies_begin_before(const struct fr_coll_part *part, struct fr_device_work *work)
{
    begin(copies_before(part), work);
}

void fr_coll_copies_begin_after(const struct fr_coll_part *part, struct fr_device_work *work)
{
    begin(copies_after(part), work);
}

static bool plan(const struct copies copies, struct fr_device_move *move,
                 struct fr_device_push_piece *into)
{
    if (bytes_of(&copies) == 0)
        return true;
    if (!move->range)
        move->range = &copies.whole->range;
    memcpy(into, copies.pieces, sizeof(copies.pieces));
    return fr_device_met_copies(&copies.whole->piece) &&
           fr_coll_can_spare(copies.whole, move->range);
}

bool fr_coll_copies_plan(const struct fr_coll_part *part, struct fr_device_move *move)
{
    return plan(copies_before(part), move, move->before) &&
           plan(copies_after(part), move, move->after);
}
