// SPDX-License-Identifier: BSD-3-Clause
// Reductions over NVLink: which slice each rank combines, where it is pulled from and where it is
// pushed to.
#include "config.h"

#include "fabrail/coll/reduction.h"
#include "fabrail/ipc/tuned.h"

// Slots that every rank posts.
enum { SEND, RECEIVE, SLOTS };
_Static_assert((int)SLOTS == (int)FR_COLL_ACCESSES, "a rank reads two slots of each other one");

bool fr_coll_reduce_serves(const struct fr_coll_team *team)
{
    return fr_coll_team_agrees(team) && team->size <= FR_REDUCE_SOURCES;
}

// Returns whether the ranks share the work. Ranks that were tuned differently need not find the
// same. A scattered result has its slices given.
static bool is_shared(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce)
{
    return reduce->form == FR_COLL_SCATTERED ||
           fr_policy_reduction_is_shared(reduce->elements * reduce->element_bytes, team->size,
                                         reduce->form == FR_COLL_TO_ROOT,
                                         fr_ipc_tuned(FR_SIZE_REDUCE_SHARE));
}

// Returns what tells reductions apart. All ranks must be in the same one; other differences are for
// the MPI library to complain of.
static uint64_t what_of(const struct fr_coll_reduce *reduce)
{
    const uint64_t words[] = {(uint64_t)reduce->form + 1000, (uint64_t)reduce->row,
                              (uint64_t)reduce->root, reduce->elements, reduce->is_shared};
    uint64_t what = 0;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(words); i++)
        what = (what ^ words[i]) * 0x9e3779b97f4a7c15u + 1;
    return what;
}

static struct fr_policy_slice slice_of(const struct fr_coll_team *team,
                                       const struct fr_coll_reduce *reduce)
{
    if (reduce->form == FR_COLL_SCATTERED)
        return (struct fr_policy_slice){reduce->own_first, reduce->own_elements};
    // Work that is not shared is the root's, so that nothing has to be pushed to it.
    int index = (team->rank - reduce->root + team->size) % team->size;
    return fr_policy_slice(reduce->elements, reduce->element_bytes, team->size, index,
                           reduce->is_shared);
}

// Returns whether this rank writes its own slice straight where it belongs, whatever the workspace
// is. That takes units of the kernel there as well.
static bool writes_own(const struct fr_coll_reduce *reduce)
{
    return fr_coll_can_spare(&reduce->after, &reduce->mover) &&
           fr_device_barrier_kernel_copies(&reduce->after.piece);
}

// Returns whether a result that is scattered in place would be written over what is still read.
static bool is_written_over(const struct fr_coll_reduce *reduce)
{
    uintptr_t from = fr_coll_source(&reduce->before, reduce->send.address) +
                     reduce->own_first * reduce->element_bytes;
    uintptr_t to = reduce->receive.address;
    if (writes_own(reduce))
        to = fr_coll_target(&reduce->after, to);
    return reduce->form == FR_COLL_SCATTERED && from != to && from < to + reduce->receive.bytes &&
           to < from + reduce->receive.bytes;
}

// Returns whether this rank reads its own slice straight where it belongs, whatever the workspace
// is.
static bool reads_own(const struct fr_coll_reduce *reduce)
{
    return fr_coll_can_spare(&reduce->before, &reduce->mover) &&
           fr_device_barrier_kernel_copies(&reduce->before.piece) && !is_written_over(reduce);
}

static uintptr_t source_of(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce,
                           int rank, size_t offset)
{
    const struct fr_coll_slot *slot = fr_coll_slot_of(fr_coll_agreed_slots(team), rank, SEND);
    if (rank == team->rank && reads_own(reduce))
        return fr_coll_source(&reduce->before, slot->address) + offset;
    return fr_coll_reach(team, rank, FR_COLL_READ, slot->address) + offset;
}

static uintptr_t target_of(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce,
                           int rank, size_t offset)
{
    const struct fr_coll_slot *slot = fr_coll_slot_of(fr_coll_agreed_slots(team), rank, RECEIVE);
    if (rank == team->rank && writes_own(reduce))
        return fr_coll_target(&reduce->after, slot->address) + offset;
    return fr_coll_reach(team, rank, FR_COLL_WRITTEN, slot->address) + offset;
}

// Returns where the rank's own slice is in workspace.
static struct fr_coll_slot own_source(const struct fr_coll_reduce *reduce)
{
    struct fr_policy_slice slice = reduce->slice;
    if (!reads_own(reduce))
        slice.count = 0;
    return (struct fr_coll_slot){.address =
                                     reduce->send.address + slice.first * reduce->element_bytes,
                                 .bytes = slice.count * reduce->element_bytes};
}

