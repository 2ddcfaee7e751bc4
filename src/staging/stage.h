// SPDX-License-Identifier: BSD-3-Clause
// Inside of module staging: the operations of the paths that stage. Path host stages in page-locked
// host memory, paths fabric and peer in device memory.
#ifndef FR_STAGING_STAGE_H
#define FR_STAGING_STAGE_H

#include "fabrail/staging/path.h"

extern const struct fr_staging_ops fr_staging_stage_ops;

#endif
