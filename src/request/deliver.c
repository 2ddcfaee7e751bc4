// SPDX-License-Identifier: BSD-3-Clause
// Copies of operations before and after the real call, and errors.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/report.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/ahead.h"
#include "fabrail/rndv/receive.h"
#include "fabrail/staging/packed.h"
#include "request/request_int.h"

static bool copies_in(const struct fr_request_op *op)
{
    bool copies = op->self.copy != NULL;
    for (unsigned v = 0; v < op->view_count; v++)
        copies = copies || (fr_staging_is_staged(&op->views[v]) && op->views[v].in_bytes);
    return copies;
}

FR_OFTEN enum fr_status fr_request_copy_in(struct fr_request_op *const *ops, size_t count)
{
    struct fr_device_batch batch;
    enum fr_status status = FR_OK;
    if (FR_LIKELY(count == 1) && !copies_in(ops[0]))
        return FR_OK;
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < count; i++) {
        if (ops[i]->self.copy && status == FR_OK)
            status = ops[i]->self.copy(ops[i]);
        for (unsigned v = 0; v < ops[i]->view_count; v++) {
            const struct fr_staging_view *view = &ops[i]->views[v];
            if (fr_staging_is_staged(view) && view->in_bytes)
                fr_staging_view_copy_in(view, &batch);
        }
    }
    enum fr_status copied = fr_device_batch_finish(&batch);
    return status == FR_OK ? copied : status;
}

// Returns the bytes that a completed receive or read has written.
static size_t status_bytes(const void *status)
{
    int64_t bytes = 0; // MPI_Count is 64 bits in every family
    enum fr_fn fn =
        fr_abi_has(FR_FN_MPI_Get_elements_x) ? FR_FN_MPI_Get_elements_x : FR_FN_MPI_Get_elements_c;
    int rc = fr_abi_call(fn, (const fr_word[]){FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&bytes)});
    return rc == fr_abi_mpi.SUCCESS && bytes > 0 ? (size_t)bytes : 0;
}

// Returns whether a receive was cancelled. Only receives are asked: Open MPI 4.1 leaves this field
// of a nonblocking read's status unset.
static bool was_cancelled(const struct fr_request_op *op, const void *status)
{
    int cancelled = 0;
    if (fr_abi_rows[op->fn].class != FR_CLASS_RECV)
        return false;
    FR_MPI(Test_cancelled, FR_PTR(status), FR_PTR(&cancelled));
    return cancelled;
}

bool fr_request_has_come(int code)
{
    int class = fr_abi_mpi.SUCCESS;
    if (code == fr_abi_mpi.SUCCESS)
        return true;
    FR_MPI(Error_class, (fr_word)code, FR_PTR(&class));
    return class == fr_abi_mpi.ERR_TRUNCATE;
}

// Returns how much of the staged data goes back to the application.
static size_t limit_of(const struct fr_request_op *op, const void *status, int code)
{
    if (!fr_request_has_come(code))
        return 0;
    if (!op->prefix_out || !status)
        return SIZE_MAX;
    return was_cancelled(op, status) ? 0 : status_bytes(status);
}

bool fr_request_begin_copy(_Atomic unsigned char *state)
{
    unsigned char expected = FR_COPY_AWAITED;
    if (atomic_compare_exchange_strong(state, &expected, FR_COPY_BEGUN))
        return true;
    while (atomic_load_explicit(state, memory_order_acquire) == FR_COPY_BEGUN)
        fr_wait_yield();
    return false;
}

static void deliver_parts(struct fr_request_op *op, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = &op->views[0];
    for (size_t p = 0; p < op->parts.count; p++) {
        if (fr_request_begin_copy(&op->parts.arrived[p]))
            fr_staging_view_copy_part(view, p * op->parts.elements, op->parts.elements,
                                      FR_FROM_STAGE, batch);
    }
}

// Names a communicator that has been made, which may be used from now on.
static void deliver_comm(const struct fr_request_op *op)
{
    const void *made = (const void *)op->args[fr_abi_rows[op->fn].comm_made];
    (void)fr_job_name_give(fr_abi_handle_load(made, 0), op->comm_name);
}

