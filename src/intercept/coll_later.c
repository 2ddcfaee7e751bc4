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

// Ends the operation if its task is over. Returns whether that is so, and its messages are, too.
static bool end(struct fr_intercept_later *later)
{
    enum fr_status status = FR_OK;
    if (later->is_over || !atomic_load(&later->queued.over))
        return later->is_over;
    await(later, false);
    later->is_over = later->kind->end(later, &status);
    if (status != FR_OK)
        later->op->schedule->error = fr_request_error_code(status);
    return later->is_over;
}

static bool advance(struct fr_request_op *op)
{
    struct fr_intercept_later *later = op->schedule->own;
    if (!atomic_load(&later->queued.over)) {
        await(later, op->schedule->is_awaited);
        fr_coll_queue_progress();
    }
    return end(later);
}

static bool is_on_host(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        if (fr_device_owns(&op->views[v].range))
            return false;
    }
    return true;
}

// Begins the task. A rank that declines begins the messages at once, unless others are before them.
// Once they are begun MPI goes on with them.
static int start(struct fr_request_op *op)
{
    struct fr_intercept_later *later = op->schedule->own;
    later->is_over = false;
    later->kind->begin(later);
    fr_coll_queue_add(&later->queued);
    fr_coll_queue_progress();
    if (later->kind->ends_alone) {
        op->schedule->is_quiet = is_on_host(op) && fr_coll_queue_has_thread();
        return fr_abi_mpi.SUCCESS;
    }
    const size_t parts = op->schedule->count;
    op->schedule->is_quiet = end(later) || op->schedule->count > parts;
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

void fr_intercept_later_attach(struct fr_intercept_later *later, struct fr_request_op *op,
                               struct fr_coll_team *team,
                               const struct fr_intercept_later_kind *kind)
{
    later->kind = kind;
    later->op = op;
    later->team = team;
    op->schedule->own = later;
    op->schedule->start = start;
    op->schedule->advance = advance;
    op->schedule->release = release;
}
