// SPDX-License-Identifier: BSD-3-Clause
// Starting persistent operations, and the partitions of partitioned ones.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "request/table.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void activate(struct fr_request_op *op)
{
    op->delivered = false;
    op->receive.has_message = false;
    op->receive.has_ended = false;
    op->failure = FR_OK;
    fr_request_table_begin(op);
    for (size_t p = 0; p < op->parts.count; p++)
        atomic_store_explicit(&op->parts.arrived[p], FR_COPY_AWAITED, memory_order_relaxed);
}

// Copies in the inputs of all operations that a start call names. A partitioned send copies each
// partition when it is declared ready.
static enum fr_status start_copies(struct fr_request_op *const *ops, size_t count)
{
    enum { AT_ONCE = 32 };
    struct fr_request_op *whole[AT_ONCE];
    size_t used = 0;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < count && status == FR_OK; i++) {
        if (!ops[i])
            continue;
        activate(ops[i]);
        if (ops[i]->parts.count || ops[i]->schedule)
            continue;
        whole[used++] = ops[i];
        if (used < AT_ONCE)
            continue;
        status = fr_request_copy_in(whole, used);
        used = 0;
    }
    return status == FR_OK ? fr_request_copy_in(whole, used) : status;
}

// Returns whether an operation was started and has not ended. MPI says so of one whose completion
// an error handler has left.
static bool is_active(const struct fr_request_op *op)
{
    int complete = 0;
    if (!op->active || !op->claim.again)
        return op->active;
    FR_MPI(Request_get_status, op->key, FR_PTR(&complete), fr_abi_mpi.STATUS_IGNORE);
    return !complete;
}

// Ends what the call that was abandoned would have ended.
static void end_abandoned(struct fr_request_op *op)
{
    if (op->arrival)
        (void)fr_request_arrival_finish(op);
    fr_request_wait_over(op, 1);
    fr_request_table_end(op);
}

// Leaves operations that are started already to MPI alone, which refuses to start them again.
// Returns how many others there are.
static size_t leave_active(struct fr_request_op **ops, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (ops[i] && is_active(ops[i])) {
            fr_request_table_unclaim(&ops[i], 1);
            ops[i] = NULL;
        } else if (ops[i] && ops[i]->active) {
            end_abandoned(ops[i]);
        }
        left += ops[i] != NULL;
    }
    return left;
}

static void deactivate(struct fr_request_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i])
            fr_request_table_end(ops[i]);
    }
}

static bool any_schedule(struct fr_request_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i] && ops[i]->schedule)
            return true;
    }
    return false;
}

// Starts operations one after the other, since messages of schedules must not overtake those before
// them. A schedule that runs cannot be taken back, so it begins once MPI has started its request.
// Where MPI refuses one, those before it are started.
static int start_in_order(const void *requests, struct fr_request_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int rc = FR_MPI(Start, FR_PTR((const char *)requests + i * fr_abi_mpi.handle_bytes));
        if (rc == fr_abi_mpi.SUCCESS && ops[i] && ops[i]->schedule)
            rc = fr_request_schedule_start(ops[i]);
        if (rc == fr_abi_mpi.SUCCESS)
            continue;
        deactivate(ops + i, count - i);
        return rc;
    }
    return fr_abi_mpi.SUCCESS;
}

// Starts the operations of a call, whose inputs are copied.
static int start_all(enum fr_fn fn, const fr_word *args, const void *requests,
                     struct fr_request_op *const *ops, size_t count)
{
    if (any_schedule(ops, count))
        return start_in_order(requests, ops, count);
    int rc = fr_abi_call(fn, args);
    if (rc != fr_abi_mpi.SUCCESS)
        deactivate(ops, count);
    return rc;
}

// Follows changes of request values. Open MPI gives a buffered send another request when it is
// started again before its last message has left.
static void follow(struct fr_request_op *const *ops, size_t count, const void *requests)
{
    for (size_t i = 0; i < count; i++) {
        fr_word request = fr_abi_handle_load(requests, i);
        if (!ops[i] || request == ops[i]->key)
            continue;
        fr_request_table_remove(ops[i]);
        fr_request_table_add(ops[i], request);
    }
}

