// SPDX-License-Identifier: BSD-3-Clause
// All-to-all exchanges between the GPUs of a group: each rank stores its slices straight into the
// receive buffers of the others, once all have said where these are.
#ifndef FR_COLL_ALLTOALL_H
#define FR_COLL_ALLTOALL_H

#include "coll/group.h"

// Bytes at an address of the rank that posts them.
struct fr_coll_slot {
    uint64_t address;
    uint64_t bytes;
};

// What a rank posts first; a slot for each rank follows, with where its slice goes. Each version of
// a rank's memory, and of the context that maps that of others, has a number of its own: others
// need not read it again, nor more than one cache line besides their slot.
struct fr_coll_offer {
    uint16_t eligible; // its buffers are such that peers can be written to and from
    uint16_t holds;    // a bit for each choice of memory (kept.h) that it has still mapped
    uint32_t freed_count;
    uint64_t freed[4]; // exported memory that is no more, by buffer id
    uint64_t version;
    uint64_t user; // the context that its device works in, which mappings belong to
    uint64_t spare;
    struct fr_memory_handle handle;
};
_Static_assert(sizeof(struct fr_coll_offer) % 16 == 0, "slots follow aligned");

// One rank's part. Slots stand by rank of the group; those without bytes need no address.
struct fr_coll_alltoall {
    const char *call; // for messages
    const struct fr_coll_slot *sends;
    const struct fr_coll_slot *receives;
    struct fr_device_range send_range; // the memory of all sends, if they have bytes
    struct fr_device_range receive_range;
    uintptr_t receive_low; // the bytes that hold all receives
    size_t receive_bytes;
    struct fr_memory_handle receive_handle; // of their memory, zeros where it is not exported yet
};

// Exchanges; all ranks of the group call it. FR_ERR_UNSUPPORTED: some rank cannot, no byte has
// moved, and all ranks return the same. Any other failure comes after bytes have moved, or because
// a rank is gone: the exchange is lost. Where this rank could not even prepare its part it calls
// fr_coll_alltoall_decline instead, which does not wait.
FR_MUST_CHECK enum fr_status fr_coll_alltoall(struct fr_coll_group *group,
                                              const struct fr_coll_alltoall *exchange);
void fr_coll_alltoall_decline(struct fr_coll_group *group, const char *call);

#endif
