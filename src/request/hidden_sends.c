// SPDX-License-Identifier: BSD-3-Clause
// Completion calls with sends by rendezvous among their requests. MPI has sent the RTS and takes
// them for complete. For the application they are complete once their bytes have left its buffer.
// Receives whose messages come over the network are treated alike in calls that must not wait for
// them.
//
// Receives go first: the process that has sent their messages may be waiting for these sends as
// well.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "request/set_int.h"
#include "request/table.h"

#include <string.h>

// Looks at deferred operations, and takes those that are over off the list.
static void look_at_all(struct fr_request_set *set)
{
    struct fr_request_looks looks = fr_request_set_begin_looks(set);
    for (size_t i = 0; i < set->count; i++) {
        if (set->deferred[i] && !fr_request_set_is_deferred(set, i, &looks))
            set->deferred[i] = NULL;
    }
}

// Looks at deferred operations in their order, up to one that is not over. Returns whether there is
// one. Receivers mostly take messages in that order.
static bool look_at_first(struct fr_request_set *set)
{
    struct fr_request_looks looks = fr_request_set_begin_looks(set);
    for (size_t i = 0; i < set->count; i++) {
        if (set->deferred[i] && fr_request_set_is_deferred(set, i, &looks))
            return true;
        set->deferred[i] = NULL;
    }
    return false;
}

// Makes progress while nothing is claimed, so that receives of the list can go on as well. Messages
// that have come to them begin, and need not be there before the others are looked at again.
// Returns whether something is deferred still.
static bool go_on_unclaimed(struct fr_request_set *set)
{
    fr_request_set_unclaim(set);
    fr_request_begin_progress();
    (void)!fr_request_set_claim(set);
    if (set->tracked)
        return fr_request_set_find_deferred(set);
    memset(set->deferred, 0, set->count * sizeof(*set->deferred));
    return false;
}

// Tells deferred schedules whether this call waits for them.
static void await(const struct fr_request_set *set, bool awaits)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->deferred[i] && set->deferred[i]->schedule)
            fr_request_schedule_await(set->deferred[i]->schedule, awaits);
    }
}

static void hide(struct fr_request_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        fr_word request = fr_abi_handle_load(set->requests, i);
        fr_abi_handle_store(set->hidden, i, set->deferred[i] ? fr_abi_mpi.REQUEST_NULL : request);
    }
}

static void unhide(struct fr_request_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        if (!set->deferred[i])
            fr_abi_handle_store((void *)set->requests, i, fr_abi_handle_load(set->hidden, i));
    }
}

// Calls the real function with a list in which deferred requests do not appear.
static int call_hidden(struct fr_request_set *set, enum fr_fn fn, fr_word *args)
{
    int list = fr_abi_rows[fn].requests;
    fr_word shown = args[list];
    hide(set);
    args[list] = FR_PTR(set->hidden);
    int rc = fr_abi_call(fn, args);
    args[list] = shown;
    unhide(set);
    return rc;
}

static bool is_ours(const struct fr_request_set *set, size_t index)
{
    return set->ops[index] || (set->posted && set->posted[index]);
}

// Shows MPI what Fabrail knows nothing of, and one request that is never complete. Returns whether
// there is anything to show.
static bool show_others(struct fr_request_set *set, fr_word never)
{
    bool any = false;
    for (size_t i = 0; i < set->count; i++) {
        fr_word request = fr_abi_handle_load(set->requests, i);
        any |= !is_ours(set, i) && request != fr_abi_mpi.REQUEST_NULL;
        fr_abi_handle_store(set->hidden, i, is_ours(set, i) ? never : request);
    }
    return any && never;
}

// Asks MPI about the others of a list that is not complete as a whole. It refuses what is no
// request, and some MPIs end requests that have failed.
static int ask_about_others(struct fr_request_set *set)
{
    fr_word args[FR_MAX_ARGS];
    unsigned count = fr_abi_rows[set->fn].arg_count;
    if (!show_others(set, fr_request_never()))
        return fr_abi_mpi.SUCCESS;
    memcpy(args, set->args, count * sizeof(*args));
    args[fr_abi_rows[set->fn].requests] = FR_PTR(set->hidden);
    int rc = fr_abi_call(set->fn, args);
    for (size_t i = 0; i < set->count; i++) {
        if (!is_ours(set, i))
            fr_abi_handle_store((void *)set->requests, i, fr_abi_handle_load(set->hidden, i));
        else if (rc == fr_abi_mpi.ERR_IN_STATUS)
            *fr_request_status_error(fr_request_set_status(set, i)) = fr_abi_mpi.ERR_PENDING;
    }
    return rc;
}

// Answers that not all is complete. The application asks again later, and its receives go on
// meanwhile.
static int answer_no(struct fr_request_set *set)
{
    int rc = set->form.of == FR_OF_ALL ? ask_about_others(set) : fr_abi_mpi.SUCCESS;
    *(int *)set->args[fr_request_flag_arg(set->form)] = 0;
    fr_request_set_unclaim(set);
    fr_request_progress();
    return rc;
}

static int wait_one(struct fr_request_set *set)
{
    fr_request_wait_over(set->deferred[0], 1);
    return fr_request_set_finish(set, fr_request_set_call(set));
}

// Returns the error of a deferred operation where MPI says `rc`, whose handler knows nothing of the
// rest. An exchange has received something besides, or the send itself may have failed.
static int own_error(struct fr_request_set *set, struct fr_request_op *op, size_t index, int rc)
{
    void *status = fr_request_set_status(set, index);
    if (op->schedule && op->schedule->error != fr_abi_mpi.SUCCESS)
        rc = op->schedule->error;
    if (!op->receive.takes_rts && op->failure == FR_OK)
        return rc;
    enum fr_status delivered = fr_request_deliver(&op, &status, &rc, 1);
    return delivered == FR_OK ? rc : fr_request_error_code(delivered);
}

