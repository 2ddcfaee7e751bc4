// SPDX-License-Identifier: BSD-3-Clause
// Broadcasts among the GPUs of a team. The root pushes all bytes to each other rank, from its
// layout into theirs. Where that is much for one link it pushes a slice to each, and they push
// their slices to one another; such data have no gaps.
#ifndef FR_FABRAIL_COLL_BCAST_H
#define FR_FABRAIL_COLL_BCAST_H

#include "fabrail/coll/task.h"
#include "fabrail/policy/coll_plan.h"

// One rank's part.
struct fr_coll_bcast {
    const char *call; // for messages
    int root;
    struct fr_coll_slot data;      // what the root sends and others receive, of equal size
    struct fr_coll_buffer memory;  // the memory that `data` is in
    struct fr_device_shaped shape; // of the root's data; without a shape they have no gaps
    const struct fr_device_strides *layouts; // those that `data` of other ranks may name
    size_t layout_count;
    struct fr_coll_copy before, after; // copies if `data` is workspace (copies.h)
    bool is_synced;                    // the program's work on the memory is over
    bool is_queued;                    // the call does not wait for it
    struct fr_policy_bcast plan;       // written by fr_coll_bcast_begin
};

// Returns whether a broadcast is one in two steps, whose data must not have gaps.
bool fr_coll_bcast_is_split(size_t bytes, int ranks);

// Begins a broadcast. Task and broadcast are the caller's, and must stay until the task is over.
void fr_coll_bcast_begin(struct fr_coll_task *task, struct fr_coll_team *team,
                         struct fr_coll_bcast *bcast);

#endif
