// SPDX-License-Identifier: BSD-3-Clause
// All-to-all over NVLink in three rounds of posts: what each rank offers, whether all could map
// what they were offered, and that the bytes are there. Before the second round is over nothing has
// been written, so that all ranks fall back alike.
//
// A program mostly exchanges memory again that it has exchanged before. So the group keeps what it
// has mapped (kept.h), and when all ranks say that they have it still and offer the same memory
// once more, which each of them sees, the second round is left out. Where even the slices lie as
// they did in the exchange before, a mark says so, and nothing else is read.
#include "config.h"

#include "coll/alltoall.h"
#include "coll/choice.h"
#include "memory/engine.h"

#include <string.h>

// What a rank says of the others' memory in the second round.
enum { CANNOT_MAP, MAPPED, LACKS_DESCRIPTOR };

// Exchanges of the same memory between two looks at what has been freed. A look asks the driver
// once for each buffer that was ever exported.
enum { LOOK_EVERY = 16 };

// The state of one exchange on this rank.
struct exchange {
    struct fr_coll_group *group;
    struct fr_coll_memory *memory;
    const struct fr_coll_alltoall *part;
    uint64_t round;
};

static const struct fr_coll_offer *offer_of(const struct exchange *exchange, int rank)
{
    return fr_coll_segment_read(exchange->group->segment, rank, exchange->round);
}

static const struct fr_coll_slot *slots_of(const struct fr_coll_offer *offer)
{
    return (const struct fr_coll_slot *)(offer + 1);
}

void fr_coll_alltoall_decline(struct fr_coll_group *group, const char *call)
{
    static const struct fr_coll_offer nothing;
    uint64_t round = 0;
    if (group->memory)
        fr_coll_choice_let_go(group); // as the others do
    if (!group->broken &&
        fr_coll_group_post(group, call, false, &nothing, sizeof(nothing), &round) == FR_OK)
        fr_coll_segment_done(group->segment, round);
}

// Exports the receive buffer and sees that the descriptor, if it takes one, is with the others.
static bool prepare_handle(struct fr_coll_group *group, const struct fr_coll_alltoall *part,
                           struct fr_memory_handle *handle)
{
    if (!part->receive_bytes)
        return true;
    *handle = part->receive_handle;
    if (!handle->bytes && fr_memory_export(&part->receive_range, (const void *)part->receive_low,
                                           part->receive_bytes, handle) != FR_OK)
        return false;
    if (fr_memory_needs_descriptor(handle) && !fr_coll_choice_has(group, handle) &&
        fr_memory_send_descriptor(handle, group->processes, (size_t)group->size, false) != FR_OK)
        return false;
    return fr_device_quiesce(&part->receive_range, part->receive_low, part->receive_bytes) == FR_OK;
}

static uint64_t user_of(const struct fr_coll_alltoall *part)
{
    void *context = NULL;
    if (!fr_device_kind_is_device(part->send_range.kind) ||
        fr_device_context_of(&part->send_range, &context) != FR_OK)
        return 0;
    return (uint64_t)(uintptr_t)context ^ (uint64_t)(unsigned)(part->send_range.device + 1) << 56;
}

// Memory that is freed, and still mapped by others, is gone for its owner.
static void tell_freed(struct fr_coll_memory *memory, bool changed)
{
    struct fr_coll_offer *offer = memory->next;
    if (!changed && ++memory->unlooked < LOOK_EVERY)
        return;
    memory->unlooked = 0;
    offer->freed_count =
        (uint32_t)fr_memory_freed(&memory->freed_mark, offer->freed, FR_ARRAY_LENGTH(offer->freed));
}

static enum fr_status post_offer(struct exchange *exchange)
{
    struct fr_coll_group *group = exchange->group;
    const struct fr_coll_alltoall *part = exchange->part;
    struct fr_coll_memory *memory = exchange->memory;
    struct fr_coll_offer *offer = memory->next;
    size_t slot_bytes = (size_t)group->size * sizeof(struct fr_coll_slot);
    memset(offer, 0, sizeof(*offer));
    offer->eligible = prepare_handle(group, part, &offer->handle);
    offer->user = user_of(part);
    bool known = fr_coll_choice_number(group, offer);
    memcpy(offer + 1, part->receives, slot_bytes);
    tell_freed(memory, !known);
    bool same =
        (offer->holds >> memory->last & 1) && memcmp(offer + 1, memory->offer + 1, slot_bytes) == 0;
    memory->next = memory->offer;
    memory->offer = offer;
    bool usual = offer->eligible && same && !offer->freed_count;
    return fr_coll_group_post(group, part->call, usual, offer, sizeof(*offer) + slot_bytes,
                              &exchange->round);
}

