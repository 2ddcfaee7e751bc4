// SPDX-License-Identifier: BSD-3-Clause
// Teams of persistent operations. Operations of one team take turns in the order of their calls,
// but persistent ones are started in any order. So each has a segment of its own, which the ranks
// open in the call that makes the operation.
#include "config.h"

#include "fabrail/coll/queue.h"

#include "coll/mapset.h"
#include "coll/team_memory.h"
#include "fabrail/coll/rounds.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_CLONES = 64 };

static _Atomic unsigned clone_count; // of this process

#define STANDING (UINT64_C(1) << 61) // calls of meetings about persistent operations begin here

// Waits for this rank's turn among the operations of its team, which then is in this thread's hand.
static enum fr_status take_turn(struct fr_coll_team *team)
{
    uint64_t turn = team->begun++;
    struct fr_wait pace = {0};
    fr_coll_queue_hold(team);
    team->is_awaited = true;
    while (!fr_coll_open_segment(team) || team->ended != turn) {
        fr_coll_queue_progress_held(team);
        fr_coll_round_pause(team, &pace);
    }
    if (team->broken)
        return FR_ERR_MPI;
    return team->segment && !team->quit ? FR_OK : FR_ERR_UNSUPPORTED;
}

static void end_turn(struct fr_coll_team *team)
{
    fr_coll_team_end_turn(team);
    team->is_awaited = false;
    fr_coll_queue_release(team);
}

// Tells all ranks whether this one could do something, and waits for what they say. Returns
// FR_ERR_UNSUPPORTED where some rank could not.
static enum fr_status tell_all(struct fr_coll_team *team, const char *call, enum fr_status own)
{
    struct fr_coll_round round = {.call = call};
    struct fr_wait pace = fr_coll_round_pace(team);
    const uint32_t word = own == FR_OK;
    const struct fr_coll_post post = {.data = &word, .bytes = sizeof(word)};
    bool met = false, all = true;
    for (;;) {
        enum fr_status status = fr_coll_round_meet(team, &round, &post, &met);
        if (status != FR_OK)
            return status;
        if (met)
            break;
        fr_coll_round_pause(team, &pace);
    }
    for (int rank = 0; rank < team->size; rank++) {
        const uint32_t *said = fr_coll_round_read(team, rank, round.number);
        all = all && *said;
    }
    fr_coll_round_done(team, round.number);
    return all ? FR_OK : FR_ERR_UNSUPPORTED;
}

static enum fr_status open_part(struct fr_coll_team *clone, unsigned index)
{
    char use[16];
    snprintf(use, sizeof(use), "standing %u", index % 1000000);
    struct fr_job_secret secret = fr_coll_secret_of(use, clone->name);
    return fr_coll_segment_open(&secret, clone->rank, clone->size,
                                fr_coll_team_segment_bytes(clone->size), &clone->segment);
}

// Opens the segment of a clone. Rank 0 makes it before the others attach.
static enum fr_status open_segment(struct fr_coll_team *team, struct fr_coll_team *clone,
                                   const char *call)
{
    unsigned index = team->clones++;
    if (clone)
        clone->clone = index + 1;
    enum fr_status own =
        team->rank == 0 ? clone ? open_part(clone, index) : FR_ERR_NO_MEMORY : FR_OK;
    enum fr_status status = tell_all(team, call, own);
    if (status != FR_OK)
        return status;
    if (team->rank != 0)
        own = clone ? open_part(clone, index) : FR_ERR_NO_MEMORY;
    status = tell_all(team, call, own);
    if (status == FR_OK && !fr_coll_segment_seal(clone->segment))
        clone->broken = true; // all have opened it, so that should not fail
    return status;
}

struct fr_coll_team *fr_coll_team_clone_new(const struct fr_coll_team *team)
{
    if (atomic_load_explicit(&clone_count, memory_order_relaxed) >= MOST_CLONES)
        return NULL;
    struct fr_coll_team *clone = calloc(1, sizeof(*clone));
    if (!clone)
        return NULL;
    atomic_fetch_add_explicit(&clone_count, 1, memory_order_relaxed);
    clone->rank = team->rank;
    clone->size = team->size;
    clone->name = team->name;
    clone->world = team->world;
    clone->processes = team->processes;
    clone->opened = true;
    clone->never_quits = true;
    return clone;
}

bool fr_coll_team_clone_open(struct fr_coll_team *team, struct fr_coll_team *clone,
                             const char *call)
{
    enum fr_status status = take_turn(team);
    if (status == FR_OK)
        status = open_segment(team, clone, call);
    end_turn(team);
    return status == FR_OK;
}

static uint64_t pass_words(uint64_t words, void *cookie)
{
    (void)cookie;
    return words;
}

bool fr_coll_team_all_can(struct fr_coll_team *team, const char *call, bool own)
{
    if (!team->place) {
        uint64_t lacks = 1;
        const struct fr_coll_meeting meeting =
            fr_coll_team_meeting(team, STANDING + team->clones++, UINT64_MAX);
        return fr_coll_meet(&meeting, !own, pass_words, NULL, &lacks) && !lacks;
    }
    enum fr_status status = take_turn(team);
    if (status == FR_OK)
        status = tell_all(team, call, own ? FR_OK : FR_ERR_NO_MEMORY);
    end_turn(team);
    return status == FR_OK;
}

void fr_coll_team_clone_free(struct fr_coll_team *clone)
{
    if (!clone)
        return;
    fr_coll_queue_close(clone);
    fr_coll_mapset_destroy(clone);
    fr_coll_segment_close(clone->segment);
    free(clone);
    atomic_fetch_sub_explicit(&clone_count, 1, memory_order_relaxed);
}
