// SPDX-License-Identifier: BSD-3-Clause
// Module request: operations whose buffers are staged, from their first copy to their last, and the
// side table that finds them again by the real MPI request, window or file they are tied to.
#ifndef FR_FABRAIL_REQUEST_H
#define FR_FABRAIL_REQUEST_H

#include "fabrail/abi.h"
#include "fabrail/core/hash.h"
#include "fabrail/rndv.h"
#include "fabrail/staging/path.h"

enum { FR_MAX_VIEWS = 3, FR_STATUS_BYTES = 64 }; // the largest status of all families is 32 bytes

// How far what several threads may copy back to the application is on its way: a partition of a
// partitioned receive, or what a one-sided operation with a request has fetched.
enum { FR_COPY_AWAITED, FR_COPY_BEGUN, FR_COPY_DONE };

// One MPI call with at least one staged buffer. Pooled: the arrays keep their capacity, so a warm
// operation allocates nothing. Owned by the thread in the call, then by the side table.
struct fr_request_op {
    enum fr_fn fn;
    fr_word args[FR_MAX_ARGS]; // first the application's, then what the real MPI is given
    struct fr_staging_view views[FR_MAX_VIEWS];
    unsigned view_count;
    struct fr_staging_view_block *blocks; // of all views, in their order
    size_t block_count;
    size_t block_capacity;
    unsigned char *arrays; // counts, displacements and datatypes that MPI reads until completion
    size_t arrays_used;
    size_t arrays_capacity;
    char object_kind; // 'c', 'w' or 'f': whose error handler hears of errors; 0 for none
    fr_word object;
    enum fr_fn counted_as; // the function that the report names
    fr_word element_type;  // a datatype that was made for the call, 0 for none
    uint64_t comm_name;    // of the communicator that is being made, of class COMM_MAKE

    bool persistent;
    bool replaces;   // it sends what it also receives into
    bool prefix_out; // only what the status counts is copied back
    bool copies;     // in the delivery that is going on, back to the application
    // Read by threads that look for messages, too.
    _Atomic bool active;    // started and not yet completed
    _Atomic bool delivered; // copied back before the request was completed
    enum fr_status failure; // of copies or of the receive, for the call that completes it

    struct fr_rndv_send *send;            // by rendezvous, not over; else NULL
    struct fr_request_schedule *schedule; // what does it, if not one call of MPI
    struct {
        bool takes_rts;   // it receives, and may be brought an RTS
        bool has_message; // received in place of an RTS, which the status has to be told of
        uint64_t bytes;   // the size of that message
        size_t room;      // and of the buffer
        // MPI says that it was too short for what came: an RTS perhaps, whose message is to be
        // found.
        enum { FR_CUT_NOT, FR_CUT_SOUGHT, FR_CUT_OVER } cut;
        const char *staged_because; // of one that is counted when it is complete
    } receive;
    struct {
        size_t count; // of partitions, 0 for an operation without
        size_t elements;
        _Atomic unsigned char *arrived; // FR_COPY_* of each
    } parts;
    struct {
        int target;      // rank
        uint64_t number; // of one that a window completes, in the order of calls
        bool fetches;    // with a request, so that either that or the window completes it
        _Atomic unsigned char fetched; // FR_COPY_*
    } rma;

    fr_word key;  // request, window or file that the operation is tied to
    bool plain;   // it receives into memory that MPI was given, once
    bool expects; // it receives into device memory, once
    struct {      // by a call that completes requests or looks for messages
        bool held;
        bool early; // to receive early, which does not take long
        bool left;  // its request is over, and another one may have its value
        const void *thread;
        uint64_t call; // of that thread
    } claim;
    uint64_t looked;            // number of the last look, of one whose request was freed
    struct fr_request_op *next; // same key, or a list
    UT_hash_handle hh;
};

// Takes an operation from the pool for a call; `args` is copied. NULL when out of memory.
struct fr_request_op *fr_request_op_new(enum fr_fn fn, const fr_word *args);

// Gives back leases, layouts and the operation. NULL is accepted.
void fr_request_op_free(struct fr_request_op *op);

