// SPDX-License-Identifier: BSD-3-Clause
// Exchanges over NVLink. One kernel, or the copy engines, move each of this rank's slices to where
// its receiver wants it. Slices with gaps are moved by kernels, from one layout into the other.
#include "config.h"

#include "fabrail/coll/alltoall.h"

#include "coll/mapset.h"
#include "fabrail/ipc/engine.h"

// Returns whether this rank's own slice can go straight to where it belongs instead of to
// workspace.
static bool spares_own(const struct fr_coll_alltoall *exchange)
{
    return fr_coll_can_spare(&exchange->after, &exchange->send_range);
}

// Finds where the bytes for a rank go. Returns false if the rank has less room than it is sent
// bytes, which is an error of the program.
static bool find_target(const struct fr_coll_team *team, const struct fr_coll_alltoall *exchange,
                        int rank, uintptr_t *target)
{
    const struct fr_coll_slot *slot = fr_coll_slot_of(fr_coll_agreed_slots(team), rank, 0);
    bool own = rank == team->rank && spares_own(exchange);
    *target = own ? fr_coll_target(&exchange->after, slot->address)
                  : fr_coll_reach(team, rank, FR_COLL_WRITTEN, slot->address);
    return exchange->sends[rank].bytes <= slot->bytes;
}

// Returns the rank of transfer `i`. Each rank begins with another one.
static int rank_at(const struct fr_coll_team *team, int i)
{
    return (team->rank + 1 + i) % team->size;
}

// Plans where the slices go. Returns false if they do not fit.
static bool plan(const struct fr_coll_team *team, const struct fr_coll_alltoall *exchange)
{
    struct fr_device_push_piece *pieces = team->memory->pieces;
    bool fits = true;
    for (int i = 0; i < team->size; i++) {
        int rank = rank_at(team, i);
        pieces[i] = (struct fr_device_push_piece){
            .src = (uintptr_t)exchange->sends[rank].address,
            .bytes = exchange->sends[rank].bytes,
            .is_own = rank == team->rank,
        };
        fits = find_target(team, exchange, rank, &pieces[i].dst) && fits;
    }
    return fits;
}

// Returns whether something that this rank sends has gaps, here or where it goes.
static bool is_shaped(const struct fr_coll_team *team, const struct fr_coll_alltoall *exchange)
{
    const struct fr_coll_slot *slots = fr_coll_agreed_slots(team);
    for (int rank = 0; rank < team->size; rank++) {
        bool here = exchange->shapes && exchange->shapes[rank].shape;
        if (exchange->sends[rank].bytes > 0 &&
            (here || fr_coll_slot_of(slots, rank, 0)->layout > 0))
            return true;
    }
    return false;
}

// Plans copies from this rank's layouts into those of the others. Returns false if they do not fit.
static bool plan_shaped(const struct fr_coll_team *team, const struct fr_coll_alltoall *exchange)
{
    struct fr_device_reshape *copies = team->memory->reshapes;
    struct fr_pack_shape *shapes = team->memory->shapes;
    bool fits = true;
    for (int i = 0; i < team->size; i++) {
        int rank = rank_at(team, i);
        copies[i] = (struct fr_device_reshape){.bytes = exchange->sends[rank].bytes};
        if (exchange->shapes)
            copies[i].src = exchange->shapes[rank];
        copies[i].src.address = exchange->sends[rank].address;
        fits = find_target(team, exchange, rank, &copies[i].dst.address) && fits;
        if (fr_coll_agreed_layout(team, rank, &shapes[i]))
            copies[i].dst.shape = &shapes[i];
    }
    return fits;
}

// Chooses the engine. One of them is faster where many pieces go one way, and few or none the
// other.
static enum fr_device_engine choose_engine(const struct fr_coll_team *team,
                                           const struct fr_coll_alltoall *exchange)
{
    uint64_t largest = 0;
    size_t pieces = 0, from_others = 0;
    for (int rank = 0; rank < team->size; rank++) {
        uint64_t bytes = exchange->sends[rank].bytes;
        largest = bytes > largest ? bytes : largest;
        pieces += bytes > 0;
        from_others += rank != team->rank && exchange->receives[rank].bytes > 0;
    }
    return fr_ipc_coll_engine(fr_policy_traffic(pieces, from_others), largest, exchange->is_queued);
}

static enum fr_status move(struct fr_coll_team *team, void *operation, int step,
                           struct fr_device_work *work)
{
    const struct fr_coll_alltoall *exchange = operation;
    (void)step;
    bool sends = fr_device_owns(&exchange->send_range);
    bool shaped = sends && is_shaped(team, exchange);
    unsigned sms = (unsigned)fr_core_settings()->peer_sms;
    if (sends && !(shaped ? plan_shaped : plan)(team, exchange)) {
        fr_error("%s: a rank has less room for this rank's data than it is sent", exchange->call);
        return FR_ERR_TRUNCATE;
    }
    if (shaped)
        fr_device_reshape_begin(&exchange->send_range, team->memory->reshapes, (size_t)team->size,
                                sms, work);
    else
        fr_device_push_begin(&exchange->send_range, team->memory->pieces,
                             sends ? (size_t)team->size : 0, choose_engine(team, exchange), sms,
                             exchange->is_synced ? FR_ORIGIN_SYNCED : FR_ORIGIN_APP, work);
    return FR_OK;
}

static bool moves_at_once(const struct fr_coll_team *team, const struct fr_coll_alltoall *exchange)
{
    size_t largest = 0, leaving = 0;
    for (int rank = 0; rank < team->size; rank++) {
        size_t bytes = exchange->sends[rank].bytes;
        largest = bytes > largest ? bytes : largest;
        leaving += rank == team->rank ? 0 : bytes;
    }
    return fr_ipc_moves_at_once(largest, leaving);
}

// Plans what a kernel moves as soon as all ranks are there.
static bool plan_move(struct fr_coll_team *team, void *operation, struct fr_device_move *move)
{
    const struct fr_coll_alltoall *exchange = operation;
    *move = (struct fr_device_move){.range = NULL};
    if (!fr_device_owns(&exchange->send_range))
        return true; // nothing to send
    *move = (struct fr_device_move){
        .range = &exchange->send_range,
        .pieces = team->memory->pieces,
        .count = (size_t)team->size,
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
    };
    return !is_shaped(team, exchange) && moves_at_once(team, exchange) && plan(team, exchange);
}

void fr_coll_alltoall_begin(struct fr_coll_task *task, struct fr_coll_team *team,
                            const struct fr_coll_alltoall *exchange)
{
    task->part = (struct fr_coll_part){
        .call = exchange->call,
        .what = exchange->what,
        .buffers = {[FR_COLL_WRITTEN] = exchange->receive},
        .slots = exchange->receives,
        .slot_count = team->size,
        .layouts = exchange->layouts,
        .layout_count = exchange->layout_count,
        .first_read = team->rank,
        .read_count = 1,
        .mover = exchange->send_range,
        .before = exchange->before,
        .after = exchange->after,
        .is_synced = exchange->is_synced,
        .is_patient = exchange->is_patient,
        .plan = plan_move,
        .move = move,
        .steps = 1,
        .moment_ns = fr_policy_exchange_moment_ns(fr_device_owns(&exchange->send_range)),
        .operation = (void *)(uintptr_t)exchange,
    };
    if (spares_own(exchange))
        task->part.after.own = exchange->receives[team->rank];
    fr_coll_task_begin(task, team);
}
