// SPDX-License-Identifier: BSD-3-Clause
// The rounds of an agreement, and what they do to the mapping sets of the group.
//
// A rank that declines posts without looking at the others, so that host buffers cost it little.
// The others then change none of what all ranks must have alike.
#include "config.h"

#include "coll/agree.h"
#include "coll/mapset.h"
#include "memory/engine.h"

#include <string.h>

// What a rank says of the others' memory in the second round.
enum { CANNOT_MAP, MAPPED, LACKS_DESCRIPTOR };

// Operations on the same memory between two looks at what has been freed. A look asks the driver
// once for each buffer that was ever exported.
enum { LOOK_EVERY = 16 };

// The state of one agreement on this rank.
struct agreement {
    struct fr_coll_group *group;
    struct fr_coll_memory *memory;
    const struct fr_coll_part *part;
    uint64_t user; // the context that maps
    uint64_t round;
    bool alike;        // all ranks are in the same operation of the past again
    unsigned previous; // the operation before, in the past
};

static const struct fr_coll_advert *advert_of(const struct agreement *agreement, int rank)
{
    return fr_coll_group_read(agreement->group, rank, agreement->round);
}

static const struct fr_coll_past *past_of(const struct agreement *agreement)
{
    return &agreement->memory->pasts[agreement->memory->past];
}

static const struct fr_coll_slot *slots_of(const struct fr_coll_advert *advert)
{
    return (const struct fr_coll_slot *)(advert + 1);
}

_Static_assert(offsetof(struct fr_coll_advert, handles) == 64, "what an empty post stands for");

void fr_coll_decline(struct fr_coll_group *group, const char *call)
{
    static const struct fr_coll_advert nothing;
    uint64_t round = 0;
    size_t head = group->segment ? 0 : offsetof(struct fr_coll_advert, handles); // all zeros
    if (!group->broken && !group->quit &&
        fr_coll_group_post(group, call, false, &nothing, head, &round) == FR_OK)
        fr_coll_group_done(group, round);
}

// Exports a buffer and sees that the descriptor, if it takes one, is with the others.
static bool prepare_buffer(struct fr_coll_group *group, const struct fr_coll_buffer *buffer,
                           struct fr_memory_handle *handle)
{
    if (!buffer->bytes)
        return true;
    *handle = buffer->handle;
    if (!handle->bytes &&
        fr_memory_export(&buffer->range, (const void *)buffer->low, buffer->bytes, handle) != FR_OK)
        return false;
    if (!fr_coll_mapset_has(group, handle) &&
        fr_memory_send_descriptor(handle, group->processes, (size_t)group->size, false) != FR_OK)
        return false;
    return buffer->is_workspace ||
           fr_device_quiesce(&buffer->range, buffer->low, buffer->bytes) == FR_OK;
}

static uint64_t user_of(const struct fr_coll_part *part)
{
    void *context = NULL;
    if (!fr_device_owns(&part->mover) || fr_device_context_of(&part->mover, &context) != FR_OK)
        return 0;
    return (uint64_t)(uintptr_t)context ^ (uint64_t)(unsigned)(part->mover.device + 1) << 56;
}

// Memory that is freed, and still mapped by others, is gone for its owner.
static void tell_freed(struct fr_coll_memory *memory, bool changed)
{
    struct fr_coll_advert *advert = memory->next;
    if (!changed && ++memory->unlooked < LOOK_EVERY)
        return;
    memory->unlooked = 0;
    advert->freed_count = (uint32_t)fr_memory_freed(&memory->freed_mark, advert->freed,
                                                    FR_ARRAY_LENGTH(advert->freed));
}

static bool are_of_one_context(const struct fr_device_range *a, const struct fr_device_range *b)
{
    return a->device == b->device && (a->context == b->context || !a->context || !b->context);
}

// A copy but for what it need not have.
struct copies {
    struct fr_device_range range;
    struct fr_device_push_piece pieces[FR_ROUND_COPIES];
};