// Whether MPI works on memory of Fabrail's: what it has received is then copied from there, and how
// much that is its status says.
bool fr_request_op_is_staged(const struct fr_request_op *op);

// Takes all views away, so that others can be added.
void fr_request_op_drop_views(struct fr_request_op *op);

// Adds a view of the buffer at position `arg`; NULL when there are too many. Its blocks follow by
// fr_request_op_add_block, which takes over the caller's reference to the layout in any case.
struct fr_staging_view *fr_request_op_add_view(struct fr_request_op *op, unsigned arg);
FR_MUST_CHECK enum fr_status fr_request_op_add_block(struct fr_request_op *op,
                                                     struct fr_staging_view_block block);

// Storage inside the operation that lives until it is freed, aligned to 16; NULL when out of
// memory. Reserve everything in one go first: growing moves what was handed out.
FR_MUST_CHECK enum fr_status fr_request_op_reserve(struct fr_request_op *op, size_t bytes);
void *fr_request_op_carve(struct fr_request_op *op, size_t bytes);

// Copies the inputs of `count` operations together and waits.
FR_MUST_CHECK enum fr_status fr_request_copy_in(struct fr_request_op *const *ops, size_t count);

// Copies the outputs of completed operations together and waits. statuses[i] is the MPI status of
// ops[i] (NULL: all of it), errors[i] its MPI return code: nothing is copied back after an error
// other than truncation, nor for a cancelled receive. Where an RTS has come, its message is
// received; the status then tells of that, and errors[i] becomes MPI_ERR_TRUNCATE if it is longer
// than the buffer. Returns the first failure; each operation's own stays with it.
FR_MUST_CHECK enum fr_status fr_request_deliver(struct fr_request_op *const *ops,
                                                void *const *statuses, int *errors, size_t count);

// Copies back what a one-sided operation has fetched, whose copy the caller has begun and whose
// request another thread may be completing: when this returns it may be gone.
FR_MUST_CHECK enum fr_status fr_request_fetch(struct fr_request_op *op);

// True for the one thread that shall copy something back. Another one waits until that is done,
// since it is about to say that the data are there.
bool fr_request_begin_copy(_Atomic unsigned char *state);

// The same for one, with errors raised. `rc` is what MPI has returned; returns what the
// application's call returns.
int fr_request_deliver_one(struct fr_request_op *op, void *status, int rc);

// Receives the messages whose RTS have come to the first `count` of these operations. Sets received
// and received_bytes, or failure.
FR_MUST_CHECK enum fr_status fr_request_receive(struct fr_request_op *const *ops,
                                                struct fr_rndv_incoming *incoming, size_t count);

// The view that a receive writes, NULL if there is none.
struct fr_staging_view *fr_request_receive_view(struct fr_request_op *op);

// Whether a receive that has completed with this status, NULL if it says nothing, has brought an
// RTS.
bool fr_request_has_rts(struct fr_request_op *op, const void *status,
                        struct fr_rndv_incoming *incoming);

// Whether what a receive has completed with `code` may be an RTS that it was too short for, and
// which message that is: to be asked when all others of the call have been received. False where
// that is not certain. `status` is NULL if there is none.
bool fr_request_may_be_cut(struct fr_request_op *op, int code);
bool fr_request_find_cut(struct fr_request_op *op, const void *status,
                         struct fr_rndv_incoming *incoming);

// Whether the application may go on after an error: then receives are looked at that are too short
// for an RTS. Set by the first call that sets such an error handler.
extern bool fr_request_errors_return;

// Whether an RTS that has not been followed yet stands in the memory of a receive, which may be
// another thread's: then MPI has matched it, whether its request is complete or not. False for
// memory of the application's that may be gone.
bool fr_request_holds_rts(struct fr_request_op *op, struct fr_rndv_incoming *incoming);

// Reads the beginning of memory that another thread may be writing. What is torn is no RTS.
void fr_request_read_racy(unsigned char data[FR_RNDV_RTS_BYTES], const void *from);

// Marks the RTS of receives whose requests were freed, as fr_request_table_take_incoming does.
size_t fr_request_take_freed(struct fr_rndv_incoming *incoming, size_t max);

// Whether MPI's code for a receive says that it has brought something: also of a message, or its
// RTS, that is longer than the buffer.
bool fr_request_has_come(int code);

