// SPDX-License-Identifier: BSD-3-Clause
// Errors of operations, as the program sees them.
#ifndef FR_FABRAIL_REQUEST_ERRORS_H
#define FR_FABRAIL_REQUEST_ERRORS_H

#include "fabrail/request/op.h"

// Returns the MPI error code for one of Fabrail's statuses.
int fr_request_error_code(enum fr_status status);

// Raises an MPI error code on a communicator, window or file, or with object_kind 0 as an error
// without one. Returns the code, if the error handler returns.
int fr_request_raise(char object_kind, fr_word object, int code);

// Logs which call's copies have failed. Returns the MPI error code, which the caller raises.
int fr_request_tell_failure(const struct fr_request_op *op, enum fr_status status);

// Logs which call's copies have failed, and raises the error on what the operation belongs to.
// Returns the MPI error code, if the error handler returns.
int fr_request_fail(const struct fr_request_op *op, enum fr_status status);

// Fails an operation that is over, as fr_request_fail does. Frees it first, since the error handler
// may not return.
int fr_request_fail_and_free(struct fr_request_op *op, enum fr_status status);

// Says whether the application may go on after an error. Receives that are too short for an RTS are
// looked at then. Set by the first call that sets such an error handler.
extern FR_OWN _Atomic bool fr_request_errors_may_return;
static inline bool fr_request_errors_return(void)
{
    return atomic_load_explicit(&fr_request_errors_may_return, memory_order_relaxed);
}

#endif
