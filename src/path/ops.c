// SPDX-License-Identifier: BSD-3-Clause
// The one operations table.
#include "config.h"

#include "path/stage.h"

const struct fr_path_ops *fr_path_ops(enum fr_policy_path path)
{
    static const struct fr_path_ops *const rows[FR_PATH_COUNT] = {
        [FR_PATH_HOST] = &fr_path_stage_ops,
        [FR_PATH_FABRIC] = &fr_path_stage_ops,
        [FR_PATH_PEER] = &fr_path_stage_ops,
    };
    return rows[path];
}
