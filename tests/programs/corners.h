// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the corners of point to point share: lanes, on which ranks in pairs send each
// other messages from and to the run's kind of memory and host memory in turn, for many rounds.
//
// A corner is a function that is called for each round of each size, on both ranks of each pair. A
// library may take another path after the first messages of a buffer, and so the rounds of a lane
// use the same buffers, with new data each time; the last ones get new buffers.
#ifndef PROGRAMS_CORNERS_H
#define PROGRAMS_CORNERS_H

#include "harness.h"

enum {
    LANE_TAG = 301,
    LANE_TAGS = 16, // a lane may use so many
    // Lanes of all sizes, of two threads each. Each corner and size has tags of its own, always the
    // same, since what a library does with a tag may depend on what it has seen with it.
    CORNER_TAGS = 8 * 2 * LANE_TAGS,
    ANNOUNCEMENT_BYTES = 656, // a size that a library's own messages may have
};

// Where a buffer lies.
enum place { PLACE_KIND, PLACE_HOST, PLACES };

struct lane {
    struct run *run;
    MPI_Comm comm;  // of the messages
    MPI_Comm other; // for corners that use two at once
    MPI_Comm sync;  // of run->comm's ranks; what carries no data goes here
    int partner;    // its rank in comm and other
    int buddy;      // its rank in run->comm
    int to, from;   // ranks of run->comm that this one's messages go to and come from
    int tag;
    int variant;
    bool sends;   // this rank is the one that sends, in corners that go one way
    int turn;     // parity of the ranks that do
    size_t bytes; // of the message that this lane is about
    int round;    // of this lane; run->round differs from lane to lane
    size_t slot_bytes;
    struct buffer *out[PLACES], *in[PLACES]; // NULL where the corner goes one way
    bool taken[PLACES];                      // since the last check
};

struct corner {
    const char *name;
    void (*round)(struct lane *lane);
    // Instead of running lanes at once; base has everything that does not depend on the size. May
    // be NULL.
    void (*around)(struct lane *base, const struct corner *corner);
    int variant;
    bool both_ways;     // each rank sends and receives
    int slots;          // messages that a buffer has room for; 0: one
    size_t least, most; // sizes that it makes sense for; most 0: all
    size_t room;        // of a slot, if that is more than the size
    int rounds;         // 0: the usual number
};

struct corners {
    const struct corner *list;
    int count;
};
struct corners corners_modes(void);
struct corners corners_probe(void);
struct corners corners_complete(void);
struct corners corners_truncation(void);
struct corners corners_order(void);
struct corners corners_types(void);
struct corners corners_groups(void);
struct corners corners_copies(void);
struct corners corners_self(void);

// Runs all sizes and rounds of a corner.
void lanes_run(const struct lane *base, const struct corner *corner);

// Writes the message that slot carries in this round into the slot of an outgoing buffer, whose
// place goes with round and slot, and returns its address.
void *lane_give(struct lane *lane, int slot, size_t bytes);
void *lane_give_in(struct lane *lane, enum place place, int slot, size_t bytes);

// Writes something else there: for when MPI has given the buffer back.
void lane_spoil(struct lane *lane, int slot, size_t bytes);

// Where to receive a slot's message in this round.
void *lane_take(struct lane *lane, int slot);
enum place lane_take_place(const struct lane *lane, int slot);

// The message of a slot has arrived, which the check after the round will see.
void lane_got(struct lane *lane, int slot, size_t bytes);

// As lane_got, and looks at the message now. Other slots may be in use.
void lane_got_now(struct lane *lane, int slot, size_t bytes);

// Compares what was taken since the last check, guards and gaps between slots included. Rounds need
// not call it at their end.
void lane_check(struct lane *lane);

// Checks source, tag, sizes and that nothing was cancelled.
void lane_status(struct lane *lane, const MPI_Status *status, int tag, size_t bytes);

// For statuses of probes: MPICH 4.0 does not write there that nothing was cancelled.
#define LANE_NO_STATUS                                                                             \
    {                                                                                              \
        .MPI_ERROR = MPI_SUCCESS                                                                   \
    }

// Tells the partner a number and hears its own: what the one did before, the other sees done.
int lane_swap(struct lane *lane, int number);
void lane_sync(struct lane *lane);

// Gives MPI a buffer for messages of so many bytes in all, and takes it back once they have left.
void *lane_attach(size_t bytes, int messages);
void lane_detach(struct lane *lane, void *attached);

#endif
