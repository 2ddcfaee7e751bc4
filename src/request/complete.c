// SPDX-License-Identifier: BSD-3-Clause
// The functions that complete requests or ask whether they are complete. Each call becomes a set:
// the requests, the operations behind them, and statuses of our own where the application wants
// none.
#include "config.h"

#include "request/schedule.h"
#include "request/set.h"

#include <stdlib.h>
#include <string.h>

static bool is_single(enum fr_class class)
{
    return class == FR_CLASS_WAIT || class == FR_CLASS_TEST || class == FR_CLASS_GET_STATUS;
}

// Enquiries complete nothing.
static bool is_enquiry(enum fr_class class)
{
    return class == FR_CLASS_GET_STATUS || class == FR_CLASS_GET_STATUS_ALL ||
           class == FR_CLASS_GET_STATUS_ANY || class == FR_CLASS_GET_STATUS_SOME;
}

static bool has_status_array(enum fr_class class)
{
    return class == FR_CLASS_WAITALL || class == FR_CLASS_TESTALL || class == FR_CLASS_WAITSOME ||
           class == FR_CLASS_TESTSOME || class == FR_CLASS_GET_STATUS_ALL ||
           class == FR_CLASS_GET_STATUS_SOME;
}

// Points the set's arrays at its own storage, or at one allocation for a long list of requests:
// false when there is no memory for that.
static bool set_storage(struct fr_request_set *set)
{
    set->ops = set->inline_ops;
    set->posted = set->inline_posted;
    set->deferred = set->inline_deferred;
    set->done = set->inline_done;
    set->done_statuses = set->inline_done_statuses;
    set->done_errors = set->inline_done_errors;
    set->done_requests = set->inline_done_requests;
    set->hidden = set->inline_hidden;
    set->statuses = set->inline_statuses;
    if (set->count <= FR_REQUEST_SHORT_LIST)
        return true;
    size_t each =
        5 * sizeof(void *) + sizeof(size_t) + sizeof(fr_word) + sizeof(int) + FR_STATUS_BYTES;
    set->heap = malloc(set->count * each);
    if (!set->heap)
        return false;
    set->ops = set->heap;
    set->deferred = set->ops + set->count;
    set->done = set->deferred + set->count;
    set->done_statuses = (void **)(set->done + set->count);
    set->posted = (struct fr_request_posted **)(set->done_statuses + set->count);
    set->done_requests = (size_t *)(set->posted + set->count);
    set->hidden = (char *)(set->done_requests + set->count);
    set->statuses = set->hidden + set->count * sizeof(fr_word); // aligned as the words before it
    set->done_errors = (int *)(set->statuses + set->count * FR_STATUS_BYTES);
    return true;
}

static void set_requests(struct fr_request_set *set)
{
    if (set->class == FR_CLASS_GET_STATUS) {
        set->count = 1;
        set->requests = &set->by_value;
        fr_real_handle_store(&set->by_value, 0, fr_real_handle(set->args[0]));
    } else if (is_single(set->class)) {
        set->count = 1;
        set->requests = (const void *)set->args[0];
    } else {
        set->count = (int)set->args[0] > 0 ? (size_t)(int)set->args[0] : 0;
        set->requests = (const void *)set->args[1];
    }
}

// Whether the size of what an operation has received has to be known: else what is to be seen of an
// RTS stands in the application's memory.
static bool any_needs_status(const struct fr_request_set *set)
{
    for (size_t i = 0; set->tracked && i < set->count; i++) {
        const struct fr_request_op *op = set->ops[i];
        if (op && (op->schedule || op->send || op->partitions || !op->takes_rts ||
                   fr_request_op_is_staged(op)))
            return true;
    }
    return false;
}

// Gives MPI statuses of ours when the application ignores them and it matters: MPI's texts name
// what it was given.
static void set_statuses(struct fr_request_set *set)
{
    bool array = has_status_array(set->class);
    int arg = fr_real_rows[set->fn].arg_count - 1; // in all of these functions
    fr_word ignore = array ? fr_real_mpi.STATUSES_IGNORE : fr_real_mpi.STATUS_IGNORE;
    if (set->args[arg] != ignore) {
        set->statuses = (char *)set->args[arg];
        return;
    }
    bool same = array && set->class != FR_CLASS_WAITALL; // what MPI returns with statuses
    if (!same && !any_needs_status(set)) {
        set->statuses = NULL;
        return;
    }
    memset(set->statuses, 0, set->count * fr_real_mpi.status_bytes);
    set->args[arg] = FR_PTR(set->statuses);
}