// Completes one deferred request of a list.
static int wait_deferred(struct fr_request_set *set, size_t index)
{
    struct fr_request_op *op = set->deferred[index];
    char *request = (char *)set->requests + index * fr_abi_mpi.handle_bytes;
    fr_request_wait_over(op, set->count);
    op->receive.lacks_status = set->lacks_statuses;
    int rc = FR_MPI(Wait, FR_PTR(request), FR_PTR(fr_request_set_status(set, index)));
    int own = own_error(set, op, index, rc);
    if (own != rc)
        fr_request_set_raise(set, op->object_kind, op->object, fr_abi_mpi.ERR_IN_STATUS);
    rc = own;
    if (op->persistent) {
        fr_request_table_end(op);
        fr_request_table_unclaim(&op, 1);
        return rc;
    }
    fr_request_table_remove(op);
    fr_request_op_free(op);
    return rc;
}

static void set_error(const struct fr_request_set *set, size_t index, int code)
{
    *fr_request_status_error(fr_request_set_status(set, index)) = code;
}

// Adds the outcome of one request to that of a list.
static int add_outcome(struct fr_request_set *set, size_t index, int all, int one)
{
    if (one != fr_abi_mpi.SUCCESS && all == fr_abi_mpi.SUCCESS) {
        for (size_t i = 0; i < set->count; i++)
            set_error(set, i, fr_abi_mpi.SUCCESS);
        all = fr_abi_mpi.ERR_IN_STATUS;
    }
    if (all == fr_abi_mpi.ERR_IN_STATUS)
        set_error(set, index, one);
    return all;
}

// Waits for all deferred operations before the real call. An error handler may leave the call only
// while MPI works on the application's own list, so nothing may be deferred by then. Receives go on
// meanwhile, since their senders may be waiting.
static int wait_all_first(struct fr_request_set *set)
{
    struct fr_wait wait = fr_request_begin_wait(set->count);
    while (fr_wait_step(&wait) ? go_on_unclaimed(set) : look_at_first(set))
        continue;
    return fr_request_set_finish(set, fr_request_set_call(set));
}

// Returns whether a list has only sends, whose RTS MPI sends without their receivers.
static bool is_all_sent(const struct fr_request_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        bool sends = set->ops[i] && fr_abi_rows[set->ops[i]->fn].class == FR_CLASS_SEND;
        if (!sends && fr_abi_handle_load(set->requests, i) != fr_abi_mpi.REQUEST_NULL)
            return false;
    }
    return true;
}

// Waits for sends in their order, in which receivers mostly take them, and then calls MPI once.
static int wait_for_sends(struct fr_request_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->deferred[i])
            fr_request_wait_over(set->deferred[i], set->count);
    }
    return fr_request_set_finish(set, fr_request_set_call(set));
}

static int wait_all(struct fr_request_set *set)
{
    if (fr_request_may_be_abandoned() || fr_request_is_awaited())
        return wait_all_first(set);
    if (is_all_sent(set))
        return wait_for_sends(set);
    for (size_t i = 0; i < set->count; i++) {
        if (set->deferred[i])
            set->ops[i] = NULL;
    }
    int rc = fr_request_set_finish(set, call_hidden(set, set->fn, set->args));
    bool is_refused = rc != fr_abi_mpi.SUCCESS && rc != fr_abi_mpi.ERR_IN_STATUS;
    for (size_t i = 0; i < set->count; i++) {
        if (set->deferred[i] && is_refused) // the application may still wait for it
            set->ops[i] = set->deferred[i];
        else if (set->deferred[i])
            rc = add_outcome(set, i, rc, wait_deferred(set, i));
    }
    return rc;
}

// Waits for some requests as a row of tests.
static int wait_some(struct fr_request_set *set)
{
    bool any = set->form.of == FR_OF_ANY;
    int flag = 0;
    int *number = (int *)set->args[FR_SET_NUMBER]; // the index, or the count
    fr_word args[] = {set->args[0], set->args[1], set->args[2], any ? FR_PTR(&flag) : set->args[3],
                      set->args[any ? 3 : 4]};
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
    for (;;) {
        int rc = call_hidden(set, any ? FR_FN_MPI_Testany : FR_FN_MPI_Testsome, args);
        bool found = *number != fr_abi_mpi.UNDEFINED && (any ? flag != 0 : *number > 0);
        if (found || rc != fr_abi_mpi.SUCCESS) {
            await(set, false);
            return fr_request_set_finish(set, rc);
        }
        look_at_all(set);
        if (fr_wait_step(&wait))
            (void)go_on_unclaimed(set);
    }
}

static int test_some(struct fr_request_set *set)
{
    int *number = (int *)set->args[FR_SET_NUMBER];
    int rc = call_hidden(set, set->fn, set->args);
    if (rc != fr_abi_mpi.SUCCESS || *number != fr_abi_mpi.UNDEFINED)
        return fr_request_set_finish(set, rc);
    // All requests of the list are hidden, so it is not empty.
    if (fr_request_has_flag(set->form))
        return answer_no(set);
    *number = 0;
    fr_request_set_unclaim(set);
    fr_request_progress();
    return rc;
}

int fr_request_set_defer(struct fr_request_set *set)
{
    bool some = set->form.of == FR_OF_ANY || set->form.of == FR_OF_SOME;
    await(set, set->form.waits);
    if (some)
        return set->form.waits ? wait_some(set) : test_some(set);
    if (!set->form.waits)
        return answer_no(set);
    return set->form.of == FR_OF_ONE ? wait_one(set) : wait_all(set);
}
