// SPDX-License-Identifier: BSD-3-Clause
// Teams of persistent operations. Operations of one team take turns in the order of their calls,
// but persistent ones are started in any order. So each has a segment of its own, or a part of the
// slab, which the ranks open in the call that makes the operation.
//
// Nonblocking operations in slabs have a team for all of them. A rank that has quit the blocking
// ones takes part in them still, as nothing else could do them without a call of MPI.
#include "config.h"

#include "fabrail/coll/clone.h"

#include "coll/mapset.h"
#include "coll/team_memory.h"
#include "fabrail/coll/queue.h"
#include "fabrail/coll/rounds.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_CLONES = 64 };
enum { POSITION_NONBLOCKING = 1 }; // in a slab of the team's own

static _Atomic unsigned clone_count; // of this process

#define PERSISTENT (UINT64_C(1) << 61) // calls of meetings about persistent operations begin here
#define CLONE      UINT64_C(0x9e3779b97f4a7c15) // tells names of clones apart

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
    bool complete = false, all = true;
    for (;;) {
        enum fr_status status = fr_coll_round_gather(team, &round, &post, &complete);
        if (status != FR_OK)
            return status;
        if (complete)
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
    char use[24];
    snprintf(use, sizeof(use), "persistent %u", index % 1000000);
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
    if (status != FR_OK)
        return status;
    if (!fr_coll_segment_seal(clone->segment))
        clone->broken = true; // all have opened it, so that should not fail
    atomic_store(&clone->nonblocking_spins, fr_coll_segment_pace(clone->segment).spins);
    return FR_OK;
}

static uint64_t pass_words(uint64_t words, void *cookie)
{
    (void)cookie;
    return words;
}

// Returns whether this rank has quit, or knows of a rank that has.
static bool has_quit(struct fr_coll_team *team)
{
    return team->quits || fr_coll_team_was_quit(team);
}

// Has all ranks meet about a persistent operation. None comes once it knows that one has quit: all
// hear of that, and do not wait. Returns false, on all ranks alike, if one has quit before.
static bool meet(struct fr_coll_team *team, uint64_t word, fr_coll_meet_add *add, uint64_t *answer)
{
    if (has_quit(team))
        return false;
    struct fr_coll_meeting meeting = fr_coll_team_meeting(team, PERSISTENT + team->clones++, 0);
    meeting.persistent = team->clones;
    if (fr_coll_meet(&meeting, word, add, pass_words, NULL, answer))
        return true;
    (void)fr_coll_team_was_quit(team); // it comes to no further meeting, and sends nothing more
    return false;
}

// Has a clone begin where its part does. Messages about it have a name of its own.
static void begin_at_position(const struct fr_coll_team *team, struct fr_coll_team *clone)
{
    clone->round = fr_coll_slab_first(clone->slab);
    clone->name = team->name + (fr_coll_slab_position(clone->slab) + clone->round) * CLONE;
}

// Gives a clone a position of the slab that all ranks offer.
static enum fr_status open_in_slab(struct fr_coll_team *team, struct fr_coll_team *clone)
{
    uint32_t held = 0;
    uint64_t offers = clone ? fr_coll_slab_offer(clone->slab, &held) : FR_COLL_SLAB_NO_OFFER;
    if (!meet(team, offers, fr_coll_slab_offer_add, &offers))
        offers = FR_COLL_SLAB_NO_OFFER;
    if (!clone || !fr_coll_slab_offer_take(clone->slab, NULL, held, offers))
        return FR_ERR_UNSUPPORTED;
    begin_at_position(team, clone);
    return FR_OK;
}

static struct fr_coll_team *make(struct fr_coll_team *team)
{
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
    if (!team->slab)
        return clone;
    clone->slab = fr_coll_slab_part_new(team->slab, NULL, team->rank, team->size);
    if (clone->slab)
        return clone;
    fr_coll_team_clone_free(clone);
    return NULL;
}

struct fr_coll_team *fr_coll_team_clone_new(struct fr_coll_team *team)
{
    return atomic_load_explicit(&clone_count, memory_order_relaxed) < MOST_CLONES ? make(team)
                                                                                  : NULL;
}

bool fr_coll_team_make_nonblocking(struct fr_coll_team *team)
{
    team->nonblocking = make(team);
    if (!team->nonblocking)
        return false;
    fr_coll_slab_part_assign(team->nonblocking->slab, POSITION_NONBLOCKING, 0);
    begin_at_position(team, team->nonblocking);
    return true;
}

// Gives up what a team would have had of another one's slab.
static void drop_parts(struct fr_coll_team *team)
{
    fr_coll_team_clone_free(team->nonblocking);
    team->nonblocking = NULL;
    fr_coll_slab_close(team->slab, false);
    team->slab = NULL;
}

// Makes a team's two parts of another one's slab. Without memory it has none.
static void make_parts(struct fr_coll_team *team, const struct fr_coll_team *parent)
{
    int *ranks = calloc((size_t)team->size, sizeof(*ranks));
    for (int i = 0; i < team->size && ranks; i++) {
        while (parent->world[ranks[i]] != team->world[i])
            ranks[i]++;
    }
    if (ranks)
        team->slab = fr_coll_slab_part_new(parent->slab, ranks, team->rank, team->size);
    free(ranks);
    team->nonblocking = team->slab ? make(team) : NULL;
    if (!team->nonblocking)
        drop_parts(team);
}

bool fr_coll_team_share_slab(struct fr_coll_team *team, const struct fr_coll_team *parent)
{
    uint32_t held = 0;
    make_parts(team, parent);
    struct fr_coll_slab *slab = team->slab;
    uint64_t offers = slab ? fr_coll_slab_offer(slab, &held) : FR_COLL_SLAB_NO_OFFER;
    const struct fr_coll_meeting meeting =
        fr_coll_team_meeting(team, PERSISTENT + team->clones++, 0);
    if (!fr_coll_meet(&meeting, offers, fr_coll_slab_offer_add, pass_words, NULL, &offers))
        offers = FR_COLL_SLAB_NO_OFFER;
    if (slab && fr_coll_slab_offer_take(slab, team->nonblocking->slab, held, offers)) {
        team->round = fr_coll_slab_first(slab);
        begin_at_position(team, team->nonblocking);
        return true;
    }
    drop_parts(team);
    return false;
}

bool fr_coll_team_clone_open(struct fr_coll_team *team, struct fr_coll_team *clone,
                             const char *call)
{
    if (team->slab)
        return open_in_slab(team, clone) == FR_OK;
    enum fr_status status = take_turn(team);
    if (status == FR_OK)
        status = open_segment(team, clone, call);
    end_turn(team);
    return status == FR_OK;
}

bool fr_coll_team_all_can(struct fr_coll_team *team, const char *call, bool own)
{
    if (!team->discovery) {
        uint64_t lacks = 1;
        return meet(team, !own, NULL, &lacks) && !lacks;
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
    fr_coll_team_send_notices(clone);
    fr_coll_mapset_destroy(clone);
    fr_coll_segment_close(clone->segment);
    if (clone->slab)
        fr_coll_team_message_forget(clone->name);
    fr_coll_team_slab_close(clone->slab);
    free(clone);
    atomic_fetch_sub_explicit(&clone_count, 1, memory_order_relaxed);
}