// Has the kernel that moves the bytes make copies as well, if it can.
static bool add_copies(const struct fr_coll_copy *whole, struct copies copies,
                       struct fr_device_move *move, struct fr_device_push_piece *into)
{
    if (copies.pieces[0].bytes + copies.pieces[1].bytes == 0)
        return true;
    if (!move->range)
        move->range = &whole->range;
    memcpy(into, copies.pieces, sizeof(copies.pieces));
    return fr_device_met_copies(&whole->piece) && are_of_one_context(&whole->range, move->range);
}

static struct copies copies_around(const struct fr_coll_copy *copy, const struct fr_coll_slot *own,
                                   uintptr_t workspace)
{
    const struct fr_device_push_piece *piece = &copy->piece;
    struct copies copies = {.range = copy->range, .pieces = {*piece}};
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

// What a kernel may move at once, when all ranks say that all is as it was.
static bool plan(const struct agreement *agreement, struct fr_device_move *move)
{
    const struct fr_coll_part *part = agreement->part;
    return agreement->group->slab && part->plan &&
           part->plan(agreement->group, part->cookie, move) &&
           add_copies(&part->before, copies_before(part), move, move->before) &&
           add_copies(&part->after, copies_after(part), move, move->after);
}

// The application's side of a copy must be quiet whoever makes it.
static enum fr_status quiesce(const struct fr_coll_copy *copy, uintptr_t low)
{
    return copy->piece.bytes > 0 ? fr_device_quiesce(&copy->range, low, copy->piece.bytes) : FR_OK;
}

static enum fr_status copy_all(struct copies copies)
{
    size_t bytes = copies.pieces[0].bytes + copies.pieces[1].bytes;
    if (bytes == 0)
        return FR_OK;
    return fr_device_push(&copies.range, copies.pieces, FR_ROUND_COPIES,
                          fr_memory_engine(FR_SIZE_COPY_CE, bytes),
                          (unsigned)fr_core_settings()->peer_sms);
}

// Whether this rank is in an operation of the past again: it has the same memory, which is still
// mapped, and the same slots.
static bool is_again(const struct fr_coll_memory *memory, unsigned index, size_t slot_bytes)
{
    const struct fr_coll_past *past = &memory->pasts[index];
    const struct fr_coll_advert *advert = memory->next;
    return past->used && past->filling == memory->sets[past->set].filling &&
           (advert->holds >> past->set & 1) && advert->what == past->advert->what &&
           memcmp(advert + 1, past->advert + 1, slot_bytes) == 0;
}

// Returns the mark of such an operation, 0 for none. Several may be the same for this rank and not
// for others, so that first of all it is the one that came next the last time.
static unsigned mark_of(const struct agreement *agreement, size_t slot_bytes)
{
    const struct fr_coll_memory *memory = agreement->memory;
    unsigned expected = memory->pasts[memory->past].successor;
    for (unsigned i = 0; i < FR_COLL_PASTS; i++) {
        unsigned index = (expected + i) % FR_COLL_PASTS;
        if (is_again(memory, index, slot_bytes))
            return index + 1;
    }
    return 0;
}
_Static_assert((int)FR_COLL_PASTS < (int)FR_ROUND_MARKS, "each has a mark");

// Posts the advert, and waits for those of the others. What is planned is as in the past.
static enum fr_status post_advert(struct agreement *agreement, unsigned mark, size_t slot_bytes)
{
    struct fr_coll_group *group = agreement->group;
    struct fr_coll_memory *memory = agreement->memory;
    const struct fr_coll_part *part = agreement->part;
    unsigned past = memory->past, last = memory->last;
    struct fr_device_move move = {0};
    agreement->previous = past;
    if (mark) {
        memory->past = mark - 1;
        memory->last = memory->pasts[mark - 1].set;
    }
    bool moves = mark && plan(agreement, &move);
    if (!moves && copy_all(copies_before(part)) != FR_OK) {
        memory->next->eligible = 0;
        mark = 0;
    }
    enum fr_status status = fr_coll_group_exchange(group, part->call, mark, memory->next,
                                                   sizeof(*memory->next) + slot_bytes,
                                                   moves ? &move : NULL, &agreement->round);
    agreement->alike = status == FR_OK && mark && fr_coll_group_is_alike(group, agreement->round);
    if (!agreement->alike) { // all ranks go on from the same
        memory->past = past;
        memory->last = last;
    }
    return status;
}

static enum fr_status advertise(struct agreement *agreement)
{
    struct fr_coll_group *group = agreement->group;
    const struct fr_coll_part *part = agreement->part;
    struct fr_coll_memory *memory = agreement->memory;
    struct fr_coll_advert *advert = memory->next;
    size_t slot_bytes = (size_t)part->slot_count * sizeof(struct fr_coll_slot);
    memset(advert, 0, sizeof(*advert));
    advert->what = part->what;
    advert->eligible = 1;
    for (int side = 0; side < FR_COLL_SIDES && advert->eligible; side++)
        advert->eligible = prepare_buffer(group, &part->buffers[side], &advert->handles[side]);
    advert->eligible = advert->eligible &&
                       quiesce(&part->before, part->before.piece.src) == FR_OK &&
                       quiesce(&part->after, part->after.piece.dst) == FR_OK;
    agreement->user = user_of(part);
    bool known = fr_coll_mapset_number(group, agreement->user, advert);
    memcpy(advert + 1, part->slots, slot_bytes);
    tell_freed(memory, !known);
    unsigned mark = advert->eligible && !advert->freed_count ? mark_of(agreement, slot_bytes) : 0;
    return post_advert(agreement, mark, slot_bytes);
}

// A marked advert is eligible, tells of nothing freed, and is from a rank that holds what was
// mapped for the last operation that was agreed on, and says just what it said then.
static bool is_usual(const struct agreement *agreement, int rank)
{
    return agreement->group->slab
               ? agreement->alike
               : fr_coll_group_is_marked(agreement->group, rank, agreement->round);
}

// False where a rank tells of more than its advert has room for. What it tells may change
// meanwhile.
static bool forget_freed(const struct agreement *agreement, int rank)
{
    const struct fr_coll_advert *advert = advert_of(agreement, rank);
    uint32_t count = __atomic_load_n(&advert->freed_count, __ATOMIC_RELAXED);
    if (count > FR_ARRAY_LENGTH(advert->freed))
        return false;
    for (uint32_t i = 0; i < count && rank != agreement->group->rank; i++)
        fr_memory_forget_buffer(&agreement->group->processes[rank], advert->freed[i]);
    return true;
}

// Whether every rank is in the same operation, with memory that others reach. All ranks see the
// same.
static bool all_advertise(const struct agreement *agreement)
{
    bool all = true;
    uint64_t what = agreement->part->what;
    for (int rank = 0; rank < agreement->group->size; rank++) {
        if (is_usual(agreement, rank)) {
            all = all && past_of(agreement)->advert->what == what;
            continue;
        }
        const struct fr_coll_advert *advert = advert_of(agreement, rank);
        all = forget_freed(agreement, rank) && all && advert->eligible && advert->what == what;
    }
    return all;
}

// Whether all ranks advertise the memory of this set, and have mapped what they need of it. All
// ranks see the same.
static bool is_held(const struct agreement *agreement, unsigned index)
{
    const struct fr_coll_memory *memory = agreement->memory;
    const struct fr_coll_mapset *set = &memory->sets[index];
    bool all = set->used;
    for (int rank = 0; rank < agreement->group->size && all; rank++) {
        if (index == memory->last && is_usual(agreement, rank))
            continue;
        const struct fr_coll_advert *advert = advert_of(agreement, rank);
        all = (advert->holds >> index & 1) && advert->version == set->known[rank].version;
    }
    return all;
}

// Returns the set that all ranks hold, the last one before others; FR_COLL_MAPSETS if there is
// none.
static unsigned find_held(const struct agreement *agreement)
{
    if (is_held(agreement, agreement->memory->last))
        return agreement->memory->last;
    unsigned index = 0;
    while (index < FR_COLL_MAPSETS && !is_held(agreement, index))
        index++;
    return index;
}

// Which set is to be replaced: one of the same memory, that some rank does not hold any more, or
// the one whose turn it is. All ranks find the same.
static unsigned choose_replaced(const struct agreement *agreement)
{
    struct fr_coll_memory *memory = agreement->memory;
    for (unsigned index = 0; index < FR_COLL_MAPSETS; index++) {
        bool same = memory->sets[index].used;
        for (int rank = 0; rank < agreement->group->size && same; rank++)
            same = advert_of(agreement, rank)->version == memory->sets[index].known[rank].version;
        if (same)
            return index;
    }
    return memory->turn++ % FR_COLL_MAPSETS;
}

// Learns what memory all ranks advertise and maps it, whether or not this operation needs it all.
static int map_all(struct agreement *agreement, unsigned index)
{
    struct fr_coll_group *group = agreement->group;
    fr_coll_mapset_clear(group, index);
    agreement->memory->sets[index].user = agreement->user;
    for (int rank = 0; rank < group->size; rank++) {
        enum fr_status status = fr_coll_mapset_add(group, index, rank, advert_of(agreement, rank),
                                                   &agreement->part->mover);
        if (status != FR_OK)
            return status == FR_ERR_NOT_FOUND ? LACKS_DESCRIPTOR : CANNOT_MAP;
    }
    return MAPPED;
}

// Learns what this rank needs of the others' slots. Those of a marked rank are as they were.
static void read_places(struct agreement *agreement)
{
    const struct fr_coll_part *part = agreement->part;
    for (int rank = 0; rank < agreement->group->size; rank++) {
        if (!is_usual(agreement, rank))
            memcpy(&past_of(agreement)->places[FR_COLL_SIDES * rank],
                   slots_of(advert_of(agreement, rank)) + part->first_read,
                   (size_t)part->read_count * sizeof(struct fr_coll_slot));
    }
}

// Remembers what was agreed on. In shared memory marks mean the last operation.
static void remember(struct agreement *agreement, unsigned index)
{
    struct fr_coll_memory *memory = agreement->memory;
    if (agreement->group->slab)
        memory->past = memory->past_turn++ % FR_COLL_PASTS;
    struct fr_coll_past *past = &memory->pasts[memory->past];
    read_places(agreement);
    struct fr_coll_advert *agreed = memory->next;
    memory->next = past->advert;
    past->advert = agreed;
    past->set = index;
    past->filling = memory->sets[index].filling;
    past->used = true;
}

// Sends the descriptors once more to ranks that lack one, for the next time.
static void send_again(const struct agreement *agreement, uint64_t round)
{
    const struct fr_coll_group *group = agreement->group;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *outcome = fr_coll_group_read(group, rank, round);
        for (int side = 0; side < FR_COLL_SIDES && *outcome == LACKS_DESCRIPTOR; side++) {
            const struct fr_memory_handle *handle = &agreement->memory->next->handles[side];
            if (handle->bytes && fr_memory_needs_descriptor(handle))
                (void)!fr_memory_send_descriptor(handle, &group->processes[rank], 1, true);
        }
    }
}