// Counts a received message. Its path and length are known only now.
static void count_received(const struct fr_request_op *op, const struct fr_staging_view *view,
                           size_t limit)
{
    if (!op->receive.staged_because)
        fr_report_touch(view->path, op->comm_label);
    else if (limit)
        fr_report_buffer(&(struct fr_report_buffer){
            .fn = op->counted_as,
            .path = view->path,
            .kind = view->range.kind,
            .out_bytes = limit < view->out_bytes ? limit : view->out_bytes,
            .reason = op->receive.staged_because,
            .posted = fr_abi_rows[op->counted_as].request >= 0,
            .label = op->comm_label,
        });
}

// Adds the copies of one operation to a batch, and notes whether it has any.
static void deliver_one(struct fr_request_op *op, size_t limit, struct fr_device_batch *batch)
{
    op->copies = false;
    if (fr_abi_rows[op->fn].class == FR_CLASS_COMM_MAKE) {
        if (limit)
            deliver_comm(op);
        return;
    }
    if (op->parts.count) {
        op->copies = limit && op->views[0].out_bytes;
        if (op->copies)
            deliver_parts(op, batch);
        return;
    }
    for (unsigned v = 0; v < op->view_count; v++) {
        const struct fr_staging_view *view = &op->views[v];
        if (fr_staging_is_staged(view) && view->out_bytes) {
            op->copies = limit > 0;
            count_received(op, view, limit);
            if (!fr_rndv_standby_put(view, limit))
                fr_staging_view_copy_out(view, limit, batch);
        }
    }
}

void fr_request_set_size(void *status, uint64_t bytes)
{
    enum fr_fn fn = fr_abi_has(FR_FN_MPI_Status_set_elements_x) ? FR_FN_MPI_Status_set_elements_x
                                                                : FR_FN_MPI_Status_set_elements_c;
    fr_abi_call(fn, (const fr_word[]){FR_PTR(status), fr_abi_mpi.BYTE, (fr_word)bytes});
}

// Writes to a status the size of a message that was received in place of an RTS. Writes to *error
// what went wrong in a way that the real MPI knows nothing of.
static void tell_outcome(const struct fr_request_op *op, void *status, int *error)
{
    if (op->schedule && op->schedule->error != fr_abi_mpi.SUCCESS)
        *error = op->schedule->error;
    if (!op->receive.has_message)
        return;
    bool fits = op->receive.bytes <= op->receive.room;
    if (status && !op->receive.lacks_status)
        fr_request_set_size(status, fits ? op->receive.bytes : op->receive.room);
    if (!fits && *error == fr_abi_mpi.SUCCESS) // else MPI has said so
        *error = fr_abi_mpi.ERR_TRUNCATE;
}

// Operations of a delivery that have brought an RTS.
struct arrived {
    struct fr_request_op *ops[FR_RNDV_AT_ONCE];
    struct fr_rndv_incoming incoming[FR_RNDV_AT_ONCE];
    size_t count;
    struct fr_request_op *const *all; // of the delivery
    size_t all_count;
};

// Returns whether devices copy all of them.
static bool are_short(const struct arrived *arrived)
{
    for (size_t i = 0; i < arrived->count; i++) {
        if (!fr_rndv_incoming_is_short(&arrived->incoming[i]))
            return false;
    }
    return arrived->count > 0;
}

// Receives messages, or begins to pull them beside others of the call. Pulls of the call that were
// begun end before anything is waited for that takes longer, since their senders wait as well.
static void receive_arrived(struct arrived *arrived)
{
    bool beside = atomic_load_explicit(&fr_request_flying, memory_order_relaxed) > 0;
    bool begun = beside && are_short(arrived) &&
                 fr_request_arrivals_begin(arrived->ops, arrived->incoming, arrived->count);
    if (beside && !begun)
        (void)fr_request_arrivals_move(arrived->all, arrived->all_count, true);
    if (!begun) // failures stay with the operations
        (void)!fr_request_receive(arrived->ops, arrived->incoming, arrived->count);
    arrived->count = 0;
}

// Adds an operation that has brought an RTS. Receives all when there is room for no more, whatever
// has failed before.
static void add_arrived(struct arrived *arrived, struct fr_request_op *op)
{
    arrived->ops[arrived->count++] = op;
    if (arrived->count == FR_RNDV_AT_ONCE)
        receive_arrived(arrived);
}

