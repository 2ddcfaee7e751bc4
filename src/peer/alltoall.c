// SPDX-License-Identifier: BSD-3-Clause
// All-to-all over NVLink in three rounds of posts: what each rank offers, whether all could map
// what they were offered, and that the bytes are there. Before the second round is over nothing has
// been written, so that all ranks fall back alike.
#include "config.h"

#include "peer/alltoall.h"

#include <stdlib.h>
#include <string.h>

// What a rank says of the others' memory in the second round.
enum { CANNOT_MAP, MAPPED, LACKS_DESCRIPTOR };

// The state of one exchange on this rank.
struct exchange {
    struct fr_peer_group *group;
    const struct fr_peer_alltoall *part;
    struct fr_peer_mapping *mappings; // by rank
    struct fr_device_push_piece *pieces;
    uint64_t round;
};

static const struct fr_peer_offer *offer_of(const struct exchange *exchange, int rank)
{
    return fr_peer_segment_read(exchange->group->segment, rank, exchange->round);
}

static const struct fr_peer_slot *slots_of(const struct fr_peer_offer *offer)
{
    return (const struct fr_peer_slot *)(offer + 1);
}

void fr_peer_alltoall_decline(struct fr_peer_group *group, const char *call)
{
    static const struct fr_peer_offer nothing;
    uint64_t round = 0;
    if (!group->broken &&
        fr_peer_group_post(group, call, &nothing, sizeof(nothing), &round) == FR_OK)
        fr_peer_segment_done(group->segment, round);
}

// Exports the receive buffer and sees that the descriptor, if it takes one, is with the others.
static bool prepare_handle(struct fr_peer_group *group, const struct fr_peer_alltoall *part,
                           struct fr_peer_handle *handle)
{
    if (!part->receive_bytes)
        return true;
    if (fr_peer_export(&part->receive_range, (const void *)part->receive_low, part->receive_bytes,
                       handle) != FR_OK)
        return false;
    if (fr_peer_needs_descriptor(handle) &&
        fr_peer_send(handle, group->processes, (size_t)group->size, false) != FR_OK)
        return false;
    return fr_device_quiesce(&part->receive_range, part->receive_low, part->receive_bytes) == FR_OK;
}

static enum fr_status post_offer(struct exchange *exchange)
{
    struct fr_peer_group *group = exchange->group;
    const struct fr_peer_alltoall *part = exchange->part;
    size_t slot_bytes = (size_t)group->size * sizeof(struct fr_peer_slot);
    size_t bytes = sizeof(struct fr_peer_offer) + slot_bytes;
    struct fr_peer_offer *offer = calloc(1, bytes);
    if (!offer) {
        fr_peer_alltoall_decline(group, part->call);
        return FR_ERR_UNSUPPORTED;
    }
    offer->eligible = prepare_handle(group, part, &offer->handle);
    if (group->is_world)
        offer->freed_count = (uint32_t)fr_peer_freed(offer->freed, FR_ARRAY_LENGTH(offer->freed));
    memcpy(offer + 1, part->receives, slot_bytes);
    enum fr_status status = fr_peer_group_post(group, part->call, offer, bytes, &exchange->round);
    free(offer);
    return status;
}

static void forget_freed(const struct exchange *exchange, int rank)
{
    const struct fr_peer_offer *offer = offer_of(exchange, rank);
    if (rank == exchange->group->rank)
        return;
    for (uint32_t i = 0; i < offer->freed_count; i++)
        fr_peer_forget_buffer(&exchange->group->processes[rank], offer->freed[i]);
}

// Whether every rank offers what others can write to, and as much room as this one has bytes for
// it. What does not fit is an error of the program, which the real MPI shall report.
static bool all_offer(const struct exchange *exchange)
{
    bool all = true;
    for (int rank = 0; rank < exchange->group->size; rank++) {
        const struct fr_peer_offer *offer = offer_of(exchange, rank);
        forget_freed(exchange, rank);
        all = all && offer->eligible;
    }
    return all;
}

static bool fits(const struct exchange *exchange, int rank)
{
    const struct fr_peer_slot *room = &slots_of(offer_of(exchange, rank))[exchange->group->rank];
    return exchange->part->sends[rank].bytes <= room->bytes;
}

// Maps the memory that this rank has bytes for and plans where they go.
static int plan(struct exchange *exchange)
{
    const struct fr_peer_group *group = exchange->group;
    const struct fr_peer_alltoall *part = exchange->part;
    int outcome = MAPPED;
    for (int i = 0; i < group->size && outcome == MAPPED; i++) {
        int rank = (group->rank + 1 + i) % group->size; // each begins with another one
        const struct fr_peer_offer *offer = offer_of(exchange, rank);
        const struct fr_peer_slot *send = &part->sends[rank];
        if (!send->bytes)
            continue;
        if (!fits(exchange, rank))
            return CANNOT_MAP;
        struct fr_peer_mapping *mapping = &exchange->mappings[rank];
        enum fr_status status = fr_peer_import(&offer->handle, &part->send_range, mapping);
        if (status != FR_OK || !mapping->direct)
            outcome = status == FR_ERR_NOT_FOUND ? LACKS_DESCRIPTOR : CANNOT_MAP;
        else
            exchange->pieces[i] = (struct fr_device_push_piece){
                .dst = fr_peer_mapping_at(mapping, &offer->handle,
                                          slots_of(offer)[group->rank].address),
                .src = (uintptr_t)send->address,
                .bytes = send->bytes,
            };
    }
    return outcome;
}

