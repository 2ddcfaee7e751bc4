// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent reductions and scans. Each begins as a task of the communicator's
// team, a persistent one as a task of a team of its own each time that it is started. Where some
// rank cannot take part, the ranks' CPUs do it.
//
// Which reductions begin so is decided by what all ranks have alike, since a rank that has begun
// cannot do the same by the real MPI any more.
#include "config.h"

#include "fabrail/coll/host_reduce.h"
#include "fabrail/coll/queue.h"
#include "fabrail/job.h"
#include "fabrail/request/schedule.h"
#include "intercept/coll_reduction.h"
#include "intercept/views.h"

#include <stdlib.h>
#include <string.h>

// A reduction that goes on when its call has returned.
struct later {
    struct fr_coll_team *team;
    struct fr_intercept_reduction reduction;
    struct fr_coll_queued queued;
    struct fr_coll_host_reduce host; // where the task cannot do it
    bool is_awaited;                 // counts among the team's operations for which a call waits
};

static enum fr_status reduce_on_host(struct fr_coll_queued *queued, bool *over)
{
    struct later *later = (struct later *)((char *)queued - offsetof(struct later, queued));
    return fr_coll_host_reduce_progress(later->team, &later->host, over);
}

static void count_staged(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        const struct fr_policy_choice choice = {
            FR_PATH_HOST, "a rank of the communicator cannot let others reach its memory"};
        if (fr_device_owns(&op->views[v].range))
            fr_intercept_count_view(op, &op->views[v], choice, NULL);
    }
}

// Tells the team that a call waits for the operation, until that is over.
static void await(struct later *later, bool awaits)
{
    if (awaits == later->is_awaited)
        return;
    later->is_awaited = awaits;
    atomic_fetch_add_explicit(&later->team->later.awaited, awaits ? 1 : -1u, memory_order_relaxed);
}

// Ends the reduction when its task is over, or what has been done instead.
static bool advance(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    struct fr_coll_queued *queued = &later->queued;
    if (!atomic_load(&queued->over)) {
        await(later, op->schedule->is_awaited);
        fr_coll_queue_progress();
    }
    if (!atomic_load(&queued->over))
        return false;
    await(later, false);
    bool on_host = queued->is_instead;
    enum fr_status status = fr_intercept_reduction_end(
        &later->reduction, on_host ? FR_ERR_UNSUPPORTED : queued->status);
    if (on_host) {
        fr_coll_host_reduce_end(later->team, &later->host);
        status = queued->status;
    }
    if (on_host && status == FR_OK)
        count_staged(op);
    if (status != FR_OK)
        op->schedule->error = fr_request_error_code(status);
    return true;
}

// Waits until the application's work on a buffer is over, as far as its calls only pretend that. It
// may have other work under way when the task's turn comes. If peers do not reach the buffer, the
// work is that on the program's memory, `bytes` at `place`.
static void await_app(struct fr_coll_buffer *buffer, const struct fr_coll_place *place,
                      size_t bytes)
{
    if (buffer->bytes && !buffer->is_workspace)
        buffer->is_workspace =
            fr_device_sync_app_work(&buffer->range, buffer->low, buffer->bytes) == FR_OK;
    else if (bytes && fr_device_owns(&place->range)) // a failure comes once more with the copy
        (void)!fr_device_sync_app_work(&place->range, place->address, bytes);
}

// Fixes the context of memory that has none of its own. Each thread that goes on with the task
// would take its current one.
static void fix_context(struct fr_device_range *range)
{
    void *context = NULL;
    if (fr_device_owns(range) && fr_device_context_of(range, &context) == FR_OK)
        range->context = context;
}

// Notes where the program has vector and result, for a reduction by CPUs.
static void set_places(struct later *later)
{
    const struct fr_intercept_reduction *reduction = &later->reduction;
    const struct fr_staging_view *receive = &reduction->receive.view;
    const struct fr_staging_view *vector = reduction->in_place ? receive : &reduction->send.view;
    later->host = (struct fr_coll_host_reduce){
        .reduce = &reduction->part,
        .vector = {vector->range, vector->base},
        .result = {receive->range, receive->base},
        .receives = fr_intercept_reduction_receives(reduction),
        .number = later->team->later.begun++,
    };
    fix_context(&later->host.vector.range);
    fix_context(&later->host.result.range);
}

// Makes this rank's memory ready for a task. The program may have freed memory since the last
// start of a persistent request, and have other memory at its address.
static enum fr_status open_memory(struct later *later)
{
    struct fr_intercept_reduction *reduction = &later->reduction;
    struct fr_coll_reduce *part = &reduction->part;
    enum fr_status status = FR_OK;
    if (reduction->op->persistent)
        status = fr_intercept_reduction_describe(reduction, reduction->op, later->team, true);
    set_places(later);
    if (status == FR_OK)
        status = fr_intercept_reduction_open(reduction);
    part->is_queued = true;
    const size_t each = fr_device_reduce_element_bytes(part->row);
    await_app(&part->read, &later->host.vector, part->elements * each);
    await_app(&part->written, &later->host.result,
              later->host.receives ? part->own_elements * each : 0);
    if (status != FR_OK)
        return status;
    fix_context(&part->mover);
    fix_context(&part->before.range);
    fix_context(&part->after.range);
    return FR_OK;
}

