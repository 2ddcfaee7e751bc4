// SPDX-License-Identifier: BSD-3-Clause
// Tasks: a function for each stage. It returns whether the stage is over; else there is nothing to
// do for now.
#include "config.h"

#include "fabrail/coll/task.h"

#include "coll/mapset.h"
#include "coll/team_memory.h"
#include "fabrail/coll/host_posts.h"
#include "fabrail/coll/queue.h"
#include "fabrail/core/meter.h"

static bool enter(struct fr_coll_task *task, enum fr_coll_stage stage)
{
    task->stage = stage;
    return true;
}

// Enters a stage that has a round. All ranks come to the last one of an operation.
static bool enter_round(struct fr_coll_task *task, enum fr_coll_stage stage)
{
    task->round = (struct fr_coll_round){
        .call = task->round.call,
        .ends = stage == FR_COLL_STAGE_RESULTS || stage == FR_COLL_STAGE_DATA,
    };
    task->is_loaded = false;
    return enter(task, stage);
}

static bool end(struct fr_coll_task *task, enum fr_status status)
{
    task->status = status;
    if (task->team->memory)
        fr_coll_mapset_rest(task->team);
    fr_coll_team_end_turn(task->team);
    return enter(task, FR_COLL_STAGE_OVER);
}

static bool take_turn(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    if (team->ended != task->turn)
        return false;
    if (!team->broken && !fr_coll_open_segment(team))
        return false;
    if (team->broken)
        return end(task, FR_ERR_MPI);
    if (!team->segment && !team->slab)
        return end(task, FR_ERR_UNSUPPORTED);
    if (team->quit) // and so a rank posts for no operation from this one on
        return end(task, FR_ERR_UNSUPPORTED);
    if (task->declines)
        return enter(task, FR_COLL_STAGE_DECLINE);
    if (!team->memory && !fr_coll_mapset_make(team))
        return enter(task, FR_COLL_STAGE_DECLINE);
    return enter(task, fr_coll_agree_prepare(task) ? FR_COLL_STAGE_COPY_IN : FR_COLL_STAGE_ADVERTS);
}

// Returns whether the device has done the task's work. Then *status says how that ended.
static bool has_worked(struct fr_coll_task *task, enum fr_status *status)
{
    if (!task->waits && !fr_device_work_is_over(&task->work))
        return false;
    *status = fr_device_work_end(&task->work);
    return true;
}

static bool copy_in(struct fr_coll_task *task)
{
    enum fr_status status;
    if (!has_worked(task, &status))
        return false;
    if (status != FR_OK)
        fr_coll_agree_refuse(task);
    return enter(task, FR_COLL_STAGE_ADVERTS);
}

// Returns what a failure is once the ranks have agreed. None of them may still do the operation in
// another way by itself.
static enum fr_status failure_of(enum fr_status status)
{
    return status == FR_ERR_UNSUPPORTED ? FR_ERR_DEVICE : status;
}

// Goes on where ranks have posted in a complete round, and not all by their data. All ranks find
// the same.
static bool go_on_by_posts(struct fr_coll_task *task, enum fr_coll_posted posted)
{
    fr_coll_round_done(task->team, task->round.number);
    if (posted == FR_COLL_POSTED_FAILED)
        return end(task, FR_ERR_DEVICE);
    if (task->stage == FR_COLL_STAGE_DATA) // a rank had no room for its data
        return end(task, FR_ERR_UNSUPPORTED);
    return enter_round(task, FR_COLL_STAGE_DATA);
}

