// SPDX-License-Identifier: BSD-3-Clause
// What receivers ask of their messages' sender, found by this process wherever it makes progress:
// another scheme than the one that they refuse, or to be written to over rails. A receiver waits
// until its sender has come to it, and may be a sender that another receiver waits for just so.
//
// A send belongs to its operation, and whoever completes that holds it while he looks at it; so
// does whoever follows a refusal, or goes on with a write.
#include "config.h"

#include "rndv/write.h"

#include "core/wait.h"

// By place in the ledger.
static struct {
    atomic_flag held;
    bool undecided;                    // at first
    struct fr_rndv_send *_Atomic send; // NULL for a place that is not in use
} places[FR_RNDV_SLOTS];

static _Atomic size_t undecided_count;

static _Atomic uint64_t seen; // refusals that have been followed

void fr_rndv_refused_add(struct fr_rndv_send *send)
{
    bool undecided = fr_rndv_send_is_undecided(send);
    places[send->index].undecided = undecided;
    atomic_store_explicit(&places[send->index].send, send, memory_order_release);
    if (undecided)
        atomic_fetch_add_explicit(&undecided_count, 1, memory_order_relaxed);
}

void fr_rndv_refused_remove(unsigned index)
{
    atomic_store_explicit(&places[index].send, NULL, memory_order_relaxed);
    if (places[index].undecided)
        atomic_fetch_sub_explicit(&undecided_count, 1, memory_order_relaxed);
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

void fr_rndv_refused_decide_all(void)
{
    if (FR_LIKELY(atomic_load_explicit(&undecided_count, memory_order_relaxed) == 0))
        return;
    for (unsigned index = 0; index < fr_rndv_ledger_count(); index++) {
        if (atomic_load_explicit(&places[index].send, memory_order_relaxed) == NULL)
            continue;
        fr_rndv_send_hold(index);
        struct fr_rndv_send *send = atomic_load_explicit(&places[index].send, memory_order_acquire);
        while (send != NULL && !fr_rndv_send_decide(send) && !fr_rndv_send_is_lost(send)) {
            fr_rndv_send_release(index);
            fr_wait_yield();
            fr_rndv_send_hold(index);
            send = atomic_load_explicit(&places[index].send, memory_order_acquire);
        }
        fr_rndv_send_release(index);
    }
}

// A receiver that has come to one message comes to others: those that were sent after it get the
// room that there is, so that it need not ask for each.
static void decide_following(unsigned index, int to)
{
    enum { AHEAD = 32 };
    unsigned count = fr_rndv_ledger_count();
    unsigned end = index + AHEAD < count ? index + AHEAD : count;
    for (unsigned next = index + 1; next < end; next++) {
        if (atomic_flag_test_and_set_explicit(&places[next].held, memory_order_acquire))
            continue;
        struct fr_rndv_send *send = atomic_load_explicit(&places[next].send, memory_order_acquire);
        if (send != NULL && send->address.to == to && fr_workspace_has_room(send->bytes))
            (void)fr_rndv_send_decide(send);
        fr_rndv_send_release(next);
    }
}

// False when somebody else holds it, or there is no room for its bytes yet.
static bool follow(unsigned index)
{
    if (fr_rndv_ledger_state(index) != FR_RNDV_REFUSED && !fr_rndv_write_is_asked(index))
        return true;
    if (atomic_flag_test_and_set_explicit(&places[index].held, memory_order_acquire))
        return false;
    struct fr_rndv_send *send = atomic_load_explicit(&places[index].send, memory_order_acquire);
    bool refused = send != NULL && fr_rndv_ledger_state(index) == FR_RNDV_REFUSED;
    bool undecided = refused && fr_rndv_send_is_undecided(send);
    bool followed = !refused || fr_rndv_send_follow_refusal(send);
    if (undecided && followed)
        decide_following(index, send->address.to);
    fr_rndv_write_step(index, send);
    fr_rndv_send_release(index);
    return followed;
}

void fr_rndv_refused_look_after(void)
{
    uint64_t refused = fr_rndv_ledger_refused();
    bool all = true;
    if (FR_LIKELY(refused == atomic_load_explicit(&seen, memory_order_relaxed) &&
                  !fr_rndv_write_any()))
        return;
    for (unsigned index = 0; index < fr_rndv_ledger_count(); index++)
        all = follow(index) && all;
    if (all)
        atomic_store_explicit(&seen, refused, memory_order_relaxed);
}
