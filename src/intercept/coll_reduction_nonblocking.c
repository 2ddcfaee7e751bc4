// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent reductions and scans as tasks.
#include "config.h"

#include "fabrail/coll/host_reduce.h"
#include "fabrail/policy/coll_plan.h"
#include "intercept/coll_nonblocking.h"
#include "intercept/coll_reduction.h"
#include "intercept/views.h"

#include <string.h>

struct reduction {
    struct fr_intercept_nonblocking coll;
    struct fr_intercept_reduction part;
    struct fr_coll_host_reduce host;
};

static struct reduction *reduction_of(struct fr_intercept_nonblocking *coll)
{
    return (struct reduction *)(void *)coll;
}

// Notes where the program has vector and result, for a reduction by CPUs.
static void set_host(struct reduction *own)
{
    const struct fr_intercept_reduction *part = &own->part;
    const struct fr_staging_view *receive = &part->receive.view;
    const struct fr_staging_view *vector = part->in_place ? receive : &part->send.view;
    own->host = (struct fr_coll_host_reduce){
        .host = {.send_range = vector->range,
                 .receive_range = receive->range,
                 .is_short = own->coll.is_short},
        .reduce = &part->part,
        .vector = vector->base,
        .result = receive->base,
        .receives = fr_intercept_reduction_receives(part),
    };
    fr_coll_host_reduce_prepare(own->coll.team, &own->host);
}

// A failure comes once more when the memory is used.
static void sync_part(struct fr_intercept_nonblocking *coll)
{
    const struct fr_intercept_reduction *reduction = &reduction_of(coll)->part;
    const bool reads_result = reduction->in_place && !reduction->sends_apart;
    const struct fr_intercept_coll_buffer *receive = &reduction->receive;
    bool synced = fr_intercept_coll_buffer_await_app(receive) == FR_OK;
    synced =
        fr_intercept_coll_buffer_await_app(reads_result ? receive : &reduction->send) == FR_OK &&
        synced;
    reduction_of(coll)->part.part.is_synced = coll->queued.task.part.is_synced = synced;
}

// The program may have freed memory since the last start of a persistent request, and have other
// memory at its address.
static enum fr_status open_memory(struct fr_intercept_nonblocking *coll)
{
    struct reduction *own = reduction_of(coll);
    struct fr_intercept_reduction *reduction = &own->part;
    struct fr_coll_reduce *part = &reduction->part;
    enum fr_status status = FR_OK;
    if (coll->op->persistent)
        status = fr_intercept_reduction_describe(reduction, coll->op, coll->team, !coll->is_short);
    set_host(own);
    if (status == FR_OK)
        status = fr_intercept_reduction_open(reduction);
    part->is_queued = true;
    part->is_synced = false;
    if (!coll->defers)
        sync_part(coll);
    if (status != FR_OK)
        return status;
    fr_device_range_fix_context(&part->mover);
    fr_device_range_fix_context(&part->before.range);
    fr_device_range_fix_context(&part->after.range);
    return FR_OK;
}

static void begin(struct fr_intercept_nonblocking *coll)
{
    fr_coll_reduce_begin(&coll->queued.task, coll->team, &reduction_of(coll)->part.part);
}

static enum fr_status end(struct fr_intercept_nonblocking *coll)
{
    const struct fr_coll_queued *queued = &coll->queued;
    const bool by_cpus = fr_intercept_nonblocking_is_by_cpus(coll);
    enum fr_status status = fr_intercept_reduction_end(
        &reduction_of(coll)->part, by_cpus ? FR_ERR_UNSUPPORTED : queued->status);
    if (!by_cpus)
        return status;
    if (queued->status == FR_OK)
        fr_intercept_coll_buffer_count_staged(coll->op);
    return queued->status;
}

// Returns whether MPI surely refuses the call on this rank, which then begins nothing.
static bool is_wrong(const struct fr_intercept_reduction *reduction)
{
    const struct fr_request_op *op = reduction->op;
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_coll_team *team = reduction->team;
    fr_word send = op->args[row->send.buffer], receive = op->args[row->receive.buffer];
    bool is_root = reduction->part.form != FR_COLL_TO_ROOT || team->rank == reduction->part.root;
    for (int rank = 0; rank < team->size; rank++) {
        if (fr_intercept_count_at(op, &row->receive, rank) < 0)
            return true;
    }
    bool no_result = receive == fr_abi_mpi.IN_PLACE || receive == 0;
    return !op->args[row->request] || send == 0 || (send == fr_abi_mpi.IN_PLACE && !is_root) ||
           (no_result && fr_intercept_reduction_receives(reduction)) ||
           (is_root && fr_intercept_refuses_alias(op->fn, op->args));
}

// Counts the elements of the vector.
static int64_t count_elements(const struct fr_request_op *op, int ranks)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    bool scatters =
        row->class == FR_CLASS_REDUCE_SCATTER || row->class == FR_CLASS_REDUCE_SCATTER_BLOCK;
    int64_t count = 0;
    if (row->receive.has_counts && !op->args[row->receive.count])
        return 0;
    for (int rank = 0; rank < (scatters ? ranks : 1); rank++)
        count += fr_intercept_count_at(op, &row->receive, rank);
    return count;
}

// Elements count with their gaps, as CPUs post and publish them.
size_t fr_intercept_reduction_bytes(const struct fr_request_op *op, const struct fr_coll_team *team)
{
    int64_t bytes = 0, count = count_elements(op, team->size);
    ptrdiff_t extent = 0, lower;
    size_t true_extent;
    bool known = fr_datatype_bounds(fr_abi_handle(op->args[fr_abi_rows[op->fn].send.type]), &extent,
                                    &lower, &true_extent);
    return known && extent > 0 && count > 0 && !__builtin_mul_overflow(count, extent, &bytes)
               ? (size_t)bytes
               : 0;
}

bool fr_intercept_reduction_pays(enum fr_fn fn, const fr_word *args,
                                 const struct fr_coll_team *team)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    fr_word type = fr_abi_handle(args[row->send.type]);
    if (team->size > FR_REDUCE_SOURCES || fr_abi_family_of(type) == FR_FAMILY_NONE ||
        fr_abi_operation_of(fr_abi_handle(args[row->operation])) == FR_OPERATIONS)
        return false;
    struct fr_request_op op = {.fn = fn};
    memcpy(op.args, args, row->arg_count * sizeof(fr_word));
    size_t bytes = fr_intercept_reduction_bytes(&op, team);
    return bytes > 0 && fr_coll_team_may_begin_nonblocking(team) &&
           (team->slab || fr_policy_is_worth_task((int64_t)bytes, team->size));
}

static enum fr_status prepare(struct fr_intercept_nonblocking *coll, enum fr_status viewed)
{
    struct reduction *own = reduction_of(coll);
    coll->host = &own->host.host;
    if (viewed == FR_OK)
        viewed = fr_intercept_reduction_describe(&own->part, coll->op, coll->team, !coll->is_short);
    return viewed == FR_OK && is_wrong(&own->part) ? FR_ERR_UNSUPPORTED : viewed;
}

bool fr_intercept_reduction_begin_nonblocking(struct fr_request_op *op, struct fr_coll_team *team,
                                              int *result)
{
    static const struct fr_intercept_nonblocking_kind kind = {.prepare = prepare,
                                                              .open = open_memory,
                                                              .begin = begin,
                                                              .sync = sync_part,
                                                              .end = end,
                                                              .reads_args = true};
    return fr_intercept_nonblocking_begin(op, team, &kind, sizeof(struct reduction), result);
}