// The second round. FR_ERR_UNSUPPORTED when some rank could not map what it needs.
static enum fr_status compare_outcomes(struct agreement *agreement, int outcome)
{
    struct fr_coll_group *group = agreement->group;
    uint32_t own = (uint32_t)outcome;
    uint64_t round = 0;
    enum fr_status status = fr_coll_group_exchange(group, agreement->part->call, false, &own,
                                                   sizeof(own), NULL, &round);
    if (status != FR_OK)
        return status;
    for (int rank = 0; rank < group->size; rank++) {
        const uint32_t *said = fr_coll_group_read(group, rank, round);
        if (*said != MAPPED)
            status = FR_ERR_UNSUPPORTED;
    }
    if (status != FR_OK)
        send_again(agreement, round);
    return status; // the adverts are still needed, so that it is too early to be done with this
}

// From the adverts to the decision: FR_OK when all ranks have mapped each other's memory.
static enum fr_status decide(struct agreement *agreement)
{
    struct fr_coll_memory *memory = agreement->memory;
    if (!all_advertise(agreement))
        return FR_ERR_UNSUPPORTED;
    unsigned index = find_held(agreement);
    if (index == FR_COLL_MAPSETS) {
        index = choose_replaced(agreement);
        fr_debug("%s: memory is advertised that is in no mapping set", agreement->part->call);
        fr_coll_mapset_rest(agreement->group); // what is in use may be in the way of new mappings
        enum fr_status status = compare_outcomes(agreement, map_all(agreement, index));
        if (status != FR_OK) {
            fr_coll_mapset_clear(agreement->group, index);
            return status;
        }
        memory->sets[index].used = true;
        memory->sets[index].filling = ++memory->fillings;
    }
    memory->last = index;
    if (!agreement->alike)
        remember(agreement, index);
    memory->pasts[agreement->previous].successor = memory->past;
    return FR_OK;
}

