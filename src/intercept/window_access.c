// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations on windows over device memory, from their arguments to their result.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rma/access.h"
#include "intercept/coll_reduction.h"
#include "intercept/window_call.h"

#include <string.h>

// Reads what a call says of the target: rank, displacement, and mostly count and datatype.
static enum fr_status find_access(const struct fr_request_op *op, struct fr_rma_access *access,
                                  fr_word *type)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    bool single = op->fn == FR_FN_MPI_Fetch_and_op || op->fn == FR_FN_MPI_Compare_and_swap;
    fr_word count = single ? 1 : op->args[row->peer + 2];
    int64_t elements = row->flags & FR_ROW_LARGE ? (int64_t)count : (int)count;
    *type = fr_abi_handle(single ? op->args[row->peer - 1] : op->args[row->peer + 3]);
    if (elements < 0)
        return FR_ERR_LIMIT; // told as MPI_ERR_COUNT
    access->target = (int)op->args[row->peer];
    access->displacement = (int64_t)op->args[row->peer + 1];
    access->count = (size_t)elements;
    enum fr_status status = fr_datatype_acquire(*type, &access->layout);
    return status == FR_ERR_INVALID ? FR_ERR_UNSUPPORTED : status; // told as MPI_ERR_TYPE
}

static const struct fr_staging_view *view_at(const struct fr_request_op *op, int buffer)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if ((int)op->views[v].arg == buffer)
            return &op->views[v];
    }
    return NULL;
}

static enum fr_status run_update(const struct fr_request_op *op, struct fr_rma_window *window,
                                 struct fr_rma_access *access, fr_word type)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    struct fr_rma_update update = {.result = view_at(op, row->receive.buffer),
                                   .row = FR_REDUCE_ROWS};
    if (op->fn == FR_FN_MPI_Compare_and_swap) {
        update.origin = view_at(op, row->buffers[0]);
        update.compare = view_at(op, row->buffers[1]);
        return fr_rma_update(window, access, &update);
    }
    update.operation = fr_abi_handle(op->args[row->operation]);
    if (update.operation == fr_abi_mpi.NO_OP)
        return update.result ? fr_rma_update(window, access, &update) : FR_OK;
    update.origin = view_at(op, row->send.buffer);
    enum fr_status status = fr_datatype_element_of(type, &update.element);
    const struct fr_layout *element = NULL;
    if (status == FR_OK)
        status = fr_datatype_acquire(update.element, &element);
    if (status != FR_OK)
        return status;
    update.row = fr_intercept_reduction_row(element, update.element, update.operation);
    status = fr_rma_update(window, access, &update);
    fr_datatype_release(element);
    return status;
}

static void count(const struct fr_request_op *op, const struct fr_policy_access *facts)
{
    struct fr_policy_access_choice chosen = fr_policy_choose_access(facts);
    for (unsigned v = 0; v < op->view_count; v++)
        fr_intercept_count_view(op, &op->views[v], chosen.choice,
                                chosen.way == FR_WAY_MESSAGE ? "message" : NULL);
}

static enum fr_status run(const struct fr_request_op *op, struct fr_rma_window *window)
{
    struct fr_rma_access access = {.report = fr_intercept_report_of(op, &op->views[0])};
    fr_word type;
    enum fr_status status = find_access(op, &access, &type);
    if (status != FR_OK)
        return status;
    switch (op->fn) {
    case FR_FN_MPI_Put:
    case FR_FN_MPI_Put_c:
    case FR_FN_MPI_Rput:
    case FR_FN_MPI_Rput_c:
        status = fr_rma_put(window, &access, &op->views[0]);
        break;
    case FR_FN_MPI_Get:
    case FR_FN_MPI_Get_c:
    case FR_FN_MPI_Rget:
    case FR_FN_MPI_Rget_c:
        status = fr_rma_get(window, &access, &op->views[0]);
        break;
    default:
        status = run_update(op, window, &access, type);
        break;
    }
    fr_datatype_release(access.layout);
    if (status == FR_OK && !access.is_counted)
        count(op, &access.facts);
    return status;
}

