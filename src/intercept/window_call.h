// SPDX-License-Identifier: BSD-3-Clause
// Inside of module intercept: what the files about windows over device memory share.
#ifndef FR_INTERCEPT_WINDOW_CALL_H
#define FR_INTERCEPT_WINDOW_CALL_H

#include "fabrail/rma.h"
#include "intercept/intercept_int.h"

// Raises the error of a call on its window, unless there is none. Returns what the call returns.
int fr_intercept_window_result(fr_word win, enum fr_fn fn, enum fr_status status);

// Returns whether a rank is one of the window.
bool fr_intercept_window_has_rank(const struct fr_rma_window *window, int rank);

#endif
