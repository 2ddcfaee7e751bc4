// SPDX-License-Identifier: BSD-3-Clause
// Broadcasts among the GPUs of a group. The root pushes all to each other rank; or, where that is
// much for one link, a slice to each, which they then push to one another.
#ifndef FR_FABRAIL_COLL_BCAST_H
#define FR_FABRAIL_COLL_BCAST_H

#include "fabrail/coll/task.h"
#include "fabrail/policy/coll_plan.h"

// One rank's part.
struct fr_coll_bcast {
    const char *call; // for messages
    int root;
    struct fr_coll_slot data;          // what the root sends and the others receive, of equal size
    struct fr_coll_buffer memory;      // that it is in
    struct fr_coll_copy before, after; // of workspace that this is (copies.h)
    struct fr_policy_bcast plan;       // written by fr_coll_bcast_begin
};

// Begins a broadcast. Both are the caller's until the task is over.
void fr_coll_bcast_begin(struct fr_coll_task *task, struct fr_coll_team *group,
                         struct fr_coll_bcast *bcast);

#endif
