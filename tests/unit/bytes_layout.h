// SPDX-License-Identifier: BSD-3-Clause
// The layout of bytes without gaps, for tests that need no other datatype.
#ifndef FR_TESTS_UNIT_BYTES_LAYOUT_H
#define FR_TESTS_UNIT_BYTES_LAYOUT_H

#include "fabrail/datatype.h"

static const struct fr_layout bytes_layout = {
    .size_bytes = 1,
    .extent = 1,
    .true_extent = 1,
    .contiguous = true,
    .packable = true,
    .unit_bytes = 1,
    .exact = true,
};

#endif
