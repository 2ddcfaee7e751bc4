// SPDX-License-Identifier: BSD-3-Clause
// Collectives as queued tasks: their start, their progress in calls, and their end.
#include "config.h"

#include "intercept/coll_later.h"

// Tells the team that a call waits for the operation, until that is over.
static void await(struct fr_intercept_later *later, bool awaits)
{
    if (awaits == later->is_awaited)
        return;
    later->is_awaited = awaits;
    atomic_fetch_add_explicit(&later->team->later.awaited, awaits ? 1 : -1u, memory_order_relaxed);
}

// Goes on with the task, and ends the operation when that is over.
static bool advance(struct fr_request_op *op)
{
    struct fr_intercept_later *later = op->schedule->own;
    if (!atomic_load(&later->queued.over)) {
        await(later, op->schedule->is_awaited);
        fr_coll_queue_progress();
    }
    if (!atomic_load(&later->queued.over))
        return false;
    await(later, false);
    enum fr_status status = later->kind->end(later);
    if (status != FR_OK)
        op->schedule->error = fr_request_error_code(status);
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

static int start(struct fr_request_op *op)
{
    struct fr_intercept_later *later = op->schedule->own;
    later->kind->begin(later);
    fr_coll_queue_add(&later->queued);
    op->schedule->is_quiet = is_on_host(op) && fr_coll_queue_has_thread();
    fr_coll_queue_progress();
    return fr_abi_mpi.SUCCESS;
}

static void release(void *own)
{
    struct fr_intercept_later *later = own;
    struct fr_coll_team *clone = later->op->persistent ? later->team : NULL;
    await(later, false);
    later->kind->release(later);
    fr_coll_team_clone_free(clone);
    fr_intercept_comms_free_later();
}

struct fr_coll_team *fr_intercept_later_team(const struct fr_request_op *op,
                                             struct fr_coll_team *team)
{
    if (!fr_coll_team_takes_later(team))
        return NULL;
    return op->persistent ? fr_coll_team_clone(team, fr_abi_rows[op->fn].name) : team;
}

enum fr_status fr_intercept_later_make(struct fr_intercept_later *later, struct fr_request_op *op,
                                       struct fr_coll_team *team,
                                       const struct fr_intercept_later_kind *kind)
{
    enum fr_status status = fr_request_schedule_make(op, 0, start);
    if (status != FR_OK) {
        if (op->persistent)
            fr_coll_team_clone_free(team);
        return status;
    }
    later->kind = kind;
    later->op = op;
    later->team = team;
    op->schedule->own = later;
    op->schedule->advance = advance;
    op->schedule->release = release;
    return FR_OK;
}

int fr_intercept_later_open(struct fr_request_op *op, enum fr_status status)
{
    fr_word comm = op->object;
    int result = fr_request_error_code(status);
    if (status == FR_OK)
        result = fr_request_schedule_open(op, (void *)op->args[fr_abi_rows[op->fn].request]);
    else
        fr_request_op_free(op);
    return result == fr_abi_mpi.SUCCESS ? result : fr_request_raise('c', comm, result);
}