static bool is_idle(const struct fr_request_op *op)
{
    return op->persistent && !op->active;
}

// Returns whether there is nothing to copy any more. The parts of a schedule have copied for
// themselves.
static bool is_over(const struct fr_request_op *op)
{
    return op->delivered || op->schedule || is_idle(op);
}

// Returns whether an operation has brought an RTS. MPIs differ in what the status of a truncated
// receive says, so it is not used.
static bool has_rts(struct fr_request_op *op, const void *status, int code,
                    struct fr_rndv_incoming *incoming)
{
    bool truncated = code != fr_abi_mpi.SUCCESS;
    return fr_request_has_come(code) && fr_request_has_rts(op, truncated ? NULL : status, incoming);
}

// Ends the copies of an operation. It is not known which copy of a batch has failed. Once another
// thread that waits for them is told, the operation may be gone.
static void end_copies(struct fr_request_op *op, enum fr_status copied)
{
    bool copies = op->copies;
    op->copies = false;
    if (copies && copied != FR_OK)
        op->failure = copied;
    for (size_t p = 0; copies && p < op->parts.count; p++)
        atomic_store_explicit(&op->parts.arrived[p], FR_COPY_DONE, memory_order_release);
    if (op->rma.fetches)
        atomic_store_explicit(&op->rma.fetched, FR_COPY_DONE, memory_order_release);
}

// Returns whether another thread that synchronises the window has copied the operation back, or is
// about to.
static bool is_fetched(struct fr_request_op *op)
{
    return op->rma.fetches && !fr_request_begin_copy(&op->rma.fetched);
}

enum fr_status fr_request_fetch(struct fr_request_op *op)
{
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    deliver_one(op, SIZE_MAX, &batch);
    enum fr_status status = fr_device_batch_finish(&batch);
    op->delivered = true;
    end_copies(op, status); // the operation is another thread's from now on
    return status;
}

// Receives messages that were cut off, once all that came before them are received. Where its bytes
// do not tell which message a receive has brought, the first one that is left is taken.
static void receive_cut(struct fr_request_op *const *ops, void *const *statuses, const int *errors,
                        size_t count, struct fr_device_batch *batch)
{
    for (size_t i = 0; i < count; i++) {
        struct fr_rndv_incoming incoming;
        if (ops[i]->receive.cut != FR_CUT_SOUGHT)
            continue;
        ops[i]->receive.cut = FR_CUT_OVER;
        if (fr_request_find_cut(ops[i], statuses[i], &incoming))
            (void)!fr_request_receive(&ops[i], &incoming, 1); // a failure stays with the operation
        else
            deliver_one(ops[i], limit_of(ops[i], statuses[i], errors[i]), batch);
    }
}

// Ends the pulls that were begun, and then what takes longer.
static void finish_arrivals(struct fr_request_op *const *ops, size_t count)
{
    (void)fr_request_arrivals_move(ops, count, true);
    for (size_t i = 0; i < count; i++) {
        if (ops[i]->arrival)
            (void)fr_request_arrival_finish(ops[i]);
    }
}

enum fr_status fr_request_deliver(struct fr_request_op *const *ops, void *const *statuses,
                                  int *errors, size_t count)
{
    struct fr_device_batch batch;
    struct arrived arrived;
    bool any_cut = false;
    enum fr_status first = FR_OK;
    arrived.count = 0;
    arrived.all = ops;
    arrived.all_count = count;
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < count; i++) {
        if (is_fetched(ops[i]) || is_over(ops[i]))
            continue;
        atomic_store_explicit(&ops[i]->delivered, true, memory_order_release);
        ops[i]->receive.cut = FR_CUT_NOT;
        if (ops[i]->arrival)
            continue;
        bool has_come = has_rts(ops[i], statuses[i], errors[i], &arrived.incoming[arrived.count]);
        bool may_be_cut = fr_request_may_be_cut(ops[i], errors[i]);
        ops[i]->receive.cut = !may_be_cut ? FR_CUT_NOT : has_come ? FR_CUT_OVER : FR_CUT_SOUGHT;
        any_cut = any_cut || (may_be_cut && !has_come);
        if (has_come)
            add_arrived(&arrived, ops[i]);
        else if (!may_be_cut)
            deliver_one(ops[i], limit_of(ops[i], statuses[i], errors[i]), &batch);
    }
    receive_arrived(&arrived);
    finish_arrivals(ops, count);
    if (FR_UNLIKELY(any_cut))
        receive_cut(ops, statuses, errors, count, &batch);
    fr_rndv_sweep_end();
    enum fr_status copied = fr_device_batch_finish(&batch);
    for (size_t i = 0; i < count; i++) {
        if (!is_idle(ops[i])) {
            tell_outcome(ops[i], statuses[i], &errors[i]);
            first = first == FR_OK ? ops[i]->failure : first;
        }
        end_copies(ops[i], copied);
    }
    return first == FR_OK ? copied : first;
}

