// SPDX-License-Identifier: BSD-3-Clause
// Agreement on an operation: what a rank advertises, and what the adverts of all do to the team's
// mapping sets. Where a rank declines, the others change nothing that all ranks must have alike.
#include "config.h"

#include "fabrail/coll/agree.h"

#include "coll/mapset.h"
#include "fabrail/coll/task.h"

#include <string.h>

// The words of the second round, in which a rank tells of the others' memory.
enum { CANNOT_MAP, MAPPED, LACKS_DESCRIPTOR };

// Operations on the same memory between two looks at what has been freed. A look asks the driver
// once for each buffer that was ever exported.
enum { LOOK_EVERY = 16 };

static const struct fr_coll_advert *advert_of(const struct fr_coll_task *task, int rank)
{
    return fr_coll_round_read(task->team, rank, task->adverts);
}

static const struct fr_coll_past *past_of(const struct fr_coll_task *task)
{
    return &task->team->memory->pasts[task->team->memory->past];
}

static const struct fr_coll_slot *slots_of(const struct fr_coll_advert *advert)
{
    return (const struct fr_coll_slot *)(advert + 1);
}

// Returns the layouts of an advert that has so many slots.
static struct fr_device_strides *layouts_of(const struct fr_coll_advert *advert, int slot_count)
{
    return (struct fr_device_strides *)(uintptr_t)(slots_of(advert) + slot_count);
}

_Static_assert(offsetof(struct fr_coll_advert, handles) == 64, "what an empty post stands for");

// Exports a buffer and sees that the descriptor, if it takes one, is with the others.
static bool prepare_buffer(struct fr_coll_team *team, const struct fr_coll_buffer *buffer,
                           struct fr_ipc_handle *handle)
{
    if (!buffer->bytes)
        return true;
    *handle = buffer->handle;
    if (!handle->bytes &&
        fr_ipc_export(&buffer->range, (const void *)buffer->low, buffer->bytes, handle) != FR_OK)
        return false;
    return fr_coll_mapset_has(team, handle) ||
           fr_ipc_send_descriptor(handle, team->processes, (size_t)team->size, false) == FR_OK;
}

static uint64_t user_of(const struct fr_coll_part *part)
{
    struct fr_device_range mover = part->mover;
    fr_device_range_fix_context(&mover);
    if (!fr_device_owns(&mover) || !mover.context)
        return 0;
    return (uint64_t)(uintptr_t)mover.context ^ (uint64_t)(unsigned)(mover.device + 1) << 56;
}

// Tells the others of exported memory that is freed. They may still have it mapped, and its owner
// cannot have it back until they let go.
static void tell_freed(struct fr_coll_memory *memory, bool changed)
{
    struct fr_coll_advert *advert = memory->next;
    if (!changed && ++memory->unlooked < LOOK_EVERY)
        return;
    memory->unlooked = 0;
    advert->freed_count =
        (uint32_t)fr_ipc_freed(&memory->freed_mark, advert->freed, FR_ARRAY_LENGTH(advert->freed));
}

// Lists the memory on which the application may have work under way, which is to be over before
// others reach the memory, or a copy is made.
static void list_unsynced(const struct fr_coll_part *part,
                          struct fr_device_span spans[FR_DEVICE_SPANS])
{
    const struct fr_coll_copy *before = &part->before, *after = &part->after;
    for (int access = 0; access < FR_COLL_ACCESSES; access++) {
        const struct fr_coll_buffer *buffer = &part->buffers[access];
        spans[access] = (struct fr_device_span){&buffer->range, buffer->low,
                                                buffer->is_workspace ? 0 : buffer->bytes};
    }
    spans[FR_COLL_ACCESSES] =
        (struct fr_device_span){&before->range, before->piece.src, before->piece.bytes};
    spans[FR_COLL_ACCESSES + 1] =
        (struct fr_device_span){&after->range, after->piece.dst, after->piece.bytes};
    for (int i = 0; i < FR_DEVICE_SPANS && part->is_synced; i++)
        spans[i].bytes = 0;
}
_Static_assert((int)FR_COLL_ACCESSES + 2 == (int)FR_DEVICE_SPANS, "buffers and copies");

// Waits for the application's work on memory of a task, unless a kernel is launched that has it
// waited for.
static void sync_app_work(struct fr_coll_task *task)
{
    struct fr_device_span spans[FR_DEVICE_SPANS];
    list_unsynced(&task->part, task->moves ? task->move.unsynced : spans);
    if (!task->moves && task->team->memory->next->eligible &&
        fr_device_spans_sync_app_work(spans) != FR_OK)
        fr_coll_agree_refuse(task);
}

