// SPDX-License-Identifier: BSD-3-Clause
// Module request: operations whose buffers are staged or go by rendezvous, from their first copy to
// their last. A side table finds them again by the real MPI's request, window or file.
#ifndef FR_FABRAIL_REQUEST_H
#define FR_FABRAIL_REQUEST_H

#include "fabrail/request/op.h"
#include "fabrail/rndv/outgoing.h"
#include "fabrail/rndv/progress.h"

// Copies the inputs of `count` operations to their staging memory, together, and waits.
FR_MUST_CHECK enum fr_status fr_request_copy_in(struct fr_request_op *const *ops, size_t count);

// Delivers one completed operation as fr_request_deliver does, and raises its errors. `rc` is what
// MPI has returned. Returns what the application's call returns.
int fr_request_deliver_one(struct fr_request_op *op, void *status, int rc);

// Returns whether MPI's code for a receive says that it has brought something. That includes a
// message, or its RTS, that is longer than the buffer.
bool fr_request_has_come(int code);

// Sets the size of the message in a status to `bytes`.
void fr_request_set_size(void *status, uint64_t bytes);

// Marks what has come for receives that nobody is completing as received, so that probes do not
// find it.
void fr_request_mark_received(void);

// Receives what has come for receives that nobody is completing just now. Called while this process
// waits, since the senders may be waiting as well. Begins messages that take as long as the
// network, and moves them on, but does not wait for them. Cheap when there is nothing. Returns how
// many messages it has received.
size_t fr_request_receive_early(void);

// Begins to receive what has come, in a call that makes one more request of so many bytes in device
// memory: where many are made, the first messages may be there before the last request is. Waits
// for nothing of theirs. Cheap where that is not worth a look.
void fr_request_look_in_passing(size_t bytes);

// Goes on with operations under way that take more than messages. Called where a call may do so,
// whatever it is for. Cheap when there are none. Waits for nobody.
void fr_request_advance_all(void);

// Makes all progress that others may need of this process, in a call of MPI that waits for
// something else. MPI itself makes none when all requests of a list are hidden from it.
void fr_request_progress(void);

// Returns whether an operation is over but for MPI's own part: what it sends by rendezvous has left
// the application's buffer. Makes progress.
bool fr_request_is_over(struct fr_request_op *op);

// Waits until an operation is over but for MPI's own part, and makes progress for others meanwhile.
// Returns early after an error is logged that the receiving process is gone. `requests` is how many
// the call waits for.
void fr_request_wait_over(struct fr_request_op *op, size_t requests);

// Returns whether an operation that a schedule does needs the communicator. It does until its
// request is gone, since a call that completes it still has the schedule in hand.
bool fr_request_needs_comm(fr_word comm);

// Changes who hears of errors of operations that are under way on a communicator, from `before` to
// `after` (object_kind of op.h). With `before` 0 those change that have another than 'c'. Called
// before a communicator is freed, since its handle may come back as another one's; and once more
// if MPI has not freed it.
void fr_request_comm_change(fr_word comm, char before, char after);

// The number of the application's call that this thread is in. An error handler may abandon a call
// by longjmp or an exception. So what an earlier call has claimed and not given back is abandoned.
extern FR_OWN FR_TLS uint64_t fr_request_call;

// The number of the outermost call that this thread may be in. Calls from inside an error handler
// have higher numbers. Claims of calls before it are abandoned for certain.
extern FR_OWN FR_TLS uint64_t fr_request_outermost;

// Says whether calls of this thread may have been abandoned by an error handler.
extern FR_OWN FR_TLS bool fr_request_any_abandoned;

// Notes that the application has made an error handler of its own, by which it may leave a call.
void fr_request_handler_made(void);

// Notes that there are partitioned requests.
void fr_request_parts_made(void);

// Says whether threads call MPI one at a time at most, which is known when MPI has started. Until
// then they may all call at once. Once `yes` was false it stays so.
void fr_request_set_serial(bool yes);
extern FR_OWN bool fr_request_serial;

// Says whether calls come one at a time and no error handler leaves one.
extern FR_OWN bool fr_request_alone;

// Says whether a message was matched, to be received later, that may have an RTS and could not be
// marked as taken. An RTS that seems to wait may be that one.
extern FR_OWN _Atomic bool fr_request_any_unmarked;

// Number of operations in the side table that are not plain.
extern FR_OWN _Atomic size_t fr_request_special_count;

// Number of operations in the side table.
extern FR_OWN _Atomic size_t fr_request_tracked_count;

// Number of receives under way that have no operation (posted.h). When both numbers are zero no
// completion call needs a look.
extern FR_OWN _Atomic size_t fr_request_posted_count;
static inline bool fr_request_any_tracked(void)
{
    // Posted receives come first, since one may be becoming an operation meanwhile.
    return atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) != 0 ||
           atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) != 0;
}

