// SPDX-License-Identifier: BSD-3-Clause
// The registry of sends: finds what receivers ask of this process wherever it makes progress. They
// ask for another scheme than one that they refuse, or to be written to over rails. A receiver
// waits until its sender has come to that, and another receiver may wait for it in the same way.
//
// A send belongs to its operation. A thread that completes the operation holds the send while it
// looks at it. So does a thread that follows a refusal, or goes on with a write.
#include "config.h"

#include "rndv/rail_put_send.h"

#include "fabrail/core/wait.h"

// Sends by the index of their slot.
static struct {
    atomic_flag held;
    struct fr_rndv_send *_Atomic send; // NULL for a slot that is not in use
} places[FR_RNDV_SLOTS];

static _Atomic uint64_t seen; // refusals that have been followed

void fr_rndv_registry_add(struct fr_rndv_send *send)
{
    atomic_store_explicit(&places[send->index].send, send, memory_order_release);
}

void fr_rndv_registry_remove(unsigned index)
{
    atomic_store_explicit(&places[index].send, NULL, memory_order_relaxed);
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

// Follows a refusal or a request to write. Returns false when another thread holds the send.
static bool follow(unsigned index)
{
    if (fr_rndv_ledger_state(index) != FR_RNDV_REFUSED && !fr_rndv_rail_put_send_is_asked(index))
        return true;
    if (atomic_flag_test_and_set_explicit(&places[index].held, memory_order_acquire))
        return false;
    struct fr_rndv_send *send = atomic_load_explicit(&places[index].send, memory_order_acquire);
    if (send != NULL && fr_rndv_ledger_state(index) == FR_RNDV_REFUSED)
        fr_rndv_send_follow_refusal(send);
    fr_rndv_rail_put_send_step(index, send);
    fr_rndv_send_release(index);
    return true;
}

void fr_rndv_registry_look_after(void)
{
    uint64_t refused = fr_rndv_ledger_refused();
    bool all = true;
    if (FR_LIKELY(refused == atomic_load_explicit(&seen, memory_order_relaxed) &&
                  !fr_rndv_rail_put_send_any()))
        return;
    for (unsigned index = 0; index < fr_rndv_ledger_count(); index++)
        all = follow(index) && all;
    if (all)
        atomic_store_explicit(&seen, refused, memory_order_relaxed);
}
