// SPDX-License-Identifier: BSD-3-Clause
// Module request: operations whose buffers are staged or go by rendezvous, from their first copy to
// their last. A side table finds them again by the real MPI's request, window or file.
#ifndef FR_FABRAIL_REQUEST_H
#define FR_FABRAIL_REQUEST_H

#include "fabrail/abi.h"
#include "fabrail/core/hash.h"
#include "fabrail/rndv.h"
#include "fabrail/staging/path.h"

enum {
    FR_MAX_VIEWS = 3,
    FR_STATUS_BYTES = 64 // the largest status of all families has 32
};

// State of data that several threads may copy back to the application. They are a partition of a
// partitioned receive, or what a one-sided operation with a request has fetched.
enum { FR_COPY_AWAITED, FR_COPY_BEGUN, FR_COPY_DONE };

// One MPI call with at least one staged buffer. Operations are pooled, and their arrays keep their
// capacity, so a warm operation allocates nothing. The thread in the call owns it, then the side
// table.
struct fr_request_op {
    enum fr_fn fn;
    fr_word args[FR_MAX_ARGS]; // the application's, later what the real MPI is given
    unsigned view_count;
    size_t block_count;
    size_t arrays_used;
    char object_kind; // 'c', 'w', 'f': whose error handler hears of errors; 0: none
    fr_word object;
    enum fr_fn counted_as; // the function that the report names
    fr_word element_type;  // a datatype that was made for the call; 0: none
    uint64_t comm_name;    // of the communicator that a COMM_MAKE call makes

    bool persistent;
    bool replaces;   // its receive buffer is also what it sends
    bool prefix_out; // only as much as the status counts is copied back
    bool copies;     // the delivery under way copies back to the application
    // Threads that look for messages read these, too.
    _Atomic bool active;    // started and not yet completed
    _Atomic bool delivered; // copied back before the request was completed
    enum fr_status failure; // of copies or of the receive, for the call that completes it

    struct fr_rndv_send *send;            // a send by rendezvous that is not over; else NULL
    struct fr_request_arrival *arrival;   // its message that is being received; else NULL
    struct fr_request_schedule *schedule; // its parts, if it is not one call of MPI; else NULL
    struct {
        bool takes_rts;   // it receives, and an RTS may come
        bool has_message; // an RTS's message was received, which the status must show
        uint64_t bytes;   // size of that message
        size_t room;      // size of the buffer
        // Set when MPI says that the receive was too short for what came. That may be an RTS, whose
        // message is then to be found.
        enum { FR_CUT_NOT, FR_CUT_SOUGHT, FR_CUT_OVER } cut;
        const char *staged_because; // reason for the report, if it is counted when complete
    } receive;
    struct {
        size_t count; // of partitions; 0 in other operations
        size_t elements;
        _Atomic unsigned char *arrived; // FR_COPY_* of each
    } parts;
    struct { // a collective on a communicator of this rank alone
        // Makes its copies, each time that it is started; NULL in other operations.
        enum fr_status (*copy)(const struct fr_request_op *op);
        unsigned char *slices; // what each block of a neighbourhood receives; NULL without
    } self;
    struct {
        int target;      // rank
        uint64_t number; // of an operation that a window completes, in the order of calls
        // It has a request and fetches data. Either the request or the window completes it.
        bool fetches;
        _Atomic unsigned char fetched; // FR_COPY_*
    } rma;

    fr_word key;  // request, window or file that the operation is tied to
    bool plain;   // a receive into memory that MPI was given, started once
    bool expects; // a receive into device memory, started once
    struct {
        bool held;  // claimed by a call that completes requests or looks for messages
        bool early; // to receive early, which does not take long
        bool left;  // its request is over, and another one may have its value
        const void *thread;
        uint64_t call; // number of that thread's call
    } claim;
    uint64_t looked;            // number of the last look, if its request was freed
    struct fr_request_op *next; // with the same key, or in a list
    UT_hash_handle hh;

