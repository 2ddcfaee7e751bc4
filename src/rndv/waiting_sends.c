// SPDX-License-Identifier: BSD-3-Clause
// Waiting sends: there is no room for a copy of their bytes, and their receivers cannot fetch them
// out of the program's buffer. So the bytes stay there. Receivers are told of scheme pipeline, and
// ask for a message by beginning it. The sender gives it wherever it makes progress: through a few
// fragments' memory, and a few messages at a time. If room comes first, the bytes leave.
//
// A receiver depends on the progress of its sender here. So a process with waiting sends makes
// progress in each call that waits for others, or has them leave before that call.
#include "config.h"

#include "rndv/waiting_sends.h"

#include "fabrail/core/time.h"
#include "rndv/send.h"

enum {
    AT_ONCE = 4, // messages that are given at once
    MOST_TURNS = 64,
    PAUSE_NS = 10000000,
};

_Atomic size_t fr_rndv_waiting_count;
_Atomic size_t fr_rndv_reasons;

// Sends that are being given, until MPI has done with their bytes. One whose receiver takes nothing
// for a while does not keep others from their turns.
static struct {
    _Atomic unsigned holder;  // index of its slot, plus one; 0: nobody
    _Atomic int64_t moved_ns; // when its receiver has last taken something
} turns[MOST_TURNS];

void fr_rndv_waiting_add(struct fr_rndv_send *send)
{
    send->scheme = &fr_rndv_waiting;
    send->waits = true;
    if (!send->remote)
        fr_rndv_ledger_count_waiting(send->address.to, 1);
    atomic_fetch_add_explicit(&fr_rndv_waiting_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&fr_rndv_reasons, 1, memory_order_relaxed);
}

static void end_turn(unsigned index)
{
    for (unsigned i = 0; i < MOST_TURNS; i++) {
        unsigned holder = index + 1;
        (void)atomic_compare_exchange_strong(&turns[i].holder, &holder, 0);
    }
}

void fr_rndv_waiting_remove(struct fr_rndv_send *send)
{
    if (FR_LIKELY(!send->waits))
        return;
    send->waits = false;
    if (!send->remote)
        fr_rndv_ledger_count_waiting(send->address.to, -1);
    if (send->entered)
        end_turn(send->index);
    atomic_fetch_sub_explicit(&fr_rndv_waiting_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&fr_rndv_reasons, 1, memory_order_relaxed);
}

// Turns that are taken, and one that is free: MOST_TURNS for none.
struct look {
    unsigned free;
    unsigned moving; // their receivers have taken something within milliseconds
    unsigned alive;  // or within a second
};

static struct look look_at_turns(int64_t now)
{
    struct look look = {.free = MOST_TURNS};
    for (unsigned i = 0; i < MOST_TURNS; i++) {
        int64_t idle_ns = now - atomic_load_explicit(&turns[i].moved_ns, memory_order_relaxed);
        if (atomic_load_explicit(&turns[i].holder, memory_order_relaxed) == 0) {
            look.free = i;
            continue;
        }
        look.moving += idle_ns < PAUSE_NS;
        look.alive += idle_ns < FR_SECOND_NS;
    }
    return look;
}

bool fr_rndv_waiting_has_turn(void)
{
    struct look look = look_at_turns(fr_time_ns());
    return look.free < MOST_TURNS && look.moving < AT_ONCE;
}

// Takes a turn for a send. One at a time is given even if there is no room for it. Other threads
// may take turns meanwhile.
static bool take_turn(const struct fr_rndv_send *send)
{
    int64_t now = fr_time_ns();
    struct look look;
    unsigned nobody;
    do {
        look = look_at_turns(now);
        nobody = 0;
        if (look.free == MOST_TURNS || look.moving >= AT_ONCE ||
            (look.alive > 0 && !fr_staging_has_room(fr_rndv_pipeline_room(send))))
            return false;
    } while (!atomic_compare_exchange_strong(&turns[look.free].holder, &nobody, send->index + 1));
    atomic_store_explicit(&turns[look.free].moved_ns, now, memory_order_relaxed);
    return true;
}

void fr_rndv_waiting_moved(const struct fr_rndv_send *send)
{
    for (unsigned i = 0; i < MOST_TURNS; i++) {
        if (atomic_load_explicit(&turns[i].holder, memory_order_relaxed) == send->index + 1)
            atomic_store_explicit(&turns[i].moved_ns, fr_time_ns(), memory_order_relaxed);
    }
}

bool fr_rndv_waiting_give(struct fr_rndv_send *send)
{
    if (!take_turn(send))
        return false;
    if (fr_rndv_pipeline_begin(send, true) == FR_OK)
        return true;
    end_turn(send->index);
    return false;
}

void fr_rndv_waiting_look_after(void)
{
    if (FR_LIKELY(!fr_rndv_any_waiting()))
        return;
    for (unsigned i = 0; i < MOST_TURNS; i++) {
        unsigned holder = atomic_load_explicit(&turns[i].holder, memory_order_relaxed);
        if (holder == 0 || !fr_rndv_send_try_hold(holder - 1))
            continue;
        struct fr_rndv_send *send = fr_rndv_registry_at(holder - 1);
        if (send != NULL && send->waits)
            (void)send->scheme->progress(send);
        fr_rndv_send_release(holder - 1);
    }
}

void fr_rndv_waiting_leave_all(void)
{
    if (FR_LIKELY(!fr_rndv_any_waiting()))
        return;
    for (unsigned index = 0; index < fr_rndv_ledger_count(); index++) {
        if (fr_rndv_registry_at(index) == NULL)
            continue;
        fr_rndv_send_hold(index);
        struct fr_rndv_send *send = fr_rndv_registry_at(index);
        if (send != NULL && send->waits && send->sent)
            fr_rndv_send_leave_now(send);
        fr_rndv_send_release(index);
    }
}

static bool progress(struct fr_rndv_send *send)
{
    return fr_rndv_ledger_state(send->index) == FR_RNDV_PULLING && fr_rndv_waiting_give(send) &&
           send->scheme->progress(send);
}

const struct fr_rndv_scheme fr_rndv_waiting = {
    .id = FR_SCHEME_PIPELINE,
    .progress = progress,
};
