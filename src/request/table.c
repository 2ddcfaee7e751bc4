// SPDX-License-Identifier: BSD-3-Clause
// The side table: operations by the request that they are tied to. Some MPIs give several
// operations the same request value, that of one shared, completed request. So a key can hold a
// list.
#include "config.h"

#include "request/table.h"

#include "fabrail/core/wait.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/posted.h"
#include "fabrail/rndv/incoming.h"

#include <limits.h>

_Atomic size_t fr_request_tracked_count;
_Atomic size_t fr_request_special_count;
_Atomic size_t fr_request_active_count;
FR_TLS uint64_t fr_request_call;
FR_TLS uint64_t fr_request_outermost;
FR_TLS bool fr_request_any_abandoned;
_Atomic bool fr_request_has_handler;

static struct fr_lock table_lock = FR_LOCK_INIT;
static struct fr_request_op *table FR_GUARDED_BY(table_lock);
// The first in the table, and no operation. It stays: the table would otherwise be made and freed
// for each operation that is alone.
static struct fr_request_op anchor FR_GUARDED_BY(table_lock);
// Operations that found no memory for an entry in the table; searched one by one.
static struct fr_request_op *overflow FR_GUARDED_BY(table_lock);
static size_t early_count FR_GUARDED_BY(table_lock);
static size_t receive_count FR_GUARDED_BY(table_lock); // that an RTS may be brought to

static void overflow_add(struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    op->next = overflow;
    overflow = op;
}

// Makes the table. Returns false without memory.
static bool make_table(void) FR_REQUIRES(table_lock)
{
    anchor.key = FR_PTR(&anchor); // which is no request
    HASH_ADD(hh, table, key, sizeof(anchor.key), &anchor);
    return FR_HASH_HAS(&anchor);
}

static FR_OFTEN void insert(struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    struct fr_request_op *first = NULL;
    unsigned hash;
    if (FR_UNLIKELY(!table) && !make_table()) {
        overflow_add(op);
        return;
    }
    HASH_VALUE(&op->key, sizeof(op->key), hash);
    HASH_FIND_BYHASHVALUE(hh, table, &op->key, sizeof(op->key), hash, first);
    if (first) {
        op->next = first->next;
        first->next = op;
        return;
    }
    op->next = NULL;
    HASH_ADD_BYHASHVALUE(hh, table, key, sizeof(op->key), hash, op);
    if (!FR_HASH_HAS(op))
        overflow_add(op);
}

static bool unlink_from(struct fr_request_op **list, struct fr_request_op *op)
{
    for (struct fr_request_op **link = list; *link; link = &(*link)->next) {
        if (*link == op) {
            *link = op->next;
            return true;
        }
    }
    return false;
}

// All operations, one after the other: each list of the table, then the overflow.
struct walk {
    struct fr_request_op *first; // of the list
    struct fr_request_op *op;
};

static struct fr_request_op *walk_first(struct walk *walk) FR_REQUIRES(table_lock)
{
    struct fr_request_op *first = table ? table->hh.next : NULL; // behind the anchor
    walk->first = walk->op = first ? first : overflow;
    return walk->op;
}

static struct fr_request_op *walk_next(struct walk *walk) FR_REQUIRES(table_lock)
{
    walk->op = walk->op->next;
    if (!walk->op && FR_HASH_HAS(walk->first)) {
        walk->first = walk->first->hh.next;
        walk->first = walk->first ? walk->first : overflow;
        walk->op = walk->first;
    }
    return walk->op;
}

static void end_early(struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    early_count -= op->claim.early;
    op->claim.early = false;
}

// Adds to a counter, which only the holder of the lock changes.
static void add_to(_Atomic size_t *counter, size_t more) FR_REQUIRES(table_lock)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_release);
}

static void count_active(struct fr_request_op *op, bool counts) FR_REQUIRES(table_lock)
{
    if (op->counts != counts)
        add_to(&fr_request_active_count, counts ? 1 : (size_t)-1);
    op->counts = counts;
}

static void count_in(struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    add_to(&fr_request_tracked_count, 1);
    add_to(&fr_request_special_count, !op->plain);
    receive_count += op->receive.takes_rts;
    count_active(op, !op->persistent || op->active);
}