// Posts this rank's data, and does the operation once those of all are there. Long data take some
// rounds.
static bool gather_data(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    bool complete = true, goes_on = false;
    enum fr_status status = FR_OK;
    if (!task->is_loaded)
        status = fr_coll_round_gather_previous(team, &task->round, &complete);
    if (status == FR_OK && !complete)
        return false;
    if (status == FR_OK && !task->is_loaded) {
        task->post = fr_coll_host_posts_load(team, task->host);
        task->post.is_queued = !task->waits;
        task->is_loaded = true;
    }
    if (status == FR_OK)
        status = fr_coll_round_gather(team, &task->round, &task->post, &complete);
    if (status != FR_OK)
        return end(task, status);
    if (task->round.number && task->host->failure != FR_OK) // all hear of it
        return go_on_by_posts(task, FR_COLL_POSTED_FAILED);
    if (!complete)
        return false;
    enum fr_coll_posted posted = fr_coll_host_posts_find(team, task->host, task->round.number);
    if (posted != FR_COLL_POSTED_DATA)
        return go_on_by_posts(task, posted);
    status = fr_coll_host_posts_take(team, task->host, task->round.number, &goes_on);
    fr_coll_round_done(team, task->round.number);
    task->is_by_posts = true;
    if (goes_on)
        return enter_round(task, FR_COLL_STAGE_DATA);
    return end(task, failure_of(status));
}

static bool decline(struct fr_coll_task *task)
{
    if (task->host)
        return gather_data(task);
    static const struct fr_coll_advert nothing;
    struct fr_coll_team *team = task->team;
    const struct fr_coll_post post = {
        .data = &nothing,
        .bytes = team->segment ? 0 : offsetof(struct fr_coll_advert, handles), // all zeros
    };
    enum fr_status status = fr_coll_round_post(team, &task->round, &post);
    if (status != FR_OK)
        return end(task, status);
    if (!task->round.number)
        return false;
    fr_coll_round_done(team, task->round.number);
    return end(task, FR_ERR_UNSUPPORTED);
}

// Ends the agreement. The data that were agreed on may have been moved by then, as planned.
static bool end_agreement(struct fr_coll_task *task, enum fr_status status)
{
    struct fr_coll_team *team = task->team;
    fr_coll_round_done(team, team->round);
    if (status == FR_ERR_UNSUPPORTED && task->host)
        return enter_round(task, FR_COLL_STAGE_DATA);
    if (status != FR_OK)
        return end(task, status);
    if (task->done == FR_COLL_SLAB_COMBINED)
        return end(task, FR_OK);
    if (task->done == FR_COLL_SLAB_POSTED)
        return enter(task, FR_COLL_STAGE_MOVE);
    (void)enter_round(task, FR_COLL_STAGE_RESULTS);
    task->round.number = team->round;
    return true;
}

// Meters the wait for the last rank to come, in a call that waits. A kernel that then moves the
// bytes at once, which takes microseconds, is part of it.
static void meter_wait(struct fr_coll_task *task, bool complete)
{
    if (complete) {
        fr_core_meter_end(FR_METER_WAIT, task->waiting);
        task->waiting = 0;
    } else if (task->waits && !task->waiting) {
        task->waiting = fr_core_meter_begin();
    }
}

// Waits a moment for ranks that come to their calls now, so that this rank begins to move its bytes
// in its call. It may compute next, and begin much later. Where the last rank to come does the work
// of all, so that all can share it.
static enum fr_status linger(struct fr_coll_task *task, const struct fr_coll_post *post,
                             bool *complete)
{
    struct fr_wait time = {0};
    enum fr_status status = FR_OK;
    const bool lingers = task->part.moment_ns > 0 && task->team->segment && !task->has_lingered &&
                         !task->waits && fr_coll_team_is_awaited(task->team);
    task->has_lingered = task->has_lingered || lingers;
    while (lingers && status == FR_OK && !*complete && fr_wait_ns(&time) < task->part.moment_ns) {
        fr_wait_pause();
        status = fr_coll_round_gather(task->team, &task->round, post, complete);
    }
    return status;
}

static bool gather_adverts(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    const struct fr_coll_post post = {
        .data = team->memory->next,
        .bytes = sizeof(*team->memory->next) + task->slot_bytes,
        .mark = task->mark,
        .meets = true,
        .move = task->moves ? &task->move : NULL,
        .is_queued = !task->waits,
    };
    bool complete = false;
    enum fr_status status = fr_coll_round_gather(team, &task->round, &post, &complete);
    if (status == FR_OK && !complete)
        status = linger(task, &post, &complete);
    meter_wait(task, complete || status != FR_OK);
    if (status != FR_OK)
        return end(task, status);
    if (!complete)
        return false;
    task->done = task->round.done;
    status = fr_coll_agree_decide(task);
    if (status == FR_ERR_NOT_FOUND)
        return enter_round(task, FR_COLL_STAGE_MAPPED);
    if (status == FR_ERR_UNSUPPORTED && task->host)
        return go_on_by_posts(task, fr_coll_host_posts_find(team, task->host, task->adverts));
    return end_agreement(task, status);
}