// Returns whether this rank is in a past operation again: it has the same slots and the same
// memory, which is still mapped.
static bool is_again(const struct fr_coll_memory *memory, unsigned index, size_t slot_bytes)
{
    const struct fr_coll_past *past = &memory->pasts[index];
    const struct fr_coll_advert *advert = memory->next;
    return past->used && past->filling == memory->sets[past->set].filling &&
           (advert->holds >> past->set & 1) && advert->what == past->advert->what &&
           advert->layouts == past->advert->layouts &&
           memcmp(advert + 1, past->advert + 1, slot_bytes) == 0;
}

// Returns the mark of the past operation that this rank is in again, 0 for none. Several may be the
// same for this rank and not for others. So the one that came next the last time is tried first.
static unsigned mark_of(const struct fr_coll_task *task)
{
    const struct fr_coll_memory *memory = task->team->memory;
    unsigned expected = memory->pasts[memory->past].successor;
    for (unsigned i = 0; i < FR_COLL_PASTS; i++) {
        unsigned index = (expected + i) % FR_COLL_PASTS;
        if (is_again(memory, index, task->slot_bytes))
            return index + 1;
    }
    return 0;
}
_Static_assert((int)FR_COLL_PASTS < (int)FR_ROUND_MARKS, "each has a mark");

// Makes the past operation of this mark the last one.
static void go_back(struct fr_coll_memory *memory, unsigned mark)
{
    memory->past = mark - 1;
    memory->last = memory->pasts[mark - 1].set;
}

// Returns whether a kernel may move the bytes at once, when all ranks say that all is as it was.
// The plan rests on the past operation.
static bool plan(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    struct fr_coll_memory *memory = team->memory;
    const struct fr_coll_part *part = &task->part;
    if (!team->slab || !task->mark)
        return false;
    unsigned past = memory->past, last = memory->last;
    go_back(memory, task->mark);
    task->move.delivery.is_made = false;
    bool planned = part->plan(team, part->operation, &task->move);
    const bool delivers = task->move.delivery.is_made; // to where the result belongs
    planned = planned && fr_coll_copy_plan(&part->before, false, &task->move) &&
              (delivers || fr_coll_copy_plan(&part->after, true, &task->move));
    task->move.is_synced = part->is_synced;
    memory->past = past; // all ranks go on from the same
    memory->last = last;
    if (delivers && !planned)
        task->mark = 0;
    task->delivers = delivers && planned;
    return planned;
}

bool fr_coll_agree_prepare(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    const struct fr_coll_part *part = &task->part;
    struct fr_coll_memory *memory = team->memory;
    struct fr_coll_advert *advert = memory->next;
    size_t slot_bytes = (size_t)part->slot_count * sizeof(struct fr_coll_slot);
    size_t layout_bytes = part->layout_count * sizeof(*part->layouts);
    task->slot_bytes = slot_bytes + layout_bytes;
    memset(advert, 0, sizeof(*advert));
    advert->what = part->what;
    advert->layouts = part->layout_count;
    advert->eligible = 1;
    for (int access = 0; access < FR_COLL_ACCESSES && advert->eligible; access++)
        advert->eligible = prepare_buffer(team, &part->buffers[access], &advert->handles[access]);
    task->user = user_of(part);
    bool known = fr_coll_mapset_number(team, task->user, advert);
    memcpy(advert + 1, part->slots, slot_bytes);
    if (layout_bytes > 0)
        memcpy(layouts_of(advert, part->slot_count), part->layouts, layout_bytes);
    tell_freed(memory, !known);
    task->mark = advert->eligible && !advert->freed_count ? mark_of(task) : 0;
    task->previous = memory->past;
    task->delivers = false;
    task->moves = plan(task);
    sync_app_work(task);
    return !task->moves && fr_coll_copy_begin(&part->before, false, true, &task->work);
}

void fr_coll_agree_refuse(struct fr_coll_task *task)
{
    task->team->memory->next->eligible = 0;
    task->mark = 0;
}

// Returns whether a rank has marked its advert. It then says just what it said in the last
// operation that was agreed on. It is eligible, tells of nothing freed, and its rank holds what was
// mapped for that operation.
static bool is_usual(const struct fr_coll_task *task, int rank)
{
    return task->team->slab ? task->alike
                            : fr_coll_round_is_marked(task->team, rank, task->adverts);
}

