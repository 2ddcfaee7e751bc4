// SPDX-License-Identifier: BSD-3-Clause
// The table of schemes, a row for each.
#include "config.h"

#include "rndv/schemes.h"

const struct fr_rndv_scheme *const fr_rndv_schemes[FR_SCHEME_COUNT] = {
#define FR_SCHEME(id, row, name, path, received) [FR_SCHEME_##id] = &fr_rndv_##row,
#include "fabrail/policy/schemes.def"
};
