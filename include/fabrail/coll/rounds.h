// SPDX-License-Identifier: BSD-3-Clause
// Rounds of a team: each rank posts a few bytes, and looks for what the others have posted. Posts
// are in shared memory, or in device memory where the ranks are on several hosts. A round is
// *complete* once this rank has found that all have posted for it. Nothing here waits for another
// rank.
#ifndef FR_FABRAIL_COLL_ROUNDS_H
#define FR_FABRAIL_COLL_ROUNDS_H

#include "fabrail/coll.h"

// One round, from this rank's post until all others' are there. The caller sets the first three
// fields and zeros the rest. A round that is used again starts from zeros.
struct fr_coll_round {
    const char *call; // the MPI function, for messages
    bool ends;        // the last round of an operation; all ranks that have agreed on it come to it
    // Functions of the program's run between this round and the one before. They may take any time.
    bool is_patient;
    // Written by the functions below.
    uint64_t number; // 0: this rank has not posted
    enum fr_coll_slab_done done;
    unsigned looks; // looks that found nothing, since this rank began to wait for room or posts
    struct fr_wait time; // the wait, from the first check for late ranks on
    int64_t looked_ns;   // how long the wait had lasted at the last check, one a second
};

// Returns whether a rank is known to come to no operation any more. The second function logs why.
bool fr_coll_team_has_lost(const struct fr_coll_team *team, int rank);
void fr_coll_team_say_lost(const struct fr_coll_team *team, int rank, const char *call);

// Judges how long the ranks have been waited for that have not come to an operation by messages.
// Returns false when one is gone, when FABRAIL_TIMEOUT has passed, or when ten minutes have and a
// rank has quit, which is logged.
bool fr_coll_team_judge(struct fr_coll_team *team, struct fr_wait *time, const char *call);

// Breaks the team: this rank comes to no operation any more. Ranks of one host that wait for it
// find that out.
void fr_coll_team_break(struct fr_coll_team *team);

// Posts for the team's next round. Without room it posts nothing, round->number stays 0, and the
// caller calls again. round->done says whether the post's move was made. If so, the next round has
// been posted too, marked.
//
// Returns FR_ERR_MPI when a rank is gone or FABRAIL_TIMEOUT has passed, which is logged; the team
// is broken then. Returns FR_ERR_UNSUPPORTED when a rank has quit.
FR_MUST_CHECK enum fr_status fr_coll_round_post(struct fr_coll_team *team,
                                                struct fr_coll_round *round,
                                                const struct fr_coll_post *post);

// Writes to *complete whether all ranks have posted for the last round that this rank has posted
// for. Nobody needs then what was published in a slab for earlier ones. On one host there is
// nothing to wait for. `round` is the next one, without a number. Returns as fr_coll_round_post
// does.
FR_MUST_CHECK enum fr_status fr_coll_round_gather_previous(struct fr_coll_team *team,
                                                           struct fr_coll_round *round,
                                                           bool *complete);

// Posts for the round unless that has been done, and writes to *complete whether all ranks have.
// Returns as fr_coll_round_post does.
FR_MUST_CHECK enum fr_status fr_coll_round_gather(struct fr_coll_team *team,
                                                  struct fr_coll_round *round,
                                                  const struct fr_coll_post *post, bool *complete);

// Returns whether all ranks have marked their posts alike, which is never known of ranks of one
// host. For a complete round, until fr_coll_round_done.
bool fr_coll_round_is_alike(const struct fr_coll_team *team, uint64_t number);

// Returns whether a rank has marked its post. For a complete round, until fr_coll_round_done.
bool fr_coll_round_is_marked(const struct fr_coll_team *team, int rank, uint64_t number);

// Returns a rank's post, which is there unless all ranks have marked theirs alike. For a complete
// round, until fr_coll_round_done.
const void *fr_coll_round_read(const struct fr_coll_team *team, int rank, uint64_t number);

// Says that this rank needs no posts of the round any more.
void fr_coll_round_done(const struct fr_coll_team *team, uint64_t number);

// Returns how to wait between two looks at a round. The caller takes it anew for each round.
struct fr_wait fr_coll_round_pace(const struct fr_coll_team *team);

// Waits for a while between two looks. Now and then it makes progress for others that may wait for
// this process.
void fr_coll_round_pause(const struct fr_coll_team *team, struct fr_wait *pace);

#endif
