// SPDX-License-Identifier: BSD-3-Clause
// The functions that complete requests or ask whether they are complete. Each call becomes a set:
// the requests, the operations behind them, and statuses of Fabrail's where the application wants
// none.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/rndv/ahead.h"
#include "fabrail/rndv/receive.h"
#include "request/set_int.h"
#include "request/table.h"

#include <stdlib.h>
#include <string.h>

static void set_requests(struct fr_request_set *set)
{
    bool one = set->form.of == FR_OF_ONE;
    set->count = one ? 1 : (int)set->args[0] > 0 ? (size_t)(int)set->args[0] : 0;
    set->requests = (const void *)set->args[one ? 0 : 1];
    if (one && set->form.asks) {
        set->requests = &set->by_value;
        fr_abi_handle_store(&set->by_value, 0, fr_abi_handle(set->args[0]));
    }
}

// Returns whether any operation needs a status to know how much it has received. Otherwise an RTS
// stands in the application's memory, where it can be seen.
static bool any_needs_status(const struct fr_request_set *set)
{
    for (size_t i = 0; set->tracked && i < set->count; i++) {
        const struct fr_request_op *op = set->ops[i];
        if (op && (op->schedule || op->send || op->parts.count || !op->receive.takes_rts ||
                   fr_request_op_is_staged(op)))
            return true;
    }
    return false;
}

// Ends claimed receives as fr_request_end_late does those that are looked up.
static bool end_claimed(struct fr_request_set *set, size_t first, size_t count, char *statuses,
                        int rc)
{
    (void)rc;
    return fr_request_posted_end(set->posted + first, count, statuses);
}

// Ends a call as most are: it has completed receives, and none has brought an RTS. Returns false
// where there is more to do.
static bool end_receives(struct fr_request_set *set)
{
    if (set->late && atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) == 0)
        return fr_request_each_done(set, set->form, set->args, fr_abi_mpi.SUCCESS, true,
                                    fr_request_end_late);
    if (set->late || set->tracked || !set->posted || set->form.asks ||
        !fr_request_each_done(set, set->form, set->args, fr_abi_mpi.SUCCESS, true, end_claimed))
        return false;
    if (fr_request_waits_for_all(set->form)) // nothing is left pending
        set->posted = NULL;
    return true;
}

// Ends a posted receive that is complete. It becomes an operation of this call if it has brought an
// RTS.
static void end_posted(struct fr_request_set *set, size_t request, const void *status, int error)
{
    struct fr_request_posted *receive = set->posted[request];
    if (FR_UNLIKELY(fr_request_posted_may_have_rts(receive, status, error))) {
        set->ops[request] = fr_request_posted_promote(receive, false);
        if (set->ops[request]) {
            set->posted[request] = NULL;
            set->tracked++;
            return;
        }
        set->out_of_memory = true;
    }
    if (set->form.asks)
        return;
    fr_request_posted_forget(receive);
    set->posted[request] = NULL;
}

static void add_done(struct fr_request_set *set, size_t request, void *status, int error)
{
    if (set->late)
        fr_request_set_look_up(set, request);
    if (set->posted && set->posted[request])
        end_posted(set, request, status, error);
    if (!set->ops[request])
        return;
    set->ops[request]->receive.lacks_status = set->lacks_statuses;
    set->done[set->done_count] = set->ops[request];
    set->done_statuses[set->done_count] = status;
    set->done_errors[set->done_count] = error;
    set->done_requests[set->done_count] = request;
    set->done_count++;
}

// Returns whether a request may be pending after an error of another one, where no status tells. A
// completed request is null or persistent.
static bool may_pend(const struct fr_request_set *set, size_t index)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    int complete = 0;
    fr_word request = fr_abi_handle_load(set->requests, index);
    if (request == fr_abi_mpi.REQUEST_NULL)
        return false;
    if (!set->ops[index] || !set->ops[index]->persistent)
        return true;
    FR_MPI(Request_get_status, request, FR_PTR(&complete), FR_PTR(status));
    return !complete;
}