static void count_out(struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    count_active(op, false);
    add_to(&fr_request_special_count, op->plain ? 0 : (size_t)-1);
    receive_count -= op->receive.takes_rts;
    add_to(&fr_request_tracked_count, (size_t)-1);
}

static bool is_claimed(const struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    return op->claim.held &&
           !(op->claim.thread == &fr_request_call && op->claim.call != fr_request_call);
}

// Removes the first operation of a list. Its follower takes its place.
static void remove_first(struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    struct fr_request_op *follower = op->next;
    HASH_DEL(table, op);
    op->hh.tbl = NULL;
    while (follower) {
        struct fr_request_op *rest = follower->next;
        insert(follower);
        follower = rest;
    }
}

void fr_request_table_remove(struct fr_request_op *op)
{
    struct fr_request_op *first = NULL;
    fr_core_lock_in_call(&table_lock);
    if (FR_HASH_HAS(op)) {
        remove_first(op);
    } else {
        HASH_FIND(hh, table, &op->key, sizeof(op->key), first);
        if (!first || !unlink_from(&first->next, op))
            unlink_from(&overflow, op);
    }
    count_out(op);
    fr_core_unlock(&table_lock);
    fr_request_expect(-op->expects);
    if (op->rma.fetches)
        atomic_fetch_sub_explicit(&fr_request_pending_count, 1, memory_order_release);
}

// Returns whether a call of this thread that is not the present one has claimed an operation whose
// request does not outlive its completion.
static bool may_be_abandoned(const struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    return !op->persistent && (op->claim.abandoned || (op->claim.held && !is_claimed(op)));
}

// Returns whether the call that has claimed an operation was abandoned for certain. Otherwise it
// may be going on, and this thread be in its error handler.
static bool is_abandoned(const struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    return op->claim.thread == &fr_request_call &&
           (!op->claim.held || op->claim.call < fr_request_outermost);
}

// Marks the operations of a list under this request that may have been abandoned. Returns one of
// them, NULL if there is none.
static struct fr_request_op *mark_abandoned(struct fr_request_op *list, fr_word request)
    FR_REQUIRES(table_lock)
{
    for (struct fr_request_op *op = list; op; op = op->next) {
        if (op->key != request || !may_be_abandoned(op))
            continue;
        op->claim.abandoned = true;
        if (is_abandoned(op))
            return op;
    }
    return NULL;
}

static struct fr_request_op *find_abandoned(fr_word request)
{
    struct fr_request_op *first = NULL;
    fr_core_lock_in_call(&table_lock);
    HASH_FIND(hh, table, &request, sizeof(request), first);
    struct fr_request_op *op = mark_abandoned(first, request);
    op = op ? op : mark_abandoned(overflow, request);
    if (op)
        end_early(op);
    fr_core_unlock(&table_lock);
    return op;
}

// No lock is held in between: no other thread takes what this one has claimed.
void fr_request_table_drop_abandoned(fr_word request)
{
    struct fr_request_op *op;
    while ((op = find_abandoned(request))) {
        fr_request_table_remove(op);
        fr_request_op_free(op);
    }
}

// Notes of an operation whether it is a plain receive. Notes too whether senders may depend on this
// process to fetch a message for it, which it does whenever it waits for anything.
static void describe(struct fr_request_op *op)
{
    bool takes_once = op->receive.takes_rts && !op->persistent && !op->schedule;
    bool staged = takes_once && fr_request_op_is_staged(op);
    op->expects = staged;
    op->plain = takes_once && !staged && !op->send && !op->parts.count;
}

FR_OFTEN void fr_request_table_add(struct fr_request_op *op, fr_word request)
{
    fr_request_table_make_way(request);
    if (op->key != request) // else another thread may be going on with its schedule, and read it
        op->key = request;
    describe(op);
    fr_core_lock_in_call(&table_lock);
    insert(op);
    if (op->claim.held)
        fr_request_claim(op);
    early_count += op->claim.early;
    count_in(op);
    fr_core_unlock(&table_lock);
    fr_request_expect(op->expects);
    if (FR_UNLIKELY(!fr_request_serial))
        (void)fr_request_attendant_wake();
}

