// SPDX-License-Identifier: BSD-3-Clause
// Agreement of the ranks of a group on one collective operation: who is there, what memory each
// advertises, and whether the others have mapped it. What is moved, and how, is the operation's own
// business (alltoall.h, reduce.h).
//
// The ranks post what they advertise, and then whether they could map that. Before the second round
// is over nothing has been written, so that all ranks fall back alike. Memory that all have mapped
// before, which is what programs mostly use, needs no second round; and where even the slots are
// those of the operation before (across hosts, of one of the last few), a mark says so, and nothing
// else is read.
#ifndef FR_FABRAIL_COLL_AGREE_H
#define FR_FABRAIL_COLL_AGREE_H

#include "fabrail/coll.h"
#include "fabrail/coll/copies.h"

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
    struct fr_ipc_handle handles[FR_COLL_SIDES];
    uint64_t rest[6];
};
_Static_assert(sizeof(struct fr_coll_advert) % 64 == 0, "slots follow aligned");

// Memory of this rank that others reach; none with 0 bytes.
struct fr_coll_buffer {
    struct fr_device_range range;
    uintptr_t low;
    size_t bytes;
    bool is_workspace;           // which the application has no calls under way on
    struct fr_ipc_handle handle; // zeros where it is not exported yet
};

struct fr_coll_task;

// Makes up what this rank advertises for a task whose turn it is, and what a kernel may move as
// soon as all are there. Waits for work of the application's own that its calls only pretend to
// have finished. Unless the kernel makes them, begins what is to be copied before others reach the
// memory; after a failure of that, this rank is not eligible.
void fr_coll_agree_prepare(struct fr_coll_task *task);
void fr_coll_agree_refuse(struct fr_coll_task *task);

// Judges the adverts of all, which are there. FR_OK: all ranks have mapped each other's memory, and
// the group's memory says where. FR_ERR_NOT_FOUND: this rank has mapped what it had not, or tried
// to, and task->word says how that went, which all are to post. FR_ERR_UNSUPPORTED: some rank
// cannot take part. All ranks find the same.
FR_MUST_CHECK enum fr_status fr_coll_agree_decide(struct fr_coll_task *task);

// Judges these words of all, which are there. Returns FR_OK or FR_ERR_UNSUPPORTED as above.
FR_MUST_CHECK enum fr_status fr_coll_agree_compare(struct fr_coll_task *task);

// What was agreed on, until the task is over: slot `first_read` + `index` of a rank, and where the
// mover's device finds an address of the memory that the rank has on that side.
static inline const struct fr_coll_slot *fr_coll_slot_of(const struct fr_coll_slot *places,
                                                         int rank, int index)
{
    return &places[FR_COLL_SIDES * rank + index];
}
const struct fr_coll_slot *fr_coll_agreed_slots(const struct fr_coll_team *group);
uintptr_t fr_coll_reach(const struct fr_coll_team *group, int rank, enum fr_coll_side side,
                        uint64_t address);

// Room for a piece a rank.
struct fr_device_push_piece *fr_coll_pieces(const struct fr_coll_team *group);

#endif