    // The pool keeps what follows, and clears what stands above.
    struct fr_staging_view_block *blocks; // of all views, in their order
    size_t block_capacity;
    unsigned char *arrays; // counts, displacements and datatypes that MPI reads until completion
    size_t arrays_capacity;
    struct fr_staging_view views[FR_MAX_VIEWS]; // the first `view_count` hold something
};

// Takes an operation from the pool for a call; `args` is copied. Returns NULL when out of memory.
// Freed by fr_request_op_free.
struct fr_request_op *fr_request_op_new(enum fr_fn fn, const fr_word *args);

// Gives back the leases and layouts of an operation, and the operation itself. NULL is accepted.
void fr_request_op_free(struct fr_request_op *op);

// Returns whether MPI works on memory of Fabrail's. What it has received is then copied from there,
// as much as its status says.
bool fr_request_op_is_staged(const struct fr_request_op *op);

// Removes all views, so that others can be added.
void fr_request_op_drop_views(struct fr_request_op *op);

// Adds a view of the buffer at position `arg`. Returns NULL when there are too many. Its blocks are
// added next, by fr_request_op_add_block.
struct fr_staging_view *fr_request_op_add_view(struct fr_request_op *op, unsigned arg);

// Adds a block to the view that was added last. Takes over the caller's reference to the layout in
// any case.
FR_MUST_CHECK enum fr_status fr_request_op_add_block(struct fr_request_op *op,
                                                     struct fr_staging_view_block block);

// Reserves storage inside the operation for later fr_request_op_carve. Everything must be reserved
// in one go, since growing moves what was carved. Returns FR_ERR_NO_MEMORY when out of memory.
FR_MUST_CHECK enum fr_status fr_request_op_reserve(struct fr_request_op *op, size_t bytes);

// Returns `bytes` of storage inside the operation, aligned to 16, or NULL when out of memory. It
// lives until the operation is freed.
void *fr_request_op_carve(struct fr_request_op *op, size_t bytes);

// Copies the inputs of `count` operations to their staging memory, together, and waits.
FR_MUST_CHECK enum fr_status fr_request_copy_in(struct fr_request_op *const *ops, size_t count);

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

// Delivers one completed operation as fr_request_deliver does, and raises its errors. `rc` is what
// MPI has returned. Returns what the application's call returns.
int fr_request_deliver_one(struct fr_request_op *op, void *status, int rc);

// Receives the messages whose RTS have come to the first `count` of these operations, which writes
// each one's `receive` or `failure`.
FR_MUST_CHECK enum fr_status fr_request_receive(struct fr_request_op *const *ops,
                                                struct fr_rndv_incoming *incoming, size_t count);

// Begins to receive the message whose RTS has come to an operation, and waits for none of its
// bytes. The operation keeps it as its `arrival` until it is over. Returns false where memory is
// short: nothing has begun then.
bool fr_request_arrival_begin(struct fr_request_op *op, const struct fr_rndv_incoming *incoming);

// Moves the arrival of an operation on. Returns whether it is over, so that the operation is
// delivered. A failure stays with it.
bool fr_request_arrival_poll(struct fr_request_op *op);

// Waits until the arrival of an operation is over, and makes progress for others meanwhile. Returns
// how it has ended.
enum fr_status fr_request_arrival_finish(struct fr_request_op *op);

// Returns whether a receive has brought an RTS whose message takes as long as the network, or
// longer if its sender does nothing, and is not over. Begins to receive it, or moves it on. Called
// before MPI may complete the request.
bool fr_request_is_arriving(struct fr_request_op *op);

// Returns the view that a receive writes, NULL if there is none.
struct fr_staging_view *fr_request_receive_view(struct fr_request_op *op);

// Returns whether a receive that has completed with this status has brought an RTS, and fills
// `incoming` if so. `status` is NULL if there is none.
bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming);

// Returns whether a receive that has completed with `code` may have been too short for an RTS.
bool fr_request_may_be_cut(struct fr_request_op *op, int code);

// Finds the message whose RTS a receive was too short for. Called when all others of the call have
// been received. Returns false where that is not certain. `status` is NULL if there is none.
bool fr_request_find_cut(struct fr_request_op *op, const void *status,
                         struct fr_rndv_incoming *incoming);