static struct fr_coll_slot own_target(const struct fr_coll_reduce *reduce)
{
    struct fr_policy_slice slice = reduce->slice;
    if (!writes_own(reduce) || reduce->receive.bytes == 0)
        slice.count = 0;
    if (reduce->form == FR_COLL_SCATTERED)
        slice.first = 0;
    return (struct fr_coll_slot){.address =
                                     reduce->receive.address + slice.first * reduce->element_bytes,
                                 .bytes = slice.count * reduce->element_bytes};
}

// Adds the targets of the result. Each rank begins with another one, so that they do not all push
// to the same one at once.
static void add_targets(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce,
                        size_t offset, struct fr_device_reduction *work)
{
    switch (reduce->form) {
    case FR_COLL_TO_ROOT:
        work->targets = 1;
        work->target[0] = target_of(team, reduce, reduce->root, offset);
        return;
    case FR_COLL_SCATTERED:
        work->targets = 1;
        work->target[0] = target_of(team, reduce, team->rank, 0);
        return;
    case FR_COLL_TO_ALL:
        for (int i = 0; i < team->size; i++)
            work->target[i] = target_of(team, reduce, (team->rank + 1 + i) % team->size, offset);
        break;
    default:
        for (int rank = reduce->form == FR_COLL_EXCLUSIVE_SCAN; rank < team->size; rank++)
            work->target[rank] = target_of(team, reduce, rank, offset);
    }
    work->targets = (unsigned)team->size;
}

static struct fr_device_reduction describe(const struct fr_coll_team *team,
                                           const struct fr_coll_reduce *reduce,
                                           struct fr_policy_slice slice)
{
    size_t offset = slice.first * reduce->element_bytes;
    struct fr_device_reduction work = {
        .row = reduce->row,
        .mode = reduce->form == FR_COLL_SCAN             ? FR_REDUCE_SCAN
                : reduce->form == FR_COLL_EXCLUSIVE_SCAN ? FR_REDUCE_EXCLUSIVE
                                                         : FR_REDUCE_ALL,
        .elements = slice.count,
        .sources = (unsigned)team->size,
    };
    if (slice.count == 0)
        return work;
    for (int rank = 0; rank < team->size; rank++)
        work.source[rank] = source_of(team, reduce, rank, offset);
    add_targets(team, reduce, offset, &work);
    return work;
}

static enum fr_status move(struct fr_coll_team *team, void *operation, int step,
                           struct fr_device_work *work)
{
    struct fr_coll_reduce *reduce = operation;
    (void)step;
    reduce->work = describe(team, reduce, reduce->slice);
    fr_device_reduce_begin(&reduce->mover, &reduce->work, (unsigned)fr_core_settings()->peer_sms,
                           work);
    return FR_OK;
}

// Gives each rank its part of a scattered result. Returns false where the parts that the ranks
// advertise are not the whole vector.
static bool scatter(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce,
                    struct fr_device_reduction *work, size_t slices[FR_REDUCE_SOURCES])
{
    size_t left = reduce->elements;
    work->targets = (unsigned)team->size;
    work->slices = slices;
    for (int rank = 0; rank < team->size; rank++) {
        const struct fr_coll_slot *slot =
            fr_coll_slot_of(fr_coll_agreed_slots(team), rank, RECEIVE);
        slices[rank] = slot->bytes / reduce->element_bytes;
        if (slices[rank] > left)
            return false;
        left -= slices[rank];
        work->target[rank] = slices[rank] > 0 ? target_of(team, reduce, rank, 0) : 0;
    }
    return left == 0;
}

static enum fr_status move_all(struct fr_coll_team *team, void *operation,
                               struct fr_device_work *work)
{
    struct fr_coll_reduce *reduce = operation;
    size_t slices[FR_REDUCE_SOURCES];
    const int sharers = fr_coll_count_ranks_on(team, reduce->mover.device);
    reduce->work = describe(team, reduce, (struct fr_policy_slice){0, reduce->elements});
    if (reduce->form == FR_COLL_SCATTERED && !scatter(team, reduce, &reduce->work, slices))
        return FR_ERR_INVALID;
    fr_device_reduce_begin(&reduce->mover, &reduce->work,
                           fr_policy_sms_of((unsigned)fr_core_settings()->peer_sms, sharers), work);
    reduce->work.slices = NULL;
    return FR_OK;
}

// Returns whether one rank can do the work of all.
static bool suits_one(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce)
{
    return reduce->is_queued &&
           fr_policy_reduction_suits_one(reduce->elements * reduce->element_bytes, team->size,
                                         reduce->form == FR_COLL_SCATTERED);
}