// Posts the task's word, and looks for those of all ranks.
static enum fr_status gather_words(struct fr_coll_task *task, unsigned mark, bool *complete)
{
    const struct fr_coll_post post = {
        .data = &task->word,
        .bytes = sizeof(task->word),
        .mark = mark,
        .meets = true,
        .is_queued = !task->waits,
    };
    return fr_coll_round_gather(task->team, &task->round, &post, complete);
}

static bool gather_mapped(struct fr_coll_task *task)
{
    bool complete = false;
    enum fr_status status = gather_words(task, 0, &complete);
    if (status == FR_OK && !complete)
        return false;
    return end_agreement(task, status == FR_OK ? fr_coll_agree_compare(task) : status);
}

static bool tell_result(struct fr_coll_task *task, enum fr_status status)
{
    task->status = failure_of(status);
    task->word = status == FR_OK;
    return enter_round(task, FR_COLL_STAGE_RESULTS);
}

// Returns whether the calls of all other ranks go on. Those that come from their call to their wait
// get the moment for that.
static bool do_all_go_on(const struct fr_coll_task *task)
{
    const struct fr_coll_segment *segment = task->team->segment;
    struct fr_wait time = {0};
    while (!fr_coll_segment_all_await(segment)) {
        if (fr_coll_segment_has_chosen(segment, task->adverts) || task->part.moment_ns == 0 ||
            fr_wait_ns(&time) >= task->part.moment_ns)
            return false;
        fr_wait_pause();
    }
    return true;
}

// Returns the rank that moves all bytes, -1 where each moves its own. Ranks whose calls go on share
// the work. Otherwise the first that gets here does it all, since another may come much later.
static int choose_mover(const struct fr_coll_task *task)
{
    struct fr_coll_segment *segment = task->team->segment;
    if (!task->part.move_all || !segment)
        return -1;
    int wanted = do_all_go_on(task) ? -1 : task->team->rank;
    return fr_coll_segment_choose_mover(segment, task->adverts, wanted);
}

// Returns whether all ranks have delivered. What is left is then each rank's own business.
static bool have_delivered(const struct fr_coll_task *task)
{
    return task->delivers && task->alike;
}

static bool combine(struct fr_coll_task *task)
{
    const struct fr_coll_part *part = &task->part;
    enum fr_status status = part->combine(task->team, part->operation, &task->work);
    return status == FR_OK ? enter(task, FR_COLL_STAGE_MOVED) : end(task, failure_of(status));
}

static bool move(struct fr_coll_task *task)
{
    const struct fr_coll_part *part = &task->part;
    if (have_delivered(task))
        return combine(task);
    const int mover = choose_mover(task), step = task->step++;
    if (mover >= 0 && mover != task->team->rank)
        return tell_result(task, FR_OK);
    enum fr_status status = mover >= 0 ? part->move_all(task->team, part->operation, &task->work)
                                       : part->move(task->team, part->operation, step, &task->work);
    return status == FR_OK ? enter(task, FR_COLL_STAGE_MOVED) : tell_result(task, status);
}

static bool look_at_move(struct fr_coll_task *task)
{
    enum fr_status status;
    if (!has_worked(task, &status))
        return false;
    return have_delivered(task) ? end(task, failure_of(status)) : tell_result(task, status);
}

static void hear_results(struct fr_coll_task *task)
{
    const struct fr_coll_team *team = task->team;
    for (int rank = 0; rank < team->size; rank++) {
        if (fr_coll_round_is_marked(team, rank, task->round.number))
            continue; // it is well
        const uint32_t *moved = fr_coll_round_read(team, rank, task->round.number);
        if (!*moved && task->status == FR_OK) {
            fr_error("%s: rank %d of the communicator could not move its data", task->part.call,
                     rank);
            task->status = FR_ERR_DEVICE;
        }
    }
    fr_coll_round_done(team, task->round.number);
}

