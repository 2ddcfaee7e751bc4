// SPDX-License-Identifier: BSD-3-Clause
// The path of each buffer of a call.
#ifndef FR_INTERCEPT_BUFFER_PATHS_H
#define FR_INTERCEPT_BUFFER_PATHS_H

#include "fabrail/request/op.h"

enum fr_buffer_outcome {
    FR_BUFFER_UNCHANGED, // MPI gets what the application gave
    FR_BUFFER_STAGED,    // at least one buffer takes a path that needs memory or a rendezvous
    FR_BUFFER_FAILED,    // the call has an MPI error
};

// Chooses the path of every view. With FR_BUFFER_FAILED, *result is MPI's error code.
enum fr_buffer_outcome fr_intercept_choose_paths(struct fr_request_op *op, int *result);

// Returns whether MPI gets any device memory as it is in this function. `fabric`: workspace of
// fabric-allocated memory can be had.
bool fr_intercept_passes_any_memory(enum fr_fn fn, bool fabric);

#endif
