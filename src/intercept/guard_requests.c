// SPDX-License-Identifier: BSD-3-Clause
// Operations with requests, from their start to the call that completes them.
//
// A call takes the operations of its requests out of the table, and afterwards puts back those that
// are not complete: MPI may give out the value of a request again as soon as that is complete. An
// error handler may leave the call, so that the thread's next one finds what it had in hand.
#include "config.h"

#include "fabrail/request/set.h"
#include "intercept/guard.h"

#include <stdlib.h>

static struct fr_lock table_lock = FR_LOCK_INIT;
static struct fr_guard_op *table FR_GUARDED_BY(table_lock);

// Values that several requests have had at a time, the last ones.
static fr_word shared[16] FR_GUARDED_BY(table_lock);
static unsigned shared_count FR_GUARDED_BY(table_lock);

static bool is_shared(fr_word request) FR_REQUIRES(table_lock)
{
    bool found = false;
    for (unsigned i = 0; i < shared_count && i < FR_ARRAY_LENGTH(shared) && !found; i++)
        found = shared[i] == request;
    return found;
}

// Some MPIs give one value to all requests that are complete at once. Which of them a call
// completes cannot be told then. So none is looked at, from the first two on.
static void put(struct fr_guard_op *guarded, fr_word request)
{
    struct fr_guard_op *other = NULL;
    guarded->request = request;
    fr_core_lock(&table_lock);
    HASH_FIND(hh, table, &guarded->request, sizeof(guarded->request), other);
    bool tells = !other && !is_shared(guarded->request);
    if (other) {
        HASH_DELETE(hh, table, other);
        shared[shared_count++ % FR_ARRAY_LENGTH(shared)] = guarded->request;
    }
    if (tells)
        HASH_ADD(hh, table, request, sizeof(guarded->request), guarded);
    bool kept = tells && FR_HASH_HAS(guarded);
    fr_core_unlock(&table_lock);
    fr_guard_op_free(other);
    if (!kept)
        fr_guard_op_free(guarded);
}

// Returns whether there is anything to do when the request is started or complete.
static bool matters(const struct fr_guard_op *guarded)
{
    bool reads = false;
    for (unsigned v = 0; v < guarded->op->view_count; v++)
        reads = reads || (guarded->is_known[v] && !guarded->op->views[v].out_bytes);
    return reads || guarded->starts;
}

void fr_guard_keep(struct fr_guard_op *guarded, fr_word request)
{
    if (request != fr_abi_mpi.REQUEST_NULL && matters(guarded))
        put(guarded, request);
    else
        fr_guard_op_free(guarded);
}

// The operations that a call of this thread has in hand.
struct hold {
    struct hold *outer; // of the call from which this one is made
    uint64_t call;
    size_t count;
    struct fr_guard_op *taken[]; // by request
};
static FR_TLS struct hold *innermost;

static struct hold *hold_new(size_t count)
{
    struct hold *hold = calloc(1, sizeof(*hold) + count * sizeof(hold->taken[0]));
    if (!hold)
        return NULL;
    hold->outer = innermost;
    hold->call = fr_request_call;
    hold->count = count;
    return innermost = hold;
}

// Gives up what a call had that an error handler has left. It is not known which of its operations
// are over. The request of a persistent one lasts until the program frees it.
static void give_up(struct hold *hold)
{
    innermost = hold->outer;
    for (size_t i = 0; i < hold->count; i++) {
        struct fr_guard_op *guarded = hold->taken[i];
        if (!guarded || !guarded->starts || guarded->request == fr_abi_mpi.REQUEST_NULL) {
            fr_guard_op_free(guarded);
            continue;
        }
        guarded->is_active = false;
        put(guarded, guarded->request);
    }
    free(hold);
}

static void give_up_abandoned(void)
{
    while (innermost && innermost->call < fr_request_outermost)
        give_up(innermost);
}

// Calls made from inside of this one, which are over, may have been abandoned.
static void hold_free(struct hold *hold)
{
    while (innermost != hold)
        give_up(innermost);
    innermost = hold->outer;
    free(hold);
}

static struct fr_guard_op *take(fr_word request)
{
    struct fr_guard_op *found = NULL;
    give_up_abandoned();
    fr_core_lock(&table_lock);
    HASH_FIND(hh, table, &request, sizeof(request), found);
    if (found)
        HASH_DELETE(hh, table, found);
    fr_core_unlock(&table_lock);
    return found;
}

int fr_guard_call_with(struct fr_guard_op *guarded, enum fr_fn fn, fr_word *args)
{
    give_up_abandoned();
    struct hold *hold = hold_new(1);
    if (hold)
        hold->taken[0] = guarded;
    int result = fr_guard_call(fn, args);
    if (hold)
        hold_free(hold);
    return result;
}

