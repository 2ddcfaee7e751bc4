// SPDX-License-Identifier: BSD-3-Clause
// Inside of module request: what its files need of one another besides the side table (table.h).
#ifndef FR_REQUEST_REQUEST_INT_H
#define FR_REQUEST_REQUEST_INT_H

#include "fabrail/request/pending.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/incoming.h"

// Copies the outputs of completed operations together and waits. `statuses` holds the MPI status of
// each operation, NULL if all of it came; `errors` holds its MPI return code. Nothing is copied
// back after an error other than truncation, nor for a cancelled receive.
//
// Where an RTS has come, its message is received and the status then tells of that. If it is longer
// than the buffer, errors[i] becomes MPI_ERR_TRUNCATE. Returns the first failure; each operation
// keeps its own in `failure`.
FR_MUST_CHECK enum fr_status fr_request_deliver(struct fr_request_op *const *ops,
                                                void *const *statuses, int *errors, size_t count);

// Copies back what a one-sided operation has fetched. The caller has begun the copy
// (fr_request_table_begin_fetch). Another thread may be completing the request, so the operation
// may be gone when this returns.
FR_MUST_CHECK enum fr_status fr_request_fetch(struct fr_request_op *op);

// Returns true to the one thread that shall copy something back. Any other thread waits until that
// is done, since it is about to say that the data are there.
bool fr_request_begin_copy(_Atomic unsigned char *state);

// Receives the messages whose RTS have come to the first `count` of these operations, which writes
// each one's `receive` or `failure`.
FR_MUST_CHECK enum fr_status fr_request_receive(struct fr_request_op *const *ops,
                                                struct fr_rndv_incoming *incoming, size_t count);

// Returns the view that a receive writes, NULL if there is none.
struct fr_staging_view *fr_request_receive_view(struct fr_request_op *op);

// Returns whether a receive that has completed with this status has brought an RTS, and fills
// `incoming` if so. `status` is NULL if there is none.
bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming);

// Returns whether a receive that has completed with this status has brought the RTS that was read
// in its memory before, so that fr_request_has_rts need not read it anew.
bool fr_request_still_has_rts(struct fr_request_op *op, const void *status,
                              const struct fr_rndv_incoming *incoming);

// Returns whether a receive that has completed with `code` may have been too short for an RTS.
bool fr_request_may_be_cut(struct fr_request_op *op, int code);

// Finds the message whose RTS a receive was too short for. Called when all others of the call have
// been received. Returns false where that is not certain. `status` is NULL if there is none.
bool fr_request_find_cut(struct fr_request_op *op, const void *status,
                         struct fr_rndv_incoming *incoming);

// Returns whether an RTS that has not been followed yet stands in the memory of a receive, which
// may be another thread's. MPI has matched that RTS then, even if the request is not complete.
// Returns false for memory of the application's that may be gone.
bool fr_request_holds_rts(struct fr_request_op *op, struct fr_rndv_incoming *incoming);

// Reads the beginning of memory that another thread may be writing. A torn read is no RTS. Returns
// false, with the rest unread, if it does not begin as an RTS.
bool fr_request_read_racy(unsigned char data[FR_RNDV_RTS_BYTES], const void *from);

// Marks the RTS that stand in the memory of receives whose requests were freed as received. Writes
// those that it could not mark, of which nothing is known yet, to `incoming`, up to `max` of them.
// Returns how many these are.
size_t fr_request_take_freed(struct fr_rndv_incoming *incoming, size_t max);

// Returns whether such an operation of this communicator is under way.
bool fr_request_advances_on(fr_word comm);

// Does for operations whose request was freed what fr_request_comm_change does.
void fr_request_freed_comm_change(fr_word comm, char before, char after);

static inline void fr_request_op_comm_change(struct fr_request_op *op, fr_word comm, char before,
                                             char after)
{
    bool changes =
        before == 'c' ? op->object_kind == 'c' : op->object_kind == 0 || op->object_kind == 'r';
    if (changes && op->object == comm && !op->schedule)
        op->object_kind = after;
}

// Returns whether an operation is over but for MPI's own part, and makes progress. `copies` counts
// down the copies that it may wait for, as in fr_rndv_send_poll.
bool fr_request_poll(struct fr_request_op *op, unsigned *copies);

// Makes what the operation sends leave the application's buffer at once. Returns false where it
// stays, as in fr_rndv_send_leave.
bool fr_request_leave_buffer(struct fr_request_op *op);

// Says whether the application may leave a call by an error handler. After that, an operation that
// another thread has claimed may belong to no running call.
extern FR_OWN _Atomic bool fr_request_has_handler;
static inline bool fr_request_may_be_abandoned(void)
{
    return atomic_load_explicit(&fr_request_has_handler, memory_order_relaxed);
}