// Returns the code that a request has ended with. Where there is no status, a request that has
// received an RTS has not failed.
static int error_of(const struct fr_request_set *set, size_t request, void *status, int rc)
{
    if (rc == fr_abi_mpi.SUCCESS || !fr_request_has_status_list(set->form))
        return rc;
    if (!status)
        return may_pend(set, request) ? fr_abi_mpi.ERR_PENDING : fr_abi_mpi.SUCCESS;
    return rc == fr_abi_mpi.ERR_IN_STATUS ? *fr_request_status_error(status) : fr_abi_mpi.SUCCESS;
}

static bool add_each(struct fr_request_set *set, size_t first, size_t count, char *statuses, int rc)
{
    for (size_t i = 0; i < count; i++) {
        void *status = statuses ? statuses + i * fr_abi_mpi.status_bytes : NULL;
        int error = error_of(set, first + i, status, rc);
        if (set->form.of != FR_OF_ALL || error != fr_abi_mpi.ERR_PENDING)
            add_done(set, first + i, status, error);
    }
    return true;
}

// Lists the operations that the real call has completed. An error that is no request's is the
// call's. Then only a single request can have ended, or requests that are waited for without
// statuses.
static void list_done(struct fr_request_set *set, int rc)
{
    const struct fr_request_form form = set->form;
    bool has_answer = rc == fr_abi_mpi.SUCCESS;
    bool in_status = has_answer || rc == fr_abi_mpi.ERR_IN_STATUS;
    bool unsaid = form.of == FR_OF_ALL && form.waits && !set->statuses;
    if (in_status || unsaid || !fr_request_has_status_list(form))
        (void)fr_request_each_done(set, form, set->args, rc, has_answer || form.of == FR_OF_ANY,
                                   add_each);
}

// Returns whether a request has become null. Open MPI 4 frees a persistent request that has failed.
static bool is_null(const struct fr_request_set *set, size_t request)
{
    return fr_abi_handle_load(set->requests, request) == fr_abi_mpi.REQUEST_NULL;
}

// Forgets operations that are over.
static void end_done(struct fr_request_set *set)
{
    for (size_t i = 0; i < set->done_count && !set->form.asks; i++) {
        if (set->done[i]->persistent && !is_null(set, set->done_requests[i])) {
            fr_request_table_end(set->done[i]);
            continue;
        }
        fr_request_table_remove(set->done[i]);
        set->ops[set->done_requests[i]] = NULL;
        fr_request_op_free(set->done[i]);
    }
}

// Returns whether an operation that a call has completed has brought an RTS whose message is not
// received, and which devices copy.
static bool has_message(const struct fr_request_set *set, size_t done,
                        struct fr_rndv_incoming *incoming)
{
    struct fr_request_op *op = set->done[done];
    bool is_over = op->delivered || op->arrival || op->schedule || (op->persistent && !op->active);
    return !is_over && set->done_errors[done] == fr_abi_mpi.SUCCESS &&
           fr_request_has_rts(op, set->done_statuses[done], incoming) &&
           fr_rndv_incoming_is_short(incoming);
}

// Lets go of the operations that a call has not completed. A late set has no others.
static void unclaim_others(struct fr_request_set *set)
{
    if (set->late)
        return;
    for (size_t d = 0; d < set->done_count; d++)
        set->ops[set->done_requests[d]] = NULL;
    fr_request_table_unclaim(set->ops, set->count);
    memset(set->ops, 0, set->count * sizeof(struct fr_request_op *));
    for (size_t d = 0; d < set->done_count; d++)
        set->ops[set->done_requests[d]] = set->done[d];
}

