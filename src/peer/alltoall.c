// SPDX-License-Identifier: BSD-3-Clause
// All-to-all over NVLink in three rounds of posts: what each rank offers, whether all could map
// what they were offered, and that the bytes are there. Before the second round is over nothing has
// been written, so that all ranks fall back alike.
//
// A program mostly exchanges the same buffers again. So the group keeps what its last exchange
// mapped, and when all ranks say that they have it still and offer the same once more, which each
// of them sees, the second round is left out.
#include "config.h"

#include "peer/alltoall.h"
#include "peer/engine.h"

#include <stdlib.h>
#include <string.h>

// What a rank says of the others' memory in the second round.
enum { CANNOT_MAP, MAPPED, LACKS_DESCRIPTOR };

// Exchanges of the same buffers between two looks at what has been freed. A look asks the driver
// once for each buffer that was ever exported.
enum { LOOK_EVERY = 16 };

// What all ranks have mapped of each other since the last exchange of the group.
struct fr_peer_memory {
    bool holds;
    unsigned unlooked;           // exchanges since the last look at what has been freed
    uint64_t freed_mark;         // what of that the others have been told
    struct fr_peer_offer *offer; // this rank's last, with its slots
    struct fr_peer_offer *next;
    struct fr_device_push_piece *pieces; // scratch, in the order of the transfers
    struct fr_peer_known *known;         // by rank
    struct fr_peer_mapping *mappings;    // by rank, at rest between exchanges
};

// What this rank knows of another one's offer.
struct fr_peer_known {
    uint64_t version;
    struct fr_peer_handle handle;
    struct fr_peer_slot room; // for this rank's slice
};

