// SPDX-License-Identifier: BSD-3-Clause
// Operations that no request completes: one-sided ones until their window is synchronised, and
// split collective file operations until their end call.
//
// A thread that synchronises a window completes what all threads have begun there. Operations
// whose bytes it copies back stay known until that is done, since the others' own calls must not
// return earlier. No operation is taken while the real MPI is called, since an error handler may
// never return.
#include "config.h"

#include "request/table.h"

#include "fabrail/core/wait.h"
#include "fabrail/request/errors.h"

#include <limits.h>

_Atomic size_t fr_request_pending_count;

// Operations that one thread is copying back.
struct delivery {
    struct fr_request_op *ops;
    struct delivery *next;
};

static struct fr_lock pending_lock = FR_LOCK_INIT;
static struct fr_request_op *pending FR_GUARDED_BY(pending_lock); // the latest first
static struct delivery *deliveries FR_GUARDED_BY(pending_lock);
static uint64_t begun FR_GUARDED_BY(pending_lock); // so many operations, ever

void fr_request_pend(struct fr_request_op *op, fr_word object)
{
    op->key = object;
    fr_core_lock(&pending_lock);
    op->rma.number = begun++;
    op->next = pending;
    pending = op;
    fr_core_unlock(&pending_lock);
    atomic_fetch_add_explicit(&fr_request_pending_count, 1, memory_order_release);
}

void fr_request_follow_window(struct fr_request_op *op)
{
    bool fetches = false;
    for (unsigned v = 0; v < op->view_count; v++)
        fetches = fetches || (op->views[v].lease.address && op->views[v].out_bytes);
    if (!fetches)
        return;
    op->rma.fetches = true;
    fr_core_lock(&pending_lock);
    op->rma.number = begun++;
    fr_core_unlock(&pending_lock);
    atomic_fetch_add_explicit(&fr_request_pending_count, 1, memory_order_release);
}

bool fr_request_sync_has(const struct fr_request_sync *sync, const struct fr_request_op *op,
                         fr_word window)
{
    return window == sync->window && op->rma.number < sync->end &&
           (sync->all || op->rma.target == sync->peer);
}

static bool is_of(const struct fr_request_sync *sync, const struct fr_request_op *op)
{
    return fr_request_sync_has(sync, op, op->key);
}

static bool any_of(const struct fr_request_sync *sync, const struct fr_request_op *list)
{
    while (list && !is_of(sync, list))
        list = list->next;
    return list != NULL;
}

static bool any_in_delivery(const struct fr_request_sync *sync) FR_REQUIRES(pending_lock)
{
    const struct delivery *delivery = deliveries;
    while (delivery && !any_of(sync, delivery->ops))
        delivery = delivery->next;
    return delivery != NULL;
}

bool fr_request_sync_begin(struct fr_request_sync *sync)
{
    fr_core_lock(&pending_lock);
    sync->end = begun;
    bool any = any_of(sync, pending) || any_in_delivery(sync);
    fr_core_unlock(&pending_lock);
    return any || fr_request_table_awaits(sync);
}

bool fr_request_sync_next(const struct fr_request_sync *sync, int *target)
{
    const int after = *target;
    int next = fr_request_table_next_target(sync, after);
    fr_core_lock(&pending_lock);
    for (const struct fr_request_op *op = pending; op; op = op->next) {
        if (is_of(sync, op) && op->rma.target > after && op->rma.target < next)
            next = op->rma.target;
    }
    fr_core_unlock(&pending_lock);
    *target = next;
    return next != INT_MAX;
}

// Takes the operations that a synchronisation completes out of the list. Returns them with the
// earliest first.
static struct fr_request_op *take(const struct fr_request_sync *sync) FR_REQUIRES(pending_lock)
{
    struct fr_request_op *taken = NULL;
    struct fr_request_op **link = &pending;
    while (*link) {
        struct fr_request_op *op = *link;
        if (!is_of(sync, op)) {
            link = &op->next;
            continue;
        }
        *link = op->next;
        op->next = taken;
        taken = op;
    }
    return taken;
}

static void delivery_begin(const struct fr_request_sync *sync, struct delivery *delivery)
{
    fr_core_lock(&pending_lock);
    delivery->ops = take(sync);
    delivery->next = deliveries;
    deliveries = delivery;
    fr_core_unlock(&pending_lock);
}

static void delivery_end(struct delivery *delivery)
{
    fr_core_lock(&pending_lock);
    struct delivery **link = &deliveries;
    while (*link != delivery)
        link = &(*link)->next;
    *link = delivery->next;
    fr_core_unlock(&pending_lock);
}

static void deliver(struct fr_request_op *list)
{
    for (struct fr_request_op *op = list; op; op = op->next) {
        void *no_status = NULL;
        int no_error = fr_abi_mpi.SUCCESS;
        op->failure = fr_request_deliver(&op, &no_status, &no_error, 1);
    }
}

// Waits for the copies of other threads. That takes no longer than a copy, and depends on no other
// process.
static void await_others(const struct fr_request_sync *sync)
{
    fr_core_lock(&pending_lock);
    while (any_in_delivery(sync)) {
        fr_core_unlock(&pending_lock);
        fr_wait_yield();
        fr_core_lock(&pending_lock);
    }
    fr_core_unlock(&pending_lock);
}

// Frees operations that are over. Returns the first that has failed, for the caller to free.
static struct fr_request_op *free_all(struct fr_request_op *list)
{
    struct fr_request_op *failed = NULL;
    size_t count = 0;
    while (list) {
        struct fr_request_op *op = list;
        list = op->next;
        count++;
        if (op->failure != FR_OK && !failed)
            failed = op;
        else
            fr_request_op_free(op);
    }
    atomic_fetch_sub_explicit(&fr_request_pending_count, count, memory_order_release);
    return failed;
}

// Copies back operations that have a request as well, and waits for those that other threads copy,
// which takes no longer than a copy. Returns the first failure. The calls that complete the
// requests are told of failures as well.
static enum fr_status fetch(const struct fr_request_sync *sync)
{
    enum fr_status first = FR_OK;
    while (fr_request_table_awaits(sync)) {
        struct fr_request_op *op = fr_request_table_begin_fetch(sync);
        enum fr_status status = op ? fr_request_fetch(op) : FR_OK;
        first = first == FR_OK ? status : first;
        if (!op)
            fr_wait_yield();
    }
    return first;
}

int fr_request_sync_end(const struct fr_request_sync *sync)
{
    struct delivery delivery;
    delivery_begin(sync, &delivery);
    deliver(delivery.ops);
    delivery_end(&delivery);
    struct fr_request_op *failed = free_all(delivery.ops);
    await_others(sync);
    enum fr_status fetched = fetch(sync);
    if (!failed && fetched != FR_OK)
        return fr_request_raise('w', sync->window, fr_request_error_code(fetched));
    if (!failed)
        return fr_abi_mpi.SUCCESS;
    return fr_request_fail_and_free(failed, failed->failure);
}

struct fr_request_op *fr_request_take(fr_word file)
{
    struct fr_request_sync sync = {.window = file, .all = true};
    fr_core_lock(&pending_lock);
    sync.end = begun;
    struct fr_request_op *op = take(&sync);
    fr_core_unlock(&pending_lock);
    if (op)
        atomic_fetch_sub_explicit(&fr_request_pending_count, 1, memory_order_release);
    return op;
}
