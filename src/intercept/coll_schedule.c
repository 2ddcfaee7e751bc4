// SPDX-License-Identifier: BSD-3-Clause
// Collectives that move data, done message by message. These are nonblocking and persistent ones
// that are no tasks (coll_nonblocking.h), and blocking all-to-all exchanges on communicators of
// several hosts. Each pair of ranks takes its own best path, which the sender chooses and tells of.
// So ranks need only agree that they do it this way. The communicator's team (module coll) and
// sizes that are the same everywhere say so. The messages are made in coll_messages.c.
#include "config.h"

#include "fabrail/coll/clone.h"
#include "fabrail/report.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "intercept/coll_messages.h"
#include "intercept/coll_nonblocking.h"

// Frees communicators that waited for this schedule.
static void release(void *own)
{
    (void)own;
    fr_intercept_comms_free_later();
}

// Prepares the schedule of a call. Everything that can be wrong with this rank's call alone is an
// error of the call, since the other ranks go this way.
static enum fr_status prepare(struct fr_request_op *op, const struct fr_coll_team *team, int tag)
{
    const struct fr_abi_shape *shape = fr_abi_rows[op->fn].shape;
    bool neighbours = shape->is_neighbourly;
    enum fr_status status = FR_OK;
    if (fr_abi_shape_swaps(shape) && fr_intercept_is_in_place(op)) {
        status = fr_intercept_views_of_team(op, team);
        if (status == FR_OK)
            status = fr_intercept_coll_messages_open_copy(op);
    }
    int in_degree = team->size, out_degree = team->size;
    if (status == FR_OK && neighbours)
        status = fr_intercept_neighbours_of(op->object, &in_degree, &out_degree);
    if (status == FR_OK)
        status = fr_request_schedule_make(op, (size_t)in_degree + (size_t)out_degree,
                                          neighbours ? fr_intercept_coll_messages_start_neighbours
                                                     : fr_intercept_coll_messages_start);
    if (status == FR_OK) {
        op->schedule->tag = tag;
        op->schedule->release = release;
    }
    if (status == FR_OK && op->persistent) {
        fr_intercept_coll_messages_drop_sides(op, team);
        status = fr_request_schedule_keep_args(op, (size_t)out_degree, (size_t)in_degree);
    }
    return status;
}

static struct fr_request_op *make(enum fr_fn fn, const fr_word *args, fr_word comm)
{
    struct fr_request_op *op = fr_request_op_new(fn, args);
    if (!op)
        return NULL;
    op->object_kind = 'c';
    op->object = comm;
    op->persistent = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT;
    op->comm_label = fr_report_call_label();
    return op;
}

// Says why an operation cannot be done, and frees it. Returns the error, which is yet to be raised.
static int refuse(struct fr_request_op *op, enum fr_status status)
{
    fr_error("%s cannot be done: %s", op ? fr_abi_rows[op->fn].name : "an exchange",
             fr_core_status_text(status));
    fr_request_op_free(op);
    return fr_request_error_code(status);
}

// A schedule that a blocking call runs.
struct run {
    struct fr_coll_team *team;
    const char *call;
};

static bool judge(void *cookie, struct fr_wait *time)
{
    const struct run *run = cookie;
    return fr_coll_team_judge(run->team, time, run->call);
}

bool fr_intercept_run_schedule(enum fr_fn fn, const fr_word *args, struct fr_coll_team *team,
                               int *result)
{
    bool over;
    fr_word comm = fr_abi_comm(fn, args);
    if (!fr_intercept_goes_by_messages(fn, args, team))
        return false;
    struct fr_request_op *op = make(fn, args, comm);
    enum fr_status status = op ? prepare(op, team, team->first_tag) : FR_ERR_NO_MEMORY;
    if (status != FR_OK) {
        *result = refuse(op, status);
        return true;
    }
    struct run run = {team, fr_abi_rows[fn].name};
    *result = fr_request_schedule_run(op, judge, &run, &over);
    if (over)
        fr_request_op_free(op);
    return true;
}

// Returns how many tags an exchange takes. Messages of a grid have a tag for each neighbour
// (tag_of).
static int count_tags(enum fr_fn fn, fr_word comm)
{
    int topology = 0, dimensions = 0;
    if (!fr_abi_rows[fn].shape->is_neighbourly ||
        FR_MPI(Topo_test, comm, FR_PTR(&topology)) != fr_abi_mpi.SUCCESS ||
        topology != fr_abi_mpi.CART)
        return 1;
    FR_MPI(Cartdim_get, comm, FR_PTR(&dimensions));
    return 2 * dimensions < FR_COLL_TEAM_TAGS ? 2 * dimensions : FR_COLL_TEAM_TAGS;
}

