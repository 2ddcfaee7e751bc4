// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent reductions and scans. Each begins as a task of the communicator's
// team, a persistent one as a task of a team of its own each time that it is started. Where some
// rank cannot take part, the ranks send each other their vectors, and each combines those that it
// needs in rank order, by the real MPI's own operation.
//
// Which reductions begin so is decided by what all ranks have alike, since a rank that has begun
// cannot do the same by the real MPI any more.
#include "config.h"

#include "fabrail/coll/queue.h"
#include "fabrail/job.h"
#include "fabrail/request/schedule.h"
#include "intercept/coll_reduction.h"
#include "intercept/views.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// A reduction that goes on when its call has returned.
struct later {
    struct fr_coll_team *team;
    struct fr_intercept_reduction reduction;
    struct fr_coll_queued queued;
    uint64_t number; // among the team's
    bool by_messages;
    bool sent;              // messages have begun
    unsigned char *own;     // the vector as messages send it, where it is not in host memory
    unsigned char *vectors; // what this rank needs of all ranks' vectors, by rank
};

// Elements of a vector.
struct slice {
    size_t first;
    size_t count;
};

static struct slice slice_of(const struct later *later, int rank)
{
    const struct fr_coll_reduce *part = &later->reduction.part;
    const struct fr_request_op *op = later->reduction.op;
    const struct fr_abi_side *side = &fr_abi_rows[op->fn].receive;
    struct slice slice = {0, part->elements};
    if (part->form != FR_COLL_SCATTERED)
        return slice;
    for (int before = 0; before < rank; before++)
        slice.first += (size_t)fr_intercept_count_at(op, side, before);
    slice.count = (size_t)fr_intercept_count_at(op, side, rank);
    return slice;
}

// Whether the result of a rank rests on the vector of another one.
static bool needs(const struct later *later, int rank, int other)
{
    switch (later->reduction.part.form) {
    case FR_COLL_TO_ROOT:
        return rank == later->reduction.part.root;
    case FR_COLL_SCAN:
        return other <= rank;
    case FR_COLL_EXCLUSIVE_SCAN:
        return other < rank;
    default:
        return true;
    }
}

// Copies between the program's memory and host memory.
static enum fr_status copy(const struct fr_staging_view *view, bool out, void *host,
                           uintptr_t address, size_t bytes)
{
    struct fr_device_batch batch;
    void *dst = out ? (void *)address : host;
    const void *src = out ? host : (const void *)address;
    if (!fr_device_owns(&view->range)) {
        memmove(dst, src, bytes);
        return FR_OK;
    }
    const struct fr_device_copy whole = {.dst = dst, .src = src, .bytes = bytes, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &view->range, out ? FR_FROM_STAGE : FR_TO_STAGE, &whole);
    return fr_device_batch_finish(&batch);
}

// Returns the buffer of this rank's vector.
static const struct fr_staging_view *vector_of(const struct fr_intercept_reduction *reduction)
{
    return reduction->in_place ? &reduction->receive.view : &reduction->send.view;
}

// Finds the vector that is sent, and copies what this rank itself needs of it, which is combined
// there.
static enum fr_status take_own(struct later *later, const unsigned char **vector)
{
    const struct fr_intercept_reduction *reduction = &later->reduction;
    const struct fr_staging_view *view = vector_of(reduction);
    const size_t each = fr_device_reduce_element_bytes(reduction->part.row);
    const int rank = later->team->rank;
    const struct slice slice = slice_of(later, rank);
    size_t whole = reduction->part.elements * each, bytes = slice.count * each;
    enum fr_status status = FR_OK;
    later->vectors = malloc((size_t)later->team->size * bytes + 1);
    later->own = fr_device_owns(&view->range) ? malloc(whole) : NULL;
    *vector = later->own ? later->own : (const unsigned char *)view->base;
    if (!later->vectors || (!later->own && fr_device_owns(&view->range)))
        return FR_ERR_NO_MEMORY;
    if (later->own)
        status = copy(view, false, later->own, view->base, whole);
    if (status == FR_OK)
        memcpy(later->vectors + (size_t)rank * bytes, *vector + slice.first * each, bytes);
    return status;
}

static int start_message(struct fr_request_op *op, const void *data, size_t count, int peer,
                         bool sends)
{
    const struct later *later = op->schedule->own;
    bool large = fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
    enum fr_fn fn = (sends ? FR_FN_MPI_Isend : FR_FN_MPI_Irecv) + large;
    const fr_word args[] = {FR_PTR(data),
                            (fr_word)count,
                            fr_abi_handle(op->args[fr_abi_rows[op->fn].send.type]),
                            (fr_word)later->team->world[peer],
                            (fr_word)later->team->later.tag,
                            fr_job_comm(),
                            FR_PTR(fr_request_schedule_add(op->schedule))};
    return fr_abi_call(fn, args);
}

