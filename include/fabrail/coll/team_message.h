// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of a communicator tell its first one, and what it tells all of them: for ranks of
// several hosts, inside of a call that may wait for all of them.
#ifndef FR_FABRAIL_COLL_TEAM_MESSAGE_H
#define FR_FABRAIL_COLL_TEAM_MESSAGE_H

#include "fabrail/job.h"

// On the communicator of Fabrail's own, above the tags of other modules.
enum { FR_COLL_MEET_TAG = FR_JOB_UNUSED_TAG + 1 };

// Who meets. Name and call tell meetings apart, of all communicators that two processes share.
struct fr_coll_meeting {
    uint64_t name;
    uint64_t call;
    uint64_t number; // of those in which all ranks meet, this call's
    int rank;
    int size;
    const int *world; // the ranks' ranks in the world
};

// Puts together the words of ranks [1, size), by `or`, with that of rank 0, and writes to *answer
// what rank 0 makes of them by `judge`, the same on all ranks. False when MPI fails, or a rank has
// not come within FABRAIL_TIMEOUT, or one has quit before.
bool fr_coll_meet(const struct fr_coll_meeting *meeting, uint64_t word,
                  uint64_t (*judge)(uint64_t words, void *cookie), void *cookie, uint64_t *answer);

// Writes the `bytes` bytes of each rank to `all`, by rank. False then, too, or where there is no
// memory.
bool fr_coll_team_message_gather(const struct fr_coll_meeting *meeting, const void *own,
                                 size_t bytes, void *all);

// Tells the other ranks that this one has given up what the name stands for, or that it has quit
// and comes to no meeting after this number; does not wait. And says whether another one has told
// so, which costs a probe. That is the call of such a meeting.
#define FR_COLL_MEET_END  UINT64_MAX
#define FR_COLL_MEET_QUIT (UINT64_MAX - 1)
void fr_coll_team_message_tell(const struct fr_coll_meeting *meeting);
bool fr_coll_team_message_was_told(const struct fr_coll_meeting *meeting);

// Drops what has come for a name that nobody asks for any more. And takes what is left; in
// MPI_Finalize, when nothing of the kind is sent any more.
void fr_coll_team_message_forget(uint64_t name);
void fr_coll_team_message_release(void);

#endif