// Number of operations in the side table but for persistent ones that are not started.
extern FR_OWN _Atomic size_t fr_request_active_count;
static inline bool fr_request_any_active(void)
{
    return atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) != 0 ||
           atomic_load_explicit(&fr_request_active_count, memory_order_acquire) != 0;
}

// Shows an operation that has no request to threads that look for messages, as claimed by this
// call.
void fr_request_show(struct fr_request_op *op);

// Has a kernel stand by for the message of an operation, if it is a receive for which that pays.
// The call that is about to wait for it calls fr_rndv_standby_end before it returns, whatever
// happens.
void fr_request_stand_by(struct fr_request_op *op);

// Hides an operation again that fr_request_show has shown.
void fr_request_hide(struct fr_request_op *op);

// Ties a started operation to its request, or finishes it at once when it is complete already. Owns
// `op` from here on. Returns what the application's call returns.
int fr_request_track(struct fr_request_op *op, void *request);

// Handlers of the functions that complete, start, free or ask for requests. Each returns false when
// no request of the call is tracked. Then the real function is to be called unchanged.
bool fr_request_complete(enum fr_fn fn, fr_word *args, int *result);
bool fr_request_free(fr_word *args, int *result);
bool fr_request_start(enum fr_fn fn, fr_word *args, int *result);
bool fr_request_pready(enum fr_fn fn, fr_word *args, int *result);
bool fr_request_parrived(enum fr_fn fn, fr_word *args, int *result);

// Claims the requests of the completion call that this thread has under way, before others get
// their values. Called before anything that the application does in a function of its own which MPI
// calls meanwhile. `within`: the completion call is still on the stack. A call that was
// abandoned is forgotten.
void fr_request_claim_late(bool within);

enum { FR_REQUEST_SHORT_LIST = 32 }; // a call of up to so many requests takes no memory

// Finishes complete operations whose request the application has freed. No call of the
// application's completes them, so any call does. It looks at a few incomplete sends at most, so of
// many some may be left to later calls.
void fr_request_poll_freed(void);

// Finishes operations whose request was freed, at the end of the job. All are complete then, unless
// the program has messages without a receive. Waits for the others a little, and forgets them.
void fr_request_end_freed(void);

// Number of operations whose request was freed.
extern FR_OWN _Atomic size_t fr_request_freed_count;
static inline bool fr_request_any_freed(void)
{
    return atomic_load_explicit(&fr_request_freed_count, memory_order_relaxed) != 0;
}

// Number of receives into device memory that are pending, and of windows whose ranks send messages.
extern FR_OWN _Atomic size_t fr_request_expected;

// Adds `count`, which may be negative, to fr_request_expected.
void fr_request_expect(int count);

// Says whether senders have had to wait for this process lately.
extern FR_OWN _Atomic bool fr_request_awaited;

// Changes fr_request_awaited. Called by fr_request_notice_awaited alone.
void fr_request_awaited_change(bool awaited);

// Updates whether senders have had to wait for this process lately. Called in calls with device
// buffers, in calls that wait, and in all that are looked at since such a sender was noticed.
static inline void fr_request_notice_awaited(void)
{
    bool awaited = fr_rndv_is_awaited();
    if (FR_UNLIKELY(awaited != atomic_load_explicit(&fr_request_awaited, memory_order_relaxed)))
        fr_request_awaited_change(awaited);
}

// Returns whether others may depend on this process while it waits for something else. Senders may
// when receives into device memory are pending, or when any are and senders have had to wait
// lately. Receivers may while sends wait to be asked for. A call that waits then makes progress,
// and receives what has come.
static inline bool fr_request_is_awaited(void)
{
    return atomic_load_explicit(&fr_request_expected, memory_order_relaxed) != 0 ||
           fr_rndv_any_waiting() ||
           (atomic_load_explicit(&fr_request_awaited, memory_order_relaxed) &&
            fr_request_any_tracked());
}

// Calls the real function and returns its code. Where senders may depend on this process, a
// function that waits for one message or for untracked requests is called as a row of tests.
int fr_request_call_real(enum fr_fn fn, const fr_word *args);

// Does what MPI_Win_wait does for a window of the real MPI, and returns its code. Calls a row of
// tests, between which it makes progress.
int fr_request_wait_for_epoch(const fr_word *args);

// Called before a collective, in which nothing can be received. Receives what comes from senders
// that have had to wait, until nothing has come for a moment.
void fr_request_receive_coming(void);

// Returns whether to look at each call. Reasons are operations whose request was freed, receives
// into device memory, senders that have had to wait, and sends that wait to be asked for.
static inline bool fr_request_looks_at_all(void)
{
    return atomic_load_explicit(&fr_rndv_reasons, memory_order_relaxed) != 0;
}

#endif