// Returns the bytes of a vector that another rank needs, where ranks deliver.
static size_t needed_bytes(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce)
{
    const size_t elements = reduce->form == FR_COLL_SCATTERED
                                ? reduce->elements / (size_t)team->size
                                : reduce->elements;
    return elements * reduce->element_bytes;
}

// Returns whether each rank gets so many bytes of a scattered result.
static bool are_parts_even(const struct fr_coll_team *team, size_t bytes)
{
    const struct fr_coll_slot *slots = fr_coll_agreed_slots(team);
    bool even = true;
    for (int rank = 0; rank < team->size && even; rank++)
        even = fr_coll_slot_of(slots, rank, RECEIVE)->bytes == bytes;
    return even;
}

// Returns whether units of all vectors and results are at the same places in them.
static bool are_congruent(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce,
                          size_t bytes)
{
    const struct fr_coll_slot *slots = fr_coll_agreed_slots(team);
    uint64_t differ = 0;
    for (int rank = 0; rank < team->size; rank++) {
        const struct fr_coll_slot *result = fr_coll_slot_of(slots, rank, RECEIVE);
        differ |= fr_coll_slot_of(slots, rank, SEND)->address ^ slots[SEND].address;
        differ |= result->bytes > 0 ? result->address ^ slots[SEND].address : 0;
    }
    if (reduce->form == FR_COLL_SCATTERED)
        differ |= bytes;
    return differ % FR_REDUCE_UNIT_BYTES == 0;
}

// Returns the units that ranks deliver to each other one, 0 where elements are combined one by one.
static size_t delivered_units(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce,
                              size_t bytes)
{
    const size_t lead = (0 - fr_coll_agreed_slots(team)[SEND].address) % FR_REDUCE_UNIT_BYTES;
    const bool has_gap = fr_device_reduce_gap(reduce->row) == FR_REDUCE_GAP_BEHIND;
    const size_t whole = bytes - (has_gap ? reduce->element_bytes : 0);
    if (lead % reduce->element_bytes != 0 || whole <= lead || !are_congruent(team, reduce, bytes))
        return 0;
    return (whole - lead) / FR_REDUCE_UNIT_BYTES;
}

// Returns whether ranks deliver in this operation. All ranks find the same, by what they have
// agreed on.
static bool do_deliver(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce)
{
    enum { MOST_SINGLES = 2048 }; // elements that one block combines one by one, four a thread
    const size_t bytes = needed_bytes(team, reduce);
    return bytes <= fr_coll_slab_delivery_bytes(team->slab) &&
           (bytes / reduce->element_bytes <= MOST_SINGLES ||
            delivered_units(team, reduce, bytes) > 0) &&
           (reduce->form != FR_COLL_SCATTERED || are_parts_even(team, bytes));
}

// Divides a delivery into parts. A block alone waits for no other one, and so takes less long as
// long as a thread has two units. Several do best with a unit a thread.
static void part_delivery(size_t units, struct fr_device_delivery *delivery)
{
    enum { ALONE_UNITS = 1024, LEAST_UNITS = 512 };
    const size_t share = (units + FR_ROUND_PARTS - 1) / FR_ROUND_PARTS;
    const size_t each = share > LEAST_UNITS ? share : LEAST_UNITS;
    delivery->part_units = (unsigned)each;
    delivery->parts = units > ALONE_UNITS ? (unsigned)((units + each - 1) / each) : 1;
}

// Returns whether this rank delivers from where it has the vector, and combines to where its result
// belongs.
static bool can_deliver(const struct fr_coll_team *team, const struct fr_coll_reduce *reduce)
{
    return fr_coll_slab_may_deliver(team->slab, team->round + 1, &reduce->mover) &&
           (reads_own(reduce) || reduce->before.piece.bytes == 0) &&
           (writes_own(reduce) || reduce->after.piece.bytes == 0);
}

// Describes what this rank delivers. The gap at the end of the last element may lie past the end of
// the memory.
static struct fr_device_delivery describe_delivery(const struct fr_coll_team *team,
                                                   const struct fr_coll_reduce *reduce)
{
    const bool has_gap = fr_device_reduce_gap(reduce->row) == FR_REDUCE_GAP_BEHIND;
    const size_t bytes = needed_bytes(team, reduce);
    struct fr_device_delivery delivery = {
        .is_made = true,
        .from = source_of(team, reduce, team->rank, 0),
        .stride = reduce->form == FR_COLL_SCATTERED ? bytes : 0,
        .bytes = bytes - (has_gap ? sizeof(uint32_t) : 0),
        .end = (unsigned)team->size,
    };
    part_delivery(delivered_units(team, reduce, bytes), &delivery);
    if (reduce->form == FR_COLL_TO_ROOT) {
        delivery.first = (unsigned)reduce->root;
        delivery.end = delivery.first + (reduce->root != team->rank);
    } else if (reduce->form == FR_COLL_SCAN || reduce->form == FR_COLL_EXCLUSIVE_SCAN) {
        delivery.first = (unsigned)team->rank + 1;
    }
    return delivery;
}

