// SPDX-License-Identifier: BSD-3-Clause
// The retry queue: processes with which this one has something to do now, or once a time has come.
// In a job of thousands only these are looked at.
#include "config.h"

#include "rndv/rail_connect.h"

#include "fabrail/core/time.h"

enum { DOUBLINGS = 6 }; // the most doublings of the time until something is tried again

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_list busy FR_GUARDED_BY(lock) = FR_LIST_INIT(busy);
static struct fr_list waiting FR_GUARDED_BY(lock) = FR_LIST_INIT(waiting); // and not busy
static _Atomic unsigned busy_count;
static _Atomic int64_t next_ns = INT64_MAX; // no turn's time comes before this

static void make_busy(struct fr_rndv_turn *turn) FR_REQUIRES(lock)
{
    if (turn->busy)
        return;
    if (turn->waits)
        fr_list_remove(&turn->entry);
    fr_list_push_back(&busy, &turn->entry);
    turn->busy = true;
    atomic_fetch_add_explicit(&busy_count, 1, memory_order_release);
}

static void put_by(struct fr_rndv_turn *turn) FR_REQUIRES(lock)
{
    fr_list_push_back(&waiting, &turn->entry);
    if (turn->due_ns < atomic_load_explicit(&next_ns, memory_order_relaxed))
        atomic_store_explicit(&next_ns, turn->due_ns, memory_order_relaxed);
}

void fr_rndv_retry_queue_add(struct fr_rndv_turn *turn)
{
    fr_core_lock(&lock);
    turn->news = true;
    make_busy(turn);
    fr_core_unlock(&lock);
}

// A turn that has gone well for as long as the longest time starts with the shortest one again.
void fr_rndv_retry_queue_wait(struct fr_rndv_turn *turn)
{
    int64_t first_ns = (int64_t)fr_rail_options().retry_ns, now = fr_time_ns();
    fr_core_lock(&lock);
    if (!turn->waits) {
        if (now - turn->due_ns >= first_ns << DOUBLINGS)
            turn->waited = 0;
        turn->due_ns = now + (first_ns << turn->waited);
        turn->waited += turn->waited < DOUBLINGS;
        turn->waits = true;
        if (!turn->busy)
            put_by(turn);
    }
    fr_core_unlock(&lock);
}

void fr_rndv_retry_queue_forget(struct fr_rndv_turn *turn)
{
    fr_core_lock(&lock);
    if (turn->waits && !turn->busy)
        fr_list_remove(&turn->entry);
    turn->waits = false;
    fr_core_unlock(&lock);
}

static void wake(int64_t now)
{
    int64_t next = INT64_MAX;
    fr_core_lock(&lock);
    for (struct fr_list *at = waiting.next; at != &waiting;) {
        struct fr_rndv_turn *turn = FR_LIST_ENTRY(at, struct fr_rndv_turn, entry);
        at = at->next;
        if (turn->due_ns <= now)
            make_busy(turn);
        else if (turn->due_ns < next)
            next = turn->due_ns;
    }
    atomic_store_explicit(&next_ns, next, memory_order_relaxed);
    fr_core_unlock(&lock);
}

bool fr_rndv_retry_queue_is_due(void)
{
    int64_t next = atomic_load_explicit(&next_ns, memory_order_relaxed);
    if (FR_UNLIKELY(next != INT64_MAX)) {
        int64_t now = fr_time_ns();
        if (now >= next)
            wake(now);
    }
    return atomic_load_explicit(&busy_count, memory_order_acquire) > 0;
}

struct fr_rndv_turn *fr_rndv_retry_queue_next(const struct fr_rndv_turn *turn)
{
    fr_core_lock(&lock);
    struct fr_list *at = turn != NULL ? turn->entry.next : busy.next;
    bool is_last = at == &busy;
    fr_core_unlock(&lock);
    return is_last ? NULL : FR_LIST_ENTRY(at, struct fr_rndv_turn, entry);
}

bool fr_rndv_retry_queue_take(struct fr_rndv_turn *turn)
{
    fr_core_lock(&lock);
    turn->news = false;
    bool due = turn->waits && fr_time_ns() >= turn->due_ns;
    turn->waits = turn->waits && !due;
    fr_core_unlock(&lock);
    return due;
}

void fr_rndv_retry_queue_rest(struct fr_rndv_turn *turn)
{
    fr_core_lock(&lock);
    if (!turn->news) {
        fr_list_remove(&turn->entry);
        turn->busy = false;
        atomic_fetch_sub_explicit(&busy_count, 1, memory_order_relaxed);
        if (turn->waits)
            put_by(turn);
    }
    fr_core_unlock(&lock);
}

void fr_rndv_retry_queue_close(void)
{
    fr_core_lock(&lock);
    fr_list_init(&busy);
    fr_list_init(&waiting);
    fr_core_unlock(&lock);
    atomic_store_explicit(&busy_count, 0, memory_order_relaxed);
    atomic_store_explicit(&next_ns, INT64_MAX, memory_order_relaxed);
}