static enum fr_status run(struct agreement *agreement)
{
    enum fr_status status = advertise(agreement);
    if (status != FR_OK)
        return status;
    status = decide(agreement);
    fr_coll_group_done(agreement->group, agreement->group->round);
    return status;
}

enum fr_status fr_coll_agree(struct fr_coll_group *group, const struct fr_coll_part *part)
{
    group->copied = false;
    if (group->broken)
        return FR_ERR_MPI;
    if (!group->memory && !fr_coll_mapset_make(group)) {
        fr_coll_decline(group, part->call);
        return FR_ERR_UNSUPPORTED;
    }
    struct agreement agreement = {.group = group, .memory = group->memory, .part = part};
    enum fr_status status = run(&agreement);
    if (status != FR_OK)
        fr_coll_mapset_rest(group);
    return status;
}

const struct fr_coll_slot *fr_coll_places(const struct fr_coll_group *group)
{
    return group->memory->pasts[group->memory->past].places;
}

struct fr_device_push_piece *fr_coll_pieces(const struct fr_coll_group *group)
{
    return group->memory->pieces;
}

uintptr_t fr_coll_reach(const struct fr_coll_group *group, int rank, enum fr_coll_side side,
                        uint64_t address)
{
    const struct fr_coll_mapset *set = &group->memory->sets[group->memory->last];
    return fr_memory_mapping_at(&set->mappings[(int)side * group->size + rank],
                                &set->known[rank].handles[side], address);
}