// Describes what this rank combines of what all have delivered.
static struct fr_device_reduction describe_own(const struct fr_coll_team *team,
                                               const struct fr_coll_reduce *reduce)
{
    const struct fr_coll_slot *slots = fr_coll_agreed_slots(team);
    const bool is_scattered = reduce->form == FR_COLL_SCATTERED;
    const size_t bytes = needed_bytes(team, reduce);
    const size_t offset = is_scattered ? (size_t)team->rank * bytes : 0;
    int sources = team->size;
    if (reduce->form == FR_COLL_SCAN)
        sources = team->rank + 1;
    if (reduce->form == FR_COLL_EXCLUSIVE_SCAN)
        sources = team->rank;
    if (reduce->receive.bytes == 0)
        sources = 0;
    struct fr_device_reduction work = {
        .row = reduce->row,
        .mode = FR_REDUCE_ALL,
        .elements = sources > 0 ? bytes / reduce->element_bytes : 0,
        .sources = (unsigned)sources,
        .targets = 1,
    };
    for (int rank = 0; rank < sources; rank++) {
        const uint64_t from = fr_coll_slot_of(slots, rank, SEND)->address + offset;
        work.source[rank] = rank == team->rank
                                ? source_of(team, reduce, rank, offset)
                                : fr_coll_slab_delivered(team->slab, rank, team->round + 1, from);
    }
    if (sources > 0)
        work.target[0] = target_of(team, reduce, team->rank, 0);
    return work;
}

static bool plan_delivery(struct fr_coll_team *team, struct fr_coll_reduce *reduce,
                          struct fr_device_move *move)
{
    *move = (struct fr_device_move){.delivery = {.is_made = true}};
    if (!can_deliver(team, reduce))
        return false;
    reduce->work = describe_own(team, reduce);
    *move = (struct fr_device_move){
        .range = &reduce->mover,
        .reduction = reduce->work.elements > 0 ? &reduce->work : NULL,
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
        .delivery = describe_delivery(team, reduce),
    };
    reduce->is_kept = move->delivery.parts > 1;
    return true;
}

static enum fr_status combine(struct fr_coll_team *team, void *operation,
                              struct fr_device_work *work)
{
    struct fr_coll_reduce *reduce = operation;
    const size_t own = (size_t)team->rank;
    if (reduce->is_kept && own < reduce->work.sources)
        reduce->work.source[own] = fr_coll_slab_kept(team->slab, reduce->work.source[own]);
    fr_device_reduce_begin(&reduce->mover, &reduce->work, (unsigned)fr_core_settings()->peer_sms,
                           work);
    return FR_OK;
}

static bool plan_move(struct fr_coll_team *team, void *operation, struct fr_device_move *move)
{
    struct fr_coll_reduce *reduce = operation;
    if (do_deliver(team, reduce))
        return plan_delivery(team, reduce, move);
    reduce->work = describe(team, reduce, reduce->slice);
    *move = (struct fr_device_move){
        .range = &reduce->mover,
        .reduction =
            reduce->work.elements > 0 ? &reduce->work : NULL, // without one the kernel only meets
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
    };
    return true;
}

void fr_coll_reduce_begin(struct fr_coll_task *task, struct fr_coll_team *team,
                          struct fr_coll_reduce *reduce)
{
    reduce->element_bytes = fr_device_reduce_element_bytes(reduce->row);
    reduce->is_shared = is_shared(team, reduce);
    reduce->slice = slice_of(team, reduce);
    reduce->slots[SEND] = reduce->send;
    reduce->slots[RECEIVE] = reduce->receive;
    task->part = (struct fr_coll_part){
        .call = reduce->call,
        .what = what_of(reduce),
        .buffers = {[FR_COLL_READ] = reduce->read, [FR_COLL_WRITTEN] = reduce->written},
        .slots = reduce->slots,
        .slot_count = SLOTS,
        .first_read = 0,
        .read_count = SLOTS,
        .mover = reduce->mover,
        .before = reduce->before,
        .after = reduce->after,
        .is_synced = reduce->is_synced,
        .plan = plan_move,
        .combine = combine,
        .move = move,
        .steps = 1,
        .move_all = suits_one(team, reduce) ? move_all : NULL,
        .moment_ns = fr_policy_reduction_moment_ns(reduce->elements * reduce->element_bytes,
                                                   team->size, reduce->form == FR_COLL_SCATTERED),
        .operation = reduce,
    };
    task->part.before.own = own_source(reduce);
    task->part.after.own = own_target(reduce);
    fr_coll_task_begin(task, team);
}
