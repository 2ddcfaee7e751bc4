// SPDX-License-Identifier: BSD-3-Clause
// The table of staging operations, a row for each path.
#include "config.h"

#include "staging/stage.h"

const struct fr_staging_ops *fr_staging_ops(enum fr_policy_path path)
{
    static const struct fr_staging_ops *const rows[FR_PATH_COUNT] = {
        [FR_PATH_HOST] = &fr_staging_stage_ops,
        [FR_PATH_FABRIC] = &fr_staging_stage_ops,
        [FR_PATH_PEER] = &fr_staging_stage_ops,
    };
    return rows[path];
}
