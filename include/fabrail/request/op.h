// SPDX-License-Identifier: BSD-3-Clause
// An operation: one MPI call with a buffer that is staged or goes by rendezvous, and its views.
#ifndef FR_FABRAIL_REQUEST_OP_H
#define FR_FABRAIL_REQUEST_OP_H

#include "fabrail/abi.h"
#include "fabrail/core/hash.h"
#include "fabrail/staging/path.h"

struct fr_rndv_send;

enum {
    FR_MAX_VIEWS = 3,
    FR_STATUS_BYTES = 64, // the largest status of all families has 32
    FR_OP_LINE_BYTES = 64 // of a cache
};

// State of data that several threads may copy back to the application. They are a partition of a
// partitioned receive, or what a one-sided operation with a request has fetched.
enum { FR_COPY_AWAITED, FR_COPY_BEGUN, FR_COPY_DONE };

// One MPI call with at least one staged buffer. Operations are pooled, and their arrays keep their
// capacity, so a warm operation allocates nothing. The thread in the call owns it, then the side
// table.
struct fr_request_op {
    enum fr_fn fn;
    size_t block_count;
    size_t arrays_used;
    // 'c', 'w', 'f': whose error handler hears of errors; 0: that of errors without an object; 'r':
    // none, they are returned.
    char object_kind;
    fr_word object;
    enum fr_fn counted_as; // the function that the report names
    unsigned comm_label;   // as fr_report_call_label returns it, in the call that made this
    fr_word element_type;  // a datatype that was made for the call; 0: none
    uint64_t comm_name;    // of the communicator that a COMM_MAKE call makes
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
    bool replaces;   // its receive buffer is also what it sends
    uint64_t looked; // number of the last look, if its request was freed

    // Looks for messages pass over many operations. They read little more than the lines of the
    // cache that begin here, and the first one of the views.
    _Alignas(FR_OP_LINE_BYTES) fr_word key; // request, window or file that the operation is tied to
    struct fr_request_op *next;             // with the same key, or in a list
    unsigned view_count;
    enum fr_status failure; // of copies or of the receive, for the call that completes it
    bool persistent;
    bool prefix_out; // only as much as the status counts is copied back
    bool copies;     // the delivery under way copies back to the application
    bool counts;     // as active, in the side table
    bool plain;      // a receive into memory that MPI was given, started once
    bool expects;    // a receive into device memory, started once
    // Threads that look for messages read these, too.
    _Atomic bool active;    // started and not yet completed
    _Atomic bool delivered; // copied back or taken before the request was completed
    struct {
        bool held;      // claimed by a call that completes requests or looks for messages
        bool early;     // to receive early, which does not take long
        bool abandoned; // its request is over, and another one may have its value
        bool again;     // an error handler has left the call that had claimed it before
        const void *thread;
        uint64_t call; // number of that thread's call
    } claim;
    struct {
        bool takes_rts;    // it receives, and an RTS may come
        bool has_message;  // an RTS's message was received, which the status must show
        bool has_ended;    // MPI has said that it is complete, or failed
        size_t turn;       // of the looks in which MPI is not asked whether it is; 0 at first
        uint64_t bytes;    // size of that message
        size_t room;       // size of the buffer
        bool lacks_status; // the application has given no status to the call that completes it
        // Set when MPI says that the receive was too short for what came. That may be an RTS, whose
        // message is then to be found.
        enum { FR_CUT_NOT, FR_CUT_SOUGHT, FR_CUT_OVER } cut;
        const char *staged_because; // reason for the report, if it is counted when complete
    } receive;
    struct fr_rndv_send *send;            // a send by rendezvous that is not over; else NULL
    struct fr_request_arrival *arrival;   // its message that is being received; else NULL
    struct fr_request_schedule *schedule; // its parts, if it is not one call of MPI; else NULL

    // The pool clears what stands above, and keeps what follows.
    _Alignas(FR_OP_LINE_BYTES) UT_hash_handle hh; // outside of the side table in no table
    _Alignas(FR_OP_LINE_BYTES) struct fr_staging_view
        views[FR_MAX_VIEWS];              // the first `view_count` hold something
    fr_word args[FR_MAX_ARGS];            // the application's, later what the real MPI is given
    struct fr_staging_view_block *blocks; // of all views, in their order
    size_t block_capacity;
    unsigned char *arrays; // counts, displacements and datatypes that MPI reads until completion
    size_t arrays_capacity;
};

// Takes an operation from the pool for a call; `args` is copied. Returns NULL when out of memory.
// Freed by fr_request_op_free.
struct fr_request_op *fr_request_op_new(enum fr_fn fn, const fr_word *args);

// Gives back the leases and layouts of an operation, and the operation itself. NULL is accepted.
void fr_request_op_free(struct fr_request_op *op);

// Returns whether MPI works on memory of Fabrail's. Received data are then copied from there, as
// much as the status says.
bool fr_request_op_is_staged(const struct fr_request_op *op);

// Removes all views, so that others can be added.
void fr_request_op_drop_views(struct fr_request_op *op);

// Adds a view of the buffer at position `arg`, with room for `most_blocks` blocks, which are added
// next. Returns FR_ERR_LIMIT when there are too many views, FR_ERR_NO_MEMORY when out of memory.
FR_MUST_CHECK enum fr_status fr_request_op_add_view(struct fr_request_op *op, unsigned arg,
                                                    size_t most_blocks);

// Adds a block to the view that was added last and has room for it. Takes over the caller's
// reference to the layout.
static inline void fr_request_op_add_block(struct fr_request_op *op,
                                           const struct fr_staging_view_block *block)
{
    op->blocks[op->block_count++] = *block;
    op->views[op->view_count - 1].block_count++;
}

// Reserves storage inside the operation for later fr_request_op_carve. Everything must be reserved
// in one go, since growing moves what was carved. Returns FR_ERR_NO_MEMORY when out of memory.
FR_MUST_CHECK enum fr_status fr_request_op_reserve(struct fr_request_op *op, size_t bytes);

// Returns `bytes` of storage inside the operation, aligned to 16, or NULL when out of memory. It
// lives until the operation is freed.
void *fr_request_op_carve(struct fr_request_op *op, size_t bytes);

// Returns `bytes` of storage inside an operation of which nothing has been carved, or NULL when out
// of memory. It lives until the next use of the functions above.
void *fr_request_op_scratch(struct fr_request_op *op, size_t bytes);

#endif
