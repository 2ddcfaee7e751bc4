// SPDX-License-Identifier: BSD-3-Clause
// A call with buffers, from its arguments to its result. It makes views of the buffers, has their
// paths chosen (buffer_paths.c), copies in, and calls the real MPI. It then copies out, or leaves
// the operation to its request, window or file.
#include "config.h"

#include "fabrail/coll/alltoall.h"
#include "fabrail/job.h"
#include "fabrail/report.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/pending.h"
#include "fabrail/request/posted.h"
#include "fabrail/rndv/ahead.h"
#include "fabrail/rndv/progress.h"
#include "intercept/buffer_paths.h"
#include "intercept/rts.h"

#include <string.h>

FR_OFTEN void fr_intercept_find_object(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    if (row->window >= 0) {
        op->object_kind = 'w';
        op->object = fr_abi_handle(op->args[row->window]);
    } else if (row->file >= 0) {
        op->object_kind = 'f';
        op->object = op->args[row->file];
    } else if (row->comm >= 0) {
        op->object_kind = 'c';
        op->object = fr_abi_handle(op->args[row->comm]);
    }
}

static uintptr_t given_base(const struct fr_staging_view *view)
{
    return view->lease.address ? view->stage_base : view->base;
}

static bool shares_base(const struct fr_request_op *op, unsigned index)
{
    bool shares = false;
    for (unsigned v = 0; v < index; v++)
        shares = shares || given_base(&op->views[v]) == given_base(&op->views[index]);
    return shares;
}

// Opens a view so that its buffer argument differs from the others, as the application's own do.
static enum fr_status open_apart(struct fr_request_op *op, unsigned index)
{
    enum { NUDGE_BYTES = 64 };
    struct fr_staging_view *view = &op->views[index];
    enum fr_status status = FR_OK;
    if (view->path != FR_PATH_HOST && view->path != FR_PATH_FABRIC) // MPI does not see its stage
        return FR_OK;
    if (!view->lease.address)
        status = fr_staging_view_open(view);
    while (status == FR_OK && shares_base(op, index)) {
        fr_staging_view_close(view);
        view->nudge += NUDGE_BYTES;
        status = fr_staging_view_open(view);
    }
    return status;
}

// Prepares what MPI is given in place of the buffers: staging memory, or an RTS.
static enum fr_status stage(struct fr_request_op *op)
{
    if (op->send)
        fr_intercept_send_rewrite(op);
    if (op->send && op->view_count == 1) // MPI gets the RTS alone
        return FR_OK;
    for (unsigned v = 0; v < op->view_count; v++) {
        enum fr_status status = open_apart(op, v);
        if (status != FR_OK)
            return status;
    }
    enum fr_status status = fr_intercept_args_rewrite(op);
    // MPICH takes the data of some persistent collectives when they are made: of MPI_Gather_init,
    // and of others whose datatype it packs. It then gets what is there, as with host memory.
    bool starts = fr_abi_rows[op->fn].flags & FR_ROW_PERSISTENT;
    bool is_message = fr_abi_rows[op->fn].peer >= 0;
    bool later = op->parts.count || (starts && is_message);
    return status == FR_OK && !later ? fr_request_copy_in(&op, 1) : status;
}

static enum fr_status prepare_partitions(struct fr_request_op *op)
{
    if (!op->parts.count)
        return FR_OK;
    enum fr_status status = fr_request_op_reserve(op, op->arrays_used + op->parts.count + 16);
    if (status == FR_OK)
        op->parts.arrived = fr_request_op_carve(op, op->parts.count);
    return status;
}

// Limits what is copied back to the bytes that Pack has appended.
static void limit_pack(struct fr_request_op *op, int64_t position_before, int64_t position_after)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        struct fr_staging_view *view = &op->views[v];
        if (view->out_bytes)
            view->blocks[0].count = (size_t)(position_after - position_before);
    }
}

static int64_t position_of(const struct fr_request_op *op)
{
    const void *position = (const void *)op->args[fr_abi_rows[op->fn].position];
    if (fr_abi_rows[op->fn].flags & (FR_ROW_LARGE | FR_ROW_EXTERNAL))
        return *(const int64_t *)position;
    return *(const int *)position;
}

static int run_blocking(struct fr_request_op *op)
{
    _Alignas(16) char own_status[FR_STATUS_BYTES] = {0};
    bool packs = fr_abi_rows[op->fn].class == FR_CLASS_PACK;
    int status_arg = fr_abi_rows[op->fn].status;
    void *status = NULL;
    int64_t before = packs ? position_of(op) : 0;
    if (status_arg >= 0) {
        status = (void *)op->args[status_arg];
        if (op->args[status_arg] == fr_abi_mpi.STATUS_IGNORE) {
            status = fr_request_op_is_staged(op) ? own_status : NULL;
            op->args[status_arg] = status ? FR_PTR(status) : op->args[status_arg];
        }
    }
    bool shown = op->receive.takes_rts && fr_request_posted_notes_at_once();
    if (shown)
        fr_request_show(op);
    fr_request_stand_by(op);
    int rc = fr_intercept_call_real(op);
    if (packs && rc == fr_abi_mpi.SUCCESS)
        limit_pack(op, before, position_of(op));
    rc = fr_request_deliver_one(op, status, rc);
    fr_rndv_standby_end();
    if (shown)
        fr_request_hide(op);
    fr_request_wait_over(op, 1);
    fr_request_op_free(op);
    return rc;
}

