// SPDX-License-Identifier: BSD-3-Clause
// The ranks of one communicator and what they have to move each other's buffers: where they share a
// host, memory in which they agree; in any case a communicator of their own for messages.
//
// Whether a communicator has such a group is found out by its ranks together, inside of collective
// calls that they all make in the same order: in the first, second, fourth, eighth ... call, since
// a program may begin to use its GPUs late. So a communicator whose processes have no GPU pays for
// a handful of small gathers and nothing else.
#ifndef FR_COLL_GROUP_H
#define FR_COLL_GROUP_H

#include "coll/segment.h"
#include "device/device.h"
#include "memory/memory.h"
#include "real/real.h"

enum { FR_COLL_GROUP_TAGS = 32 };

struct fr_coll_group {
    int rank;
    int size;
    struct fr_control_process *processes; // by rank
    struct fr_coll_segment *segment;      // NULL where the ranks are on several hosts
    fr_word messages;              // a communicator of the same ranks, which returns its errors
    int first_tag;                 // of FR_COLL_GROUP_TAGS that are this group's alone, mostly
    int persistent;                // exchanges that were made, by all ranks in the same order
    uint64_t round;                // the last that this rank has posted
    bool broken;                   // a rank is gone, or was given up
    struct fr_coll_memory *memory; // what is kept from one exchange to the next (kept.h), or NULL
};

// To be called once in each collective call that can use the group, by all ranks of `comm`. Returns
// the group, NULL if there is none (yet). It belongs to the communicator and dies with it.
struct fr_coll_group *fr_coll_group_enter(fr_word comm);

// The group of a communicator that has one already; for calls that must not wait for others. All
// ranks of the communicator find the same in the same call.
struct fr_coll_group *fr_coll_group_find(fr_word comm);

// The first of FR_COLL_GROUP_TAGS for a further persistent exchange: those of one communicator are
// made in the same order everywhere, but may be started in any. To be called in each such call.
int fr_coll_group_next_tag(struct fr_coll_group *group);

// Posts for the group's next round, marked or not, and returns it in *round; waits for room if it
// must.
FR_MUST_CHECK enum fr_status fr_coll_group_post(struct fr_coll_group *group, const char *call,
                                                bool marked, const void *data, size_t bytes,
                                                uint64_t *round);

// Waits until all have posted for `round`, keeping MPI going. FR_ERR_MPI when a rank is gone or
// FABRAIL_TIMEOUT has passed, which is logged with the name of the MPI call; the group is then
// broken.
FR_MUST_CHECK enum fr_status fr_coll_group_wait(struct fr_coll_group *group, const char *call,
                                                uint64_t round);

// The most bytes that one post of a group of this size holds.
size_t fr_coll_group_post_bytes(int size);

#endif
