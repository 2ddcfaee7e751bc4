// SPDX-License-Identifier: BSD-3-Clause
// Rounds of a team, and the handling of rounds to which a rank does not come.
#include "config.h"

#include "fabrail/coll/rounds.h"

#include "fabrail/coll/queue.h"
#include "fabrail/coll/team_message.h"

#include "fabrail/job.h"
#include "fabrail/job/shm.h"
#include "fabrail/rndv/progress.h"

#include <stdio.h>

enum {
    LOOKS_A_JUDGEMENT = 64, // looks at shared memory, which take some nanoseconds each
    LOOKS_FOR_A_SLOT = 1000,
    YIELDS_A_PROGRESS = 64,
    QUIT_LIMIT_S = 600,
};

static bool has_posted(const struct fr_coll_team *team, int rank, uint64_t round)
{
    return team->segment ? fr_coll_segment_has(team->segment, rank, round)
                         : fr_coll_slab_has(team->slab, rank, round);
}

// Nothing is known of processes on other hosts.
static bool is_gone(const struct fr_coll_team *team, int rank)
{
    const struct fr_job_process *process = &team->processes[rank];
    return process->host == fr_ipc_self()->host && !fr_job_process_is_alive(process);
}

bool fr_coll_team_has_lost(const struct fr_coll_team *team, int rank)
{
    return is_gone(team, rank) || (team->segment && fr_coll_segment_is_broken(team->segment, rank));
}

void fr_coll_team_say_lost(const struct fr_coll_team *team, int rank, const char *call)
{
    if (is_gone(team, rank))
        fr_error("%s: rank %d of the communicator is gone", call, rank);
    else
        fr_error("%s: rank %d of the communicator has failed", call, rank);
}

// A rank may have quit in a later operation than this one.
bool fr_coll_team_judge(struct fr_coll_team *team, struct fr_wait *time, const char *call)
{
    for (int rank = 0; rank < team->size; rank++) {
        if (rank == team->rank || !fr_coll_team_has_lost(team, rank))
            continue;
        fr_coll_team_say_lost(team, rank, call);
        return false;
    }
    fr_coll_queue_hold(team);
    bool quit = fr_coll_team_was_quit(team);
    fr_coll_queue_release(team);
    if (quit && fr_wait_ns(time) >= QUIT_LIMIT_S * FR_SECOND_NS) {
        fr_error("%s: a rank of the communicator has failed in some call", call);
        return false;
    }
    return fr_rndv_wait_judge(time, call, "a rank of the communicator");
}

void fr_coll_team_break(struct fr_coll_team *team)
{
    team->broken = true;
    if (team->segment)
        fr_coll_segment_break(team->segment);
}

// Returns a rank that is waited for, preferably one that is known not to come; -1 for none. A rank
// that is not done with an earlier round has not posted for this one either.
static int find_late(const struct fr_coll_team *team, uint64_t round, bool *lost)
{
    int late = -1;
    *lost = false;
    for (int rank = 0; rank < team->size && !*lost; rank++) {
        if (rank == team->rank || has_posted(team, rank, round))
            continue;
        *lost = fr_coll_team_has_lost(team, rank);
        late = *lost || late < 0 ? rank : late;
    }
    return late;
}

// Returns whether a rank has told the others that the team is broken. Ranks of one host see that in
// memory.
static bool is_given_up(struct fr_coll_team *team, const char *call)
{
    const struct fr_coll_meeting end = fr_coll_team_meeting(team, FR_COLL_MEET_END, 0);
    if (!team->slab || !fr_coll_team_message_has_notice(&end))
        return false;
    fr_error("%s: another rank of the communicator has given up", call);
    team->broken = true; // all others know
    return true;
}

// Returns whether the round cannot be completed since a rank has quit. That rank has not posted for
// it, or has declined in it so that others need not post.
static bool is_quit(struct fr_coll_team *team, uint64_t round)
{
    bool lost;
    return fr_coll_team_was_quit(team) && find_late(team, round, &lost) >= 0;
}

// Judges the wait for the others. Returns false when it is over.
static bool look_after(struct fr_coll_team *team, struct fr_coll_round *round, uint64_t number)
{
    char whom[64];
    bool lost;
    int behind = find_late(team, number, &lost);
    if (behind < 0) // all have come by now
        return true;
    if (lost) {
        fr_coll_team_say_lost(team, behind, round->call);
        return false;
    }
    // The clock begins with a call that waits.
    if (!fr_coll_team_is_awaited(team) || round->is_patient) {
        round->time = (struct fr_wait){0};
        round->looked_ns = 0;
        return true;
    }
    snprintf(whom, sizeof(whom), "rank %d of the communicator", behind);
    return fr_rndv_wait_judge(&round->time, round->call, whom);
}

// Returns whether to look again after a look that has found nothing. Late ranks are looked for once
// a second.
static bool goes_on(struct fr_coll_team *team, struct fr_coll_round *round, uint64_t number)
{
    if (++round->looks % LOOKS_A_JUDGEMENT != 0 && team->segment)
        return true;
    if (is_given_up(team, round->call) || (!round->ends && is_quit(team, number)))
        return false;
    int64_t waited_ns = fr_wait_ns(&round->time);
    if (waited_ns - round->looked_ns < FR_SECOND_NS)
        return true;
    round->looked_ns = waited_ns;
    return look_after(team, round, number);
}

