// SPDX-License-Identifier: BSD-3-Clause
// Broadcasts over NVLink, in one step or in two.
#include "config.h"

#include "fabrail/coll/bcast.h"

#include "coll/mapset.h"
#include "fabrail/ipc/engine.h"

// Returns a piece of the data that goes to the same place at another rank.
static struct fr_device_push_piece piece_of(const struct fr_coll_team *team,
                                            const struct fr_coll_bcast *bcast,
                                            const struct fr_policy_send *send)
{
    const struct fr_coll_slot *slot = fr_coll_slot_of(fr_coll_agreed_slots(team), send->rank, 0);
    return (struct fr_device_push_piece){
        .dst = fr_coll_reach(team, send->rank, FR_COLL_WRITTEN, slot->address) + send->slice.first,
        .src = (uintptr_t)bcast->data.address + send->slice.first,
        .bytes = send->slice.count,
    };
}

// Plans the pieces that this rank pushes in a step. Returns their number, and the bytes of the
// largest.
static size_t plan_step(const struct fr_coll_team *team, const struct fr_coll_bcast *bcast,
                        int step, size_t *most)
{
    struct fr_policy_send send;
    size_t count = 0, largest = 0;
    for (int index = 1; index < team->size; index++) {
        if (!fr_policy_bcast_send(&bcast->plan, team->rank, step, index, &send))
            continue;
        largest = send.slice.count > largest ? send.slice.count : largest;
        team->memory->pieces[count++] = piece_of(team, bcast, &send);
    }
    *most = largest;
    return count;
}

// Returns whether the data have gaps, here or where they go.
static bool is_shaped(const struct fr_coll_team *team, const struct fr_coll_bcast *bcast)
{
    const struct fr_coll_slot *slots = fr_coll_agreed_slots(team);
    bool shaped = bcast->shape.shape != NULL;
    for (int rank = 0; rank < team->size && !shaped; rank++)
        shaped = rank != bcast->root && fr_coll_slot_of(slots, rank, 0)->layout > 0;
    return shaped && team->rank == bcast->root;
}

// Plans copies from the root's layout into those of the others. Returns their number.
static size_t plan_shaped(const struct fr_coll_team *team, const struct fr_coll_bcast *bcast)
{
    struct fr_device_reshape *copies = team->memory->reshapes;
    struct fr_pack_shape *shapes = team->memory->shapes;
    struct fr_policy_send send;
    size_t count = 0;
    for (int index = 1; index < team->size; index++) {
        if (!fr_policy_bcast_send(&bcast->plan, team->rank, 0, index, &send))
            continue;
        const struct fr_coll_slot *slot = fr_coll_slot_of(fr_coll_agreed_slots(team), send.rank, 0);
        struct fr_device_reshape *copy = &copies[count];
        *copy = (struct fr_device_reshape){.src = bcast->shape, .bytes = bcast->data.bytes};
        copy->src.address = bcast->data.address;
        copy->dst.address = fr_coll_reach(team, send.rank, FR_COLL_WRITTEN, slot->address);
        if (fr_coll_agreed_layout(team, send.rank, &shapes[count]))
            copy->dst.shape = &shapes[count];
        count++;
    }
    return count;
}

// Pushes the pieces of a step. In the second, all ranks but the root push at once.
static enum fr_status push(struct fr_coll_team *team, void *operation, int step,
                           struct fr_device_work *work)
{
    const struct fr_coll_bcast *bcast = operation;
    unsigned sms = (unsigned)fr_core_settings()->peer_sms;
    if (is_shaped(team, bcast)) {
        fr_device_reshape_begin(&bcast->memory.range, team->memory->reshapes,
                                plan_shaped(team, bcast), sms, work);
        return FR_OK;
    }
    size_t largest = 0, count = plan_step(team, bcast, step, &largest);
    enum fr_policy_size traffic = fr_policy_traffic(count, step > 0 ? count : 0);
    fr_device_push_begin(&bcast->memory.range, team->memory->pieces, count,
                         fr_ipc_coll_engine(traffic, largest, bcast->is_queued), sms,
                         bcast->is_synced ? FR_ORIGIN_SYNCED : FR_ORIGIN_APP, work);
    return FR_OK;
}

// Plans what a kernel moves as soon as all ranks are there. A broadcast in two steps is left to the
// host, since the second has to wait for the first. So are data with gaps.
static bool plan_move(struct fr_coll_team *team, void *operation, struct fr_device_move *move)
{
    const struct fr_coll_bcast *bcast = operation;
    size_t largest = 0;
    *move = (struct fr_device_move){.range = NULL};
    if (bcast->plan.is_split)
        return false;
    if (team->rank != bcast->root)
        return true; // nothing to send
    if (is_shaped(team, bcast))
        return false;
    *move = (struct fr_device_move){
        .range = &bcast->memory.range,
        .pieces = team->memory->pieces,
        .count = plan_step(team, bcast, 0, &largest),
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
    };
    return fr_ipc_moves_at_once(largest, largest * move->count);
}

bool fr_coll_bcast_is_split(size_t bytes, int ranks)
{
    return fr_policy_bcast_is_split(bytes, ranks, fr_ipc_tuned(FR_SIZE_BCAST_SPLIT));
}

void fr_coll_bcast_begin(struct fr_coll_task *task, struct fr_coll_team *team,
                         struct fr_coll_bcast *bcast)
{
    bool is_root = team->rank == bcast->root;
    size_t bytes = bcast->data.bytes;
    bool is_split = fr_coll_bcast_is_split(bytes, team->size);
    bcast->plan = (struct fr_policy_bcast){
        .bytes = bytes, .ranks = team->size, .root = bcast->root, .is_split = is_split};
    task->part = (struct fr_coll_part){
        .call = bcast->call,
        // All ranks must have the same number of bytes and the same plan. Ranks that were tuned
        // differently need not find the same plan.
        .what = (bytes * 4 + is_split * 2 + 1) ^ (uint64_t)(unsigned)bcast->root << 48,
        .slots = &bcast->data,
        .slot_count = 1,
        .layouts = bcast->layouts,
        .layout_count = bcast->layout_count,
        .first_read = 0,
        .read_count = 1,
        .mover = FR_DEVICE_HOST,
        .before = bcast->before,
        .after = bcast->after,
        .is_synced = bcast->is_synced,
        .plan = plan_move,
        .move = push,
        .steps = is_split ? 2 : 1,
        .moment_ns = fr_policy_exchange_moment_ns(is_root),
        .operation = bcast,
    };
    if (!is_root)
        task->part.buffers[FR_COLL_WRITTEN] = bcast->memory;
    if (is_root || is_split)
        task->part.mover = bcast->memory.range;
    fr_coll_task_begin(task, team);
}