// Whether the application may go on after an error. Receives that are too short for an RTS are
// looked at then. Set by the first call that sets such an error handler.
extern bool fr_request_errors_return;

// Returns whether an RTS that has not been followed yet stands in the memory of a receive, which
// may be another thread's. MPI has matched that RTS then, even if the request is not complete.
// Returns false for memory of the application's that may be gone.
bool fr_request_holds_rts(struct fr_request_op *op, struct fr_rndv_incoming *incoming);

// Reads the beginning of memory that another thread may be writing. A torn read is no RTS.
void fr_request_read_racy(unsigned char data[FR_RNDV_RTS_BYTES], const void *from);

// Marks the RTS that stand in the memory of receives whose requests were freed as received. Writes
// those that it could not mark, of which nothing is known yet, to `incoming`, up to `max` of them.
// Returns how many these are.
size_t fr_request_take_freed(struct fr_rndv_incoming *incoming, size_t max);

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

// Goes on with operations under way that take more than messages. Called where a call may do so,
// whatever it is for. Cheap when there are none. Waits for nobody.
void fr_request_advance_all(void);

// Makes all progress that others may need of this process, in a call of MPI that waits for
// something else. MPI itself makes none when all requests of a list are hidden from it.
void fr_request_progress(void);

// Returns whether such an operation of this communicator is under way.
bool fr_request_advances_on(fr_word comm);

// Returns whether an operation is over but for MPI's own part: what it sends by rendezvous has left
// the application's buffer. Makes progress.
bool fr_request_is_over(struct fr_request_op *op);

// Returns whether an operation is over but for MPI's own part, and makes progress. `copies` counts
// down the copies that it may wait for, as in fr_rndv_send_poll.
bool fr_request_poll(struct fr_request_op *op, unsigned *copies);

// Waits until an operation is over but for MPI's own part, and makes progress for others meanwhile.
// Returns early after an error is logged that the receiving process is gone.
void fr_request_wait_over(struct fr_request_op *op);

// Makes what the operation sends leave the application's buffer at once. Returns false when there
// is no memory for it.
bool fr_request_leave_buffer(struct fr_request_op *op);

// Returns whether a persistent operation that a schedule does still needs the communicator.
bool fr_request_needs_comm(fr_word comm);

// Returns the MPI error code for one of Fabrail's statuses.
int fr_request_error_code(enum fr_status status);

// Raises an MPI error code on a communicator, window or file, or with object_kind 0 as an error
// without one. Returns the code, if the error handler returns.
int fr_request_raise(char object_kind, fr_word object, int code);

// Logs which call's copies have failed, and raises the error on what the operation belongs to.
// Returns the MPI error code, if the error handler returns.
int fr_request_fail(const struct fr_request_op *op, enum fr_status status);

// Fails an operation that is over, as fr_request_fail does. Frees it first, since the error handler
// may not return.
int fr_request_fail_and_free(struct fr_request_op *op, enum fr_status status);

// The number of the application's call that this thread is in. An error handler may leave a call by
// longjmp or an exception. So what an earlier call has claimed and not given back was left.
extern FR_TLS uint64_t fr_request_call;

// The number of the outermost call that this thread may be in. Calls from inside an error handler
// have higher numbers. What calls before it have claimed was left for certain.
extern FR_TLS uint64_t fr_request_outermost;

// Whether calls of this thread may have been left by an error handler.
extern FR_TLS bool fr_request_any_abandoned;

// Notes that the application has made an error handler of its own, by which it may leave a call.
void fr_request_handler_made(void);

// Whether the application may leave a call by an error handler. What another thread has claimed may
// then be in no call any more.
extern _Atomic bool fr_request_has_handler;
static inline bool fr_request_may_be_abandoned(void)
{
    return atomic_load_explicit(&fr_request_has_handler, memory_order_relaxed);
}

// Says whether threads call MPI one at a time at most, which is known when MPI has started. Until
// then they may all call at once. Once `yes` was false it stays so.
void fr_request_set_serial(bool yes);
extern bool fr_request_serial;

