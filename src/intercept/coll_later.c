// SPDX-License-Identifier: BSD-3-Clause
// Collectives as queued tasks: their start, their progress in calls, and their end.
#include "config.h"

#include "intercept/coll_later.h"

#include "fabrail/coll/clone.h"
#include "fabrail/coll/host_exchange.h"
#include "fabrail/coll/host_posts.h"
#include "fabrail/policy/coll_plan.h"
#include "fabrail/report.h"
#include "fabrail/request/errors.h"
#include "intercept/coll_buffer.h"

#include <stdlib.h>
#include <string.h>

// Goes on with the task, and ends the operation when that is over. The queue's thread may have
// ended it, and has left to tell the others why before it says so.
static bool advance(struct fr_request_op *op)
{
    struct fr_intercept_later *later = op->schedule->own;
    if (!atomic_load(&later->queued.over))
        fr_coll_queue_progress();
    bool over = atomic_load(&later->queued.over);
    fr_coll_team_send_notices(later->team);
    if (!over)
        return false;
    fr_request_schedule_await(op->schedule, false);
    fr_coll_host_end(later->team, later->host);
    enum fr_status status = later->kind->end(later);
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
    const struct fr_intercept_later *later =
        (void *)((char *)queued - offsetof(struct fr_intercept_later, queued));
    return fr_coll_host_progress(later->team, later->host, over);
}

// Begins with what this call has put into the queue. It goes on as a call that waits does, and
// other ranks know. They may have counted on it just as it stopped, so it goes on once more.
static void begin_queued(struct fr_coll_team *team)
{
    atomic_fetch_add_explicit(&team->later.awaited, 1, memory_order_relaxed);
    fr_coll_queue_progress();
    atomic_fetch_sub_explicit(&team->later.awaited, 1, memory_order_relaxed);
    fr_coll_queue_progress();
}

// Begins as begin_queued does where the application's work on the memory may not be over. Only this
// thread asks for that, since it has a default stream of its own. What is not launched by the end
// of this call waits for the work in it, as the application may have other work in the next one.
static void begin_deferred(struct fr_intercept_later *later)
{
    struct fr_coll_team *team = later->team;
    fr_coll_queue_hold(team);
    fr_coll_queue_add(&later->queued);
    fr_coll_queue_progress_held(team);
    if (!atomic_load(&later->queued.over))
        later->kind->sync(later);
    later->defers = false;
    fr_coll_queue_release(team);
    fr_coll_queue_progress();
}

static int start(struct fr_request_op *op)
{
    struct fr_intercept_later *later = op->schedule->own;
    struct fr_coll_host *host = later->host;
    later->defers =
        later->team->slab && later->team->queue.used && later->team->begun == later->team->ended;
    enum fr_status status = later->kind->open(later);
    if (!is_on_host(op)) // its buffers count once the ranks have agreed, maybe in another call
        fr_report_touch(FR_PATH_PEER, op->comm_label);
    host->call = fr_abi_rows[op->fn].name;
    host->number = later->team->later.begun++;
    fr_intercept_coll_fix_context(&host->send_range);
    fr_intercept_coll_fix_context(&host->receive_range);
    if (status == FR_OK)
        later->kind->begin(later);
    else
        fr_coll_task_begin_declined(&later->queued.task, later->team, host->call);
    later->queued.instead = later->team->slab ? NULL : go_on_by_cpus;
    later->queued.task.host = later->is_short || later->team->slab ? host : NULL;
    if (later->defers) {
        begin_deferred(later);
    } else {
        fr_coll_queue_add(&later->queued);
        begin_queued(later->team);
    }
    op->schedule->is_quiet = is_on_host(op) && fr_coll_queue_has_thread();
    return fr_abi_mpi.SUCCESS;
}

static void release(void *own)
{
    struct fr_intercept_later *later = own;
    struct fr_coll_team *clone = later->op->persistent ? later->team : NULL;
    fr_request_schedule_await(later->op->schedule, false);
    if (clone)
        fr_coll_queue_close(clone);
    fr_coll_host_end(later->team, later->host);
    free(later);
    fr_coll_team_clone_free(clone);
    fr_intercept_comms_free_later();
}