// Returns whether this synchronisation completes an operation of this window. For the lists of
// module request alone.
bool fr_request_sync_has(const struct fr_request_sync *sync, const struct fr_request_op *op,
                         fr_word window);

// Notes whether an operation with a request fetches data, which must be there when its window has
// been synchronised as well. Called before the operation is in the side table.
void fr_request_follow_window(struct fr_request_op *op);

// Returns how often threads have looked at operations whose request was freed.
uint64_t fr_request_freed_looks(void);

// Looks at one operation with a freed request that may bring a message and that nobody has begun to
// look at since `since`. Skips it if another thread has it in hand. Returns false when there is no
// such operation.
bool fr_request_look_at_unseen(uint64_t since);

// Starts the parts, for a persistent operation each time anew. Returns an MPI error code.
int fr_request_schedule_start(struct fr_request_op *op);

// Returns whether all parts are complete. Makes progress.
bool fr_request_schedule_poll(struct fr_request_op *op);

// Goes on with the parts and what comes after them. Returns whether all is over. For advance.c.
bool fr_request_schedule_step(struct fr_request_op *op);

// Has all calls go on with a schedule that was started and has a function for that.
void fr_request_advance_begin(struct fr_request_op *op);

// Goes on with such a schedule, unless another thread does. Returns whether it is complete.
bool fr_request_advance(struct fr_request_op *op);

// Begins to receive messages whose RTS have come to operations, and waits for none of their bytes:
// one of the network, or up to FR_RNDV_AT_ONCE that devices copy, which go together. An operation
// keeps its message as its `arrival` until that is over. Returns false where memory is short:
// nothing has begun then.
bool fr_request_arrivals_begin(struct fr_request_op *const *ops,
                               const struct fr_rndv_incoming *incoming, size_t count);

// Begins to receive what has come to any receive, as fr_request_receive_early does. Does not wait
// for copies of many bytes. Their senders wait for this process, so the call ends with
// fr_request_end_early.
void fr_request_begin_early(void);

// Begins to receive what has come to operations that the caller has claimed, as
// fr_request_begin_early does for those that nobody has. NULL entries are accepted.
void fr_request_begin_claimed(struct fr_request_op *const *ops, size_t count);

// Makes progress as fr_request_progress does, and begins to receive as fr_request_begin_early.
void fr_request_begin_progress(void);

// The number of short messages that are worth a launch of their own while others are being copied.
// Fewer are copied together with those that come next.
enum { FR_REQUEST_WORTH_A_LAUNCH = 32 };

// Calls that wait for more requests than this wait another way.
enum { FR_REQUEST_FEW = 8 };

extern FR_OWN _Atomic size_t fr_request_flying; // short arrivals under way
// Waits for the copies that are under way, as far as no other thread does.
static inline void fr_request_end_early(void)
{
    if (FR_UNLIKELY(atomic_load_explicit(&fr_request_flying, memory_order_relaxed) > 0))
        (void)fr_request_receive_early();
}

// Moves the arrival of an operation on. Returns whether it is over, so that the operation is
// delivered. A failure stays with it.
bool fr_request_arrival_poll(struct fr_request_op *op);

// Moves the arrivals of operations on, as far as these have any, and with `waits` waits for copies
// by devices that are under way. Those that were begun together are asked for together. Returns how
// many have ended. A failure stays with its operation.
size_t fr_request_arrivals_move(struct fr_request_op *const *ops, size_t count, bool waits);

// Lets go of the messages that devices copy for operations, before this process goes where it may
// not come back from soon. Returns whether all senders depend on nobody now.
bool fr_request_arrivals_let_go(struct fr_request_op *const *ops, size_t count);

// Waits until the arrival of an operation is over, and makes progress for others meanwhile. Returns
// how it has ended.
enum fr_status fr_request_arrival_finish(struct fr_request_op *op);

// The looks that a call may spend on its operations, one after the other.
struct fr_request_looks {
    unsigned copies;     // that it may wait for
    size_t receives;     // MPI is asked about some of so many
    size_t unasked;      // about which it has never been asked
    bool has_progressed; // MPI was given time
};

// Returns whether a receive has brought an RTS whose message takes as long as the network, or
// longer if its sender does nothing, and is not over. Begins to receive it, or moves it on. Called
// before MPI may complete the request. A receive about which MPI was not asked counts as such a
// one.
bool fr_request_is_arriving(struct fr_request_op *op, struct fr_request_looks *looks);

#endif
