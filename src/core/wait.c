// SPDX-License-Identifier: BSD-3-Clause
// Waits: when to yield, when to sleep, and when to say that a wait is long or over. Waits for
// locks.
#include "config.h"

#include "fabrail/core/wait.h"

enum { TELL_EVERY_S = 10, PART = 16 };

static int64_t choose_nap_ns(struct fr_wait *wait)
{
    if (wait->longest_nap_ns <= wait->nap_ns)
        return wait->nap_ns;
    int64_t part_ns = fr_wait_ns(wait) / PART;
    if (part_ns < wait->nap_ns)
        return wait->nap_ns;
    return part_ns < wait->longest_nap_ns ? part_ns : wait->longest_nap_ns;
}

static void give_way(struct fr_wait *wait)
{
    if (wait->nap_ns == 0 || wait->yields < wait->eager_yields)
        fr_wait_yield();
    else
        fr_time_sleep(choose_nap_ns(wait));
    wait->yields++;
}

bool fr_wait_step(struct fr_wait *wait)
{
    unsigned steps = ++wait->steps;
    if (steps > wait->spins &&
        (wait->steps_a_yield <= 1 || (steps - wait->spins) % wait->steps_a_yield == 0)) {
        give_way(wait);
        return true;
    }
    if (wait->pauses)
        fr_wait_pause();
    return false;
}

int64_t fr_wait_ns(struct fr_wait *wait)
{
    int64_t now = fr_time_ns();
    if (wait->began_ns == 0)
        wait->began_ns = wait->warned_ns = now;
    return now - wait->began_ns;
}

enum fr_wait_verdict fr_wait_judge(struct fr_wait *wait, uint64_t limit_s)
{
    int64_t waited_ns = fr_wait_ns(wait);
    if (limit_s > 0 && (uint64_t)(waited_ns / FR_SECOND_NS) >= limit_s)
        return FR_WAIT_OVER;
    if (wait->began_ns + waited_ns - wait->warned_ns < TELL_EVERY_S * FR_SECOND_NS)
        return FR_WAIT_ON;
    wait->warned_ns = wait->began_ns + waited_ns;
    return FR_WAIT_LONG;
}

bool fr_core_serial;

void fr_core_set_serial(bool yes)
{
    static _Atomic bool never;
    if (!yes)
        atomic_store(&never, true);
    const bool is_serial = !atomic_load(&never);
    if (fr_core_serial != is_serial) // else other threads may read it
        fr_core_serial = is_serial;
}

void fr_core_lock_wait(struct fr_lock *lock)
{
    struct fr_wait wait = {
        .spins = 100, .steps_a_yield = 1, .eager_yields = 100, .nap_ns = 50000, .pauses = true};
    do {
        while (atomic_load_explicit(&lock->held, memory_order_relaxed))
            (void)fr_wait_step(&wait);
    } while (atomic_exchange_explicit(&lock->held, true, memory_order_acquire));
}
