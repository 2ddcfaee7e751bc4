// SPDX-License-Identifier: BSD-3-Clause
// A collective operation of a group as a task: stages from the agreement to the end, and a function
// that goes on as far as it can and waits for no other rank. A blocking call runs its task to the
// end.
//
//     struct fr_coll_task task;
//     fr_coll_alltoall_begin(&task, group, &exchange);
//     enum fr_status status = fr_coll_task_run(&task);
//
// All ranks of a group begin the same operations in the same order, or decline. Tasks of several
// groups may be under way at once, in one thread or in several; those of one group take turns: each
// begins when the one before is over. More of them at once would take a segment or a slab each,
// with rounds of its own, since all ranks post for the rounds of one in the same order.
//
// One thread at a time uses the tasks of one group. The caller owns a task, and what it was begun
// with, until it is over; none may be dropped before. It allocates nothing.
#ifndef FR_FABRAIL_COLL_TASK_H
#define FR_FABRAIL_COLL_TASK_H

#include "fabrail/coll/agree.h"
#include "fabrail/coll/rounds.h"

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

    // Says what is to be moved if all is as it was in the operation before, with the places and the
    // memory of that, so that a kernel can do it as soon as all ranks are there; false where it is
    // nothing that a kernel does.
    bool (*plan)(struct fr_coll_team *group, void *operation, struct fr_device_move *move);

    // Begins to move this rank's bytes of one step, or returns why it has not. Between two steps
    // all ranks hear that all is well so far.
    enum fr_status (*move)(struct fr_coll_team *group, void *operation, int step,
                           struct fr_device_work *work);
    int steps;
    void *operation;
};

enum fr_coll_stage {
    FR_COLL_STAGE_TURN,    // operations before it on the group are not over
    FR_COLL_STAGE_DECLINE, // it says that it does not take part
    FR_COLL_STAGE_COPY_IN, // what others read is copied to workspace
    FR_COLL_STAGE_ADVERTS, // it posts what it advertises, and looks for that of the others
    FR_COLL_STAGE_MAPPED,  // and whether they have mapped the memory
    FR_COLL_STAGE_MOVE,    // it begins to move its bytes,
    FR_COLL_STAGE_MOVED,   // and looks whether the device has moved them
    FR_COLL_STAGE_RESULTS, // it posts whether that went well, and looks for that of the others
    FR_COLL_STAGE_COPY_OUT,
    FR_COLL_STAGE_OVER,
};

struct fr_coll_task {
    struct fr_coll_team *group;
    struct fr_coll_part part; // unless it declines
    // Written by the functions below, and by agree.c.
    enum fr_coll_stage stage;
    enum fr_status status;
    bool declines;
    bool waits; // for the device, since the caller has nothing else to do
    struct fr_device_work work;
    uint64_t turn; // operations of the group that were begun before
    int step;
    struct fr_coll_round round;
    uint32_t word;               // posted for it, but for adverts
    enum fr_coll_slab_done done; // what a kernel has moved
    // Of the agreement.
    struct fr_device_move move;
    bool moves;        // a kernel may make it
    uint64_t user;     // the context that maps
    size_t slot_bytes; // of the slots that are advertised
    uint64_t adverts;  // the round that these are posted for
    unsigned mark;     // of the operation of the past that this rank is in again, 0: of none
    bool alike;        // all ranks are in that again
    unsigned previous; // the operation before, in the past
    unsigned replaced; // the set that is mapped anew
};

// Begins a task with task->part, which the caller has written. To be called by functions of
// operations alone, such as fr_coll_alltoall_begin. Does not post anything.
void fr_coll_task_begin(struct fr_coll_task *task, struct fr_coll_team *group);

// Begins one that tells the others that this rank takes part in no operation this time. It waits
// for nobody but for room to say so.
void fr_coll_task_begin_declined(struct fr_coll_task *task, struct fr_coll_team *group,
                                 const char *call);

// Goes on as far as is possible without waiting for another rank. Returns FR_OK until the task is
// over; then *over is true, the task may be dropped, and the result is that of the operation.
// FR_OK: all bytes are where they belong, on all ranks. FR_ERR_UNSUPPORTED: some rank cannot take
// part, no byte has moved, and all ranks find the same. Any other failure comes after bytes have
// moved, or because a rank is gone: the operation is lost.
//
// What it does wait for no other rank can hold up: the driver while it exports and maps memory, the
// device while it copies words of slabs, and a kernel that looks for others (met.h) for 0.1 ms at
// most.
FR_MUST_CHECK enum fr_status fr_coll_task_progress(struct fr_coll_task *task, bool *over);

// Goes on until the task is over, and makes progress for others meanwhile. Returns the result.
FR_MUST_CHECK enum fr_status fr_coll_task_run(struct fr_coll_task *task);

// Declines, and runs that to its end.
void fr_coll_decline(struct fr_coll_team *group, const char *call);

#endif
