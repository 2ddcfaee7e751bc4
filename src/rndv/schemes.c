// SPDX-License-Identifier: BSD-3-Clause
// The table of schemes, a row for each.
#include "config.h"

#include "rndv/rndv_int.h"

const struct fr_rndv_scheme *fr_rndv_scheme_of(unsigned id)
{
    static const struct fr_rndv_scheme *const rows[FR_SCHEME_COUNT] = {
        [FR_SCHEME_GET] = &fr_rndv_get,
        [FR_SCHEME_STAGED_GET] = &fr_rndv_staged_get,
        [FR_SCHEME_RAIL] = &fr_rndv_rail,
        [FR_SCHEME_PIPELINE] = &fr_rndv_pipeline,
    };
    return id < FR_SCHEME_COUNT ? rows[id] : NULL;
}
