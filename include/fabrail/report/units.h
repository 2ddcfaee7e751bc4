// SPDX-License-Identifier: BSD-3-Clause
// Numbers as people read them.
#ifndef FR_FABRAIL_REPORT_UNITS_H
#define FR_FABRAIL_REPORT_UNITS_H

#include <stdint.h>

enum fr_unit { FR_UNIT_COUNT, FR_UNIT_BYTES, FR_UNIT_NS };
enum { FR_UNIT_TEXT_BYTES = 32 };

// Writes a number with three digits and its unit. Returns `text`, or static text.
const char *fr_unit_text(enum fr_unit unit, uint64_t value, char text[FR_UNIT_TEXT_BYTES]);

// Returns tenths of a percent of `part` in `whole`, 0 of nothing.
unsigned fr_permille(uint64_t part, uint64_t whole);

#endif
