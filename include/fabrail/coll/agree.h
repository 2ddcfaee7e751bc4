// SPDX-License-Identifier: BSD-3-Clause
// Agreement of the ranks of a team on one collective operation. They find out who takes part, which
// memory each rank advertises, and whether the others have mapped it. The operations themselves
// decide what is moved and how (alltoall.h, bcast.h, reduction.h).
//
// In the first round each rank posts what it advertises. In the second it posts whether it could
// map what the others advertise. No byte is written before the second round is over, so all ranks
// fall back alike.
//
// Most operations use memory that all ranks have mapped before, and need no second round. Where
// even the slots are those of an operation before, a mark in the post says so and nothing else is
// read. Across hosts a mark can mean any of the last few operations, on one host the last one
// alone.
#ifndef FR_FABRAIL_COLL_AGREE_H
#define FR_FABRAIL_COLL_AGREE_H

#include "fabrail/coll.h"
#include "fabrail/coll/copies.h"
#include "fabrail/device/pack.h"

// The two ways in which others use memory of a rank.
enum fr_coll_access { FR_COLL_READ, FR_COLL_WRITTEN, FR_COLL_ACCESSES };

// Most layouts that a rank advertises in one operation. Slots refer to them.
enum { FR_COLL_LAYOUTS = 8 };

// The advert: a rank posts it first, followed by its slots and its layouts. The version tells
// whether the memory, or the context that maps others' memory, is as before. If it is, the others
// read no more than one cache line and the slots.
struct fr_coll_advert {
    uint16_t eligible; // its memory can be reached; 0 declines
    uint16_t holds;    // a bit for each set (mapset.h) of which it has all mapped still
    uint32_t freed_count;
    uint64_t freed[4]; // buffer ids of exported memory that is no more
    uint64_t version;
    uint64_t what;    // the operation: class or form, root, type, sizes
    uint64_t layouts; // number of layouts, which follow the slots
    struct fr_ipc_handle handles[FR_COLL_ACCESSES];
    uint64_t rest[6]; // zeros, up to a whole number of cache lines
};
_Static_assert(sizeof(struct fr_coll_advert) % 64 == 0, "slots follow aligned");

// Memory of this rank that others reach. 0 bytes: there is none.
struct fr_coll_buffer {
    struct fr_device_range range;
    uintptr_t low;
    size_t bytes;
    bool is_workspace;           // the application has no calls under way on it
    struct fr_ipc_handle handle; // zeros where it is not exported yet
};

struct fr_coll_task;

// Makes up this rank's advert for a task whose turn it is. Plans what a kernel may move as soon as
// all ranks are there. Waits for work of the application's that its calls only pretend to have
// finished. Begins the copy that must be made before others reach the memory, unless the kernel
// makes it. Returns whether there is one; the caller waits for task->work then.
FR_MUST_CHECK bool fr_coll_agree_prepare(struct fr_coll_task *task);

// Makes this rank's advert say that it is not eligible, since its copies have failed.
void fr_coll_agree_refuse(struct fr_coll_task *task);

// Judges the adverts of all ranks, which must be there. All ranks find the same.
//
// FR_OK: all ranks have mapped each other's memory, and the team's memory says where.
// FR_ERR_NOT_FOUND: no set holds what is advertised. This rank has tried to map it; task->word says
// how that went, and all ranks are to post theirs. FR_ERR_UNSUPPORTED: some rank cannot take part.
FR_MUST_CHECK enum fr_status fr_coll_agree_decide(struct fr_coll_task *task);

// Judges the words that all ranks have posted about mapping, which must be there. Returns FR_OK
// when all have mapped, FR_ERR_UNSUPPORTED when some rank cannot take part.
FR_MUST_CHECK enum fr_status fr_coll_agree_compare(struct fr_coll_task *task);

// Returns the slot `first_read` + `index` of a rank, from what fr_coll_agreed_slots returns. Valid
// until the task is over.
static inline const struct fr_coll_slot *fr_coll_slot_of(const struct fr_coll_slot *slots, int rank,
                                                         int index)
{
    return &slots[FR_COLL_ACCESSES * rank + index];
}

// Writes the layout of a rank's first slot that this rank reads, as agreed on. Returns false where
// the slot has no gaps.
bool fr_coll_agreed_layout(const struct fr_coll_team *team, int rank, struct fr_pack_shape *shape);

// Returns how many ranks, this one included, have the memory that others read on this device.
int fr_coll_count_ranks_on(const struct fr_coll_team *team, int device);

// Returns the slots that this rank reads of the others', as agreed on, by rank. Valid until the
// task is over.
const struct fr_coll_slot *fr_coll_agreed_slots(const struct fr_coll_team *team);

// Returns where the mover's device finds `address`, which lies in the memory that a rank advertises
// for this access. Valid until the task is over.
uintptr_t fr_coll_reach(const struct fr_coll_team *team, int rank, enum fr_coll_access access,
                        uint64_t address);

#endif
