// SPDX-License-Identifier: BSD-3-Clause
// Collectives as queued tasks: their start, their progress in calls, and their end.
#include "config.h"

#include "intercept/coll_nonblocking.h"

#include "fabrail/coll/clone.h"
#include "fabrail/coll/host_exchange.h"
#include "fabrail/coll/host_posts.h"
#include "fabrail/report.h"
#include "fabrail/request/errors.h"
#include "intercept/coll_buffer.h"

#include <stdlib.h>
#include <string.h>

// Goes on with the task. Returns whether it is over, or there is something to tell the others.
static bool is_due(struct fr_request_op *op)
{
    struct fr_intercept_nonblocking *coll = op->schedule->own;
    if (!atomic_load(&coll->queued.over))
        fr_coll_queue_progress();
    return atomic_load(&coll->queued.over) ||
           atomic_load_explicit(&coll->team->notices, memory_order_relaxed) != 0;
}

static void wait_for_device(struct fr_request_op *op)
{
    const struct fr_intercept_nonblocking *coll = op->schedule->own;
    if (!atomic_load(&coll->queued.over))
        fr_coll_queue_progress_waiting();
}

// Ends the operation when its task is over. The queue's thread may have ended that, and has left to
// tell the others why before it says so.
static bool advance(struct fr_request_op *op)
{
    struct fr_intercept_nonblocking *coll = op->schedule->own;
    if (!is_due(op))
        return false;
    bool over = atomic_load(&coll->queued.over);
    fr_coll_team_send_notices(coll->team);
    if (!over)
        return false;
    fr_request_schedule_await(op->schedule, false);
    fr_coll_host_end(coll->team, coll->host);
    enum fr_status status = coll->kind->end(coll);
    if (status != FR_OK)
        op->schedule->error = fr_request_tell_failure(op, status);
    return true;
}

static bool is_on_host(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if (fr_device_owns(&op->views[v].range))
            return false;
    }
    return true;
}

// Does the operation where some rank cannot take part in the task.
static enum fr_status go_on_by_cpus(struct fr_coll_queued *queued, bool *over)
{
    const struct fr_intercept_nonblocking *coll =
        (void *)((char *)queued - offsetof(struct fr_intercept_nonblocking, queued));
    return fr_coll_host_progress(coll->team, coll->host, over);
}

// Begins with what this call has put into the queue. It goes on as a call that waits does, and
// other ranks know. They may have counted on it just as it stopped, so it goes on once more.
static void begin_queued(struct fr_coll_team *team)
{
    atomic_fetch_add_explicit(&team->nonblocking_awaited, 1, memory_order_relaxed);
    fr_coll_queue_progress();
    atomic_fetch_sub_explicit(&team->nonblocking_awaited, 1, memory_order_relaxed);
    fr_coll_queue_progress();
}

// Begins as begin_queued does where the application's work on the memory may not be over. Only this
// thread asks for that, since it has a default stream of its own. A kernel that is not launched by
// the end of this call waits for the work in it: the application may have other work in the next
// one.
static void begin_deferred(struct fr_intercept_nonblocking *coll)
{
    struct fr_coll_team *team = coll->team;
    fr_coll_queue_hold(team);
    fr_coll_queue_add(&coll->queued);
    fr_coll_queue_progress_held(team);
    if (!atomic_load(&coll->queued.over))
        coll->kind->sync(coll);
    coll->defers = false;
    fr_coll_queue_release(team);
    fr_coll_queue_progress();
}

static int start(struct fr_request_op *op)
{
    struct fr_intercept_nonblocking *coll = op->schedule->own;
    struct fr_coll_host *host = coll->host;
    coll->defers =
        coll->team->slab && coll->team->queue.used && coll->team->begun == coll->team->ended;
    enum fr_status status = coll->kind->open(coll);
    if (!is_on_host(op)) // its buffers count once the ranks have agreed, maybe in another call
        fr_report_touch(FR_PATH_PEER, op->comm_label);
    host->call = fr_abi_rows[op->fn].name;
    host->number = coll->team->nonblocking_begun++;
    fr_device_range_fix_context(&host->send_range);
    fr_device_range_fix_context(&host->receive_range);
    if (status == FR_OK)
        coll->kind->begin(coll);
    else
        fr_coll_task_begin_declined(&coll->queued.task, coll->team, host->call);
    coll->queued.fallback = coll->team->slab ? NULL : go_on_by_cpus;
    coll->queued.task.host = coll->is_short || coll->team->slab ? host : NULL;
    if (coll->defers) {
        begin_deferred(coll);
    } else {
        fr_coll_queue_add(&coll->queued);
        begin_queued(coll->team);
    }
    fr_coll_queue_leave();
    op->schedule->is_quiet = is_on_host(op) && fr_coll_queue_has_thread();
    return fr_abi_mpi.SUCCESS;
}

static void release(void *own)
{
    struct fr_intercept_nonblocking *coll = own;
    struct fr_coll_team *clone = coll->op->persistent ? coll->team : NULL;
    fr_request_schedule_await(coll->op->schedule, false);
    if (clone)
        fr_coll_queue_close(clone);
    fr_coll_host_end(coll->team, coll->host);
    free(coll);
    fr_coll_team_clone_free(clone);
    fr_intercept_comms_free_later();
}