// Begins to receive what a call has completed, and meanwhile what has come to other requests.
// Programs complete many receives by calls for one or some, which then find the messages there.
// Pulls that were begun for others are ended, since what has completed may come over the network.
static void begin_all(struct fr_request_set *set)
{
    struct fr_request_op *ops[FR_RNDV_AT_ONCE];
    struct fr_rndv_incoming incoming[FR_RNDV_AT_ONCE];
    size_t count = 0;
    for (size_t i = 0; i < set->done_count && count < FR_RNDV_AT_ONCE; i++) {
        ops[count] = set->done[i];
        count += has_message(set, i, &incoming[count]);
    }
    if (count > 0)
        (void)fr_request_arrivals_begin(ops, incoming, count);
    if (atomic_load_explicit(&fr_request_flying, memory_order_relaxed) == 0)
        return;
    unclaim_others(set);
    (void)fr_request_receive_early();
}

int fr_request_set_finish(struct fr_request_set *set, int rc)
{
    set->done_count = 0;
    if (FR_LIKELY(rc == fr_abi_mpi.SUCCESS) && end_receives(set))
        return rc;
    if (set->late && rc != fr_abi_mpi.SUCCESS) // any request of it may have ended
        fr_request_set_claim_late(set);
    if (!set->looked_up && !set->late)
        memset(set->ops, 0, set->count * sizeof(struct fr_request_op *));
    set->looked_up = true;
    list_done(set, rc);
    if (FR_UNLIKELY(set->out_of_memory)) {
        rc = fr_abi_mpi.ERR_NO_MEM;
        fr_request_set_raise(set, 0, 0, rc);
    }
    if (!set->done_count)
        return rc;
    if (set->form.of != FR_OF_ALL && !set->form.asks &&
        atomic_load_explicit(&fr_request_tracked_count, memory_order_relaxed) > set->done_count)
        begin_all(set);
    (void)!fr_request_deliver(set->done, set->done_statuses, set->done_errors, set->done_count);
    rc = fr_request_set_report(set, rc);
    end_done(set);
    return rc;
}

// Returns whether requests are looked up only after MPI has completed them. A long list that is
// waited for again and again, one request at a time, is then not looked at as a whole each time. No
// request may be hidden from MPI or need a status. Nobody else may look at the list meanwhile, and
// nobody leave the call.
static bool may_be_late(const struct fr_request_set *set)
{
    _Atomic size_t *count =
        fr_request_waits_for_all(set->form) ? &fr_request_tracked_count : &fr_request_special_count;
    return !set->form.asks && fr_request_alone && !fr_request_is_awaited() &&
           atomic_load_explicit(count, memory_order_acquire) == 0;
}

// Calls the real function and looks up the requests that it has completed, which are gone in the
// end.
static int call_late(struct fr_request_set *set)
{
    memcpy(set->hidden, set->requests, set->count * fr_abi_mpi.handle_bytes);
    fr_request_late_set = set;
    int rc = fr_abi_call(set->fn, set->args);
    fr_request_late_set = NULL;
    rc = fr_request_set_finish(set, rc);
    if (set->late) {
        set->posted = NULL;
        set->tracked = 0;
    }
    return rc;
}

// Ends a call for whose list there is no memory. MPI must not complete operations that then cannot
// be followed. It is not called, so the application may try again.
static bool refuse_list(struct fr_request_set *set, int *result)
{
    if (!fr_request_set_is_any_ours(set))
        return false;
    fr_error("out of memory for a list of %d requests", (int)set->args[0]);
    *result = fr_request_raise(0, 0, fr_abi_mpi.ERR_NO_MEM);
    return true;
}

// Puts back what the application had in the arguments of a call of any, if MPI has written nothing.
static void end_answer(const struct fr_request_set *set)
{
    if (set->form.of != FR_OF_ANY)
        return;
    int *index = (int *)set->args[FR_SET_NUMBER];
    int *flag = (int *)set->args[fr_request_flag_arg(set->form)];
    if (*index != fr_abi_mpi.UNDEFINED)
        return;
    *index = set->index_before;
    if (!set->form.waits && !*flag)
        *flag = set->flag_before;
}

static void begin(struct fr_request_set *set, enum fr_fn fn, fr_word *args)
{
    set->fn = fn;
    set->form = fr_request_form_of(fr_abi_rows[fn].class);
    set->args = args;
    set->out_of_memory = false;
    set->raises = false;
    set->lacks_statuses = false;
    set_requests(set);
}

