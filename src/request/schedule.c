// SPDX-License-Identifier: BSD-3-Clause
// Schedules of messages behind one request.
//
// A nonblocking operation shows a generalised request. A persistent one shows a persistent send of
// nothing from this process to itself, which one of the parts receives. MPICH would always take a
// persistent send to MPI_PROC_NULL for inactive. Completion calls treat the operation as they do a
// send by rendezvous: it is hidden from MPI until its parts are complete.
#include "config.h"

#include "fabrail/request/schedule.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/progress.h"
#include "request/table.h"

#include <stdlib.h>
#include <string.h>

enum fr_status fr_request_schedule_make(struct fr_request_op *op, size_t capacity,
                                        int (*start)(struct fr_request_op *op))
{
    struct fr_request_schedule *schedule =
        calloc(1, sizeof(*schedule) + (capacity + 1) * fr_abi_mpi.handle_bytes);
    if (!schedule) {
        fr_error("out of memory for the %zu parts of %s", capacity, fr_abi_rows[op->fn].name);
        return FR_ERR_NO_MEMORY;
    }
    schedule->start = start;
    fr_abi_handle_store(schedule->receive, 0, fr_abi_mpi.REQUEST_NULL);
    op->schedule = schedule;
    return FR_OK;
}

// Duplicates one datatype, if it can be freed at all. Pairs of a value and a place cannot, though
// they have no name in some MPIs. Reductions know them by their handles.
static enum fr_status keep_type(struct fr_request_schedule *schedule, fr_word *type)
{
    _Alignas(8) char handle[8];
    if (fr_abi_type_is_named(*type) || fr_abi_family_of(*type) != FR_FAMILY_NONE ||
        *type == fr_abi_mpi.DATATYPE_NULL)
        return FR_OK;
    fr_word *types = realloc(schedule->types, (schedule->type_count + 1) * sizeof(*types));
    if (!types)
        return FR_ERR_NO_MEMORY;
    schedule->types = types;
    if (FR_MPI(Type_dup, *type, FR_PTR(handle)) != fr_abi_mpi.SUCCESS)
        return FR_ERR_MPI;
    *type = fr_abi_handle_load(handle, 0);
    schedule->types[schedule->type_count++] = *type;
    return FR_OK;
}

// Copies an array of datatypes into the operation, with duplicates. `counts` says which of them
// matter.
static enum fr_status keep_types(struct fr_request_op *op, int arg, const void *counts, size_t n)
{
    bool wide = fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
    const void *given = (const void *)op->args[arg];
    void *own = fr_request_op_carve(op, n * fr_abi_mpi.handle_bytes);
    enum fr_status status = own ? FR_OK : FR_ERR_NO_MEMORY;
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        fr_word type = fr_abi_handle_load(given, i);
        int64_t count = wide ? ((const int64_t *)counts)[i] : ((const int *)counts)[i];
        if (count)
            status = keep_type(op->schedule, &type);
        fr_abi_handle_store(own, i, type);
    }
    if (status == FR_OK)
        op->args[arg] = FR_PTR(own);
    return status;
}

// Copies an array of counts or displacements, unless the call ignores it.
static enum fr_status keep_array(struct fr_request_op *op, int arg, size_t n, bool wide)
{
    size_t bytes = n * (wide ? sizeof(int64_t) : sizeof(int));
    if (!op->args[arg])
        return FR_OK;
    void *own = fr_request_op_carve(op, bytes);
    if (!own)
        return FR_ERR_NO_MEMORY;
    memcpy(own, (const void *)op->args[arg], bytes);
    op->args[arg] = FR_PTR(own);
    return FR_OK;
}

static enum fr_status keep_side(struct fr_request_op *op, const struct fr_abi_side *side, size_t n)
{
    bool large = fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
    fr_word *type = &op->args[side->type];
    const void *counts = (const void *)op->args[side->count];
    enum fr_status status = FR_OK;
    if (side->has_counts) {
        status = keep_array(op, side->count, n, large);
        if (status == FR_OK && side->displacements >= 0)
            status = keep_array(op, side->displacements, n, large || side->wide_displacements);
    }
    if (status != FR_OK)
        return status;
    if (side->has_types) // none in place
        return *type && counts ? keep_types(op, side->type, counts, n) : FR_OK;
    *type = fr_abi_handle(*type);
    return keep_type(op->schedule, type);
}

enum fr_status fr_request_schedule_keep_args(struct fr_request_op *op, size_t sends,
                                             size_t receives)
{
    enum { ARRAYS_A_SIDE = 3, ALIGNMENTS = 2 * ARRAYS_A_SIDE * 16 };
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    size_t bytes = (sends + receives) * ARRAYS_A_SIDE * sizeof(int64_t) + ALIGNMENTS;
    enum fr_status status = fr_request_op_reserve(op, op->arrays_used + bytes);
    if (status == FR_OK && row->send.buffer >= 0)
        status = keep_side(op, &row->send, sends);
    if (status == FR_OK && row->receive.buffer >= 0 && row->receive.buffer != row->send.buffer)
        status = keep_side(op, &row->receive, receives);
    return status;
}

