// SPDX-License-Identifier: BSD-3-Clause
// A collective operation of a team as a task. It has stages from the agreement to the end, and a
// function that goes on as far as it can without waiting for another rank. A blocking call runs its
// task to the end.
//
//     struct fr_coll_task task;
//     fr_coll_alltoall_begin(&task, team, &exchange);
//     enum fr_status status = fr_coll_task_run(&task);
//
// All ranks of a team begin the same operations in the same order, or decline. Tasks of several
// teams may be under way at once, in one thread or in several. Tasks of one team take turns: each
// begins when the one before is over. Two at once would need a segment or slab each, since all
// ranks post for the rounds of one in the same order.
//
// One thread at a time uses the tasks of one team. The caller owns a task, and what it was begun
// with, until it is over; none may be dropped before. A task allocates nothing.
#ifndef FR_FABRAIL_COLL_TASK_H
#define FR_FABRAIL_COLL_TASK_H

#include "fabrail/coll/agree.h"
#include "fabrail/coll/host.h"
#include "fabrail/coll/rounds.h"

// One rank's part in an operation.
struct fr_coll_part {
    const char *call; // for messages
    uint64_t what;    // the operation, which must be the same on all ranks
    struct fr_coll_buffer buffers[FR_COLL_ACCESSES];
    const struct fr_coll_slot *slots;        // of this rank, for the others
    int slot_count;                          // at most the number of ranks, or 2
    const struct fr_device_strides *layouts; // that slots refer to
    unsigned layout_count;                   // at most FR_COLL_LAYOUTS
    int first_read;               // first of the slots of each other rank that this one needs
    int read_count;               // at most 2
    struct fr_device_range mover; // its device moves bytes for this rank, if any does
    struct fr_coll_copy before;   // made before others reach the memory
    struct fr_coll_copy after;    // made once all bytes have moved
    bool is_synced;               // the program's work on its memory is over
    bool is_patient;              // ranks may come to it after any time (rounds.h)

    // Writes to *move what is to be moved if all is as in the operation before, with the slots and
    // memory of that. A kernel can then do it as soon as all ranks are there. Returns false where
    // no kernel does it.
    //
    // move->delivery.is_made says, on all ranks alike, that ranks deliver in this operation: then
    // it has no more rounds, and a rank that returns false takes part as if it were in another one.
    bool (*plan)(struct fr_coll_team *team, void *operation, struct fr_device_move *move);

    // Begins to combine what ranks have delivered as planned. NULL where they never do.
    enum fr_status (*combine)(struct fr_coll_team *team, void *operation,
                              struct fr_device_work *work);

    // Begins to move this rank's bytes of one step, or returns why it has not. Between two steps
    // all ranks hear that all is well so far.
    enum fr_status (*move)(struct fr_coll_team *team, void *operation, int step,
                           struct fr_device_work *work);
    int steps;
    // Begins to move all ranks' bytes, of one step. NULL: each rank moves its own. All ranks have
    // it or none. The others may be in no call that goes on with the task.
    enum fr_status (*move_all)(struct fr_coll_team *team, void *operation,
                               struct fr_device_work *work);
    // How long a call that does not wait looks whether the others come too, so that this rank moves
    // its bytes while the program computes; 0: not at all. Ranks that come so soon share the work
    // of one that moves all.
    int64_t moment_ns;
    void *operation;
};

// The stages of a task, in their order.
enum fr_coll_stage {
    FR_COLL_STAGE_TURN,    // waits for the team's earlier operations, and for its memory
    FR_COLL_STAGE_DECLINE, // says that it does not take part, or posts its data
    FR_COLL_STAGE_COPY_IN, // copies what others read to workspace
    FR_COLL_STAGE_ADVERTS, // posts its advert, and looks for those of the others
    FR_COLL_STAGE_MAPPED, // posts whether it has mapped the memory, and looks for the others' words
    FR_COLL_STAGE_DATA,   // posts its data for the CPUs, and looks for the others' data
    FR_COLL_STAGE_MOVE,   // begins to move its bytes
    FR_COLL_STAGE_MOVED,  // looks whether the device has moved them
    FR_COLL_STAGE_RESULTS, // posts whether that went well, and looks for the others' results
    FR_COLL_STAGE_COPY_OUT,
    FR_COLL_STAGE_OVER,
};

// A task. Its fields are module coll's, but for those that fr_coll_task_begin names.
struct fr_coll_task {
    struct fr_coll_team *team;
    struct fr_coll_part part; // unused in a task that declines
    // Written by the functions below, and by agree.c.
    enum fr_coll_stage stage;
    enum fr_status status;
    bool declines;
    // Does the operation by posts where some rank cannot take part: a short one, or one across
    // hosts. The caller that begins the task sets it, on all ranks alike. NULL: the task ends with
    // FR_ERR_UNSUPPORTED.
    struct fr_coll_host *host;
    bool is_by_posts; // it has done so
    bool waits;       // for the device: the caller has nothing else to do
    uint64_t waiting; // span of the meter while others have not come, 0 for none
    struct fr_device_work work;
    uint64_t turn; // count of the team's operations that were begun before
    int step;
    struct fr_coll_round round;
    struct fr_coll_post post; // of data
    bool is_loaded;           // for this round
    bool has_lingered;
    uint32_t word;               // posted in all rounds but that of adverts
    enum fr_coll_slab_done done; // what a kernel has moved
    // The agreement's part.
    struct fr_device_move move;
    bool moves;        // a kernel may make `move`
    bool delivers;     // and with it a delivery, if the post has a mark
    uint64_t user;     // the context that maps
    size_t slot_bytes; // of the slots and layouts that are advertised
    uint64_t adverts;  // number of the round of adverts
    unsigned mark;     // of the past operation that this rank is in again; 0: none
    bool alike;        // all ranks are in that operation again
    unsigned previous; // the operation before, among the past ones
    unsigned replaced; // the mapping set that is mapped anew
};

// Begins a task with task->part, which the caller has written. Posts nothing yet. Called by the
// functions of operations alone, such as fr_coll_alltoall_begin.
void fr_coll_task_begin(struct fr_coll_task *task, struct fr_coll_team *team);

// Begins a task that tells the others that this rank takes no part in the next operation. It waits
// for room to say so, and for nothing else of the others.
void fr_coll_task_begin_declined(struct fr_coll_task *task, struct fr_coll_team *team,
                                 const char *call);

// Goes on with a task as far as is possible without waiting for another rank. Sets *over when the
// task is over and may be dropped. Returns FR_OK until then, and the result of the operation with
// it.
//
// FR_OK: all bytes are where they belong, on all ranks, or those of this rank are where CPUs have
// done the operation. FR_ERR_UNSUPPORTED: some rank cannot take part, no byte has moved, and all
// ranks find the same. Any other failure comes after bytes have
// moved, or because a rank is gone: the operation is lost.
//
// No other rank can hold up what it does wait for. It waits for the driver to export and map
// memory, and for the device to copy words of slabs. A call that waits for the task also waits for
// a kernel that looks for others (barrier_kernel.h), for 0.1 ms at most. It waits microseconds for
// others to share its work.
FR_MUST_CHECK enum fr_status fr_coll_task_progress(struct fr_coll_task *task, bool *over);

// Runs a task until it is over, and makes progress for others meanwhile. Returns the result of the
// operation.
FR_MUST_CHECK enum fr_status fr_coll_task_run(struct fr_coll_task *task);

// Begins a task that declines, and runs it to its end.
void fr_coll_decline(struct fr_coll_team *team, const char *call);

#endif
