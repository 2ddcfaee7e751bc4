// SPDX-License-Identifier: BSD-3-Clause
// Detached sends: their operations have left them, so they are over for the program. Their
// receivers have not pulled all bytes yet, or MPI still has fragments of them.
#include "config.h"

#include "rndv/send.h"

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_list left FR_GUARDED_BY(lock) = FR_LIST_INIT(left);
_Atomic size_t fr_rndv_detached_count;

void fr_rndv_detached_add(struct fr_rndv_send *send)
{
    fr_core_lock(&lock);
    fr_list_push_front(&left, &send->link);
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&fr_rndv_detached_count, 1, memory_order_release);
    fr_core_errands_change(false, true);
}

// Moves the whole list to one of the caller's own. Other threads look after nothing meanwhile.
static bool take_left(struct fr_list *taken)
{
    fr_list_init(taken);
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&left)) {
        struct fr_list *link = left.prev; // the oldest first
        fr_list_remove(link);
        fr_list_push_front(taken, link);
    }
    fr_core_unlock(&lock);
    return !fr_list_is_empty(taken);
}

void fr_rndv_detached_look_after(void)
{
    struct fr_list taken, others;
    if (FR_LIKELY(atomic_load_explicit(&fr_rndv_detached_count, memory_order_acquire) == 0) ||
        !take_left(&taken))
        return;
    fr_list_init(&others);
    while (!fr_list_is_empty(&taken)) {
        struct fr_rndv_send *send = FR_LIST_ENTRY(taken.prev, struct fr_rndv_send, link);
        unsigned index = send->index;
        fr_list_remove(&send->link);
        if (!fr_rndv_send_try_hold(index)) { // maybe by a function that this one runs beneath
            fr_list_push_front(&others, &send->link);
            continue;
        }
        bool done = fr_rndv_send_is_done(send);
        if (done)
            fr_rndv_send_destroy(send);
        else
            fr_list_push_front(&others, &send->link);
        fr_rndv_send_release(index);
        atomic_fetch_sub_explicit(&fr_rndv_detached_count, done, memory_order_release);
        fr_core_errands_change(done, false);
    }
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&others)) {
        struct fr_list *link = others.prev;
        fr_list_remove(link);
        fr_list_push_front(&left, link);
    }
    fr_core_unlock(&lock);
}

// Waits for fragments alone, which their receivers discard.
bool fr_rndv_detached_end_all(void)
{
    struct fr_list taken;
    (void)take_left(&taken);
    while (!fr_list_is_empty(&taken)) {
        struct fr_rndv_send *send = FR_LIST_ENTRY(taken.prev, struct fr_rndv_send, link);
        fr_list_remove(&send->link);
        (void)send->scheme->progress(send);
        if ((send->scheme->flags & FR_RNDV_FRAGMENTED) && !send->scheme->is_quiet(send)) {
            fr_core_lock(&lock);
            fr_list_push_front(&left, &send->link);
            fr_core_unlock(&lock);
            continue;
        }
        fr_rndv_send_destroy(send);
        atomic_fetch_sub_explicit(&fr_rndv_detached_count, 1, memory_order_release);
        fr_core_errands_change(true, false);
    }
    return atomic_load_explicit(&fr_rndv_detached_count, memory_order_acquire) > 0;
}