// A marked offer is eligible, tells of nothing freed, and is from a rank that holds what was mapped
// for the exchange before and offers just what it did there.
static bool is_usual(const struct exchange *exchange, int rank)
{
    return fr_coll_segment_is_marked(exchange->group->segment, rank, exchange->round);
}

static void forget_freed(const struct exchange *exchange, int rank)
{
    const struct fr_coll_offer *offer = offer_of(exchange, rank);
    if (!offer->freed_count)
        return;
    fr_coll_choice_let_go(exchange->group);
    for (uint32_t i = 0; i < offer->freed_count && rank != exchange->group->rank; i++)
        fr_memory_forget_buffer(&exchange->group->processes[rank], offer->freed[i]);
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
        fr_coll_choice_let_go(exchange->group);
    return all;
}

// Whether all ranks offer the memory of this choice, and have mapped what they need of it. All
// ranks see the same.
static bool is_kept(const struct exchange *exchange, unsigned choice)
{
    const struct fr_coll_memory *memory = exchange->memory;
    const struct fr_coll_choice *kept = &memory->kept[choice];
    bool all = kept->used;
    for (int rank = 0; rank < exchange->group->size && all; rank++) {
        if (choice == memory->last && is_usual(exchange, rank))
            continue;
        const struct fr_coll_offer *offer = offer_of(exchange, rank);
        all = (offer->holds >> choice & 1) && offer->version == kept->known[rank].version;
    }
    return all;
}

// Returns the choice that all ranks keep, the last one before others; FR_COLL_CHOICES if there is
// none.
static unsigned find_kept(const struct exchange *exchange)
{
    if (is_kept(exchange, exchange->memory->last))
        return exchange->memory->last;
    unsigned choice = 0;
    while (choice < FR_COLL_CHOICES && !is_kept(exchange, choice))
        choice++;
    return choice;
}

// Which choice is to be replaced: one of the same memory, that some rank does not hold any more, or
// the one whose turn it is. All ranks find the same.
static unsigned choose_room(const struct exchange *exchange)
{
    struct fr_coll_memory *memory = exchange->memory;
    for (unsigned choice = 0; choice < FR_COLL_CHOICES; choice++) {
        bool same = memory->kept[choice].used;
        for (int rank = 0; rank < exchange->group->size && same; rank++)
            same = offer_of(exchange, rank)->version == memory->kept[choice].known[rank].version;
        if (same)
            return choice;
    }
    return memory->turn++ % FR_COLL_CHOICES;
}

// Learns what memory all ranks offer and maps it, whether or not this exchange has bytes for them.
static int map_all(struct exchange *exchange, unsigned choice)
{
    const struct fr_coll_group *group = exchange->group;
    const struct fr_device_range *user = &exchange->part->send_range;
    struct fr_coll_choice *kept = &exchange->memory->kept[choice];
    fr_coll_choice_clear(exchange->group, choice);
    exchange->memory->awake |= 1u << choice;
    kept->user = exchange->memory->offer->user;
    for (int rank = 0; rank < group->size; rank++) {
        const struct fr_coll_offer *offer = offer_of(exchange, rank);
        struct fr_coll_known *known = &kept->known[rank];
        known->version = offer->version;
        known->handle = offer->handle;
        if (!offer->handle.bytes || !fr_device_kind_is_device(user->kind))
            continue;
        struct fr_memory_mapping *mapping = &kept->mappings[rank];
        enum fr_status status = fr_memory_import(&known->handle, user, mapping);
        if (status != FR_OK)
            return status == FR_ERR_NOT_FOUND ? LACKS_DESCRIPTOR : CANNOT_MAP;
        if (!mapping->direct)
            return CANNOT_MAP;
    }
    return MAPPED;
}

// Learns where this rank's slices go. What is marked stands where it did.
static void read_rooms(struct exchange *exchange)
{
    for (int rank = 0; rank < exchange->group->size; rank++) {
        if (!is_usual(exchange, rank))
            exchange->memory->rooms[rank] =
                slots_of(offer_of(exchange, rank))[exchange->group->rank];
    }
}

// Plans where the slices go. False if a rank has less room than there are bytes for it, which is an
// error of the program.
static bool plan(struct exchange *exchange)
{
    const struct fr_coll_group *group = exchange->group;
    const struct fr_coll_choice *kept = &exchange->memory->kept[exchange->memory->last];
    bool fits = true;
    for (int i = 0; i < group->size; i++) {
        int rank = (group->rank + 1 + i) % group->size; // each begins with another one
        const struct fr_coll_slot *room = &exchange->memory->rooms[rank];
        const struct fr_coll_slot *send = &exchange->part->sends[rank];
        fits = fits && send->bytes <= room->bytes;
        exchange->memory->pieces[i] = (struct fr_device_push_piece){
            .dst = fr_memory_mapping_at(&kept->mappings[rank], &kept->known[rank].handle,
                                        room->address),
            .src = (uintptr_t)send->address,
            .bytes = send->bytes,
        };
    }
    return fits;
}