// Runs a staged operation, and owns it from here on.
static int run(struct fr_request_op *op)
{
    enum fr_class class = fr_abi_rows[op->fn].class;
    int request = fr_abi_rows[op->fn].request;
    bool pends = class == FR_CLASS_RMA || class == FR_CLASS_FILE_READ_BEGIN ||
                 class == FR_CLASS_FILE_WRITE_BEGIN;
    if (request < 0 && !pends)
        return run_blocking(op);
    bool matches = op->receive.takes_rts && fr_request_posted_notes_at_once();
    if (matches)
        fr_intercept_match_begin();
    int rc = fr_intercept_call_real(op);
    if (rc != fr_abi_mpi.SUCCESS)
        fr_request_op_free(op);
    else if (request >= 0)
        rc = fr_request_track(op, (void *)op->args[request]);
    else
        fr_request_pend(op, op->object);
    if (matches)
        fr_intercept_match_end();
    return rc;
}

static FR_SELDOM int fail(struct fr_request_op *op, enum fr_status status)
{
    fr_error("%s: device buffers cannot be staged: %s", fr_abi_rows[op->fn].name,
             fr_core_status_text(status));
    int rc = fr_request_raise(op->object_kind, op->object, fr_request_error_code(status));
    fr_request_op_free(op);
    return rc;
}

// Chooses paths for the buffers of a call, and makes the call unless MPI gets what the application
// gave. Owns the operation.
static bool stage_and_run(struct fr_request_op *op, int *result)
{
    enum fr_buffer_outcome outcome = fr_intercept_choose_paths(op, result);
    if (outcome == FR_BUFFER_FAILED) {
        fr_request_op_free(op);
        return true;
    }
    if (!op->send)
        fr_intercept_mark_plain(op);
    // An RTS may come even into the application's own memory.
    bool is_looked_at = op->receive.takes_rts && op->view_count;
    if (outcome == FR_BUFFER_UNCHANGED && !is_looked_at) {
        fr_request_op_free(op);
        return false;
    }
    enum fr_status status = stage(op);
    if (status == FR_OK)
        status = prepare_partitions(op);
    *result = status == FR_OK ? run(op) : fail(op, status);
    return true;
}

// Returns whether any buffer is device memory. Only then a datatype matters that cannot be decoded.
static bool any_device_pointer(const struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    for (unsigned i = 0; i < row->buffer_count; i++) {
        struct fr_device_range range;
        fr_device_classify((const void *)op->args[row->buffers[i]], 1, &range);
        if (fr_device_owns(&range))
            return true;
    }
    return false;
}

// Ends a call whose buffers are not understood. Buffers that MPI can be given as they are need not
// be.
static FR_SELDOM bool leave_or_fail(struct fr_request_op *op, enum fr_status status, int *result)
{
    if (status != FR_ERR_INVALID && !fr_intercept_passes_any_memory(op->fn, false) &&
        any_device_pointer(op)) {
        *result = fail(op, status);
        return true;
    }
    if (op->receive.takes_rts && status != FR_ERR_INVALID)
        fr_warn_once("%s: a datatype is not understood, so that what it receives from a GPU is "
                     "lost: %s",
                     fr_abi_rows[op->fn].name, fr_core_status_text(status));
    fr_request_op_free(op);
    return false;
}

// Serves a call; `status` is that of building its views. Owns the operation.
static FR_OFTEN bool serve(struct fr_request_op *op, enum fr_status status, int *result)
{
    if (status != FR_OK)
        return leave_or_fail(op, status, result);
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    if (row->shape && fr_intercept_call_self(op, result))
        return true;
    switch (row->class) {
    case FR_CLASS_REDUCE_LOCAL:
        if (!fr_intercept_reduce_local(op, result))
            break;
        fr_request_op_free(op);
        return true;
    case FR_CLASS_SEND:
        if (op->persistent && fr_intercept_call_persistent_send(op, result))
            return true;
        break;
    case FR_CLASS_REPLACE:
        status = fr_intercept_split_replace(op);
        break;
    case FR_CLASS_PACK:
    case FR_CLASS_UNPACK:
        if (fr_intercept_call_pack(op, result))
            return true;
        break;
    default:
        break;
    }
    return status == FR_OK ? stage_and_run(op, result) : leave_or_fail(op, status, result);
}

// Returns whether a call needs no look at what its buffers are: it makes no difference, and no
// report asks for it.
static bool needs_no_views(enum fr_fn fn)
{
    const char *report = fr_core_settings()->report;
    return !fr_intercept_rndv_is_enabled && // for MPIs that are not GPU-aware
           fr_intercept_is_gpu_aware() && (!report || !report[0]) &&
           fr_intercept_passes_any_memory(fn, true);
}