// Gives the operation a schedule that begins the task. It owns `coll` and a team of its own then.
static enum fr_status attach(struct fr_intercept_nonblocking *coll)
{
    struct fr_request_op *op = coll->op;
    const size_t ranks = (size_t)coll->team->size;
    enum fr_status status = fr_request_schedule_make(op, 0, start);
    if (status != FR_OK)
        return status;
    op->schedule->own = coll;
    op->schedule->awaited = &coll->team->nonblocking_awaited;
    op->schedule->spins = &coll->team->nonblocking_spins;
    op->schedule->is_due = is_due;
    op->schedule->wait_for_device = wait_for_device;
    op->schedule->advance = advance;
    op->schedule->release = release;
    return op->persistent && coll->kind->reads_args
               ? fr_request_schedule_keep_args(op, ranks, ranks)
               : FR_OK;
}

static size_t count_bytes(const struct fr_request_op *op, const struct fr_coll_team *team)
{
    return fr_abi_rows[op->fn].shape->reduces ? fr_intercept_reduction_bytes(op, team)
                                              : fr_intercept_exchange_bytes(op, team);
}

// Says so in posts. Returns false where there are none.
static bool fail_by_posts(struct fr_coll_team *team, const char *call)
{
    struct fr_coll_host host = {.call = call, .failure = FR_ERR_NO_MEMORY};
    struct fr_coll_task task;
    fr_coll_task_begin_declined(&task, team, call);
    task.host = &host;
    return fr_coll_task_run(&task) != FR_ERR_UNSUPPORTED;
}

void fr_intercept_nonblocking_fail(enum fr_fn fn, const fr_word *args, struct fr_coll_team *team)
{
    struct fr_request_op op = {.fn = fn};
    const char *call = fr_abi_rows[fn].name;
    memcpy(op.args, args, fr_abi_rows[fn].arg_count * sizeof(fr_word));
    const size_t bytes = count_bytes(&op, team);
    const uint64_t number = team->nonblocking_begun++;
    const bool by_posts = team->slab || fr_coll_host_posts_suit(team, bytes);
    if (by_posts && (fail_by_posts(team, call) || team->slab))
        return;
    fr_coll_decline(team, call); // the others leave their tasks, and hear of it then
    fr_coll_queue_hold(team);
    fr_coll_host_fail(team, call, number, bytes,
                      fr_abi_rows[fn].shape->reduces ? 0 : FR_COLL_EXCHANGE_WORDS);
    fr_coll_queue_release(team);
}

// `team` is NULL for a persistent operation. Returns what the call returns; an error is yet to be
// raised.
static int open_schedule(struct fr_request_op *op, struct fr_coll_team *team, enum fr_status status)
{
    fr_word args[FR_MAX_ARGS];
    enum fr_fn fn = op->fn;
    int result = fr_request_error_code(status);
    memcpy(args, op->args, sizeof(args));
    if (status == FR_OK)
        result = fr_request_schedule_open(op, (void *)op->args[fr_abi_rows[op->fn].request]);
    else
        fr_request_op_free(op);
    if (result != fr_abi_mpi.SUCCESS && team)
        fr_intercept_nonblocking_fail(fn, args, team);
    return result;
}

static struct fr_intercept_nonblocking *make(struct fr_request_op *op, struct fr_coll_team *team,
                                             const struct fr_intercept_nonblocking_kind *kind,
                                             size_t bytes, enum fr_status *status)
{
    struct fr_intercept_nonblocking *coll = calloc(1, bytes);
    *status = FR_ERR_NO_MEMORY;
    if (!coll)
        return NULL;
    coll->kind = kind;
    coll->op = op;
    coll->team = team;
    coll->is_short = fr_coll_host_posts_suit(team, count_bytes(op, team));
    *status = kind->prepare(coll, fr_intercept_views_of_team(op, team));
    return coll;
}

// Gives a persistent operation a team of its own, on all ranks or on none. `status` says whether
// this rank has made it so far: one that lacks memory tells the others.
static bool attach_own_team(struct fr_request_op *op, struct fr_coll_team *team,
                            struct fr_intercept_nonblocking *coll, enum fr_status status)
{
    struct fr_coll_team *clone = status == FR_OK ? fr_coll_team_clone_new(team) : NULL;
    bool made = false;
    if (clone) {
        coll->team = clone;
        made = attach(coll) == FR_OK;
    }
    bool all = fr_coll_team_clone_open(team, made ? clone : NULL, fr_abi_rows[op->fn].name);
    if (!op->schedule) // which owns it otherwise
        fr_coll_team_clone_free(clone);
    return all;
}

bool fr_intercept_nonblocking_begin(struct fr_request_op *op, struct fr_coll_team *team,
                                    const struct fr_intercept_nonblocking_kind *kind, size_t bytes,
                                    int *result)
{
    struct fr_intercept_nonblocking *coll = NULL;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    struct fr_coll_team *for_nonblocking = fr_coll_team_for_nonblocking(team);
    if (for_nonblocking && !op->persistent)
        team = for_nonblocking;
    if (for_nonblocking)
        coll = make(op, team, kind, bytes, &status);
    bool begins = status == FR_OK || status == FR_ERR_NO_MEMORY; // then the others begin a task
    if (begins && op->persistent)
        begins = attach_own_team(op, team, coll, status);
    else if (status == FR_OK)
        status = attach(coll);
    if (!op->schedule)
        free(coll);
    if (!begins) {
        fr_request_op_free(op);
        return false;
    }
    *result = open_schedule(op, op->persistent ? NULL : team, status);
    return true;
}
