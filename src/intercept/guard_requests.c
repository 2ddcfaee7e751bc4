// SPDX-License-Identifier: BSD-3-Clause
// Operations with requests, from their start to the call that completes them.
//
// A call takes the operations of its requests out of the table, and afterwards puts back those that
// are not complete: MPI may give out the value of a request again as soon as that is complete.
#include "config.h"

#include "fabrail/request/set.h"
#include "intercept/guard.h"

#include <stdlib.h>

static struct fr_lock table_lock = FR_LOCK_INIT;
static struct fr_guard_op *table FR_GUARDED_BY(table_lock);

static struct fr_guard_op *take(fr_word request)
{
    struct fr_guard_op *found = NULL;
    fr_core_lock(&table_lock);
    HASH_FIND(hh, table, &request, sizeof(request), found);
    if (found)
        HASH_DELETE(hh, table, found);
    fr_core_unlock(&table_lock);
    return found;
}

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

// Whether there is anything to do when the request is started or complete.
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

// The requests of a call, and the operations taken for them.
struct list {
    struct fr_request_set set; // what fr_request_each_done wants; the first member
    const char *requests;
    struct fr_guard_op **taken;
    size_t count;
    struct fr_guard_op *few[FR_REQUEST_SHORT_LIST];
};

// Takes the operations of requests. Returns whether there are any; else there is nothing to free.
static bool take_all(struct list *list, const void *requests, size_t count)
{
    bool any = false;
    list->requests = requests;
    list->count = list->set.count = requests ? count : 0;
    list->taken = count <= FR_REQUEST_SHORT_LIST ? list->few : malloc(count * sizeof(*list->taken));
    if (!list->taken)
        return false;
    for (size_t i = 0; i < list->count; i++) {
        list->taken[i] = take(fr_abi_handle_load(requests, i));
        any = any || list->taken[i];
    }
    if (!any && list->taken != list->few)
        free(list->taken);
    return any;
}

static bool end_done(struct fr_request_set *set, size_t first, size_t count, char *statuses, int rc)
{
    struct list *list = (struct list *)set;
    (void)statuses;
    (void)rc;
    for (size_t i = first; i < first + count; i++) {
        if (list->taken[i])
            fr_guard_end(list->taken[i]);
    }
    return true;
}

// Puts back what is not over. A request that is over is null, unless it is persistent.
static void put_back(struct list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        bool over = fr_abi_handle_load(list->requests, i) == fr_abi_mpi.REQUEST_NULL;
        if (list->taken[i] && over)
            fr_guard_op_free(list->taken[i]);
        else if (list->taken[i])
            put(list->taken[i], fr_abi_handle_load(list->requests, i));
    }
    if (list->taken != list->few)
        free(list->taken);
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
    for (size_t i = 0; i < list.count && any; i++) {
        if (!list.taken[i])
            continue;
        list.taken[i]->site = fr_intercept_call_site();
        if (fr_guard_measure(list.taken[i]))
            fr_guard_begin(list.taken[i]);
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
