// SPDX-License-Identifier: BSD-3-Clause
// Errors of a completion call that the real MPI knows nothing of. They come from copies, from
// messages longer than their buffer, and from parts of a schedule.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "request/set_int.h"

// Returns whether a copy or a message of the operation has failed. An inactive operation has told
// before.
static bool has_failed(const struct fr_request_op *op)
{
    return op->failure != FR_OK && (op->active || !op->persistent);
}

// Makes failed deliveries errors of their operations.
static void take_failures(struct fr_request_set *set)
{
    const struct fr_request_op *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < set->done_count; i++) {
        const struct fr_request_op *op = set->done[i];
        if (!has_failed(op))
            continue;
        set->done_errors[i] = fr_request_error_code(op->failure);
        first = first ? first : op;
        count++;
    }
    if (first)
        fr_error("copies of device buffers of %zu operations, the first of them %s, failed: %s",
                 count, fr_abi_rows[first->fn].name, fr_core_status_text(first->failure));
}

// Clears the errors of the call's statuses that belong to no operation, since no error came with
// them.
static void clear_errors(struct fr_request_set *set)
{
    bool some = set->form.of == FR_OF_SOME;
    size_t count = some ? (size_t) * (const int *)set->args[FR_SET_NUMBER] : set->count;
    for (size_t i = 0, d = 0; i < count; i++) { // operations are listed in the order of statuses
        if (d < set->done_count && set->done_statuses[d] == fr_request_set_status(set, i))
            d++;
        else
            *fr_request_status_error(fr_request_set_status(set, i)) = fr_abi_mpi.SUCCESS;
    }
}

// Returns whether the operation has failed in a way that the real MPI knows nothing of. Its message
// may have been longer than its buffer though its RTS was not, or a part of a schedule has failed.
static bool has_own_error(const struct fr_request_op *op, int code)
{
    bool is_reported = op->receive.cut != FR_CUT_NOT; // by MPI
    return has_failed(op) ||
           (op->receive.has_message && !is_reported && code == fr_abi_mpi.ERR_TRUNCATE) ||
           (op->schedule && op->schedule->error != fr_abi_mpi.SUCCESS);
}

// Returns whether an operation has ended so that there is nothing to tell of it, as most do.
static bool is_fine(const struct fr_request_op *op, int code)
{
    return op->failure == FR_OK && code == fr_abi_mpi.SUCCESS && !op->schedule;
}

void fr_request_set_raise(struct fr_request_set *set, char kind, fr_word object, int code)
{
    if (set->raises)
        return;
    set->raises = true;
    set->error_kind = kind;
    set->error_object = object;
    set->error = code;
}

int fr_request_set_report(struct fr_request_set *set, int rc)
{
    const struct fr_request_op *first = NULL;
    int code = fr_abi_mpi.SUCCESS;
    bool list = fr_request_has_status_list(set->form), tells = list && set->statuses;
    size_t fine = 0;
    while (fine < set->done_count && is_fine(set->done[fine], set->done_errors[fine]))
        fine++;
    if (fine == set->done_count)
        return rc;
    take_failures(set);
    for (size_t i = fine; i < set->done_count && !first; i++) {
        if (!has_own_error(set->done[i], set->done_errors[i]))
            continue;
        first = set->done[i];
        code = set->done_errors[i];
    }
    if (!first)
        return rc;
    for (size_t i = 0; tells && i < set->done_count; i++)
        *fr_request_status_error(set->done_statuses[i]) = set->done_errors[i];
    if (tells && rc == fr_abi_mpi.SUCCESS)
        clear_errors(set);
    if (set->form.asks && !has_failed(first))
        return rc;
    code = list ? fr_abi_mpi.ERR_IN_STATUS : code;
    fr_request_set_raise(set, first->object_kind, first->object, code);
    return code;
}