// The state of one exchange on this rank.
struct exchange {
    struct fr_peer_group *group;
    struct fr_peer_memory *memory;
    const struct fr_peer_alltoall *part;
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

static void let_go(struct fr_peer_group *group)
{
    struct fr_peer_memory *memory = group->memory;
    for (int rank = 0; rank < group->size; rank++)
        fr_peer_mapping_release(&memory->mappings[rank]);
    memory->holds = false;
}

void fr_peer_alltoall_decline(struct fr_peer_group *group, const char *call)
{
    static const struct fr_peer_offer nothing;
    uint64_t round = 0;
    if (group->memory)
        let_go(group); // as the others do
    if (!group->broken &&
        fr_peer_group_post(group, call, false, &nothing, sizeof(nothing), &round) == FR_OK)
        fr_peer_segment_done(group->segment, round);
}

// Whether the others have mapped this memory in the exchange before.
static bool is_held(const struct fr_peer_memory *memory, const struct fr_peer_handle *handle)
{
    return memory->holds && memcmp(&memory->offer->handle, handle, sizeof(*handle)) == 0;
}

// Exports the receive buffer and sees that the descriptor, if it takes one, is with the others.
static bool prepare_handle(struct fr_peer_group *group, const struct fr_peer_alltoall *part,
                           struct fr_peer_handle *handle)
{
    if (!part->receive_bytes)
        return true;
    *handle = part->receive_handle;
    if (!handle->bytes && fr_peer_export(&part->receive_range, (const void *)part->receive_low,
                                         part->receive_bytes, handle) != FR_OK)
        return false;
    if (fr_peer_needs_descriptor(handle) && !is_held(group->memory, handle) &&
        fr_peer_send(handle, group->processes, (size_t)group->size, false) != FR_OK)
        return false;
    return fr_device_quiesce(&part->receive_range, part->receive_low, part->receive_bytes) == FR_OK;
}

static uint64_t user_of(const struct fr_peer_alltoall *part)
{
    void *context = NULL;
    if (!fr_device_kind_is_device(part->send_range.kind) ||
        fr_device_context_of(&part->send_range, &context) != FR_OK)
        return 0;
    return (uint64_t)(uintptr_t)context ^ (uint64_t)(unsigned)(part->send_range.device + 1) << 56;
}

// The version changes with anything behind it. Returns whether it has.
static bool set_version(struct fr_peer_memory *memory, size_t bytes)
{
    size_t first = offsetof(struct fr_peer_offer, user);
    bool same =
        memcmp((char *)memory->next + first, (char *)memory->offer + first, bytes - first) == 0;
    memory->next->version = memory->offer->version + !same;
    return !same;
}

// Memory that is freed, and still mapped by others, is gone for its owner.
static void tell_freed(struct fr_peer_memory *memory, bool changed)
{
    struct fr_peer_offer *offer = memory->next;
    if (!changed && ++memory->unlooked < LOOK_EVERY)
        return;
    memory->unlooked = 0;
    offer->freed_count =
        (uint32_t)fr_peer_freed(&memory->freed_mark, offer->freed, FR_ARRAY_LENGTH(offer->freed));
}

static enum fr_status post_offer(struct exchange *exchange)
{
    struct fr_peer_group *group = exchange->group;
    const struct fr_peer_alltoall *part = exchange->part;
    struct fr_peer_memory *memory = exchange->memory;
    struct fr_peer_offer *offer = memory->next;
    size_t slot_bytes = (size_t)group->size * sizeof(struct fr_peer_slot);
    memset(offer, 0, sizeof(*offer));
    offer->eligible = prepare_handle(group, part, &offer->handle);
    offer->user = user_of(part);
    offer->holds = memory->holds && fr_peer_mappings_wake(memory->mappings, (size_t)group->size);
    memcpy(offer + 1, part->receives, slot_bytes);
    bool changed = set_version(memory, sizeof(*offer) + slot_bytes);
    tell_freed(memory, changed);
    memory->next = memory->offer;
    memory->offer = offer;
    bool usual = offer->eligible && offer->holds && !changed && !offer->freed_count;
    return fr_peer_group_post(group, part->call, usual, offer, sizeof(*offer) + slot_bytes,
                              &exchange->round);
}

// A marked offer is eligible, tells of nothing freed, and is from a rank that holds what it mapped
// and offers what it did before.
static bool is_usual(const struct exchange *exchange, int rank)
{
    return fr_peer_segment_is_marked(exchange->group->segment, rank, exchange->round);
}

static void forget_freed(const struct exchange *exchange, int rank)
{
    const struct fr_peer_offer *offer = offer_of(exchange, rank);
    if (!offer->freed_count)
        return;
    let_go(exchange->group);
    for (uint32_t i = 0; i < offer->freed_count && rank != exchange->group->rank; i++)
        fr_peer_forget_buffer(&exchange->group->processes[rank], offer->freed[i]);
}

// Whether every rank offers what others can write to. All ranks see the same.
static bool all_offer(const struct exchange *exchange)
{
    bool all = true;
    for (int rank = 0; rank < exchange->group->size; rank++) {
        if (is_usual(exchange, rank))
            continue;
        forget_freed(exchange, rank);
        all = all && offer_of(exchange, rank)->eligible;
    }
    if (!all) // a rank that has not even looked has let go as well
        let_go(exchange->group);
    return all;
}

// Whether all ranks offer what they did the last time and have mapped what they need. All ranks see
// the same.
static bool is_known(const struct exchange *exchange)
{
    const struct fr_peer_memory *memory = exchange->memory;
    bool known = memory->holds;
    for (int rank = 0; rank < exchange->group->size && known; rank++) {
        const struct fr_peer_offer *offer = offer_of(exchange, rank);
        known = is_usual(exchange, rank) ||
                (offer->holds && offer->version == memory->known[rank].version);
    }
    return known;
}

// Learns what all ranks offer and maps it, whether or not this exchange has bytes for them.
static int map_all(struct exchange *exchange)
{
    const struct fr_peer_group *group = exchange->group;
    const struct fr_device_range *user = &exchange->part->send_range;
    let_go(exchange->group);
    for (int rank = 0; rank < group->size; rank++) {
        const struct fr_peer_offer *offer = offer_of(exchange, rank);
        struct fr_peer_known *known = &exchange->memory->known[rank];
        known->version = offer->version;
        known->handle = offer->handle;
        known->room = slots_of(offer)[group->rank];
        if (!offer->handle.bytes || !fr_device_kind_is_device(user->kind))
            continue;
        struct fr_peer_mapping *mapping = &exchange->memory->mappings[rank];
        enum fr_status status = fr_peer_import(&known->handle, user, mapping);
        if (status != FR_OK)
            return status == FR_ERR_NOT_FOUND ? LACKS_DESCRIPTOR : CANNOT_MAP;
        if (!mapping->direct)
            return CANNOT_MAP;
    }
    return MAPPED;
}

// Plans where the slices go. False if a rank has less room than there are bytes for it, which is an
// error of the program.
static bool plan(struct exchange *exchange)
{
    const struct fr_peer_group *group = exchange->group;
    bool fits = true;
    for (int i = 0; i < group->size; i++) {
        int rank = (group->rank + 1 + i) % group->size; // each begins with another one
        const struct fr_peer_known *known = &exchange->memory->known[rank];
        const struct fr_peer_slot *send = &exchange->part->sends[rank];
        fits = fits && send->bytes <= known->room.bytes;
        exchange->memory->pieces[i] = (struct fr_device_push_piece){
            .dst = fr_peer_mapping_at(&exchange->memory->mappings[rank], &known->handle,
                                      known->room.address),
            .src = (uintptr_t)send->address,
            .bytes = send->bytes,
        };
    }
    return fits;
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
    struct fr_peer_handle handle = exchange->memory->offer->handle;
    enum fr_status status =
        fr_peer_group_post(group, exchange->part->call, false, &own, sizeof(own), &round);
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
    return fr_peer_engine_for_exchange(largest);
}

static enum fr_status push(const struct exchange *exchange, bool fits)
{
    if (!fits) {
        fr_error("%s: a rank has less room for this rank's data than it is sent",
                 exchange->part->call);
        return FR_ERR_TRUNCATE;
    }
    if (!fr_device_kind_is_device(exchange->part->send_range.kind))
        return FR_OK; // nothing to send
    return fr_device_push(&exchange->part->send_range, exchange->memory->pieces,
                          (size_t)exchange->group->size, choose_engine(exchange),
                          (unsigned)fr_core_settings()->peer_sms);
}

// Tells the others how this rank's own transfers ended, and hears of theirs.
static enum fr_status conclude(const struct exchange *exchange, enum fr_status status)
{
    struct fr_peer_group *group = exchange->group;
    const char *call = exchange->part->call;
    uint32_t own = status == FR_OK;
    uint64_t round = 0;
    enum fr_status agreed = fr_peer_group_post(group, call, own, &own, sizeof(own), &round);
    if (agreed == FR_OK)
        agreed = fr_peer_group_wait(group, call, round);
    if (agreed != FR_OK)
        return agreed;
    for (int rank = 0; rank < group->size; rank++) {
        if (fr_peer_segment_is_marked(group->segment, rank, round))
            continue; // it is well
        const uint32_t *moved = fr_peer_segment_read(group->segment, rank, round);
        if (!*moved && status == FR_OK) {
            fr_error("%s: rank %d of the communicator could not move its data", call, rank);
            status = FR_ERR_DEVICE;
        }
    }
    fr_peer_segment_done(group->segment, round);
    return status;
}

// From the offers to the decision: FR_OK when all ranks have mapped each other's memory.
static enum fr_status settle(struct exchange *exchange)
{
    if (!all_offer(exchange))
        return FR_ERR_UNSUPPORTED;
    if (is_known(exchange))
        return FR_OK;
    enum fr_status status = agree(exchange, map_all(exchange));
    exchange->memory->holds = status == FR_OK;
    if (status != FR_OK)
        let_go(exchange->group);
    return status;
}

static enum fr_status run(struct exchange *exchange)
{
    enum fr_status status = post_offer(exchange);
    if (status != FR_OK)
        return status;
    status = fr_peer_group_wait(exchange->group, exchange->part->call, exchange->round);
    if (status != FR_OK)
        return status;
    status = settle(exchange);
    bool fits = status == FR_OK && plan(exchange);
    fr_peer_segment_done(exchange->group->segment, exchange->round);
    return status == FR_OK ? conclude(exchange, push(exchange, fits)) : status;
}

static struct fr_peer_memory *make_memory(int size)
{
    size_t n = (size_t)size;
    struct fr_peer_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return NULL;
    memory->offer = calloc(1, fr_peer_group_post_bytes(size));
    memory->next = calloc(1, fr_peer_group_post_bytes(size));
    memory->pieces = calloc(n, sizeof(*memory->pieces));
    memory->known = calloc(n, sizeof(*memory->known));
    memory->mappings = calloc(n, sizeof(*memory->mappings));
    memory->freed_mark = fr_peer_freed_mark();
    return memory;
}

void fr_peer_alltoall_forget(struct fr_peer_group *group)
{
    struct fr_peer_memory *memory = group->memory;
    if (!memory)
        return;
    if (memory->mappings)
        let_go(group);
    free(memory->offer);
    free(memory->next);
    free(memory->pieces);
    free(memory->known);
    free(memory->mappings);
    free(memory);
    group->memory = NULL;
}

static bool is_complete(const struct fr_peer_memory *memory)
{
    return memory && memory->offer && memory->next && memory->pieces && memory->known &&
           memory->mappings;
}

enum fr_status fr_peer_alltoall(struct fr_peer_group *group, const struct fr_peer_alltoall *part)
{
    if (group->broken)
        return FR_ERR_MPI;
    if (!group->memory)
        group->memory = make_memory(group->size);
    if (!is_complete(group->memory)) {
        fr_peer_alltoall_forget(group);
        fr_peer_alltoall_decline(group, part->call);
        return FR_ERR_UNSUPPORTED;
    }
    struct exchange exchange = {.group = group, .memory = group->memory, .part = part};
    enum fr_status status = run(&exchange);
    fr_peer_mappings_rest(group->memory->mappings, (size_t)group->size);
    return status;
}