void *fr_request_set_status(const struct fr_request_set *set, size_t index)
{
    return set->statuses ? set->statuses + index * fr_real_mpi.status_bytes : NULL;
}

static int *status_error(void *status)
{
    return (int *)((char *)status + fr_real_mpi.status_error_offset);
}

// A posted receive is complete. It becomes an operation of this call if it has brought anything.
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
    if (is_enquiry(set->class))
        return;
    fr_request_posted_forget(receive);
    set->posted[request] = NULL;
    set->forgotten++;
}

// Claims what belongs to a request that MPI has completed, by the value that it had.
static void look_up(struct fr_request_set *set, size_t request)
{
    const void *value = set->hidden + request * fr_real_mpi.handle_bytes;
    set->ops[request] = NULL;
    set->posted[request] = fr_request_posted_claim_late(fr_real_handle_load(value, 0));
    if (!set->posted[request])
        set->tracked += fr_request_table_claim(value, 1, &set->ops[request]);
}

static void add_done(struct fr_request_set *set, size_t request, void *status, int error)
{
    if (set->late)
        look_up(set, request);
    if (set->posted && set->posted[request])
        end_posted(set, request, status, error);
    if (!set->ops[request])
        return;
    set->done[set->done_count] = set->ops[request];
    set->done_statuses[set->done_count] = status;
    set->done_errors[set->done_count] = error;
    set->done_requests[set->done_count] = request;
    set->done_count++;
}

// Whether a request may be pending after an error of another, of which no status tells. What has
// completed is null, or persistent.
static bool may_pend(const struct fr_request_set *set, size_t index)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    int complete = 0;
    fr_word request = fr_real_handle_load(set->requests, index);
    if (request == fr_real_mpi.REQUEST_NULL)
        return false;
    if (!set->ops[index] || !set->ops[index]->persistent)
        return true;
    FR_MPI(Request_get_status, request, FR_PTR(&complete), FR_PTR(status));
    return !complete;
}

// What one request of all has ended with. Without a status, one that has received an RTS has not
// failed.
static int error_of(const struct fr_request_set *set, size_t index, int rc)
{
    void *status = fr_request_set_status(set, index);
    if (rc == fr_real_mpi.SUCCESS)
        return rc;
    if (!status)
        return may_pend(set, index) ? fr_real_mpi.ERR_PENDING : fr_real_mpi.SUCCESS;
    return rc == fr_real_mpi.ERR_IN_STATUS ? *status_error(status) : fr_real_mpi.SUCCESS;
}

static void add_all(struct fr_request_set *set, int rc)
{
    for (size_t i = 0; i < set->count; i++) {
        void *status = fr_request_set_status(set, i);
        int error = error_of(set, i, rc);
        if (error != fr_real_mpi.ERR_PENDING)
            add_done(set, i, status, error);
    }
}

static void add_some(struct fr_request_set *set, int rc)
{
    int count = *(const int *)set->args[2];
    const int *indices = (const int *)set->args[3];
    for (int i = 0; count != fr_real_mpi.UNDEFINED && i < count; i++) {
        void *status = fr_request_set_status(set, (size_t)i);
        int error = rc == fr_real_mpi.ERR_IN_STATUS ? *status_error(status) : fr_real_mpi.SUCCESS;
        add_done(set, (size_t)indices[i], status, error);
    }
}

static void add_any(struct fr_request_set *set, int rc)
{
    int flag_arg = fr_real_rows[set->fn].flag;
    int index = *(const int *)set->args[fr_real_rows[set->fn].index];
    bool flag = flag_arg < 0 || *(const int *)set->args[flag_arg];
    if (flag && index != fr_real_mpi.UNDEFINED)
        add_done(set, (size_t)index, fr_request_set_status(set, 0), rc);
}

static bool flag_is_set(const struct fr_request_set *set)
{
    return *(const int *)set->args[fr_real_rows[set->fn].flag];
}