// Returns the first tag of an exchange that is done by messages, -1 for any other.
static int choose_tag(enum fr_fn fn, const fr_word *args, fr_word comm, struct fr_coll_team *team)
{
    if (!team || fr_abi_rows[fn].shape->reduces || !fr_intercept_goes_by_messages(fn, args, team))
        return -1;
    bool persistent = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT;
    return persistent ? fr_coll_team_take_tags(team, count_tags(fn, comm)) : team->first_tag;
}

// Begins a collective as a task. Returns false, on all ranks, where it is none. An error in *result
// is yet to be raised.
static bool begin_task(enum fr_fn fn, fr_word *args, fr_word comm, struct fr_coll_team *team,
                       int *result)
{
    bool reduces = fr_abi_rows[fn].shape->reduces;
    if (!team || !(reduces ? fr_intercept_reduction_pays(fn, args, team)
                           : fr_intercept_exchange_pays(fn, args, team)))
        return false;
    bool persistent = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT;
    struct fr_request_op *op = make(fn, args, comm);
    if (op)
        return reduces ? fr_intercept_reduction_begin_nonblocking(op, team, result)
                       : fr_intercept_exchange_begin_nonblocking(op, team, result);
    struct fr_coll_team *for_nonblocking = fr_coll_team_for_nonblocking(team);
    if (persistent) {
        (void)(for_nonblocking && fr_coll_team_clone_open(team, NULL, fr_abi_rows[fn].name));
        return false;
    }
    if (for_nonblocking)
        fr_intercept_nonblocking_fail(fn, args, for_nonblocking);
    *result = refuse(NULL, FR_ERR_NO_MEMORY);
    return true;
}

// Leaves a collective to the real MPI, with staged buffers if need be.
static int leave(enum fr_fn fn, fr_word *args)
{
    int result;
    bool served =
        !fr_intercept_are_host_buffers(fn, args) && fr_intercept_call_buffers(fn, args, &result);
    return served ? result : fr_abi_call(fn, args);
}

// Begins a collective message by message, or leaves it to MPI. An error that is returned has yet to
// be raised if *raises is set.
static int begin_messages(enum fr_fn fn, fr_word *args, fr_word comm, struct fr_coll_team *team,
                          bool *raises)
{
    int tag = choose_tag(fn, args, comm, team);
    if (tag < 0)
        return leave(fn, args);
    struct fr_request_op *op = make(fn, args, comm);
    enum fr_status status = op ? prepare(op, team, tag) : FR_ERR_NO_MEMORY;
    const char *call = fr_abi_rows[fn].name;
    if (fr_abi_rows[fn].flags & FR_ROW_PERSISTENT &&
        !fr_coll_team_all_can(team, call, status == FR_OK)) {
        fr_request_op_free(op);
        return leave(fn, args);
    }
    *raises = true;
    return status == FR_OK ? fr_request_schedule_open(op, (void *)args[fr_abi_rows[fn].request])
                           : refuse(op, status);
}

// An error handler may free the communicator, or not return. So the call has left its team before
// an error of Fabrail's is raised. The other ranks hear of that in the operation, which they may
// have begun already. So the team goes on, while a call that MPI has refused has this rank quit it.
bool fr_intercept_call_schedule(enum fr_fn fn, fr_word *args, int *result)
{
    fr_word comm = fr_abi_comm(fn, args);
    bool enters = fr_intercept_nvlink_is_enabled() && comm != fr_abi_mpi.COMM_NULL;
    bool persistent = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT, raises = true;
    struct fr_coll_team *team = NULL;
    if (enters)
        team = fr_coll_team_enter(comm, persistent ? FR_COLL_WAITS_FIRST : FR_COLL_WAITS_NEVER);
    if (!begin_task(fn, args, comm, team, result)) {
        raises = false;
        *result = begin_messages(fn, args, comm, team, &raises);
    }
    raises = raises && *result != fr_abi_mpi.SUCCESS;
    if (enters) // waits for nobody
        (void)fr_coll_team_exit(comm, raises ? fr_abi_mpi.SUCCESS : *result);
    if (raises)
        *result = fr_request_raise('c', comm, *result);
    return true;
}
