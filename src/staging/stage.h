// SPDX-License-Identifier: BSD-3-Clause
// The operations of the paths that stage: host through pinned host memory, fabric and peer through
// device memory.
#ifndef FR_STAGING_STAGE_H
#define FR_STAGING_STAGE_H

#include "fabrail/staging/path.h"

extern const struct fr_staging_ops fr_staging_stage_ops;

#endif