// Lists the operations that the real call has completed.
static void list_done(struct fr_request_set *set, int rc)
{
    bool ok = rc == fr_real_mpi.SUCCESS;
    bool told = ok || rc == fr_real_mpi.ERR_IN_STATUS;
    switch (set->class) {
    case FR_CLASS_WAIT:
        add_done(set, 0, fr_request_set_status(set, 0), rc);
        break;
    case FR_CLASS_TEST:
    case FR_CLASS_GET_STATUS:
        if (!ok || flag_is_set(set))
            add_done(set, 0, fr_request_set_status(set, 0), rc);
        break;
    case FR_CLASS_WAITALL:
        if (told || !set->statuses)
            add_all(set, rc);
        break;
    case FR_CLASS_TESTALL: // another error than that of a request is one of the call
    case FR_CLASS_GET_STATUS_ALL:
        if (rc == fr_real_mpi.ERR_IN_STATUS || (ok && flag_is_set(set)))
            add_all(set, rc);
        break;
    case FR_CLASS_WAITANY:
    case FR_CLASS_TESTANY:
    case FR_CLASS_GET_STATUS_ANY:
        add_any(set, rc);
        break;
    default:
        if (told)
            add_some(set, rc);
        break;
    }
}

// Whether what had to be copied or received has failed. An inactive operation has told before.
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
                 count, fr_real_rows[first->fn].name, fr_core_status_text(first->failure));
}

// The statuses of the call that belong to none of its operations of ours: no error came with them.
static void clear_errors(struct fr_request_set *set)
{
    bool some = set->class == FR_CLASS_WAITSOME || set->class == FR_CLASS_TESTSOME ||
                set->class == FR_CLASS_GET_STATUS_SOME;
    size_t count = some ? (size_t) * (const int *)set->args[2] : set->count;
    for (size_t i = 0, d = 0; i < count; i++) { // operations are listed in the order of statuses
        if (d < set->done_count && set->done_statuses[d] == fr_request_set_status(set, i))
            d++;
        else
            *status_error(fr_request_set_status(set, i)) = fr_real_mpi.SUCCESS;
    }
}

// Whether the operation has failed in a way that the real MPI knows nothing of: also when a message
// that was received was longer than its buffer, though its RTS was not, or a part of a schedule
// failed.
static bool has_own_error(const struct fr_request_op *op, int code)
{
    bool is_told = op->cut != FR_CUT_NOT; // by MPI
    return has_failed(op) || (op->received && !is_told && code == fr_real_mpi.ERR_TRUNCATE) ||
           (op->schedule && op->schedule->error != fr_real_mpi.SUCCESS);
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

static int report_own_errors(struct fr_request_set *set, int rc)
{
    const struct fr_request_op *first = NULL;
    int code = fr_real_mpi.SUCCESS;
    bool array = has_status_array(set->class), tells = array && set->statuses;
    for (size_t i = 0; i < set->done_count && !first; i++) {
        if (!has_own_error(set->done[i], set->done_errors[i]))
            continue;
        first = set->done[i];
        code = set->done_errors[i];
    }
    if (!first)
        return rc;
    for (size_t i = 0; tells && i < set->done_count; i++)
        *status_error(set->done_statuses[i]) = set->done_errors[i];
    if (tells && rc == fr_real_mpi.SUCCESS)
        clear_errors(set);
    if (is_enquiry(set->class) && !has_failed(first))
        return rc;
    code = array ? fr_real_mpi.ERR_IN_STATUS : code;
    fr_request_set_raise(set, first->object_kind, first->object, code);
    return code;
}

// Open MPI 4 frees a persistent request that has failed.
static bool is_null(const struct fr_request_set *set, size_t request)
{
    return fr_real_handle_load(set->requests, request) == fr_real_mpi.REQUEST_NULL;
}

int fr_request_set_finish(struct fr_request_set *set, int rc)
{
    set->done_count = 0;
    if (!set->looked_up && !set->late)
        memset(set->ops, 0, set->count * sizeof(struct fr_request_op *));
    set->looked_up = true;
    list_done(set, rc);
    if (FR_UNLIKELY(set->out_of_memory)) {
        rc = fr_real_mpi.ERR_NO_MEM;
        fr_request_set_raise(set, 0, 0, rc);
    }
    if (!set->done_count)
        return rc;
    enum fr_status delivered =
        fr_request_deliver(set->done, set->done_statuses, set->done_errors, set->done_count);
    if (delivered != FR_OK)
        take_failures(set);
    rc = report_own_errors(set, rc);
    for (size_t i = 0; i < set->done_count && !is_enquiry(set->class); i++) {
        fr_request_table_end(set->done[i]);
        if (set->done[i]->persistent && !is_null(set, set->done_requests[i]))
            continue;
        fr_request_table_remove(set->done[i]);
        set->ops[set->done_requests[i]] = NULL;
        fr_request_op_free(set->done[i]);
    }
    return rc;
}

// Posted receives first, since they may become operations.
static bool claim(struct fr_request_set *set)
{
    if (!fr_request_posted_claim(set->requests, set->count, set->posted))
        set->posted = NULL;
    set->looked_up = atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) != 0;
    if (set->looked_up)
        set->tracked = fr_request_table_claim(set->requests, set->count, set->ops);
    return set->tracked || set->posted;
}

