// SPDX-License-Identifier: BSD-3-Clause
// Schedules that go on in all calls, since other processes may wait for them while this one is in a
// call about something else. One thread at a time goes on with each.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/progress.h"
#include "request/request_int.h"

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_request_op *list FR_GUARDED_BY(lock);
static _Atomic size_t count;
static FR_TLS bool is_inside; // going on with one may make progress in turn

void fr_request_advance_begin(struct fr_request_op *op)
{
    fr_core_lock(&lock);
    op->schedule->next = list;
    list = op;
    fr_core_unlock(&lock);
    atomic_fetch_add(&count, 1);
    fr_request_expect(!op->schedule->is_quiet);
}

static void take_off(const struct fr_request_op *op) FR_REQUIRES(lock)
{
    struct fr_request_op **link = &list;
    while (*link != op)
        link = &(*link)->schedule->next;
    *link = op->schedule->next;
}

// Takes a schedule in hand. Returns false when it is complete, or in another thread's hand.
static bool take_in_hand(struct fr_request_op *op) FR_REQUIRES(lock)
{
    if (op->schedule->complete || op->schedule->is_in_hand)
        return false;
    op->schedule->is_in_hand = true;
    return true;
}

static void step_all(void);

// Goes on with a schedule in hand. Once it is complete, its owner may free it at any time.
static bool step(struct fr_request_op *op)
{
    const bool is_quiet = op->schedule->is_quiet;
    bool was_inside = is_inside;
    is_inside = true;
    bool over = fr_request_schedule_step(op);
    // The memory of freed operations is the program's once one that began later is complete.
    if (over && !was_inside && fr_request_any_freed())
        step_all();
    is_inside = was_inside;
    fr_core_lock(&lock);
    op->schedule->is_in_hand = false;
    if (over) {
        take_off(op);
        op->schedule->complete = true;
    }
    fr_core_unlock(&lock);
    if (!over)
        return false;
    atomic_fetch_sub(&count, 1);
    fr_request_expect(is_quiet ? 0 : -1);
    return true;
}

bool fr_request_advance(struct fr_request_op *op)
{
    fr_core_lock(&lock);
    bool complete = op->schedule->complete, taken = take_in_hand(op);
    fr_core_unlock(&lock);
    return taken ? step(op) : complete;
}

// Takes the schedule at this position of the list in hand. Those in other hands count, too. Returns
// NULL for none.
static struct fr_request_op *take_at(size_t index)
{
    fr_core_lock(&lock);
    struct fr_request_op *op = list;
    for (; op && index > 0; index--)
        op = op->schedule->next;
    for (; op && !take_in_hand(op);)
        op = op->schedule->next;
    fr_core_unlock(&lock);
    return op;
}

static void step_all(void)
{
    struct fr_request_op *op;
    for (size_t index = 0; (op = take_at(index));)
        index += !step(op);
}

FR_OFTEN void fr_request_advance_all(void)
{
    if (FR_UNLIKELY(atomic_load_explicit(&count, memory_order_relaxed) != 0) && !is_inside)
        step_all();
}

static void progress(void)
{
    fr_job_progress();
    fr_rndv_progress(NULL);
    fr_request_advance_all();
}

void fr_request_progress(void)
{
    progress();
    fr_request_receive_early();
}

void fr_request_begin_progress(void)
{
    progress();
    fr_request_begin_early();
}

bool fr_request_advances_on(fr_word comm)
{
    fr_core_lock(&lock);
    const struct fr_request_op *op = list;
    while (op && op->object != comm)
        op = op->schedule->next;
    fr_core_unlock(&lock);
    return op != NULL;
}