// Sends the descriptor once more to ranks that lack it, for the next time.
static void send_again(const struct exchange *exchange, const struct fr_peer_handle *handle,
                       uint64_t round)
{
    const struct fr_peer_group *group = exchange->group;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *outcome = fr_peer_segment_read(group->segment, rank, round);
        if (*outcome == LACKS_DESCRIPTOR && fr_peer_needs_descriptor(handle))
            (void)!fr_peer_send(handle, &group->processes[rank], 1, true);
    }
}

// The second round. FR_ERR_UNSUPPORTED when some rank could not map what it needs.
static enum fr_status agree(struct exchange *exchange, int outcome)
{
    struct fr_peer_group *group = exchange->group;
    uint32_t own = (uint32_t)outcome;
    uint64_t round = 0;
    struct fr_peer_handle handle = offer_of(exchange, group->rank)->handle;
    enum fr_status status =
        fr_peer_group_post(group, exchange->part->call, &own, sizeof(own), &round);
    if (status == FR_OK)
        status = fr_peer_group_wait(group, exchange->part->call, round);
    if (status != FR_OK)
        return status;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *said = fr_peer_segment_read(group->segment, rank, round);
        if (*said != MAPPED)
            status = FR_ERR_UNSUPPORTED;
    }
    if (status != FR_OK)
        send_again(exchange, &handle, round);
    fr_peer_segment_done(group->segment, round);
    return status;
}

static enum fr_device_engine choose_engine(const struct exchange *exchange)
{
    uint64_t largest = 0;
    for (int rank = 0; rank < exchange->group->size; rank++) {
        uint64_t bytes = exchange->part->sends[rank].bytes;
        largest = bytes > largest ? bytes : largest;
    }
    return largest > fr_core_settings()->peer_ce_min_bytes ? FR_ENGINE_CE : FR_ENGINE_SM;
}

// Moves the bytes and tells the others, also of a failure.
static enum fr_status move(struct exchange *exchange)
{
    struct fr_peer_group *group = exchange->group;
    enum fr_status status =
        fr_device_push(&exchange->part->send_range, exchange->pieces, (size_t)group->size,
                       choose_engine(exchange), (unsigned)fr_core_settings()->peer_sms);
    uint32_t own = status == FR_OK;
    uint64_t round = 0;
    enum fr_status agreed =
        fr_peer_group_post(group, exchange->part->call, &own, sizeof(own), &round);
    if (agreed == FR_OK)
        agreed = fr_peer_group_wait(group, exchange->part->call, round);
    if (agreed != FR_OK)
        return agreed;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *moved = fr_peer_segment_read(group->segment, rank, round);
        if (!*moved && status == FR_OK) {
            fr_error("%s: rank %d of the communicator could not move its data",
                     exchange->part->call, rank);
            status = FR_ERR_DEVICE;
        }
    }
    fr_peer_segment_done(group->segment, round);
    return status;
}

static enum fr_status run(struct exchange *exchange)
{
    enum fr_status status = post_offer(exchange);
    if (status != FR_OK)
        return status;
    uint64_t first = exchange->round;
    status = fr_peer_group_wait(exchange->group, exchange->part->call, first);
    if (status != FR_OK)
        return status;
    if (all_offer(exchange))
        status = agree(exchange, plan(exchange));
    else
        status = FR_ERR_UNSUPPORTED;
    fr_peer_segment_done(exchange->group->segment, first);
    return status == FR_OK ? move(exchange) : status;
}

enum fr_status fr_peer_alltoall(struct fr_peer_group *group, const struct fr_peer_alltoall *part)
{
    if (group->broken)
        return FR_ERR_MPI;
    size_t size = (size_t)group->size;
    struct exchange exchange = {
        .group = group,
        .part = part,
        .mappings = calloc(size, sizeof(*exchange.mappings)),
        .pieces = calloc(size, sizeof(*exchange.pieces)),
    };
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (exchange.mappings && exchange.pieces)
        status = run(&exchange);
    else
        fr_peer_alltoall_decline(group, part->call);
    for (size_t rank = 0; rank < size && exchange.mappings; rank++)
        fr_peer_mapping_release(&exchange.mappings[rank]);
    free(exchange.mappings);
    free(exchange.pieces);
    return status;
}