// Drops mappings of memory that a rank tells of as freed. Returns false where it tells of more than
// its advert has room for. The count may change meanwhile.
static bool forget_freed(const struct fr_coll_task *task, int rank)
{
    const struct fr_coll_advert *advert = advert_of(task, rank);
    uint32_t count = __atomic_load_n(&advert->freed_count, __ATOMIC_RELAXED);
    if (count > FR_ARRAY_LENGTH(advert->freed))
        return false;
    for (uint32_t i = 0; i < count && rank != task->team->rank; i++)
        fr_ipc_forget_buffer(&task->team->processes[rank], advert->freed[i]);
    return true;
}

// Returns whether every rank is in the same operation, with memory that others reach. All ranks see
// the same.
static bool all_advertise(const struct fr_coll_task *task)
{
    bool all = true;
    uint64_t what = task->part.what;
    for (int rank = 0; rank < task->team->size; rank++) {
        if (is_usual(task, rank)) {
            all = all && past_of(task)->advert->what == what;
            continue;
        }
        const struct fr_coll_advert *advert = advert_of(task, rank);
        all = forget_freed(task, rank) && all && advert->eligible && advert->what == what;
    }
    return all;
}

// Returns whether all ranks advertise the memory of this set, and have mapped what they need of it.
// All ranks see the same.
static bool is_held(const struct fr_coll_task *task, unsigned index)
{
    const struct fr_coll_memory *memory = task->team->memory;
    const struct fr_coll_mapset *set = &memory->sets[index];
    bool all = set->used;
    for (int rank = 0; rank < task->team->size && all; rank++) {
        if (index == memory->last && is_usual(task, rank))
            continue;
        const struct fr_coll_advert *advert = advert_of(task, rank);
        all = (advert->holds >> index & 1) && advert->version == set->known[rank].version;
    }
    return all;
}

// Returns the set that all ranks hold, the last one before others; FR_COLL_MAPSETS if there is
// none.
static unsigned find_held(const struct fr_coll_task *task)
{
    if (is_held(task, task->team->memory->last))
        return task->team->memory->last;
    unsigned index = 0;
    while (index < FR_COLL_MAPSETS && !is_held(task, index))
        index++;
    return index;
}

// Chooses the set to be replaced: one of the same memory that some rank no longer holds, else the
// one whose turn it is. All ranks choose the same.
static unsigned choose_replaced(const struct fr_coll_task *task)
{
    struct fr_coll_memory *memory = task->team->memory;
    for (unsigned index = 0; index < FR_COLL_MAPSETS; index++) {
        bool same = memory->sets[index].used;
        for (int rank = 0; rank < task->team->size && same; rank++)
            same = advert_of(task, rank)->version == memory->sets[index].known[rank].version;
        if (same)
            return index;
    }
    return memory->turn++ % FR_COLL_MAPSETS;
}

// Learns what memory all ranks advertise and maps it, whether or not this operation needs it all.
static int map_all(struct fr_coll_task *task, unsigned index)
{
    struct fr_coll_team *team = task->team;
    fr_coll_mapset_clear(team, index);
    task->team->memory->sets[index].user = task->user;
    for (int rank = 0; rank < team->size; rank++) {
        enum fr_status status =
            fr_coll_mapset_add(team, index, rank, advert_of(task, rank), &task->part.mover);
        if (status != FR_OK)
            return status == FR_ERR_NOT_FOUND ? LACKS_DESCRIPTOR : CANNOT_MAP;
    }
    return MAPPED;
}

// Reads the slots of a rank that this rank needs, and the layout of the first one.
static void read_slots_of(struct fr_coll_task *task, int rank)
{
    const struct fr_coll_part *part = &task->part;
    const struct fr_coll_past *past = past_of(task);
    const struct fr_coll_advert *advert = advert_of(task, rank);
    struct fr_coll_slot *slots = &past->slots[FR_COLL_ACCESSES * rank];
    memcpy(slots, slots_of(advert) + part->first_read,
           (size_t)part->read_count * sizeof(struct fr_coll_slot));
    if (slots->layout > 0 && slots->layout <= FR_COLL_LAYOUTS)
        past->layouts[rank] = layouts_of(advert, part->slot_count)[slots->layout - 1];
}

