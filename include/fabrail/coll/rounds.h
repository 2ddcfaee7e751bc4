// SPDX-License-Identifier: BSD-3-Clause
// Rounds of a group: each rank posts a few bytes, and looks for what the others have posted. The
// posts are in shared memory, or in device memory where the ranks are on several hosts. Nothing
// here waits for another rank.
#ifndef FR_FABRAIL_COLL_ROUNDS_H
#define FR_FABRAIL_COLL_ROUNDS_H

#include "fabrail/coll.h"

// One round, from this rank's post until all others' are there. The caller sets the first two, all
// else to zeros; one that is reused begins anew.
struct fr_coll_round {
    const char *call; // the MPI function, for messages
    bool ends;        // the last round of an operation, to which all come that have agreed on it
    // Written by the functions below.
    uint64_t number; // 0: this rank has not posted
    enum fr_coll_slab_done done;
    unsigned looks;      // that found nothing, since this rank began to wait for room or for posts
    struct fr_wait time; // since then, from the first time that the others were looked after
    int64_t looked_ns;   // how long that had lasted when the late were looked for, once a second
};

// Posts for the group's next round, unless there is no room yet: round->number says whether. With a
// move, round->done says whether it was made, and the next round is posted, marked, as well.
// Returns FR_ERR_MPI when a rank is gone or FABRAIL_TIMEOUT has passed, which is logged; the group
// is then broken. FR_ERR_UNSUPPORTED when a rank has quit.
FR_MUST_CHECK enum fr_status fr_coll_round_post(struct fr_coll_team *group,
                                                struct fr_coll_round *round,
                                                const struct fr_coll_post *post);

// Posts unless that has been done, and looks whether all ranks have. Returns as
// fr_coll_round_post does.
FR_MUST_CHECK enum fr_status fr_coll_round_meet(struct fr_coll_team *group,
                                                struct fr_coll_round *round,
                                                const struct fr_coll_post *post, bool *met);

// For a round that was met, until fr_coll_round_done: whether a rank has marked its post, and the
// post, which is there unless all are marked alike; and whether they are, which those of one host
// are not known to be.
bool fr_coll_round_is_alike(const struct fr_coll_team *group, uint64_t number);
bool fr_coll_round_is_marked(const struct fr_coll_team *group, int rank, uint64_t number);
const void *fr_coll_round_read(const struct fr_coll_team *group, int rank, uint64_t number);
void fr_coll_round_done(const struct fr_coll_team *group, uint64_t number);

// Waits for a while between two looks, and moves on now and then what others may wait for in this
// process. `pace` is of the caller's, from fr_coll_round_pace for each round anew.
struct fr_wait fr_coll_round_pace(const struct fr_coll_team *group);
void fr_coll_round_pause(const struct fr_coll_team *group, struct fr_wait *pace);

#endif