void *fr_request_schedule_add(struct fr_request_schedule *schedule)
{
    size_t at = schedule->count++;
    fr_abi_handle_store(schedule->parts, at, fr_abi_mpi.REQUEST_NULL);
    return schedule->parts + at * fr_abi_mpi.handle_bytes;
}

static int start_receive(struct fr_request_schedule *schedule)
{
    void *part = fr_request_schedule_add(schedule);
    int rc = FR_MPI(Start, FR_PTR(schedule->receive));
    if (rc == fr_abi_mpi.SUCCESS)
        fr_abi_handle_store(part, 0, fr_abi_handle_load(schedule->receive, 0));
    return rc;
}

int fr_request_schedule_start(struct fr_request_op *op)
{
    struct fr_request_schedule *schedule = op->schedule;
    schedule->count = 0;
    fr_request_schedule_await(schedule, false);
    schedule->error = fr_abi_mpi.SUCCESS;
    int rc = fr_abi_mpi.SUCCESS;
    if (op->persistent)
        rc = start_receive(schedule);
    schedule->complete = rc != fr_abi_mpi.SUCCESS; // then there is nothing to go on with
    if (rc == fr_abi_mpi.SUCCESS) {
        rc = schedule->start(op);
        if (schedule->advance)
            fr_request_advance_begin(op); // another thread may complete it from here on
    }
    if (rc == fr_abi_mpi.SUCCESS)
        return rc;
    // Parts may be under way, so the error is told once more when they are over. It is told now as
    // well: others wait for what was not started, and this process for them. A handler that ends
    // the job must not wait for that.
    schedule->error = rc;
    (void)fr_request_raise(op->object_kind, op->object, rc);
    return fr_abi_mpi.SUCCESS;
}

// Tests one part as the application would.
static bool test_part(struct fr_request_schedule *schedule, size_t index)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    int flag = 0, rc = fr_abi_mpi.SUCCESS;
    char *request = schedule->parts + index * fr_abi_mpi.handle_bytes;
    fr_word args[FR_MAX_ARGS] = {FR_PTR(request), FR_PTR(&flag), FR_PTR(status)};
    if (!fr_request_complete(FR_FN_MPI_Test, args, &rc))
        rc = fr_abi_call(FR_FN_MPI_Test, args);
    if (rc == fr_abi_mpi.SUCCESS)
        return flag;
    if (schedule->error == fr_abi_mpi.SUCCESS)
        schedule->error = rc;
    return true;
}

// Tests all parts together, so that what they receive is received together.
static bool test_parts(struct fr_request_schedule *schedule)
{
    int flag = 0, rc = fr_abi_mpi.SUCCESS;
    fr_word args[FR_MAX_ARGS] = {(fr_word)schedule->count, FR_PTR(schedule->parts), FR_PTR(&flag),
                                 fr_abi_mpi.STATUSES_IGNORE};
    if (!fr_request_complete(FR_FN_MPI_Testall, args, &rc))
        rc = fr_abi_call(FR_FN_MPI_Testall, args);
    if (rc == fr_abi_mpi.SUCCESS)
        return flag;
    bool all = true; // after a failure each part says for itself
    for (size_t i = 0; i < schedule->count; i++) {
        bool is_null = fr_abi_handle_load(schedule->parts, i) == fr_abi_mpi.REQUEST_NULL;
        all = (is_null || test_part(schedule, i)) && all;
    }
    if (schedule->error == fr_abi_mpi.SUCCESS)
        schedule->error = fr_abi_mpi.ERR_OTHER;
    return all;
}

bool fr_request_schedule_step(struct fr_request_op *op)
{
    struct fr_request_schedule *schedule = op->schedule;
    if (schedule->count && !test_parts(schedule))
        return false;
    schedule->count = 0; // those that are over are not tested again
    if (schedule->advance && !schedule->advance(op))
        return false;
    if (schedule->generalized)
        FR_MPI(Grequest_complete, op->key);
    return true;
}

bool fr_request_schedule_poll(struct fr_request_op *op)
{
    struct fr_request_schedule *schedule = op->schedule;
    if (schedule->complete || (op->persistent && !op->active))
        return true;
    if (schedule->is_due && !schedule->is_due(op))
        return false;
    if (schedule->advance)
        return fr_request_advance(op);
    schedule->complete = fr_request_schedule_step(op);
    return schedule->complete;
}

