// SPDX-License-Identifier: BSD-3-Clause
// Tasks that go on without a call that waits for them, such as those of nonblocking collectives.
//
// Each team has a queue of them. Any thread goes on with the first task of each queue, so tasks of
// one team take turns as they were begun, and no task waits for one behind it. A thread that must
// not call MPI (fr_job_control_stays_here) goes on with them as well.
#ifndef FR_FABRAIL_COLL_QUEUE_H
#define FR_FABRAIL_COLL_QUEUE_H

#include "fabrail/coll/task.h"

// A task in a queue. The caller owns it, and what its task was begun with, until it is over.
struct fr_coll_queued {
    struct fr_coll_task task;
    // Does the operation where the task ends with FR_ERR_UNSUPPORTED, as fr_coll_task_progress does
    // it. Any thread calls it, so it calls no function of MPI. NULL: that is the end.
    enum fr_status (*fallback)(struct fr_coll_queued *queued, bool *over);
    bool is_fallback;      // the task has ended so, and that function goes on
    enum fr_status status; // how all has ended, once it is over
    _Atomic bool over;     // no thread uses it any more
    struct fr_coll_queued *next;
};

// Adds a task, which the caller has just begun. Calls fr_coll_queue_leave before it returns to the
// program.
void fr_coll_queue_add(struct fr_coll_queued *queued);

// Leaves tasks that have been added to the thread, which is woken or started for them.
void fr_coll_queue_leave(void);

// Goes on with tasks of all queues that no other thread goes on with. Never waits for other ranks.
// Cheap when there are none.
void fr_coll_queue_progress(void);

// Goes on so in a call that waits for a task and has nothing else to do. It waits for the device as
// well, which tells a thread that waits sooner than one that asks again and again.
void fr_coll_queue_progress_waiting(void);

// Goes on so with tasks that no call has gone on with for `quiet_ns`, as found in these looks.
// Calls that wait for their tasks do so at every moment. Made by the thread alone.
void fr_coll_queue_progress_untended(int64_t quiet_ns);

// Goes on with the queued tasks of one team. The caller holds the queue.
void fr_coll_queue_progress_held(struct fr_coll_team *team);

// Makes this thread the only one that uses the team and its tasks. Waits for a thread that goes on
// with them, which waits for no other rank. Does nothing for a team without a queue.
void fr_coll_queue_hold(struct fr_coll_team *team);

// Lets other threads use the team again, after fr_coll_queue_hold.
void fr_coll_queue_release(struct fr_coll_team *team);

// Ends the queue of a team that goes. Tasks that are left, since the program has not completed
// them, are over.
void fr_coll_queue_close(struct fr_coll_team *team);

// Returns whether a thread goes on with tasks while the program is in no call that does.
bool fr_coll_queue_has_thread(void);

// Ends the thread that goes on with tasks. Called in MPI_Finalize.
void fr_coll_queue_stop(void);

#endif
