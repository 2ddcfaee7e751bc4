// SPDX-License-Identifier: BSD-3-Clause
// The operations of the paths that stage: host through pinned host memory, fabric and peer through
// device memory.
#ifndef FR_PATH_STAGE_H
#define FR_PATH_STAGE_H

#include "path/path.h"

extern const struct fr_path_ops fr_path_stage_ops;

#endif