int fr_request_error_code(enum fr_status status)
{
    switch (status) {
    case FR_OK:
        return fr_abi_mpi.SUCCESS;
    case FR_ERR_NO_MEMORY:
        return fr_abi_mpi.ERR_NO_MEM;
    case FR_ERR_TRUNCATE:
        return fr_abi_mpi.ERR_TRUNCATE;
    case FR_ERR_LIMIT:
        return fr_abi_mpi.ERR_COUNT;
    case FR_ERR_UNSUPPORTED:
        return fr_abi_mpi.ERR_TYPE;
    case FR_ERR_INVALID:
        return fr_abi_mpi.ERR_ARG;
    case FR_ERR_RANGE:
        return fr_abi_mpi.ERR_RMA_RANGE;
    case FR_ERR_EPOCH:
        return fr_abi_mpi.ERR_RMA_SYNC;
    default:
        return fr_abi_mpi.ERR_OTHER;
    }
}

// Returns the communicator that hears of errors without communicator, window and file. MPI 4 moved
// these from MPI_COMM_WORLD to MPI_COMM_SELF. Open MPI 5 (which says 3.1) and MPICH 4.0 still raise
// them on the world, MPICH 5 does not.
static fr_word communicator_of_no_object(void)
{
    int version = 0, subversion = 0;
    FR_MPI(Get_version, FR_PTR(&version), FR_PTR(&subversion));
    bool on_self = version > 4 || (version == 4 && subversion > 0);
    return on_self ? fr_abi_mpi.COMM_SELF : fr_abi_mpi.COMM_WORLD;
}

int fr_request_raise(char object_kind, fr_word object, int code)
{
    switch (object_kind) {
    case 'c':
        FR_MPI(Comm_call_errhandler, object, (fr_word)code);
        break;
    case 'w':
        FR_MPI(Win_call_errhandler, object, (fr_word)code);
        break;
    case 'f':
        FR_MPI(File_call_errhandler, object, (fr_word)code);
        break;
    case 'r':
        break;
    default:
        if (fr_abi_has_world())
            FR_MPI(Comm_call_errhandler, communicator_of_no_object(), (fr_word)code);
        break;
    }
    return code;
}

int fr_request_tell_failure(const struct fr_request_op *op, enum fr_status status)
{
    fr_error("%s failed with its device buffers: %s", fr_abi_rows[op->fn].name,
             fr_core_status_text(status));
    return fr_request_error_code(status);
}

int fr_request_fail_and_free(struct fr_request_op *op, enum fr_status status)
{
    char kind = op->object_kind;
    fr_word object = op->object;
    const int code = fr_request_tell_failure(op, status);
    fr_request_op_free(op);
    return fr_request_raise(kind, object, code);
}

int fr_request_fail(const struct fr_request_op *op, enum fr_status status)
{
    return fr_request_raise(op->object_kind, op->object, fr_request_tell_failure(op, status));
}

int fr_request_deliver_one(struct fr_request_op *op, void *status, int rc)
{
    int error = rc;
    enum fr_status delivered = fr_request_deliver(&op, &status, &error, 1);
    if (delivered != FR_OK)
        return fr_request_fail(op, delivered);
    return error == rc ? rc : fr_request_raise(op->object_kind, op->object, error);
}