void fr_request_table_begin(struct fr_request_op *op)
{
    fr_core_lock_in_call(&table_lock);
    op->active = true;
    count_active(op, true);
    fr_core_unlock(&table_lock);
    if (FR_UNLIKELY(!fr_request_serial))
        (void)fr_request_attendant_wake();
}

void fr_request_show(struct fr_request_op *op)
{
    op->active = true;
    op->claim.held = true;
    fr_request_table_add(op, FR_PTR(op));
}

void fr_request_hide(struct fr_request_op *op)
{
    fr_request_table_remove(op);
    op->key = 0;
    op->claim.held = false;
}

static bool is_free(const struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    return !op->claim.abandoned && !is_claimed(op);
}

// Finds the first operation of a request. Programs mostly list requests in the order in which they
// have made them, so the one behind `before`, which may be NULL, is tried first.
static struct fr_request_op *find_first(fr_word request, const struct fr_request_op *before)
    FR_REQUIRES(table_lock)
{
    struct fr_request_op *op = before && FR_HASH_HAS(before) ? before->hh.next : NULL;
    if (op && op->key == request)
        return op;
    HASH_FIND(hh, table, &request, sizeof(request), op);
    return op;
}

static struct fr_request_op *find_unclaimed(fr_word request, const struct fr_request_op *before)
    FR_REQUIRES(table_lock)
{
    struct fr_request_op *op = find_first(request, before);
    while (op && !is_free(op))
        op = op->next;
    if (op)
        return op;
    for (op = overflow; op; op = op->next) {
        if (op->key == request && is_free(op))
            return op;
    }
    return NULL;
}

struct fr_request_op *fr_request_table_find_partitioned(fr_word request)
{
    struct fr_request_op *op = NULL;
    fr_core_lock_in_call(&table_lock);
    HASH_FIND(hh, table, &request, sizeof(request), op);
    while (op && !op->parts.count)
        op = op->next;
    for (struct fr_request_op *other = op ? NULL : overflow; other && !op; other = other->next)
        op = other->key == request && other->parts.count ? other : NULL;
    fr_core_unlock(&table_lock);
    return op;
}

static bool is_early(fr_word request) FR_REQUIRES(table_lock)
{
    struct fr_request_op *op = NULL;
    HASH_FIND(hh, table, &request, sizeof(request), op);
    for (; op; op = op->next) {
        if (op->claim.early && is_claimed(op))
            return true;
    }
    for (op = overflow; op; op = op->next) {
        if (op->key == request && op->claim.early && is_claimed(op))
            return true;
    }
    return false;
}

// Finds an operation that nobody has claimed, and waits for those that another thread is just
// receiving. `before` is one that this thread has claimed before, or NULL.
static struct fr_request_op *find_idle(fr_word request, const struct fr_request_op *before)
    FR_REQUIRES(table_lock)
{
    while (FR_UNLIKELY(early_count > 0) && is_early(request)) {
        fr_core_unlock(&table_lock);
        fr_wait_yield();
        fr_core_lock_in_call(&table_lock);
    }
    return find_unclaimed(request, before);
}

size_t fr_request_table_claim(const void *requests, size_t count, struct fr_request_op **ops)
{
    size_t found = 0;
    const struct fr_request_op *before = NULL;
    fr_core_lock_in_call(&table_lock);
    for (size_t i = 0; i < count; i++) {
        fr_word request = fr_abi_handle_load(requests, i);
        struct fr_request_op *op =
            request == fr_abi_mpi.REQUEST_NULL ? NULL : find_idle(request, before);
        ops[i] = op;
        if (!op)
            continue;
        op->claim.again = op->claim.held && is_abandoned(op);
        fr_request_claim(op);
        end_early(op); // of a look that was abandoned
        before = op;
        found++;
    }
    fr_core_unlock(&table_lock);
    return found;
}

static bool may_claim_early(const struct fr_request_op *op) FR_REQUIRES(table_lock)
{
    return op->receive.takes_rts && !op->claim.held && !op->delivered && op->active &&
           !op->claim.abandoned;
}

