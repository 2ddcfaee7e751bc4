// SPDX-License-Identifier: BSD-3-Clause
// Exchanges between the GPUs of a group: each rank stores its slices straight into the receive
// buffers of the others, once all have said where these are. An all-to-all is one in which every
// rank has a slice for every other; a broadcast, a gather, a scatter and an allgather are others.
#ifndef FR_FABRAIL_COLL_ALLTOALL_H
#define FR_FABRAIL_COLL_ALLTOALL_H

#include "fabrail/coll/task.h"

// One rank's part. Slots stand by rank of the group; those without bytes need no address.
struct fr_coll_alltoall {
    const char *call; // for messages
    uint64_t what;    // the same on all ranks
    const struct fr_coll_slot *sends;
    const struct fr_coll_slot *receives;
    struct fr_device_range send_range; // the memory of all sends, if they have bytes
    struct fr_coll_buffer receive;     // the bytes that hold all receives
    struct fr_coll_copy before,
        after; // of workspace that is sent from and received into (copies.h)
};

// Begins an exchange. Both are the caller's until the task is over.
void fr_coll_alltoall_begin(struct fr_coll_task *task, struct fr_coll_team *group,
                            const struct fr_coll_alltoall *exchange);

#endif