static int start_messages(struct fr_request_op *op, const unsigned char *vector)
{
    struct later *later = op->schedule->own;
    const size_t each = fr_device_reduce_element_bytes(later->reduction.part.row);
    const int rank = later->team->rank, size = later->team->size;
    size_t count = slice_of(later, rank).count;
    int rc = fr_abi_mpi.SUCCESS;
    for (int other = 0; other < size && rc == fr_abi_mpi.SUCCESS; other++) {
        unsigned char *to = later->vectors + (size_t)other * count * each;
        if (other != rank && count > 0 && needs(later, rank, other))
            rc = start_message(op, to, count, other, false);
    }
    for (int step = 1; step < size && rc == fr_abi_mpi.SUCCESS; step++) {
        int other = (rank + step) % size;
        struct slice slice = slice_of(later, other);
        if (slice.count > 0 && needs(later, other, rank))
            rc = start_message(op, vector + slice.first * each, slice.count, other, true);
    }
    return rc;
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

static void send_vectors(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    const unsigned char *vector = NULL;
    later->by_messages = true;
    enum fr_status status = take_own(later, &vector);
    if (status != FR_OK) {
        fr_error("%s: the vector cannot be sent: %s", fr_abi_rows[op->fn].name,
                 fr_core_status_text(status));
        op->schedule->error = fr_request_error_code(status);
        return;
    }
    later->sent = true;
    op->schedule->error = start_messages(op, vector);
    count_staged(op);
}

// Reduces the vector of one rank into that of another. The first is the left operand.
static int reduce_two(const struct fr_request_op *op, const unsigned char *left,
                      unsigned char *right, size_t count, size_t each)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    int rc = fr_abi_mpi.SUCCESS;
    for (size_t at = 0; at < count && rc == fr_abi_mpi.SUCCESS; at += INT_MAX) {
        size_t some = count - at < INT_MAX ? count - at : INT_MAX;
        rc = FR_MPI(Reduce_local, FR_PTR(left + at * each), FR_PTR(right + at * each),
                    (fr_word)some, fr_abi_handle(op->args[row->send.type]),
                    fr_abi_handle(op->args[row->operation]));
    }
    return rc;
}

// Combines what has come, and copies the result to where it belongs.
static int combine(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    const struct fr_intercept_reduction *reduction = &later->reduction;
    const size_t each = fr_device_reduce_element_bytes(reduction->part.row);
    const int rank = later->team->rank;
    size_t count = slice_of(later, rank).count;
    unsigned char *so_far = NULL;
    int rc = fr_abi_mpi.SUCCESS;
    for (int other = 0; other < later->team->size && rc == fr_abi_mpi.SUCCESS; other++) {
        unsigned char *vector = later->vectors + (size_t)other * count * each;
        if (!needs(later, rank, other))
            continue;
        if (so_far)
            rc = reduce_two(op, so_far, vector, count, each);
        so_far = vector;
    }
    if (rc != fr_abi_mpi.SUCCESS || !so_far || !fr_intercept_reduction_receives(reduction))
        return rc;
    enum fr_status status =
        copy(&reduction->receive.view, true, so_far, reduction->receive.view.base, count * each);
    return status == FR_OK ? rc : fr_request_error_code(status);
}

static void drop_vectors(struct later *later)
{
    free(later->own);
    free(later->vectors);
    later->own = later->vectors = NULL;
}

// Ends the task, or begins messages in its place. All ranks do so in the order of their calls.
static bool settle(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    fr_coll_queue_progress();
    if (atomic_load(&later->team->later.settled) != later->number)
        return false;
    atomic_store_explicit(&later->team->later.is_awaited, op->schedule->is_awaited,
                          memory_order_relaxed);
    if (!atomic_load(&later->queued.over))
        return false;
    atomic_store_explicit(&later->team->later.is_awaited, false, memory_order_relaxed);
    enum fr_status status = fr_intercept_reduction_end(&later->reduction, later->queued.status);
    if (status == FR_ERR_UNSUPPORTED)
        send_vectors(op);
    else if (status != FR_OK)
        op->schedule->error = fr_request_error_code(status);
    atomic_fetch_add(&later->team->later.settled, 1);
    return !later->by_messages;
}

static bool advance(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    if (!later->by_messages)
        return settle(op);
    if (later->sent && op->schedule->error == fr_abi_mpi.SUCCESS)
        op->schedule->error = combine(op);
    drop_vectors(later);
    return true;
}

// Waits until the application's work on a buffer is over, as far as its calls only pretend that. It
// may have other work under way when the task's turn comes.
static void await_app(struct fr_coll_buffer *buffer)
{
    if (buffer->bytes && !buffer->is_workspace)
        buffer->is_workspace =
            fr_device_sync_app_work(&buffer->range, buffer->low, buffer->bytes) == FR_OK;
}

// Fixes the context of memory that has none of its own. Each thread that goes on with the task
// would take its current one.
static void fix_context(struct fr_device_range *range)
{
    void *context = NULL;
    if (fr_device_owns(range) && fr_device_context_of(range, &context) == FR_OK)
        range->context = context;
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
    if (status == FR_OK)
        status = fr_intercept_reduction_open(reduction);
    if (status != FR_OK)
        return status;
    await_app(&part->read);
    await_app(&part->written);
    fix_context(&part->mover);
    fix_context(&part->before.range);
    fix_context(&part->after.range);
    return FR_OK;
}

static int start(struct fr_request_op *op)
{
    struct later *later = op->schedule->own;
    struct fr_coll_team *team = later->team;
    struct fr_coll_reduce *part = &later->reduction.part;
    later->number = team->later.begun++;
    later->by_messages = later->sent = false;
    if (open_memory(later) == FR_OK)
        fr_coll_reduce_begin(&later->queued.task, team, part);
    else
        fr_coll_task_begin_declined(&later->queued.task, team, part->call);
    fr_coll_queue_add(&later->queued);
    fr_coll_queue_progress();
    return fr_abi_mpi.SUCCESS;
}

static void release(void *own)
{
    struct later *later = own;
    drop_vectors(later);
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
    const size_t parts = 2 * (size_t)team->size;
    later->team = team;
    later->reduction.team = team;
    enum fr_status status = fr_request_schedule_make(op, parts, start);
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
