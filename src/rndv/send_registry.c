// SPDX-License-Identifier: BSD-3-Clause
// The registry of sends: finds what receivers ask of this process wherever it makes progress. They
// ask for another scheme than one that they refuse, for the bytes of a waiting send, or to be
// written to over rails. A receiver waits until its sender has come to that, and another receiver
// may wait for it in the same way.
//
// A send belongs to its operation. A thread that completes the operation holds the send while it
// looks at it. So does a thread that follows a refusal, or goes on with a write.
//
// Detached sends are those that their operations have left, so they are over for the program. Their
// receivers have not pulled all bytes yet, or MPI still has fragments of them.
#include "config.h"

#include "rndv/rail_put_send.h"

#include "fabrail/core/wait.h"
#include "rndv/waiting_sends.h"

// Sends by the index of their slot.
static struct {
    _Atomic bool held;
    struct fr_rndv_send *_Atomic send; // NULL for a slot that is not in use
} sends[FR_RNDV_SLOTS];

static _Atomic uint64_t seen;    // refusals and requests that have been followed
static _Atomic uint64_t scanned; // those that were there at the last look at all sends

FR_OFTEN void fr_rndv_registry_add(struct fr_rndv_send *send)
{
    atomic_store_explicit(&sends[send->index].send, send, memory_order_release);
}

void fr_rndv_registry_remove(unsigned index)
{
    atomic_store_explicit(&sends[index].send, NULL, memory_order_relaxed);
}

struct fr_rndv_send *fr_rndv_registry_at(unsigned index)
{
    return atomic_load_explicit(&sends[index].send, memory_order_acquire);
}

bool fr_rndv_send_try_hold(unsigned index)
{
    return !fr_core_set_in_call(&sends[index].held);
}

void fr_rndv_send_hold(unsigned index)
{
    while (fr_core_set_in_call(&sends[index].held))
        fr_wait_yield();
}

void fr_rndv_send_release(unsigned index)
{
    atomic_store_explicit(&sends[index].held, false, memory_order_release);
}

// Returns whether a receiver may be asking something of the send in this slot.
static bool may_be_requested(unsigned index)
{
    enum fr_rndv_state state = fr_rndv_ledger_state(index);
    return state == FR_RNDV_REFUSED || (state == FR_RNDV_PULLING && fr_rndv_any_waiting()) ||
           fr_rndv_rail_put_send_is_requested(index);
}

// Follows a refusal, or a request to write or to send. Returns false when another thread holds the
// send, or other sends come first.
static bool follow(unsigned index)
{
    if (!may_be_requested(index))
        return true;
    if (!fr_rndv_send_try_hold(index))
        return false;
    struct fr_rndv_send *send = fr_rndv_registry_at(index);
    enum fr_rndv_state state = fr_rndv_ledger_state(index);
    bool followed = true;
    if (send != NULL && state == FR_RNDV_REFUSED)
        fr_rndv_send_follow_refusal(send);
    else if (send != NULL && send->scheme == &fr_rndv_waiting)
        followed = fr_rndv_waiting_give(send);
    fr_rndv_rail_put_send_step(index, send);
    fr_rndv_send_release(index);
    return followed;
}

void fr_rndv_registry_look_after(void)
{
    uint64_t refused = fr_rndv_ledger_refused();
    bool all = true;
    bool writes = fr_rndv_rail_put_send_any();
    if (FR_LIKELY(refused == atomic_load_explicit(&seen, memory_order_relaxed) && !writes))
        return;
    if (refused == atomic_load_explicit(&scanned, memory_order_relaxed) && !writes &&
        fr_rndv_any_waiting() && !fr_rndv_waiting_has_turn())
        return; // those that were asked for wait for their turn
    atomic_store_explicit(&scanned, refused, memory_order_relaxed);
    for (unsigned index = 0; index < fr_rndv_ledger_count(); index++)
        all = follow(index) && all;
    if (all)
        atomic_store_explicit(&seen, refused, memory_order_relaxed);
}

// ---- detached sends

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_list detached FR_GUARDED_BY(lock) = FR_LIST_INIT(detached);
_Atomic size_t fr_rndv_detached_count;

void fr_rndv_detached_add(struct fr_rndv_send *send)
{
    fr_core_lock(&lock);
    fr_list_push_front(&detached, &send->link);
    fr_core_unlock(&lock);
    atomic_fetch_add_explicit(&fr_rndv_detached_count, 1, memory_order_release);
    fr_core_housekeeping_change(false, true);
}

// Moves the whole list to one of the caller's own. Other threads look after nothing meanwhile.
static bool take_detached(struct fr_list *taken)
{
    fr_list_init(taken);
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&detached)) {
        struct fr_list *link = detached.prev; // the oldest first
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
        !take_detached(&taken))
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
        fr_core_housekeeping_change(done, false);
    }
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&others)) {
        struct fr_list *link = others.prev;
        fr_list_remove(link);
        fr_list_push_front(&detached, link);
    }
    fr_core_unlock(&lock);
}

// Waits for fragments alone, which their receivers discard.
bool fr_rndv_detached_end_all(void)
{
    struct fr_list taken;
    (void)take_detached(&taken);
    while (!fr_list_is_empty(&taken)) {
        struct fr_rndv_send *send = FR_LIST_ENTRY(taken.prev, struct fr_rndv_send, link);
        fr_list_remove(&send->link);
        (void)send->scheme->progress(send);
        if ((send->scheme->flags & FR_RNDV_FRAGMENTED) && !send->scheme->is_quiet(send)) {
            fr_core_lock(&lock);
            fr_list_push_front(&detached, &send->link);
            fr_core_unlock(&lock);
            continue;
        }
        fr_rndv_send_destroy(send);
        atomic_fetch_sub_explicit(&fr_rndv_detached_count, 1, memory_order_release);
        fr_core_housekeeping_change(true, false);
    }
    return atomic_load_explicit(&fr_rndv_detached_count, memory_order_acquire) > 0;
}
