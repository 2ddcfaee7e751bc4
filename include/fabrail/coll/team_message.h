// SPDX-License-Identifier: BSD-3-Clause
// Meetings of the ranks of a communicator on several hosts: what the ranks tell rank 0, and what it
// tells all of them. They meet inside of a call that may wait for all of them.
#ifndef FR_FABRAIL_COLL_TEAM_MESSAGE_H
#define FR_FABRAIL_COLL_TEAM_MESSAGE_H

#include "fabrail/job.h"

// A tag on Fabrail's own communicator, above the tags of other modules.
enum { FR_COLL_MEET_TAG = FR_JOB_UNUSED_TAG + 1 };

// The ranks that meet. Name and call tell apart the meetings of all communicators that two
// processes share.
struct fr_coll_meeting {
    uint64_t name;
    uint64_t call;
    uint64_t number;     // this call's, among those in which all ranks meet; 0 in other meetings
    uint64_t persistent; // this meeting's, among those about persistent operations; 0 in others
    int rank;
    int size;
    const int *world; // ranks in MPI_COMM_WORLD, by rank
};

// Combines the words of two ranks, in any order.
typedef uint64_t fr_coll_meet_add(uint64_t one, uint64_t other);

// Combines the words of all ranks with `add`, NULL for a bitwise `or`, and writes to *answer what
// rank 0 makes of them by `judge`. All ranks get the same answer. Returns false when MPI fails,
// when a rank has not come within FABRAIL_TIMEOUT, or when one has quit before.
bool fr_coll_meet(const struct fr_coll_meeting *meeting, uint64_t word, fr_coll_meet_add *add,
                  uint64_t (*judge)(uint64_t words, void *cookie), void *cookie, uint64_t *answer);

// Writes the `bytes` bytes at `own` of each rank to `all`, by rank. Returns false when MPI fails,
// when a rank has not come within FABRAIL_TIMEOUT, when one has quit before, or without memory.
// `all` is NULL where there is none for what they say: this rank takes part all the same.
bool fr_coll_team_message_gather(const struct fr_coll_meeting *meeting, const void *own,
                                 size_t bytes, void *all);

// Values of `call` in a notice. END: this rank has given up what the name stands for. QUIT: it
// comes to no meeting after those that `number` and `persistent` name.
#define FR_COLL_MEET_END  UINT64_MAX
#define FR_COLL_MEET_QUIT (UINT64_MAX - 1)
// Sends the other ranks a notice: `call` of the meeting is one of the two above. Does not wait.
void fr_coll_team_message_notify(const struct fr_coll_meeting *meeting);

// Tells all processes that take part in collectives that this one comes to no meeting of the
// communicator with this name. Takes no memory, and need not know the communicator's ranks.
void fr_coll_team_message_leave(uint64_t name);

// Returns whether another rank has sent a notice with the meeting's `call`. Costs a probe of MPI. A
// thread that must not call MPI looks at the notices that other threads have received.
bool fr_coll_team_message_has_notice(const struct fr_coll_meeting *meeting);

// Drops messages that have come for a name that nobody asks for any more.
void fr_coll_team_message_forget(uint64_t name);

// Receives and drops what is left. Called in MPI_Finalize, when no such messages are sent any more.
void fr_coll_team_message_release(void);

#endif