static bool gather_results(struct fr_coll_task *task)
{
    bool complete = false;
    enum fr_status status = gather_words(task, task->word, &complete);
    if (status != FR_OK)
        return end(task, status);
    if (!complete)
        return false;
    hear_results(task);
    if (task->status != FR_OK) // and so on all ranks
        return end(task, task->status);
    if (task->done == FR_COLL_SLAB_COPIED)
        return end(task, FR_OK);
    if (task->done == FR_COLL_SLAB_POSTED && task->step < task->part.steps)
        return enter(task, FR_COLL_STAGE_MOVE);
    if (!fr_coll_copy_begin(&task->part.after, true, true, &task->work))
        return end(task, FR_OK);
    return enter(task, FR_COLL_STAGE_COPY_OUT);
}

static bool copy_out(struct fr_coll_task *task)
{
    enum fr_status status;
    return has_worked(task, &status) && end(task, failure_of(status));
}

enum fr_status fr_coll_task_progress(struct fr_coll_task *task, bool *over)
{
    static bool (*const stages[])(struct fr_coll_task * task) = {
        [FR_COLL_STAGE_TURN] = take_turn,
        [FR_COLL_STAGE_DECLINE] = decline,
        [FR_COLL_STAGE_COPY_IN] = copy_in,
        [FR_COLL_STAGE_ADVERTS] = gather_adverts,
        [FR_COLL_STAGE_MAPPED] = gather_mapped,
        [FR_COLL_STAGE_DATA] = gather_data,
        [FR_COLL_STAGE_MOVE] = move,
        [FR_COLL_STAGE_MOVED] = look_at_move,
        [FR_COLL_STAGE_RESULTS] = gather_results,
        [FR_COLL_STAGE_COPY_OUT] = copy_out,
    };
    while (task->stage != FR_COLL_STAGE_OVER && stages[task->stage](task))
        ;
    *over = task->stage == FR_COLL_STAGE_OVER;
    return *over ? task->status : FR_OK;
}

static void begin(struct fr_coll_task *task, struct fr_coll_team *team, const char *call)
{
    task->team = team;
    task->stage = FR_COLL_STAGE_TURN;
    task->status = FR_OK;
    task->host = NULL;
    task->is_by_posts = false;
    task->waits = false;
    task->is_loaded = false;
    task->has_lingered = false;
    task->waiting = 0;
    task->turn = team->begun++;
    task->step = 0;
    task->done = FR_COLL_SLAB_POSTED;
    task->word = 1;
    task->round = (struct fr_coll_round){.call = call};
}

void fr_coll_task_begin(struct fr_coll_task *task, struct fr_coll_team *team)
{
    begin(task, team, task->part.call);
    task->declines = false;
    task->round.is_patient = task->part.is_patient;
}

void fr_coll_task_begin_declined(struct fr_coll_task *task, struct fr_coll_team *team,
                                 const char *call)
{
    begin(task, team, call);
    task->declines = true;
}

enum fr_status fr_coll_task_run(struct fr_coll_task *task)
{
    struct fr_coll_team *team = task->team;
    struct fr_wait pace = {0};
    uint64_t number = UINT64_MAX;
    bool over = false;
    task->waits = true;
    fr_coll_queue_hold(team);
    team->is_awaited = true;
    for (;;) {
        if (FR_UNLIKELY(team->queue.first != NULL))
            fr_coll_queue_progress_held(team);
        enum fr_status status = fr_coll_task_progress(task, &over);
        if (over) {
            team->is_awaited = false;
            fr_coll_queue_release(team);
            return status;
        }
        if (task->round.number != number)
            pace = fr_coll_round_pace(team);
        number = task->round.number;
        fr_coll_round_pause(team, &pace);
    }
}

void fr_coll_decline(struct fr_coll_team *team, const char *call)
{
    struct fr_coll_task task;
    fr_coll_task_begin_declined(&task, team, call);
    (void)!fr_coll_task_run(&task);
}
