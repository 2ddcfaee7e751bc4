// SPDX-License-Identifier: BSD-3-Clause
// Exchanges over NVLink. One kernel, or the copy engines, move each of this rank's slices to where
// its receiver wants it.
#include "config.h"

#include "fabrail/coll/alltoall.h"
#include "fabrail/ipc/engine.h"

// Whether this rank's own slice can go straight to where it belongs instead of to workspace.
static bool spares_own(const struct fr_coll_alltoall *exchange)
{
    return fr_coll_can_spare(&exchange->after, &exchange->send_range);
}

// Plans where the slices go. Returns false if a rank has less room than it is sent bytes, which is
// an error of the program.
static bool plan(const struct fr_coll_team *team, const struct fr_coll_alltoall *exchange)
{
    const struct fr_coll_slot *places = fr_coll_agreed_slots(team);
    struct fr_device_push_piece *pieces = fr_coll_pieces(team);
    bool fits = true;
    for (int i = 0; i < team->size; i++) {
        int rank = (team->rank + 1 + i) % team->size; // each begins with another one
        const struct fr_coll_slot *place = fr_coll_slot_of(places, rank, 0);
        const struct fr_coll_slot *send = &exchange->sends[rank];
        fits = fits && send->bytes <= place->bytes;
        bool own = rank == team->rank && spares_own(exchange);
        pieces[i] = (struct fr_device_push_piece){
            .dst = own ? fr_coll_target(&exchange->after, place->address)
                       : fr_coll_reach(team, rank, FR_COLL_WRITTEN, place->address),
            .src = (uintptr_t)send->address,
            .bytes = send->bytes,
        };
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
    return fr_ipc_engine(fr_policy_traffic(pieces, from_others), largest);
}

static enum fr_status move(struct fr_coll_team *team, void *operation, int step,
                           struct fr_device_work *work)
{
    const struct fr_coll_alltoall *exchange = operation;
    (void)step;
    bool sends = fr_device_owns(&exchange->send_range);
    if (sends && !plan(team, exchange)) {
        fr_error("%s: a rank has less room for this rank's data than it is sent", exchange->call);
        return FR_ERR_TRUNCATE;
    }
    (exchange->is_queued ? fr_device_push_synced_begin : fr_device_push_begin)(
        &exchange->send_range, fr_coll_pieces(team), sends ? (size_t)team->size : 0,
        choose_engine(team, exchange), (unsigned)fr_core_settings()->peer_sms, work);
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
        .pieces = fr_coll_pieces(team),
        .count = (size_t)team->size,
        .max_sms = (unsigned)fr_core_settings()->peer_sms,
    };
    return moves_at_once(team, exchange) && plan(team, exchange);
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
        .first_read = team->rank,
        .read_count = 1,
        .mover = exchange->send_range,
        .before = exchange->before,
        .after = exchange->after,
        .plan = plan_move,
        .move = move,
        .steps = 1,
        .operation = (void *)(uintptr_t)exchange,
    };
    if (spares_own(exchange))
        task->part.after.own = exchange->receives[team->rank];
    fr_coll_task_begin(task, team);
}