// Returns how many parts MPI has not completed. The others need no rank to come, though
// Fabrail may not be done with them.
static size_t count_missing(struct fr_request_schedule *schedule)
{
    size_t missing = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        fr_word request = fr_abi_handle_load(schedule->parts, i);
        int complete = 1;
        if (request != fr_abi_mpi.REQUEST_NULL)
            FR_MPI(Request_get_status, request, FR_PTR(&complete), fr_abi_mpi.STATUS_IGNORE);
        missing += !complete;
    }
    return missing;
}

int fr_request_schedule_run(struct fr_request_op *op, fr_request_schedule_judge *judge,
                            void *cookie, bool *over)
{
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS}, look = {0}, time = {0};
    size_t missing = SIZE_MAX;
    (void)fr_request_schedule_start(op);
    while (!(*over = fr_request_schedule_poll(op))) {
        if (!fr_wait_step(&wait))
            continue;
        fr_rndv_progress(NULL);
        fr_request_advance_all();
        fr_request_receive_early();
        if (fr_wait_ns(&look) < FR_SECOND_NS)
            continue;
        look = (struct fr_wait){0};
        size_t still = count_missing(op->schedule);
        if (still != missing || still == 0)
            time = (struct fr_wait){0};
        missing = still;
        if (!judge(cookie, &time))
            return fr_abi_mpi.ERR_OTHER;
    }
    return op->schedule->error;
}

// Answers MPI's query of a generalised request.
static int query(void *extra, void *status)
{
    (void)extra;
    FR_MPI(Status_set_cancelled, FR_PTR(status), 0);
    fr_request_set_size(status, 0);
    return fr_abi_mpi.SUCCESS;
}

static int free_extra(void *extra)
{
    (void)extra;
    return fr_abi_mpi.SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return fr_abi_mpi.SUCCESS; // nothing of this sort can be cancelled
}

// MPI allows no program to cancel a collective, and the MPI libraries refuse it, too.
static int refuse_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return fr_abi_mpi.ERR_OTHER;
}

static bool make_incomplete(void *request)
{
    return FR_MPI(Grequest_start, FR_PTR(query), FR_PTR(free_extra), FR_PTR(cancel), 0,
                  FR_PTR(request)) == fr_abi_mpi.SUCCESS;
}

FR_OFTEN bool fr_request_make_complete(void *request)
{
    if (!make_incomplete(request))
        return false;
    FR_MPI(Grequest_complete, fr_abi_handle_load(request, 0));
    return true;
}

static _Atomic fr_word never; // 0: none yet

static void end_never(fr_word request)
{
    _Alignas(8) char handle[8];
    fr_abi_handle_store(handle, 0, request);
    FR_MPI(Grequest_complete, request);
    FR_MPI(Wait, FR_PTR(handle), fr_abi_mpi.STATUS_IGNORE);
}

fr_word fr_request_never(void)
{
    _Alignas(8) char handle[8];
    fr_word made = atomic_load(&never), none = 0;
    if (made || !make_incomplete(handle))
        return made;
    made = fr_abi_handle_load(handle, 0);
    if (atomic_compare_exchange_strong(&never, &none, made))
        return made;
    end_never(made); // another thread was first
    return none;
}

void fr_request_end_never(void)
{
    fr_word made = atomic_exchange(&never, 0);
    if (made)
        end_never(made);
}

// Makes the application's request. A persistent one has a message from this process to itself, with
// a persistent request on both sides. An application that has a session may start it when the
// communicator has gone.
static int make_request(const struct fr_request_op *op, void *request)
{
    const fr_word args[] = {
        0, 0, fr_abi_mpi.BYTE, (fr_word)fr_job_rank(), FR_JOB_SELF_TAG, fr_job_comm()};
    if (!op->persistent)
        return FR_MPI(Grequest_start, FR_PTR(query), FR_PTR(free_extra), FR_PTR(refuse_cancel), 0,
                      FR_PTR(request));
    int rc = FR_MPI(Recv_init, args[0], args[1], args[2], args[3], args[4], args[5],
                    FR_PTR(op->schedule->receive));
    if (rc != fr_abi_mpi.SUCCESS)
        return rc;
    return FR_MPI(Send_init, args[0], args[1], args[2], args[3], args[4], args[5], FR_PTR(request));
}

int fr_request_schedule_open(struct fr_request_op *op, void *request)
{
    int rc = make_request(op, request);
    if (rc != fr_abi_mpi.SUCCESS) {
        fr_request_op_free(op);
        return rc;
    }
    op->schedule->generalized = !op->persistent;
    op->key = fr_abi_handle_load(request, 0);
    if (!op->persistent) {
        op->active = true;
        rc = fr_request_schedule_start(op);
    }
    fr_request_table_add(op, fr_abi_handle_load(request, 0));
    return rc;
}
