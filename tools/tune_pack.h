// SPDX-License-Identifier: BSD-3-Clause
// Messages of short blocks, as fabrail tune measures them.
#ifndef FR_TOOLS_TUNE_PACK_H
#define FR_TOOLS_TUNE_PACK_H

#include "tune_plan.h"

enum { FR_TUNE_READ, FR_TUNE_PACKED }; // the ways

// Returns whether a GPU, by its place in the rig, takes part in a message.
bool fr_tune_pack_has_part(int gpu);

// Does this process's part of one message. All processes call it alike. Returns false when this one
// has failed.
bool fr_tune_pack_work(const struct fr_tune_plan *plan, int way);

#endif
