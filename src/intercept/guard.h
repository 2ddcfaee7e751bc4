// SPDX-License-Identifier: BSD-3-Clause
// The guard against races between the application's work on GPUs and MPI (FABRAIL_SYNC). It comes
// before the handlers of calls with device buffers, whatever path these take, and before those that
// complete requests.
#ifndef FR_INTERCEPT_GUARD_H
#define FR_INTERCEPT_GUARD_H

#include "intercept/entry.h"

// An operation whose buffers are looked at: its call, the views of its buffers, and what the
// buffers held when MPI began to read them.
struct fr_guard_op {
    struct fr_request_op *op;
    uintptr_t site;              // where the application called MPI
    uint64_t held[FR_MAX_VIEWS]; // hashes
    bool is_known[FR_MAX_VIEWS]; // which of them are
    fr_word request;             // the key of the table, where the operation has a request
    bool starts;                 // the request is persistent
    int first;                   // a view that the guard looks at, -1 for none
    bool is_active;              // MPI may be reading the buffers
    UT_hash_handle hh;
};

void fr_guard_op_free(struct fr_guard_op *guarded);

// Finds out which memory the buffers are. Returns whether the driver knows any of it.
bool fr_guard_measure(struct fr_guard_op *guarded);

// Returns whether the guard looks at a view: at device memory, and at host memory that the driver
// has page-locked, which devices write as well.
static inline bool fr_guard_minds(const struct fr_staging_view *view)
{
    return fr_device_owns(&view->range) || view->range.kind == FR_KIND_PINNED;
}

// Waits for the application's work before a call is made for the operation. Under
// FABRAIL_SYNC=check, reports buffers that change meanwhile, and keeps hashes of those that MPI
// only reads.
void fr_guard_begin(struct fr_guard_op *guarded);

// Waits for the application's work, and looks at nothing. Several threads may do so at once.
void fr_guard_wait(const struct fr_guard_op *guarded);

// Reports buffers that the application has changed since fr_guard_begin. Called when the operation
// is complete.
void fr_guard_end(struct fr_guard_op *guarded);

// Ties an operation to its request. Owns it from here on.
void fr_guard_keep(struct fr_guard_op *guarded, fr_word request);

// Calls the handler that the entry of a function had, or the real function where that leaves the
// call to it. Returns MPI's code.
int fr_guard_call(enum fr_fn fn, fr_word *args);

// Calls it so for an operation whose request the call makes. Frees the operation if the call's
// error handler does not return.
int fr_guard_call_with(struct fr_guard_op *guarded, enum fr_fn fn, fr_word *args);

// Handlers that stand before those of functions which complete, start or free requests, or make
// partitions ready.
fr_intercept_handler fr_guard_complete, fr_guard_start, fr_guard_free, fr_guard_pready;

#endif