// Tells a status that a message has this many bytes.
void fr_request_set_size(void *status, uint64_t bytes);

// Marks what has come for receives that nobody is completing as received, for the sake of probes.
void fr_request_mark_received(void);

// Receives what has come for receives that nobody is completing just now: called while this process
// waits, since the senders may do so as well. Cheap when there is nothing. In a call that `waits`
// anyway, also what takes as long as the network. Returns how many messages it has received.
size_t fr_request_receive_early(bool waits);

// Whether an operation is over but for MPI's own part: what it sends by rendezvous has left the
// application's buffer. Makes progress; the second form as fr_rndv_send_poll. The third one waits.
bool fr_request_is_over(struct fr_request_op *op);
bool fr_request_poll(struct fr_request_op *op, unsigned *copies);
void fr_request_wait_over(struct fr_request_op *op);

// Makes what the operation sends leave the application's buffer at once. False when there is no
// memory for it.
bool fr_request_leave_buffer(struct fr_request_op *op);

// Whether a persistent operation that is done by a schedule belongs to the communicator.
bool fr_request_needs_comm(fr_word comm);

// MPI error code for a status of ours, and the same raised on the operation's communicator, window
// or file. Returns the code, if the error handler returns.
int fr_request_error_code(enum fr_status status);
int fr_request_raise(char object_kind, fr_word object, int code);

// Tells which call's copies have failed, and raises the error on what the operation belongs to.
int fr_request_fail(const struct fr_request_op *op, enum fr_status status);

// The same of an operation that is over: frees it first, since an error handler may not return.
int fr_request_fail_and_free(struct fr_request_op *op, enum fr_status status);

// The number of the application's call that this thread is in. What an earlier one has claimed and
// not given back was left by an error handler that did not return (longjmp, an exception).
extern FR_TLS uint64_t fr_request_call;

// The number of the outermost call that this thread may be in: what it calls from an error handler
// has higher numbers. What those before it have claimed was left for certain.
extern FR_TLS uint64_t fr_request_outermost;

// Whether calls of this thread may have been left.
extern FR_TLS bool fr_request_any_left;

// Says that the application has made an error handler of its own, by which it may leave a call.
void fr_request_handler_made(void);

// Whether it may: then what another thread has claimed may be in no call any more.
extern _Atomic bool fr_request_has_handler;
static inline bool fr_request_may_be_left(void)
{
    return atomic_load_explicit(&fr_request_has_handler, memory_order_relaxed);
}

// Says that threads call MPI one at a time at most, which is known when MPI has started; or that
// they may all call, as before that. The latter stays.
void fr_request_set_serial(bool yes);
extern bool fr_request_serial;

// Whether calls come one at a time, and none is left by an error handler.
extern bool fr_request_alone;

// Whether a message has been matched, to be received later, that may have an RTS and could not be
// marked as taken: what waits, as far as is known, may be that one.
extern _Atomic bool fr_request_any_unmarked;

// Operations in the side table that are not plain.
extern _Atomic size_t fr_request_special_count;

// Number of operations in the side table, and of receives that have none (posted.h): zero means
// that no completion call needs a look.
extern _Atomic size_t fr_request_tracked_count;
extern _Atomic size_t fr_request_posted_count;
static inline bool fr_request_any_tracked(void)
{
    // In this order, since a receive without an operation may be getting one meanwhile.
    return atomic_load_explicit(&fr_request_posted_count, memory_order_acquire) != 0 ||
           atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) != 0;
}

// Shows an operation that has no request to those who look for messages, as claimed by this call;
// and hides it from them again.
void fr_request_show(struct fr_request_op *op);
void fr_request_hide(struct fr_request_op *op);

// Ties a started operation to its request, or finishes it at once when it is complete already. Owns
// `op` from here on. Returns what the application's call returns.
int fr_request_track(struct fr_request_op *op, void *request);

