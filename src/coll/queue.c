// SPDX-License-Identifier: BSD-3-Clause
// Queues of tasks, and the list of teams that have tasks in them.
#include "config.h"

#include "fabrail/coll/queue.h"

#include "coll/queue_thread.h"

#include <utlist.h>

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_coll_team *listed FR_GUARDED_BY(lock); // those looked at last stand last
static uint64_t looks FR_GUARDED_BY(lock);              // ever
static _Atomic size_t count;                            // of queued tasks
static FR_TLS char self;                                // its address names the thread

size_t fr_coll_queue_count(void)
{
    return atomic_load(&count);
}

static void list(struct fr_coll_team *team) FR_REQUIRES(lock)
{
    if (team->queue.is_listed)
        return;
    team->queue.is_listed = true;
    DL_APPEND2(listed, team, queue.prev, queue.next);
}

// Gives a team up, and takes it off the list if it has no more tasks. A thread that took hold of it
// before it had a queue has nothing to give up.
static void release(struct fr_coll_team *team) FR_REQUIRES(lock)
{
    if (team->queue.holder != &self)
        return;
    team->queue.holder = NULL;
    if (team->queue.first || !team->queue.is_listed)
        return;
    DL_DELETE2(listed, team, queue.prev, queue.next);
    team->queue.is_listed = false;
}

void fr_coll_queue_add(struct fr_coll_queued *queued)
{
    struct fr_coll_queue *queue = &queued->task.team->queue;
    queued->next = NULL;
    queued->is_fallback = false;
    atomic_store(&queued->over, false);
    fr_core_lock(&lock);
    queue->used = true;
    if (queue->first)
        queue->last->next = queued;
    else
        queue->first = queued;
    queue->last = queued;
    list(queued->task.team);
    fr_core_unlock(&lock);
    atomic_fetch_add(&count, 1);
}

void fr_coll_queue_leave(void)
{
    if (atomic_load(&count) > 0)
        fr_coll_queue_thread_wake();
}

// Takes the first task, which is over, out of its queue. Its owner may then free it.
static void take_first(struct fr_coll_queue *queue, enum fr_status status)
{
    fr_core_lock(&lock);
    struct fr_coll_queued *queued = queue->first;
    queue->first = queued->next;
    fr_core_unlock(&lock);
    atomic_fetch_sub(&count, 1);
    queued->status = status;
    atomic_store(&queued->over, true);
}

static struct fr_coll_queued *first_of(struct fr_coll_queue *queue)
{
    fr_core_lock(&lock);
    struct fr_coll_queued *first = queue->first;
    fr_core_unlock(&lock);
    return first;
}

static enum fr_status go_on(struct fr_coll_queued *queued, bool *over)
{
    if (!queued->is_fallback) {
        enum fr_status status = fr_coll_task_progress(&queued->task, over);
        if (status != FR_ERR_UNSUPPORTED || !queued->fallback)
            return status;
        queued->is_fallback = true;
        *over = false;
    }
    return queued->fallback(queued, over);
}

// Goes on with the queued tasks of a team in hand. With `waits` it waits for the device.
static void go_on_with_all(struct fr_coll_team *team, bool waits)
{
    struct fr_coll_queued *first;
    if (team->segment)
        fr_coll_segment_await(team->segment, fr_coll_team_is_awaited(team));
    while ((first = first_of(&team->queue))) {
        bool over = false;
        first->task.waits = waits;
        enum fr_status status = go_on(first, &over);
        if (!over)
            return;
        take_first(&team->queue, status);
    }
}

void fr_coll_queue_progress_held(struct fr_coll_team *team)
{
    go_on_with_all(team, false);
}

// One look at all queues.
struct look {
    uint64_t number;
    bool is_call;     // it is made in a call, not by the thread
    bool waits;       // for the device
    int64_t quiet_ns; // for which no call has looked at a team that the thread takes in hand
};

// Returns whether a team is left to calls, which wait for its tasks. A task that is handed from
// thread to thread takes longer.
static bool is_left(struct fr_coll_queue *queue, const struct look *look) FR_REQUIRES(lock)
{
    const bool was_tended = queue->is_tended;
    queue->is_tended = look->is_call;
    if (look->is_call || look->quiet_ns == 0)
        return false;
    const int64_t now = fr_time_ns();
    if (was_tended)
        queue->left_ns = now;
    return now - queue->left_ns < look->quiet_ns;
}

// Takes a team in hand that no thread has looked at since `look` began. Returns NULL for none. A
// team that another thread has in hand is left to that.
static struct fr_coll_team *take_unseen(const struct look *look) FR_REQUIRES(lock)
{
    struct fr_coll_team *team;
    while ((team = listed) && team->queue.looked < look->number) {
        DL_DELETE2(listed, team, queue.prev, queue.next);
        DL_APPEND2(listed, team, queue.prev, queue.next);
        team->queue.looked = look->number;
        if (is_left(&team->queue, look) || team->queue.holder)
            continue;
        team->queue.holder = &self;
        return team;
    }
    return NULL;
}

static void progress(struct look look)
{
    if (FR_LIKELY(atomic_load_explicit(&count, memory_order_acquire) == 0))
        return;
    fr_core_lock(&lock);
    look.number = ++looks;
    struct fr_coll_team *team;
    while ((team = take_unseen(&look))) {
        fr_core_unlock(&lock);
        go_on_with_all(team, look.waits);
        fr_core_lock(&lock);
        release(team);
    }
    fr_core_unlock(&lock);
}

void fr_coll_queue_progress(void)
{
    progress((struct look){.is_call = true});
}

void fr_coll_queue_progress_waiting(void)
{
    progress((struct look){.is_call = true, .waits = true});
}

void fr_coll_queue_progress_untended(int64_t quiet_ns)
{
    progress((struct look){.quiet_ns = quiet_ns});
}

void fr_coll_queue_hold(struct fr_coll_team *team)
{
    if (FR_LIKELY(!team->queue.used))
        return;
    fr_core_lock(&lock);
    while (team->queue.holder) {
        fr_core_unlock(&lock);
        fr_wait_yield();
        fr_core_lock(&lock);
    }
    team->queue.holder = &self;
    fr_core_unlock(&lock);
}

void fr_coll_queue_release(struct fr_coll_team *team)
{
    if (FR_LIKELY(!team->queue.used))
        return;
    fr_core_lock(&lock);
    release(team);
    fr_core_unlock(&lock);
}

void fr_coll_queue_close(struct fr_coll_team *team)
{
    fr_coll_queue_hold(team);
    while (first_of(&team->queue))
        take_first(&team->queue, FR_ERR_MPI);
    fr_coll_queue_release(team);
}
