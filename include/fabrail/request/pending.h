// SPDX-License-Identifier: BSD-3-Clause
// Operations that are tied to a window or a file in place of a request.
#ifndef FR_FABRAIL_REQUEST_PENDING_H
#define FR_FABRAIL_REQUEST_PENDING_H

#include "fabrail/request.h"

// Ties an operation to a window or a file, until a call that synchronises or ends it. Owns `op`
// from here on.
void fr_request_pend(struct fr_request_op *op, fr_word object);

// Number of operations tied to windows and files. It goes down once they have been copied back. At
// zero no synchronising call needs a look.
extern FR_OWN _Atomic size_t fr_request_pending_count;

// The operations that a call which synchronises a window completes, of all threads.
struct fr_request_sync {
    fr_word window;
    bool all; // false: only those towards `peer`
    int peer;
    uint64_t end; // operations with a lower number were begun before the call
};

// Called before the real call that synchronises. Sets `end`. Returns whether there are operations
// to complete, which another thread may be copying back.
bool fr_request_sync_begin(struct fr_request_sync *sync);

// Finds the next rank that such operations access, above *target, and writes it there. Returns
// false if there is none.
bool fr_request_sync_next(const struct fr_request_sync *sync, int *target);

// Called after the real call that synchronises, if that has succeeded. Copies back, and waits for
// what other threads are copying. Returns what the application's call returns.
int fr_request_sync_end(const struct fr_request_sync *sync);

// Takes the operation of a file, which one thread may end, out of the list. Returns NULL if there
// is none. The caller owns it.
struct fr_request_op *fr_request_take(fr_word file);

#endif
