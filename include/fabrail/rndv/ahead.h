// SPDX-License-Identifier: BSD-3-Clause
// A kernel that stands by for the message of a receive, for calls that wait for that receive alone.
// Calls of MPI come one at a time where these functions are called.
#ifndef FR_FABRAIL_RNDV_AHEAD_H
#define FR_FABRAIL_RNDV_AHEAD_H

#include "fabrail/staging/path.h"

// Launches a kernel that stands by for what a view is about to receive, if nothing but a few bytes
// can come and module policy favours it. The view stays in place until fr_rndv_standby_end.
void fr_rndv_standby_begin(const struct fr_staging_view *view);

// Has the kernel copy data out of the view's staging memory, as fr_staging_view_copy_out does. Does
// nothing where there is none for the view. Returns whether the data have been copied.
bool fr_rndv_standby_put(const struct fr_staging_view *view, size_t limit_bytes);

// Dismisses the kernel, if there is one. It copies nothing from then on.
void fr_rndv_standby_end(void);

#endif
