// SPDX-License-Identifier: BSD-3-Clause
// Copies of views with several blocks, each of a datatype of its own.
#ifndef FR_FABRAIL_STAGING_BLOCKS_H
#define FR_FABRAIL_STAGING_BLOCKS_H

#include "fabrail/staging/path.h"

// Copies all blocks of an open view to its staging memory, or back to the program's, and waits. One
// kernel makes up to FR_PACK_MANY copies between a device's staging memory and data with gaps.
FR_MUST_CHECK enum fr_status fr_staging_view_copy_blocks(const struct fr_staging_view *view,
                                                         enum fr_device_direction direction);

#endif
