// SPDX-License-Identifier: BSD-3-Clause
// Exchanges between the GPUs of a team. Each rank stores its slices straight into the receive
// buffers of the others, once all have said where these are and in which layout. In an all-to-all
// every rank has a slice for every other. Broadcast, gather, scatter and allgather are exchanges as
// well.
#ifndef FR_FABRAIL_COLL_ALLTOALL_H
#define FR_FABRAIL_COLL_ALLTOALL_H

#include "fabrail/coll/task.h"

// One rank's part. Slots are in the order of ranks; a slot of 0 bytes needs no address.
struct fr_coll_alltoall {
    const char *call; // for messages
    uint64_t what;    // the operation; the same on all ranks
    const struct fr_coll_slot *sends;
    const struct fr_coll_slot *receives;
    const struct fr_device_shaped *shapes;   // of the sends, but for addresses; NULL: no gaps
    const struct fr_device_strides *layouts; // of the receives that have one
    unsigned layout_count;                   // at most FR_COLL_LAYOUTS
    // Memory of all sends, if they have bytes. The application's work on sends that have shapes is
    // over.
    struct fr_device_range send_range;
    struct fr_coll_buffer receive; // the bytes that hold all receives
    // Copies of workspace that is sent from, and that is received into (copies.h).
    struct fr_coll_copy before, after;
    bool is_synced;  // the program's work on the memory is over
    bool is_queued;  // the call does not wait for it
    bool is_patient; // ranks may come to it after any time: FABRAIL_TIMEOUT does not count
};

// Begins an exchange. Task and exchange are the caller's, and must stay until the task is over.
void fr_coll_alltoall_begin(struct fr_coll_task *task, struct fr_coll_team *team,
                            const struct fr_coll_alltoall *exchange);

#endif
