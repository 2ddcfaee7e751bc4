// SPDX-License-Identifier: BSD-3-Clause
// The registry of sends: finds what receivers ask of this process wherever it makes progress. They
// ask for another scheme than one that they refuse, for the bytes of a waiting send, or to be
// written to over rails. A receiver
// waits until its sender has come to that, and another receiver may wait for it in the same way.
//
// A send belongs to its operation. A thread that completes the operation holds the send while it
// looks at it. So does a thread that follows a refusal, or goes on with a write.
#include "config.h"

#include "rndv/rail_put_send.h"

#include "fabrail/core/wait.h"
#include "rndv/waiting_sends.h"

// Sends by the index of their slot.
static struct {
    atomic_flag held;
    struct fr_rndv_send *_Atomic send; // NULL for a slot that is not in use
} places[FR_RNDV_SLOTS];

static _Atomic uint64_t seen;    // refusals and requests that have been followed
static _Atomic uint64_t scanned; // those that were there at the last look at all sends

void fr_rndv_registry_add(struct fr_rndv_send *send)
{
    atomic_store_explicit(&places[send->index].send, send, memory_order_release);
}

void fr_rndv_registry_remove(unsigned index)
{
    atomic_store_explicit(&places[index].send, NULL, memory_order_relaxed);
}

struct fr_rndv_send *fr_rndv_registry_at(unsigned index)
{
    return atomic_load_explicit(&places[index].send, memory_order_acquire);
}

bool fr_rndv_send_try_hold(unsigned index)
{
    return !atomic_flag_test_and_set_explicit(&places[index].held, memory_order_acquire);
}

void fr_rndv_send_hold(unsigned index)
{
    while (atomic_flag_test_and_set_explicit(&places[index].held, memory_order_acquire))
        fr_wait_yield();
}

void fr_rndv_send_release(unsigned index)
{
    atomic_flag_clear_explicit(&places[index].held, memory_order_release);
}

// Returns whether a receiver may be asking something of the send in this slot.
static bool may_be_asked(unsigned index)
{
    enum fr_rndv_state state = fr_rndv_ledger_state(index);
    return state == FR_RNDV_REFUSED || (state == FR_RNDV_PULLING && fr_rndv_any_waiting()) ||
           fr_rndv_rail_put_send_is_asked(index);
}

// Follows a refusal, or a request to write or to send. Returns false when another thread holds the
// send, or other sends come first.
static bool follow(unsigned index)
{
    if (!may_be_asked(index))
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