// Gives the operation a schedule that begins the task. It owns `later` and a team of its own then.
static enum fr_status attach(struct fr_intercept_later *later)
{
    struct fr_request_op *op = later->op;
    const size_t ranks = (size_t)later->team->size;
    enum fr_status status = fr_request_schedule_make(op, 0, start);
    if (status != FR_OK)
        return status;
    op->schedule->own = later;
    op->schedule->awaited = &later->team->later.awaited;
    op->schedule->advance = advance;
    op->schedule->release = release;
    return op->persistent && later->kind->reads_args
               ? fr_request_schedule_keep_args(op, ranks, ranks)
               : FR_OK;
}

static size_t count_bytes(const struct fr_request_op *op, const struct fr_coll_team *team)
{
    return fr_abi_shape_of(op->fn)->reduces ? fr_intercept_reduction_bytes(op, team)
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

void fr_intercept_later_fail(enum fr_fn fn, const fr_word *args, struct fr_coll_team *team)
{
    struct fr_request_op op = {.fn = fn};
    const char *call = fr_abi_rows[fn].name;
    memcpy(op.args, args, fr_abi_rows[fn].arg_count * sizeof(fr_word));
    const size_t bytes = count_bytes(&op, team);
    const uint64_t number = team->later.begun++;
    const bool by_posts = team->slab || fr_coll_host_posts_suit(team, bytes);
    if (by_posts && (fail_by_posts(team, call) || team->slab))
        return;
    fr_coll_decline(team, call); // the others leave their tasks, and hear of it then
    fr_coll_queue_hold(team);
    fr_coll_host_fail(team, call, number, bytes,
                      fr_abi_shape_of(fn)->reduces ? 0 : FR_COLL_EXCHANGE_WORDS);
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
        fr_intercept_later_fail(fn, args, team);
    return result;
}

static struct fr_intercept_later *make(struct fr_request_op *op, struct fr_coll_team *team,
                                       const struct fr_intercept_later_kind *kind, size_t bytes,
                                       enum fr_status *status)
{
    struct fr_intercept_later *later = calloc(1, bytes);
    *status = FR_ERR_NO_MEMORY;
    if (!later)
        return NULL;
    later->kind = kind;
    later->op = op;
    later->team = team;
    later->is_short = fr_coll_host_posts_suit(team, count_bytes(op, team));
    *status = kind->prepare(later, fr_intercept_views_build(op));
    return later;
}

// Gives a persistent operation a team of its own, on all ranks or on none. `status` says whether
// this rank has made it so far: one that lacks memory tells the others.
static bool attach_own_team(struct fr_request_op *op, struct fr_coll_team *team,
                            struct fr_intercept_later *later, enum fr_status status)
{
    struct fr_coll_team *clone = status == FR_OK ? fr_coll_team_clone_new(team) : NULL;
    bool made = false;
    if (clone) {
        later->team = clone;
        made = attach(later) == FR_OK;
    }
    bool all = fr_coll_team_clone_open(team, made ? clone : NULL, fr_abi_rows[op->fn].name);
    if (!op->schedule) // which owns it otherwise
        fr_coll_team_clone_free(clone);
    return all;
}

bool fr_intercept_later_begin(struct fr_request_op *op, struct fr_coll_team *team,
                              const struct fr_intercept_later_kind *kind, size_t bytes, int *result)
{
    struct fr_intercept_later *later = NULL;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    struct fr_coll_team *for_later = fr_coll_team_for_later(team);
    if (for_later && !op->persistent)
        team = for_later;
    if (for_later)
        later = make(op, team, kind, bytes, &status);
    bool begins = status == FR_OK || status == FR_ERR_NO_MEMORY; // then the others begin a task
    if (begins && op->persistent)
        begins = attach_own_team(op, team, later, status);
    else if (status == FR_OK)
        status = attach(later);
    if (!op->schedule)
        free(later);
    if (!begins) {
        fr_request_op_free(op);
        return false;
    }
    *result = open_schedule(op, op->persistent ? NULL : team, status);
    return true;
}