// Whether calls come one at a time and no error handler leaves one.
extern bool fr_request_alone;

// Whether a message was matched, to be received later, that may have an RTS and could not be marked
// as taken. An RTS that seems to wait may be that one.
extern _Atomic bool fr_request_any_unmarked;

// Number of operations in the side table that are not plain.
extern _Atomic size_t fr_request_special_count;

// Number of operations in the side table.
extern _Atomic size_t fr_request_tracked_count;

// Number of receives under way that have no operation (posted.h). When both numbers are zero no
// completion call needs a look.
extern _Atomic size_t fr_request_posted_count;
static inline bool fr_request_any_tracked(void)
{
    // Posted receives come first, since one may be becoming an operation meanwhile.
    return atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) != 0 ||
           atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) != 0;
}

// Shows an operation that has no request to threads that look for messages, as claimed by this
// call.
void fr_request_show(struct fr_request_op *op);

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
// calls meanwhile. `within`: the completion call is still on the stack. A call that was left is
// forgotten.
void fr_request_settle(bool within);

enum { FR_REQUEST_SHORT_LIST = 32 }; // a call of up to so many requests takes no memory

// Ties an operation to a window or a file, until a call that synchronises or ends it. Owns `op`
// from here on.
void fr_request_pend(struct fr_request_op *op, fr_word object);

// Number of operations tied to windows and files. It goes down once they have been copied back. At
// zero no synchronising call needs a look.
extern _Atomic size_t fr_request_pending_count;

// The operations that a call which synchronises a window completes, of all threads.
struct fr_request_sync {
    fr_word window;
    bool all; // false: only those towards `peer`
    int peer;
    uint64_t end; // operations with a lower number were begun before the call
};

// Returns whether this synchronisation completes an operation of this window. For the lists of
// module request alone.
bool fr_request_sync_has(const struct fr_request_sync *sync, const struct fr_request_op *op,
                         fr_word window);

// Notes whether an operation with a request fetches data, which must be there when its window has
// been synchronised as well. Called before the operation is in the side table.
void fr_request_follow_window(struct fr_request_op *op);

// Called before the real call that synchronises. Sets `end`. Returns whether there are operations
// to complete, which another thread may be copying back.
bool fr_request_sync_begin(struct fr_request_sync *sync);

// Called after the real call that synchronises, if that has succeeded. Copies back, and waits for
// what other threads are copying. Returns what the application's call returns.
int fr_request_sync_end(const struct fr_request_sync *sync);

// Takes the operation of a file, which one thread may end, out of the list. Returns NULL if there
// is none. The caller owns it.
struct fr_request_op *fr_request_take(fr_word file);

// Finishes complete operations whose request the application has freed. No call of the
// application's completes them, so any call does. It looks at a few incomplete ones at most, so of
// many operations some may be left to later calls.
void fr_request_poll_freed(void);

// Finishes operations whose request was freed, at the end of the job. All are complete then, unless
// the program has messages without a receive. Waits for the others a little, and forgets them.
void fr_request_end_freed(void);

// Returns how often threads have looked at operations whose request was freed.
uint64_t fr_request_freed_looks(void);

// Looks at one operation with a freed request that may bring a message and that nobody has begun to
// look at since `since`. Skips it if another thread has it in hand. Returns false when there is no
// such operation.
bool fr_request_look_at_unseen(uint64_t since);

// Number of operations whose request was freed.
extern _Atomic size_t fr_request_freed_count;
static inline bool fr_request_any_freed(void)
{
    return atomic_load_explicit(&fr_request_freed_count, memory_order_relaxed) != 0;
}

// Adds `count`, which may be negative, to the number of receives into device memory that are
// pending.
void fr_request_expect(int count);

// Updates whether senders have had to wait for this process lately. Called in calls with device
// buffers, in calls that wait, and in all that are looked at since such a sender was noticed.
void fr_request_notice_awaited(void);

// Number of receives into device memory that are pending.
extern _Atomic size_t fr_request_expected;

// Whether senders have had to wait for this process lately.
extern _Atomic bool fr_request_awaited;

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
