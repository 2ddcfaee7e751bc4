// SPDX-License-Identifier: BSD-3-Clause
// Receivers that senders wait for. A sender without room for its bytes says in the receiver's
// ledger that it waits. A receiver says in its own that a thread is where it makes no progress, so
// that senders do not wait for it meanwhile.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"
#include "rndv/ledger.h"
#include "rndv/replica.h"
#include "rndv/waiting_sends.h"

enum { AWAITED_NS = 100000000 }; // how long a process counts as awaited

// A sender that waits says so time and again, so nothing has to be undone when its wait ends.
bool fr_rndv_ledger_await(int rank, int64_t now_ns)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(rank);
    if (ledger == NULL)
        return false;
    int64_t noted_ns = atomic_load_explicit(&ledger->awaited_ns, memory_order_relaxed);
    if (now_ns - noted_ns >= AWAITED_NS / 16 || noted_ns > now_ns)
        atomic_store_explicit(&ledger->awaited_ns, now_ns, memory_order_relaxed);
    return atomic_load_explicit(&ledger->blocked, memory_order_relaxed) > 0;
}

void fr_rndv_ledger_count_waiting(int rank, int more)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(rank);
    if (ledger != NULL)
        atomic_fetch_add_explicit(&ledger->waiting, (uint64_t)more, memory_order_relaxed);
}

// Returns whether a sender has said lately that it waits. Reads no clock once that is long ago.
static bool was_awaited(struct fr_rndv_ledger *ledger)
{
    int64_t noted_ns = atomic_load_explicit(&ledger->awaited_ns, memory_order_relaxed);
    if (noted_ns == 0 || fr_time_ns() - noted_ns < AWAITED_NS)
        return noted_ns != 0;
    (void)atomic_compare_exchange_strong(&ledger->awaited_ns, &noted_ns, 0);
    return false;
}

// Returns whether a process has a message for this one that was advertised as waiting, and is not
// over.
static bool has_waiting(const struct fr_rndv_ledger *ledger)
{
    for (size_t i = 0; i < fr_rndv_ledger_slots_of(ledger) / 64; i++) {
        uint64_t bits = atomic_load_explicit(&ledger->in_use[i], memory_order_acquire);
        for (; bits != 0; bits &= bits - 1) {
            const struct fr_rndv_slot *slot =
                &ledger->slots[i * 64 + (size_t)__builtin_ctzll(bits)];
            if (atomic_load_explicit(&slot->to, memory_order_acquire) == fr_job_rank() &&
                atomic_load_explicit(&slot->ready, memory_order_acquire) == FR_RNDV_WAITS)
                return true;
        }
    }
    return false;
}

static bool has_living_waiting(void)
{
    for (int from = 0; from < fr_job_size(); from++) {
        const struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(from);
        if (ledger != NULL && fr_job_control_is_alive(from) && has_waiting(ledger))
            return true;
    }
    return false;
}

// Returns whether these waiting sends are all of processes that have died, which never count them
// down. Two looks, a second apart, must have found the same: a sender counts before it advertises.
static bool are_dead(uint64_t waiting)
{
    static _Atomic int64_t looked_ns;
    static _Atomic uint64_t found, dead; // numbers of sends
    int64_t now = fr_time_coarse_ns();
    if (now - atomic_load_explicit(&looked_ns, memory_order_relaxed) >= FR_SECOND_NS) {
        atomic_store_explicit(&looked_ns, now, memory_order_relaxed);
        uint64_t none_alive = has_living_waiting() ? 0 : waiting;
        uint64_t before = atomic_exchange_explicit(&found, none_alive, memory_order_relaxed);
        atomic_store_explicit(&dead, before == none_alive ? none_alive : 0, memory_order_relaxed);
    }
    return atomic_load_explicit(&dead, memory_order_relaxed) == waiting;
}

static __attribute__((noinline, cold)) bool look(struct fr_rndv_ledger *ledger)
{
    uint64_t waiting = atomic_load_explicit(&ledger->waiting, memory_order_relaxed);
    return (waiting != 0 && !are_dead(waiting)) || was_awaited(ledger) ||
           fr_rndv_replica_any_waits();
}

// Most processes are never awaited. Senders of other hosts tell so by messages.
FR_OFTEN bool fr_rndv_is_awaited(void)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_here();
    if (ledger != NULL &&
        FR_UNLIKELY(atomic_load_explicit(&ledger->waiting, memory_order_relaxed) != 0 ||
                    atomic_load_explicit(&ledger->awaited_ns, memory_order_relaxed) != 0))
        return look(ledger);
    return fr_rndv_replica_any_waits();
}

static FR_TLS bool is_blocked; // this thread is, and its ledger says so

void fr_rndv_block(void)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_own();
    if (ledger == NULL || is_blocked)
        return;
    atomic_fetch_add_explicit(&ledger->blocked, 1, memory_order_relaxed);
    is_blocked = true;
    fr_job_control_block();
    fr_rndv_waiting_leave_all();
}

void fr_rndv_unblock(void)
{
    if (!is_blocked)
        return;
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_made();
    if (ledger != NULL)
        atomic_fetch_sub_explicit(&ledger->blocked, 1, memory_order_relaxed);
    fr_job_control_unblock();
    is_blocked = false;
}