static int end(struct fr_request_set *set, int rc)
{
    if (rc != fr_abi_mpi.SUCCESS)
        end_answer(set);
    fr_request_set_unclaim(set);
    fr_request_end_early();
    free(set->heap);
    if (FR_UNLIKELY(set->raises))
        (void)fr_request_raise(set->error_kind, set->error_object, set->error);
    return rc;
}

int fr_request_fast_finish(struct fr_request_set *set, enum fr_fn fn, fr_word *args, int rc)
{
    if (set->late)
        fr_request_set_claim_late(set);
    set->heap = NULL;
    begin(set, fn, args);
    return end(set, fr_request_set_finish(set, rc));
}

// Returns whether an operation is known to be over, so that MPI completes its request at once: the
// receiver has what it sends, or it has what it receives. Nothing is known of what was left to MPI.
static bool is_known_over(const void *request)
{
    struct fr_request_op *op;
    if (!fr_request_table_claim(request, 1, &op))
        return false;
    bool taken = op->send && !op->receive.takes_rts && fr_rndv_send_is_pulled(op->send);
    bool over = op->active && op->failure == FR_OK && (op->send ? taken : op->delivered);
    fr_request_table_unclaim(&op, 1);
    return over;
}

// Completes one of the first requests of a list that is known to be over. Programs complete lists
// by calls for one, which then need not look at the whole list each time.
static bool complete_first(const struct fr_request_set *set, int *result)
{
    enum { FEW = 8 };
    unsigned looked = 0;
    for (size_t i = 0; i < set->count && looked < FEW; i++) {
        const char *request = (const char *)set->requests + i * fr_abi_mpi.handle_bytes;
        if (fr_abi_handle_load(request, 0) == fr_abi_mpi.REQUEST_NULL)
            continue;
        looked++;
        fr_word wait[] = {FR_PTR(request), set->args[fr_request_status_arg(set->form)]};
        if (!is_known_over(request) || !fr_request_complete(FR_FN_MPI_Wait, wait, result))
            continue;
        *(int *)set->args[FR_SET_NUMBER] = (int)i;
        return true;
    }
    return false;
}

// Makes a call whose list MPI is given as it is. One that waits for a single receive has a kernel
// stand by for the message.
static int wait_or_test(struct fr_request_set *set)
{
    bool stands_by = set->form.of == FR_OF_ONE && set->form.waits && set->tracked == 1;
    if (stands_by)
        fr_request_stand_by(set->ops[0]);
    int rc = fr_request_set_finish(set, fr_request_set_call(set));
    if (stands_by)
        fr_rndv_standby_end();
    return rc;
}

bool fr_request_complete(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_request_set set;
    fr_request_notice_awaited();
    begin(&set, fn, args);
    set.tracked = 0;
    set.looked_up = false;
    if (!set.requests || !set.count || fr_request_lacks_outputs(set.form, args))
        return false;
    set.late = may_be_late(&set);
    if (!set.late && set.form.of == FR_OF_ANY && set.form.waits && fr_request_any_tracked() &&
        complete_first(&set, result))
        return true;
    if (!fr_request_set_make_arrays(&set))
        return refuse_list(&set, result);
    if (!set.late && !fr_request_set_claim(&set)) {
        free(set.heap);
        return false;
    }
    fr_word *status = &args[fr_request_status_arg(set.form)];
    const fr_word given = *status;
    *status = fr_request_choose_statuses(&set, set.form, given, any_needs_status(&set));
    set.lacks_statuses = *status != given;
    fr_request_begin_answer(&set, set.form, args);
    int rc;
    if (set.late)
        rc = call_late(&set);
    else if (set.tracked && fr_request_set_find_deferred(&set))
        rc = fr_request_set_defer(&set);
    else
        rc = wait_or_test(&set);
    *result = end(&set, rc);
    return true;
}