bool fr_request_start(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_request_op *inline_ops[32];
    struct fr_request_op **ops = inline_ops;
    bool one = fr_abi_rows[fn].class == FR_CLASS_START;
    const void *requests = (const void *)args[one ? 0 : 1];
    size_t count = one ? 1 : (int)args[0] > 0 ? (size_t)(int)args[0] : 0;
    if (!requests || !count)
        return false;
    if (count > FR_ARRAY_LENGTH(inline_ops))
        ops = calloc(count, sizeof(*ops));
    if (!ops) {
        fr_error("out of memory for a list of %zu requests", count);
        *result = fr_request_raise(0, 0, fr_abi_mpi.ERR_NO_MEM);
        return true;
    }
    size_t found = fr_request_table_claim(requests, count, ops);
    found = found ? leave_active(ops, count) : 0;
    if (found) {
        enum fr_status copied = start_copies(ops, count);
        if (copied == FR_OK) {
            *result = start_all(fn, args, requests, ops, count);
        } else {
            deactivate(ops, count);
            *result = fr_request_raise(0, 0, fr_request_error_code(copied));
        }
        follow(ops, count, requests);
        fr_request_table_unclaim(ops, count);
    }
    if (ops != inline_ops)
        free(ops);
    return found != 0;
}

static enum fr_status copy_partition(const struct fr_request_op *op, size_t partition,
                                     enum fr_device_direction direction,
                                     struct fr_device_batch *batch)
{
    if (partition >= op->parts.count)
        return FR_ERR_INVALID; // MPI itself reports the bad partition
    fr_staging_view_copy_part(&op->views[0], partition * op->parts.elements, op->parts.elements,
                              direction, batch);
    return FR_OK;
}

// Returns partition `index` that one of the three Pready functions names.
static int ready_partition(enum fr_class class, const fr_word *args, int index)
{
    switch (class) {
    case FR_CLASS_PREADY:
        return (int)args[0];
    case FR_CLASS_PREADY_RANGE:
        return (int)args[0] + index;
    default:
        return ((const int *)args[1])[index];
    }
}

static int ready_count(enum fr_class class, const fr_word *args)
{
    switch (class) {
    case FR_CLASS_PREADY:
        return 1;
    case FR_CLASS_PREADY_RANGE:
        return (int)args[1] - (int)args[0] + 1;
    default:
        return (int)args[0];
    }
}

bool fr_request_pready(enum fr_fn fn, fr_word *args, int *result)
{
    enum fr_class class = fr_abi_rows[fn].class;
    fr_word request = fr_abi_handle(args[fr_abi_rows[fn].one_request]);
    const struct fr_request_op *op = fr_request_table_find_partitioned(request);
    if (!op)
        return false;
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    for (int i = 0; i < ready_count(class, args); i++) {
        int partition = ready_partition(class, args, i);
        if (partition < 0 || copy_partition(op, (size_t)partition, FR_TO_STAGE, &batch) != FR_OK)
            break;
    }
    enum fr_status copied = fr_device_batch_finish(&batch);
    if (copied == FR_OK)
        *result = fr_abi_call(fn, args);
    else
        *result = fr_request_fail(op, copied);
    return true;
}

bool fr_request_parrived(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_request_op *op = fr_request_table_find_partitioned(fr_abi_handle(args[0]));
    if (!op)
        return false;
    *result = fr_abi_call(fn, args);
    size_t partition = (size_t)(int)args[1];
    if (*result != fr_abi_mpi.SUCCESS || !*(const int *)args[2] || !op->active ||
        partition >= op->parts.count || !fr_request_begin_copy(&op->parts.arrived[partition]))
        return true;
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    enum fr_status copied = copy_partition(op, partition, FR_FROM_STAGE, &batch);
    enum fr_status finished = fr_device_batch_finish(&batch);
    copied = copied == FR_OK ? finished : copied;
    atomic_store_explicit(&op->parts.arrived[partition], FR_COPY_DONE, memory_order_release);
    if (copied != FR_OK)
        *result = fr_request_fail(op, copied);
    return true;
}