bool fr_request_set_claim(struct fr_request_set *set)
{
    set->posted = set->inline_posted;
    if (set->heap) // where it was at first
        set->posted = (struct fr_request_posted **)(set->done_statuses + set->count);
    return claim(set);
}

void fr_request_set_unclaim(struct fr_request_set *set)
{
    fr_request_posted_discount(set->forgotten);
    if (set->posted)
        fr_request_posted_unclaim(set->posted, set->count);
    if (set->tracked)
        fr_request_table_unclaim(set->ops, set->count);
    set->forgotten = 0;
    set->posted = NULL;
    set->tracked = 0;
}

// A copy takes long enough that the application, which may only ask, is to wait for one at most.
bool fr_request_set_find_deferred(struct fr_request_set *set)
{
    bool any = false;
    unsigned copies = 1;
    for (size_t i = 0; set->tracked && i < set->count; i++) {
        set->deferred[i] =
            set->ops[i] && !fr_request_poll(set->ops[i], &copies) ? set->ops[i] : NULL;
        any |= set->deferred[i] != NULL;
    }
    return any;
}

// What most calls are: all requests are complete, and none has brought an RTS.
static int wait_for_posted(struct fr_request_set *set)
{
    int rc = fr_real_call(set->fn, set->args);
    if (FR_UNLIKELY(rc != fr_real_mpi.SUCCESS ||
                    !fr_request_posted_end(set->posted, set->count, set->statuses)))
        return fr_request_set_finish(set, rc);
    set->posted = NULL;
    return rc;
}

// Whether what is completed is looked up afterwards, alone, which this begins: of a long list that
// is waited for again and again, one by one, the rest is then not looked at each time. Nothing of
// it is hidden from MPI or wants a status, nobody else looks at it meanwhile, and nobody leaves the
// call.
static bool begin_late(const struct fr_request_set *set)
{
    switch (set->class) {
    case FR_CLASS_TESTALL:
    case FR_CLASS_WAITANY:
    case FR_CLASS_TESTANY:
    case FR_CLASS_WAITSOME:
    case FR_CLASS_TESTSOME:
        return !fr_request_is_awaited() &&
               atomic_load_explicit(&fr_request_special_count, memory_order_acquire) == 0 &&
               fr_request_posted_begin_late();
    default:
        return false;
    }
}

// All that is looked up is complete then, and gone in the end.
static int look_up_late(struct fr_request_set *set)
{
    memcpy(set->hidden, set->requests, set->count * fr_real_mpi.handle_bytes);
    int rc = fr_real_call(set->fn, set->args);
    fr_request_posted_end_late();
    rc = fr_request_set_finish(set, rc);
    set->posted = NULL;
    set->tracked = 0;
    return rc;
}

// Whether there is nowhere to say which requests are complete, of which MPI shall tell.
static bool lacks_outputs(const struct fr_request_set *set)
{
    unsigned last = fr_real_rows[set->fn].arg_count - 1u; // a status, or all of them
    for (unsigned arg = is_single(set->class) ? 1 : 2; arg < last; arg++) {
        if (!set->args[arg])
            return true;
    }
    return false;
}