size_t fr_request_table_claim_receives(struct fr_request_op **ops, size_t max, size_t skip)
{
    size_t count = 0;
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    struct fr_request_op *op = receive_count > 0 ? walk_first(&walk) : NULL;
    for (; op && count < max; op = walk_next(&walk)) {
        if (!may_claim_early(op) || (skip > 0 && skip--))
            continue;
        fr_request_claim(op);
        op->claim.early = true;
        early_count++;
        ops[count++] = op;
    }
    fr_core_unlock(&table_lock);
    return count;
}

void fr_request_table_end(struct fr_request_op *op)
{
    fr_core_lock_in_call(&table_lock);
    op->active = false;
    if (op->persistent)
        count_active(op, false);
    fr_core_unlock(&table_lock);
}

// Operations leave the table, or end, before the application's buffers may go. Those of a call of
// this thread that was abandoned have not ended.
size_t fr_request_table_take_incoming(struct fr_rndv_incoming *incoming, size_t max)
{
    size_t count = 0;
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    for (struct fr_request_op *op = walk_first(&walk); op && count < max; op = walk_next(&walk)) {
        bool is_abandoned = op->claim.held && !is_claimed(op);
        count += !is_abandoned && fr_request_holds_rts(op, &incoming[count]) &&
                 !fr_rndv_incoming_take_known(&incoming[count]);
    }
    fr_core_unlock(&table_lock);
    return count;
}

static bool is_fetched_by(const struct fr_request_sync *sync, const struct fr_request_op *op)
{
    return op->rma.fetches && op->rma.fetched != FR_COPY_DONE &&
           fr_request_sync_has(sync, op, op->object);
}

bool fr_request_table_awaits(const struct fr_request_sync *sync)
{
    bool any = false;
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    for (struct fr_request_op *op = walk_first(&walk); op && !any; op = walk_next(&walk))
        any = is_fetched_by(sync, op);
    fr_core_unlock(&table_lock);
    return any;
}

int fr_request_table_next_target(const struct fr_request_sync *sync, int after)
{
    int next = INT_MAX;
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    for (struct fr_request_op *op = walk_first(&walk); op; op = walk_next(&walk)) {
        if (is_fetched_by(sync, op) && op->rma.target > after && op->rma.target < next)
            next = op->rma.target;
    }
    fr_core_unlock(&table_lock);
    return next;
}

struct fr_request_op *fr_request_table_begin_fetch(const struct fr_request_sync *sync)
{
    struct fr_request_op *found = NULL;
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    for (struct fr_request_op *op = walk_first(&walk); op && !found; op = walk_next(&walk)) {
        unsigned char state = FR_COPY_AWAITED;
        if (op->rma.fetches && fr_request_sync_has(sync, op, op->object) &&
            atomic_compare_exchange_strong(&op->rma.fetched, &state, FR_COPY_BEGUN))
            found = op;
    }
    fr_core_unlock(&table_lock);
    return found;
}

bool fr_request_needs_comm(fr_word comm)
{
    bool needed = false;
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    for (struct fr_request_op *op = walk_first(&walk); op && !needed; op = walk_next(&walk))
        needed = op->schedule && op->object == comm;
    fr_core_unlock(&table_lock);
    return needed || fr_request_advances_on(comm);
}

void fr_request_comm_change(fr_word comm, char before, char after)
{
    fr_request_posted_promote_on(comm);
    fr_core_lock_in_call(&table_lock);
    struct walk walk;
    for (struct fr_request_op *op = walk_first(&walk); op; op = walk_next(&walk))
        fr_request_op_comm_change(op, comm, before, after);
    fr_core_unlock(&table_lock);
    fr_request_freed_comm_change(comm, before, after);
}

void fr_request_table_unclaim(struct fr_request_op *const *ops, size_t count)
{
    fr_core_lock_in_call(&table_lock);
    for (size_t i = 0; i < count; i++) {
        if (!ops[i])
            continue;
        end_early(ops[i]);
        ops[i]->claim.held = false;
    }
    fr_core_unlock(&table_lock);
}
