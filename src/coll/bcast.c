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
    bool shared; // in two steps
};

// The slice that a rank other than the root hands on.
static struct fr_policy_slice slice_of(const struct cast *cast, int rank)
{
    int size = cast->group->size;
    int index = (rank - cast->bcast->root + size) % size - 1;
    return fr_policy_slice(cast->bcast->data.bytes, 1, size - 1, index);
}

// Bytes of the data, to the same place at another rank.
static struct fr_device_push_piece piece_to(const struct cast *cast, int rank,
                                            struct fr_policy_slice slice)
{
    const struct fr_coll_slot *place = fr_coll_slot_of(fr_coll_places(cast->group), rank, 0);
    return (struct fr_device_push_piece){
        .dst = fr_coll_reach(cast->group, rank, FR_COLL_WRITTEN, place->address) + slice.first,
        .src = (uintptr_t)cast->bcast->data.address + slice.first,
        .bytes = slice.count,
    };
}

static enum fr_status push(const struct cast *cast, size_t count, size_t largest)
{
    return fr_device_push(&cast->bcast->memory.range, fr_coll_pieces(cast->group), count,
                          fr_memory_engine_for_exchange(largest),
                          (unsigned)fr_core_settings()->peer_sms);
}

// Returns how many pieces the root pushes, and the largest.
static size_t plan_root(const struct cast *cast, size_t *most)
{
    const struct fr_coll_group *group = cast->group;
    size_t count = 0, largest = 0;
    for (int step = 1; step < group->size; step++) {
        int rank = (group->rank + step) % group->size;
        struct fr_policy_slice slice = {0, cast->bcast->data.bytes};
        if (cast->shared)
            slice = slice_of(cast, rank);
        largest = slice.count > largest ? slice.count : largest;
        fr_coll_pieces(group)[count++] = piece_to(cast, rank, slice);
    }
    *most = largest;
    return count;
}

static enum fr_status push_from_root(const struct cast *cast)
{
    size_t largest = 0, count = plan_root(cast, &largest);
    return push(cast, count, largest);
}

static enum fr_status hand_on(const struct cast *cast)
{
    const struct fr_coll_group *group = cast->group;
    struct fr_policy_slice own = slice_of(cast, group->rank);
    size_t count = 0;
    for (int step = 1; step < group->size; step++) {
        int rank = (group->rank + step) % group->size;
        if (rank != cast->bcast->root)
            fr_coll_pieces(group)[count++] = piece_to(cast, rank, own);
    }
    return push(cast, count, own.count);
}

// What a kernel moves as soon as all are there. Of two steps the second has to wait for the first.
static bool plan_move(struct fr_coll_group *group, void *cookie, struct fr_device_move *move)
{
    const struct cast *cast = cookie;
    size_t largest = 0;
    *move = (struct fr_device_move){.range = NULL};
    if (cast->shared)
        return false;
    if (group->rank != cast->bcast->root)
        return true; // nothing to send
    *move = (struct fr_device_move){
        .range = &cast->bcast->memory.range,
        .pieces = fr_coll_pieces(group),
        .count = plan_root(cast, &largest),
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
    };
    return fr_memory_engine_for_exchange(largest) == FR_ENGINE_SM;
}

static enum fr_status run(struct fr_coll_group *group, const struct cast *cast)
{
    bool is_root = group->rank == cast->bcast->root;
    enum fr_status status = is_root ? push_from_root(cast) : FR_OK;
    if (!cast->shared)
        return status;
    status = fr_coll_check(group, cast->bcast->call, status);
    return status != FR_OK || is_root ? status : hand_on(cast);
}

enum fr_status fr_coll_bcast(struct fr_coll_group *group, const struct fr_coll_bcast *bcast)
{
    bool is_root = group->rank == bcast->root;
    struct cast cast = {
        .group = group,
        .bcast = bcast,
        .shared = fr_policy_bcast_is_shared(bcast->data.bytes, group->size),
    };
    struct fr_coll_part part = {
        .call = bcast->call,
        // The same number of bytes on all ranks, hence the same plan.
        .what = (bcast->data.bytes * 2 + 1) ^ (uint64_t)(unsigned)bcast->root << 48,
        .slots = &bcast->data,
        .slot_count = 1,
        .first_read = 0,
        .read_count = 1,
        .mover = {.kind = FR_KIND_HOST, .device = -1},
        .before = bcast->before,
        .after = bcast->after,
        .plan = plan_move,
        .cookie = &cast,
    };
    if (!is_root)
        part.buffers[FR_COLL_WRITTEN] = bcast->memory;
    if (is_root || cast.shared)
        part.mover = bcast->memory.range;
    enum fr_status status = fr_coll_agree(group, &part);
    if (status != FR_OK)
        return status;
    status = fr_coll_has_moved(group) ? FR_OK : run(group, &cast);
    return fr_coll_conclude(group, bcast->call, status);
}