enum fr_status fr_coll_check(struct fr_coll_group *group, const char *call, enum fr_status status)
{
    uint32_t own = status == FR_OK;
    uint64_t round = 0;
    if (group->broken)
        return FR_ERR_MPI;
    enum fr_status met = FR_OK;
    group->ending = true;
    if (group->moved) // and posted that it is well
        met = fr_coll_group_wait(group, call, round = group->round);
    else
        met = fr_coll_group_exchange(group, call, own, &own, sizeof(own), NULL, &round);
    group->moved = group->ending = false;
    if (met != FR_OK)
        return met;
    for (int rank = 0; rank < group->size; rank++) {
        if (fr_coll_group_is_marked(group, rank, round))
            continue; // it is well
        const uint32_t *moved = fr_coll_group_read(group, rank, round);
        if (!*moved && status == FR_OK) {
            fr_error("%s: rank %d of the communicator could not move its data", call, rank);
            status = FR_ERR_DEVICE;
        }
    }
    fr_coll_group_done(group, round);
    return status;
}

enum fr_status fr_coll_conclude(struct fr_coll_group *group, const struct fr_coll_part *part,
                                enum fr_status status)
{
    status = fr_coll_check(group, part->call, status);
    fr_coll_mapset_rest(group);
    if (status == FR_OK && !group->copied)
        status = copy_all(copies_after(part));
    return status;
}