// Reads the others' slots that this rank needs. The slots of a marked rank are as they were.
static void read_slots(struct fr_coll_task *task)
{
    for (int rank = 0; rank < task->team->size; rank++) {
        if (!is_usual(task, rank))
            read_slots_of(task, rank);
    }
}

// Remembers the operation that was agreed on. In shared memory a mark means the last operation.
static void remember(struct fr_coll_task *task, unsigned index)
{
    struct fr_coll_memory *memory = task->team->memory;
    if (task->team->slab)
        memory->past = memory->past_turn++ % FR_COLL_PASTS;
    struct fr_coll_past *past = &memory->pasts[memory->past];
    read_slots(task);
    struct fr_coll_advert *agreed = memory->next;
    memory->next = past->advert;
    past->advert = agreed;
    past->set = index;
    past->filling = memory->sets[index].filling;
    past->used = true;
}

// Sends the descriptors once more to ranks that lack one, for the next time.
static void send_again(const struct fr_coll_task *task)
{
    const struct fr_coll_team *team = task->team;
    for (int rank = 0; rank < team->size; rank++) {
        const uint32_t *outcome = fr_coll_round_read(team, rank, task->round.number);
        for (int access = 0; access < FR_COLL_ACCESSES && *outcome == LACKS_DESCRIPTOR; access++) {
            const struct fr_ipc_handle *handle = &task->team->memory->next->handles[access];
            if (handle->bytes && fr_ipc_needs_descriptor(handle))
                (void)!fr_ipc_send_descriptor(handle, &team->processes[rank], 1, true);
        }
    }
}

// Takes a set that all ranks hold for the operation.
static void agree_on(struct fr_coll_task *task, unsigned index)
{
    struct fr_coll_memory *memory = task->team->memory;
    memory->last = index;
    if (!task->alike)
        remember(task, index);
    memory->pasts[task->previous].successor = memory->past;
}

enum fr_status fr_coll_agree_decide(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    task->adverts = task->round.number;
    task->alike = task->mark && fr_coll_round_is_alike(team, task->adverts);
    if (task->alike)
        go_back(team->memory, task->mark);
    if (!all_advertise(task))
        return FR_ERR_UNSUPPORTED;
    unsigned index = find_held(task);
    if (index < FR_COLL_MAPSETS) {
        agree_on(task, index);
        return FR_OK;
    }
    fr_debug("%s: memory is advertised that is in no mapping set", task->part.call);
    task->replaced = choose_replaced(task);
    fr_coll_mapset_rest(team); // mappings in use may be in the way of new ones
    task->word = (uint32_t)map_all(task, task->replaced);
    return FR_ERR_NOT_FOUND;
}

enum fr_status fr_coll_agree_compare(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    struct fr_coll_mapset *set = &team->memory->sets[task->replaced];
    bool all = true;
    for (int rank = 0; rank < team->size; rank++) {
        const uint32_t *said = fr_coll_round_read(team, rank, task->round.number);
        all = all && *said == MAPPED;
    }
    if (!all) {
        send_again(task);
        fr_coll_mapset_clear(team, task->replaced);
        return FR_ERR_UNSUPPORTED;
    }
    set->used = true;
    set->filling = ++team->memory->fillings;
    agree_on(task, task->replaced);
    return FR_OK;
}

const struct fr_coll_slot *fr_coll_agreed_slots(const struct fr_coll_team *team)
{
    return team->memory->pasts[team->memory->past].slots;
}

bool fr_coll_agreed_layout(const struct fr_coll_team *team, int rank, struct fr_pack_shape *shape)
{
    const struct fr_coll_past *past = &team->memory->pasts[team->memory->past];
    if (past->slots[FR_COLL_ACCESSES * rank].layout == 0)
        return false;
    fr_device_strides_shape(&past->layouts[rank], shape);
    return true;
}

uintptr_t fr_coll_reach(const struct fr_coll_team *team, int rank, enum fr_coll_access access,
                        uint64_t address)
{
    const struct fr_coll_mapset *set = &team->memory->sets[team->memory->last];
    return fr_ipc_mapping_at(&set->mappings[(int)access * team->size + rank],
                             &set->known[rank].handles[access], address);
}

int fr_coll_count_ranks_on(const struct fr_coll_team *team, int device)
{
    const struct fr_coll_mapset *set = &team->memory->sets[team->memory->last];
    int count = 0;
    for (int rank = 0; rank < team->size; rank++)
        count += fr_ipc_handle_is_on(&set->known[rank].handles[FR_COLL_READ], device);
    return count;
}
