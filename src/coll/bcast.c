// SPDX-License-Identifier: BSD-3-Clause
// Broadcasts over NVLink, in one step or in two.
#include "config.h"

#include "coll/bcast.h"
#include "memory/engine.h"
#include "policy/collective.h"

// A broadcast that was agreed on.
struct cast {
    const struct fr_coll_group *group;
    const struct fr_coll_bcast *bcast;
    struct fr_policy_bcast plan;
};

// Bytes of the data, to the same place at another rank.
static struct fr_device_push_piece piece_of(const struct cast *cast,
                                            const struct fr_policy_send *send)
{
    const struct fr_coll_slot *place = fr_coll_slot_of(fr_coll_places(cast->group), send->rank, 0);
    return (struct fr_device_push_piece){
        .dst = fr_coll_reach(cast->group, send->rank, FR_COLL_WRITTEN, place->address) +
               send->slice.first,
        .src = (uintptr_t)cast->bcast->data.address + send->slice.first,
        .bytes = send->slice.count,
    };
}

// Returns how many pieces this rank pushes in a step, and the largest.
static size_t plan_step(const struct cast *cast, int step, size_t *most)
{
    const struct fr_coll_group *group = cast->group;
    struct fr_policy_send send;
    size_t count = 0, largest = 0;
    for (int index = 1; index < group->size; index++) {
        if (!fr_policy_bcast_send(&cast->plan, group->rank, step, index, &send))
            continue;
        largest = send.slice.count > largest ? send.slice.count : largest;
        fr_coll_pieces(group)[count++] = piece_of(cast, &send);
    }
    *most = largest;
    return count;
}

// In the second step, all but the root push at once.
static enum fr_status push(const struct cast *cast, int step)
{
    size_t largest = 0, count = plan_step(cast, step, &largest);
    enum fr_policy_size traffic = fr_policy_traffic(count, step > 0 ? count : 0);
    return fr_device_push(&cast->bcast->memory.range, fr_coll_pieces(cast->group), count,
                          fr_memory_engine(traffic, largest),
                          (unsigned)fr_core_settings()->peer_sms);
}

// What a kernel moves as soon as all are there. Of two steps the second has to wait for the first.
static bool plan_move(struct fr_coll_group *group, void *cookie, struct fr_device_move *move)
{
    const struct cast *cast = cookie;
    size_t largest = 0;
    *move = (struct fr_device_move){.range = NULL};
    if (cast->plan.is_split)
        return false;
    if (group->rank != cast->bcast->root)
        return true; // nothing to send
    *move = (struct fr_device_move){
        .range = &cast->bcast->memory.range,
        .pieces = fr_coll_pieces(group),
        .count = plan_step(cast, 0, &largest),
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
    };
    return fr_memory_moves_at_once(largest, largest * move->count);
}

static enum fr_status run(struct fr_coll_group *group, const struct cast *cast)
{
    enum fr_status status = push(cast, 0);
    if (!cast->plan.is_split)
        return status;
    status = fr_coll_check(group, cast->bcast->call, status);
    return status != FR_OK ? status : push(cast, 1);
}

enum fr_status fr_coll_bcast(struct fr_coll_group *group, const struct fr_coll_bcast *bcast)
{
    bool is_root = group->rank == bcast->root;
    size_t bytes = bcast->data.bytes;
    bool is_split =
        fr_policy_bcast_is_split(bytes, group->size, fr_memory_tuned(FR_SIZE_BCAST_SPLIT));
    struct cast cast = {
        .group = group,
        .bcast = bcast,
        .plan = {.bytes = bytes, .ranks = group->size, .root = bcast->root, .is_split = is_split},
    };
    struct fr_coll_part part = {
        .call = bcast->call,
        // The same number of bytes on all ranks, and the same plan, which ranks that were tuned
        // differently need not have.
        .what = (bytes * 4 + is_split * 2 + 1) ^ (uint64_t)(unsigned)bcast->root << 48,
        .slots = &bcast->data,
        .slot_count = 1,
        .first_read = 0,
        .read_count = 1,
        .mover = FR_DEVICE_HOST,
        .before = bcast->before,
        .after = bcast->after,
        .plan = plan_move,
        .cookie = &cast,
    };
    if (!is_root)
        part.buffers[FR_COLL_WRITTEN] = bcast->memory;
    if (is_root || is_split)
        part.mover = bcast->memory.range;
    enum fr_status status = fr_coll_agree(group, &part);
    if (status != FR_OK)
        return status;
    status = fr_coll_has_moved(group) ? FR_OK : run(group, &cast);
    return fr_coll_conclude(group, &part, status);
}
