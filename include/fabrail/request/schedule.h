// SPDX-License-Identifier: BSD-3-Clause
// Schedules: one operation of the application that Fabrail does by several messages of its own, or
// by other means that take time. The application sees one request. The parts are requests like its
// own, and are tracked in the same way.
//
// A schedule may have a function that goes on with it. Calls of MPI functions that wait, or that
// are looked at anyway, then go on with the schedule, whatever they are for (advance.c).
#ifndef FR_FABRAIL_REQUEST_SCHEDULE_H
#define FR_FABRAIL_REQUEST_SCHEDULE_H

#include "fabrail/core/wait.h"
#include "fabrail/request.h"

// The schedule of an operation, which owns it.
struct fr_request_schedule {
    // Starts the parts: once, or each time that a persistent operation is started. Returns an MPI
    // error code. Parts that were started before an error are waited for all the same.
    int (*start)(struct fr_request_op *op);
    // Goes on once all parts are complete, and waits for nobody. Returns true when the operation is
    // over, for which it may have set `error`; false when there is nothing to do for now, or when
    // it has added parts. NULL: the operation is over with its parts.
    bool (*advance)(struct fr_request_op *op);
    // Goes on as that does, in a look of a call that waits, and returns whether `advance` has more
    // to do. NULL: it may have.
    bool (*is_due)(struct fr_request_op *op);
    // Goes on so in a call that waits for this operation while nothing else is under way. May wait
    // for the device, and for no other rank. NULL: there is nothing to wait for.
    void (*wait_for_device)(struct fr_request_op *op);
    // Another thread goes on with it as well, and no data of the device depend on it. So calls
    // about other things need not be looked at for its sake. Written by `start`.
    bool is_quiet;
    void *own;                  // what that function needs besides, or NULL
    void (*release)(void *own); // frees it, with the operation
    int tag;                    // first of the tags of its messages
    bool generalized;           // the application has a generalised request, else a persistent one
    // A persistent receive of the message that the application's persistent request sends to this
    // process itself. NULL without one.
    _Alignas(8) char receive[8];
    _Atomic bool complete;
    _Atomic bool is_awaited;       // a call waits for it
    _Atomic unsigned *awaited;     // counts the schedules for which one waits, or NULL
    const _Atomic unsigned *spins; // such looks before the first that yields the core; NULL: none
    bool is_in_hand; // a thread goes on with it; guarded by the lock of advance.c, as the next one
    struct fr_request_op *next; // among those that go on in all calls
    int error;                  // MPI code of the first part that failed
    fr_word *types;             // duplicates of the application's datatypes, which it may free
    size_t type_count;
    size_t count;
    char parts[]; // requests, in the family's handle width
};

// Gives an operation a schedule with room for `capacity` parts. The operation owns it.
FR_MUST_CHECK enum fr_status fr_request_schedule_make(struct fr_request_op *op, size_t capacity,
                                                      int (*start)(struct fr_request_op *op));

// Keeps what the arguments of a persistent operation stand for, which the application may free
// before it starts it. Replaces its datatypes by duplicates, and its arrays by copies. The arrays
// have `sends` and `receives` elements. Returns FR_ERR_MPI when MPI fails.
FR_MUST_CHECK enum fr_status fr_request_schedule_keep_args(struct fr_request_op *op, size_t sends,
                                                           size_t receives);

// Says whether a call waits for the operation.
static inline void fr_request_schedule_await(struct fr_request_schedule *schedule, bool awaits)
{
    if (atomic_exchange(&schedule->is_awaited, awaits) != awaits && schedule->awaited)
        atomic_fetch_add_explicit(schedule->awaited, awaits ? 1 : -1u, memory_order_relaxed);
}

// Adds a part. Returns where its request goes.
void *fr_request_schedule_add(struct fr_request_schedule *schedule);

// Starts the schedule of a nonblocking operation, or makes the request of a persistent one. Writes
// the application's request and tracks the operation, which belongs to the side table from here on.
// Returns what the application's call returns.
int fr_request_schedule_open(struct fr_request_op *op, void *request);

// Makes a request with a value of its own, which MPI takes for complete. Returns false when MPI
// fails.
bool fr_request_make_complete(void *request);

// Returns a request that is never complete, the same one each time, or 0 when MPI fails. With it,
// MPI looks at a list of requests and ends none of them.
fr_word fr_request_never(void);

// Ends that request, if there is one. Called before MPI_Finalize, when no other thread is in MPI.
void fr_request_end_never(void);

// Judges how long other ranks have not come to an operation. Returns false when they are waited for
// no longer, which is logged.
typedef bool fr_request_schedule_judge(void *cookie, struct fr_wait *time);

// Runs the parts to their end, for a blocking call. `judge` is called once a second while some have
// not come; its clock begins anew when one has. Returns an MPI error code. Writes to *over whether
// all parts are over. If they are not, the operation must stay: MPI may use its memory.
int fr_request_schedule_run(struct fr_request_op *op, fr_request_schedule_judge *judge,
                            void *cookie, bool *over);

#endif
