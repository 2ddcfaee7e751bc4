// SPDX-License-Identifier: BSD-3-Clause
// Agreement of the ranks of a group on one collective operation: who is there, what memory each
// advertises, whether the others have mapped it, and at the end that all bytes are where they
// belong. What is moved, and how, is the operation's own business (alltoall.h, reduce.h).
//
// Three rounds of posts: what each rank advertises, whether all could map that, and the end. Before
// the second one is over nothing has been written, so that all ranks fall back alike. Memory that
// all have mapped before, which is what programs mostly use, needs no second round; and where even
// the slots are those of the operation before (across hosts, of one of the last few), a mark says
// so, and nothing else is read.
#ifndef FR_COLL_AGREE_H
#define FR_COLL_AGREE_H

#include "coll/group.h"

// Bytes at an address of the rank that posts them.
struct fr_coll_slot {
    uint64_t address;
    uint64_t bytes;
};

// What others do with memory of a rank.
enum fr_coll_side { FR_COLL_READ, FR_COLL_WRITTEN, FR_COLL_SIDES };

// What a rank posts first; its slots follow. Each version of a rank's memory, and of the context
// that maps that of others, has a number of its own: others need not read it again, nor more than
// one cache line besides their slots.
struct fr_coll_advert {
    uint16_t eligible; // its memory can be reached, and all else is as the operation wants it
    uint16_t holds;    // a bit for each set (mapset.h) of which it has all mapped still
    uint32_t freed_count;
    uint64_t freed[4]; // exported memory that is no more, by buffer id
    uint64_t version;
    uint64_t what; // the operation
    uint64_t spare;
    struct fr_memory_handle handles[FR_COLL_SIDES];
    uint64_t rest[6];
};
_Static_assert(sizeof(struct fr_coll_advert) % 64 == 0, "slots follow aligned");

// Memory of this rank that others reach; none with 0 bytes.
struct fr_coll_buffer {
    struct fr_device_range range;
    uintptr_t low;
    size_t bytes;
    bool is_workspace;              // which the application has no calls under way on
    struct fr_memory_handle handle; // zeros where it is not exported yet
};

// A copy between the application's memory, which is `range`, and workspace on the same device.
struct fr_coll_copy {
    struct fr_device_range range;
    struct fr_device_push_piece piece; // 0 bytes: there is none
};

// Whether the device that moves bytes could spare a copy and use the application's memory.
static inline bool fr_coll_can_spare(const struct fr_coll_copy *copy,
                                     const struct fr_device_range *mover)
{
    const struct fr_device_range *range = &copy->range;
    return copy->piece.bytes > 0 && range->device == mover->device &&
           (range->context == mover->context || !range->context || !mover->context);
}

// Where the application has what is at an address of workspace that is copied to or from.
static inline uintptr_t fr_coll_source(const struct fr_coll_copy *in, uintptr_t address)
{
    return address - in->piece.dst + in->piece.src;
}
static inline uintptr_t fr_coll_target(const struct fr_coll_copy *out, uintptr_t address)
{
    return address - out->piece.src + out->piece.dst;
}

// One rank's part in an operation.
struct fr_coll_part {
    const char *call; // for messages
    uint64_t what;    // tells apart operations of which all ranks must be in the same
    struct fr_coll_buffer buffers[FR_COLL_SIDES];
    const struct fr_coll_slot *slots; // of this rank, for the others
    int slot_count;                   // at most the ranks, or 2
    int first_read;                   // slots of each other rank's that this one needs
    int read_count;                   // at most 2
    struct fr_device_range mover;     // whose device moves bytes for this rank, if any does
    struct fr_coll_copy before;       // to be made before others reach the memory
    struct fr_coll_copy after;        // and once all has been moved
    struct fr_coll_slot own_before;   // in the workspace of these, what this rank alone reads and
    struct fr_coll_slot own_after;    // writes: it does so in the application's memory instead

    // Says what is to be moved if all is as it was in the operation before, with the places and the
    // memory of that, so that a kernel can do it as soon as all ranks are there; false where it is
    // nothing that a kernel does. NULL: it never is.
    bool (*plan)(struct fr_coll_group *group, void *cookie, struct fr_device_move *move);
    void *cookie;
};

// Agrees; all ranks of the group call it or decline. FR_ERR_UNSUPPORTED: some rank cannot, no byte
// has moved, and all ranks return the same. FR_OK is to be followed by fr_coll_conclude. Any other
// failure comes because a rank is gone.
FR_MUST_CHECK enum fr_status fr_coll_agree(struct fr_coll_group *group,
                                           const struct fr_coll_part *part);

// Where this rank cannot even say what its part is, it calls this instead, which does not wait.
void fr_coll_decline(struct fr_coll_group *group, const char *call);

// Whether what was agreed on has been moved by then, as planned.
static inline bool fr_coll_has_moved(const struct fr_coll_group *group)
{
    return group->moved;
}

// What was agreed on, until the end: slot `first_read` + `index` of a rank, and where the mover's
// device finds an address of the memory that the rank has on that side.
static inline const struct fr_coll_slot *fr_coll_slot_of(const struct fr_coll_slot *places,
                                                         int rank, int index)
{
    return &places[FR_COLL_SIDES * rank + index];
}
const struct fr_coll_slot *fr_coll_places(const struct fr_coll_group *group);
uintptr_t fr_coll_reach(const struct fr_coll_group *group, int rank, enum fr_coll_side side,
                        uint64_t address);

// Room for a piece a rank.
struct fr_device_push_piece *fr_coll_pieces(const struct fr_coll_group *group);

// Between two steps of an operation: tells the others how this rank's own work went so far, and
// hears of theirs. What is not FR_OK is so on all ranks, and is to be given to fr_coll_conclude.
FR_MUST_CHECK enum fr_status fr_coll_check(struct fr_coll_group *group, const char *call,
                                           enum fr_status status);

// Tells the others how this rank's own work ended, and hears of theirs, and copies what is left to
// be: FR_OK when all is well everywhere. A failure means that the operation is lost.
FR_MUST_CHECK enum fr_status fr_coll_conclude(struct fr_coll_group *group,
                                              const struct fr_coll_part *part,
                                              enum fr_status status);

#endif