static FR_OFTEN void look_after_others(void)
{
    if (FR_UNLIKELY(fr_request_any_freed()))
        fr_request_poll_freed();
    fr_staging_trim();
}

static FR_OFTEN struct fr_request_op *make_op(enum fr_fn fn, const fr_word *args,
                                              enum fr_fn counted_as)
{
    struct fr_request_op *op = fr_request_op_new(fn, args);
    if (!op)
        return NULL;
    fr_intercept_find_object(op);
    op->persistent = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT;
    op->receive.takes_rts = fr_intercept_rndv_is_enabled && fr_intercept_receives(fn);
    op->counted_as = counted_as;
    op->comm_label = fr_report_call_label();
    return op;
}

FR_OFTEN bool fr_intercept_serve(enum fr_fn fn, fr_word *args, enum fr_fn counted_as, int *result)
{
    look_after_others();
    if (needs_no_views(fn))
        return false;
    struct fr_request_op *op = make_op(fn, args, counted_as);
    if (op)
        return serve(op, fr_intercept_views_build(op), result);
    *result = fr_request_raise(0, 0, fr_abi_mpi.ERR_NO_MEM);
    return true;
}

bool fr_intercept_call_buffers(enum fr_fn fn, fr_word *args, int *result)
{
    return fr_intercept_serve(fn, args, fn, result);
}

bool fr_intercept_call_partitioned(enum fr_fn fn, fr_word *args, int *result)
{
    fr_request_parts_made();
    return !fr_intercept_are_host_buffers(fn, args) && fr_intercept_call_buffers(fn, args, result);
}

// Serves an exchange that the ranks of the team may agree to do among themselves. Sets *raises
// where *result may be an error yet to be raised.
static bool serve_team(enum fr_fn fn, fr_word *args, struct fr_coll_team *team, int *result,
                       bool *raises)
{
    look_after_others();
    struct fr_request_op *op = make_op(fn, args, fn);
    enum fr_status status = op ? fr_intercept_views_of_team(op, team) : FR_ERR_NO_MEMORY;
    if (status != FR_OK)
        fr_coll_decline(team, fr_abi_rows[fn].name);
    *raises = true;
    if (!op) {
        *result = fr_abi_mpi.ERR_NO_MEM;
        return true;
    }
    if (status == FR_OK && fr_intercept_nvlink_exchange(op, team, result)) {
        fr_request_op_free(op);
        return true;
    }
    const bool schedules = team->slab && fr_intercept_nvlink_schedules(fn); // on all ranks
    if (schedules)
        fr_request_op_free(op);
    if (schedules && fr_intercept_run_schedule(fn, args, team, result))
        return true;
    *raises = false;
    return schedules ? fr_intercept_call_buffers(fn, args, result) : serve(op, status, result);
}

// Serves an exchange. Once a rank has quit, all ranks do as if one had declined. Sets *raises where
// *result may be an error yet to be raised.
static bool exchange(enum fr_fn fn, fr_word *args, struct fr_coll_team *team, int *result,
                     bool *raises)
{
    bool on_host = fr_intercept_are_host_buffers(fn, args);
    bool agrees = team && fr_coll_team_agrees(team);
    bool is_over = team && fr_coll_team_is_over(team);
    bool declines = is_over || (agrees && on_host && fr_intercept_nvlink_is_alike(fn));
    if (declines)
        fr_coll_decline(team, fr_abi_rows[fn].name);
    if (team && (declines ? team->slab != NULL : !agrees)) {
        *raises =
            fr_intercept_nvlink_schedules(fn) && fr_intercept_run_schedule(fn, args, team, result);
        if (*raises)
            return true;
        team = NULL;
    }
    if (is_over)
        team = NULL;
    if (declines && on_host)
        return false;
    if (team) // a rank without data has to say so, whatever its pointers are
        return serve_team(fn, args, team, result, raises);
    return !on_host && fr_intercept_call_buffers(fn, args, result);
}

// All ranks come here, even with host buffers, since the others have to know of these.
bool fr_intercept_call_exchange(enum fr_fn fn, fr_word *args, int *result)
{
    fr_word comm = fr_abi_comm(fn, args);
    bool enters = fr_intercept_nvlink_is_enabled() && comm != fr_abi_mpi.COMM_NULL;
    struct fr_coll_team *team = enters ? fr_coll_team_enter(comm, FR_COLL_WAITS_LAST) : NULL;
    bool raises = false;
    if (!exchange(fn, args, team, result, &raises))
        *result = fr_abi_call(fn, args);
    raises = raises && *result != fr_abi_mpi.SUCCESS;
    if (enters && !fr_coll_team_exit(comm, raises ? fr_abi_mpi.ERR_OTHER : *result)) {
        *result = fr_request_error_code(FR_ERR_MPI);
        raises = true;
    }
    if (raises) // the error handler may free the communicator, or not return
        *result = fr_request_raise('c', comm, *result);
    return true;
}