static enum fr_status fail(struct fr_coll_team *team, const struct fr_coll_round *round)
{
    if (team->quit && !round->ends)
        return FR_ERR_UNSUPPORTED;
    if (team->slab)
        fr_coll_slab_rest(team->slab);
    if (team->slab && !team->broken)
        fr_coll_team_notify(team, FR_COLL_MEET_END);
    fr_coll_team_break(team);
    return FR_ERR_MPI;
}

// Posts in a segment. Without a slot the rank declines after a while. Otherwise threads could wait
// for each other: each has a slot for its communicator, and waits for ranks which have none left
// for that one.
static enum fr_status post_in_segment(struct fr_coll_segment *segment, uint64_t number,
                                      const struct fr_coll_post *post, unsigned looks, bool *posted)
{
    if (post->mark)
        fr_coll_segment_mark(segment, number);
    enum fr_status status = fr_coll_segment_post(segment, number, post->data, post->bytes);
    if (status == FR_ERR_NO_MEMORY && looks >= LOOKS_FOR_A_SLOT) {
        fr_coll_segment_mark(segment, 0);
        status = fr_coll_segment_post(segment, number, NULL, 0);
    }
    *posted = status == FR_OK;
    return status == FR_ERR_LIMIT || status == FR_ERR_NO_MEMORY ? FR_OK : status;
}

static enum fr_status post_in_slab(struct fr_coll_slab *slab, uint64_t number,
                                   const struct fr_coll_post *post, enum fr_coll_slab_done *done,
                                   bool *posted)
{
    enum fr_status status = fr_coll_slab_look_for_room(slab, number, posted);
    return status == FR_OK && *posted ? fr_coll_slab_post(slab, number, post, posted, done)
                                      : status;
}

enum fr_status fr_coll_round_post(struct fr_coll_team *team, struct fr_coll_round *round,
                                  const struct fr_coll_post *post)
{
    uint64_t next = team->round + 1;
    bool posted = false;
    enum fr_status status = team->segment
                                ? post_in_segment(team->segment, next, post, round->looks, &posted)
                                : post_in_slab(team->slab, next, post, &round->done, &posted);
    if (status != FR_OK)
        return fail(team, round);
    if (!posted)
        return goes_on(team, round, next) ? FR_OK : fail(team, round);
    round->number = next;
    round->looks = 0;
    round->time.began_ns = round->looked_ns = 0;
    team->round = next + (round->done == FR_COLL_SLAB_MOVED || round->done == FR_COLL_SLAB_COPIED);
    return FR_OK;
}

// Looks whether all have posted for a round.
static enum fr_status look(struct fr_coll_team *team, struct fr_coll_round *round, uint64_t number,
                           bool *complete)
{
    enum fr_status status = FR_OK;
    if (team->segment)
        *complete = fr_coll_segment_has_all(team->segment, number);
    else
        status = fr_coll_slab_look(team->slab, number, complete);
    bool stays = status == FR_OK && (*complete || goes_on(team, round, number));
    return stays ? FR_OK : fail(team, round);
}

enum fr_status fr_coll_round_gather_previous(struct fr_coll_team *team, struct fr_coll_round *round,
                                             bool *complete)
{
    *complete = true;
    return team->slab ? look(team, round, team->round, complete) : FR_OK;
}

enum fr_status fr_coll_round_gather(struct fr_coll_team *team, struct fr_coll_round *round,
                                    const struct fr_coll_post *post, bool *complete)
{
    enum fr_status status = FR_OK;
    *complete = false;
    if (!round->number)
        status = fr_coll_round_post(team, round, post);
    return round->number ? look(team, round, round->number, complete) : status;
}

bool fr_coll_round_is_marked(const struct fr_coll_team *team, int rank, uint64_t number)
{
    return team->segment ? fr_coll_segment_is_marked(team->segment, rank, number)
                         : fr_coll_slab_is_marked(team->slab, rank, number);
}

bool fr_coll_round_is_alike(const struct fr_coll_team *team, uint64_t number)
{
    return team->slab && fr_coll_slab_is_alike(team->slab, number);
}

const void *fr_coll_round_read(const struct fr_coll_team *team, int rank, uint64_t number)
{
    return team->segment ? fr_coll_segment_read(team->segment, rank, number)
                         : fr_coll_slab_read(team->slab, rank, number);
}

void fr_coll_round_done(const struct fr_coll_team *team, uint64_t number)
{
    if (team->segment)
        fr_coll_segment_done(team->segment, number);
}

struct fr_wait fr_coll_round_pace(const struct fr_coll_team *team)
{
    return team->segment ? fr_coll_segment_pace(team->segment) : (struct fr_wait)FR_COLL_SLAB_PACE;
}

void fr_coll_round_pause(const struct fr_coll_team *team, struct fr_wait *pace)
{
    if (fr_wait_step(pace) && (!team->segment || pace->yields % YIELDS_A_PROGRESS == 0))
        fr_rndv_wait_progress();
}