// Sends the descriptor once more to ranks that lack it, for the next time.
static void send_again(const struct exchange *exchange, const struct fr_memory_handle *handle,
                       uint64_t round)
{
    const struct fr_coll_group *group = exchange->group;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *outcome = fr_coll_segment_read(group->segment, rank, round);
        if (*outcome == LACKS_DESCRIPTOR && fr_memory_needs_descriptor(handle))
            (void)!fr_memory_send_descriptor(handle, &group->processes[rank], 1, true);
    }
}

// The second round. FR_ERR_UNSUPPORTED when some rank could not map what it needs.
static enum fr_status agree(struct exchange *exchange, int outcome)
{
    struct fr_coll_group *group = exchange->group;
    uint32_t own = (uint32_t)outcome;
    uint64_t round = 0;
    struct fr_memory_handle handle = exchange->memory->offer->handle;
    enum fr_status status =
        fr_coll_group_post(group, exchange->part->call, false, &own, sizeof(own), &round);
    if (status == FR_OK)
        status = fr_coll_group_wait(group, exchange->part->call, round);
    if (status != FR_OK)
        return status;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *said = fr_coll_segment_read(group->segment, rank, round);
        if (*said != MAPPED)
            status = FR_ERR_UNSUPPORTED;
    }
    if (status != FR_OK)
        send_again(exchange, &handle, round);
    fr_coll_segment_done(group->segment, round);
    return status;
}

static enum fr_device_engine choose_engine(const struct exchange *exchange)
{
    uint64_t largest = 0;
    for (int rank = 0; rank < exchange->group->size; rank++) {
        uint64_t bytes = exchange->part->sends[rank].bytes;
        largest = bytes > largest ? bytes : largest;
    }
    return fr_memory_engine_for_exchange(largest);
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
    struct fr_coll_group *group = exchange->group;
    const char *call = exchange->part->call;
    uint32_t own = status == FR_OK;
    uint64_t round = 0;
    enum fr_status agreed = fr_coll_group_post(group, call, own, &own, sizeof(own), &round);
    if (agreed == FR_OK)
        agreed = fr_coll_group_wait(group, call, round);
    if (agreed != FR_OK)
        return agreed;
    for (int rank = 0; rank < group->size; rank++) {
        if (fr_coll_segment_is_marked(group->segment, rank, round))
            continue; // it is well
        const uint32_t *moved = fr_coll_segment_read(group->segment, rank, round);
        if (!*moved && status == FR_OK) {
            fr_error("%s: rank %d of the communicator could not move its data", call, rank);
            status = FR_ERR_DEVICE;
        }
    }
    fr_coll_segment_done(group->segment, round);
    return status;
}

// From the offers to the decision: FR_OK when all ranks have mapped each other's memory.
static enum fr_status settle(struct exchange *exchange)
{
    struct fr_coll_memory *memory = exchange->memory;
    if (!all_offer(exchange))
        return FR_ERR_UNSUPPORTED;
    unsigned choice = find_kept(exchange);
    if (choice == FR_COLL_CHOICES) {
        choice = choose_room(exchange);
        fr_debug("%s: memory is offered that was not kept", exchange->part->call);
        fr_coll_choice_rest(exchange->group); // what is in use may be in the way of new mappings
        enum fr_status status = agree(exchange, map_all(exchange, choice));
        if (status != FR_OK) {
            fr_coll_choice_let_go(exchange->group);
            return status;
        }
        memory->kept[choice].used = true;
    }
    memory->last = choice;
    read_rooms(exchange);
    return FR_OK;
}

static enum fr_status run(struct exchange *exchange)
{
    enum fr_status status = post_offer(exchange);
    if (status != FR_OK)
        return status;
    status = fr_coll_group_wait(exchange->group, exchange->part->call, exchange->round);
    if (status != FR_OK)
        return status;
    status = settle(exchange);
    bool fits = status == FR_OK && plan(exchange);
    fr_coll_segment_done(exchange->group->segment, exchange->round);
    return status == FR_OK ? conclude(exchange, push(exchange, fits)) : status;
}

enum fr_status fr_coll_alltoall(struct fr_coll_group *group, const struct fr_coll_alltoall *part)
{
    if (group->broken)
        return FR_ERR_MPI;
    if (!group->memory && !fr_coll_choice_make(group)) {
        fr_coll_alltoall_decline(group, part->call);
        return FR_ERR_UNSUPPORTED;
    }
    struct exchange exchange = {.group = group, .memory = group->memory, .part = part};
    enum fr_status status = run(&exchange);
    fr_coll_choice_rest(group);
    return status;
}
