// SPDX-License-Identifier: BSD-3-Clause
// The row of path host.
#ifndef FR_PATH_HOST_H
#define FR_PATH_HOST_H

#include "path/path.h"

extern const struct fr_path_ops fr_path_host_ops;

#endif