// Makes the request of a call whose data have been moved.
static enum fr_status make_request(const struct fr_request_op *op, struct fr_rma_window *window)
{
    int request = fr_abi_rows[op->fn].request;
    if (request < 0)
        return FR_OK;
    enum fr_status status = fr_rma_flush(window);
    if (status == FR_OK && !fr_request_make_complete((void *)op->args[request]))
        status = FR_ERR_MPI;
    return status;
}

// Has the real MPI look at all arguments but the rank, as of an access to nobody. It raises the
// error of the call on its window. Returns what the call returns.
static int check_arguments(enum fr_fn fn, const fr_word *args)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    _Alignas(8) char request[8];
    fr_word nobody[FR_MAX_ARGS];
    memcpy(nobody, args, sizeof(nobody));
    nobody[row->peer] = (fr_word)fr_abi_mpi.PROC_NULL;
    if (row->request >= 0)
        nobody[row->request] = FR_PTR(request);
    int code = fr_abi_call(fn, nobody);
    if (code == fr_abi_mpi.SUCCESS && row->request >= 0)
        FR_MPI(Wait, FR_PTR(request), fr_abi_mpi.STATUS_IGNORE);
    return code;
}

// Returns the class of an error that the real MPI does not find, MPI_SUCCESS if there is none. An
// operation that does not suit its elements would be told of MPI_COMM_WORLD.
static int bad_argument(const struct fr_rma_window *window, enum fr_fn fn, const fr_word *args)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    int target = (int)args[row->peer];
    fr_word element, operation = row->operation >= 0 ? fr_abi_handle(args[row->operation]) : 0;
    int type = row->send.type >= 0 ? row->send.type : row->receive.type;
    if (target != fr_abi_mpi.PROC_NULL && !fr_intercept_window_has_rank(window, target))
        return fr_abi_mpi.ERR_RANK;
    if (row->operation < 0 || operation == fr_abi_mpi.REPLACE || operation == fr_abi_mpi.NO_OP ||
        fr_datatype_element_of(fr_abi_handle(args[type]), &element) != FR_OK)
        return fr_abi_mpi.SUCCESS;
    return fr_intercept_reduction_is_defined(element, operation) ? fr_abi_mpi.SUCCESS
                                                                 : fr_abi_mpi.ERR_OP;
}

static enum fr_status serve(struct fr_request_op *op, struct fr_rma_window *window)
{
    int target = (int)op->args[fr_abi_rows[op->fn].peer];
    enum fr_status status = fr_intercept_views_build(op);
    if (status == FR_ERR_INVALID)
        return FR_ERR_UNSUPPORTED; // told as MPI_ERR_TYPE
    fr_staging_views_measure(op->views, op->view_count);
    if (status == FR_OK && target != fr_abi_mpi.PROC_NULL)
        status = run(op, window);
    return status == FR_OK ? make_request(op, window) : status;
}

bool fr_intercept_call_rma(enum fr_fn fn, fr_word *args, int *result)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    fr_word win = fr_abi_handle(args[row->window]);
    struct fr_rma_window *window = fr_rma_any() ? fr_rma_window_find(win) : NULL;
    if (!window)
        return fr_intercept_call_buffers(fn, args, result);
    *result = check_arguments(fn, args);
    if (*result != fr_abi_mpi.SUCCESS)
        return true;
    int bad = bad_argument(window, fn, args);
    if (bad != fr_abi_mpi.SUCCESS) {
        *result = fr_request_raise('w', win, bad);
        return true;
    }
    struct fr_request_op *op = fr_request_op_new(fn, args);
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (op) {
        fr_intercept_find_object(op);
        op->counted_as = fn;
        status = serve(op, window);
    }
    fr_request_op_free(op);
    *result = fr_intercept_window_result(win, fn, status);
    return true;
}
