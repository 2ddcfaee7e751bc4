// SPDX-License-Identifier: BSD-3-Clause
// Broadcasts among the GPUs of a group. The root pushes all to each other rank; or, where that is
// much for one link, a slice to each, which they then push to one another.
#ifndef FR_COLL_BCAST_H
#define FR_COLL_BCAST_H

#include "coll/agree.h"

// One rank's part.
struct fr_coll_bcast {
    const char *call; // for messages
    int root;
    struct fr_coll_slot data;          // what the root sends and the others receive, of equal size
    struct fr_coll_buffer memory;      // that it is in
    struct fr_coll_copy before, after; // of workspace that this is (agree.h)
};

// Broadcasts; all ranks of the group call it, or decline. Returns as fr_coll_alltoall does.
FR_MUST_CHECK enum fr_status fr_coll_bcast(struct fr_coll_group *group,
                                           const struct fr_coll_bcast *bcast);

#endif