// Handlers of the functions that complete, start, free or ask for requests. Each returns false when
// no request of the call is tracked: then the real function is to be called as it is.
bool fr_request_complete(enum fr_fn fn, fr_word *args, int *result);
bool fr_request_free(fr_word *args, int *result);
bool fr_request_start(enum fr_fn fn, fr_word *args, int *result);
bool fr_request_pready(enum fr_fn fn, fr_word *args, int *result);
bool fr_request_parrived(enum fr_fn fn, fr_word *args, int *result);

// Goes before anything that the application does in a function of its own which MPI calls while it
// completes requests: these are claimed now, before others have their values. `within` says whether
// the completion call is still on the stack; one that was left is forgotten.
void fr_request_settle(bool within);

enum { FR_REQUEST_SHORT_LIST = 32 }; // so many requests of a call take no memory

// Operations tied to a window or a file until a synchronising call. The count goes down when they
// have been copied back: zero means that no such call needs a look.
void fr_request_pend(struct fr_request_op *op, fr_word object);
extern _Atomic size_t fr_request_pending_count;

// What a call that synchronises a window completes: operations of all threads.
struct fr_request_sync {
    fr_word window;
    bool all; // else those towards `peer`
    int peer;
    uint64_t end; // of the numbers of what was begun before the call
};

// Whether a window's synchronisation completes the operation, which is of module request's own
// lists.
bool fr_request_sync_has(const struct fr_request_sync *sync, const struct fr_request_op *op,
                         fr_word window);

// Says that an operation with a request fetches something, which is there when its window has been
// synchronised, too. To be called before it is in the side table.
void fr_request_follow_window(struct fr_request_op *op);

// Goes before the real call. Sets `end`, and returns whether there are such operations, which may
// be another thread's to copy back.
bool fr_request_sync_begin(struct fr_request_sync *sync);

// Goes after it, if it has succeeded: copies back, and waits for what other threads are copying.
// Returns what the application's call returns.
int fr_request_sync_end(const struct fr_request_sync *sync);

// Takes the operation of a file, which one thread may end; NULL if there is none.
struct fr_request_op *fr_request_take(fr_word file);

// Finishes operations whose request the application has freed and that are complete: no call of the
// application's will, so that any does. Of many, a few calls in turn may have to, since a few that
// are not are all that one looks at. And the same at the end, when they are all complete in a
// program that has no message without a receive: waits for them a little, and forgets the others.
void fr_request_poll_freed(void);
void fr_request_end_freed(void);

// How often threads have looked at such operations; and looks at one that may bring a message and
// nobody has begun to look at since then, unless another thread has it in hand. The latter returns
// false when there is none.
uint64_t fr_request_freed_looks(void);
bool fr_request_look_at_unseen(uint64_t since);
extern _Atomic size_t fr_request_freed_count;
static inline bool fr_request_any_freed(void)
{
    return atomic_load_explicit(&fr_request_freed_count, memory_order_relaxed) != 0;
}

// Adds to the number of receives into device memory that are pending.
void fr_request_expect(int count);

// Notices whether senders have had to wait for this process lately: for calls with device buffers,
// those that wait, and all that are looked at since such a sender was noticed.
void fr_request_notice_awaited(void);

// Whether senders may depend on this process while it waits for something else: receives into
// device memory are pending, or any are and senders have had to wait lately. A call that waits then
// receives what has come.
extern _Atomic size_t fr_request_expected;
extern _Atomic bool fr_request_awaited;
static inline bool fr_request_is_awaited(void)
{
    return atomic_load_explicit(&fr_request_expected, memory_order_relaxed) != 0 ||
           (atomic_load_explicit(&fr_request_awaited, memory_order_relaxed) &&
            fr_request_any_tracked());
}

// Calls the real function. One that waits, of one message or of requests that are not tracked, does
// so as a row of tests where senders may depend on this process.
int fr_request_call_real(enum fr_fn fn, const fr_word *args);

// Goes before a collective, in which nothing is received: receives what comes of senders that have
// had to wait, until nothing has come for a moment.
void fr_request_receive_coming(void);

// How many reasons there are to look at each call: operations whose request was freed, receives
// into device memory, and senders that have had to wait.
extern _Atomic size_t fr_request_reasons;
static inline bool fr_request_looks_at_all(void)
{
    return atomic_load_explicit(&fr_request_reasons, memory_order_relaxed) != 0;
}

#endif