// Whether anything belongs to the requests of a list that there is no memory for: looks at as many
// at a time as the set has room for.
static bool is_any_ours(struct fr_request_set *set)
{
    const size_t count = set->count;
    const char *requests = set->requests;
    bool any = false;
    for (size_t first = 0; first < count && !any; first += FR_REQUEST_SHORT_LIST) {
        set->requests = requests + first * fr_real_mpi.handle_bytes;
        set->count = count - first < FR_REQUEST_SHORT_LIST ? count - first : FR_REQUEST_SHORT_LIST;
        set->posted = set->inline_posted;
        any = claim(set);
        fr_request_set_unclaim(set);
    }
    return any;
}

// MPI must not complete what is ours and then cannot be followed. It is not called, so that the
// application may try again.
static bool refuse_list(struct fr_request_set *set, int *result)
{
    if (!is_any_ours(set))
        return false;
    fr_error("out of memory for a list of %d requests", (int)set->args[0]);
    *result = fr_request_raise(0, 0, fr_real_mpi.ERR_NO_MEM);
    return true;
}

// Where a call says which request is complete, of any. An MPI that refuses the call writes nothing
// there, and what the application has there then says nothing.
struct answer {
    int *index, *flag;
    int index_before, flag_before;
};

static void begin_answer(const struct fr_request_set *set, struct answer *answer)
{
    *answer = (struct answer){.index = NULL};
    if (set->class != FR_CLASS_WAITANY && set->class != FR_CLASS_TESTANY &&
        set->class != FR_CLASS_GET_STATUS_ANY)
        return;
    int flag_arg = fr_real_rows[set->fn].flag;
    answer->index = (int *)set->args[fr_real_rows[set->fn].index];
    answer->index_before = *answer->index;
    *answer->index = fr_real_mpi.UNDEFINED;
    if (flag_arg < 0)
        return;
    answer->flag = (int *)set->args[flag_arg];
    answer->flag_before = *answer->flag;
    *answer->flag = 0;
}

// Puts back what was there, if nothing was written.
static void end_answer(const struct answer *answer)
{
    if (!answer->index || *answer->index != fr_real_mpi.UNDEFINED)
        return;
    *answer->index = answer->index_before;
    if (answer->flag && !*answer->flag)
        *answer->flag = answer->flag_before;
}

static void begin_set(struct fr_request_set *set, enum fr_fn fn, fr_word *args)
{
    set->fn = fn;
    set->class = fr_real_rows[fn].class;
    set->args = args;
    set->tracked = 0;
    set->forgotten = 0;
    set->looked_up = false;
    set->late = false;
    set->out_of_memory = false;
    set->raises = false;
    set->done_count = 0;
    set->heap = NULL;
    set_requests(set);
}

static void end_set(struct fr_request_set *set)
{
    fr_request_set_unclaim(set);
    free(set->heap);
    if (FR_UNLIKELY(set->raises))
        (void)fr_request_raise(set->error_kind, set->error_object, set->error);
}

int fr_request_completed(const struct fr_request_completed *call, int rc)
{
    struct fr_request_set set;
    begin_set(&set, call->fn, call->args);
    (void)set_storage(&set); // of a short list
    set.statuses = call->statuses;
    memset(set.posted, 0, set.count * sizeof(struct fr_request_posted *));
    for (size_t i = 0; i < call->found_count; i++)
        set.posted[call->found[i].index] = fr_request_posted_found(&call->found[i]);
    rc = fr_request_set_finish(&set, rc);
    end_set(&set);
    return rc;
}

bool fr_request_complete(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_request_set set;
    struct answer answer;
    fr_request_notice_awaited();
    begin_set(&set, fn, args);
    if (!set.requests || !set.count || lacks_outputs(&set))
        return false;
    if (!set_storage(&set))
        return refuse_list(&set, result);
    set.late = begin_late(&set);
    if (!set.late && !claim(&set)) {
        free(set.heap);
        return false;
    }
    set_statuses(&set);
    begin_answer(&set, &answer);
    if (set.late)
        *result = look_up_late(&set);
    else if (!set.tracked && !fr_request_is_awaited() &&
             (set.class == FR_CLASS_WAITALL || set.class == FR_CLASS_WAIT))
        *result = wait_for_posted(&set);
    else if (fr_request_set_find_deferred(&set))
        *result = fr_request_set_defer(&set);
    else
        *result = fr_request_set_finish(&set, fr_request_set_call(&set));
    if (*result != fr_real_mpi.SUCCESS)
        end_answer(&answer);
    end_set(&set);
    return true;
}