static bool is_on_host(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if (fr_device_owns(&op->views[v].range))
            return false;
    }
    return true;
}

static int start(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    struct fr_coll_team *team = later->team;
    struct fr_coll_reduce *part = &later->reduction.part;
    if (open_memory(later) == FR_OK)
        fr_coll_reduce_begin(&later->queued.task, team, part);
    else
        fr_coll_task_begin_declined(&later->queued.task, team, part->call);
    later->queued.instead = reduce_on_host;
    fr_coll_queue_add(&later->queued);
    op->schedule->is_quiet = is_on_host(op) && fr_coll_queue_has_thread();
    fr_coll_queue_progress();
    return fr_abi_mpi.SUCCESS;
}

static void release(void *own)
{
    struct later *later = own;
    await(later, false);
    fr_coll_host_reduce_end(later->team, &later->host);
    if (later->reduction.op->persistent)
        fr_coll_team_clone_free(later->team);
    free(later);
    fr_intercept_comms_free_later();
}

// Whether MPI surely refuses the call on this rank, which then begins nothing.
static bool is_wrong(const struct fr_intercept_reduction *reduction)
{
    const struct fr_request_op *op = reduction->op;
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_coll_team *team = reduction->team;
    fr_word send = op->args[row->send.buffer], receive = op->args[row->receive.buffer];
    bool is_root = reduction->part.form != FR_COLL_TO_ROOT || team->rank == reduction->part.root;
    bool mpich = strcmp(fr_abi_mpi.family, "MPICH") == 0;
    for (int rank = 0; rank < team->size; rank++) {
        if (fr_intercept_count_at(op, &row->receive, rank) < 0)
            return true;
    }
    bool no_result = receive == fr_abi_mpi.IN_PLACE || receive == 0;
    return !op->args[row->request] || send == 0 || (send == fr_abi_mpi.IN_PLACE && !is_root) ||
           (no_result && fr_intercept_reduction_receives(reduction)) ||
           (mpich && is_root && send == receive);
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

// Shorter vectors are mostly in host memory, where the real MPI is faster than a kernel.
bool fr_intercept_reduction_pays(enum fr_fn fn, const fr_word *args,
                                 const struct fr_coll_team *team)
{
    enum { LEAST_BYTES = 16384 };
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    fr_word type = fr_abi_handle(args[row->send.type]);
    int64_t bytes = 0;
    if (team->size > FR_REDUCE_SOURCES || fr_abi_family_of(type) == FR_FAMILY_NONE ||
        fr_abi_operation_of(fr_abi_handle(args[row->operation])) == FR_OPERATIONS)
        return false;
    struct fr_request_op op = {.fn = fn};
    memcpy(op.args, args, row->arg_count * sizeof(fr_word));
    int64_t count = count_elements(&op, team->size);
    return count > 0 && fr_intercept_measure_bytes(type, count, &bytes) && bytes >= LEAST_BYTES;
}

// Gives the operation its schedule. On failure `later` goes at once, or with the operation.
static enum fr_status prepare(struct fr_request_op *op, struct later *later,
                              struct fr_coll_team *team)
{
    later->team = team;
    later->reduction.team = team;
    enum fr_status status = fr_request_schedule_make(op, 0, start);
    if (status != FR_OK) {
        release(later);
        return status;
    }
    op->schedule->own = later;
    op->schedule->release = release;
    op->schedule->advance = advance;
    const size_t ranks = (size_t)later->team->size;
    return op->persistent ? fr_request_schedule_keep_args(op, ranks, ranks) : FR_OK;
}

// Returns the team whose tasks do the operation, NULL on all ranks for none.
static struct fr_coll_team *choose_team(const struct fr_request_op *op, struct fr_coll_team *team)
{
    if (!fr_coll_team_takes_later(team))
        return NULL;
    return op->persistent ? fr_coll_team_clone(team, fr_abi_rows[op->fn].name) : team;
}

bool fr_intercept_reduce_later(struct fr_request_op *op, struct fr_coll_team *team, int *result)
{
    fr_word comm = op->object;
    struct later *later = calloc(1, sizeof(*later));
    enum fr_status status = later ? fr_intercept_views_build(op) : FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = fr_intercept_reduction_describe(&later->reduction, op, team, true);
    bool begins = status == FR_OK && !is_wrong(&later->reduction);
    struct fr_coll_team *chosen = begins ? choose_team(op, team) : NULL;
    if (!chosen &&
        status != FR_ERR_NO_MEMORY) { // the others begin a task, also without memory here
        free(later);
        fr_request_op_free(op);
        return false;
    }
    if (chosen)
        status = prepare(op, later, chosen);
    if (status == FR_OK) {
        *result = fr_request_schedule_open(op, (void *)op->args[fr_abi_rows[op->fn].request]);
    } else {
        *result = fr_request_error_code(status);
        if (!chosen)
            free(later);
        fr_request_op_free(op);
    }
    if (*result != fr_abi_mpi.SUCCESS)
        *result = fr_request_raise('c', comm, *result);
    return true;
}
