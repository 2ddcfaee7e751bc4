// SPDX-License-Identifier: BSD-3-Clause
// One call that completes requests or asks whether they are complete; inside the room request only.
#ifndef FR_REQUEST_SET_H
#define FR_REQUEST_SET_H

#include "request/posted.h"
#include "request/table.h"

// One completion call.
struct fr_request_set {
    enum fr_fn fn;
    enum fr_class class;
    fr_word *args;
    size_t count;   // requests in the call
    size_t tracked; // of them, with an operation of ours
    bool looked_up; // those operations; else there are none, and `ops` is undefined
    bool late;      // they are looked up when MPI has completed them, by `hidden`
    const void *requests;
    fr_word by_value;                  // storage for a request that was passed by value
    struct fr_request_op **ops;        // by request, once looked up
    struct fr_request_posted **posted; // by request, those without an operation; NULL for none
    size_t forgotten;                  // of them
    bool out_of_memory;                // for what one of them has brought
    struct fr_request_op **deferred; // by request, those that the application must not see complete
    char *hidden;                    // a copy of the requests, for calls that must not see all
    char *statuses; // by request, or by position among the completed (some); NULL: ignored
    size_t done_count;
    struct fr_request_op **done; // operations that this call completes
    void **done_statuses;
    int *done_errors;
    size_t *done_requests; // which of the requests each belongs to
    // What the call has to tell an error handler, which may not return: the first such error.
    bool raises;
    char error_kind;
    fr_word error_object;
    int error;

    struct fr_request_op *inline_ops[FR_REQUEST_SHORT_LIST];
    struct fr_request_posted *inline_posted[FR_REQUEST_SHORT_LIST];
    struct fr_request_op *inline_deferred[FR_REQUEST_SHORT_LIST];
    struct fr_request_op *inline_done[FR_REQUEST_SHORT_LIST];
    void *inline_done_statuses[FR_REQUEST_SHORT_LIST];
    int inline_done_errors[FR_REQUEST_SHORT_LIST];
    size_t inline_done_requests[FR_REQUEST_SHORT_LIST];
    char inline_hidden[FR_REQUEST_SHORT_LIST * sizeof(fr_word)];
    char inline_statuses[FR_REQUEST_SHORT_LIST * FR_STATUS_BYTES];
    void *heap;
};

// Takes the call from what the real MPI returned to what the application gets: copies back and
// receives, and forgets the operations that are complete.
int fr_request_set_finish(struct fr_request_set *set, int rc);

// Has the call end with an error that the real MPI has told no error handler of, on a communicator,
// window or file. The handler is called once the call has nothing in hand.
void fr_request_set_raise(struct fr_request_set *set, char kind, fr_word object, int code);

// Calls the real function for what is claimed. Where senders have had to wait for this process, a
// call that waits does so as a row of tests, and its claims are given up in between.
int fr_request_set_call(struct fr_request_set *set);

// Gives back what it has claimed and not completed; and claims it again, false when there is
// nothing any more.
void fr_request_set_unclaim(struct fr_request_set *set);
bool fr_request_set_claim(struct fr_request_set *set);

// Lists the operations that are not complete though MPI may say so. False when there are none.
bool fr_request_set_find_deferred(struct fr_request_set *set);

// NULL where MPI was given none.
void *fr_request_set_status(const struct fr_request_set *set, size_t index);

// Does the call when some of its operations are sends whose bytes are still in the
// application's buffer: MPI takes them for complete, the application must not.
int fr_request_set_defer(struct fr_request_set *set);

#endif
