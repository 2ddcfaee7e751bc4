// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's windows: what a window is to one rank, and the accesses to it. All ranks
// draw alike what each of them does, and replay it on copies of the memory of all, so that each
// knows what every byte must be.
#ifndef PROGRAMS_RANDOM_WINDOWS_H
#define PROGRAMS_RANDOM_WINDOWS_H

#include "random.h"

enum { ACTS_MAX = 5, SLOTS_MAX = 6, SLOT_ALIGN = 16 };

enum epoch { FENCE, POST_START, LOCK_SHARED, LOCK_EXCLUSIVE, LOCK_ALL, EPOCHS };

struct act; // an access by this rank

// The memory of each rank has slots of one size, or none. In one stage of an epoch a slot is one
// rank's to access, or all ranks read it, or all update it in the same way.
struct pane {
    struct walk *walk;
    const struct circle *circle;
    MPI_Win win;
    bool allocated; // by MPI_Win_allocate
    bool device;    // the CPU does not reach the memory of all ranks
    struct buffer *memory;
    unsigned char **want; // what the memory of each rank holds; NULL: it has none
    int *units;
    int slots;
    size_t slot_bytes;
    uint64_t turn; // what slots are used for depends on it
    enum epoch epoch;
    bool chosen; // for this step
    bool fenced; // the last fence has begun an epoch
    struct act *acts[ACTS_MAX];
    int act_count, begun;
};

// Returns whether a rank may access the memory of another in this step.
bool pane_reaches(const struct pane *pane, int origin, int target);

// Draws the accesses of a stage and replays those of all ranks. None may be left of an earlier one.
void acts_draw(struct pane *pane);

// Calls MPI for the next access of this rank. Returns false when there is none left.
bool acts_next(struct pane *pane);

// Completes requests, after which their results have come.
void acts_wait(struct pane *pane);

// Checks the results and origins of accesses that are complete, and forgets them.
void acts_finish(struct pane *pane);

// Returns whether this rank has an access to the target.
bool acts_reach(const struct pane *pane, int target);

#endif