// The requests of a call, and the operations taken for them, NULL for none.
struct list {
    struct fr_request_set set; // what fr_request_each_done wants; the first member
    const char *requests;
    struct hold *hold;
};

// Takes the operations of requests. Returns whether there are any; else there is nothing to free.
static bool take_all(struct list *list, const void *requests, size_t count)
{
    list->requests = requests;
    list->hold = NULL;
    list->set.count = requests ? count : 0;
    for (size_t i = 0; i < list->set.count; i++) {
        struct fr_guard_op *guarded = take(fr_abi_handle_load(requests, i));
        if (guarded && !list->hold)
            list->hold = hold_new(count);
        if (guarded && list->hold)
            list->hold->taken[i] = guarded;
        else
            fr_guard_op_free(guarded);
    }
    return list->hold;
}

static bool end_done(struct fr_request_set *set, size_t first, size_t count, char *statuses, int rc)
{
    struct list *list = (struct list *)set;
    (void)statuses;
    (void)rc;
    for (size_t i = first; i < first + count; i++) {
        if (list->hold->taken[i])
            fr_guard_end(list->hold->taken[i]);
    }
    return true;
}

// Puts back what is not over. A request that is over is null, unless it is persistent.
static void put_back(struct list *list)
{
    for (size_t i = 0; i < list->set.count; i++) {
        struct fr_guard_op *guarded = list->hold->taken[i];
        fr_word request = fr_abi_handle_load(list->requests, i);
        if (guarded && request == fr_abi_mpi.REQUEST_NULL)
            fr_guard_op_free(guarded);
        else if (guarded)
            put(guarded, request);
    }
    hold_free(list->hold);
}

// The program may write to a buffer as soon as a call says that the operation is complete, even one
// that leaves the request as it is.
bool fr_guard_complete(enum fr_fn fn, fr_word *args, int *result)
{
    struct fr_request_form form = fr_request_form_of(fr_abi_rows[fn].class);
    char statuses[FR_STATUS_BYTES];
    _Alignas(8) char asked[8];
    struct list list;
    bool one = form.of == FR_OF_ONE;
    size_t count = one ? 1 : (int)args[0] > 0 ? (size_t)(int)args[0] : 0;
    const void *requests = (const void *)args[one ? 0 : 1];
    if (one && form.asks) { // the request itself is the argument
        fr_abi_handle_store(asked, 0, fr_abi_handle(args[0]));
        requests = asked;
    }
    if (!take_all(&list, requests, count)) {
        *result = fr_guard_call(fn, args);
        return true;
    }
    list.set.statuses = statuses;
    *result = fr_guard_call(fn, args);
    if (*result == fr_abi_mpi.SUCCESS)
        (void)fr_request_each_done(&list.set, form, args, *result, true, end_done);
    put_back(&list);
    return true;
}

// A request may have another value once it is started: Open MPI makes a new one for a buffered send
// whose last message is on its way.
bool fr_guard_start(enum fr_fn fn, fr_word *args, int *result)
{
    struct list list;
    bool one = fr_abi_rows[fn].class == FR_CLASS_START;
    size_t count = one ? 1 : (int)args[0] > 0 ? (size_t)(int)args[0] : 0;
    bool any = take_all(&list, (const void *)args[one ? 0 : 1], count);
    for (size_t i = 0; any && i < count; i++) {
        struct fr_guard_op *guarded = list.hold->taken[i];
        if (!guarded)
            continue;
        guarded->site = fr_intercept_call_site();
        if (fr_guard_measure(guarded))
            fr_guard_begin(guarded);
    }
    *result = fr_guard_call(fn, args);
    if (any)
        put_back(&list);
    return true;
}

bool fr_guard_free(enum fr_fn fn, fr_word *args, int *result)
{
    const void *request = (const void *)args[0];
    if (request)
        fr_guard_op_free(take(fr_abi_handle_load(request, 0)));
    *result = fr_guard_call(fn, args);
    return true;
}

// The partitions of a send are the program's until they are ready. They are waited for, and not
// looked at.
bool fr_guard_pready(enum fr_fn fn, fr_word *args, int *result)
{
    fr_word request = fr_abi_handle(args[fr_abi_rows[fn].one_request]);
    struct fr_guard_op *guarded = NULL;
    fr_core_lock(&table_lock); // the request cannot be complete before all its partitions are ready
    HASH_FIND(hh, table, &request, sizeof(request), guarded);
    fr_core_unlock(&table_lock);
    if (guarded && guarded->first >= 0)
        fr_guard_wait(guarded);
    *result = fr_guard_call(fn, args);
    return true;
}
