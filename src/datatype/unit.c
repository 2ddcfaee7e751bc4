// SPDX-License-Identifier: BSD-3-Clause
// The unit of a datatype: a number of packed bytes at each multiple of which a message of its
// elements may be cut without cutting a predefined datatype.
#include "config.h"

#include "datatype/datatype_int.h"

// A larger unit would be of no use, so none is looked for.
enum { UNIT_MAX = 1 << 20 };

// Unit of a structure whose members do not stand at multiples of their units: the whole structure.
#define WHOLE SIZE_MAX

static size_t greatest_divisor(size_t a, size_t b)
{
    while (b > 0) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void fr_datatype_unit_add(struct fr_datatype_decoded *decoded, size_t offset, size_t unit_bytes)
{
    size_t unit = decoded->unit_bytes;
    if (unit_bytes == 0 || unit == WHOLE)
        return;
    if (unit == 0)
        unit = unit_bytes;
    bool fits = offset % unit_bytes == 0 && unit <= UNIT_MAX && unit_bytes <= UNIT_MAX;
    decoded->unit_bytes = fits ? unit / greatest_divisor(unit, unit_bytes) * unit_bytes : WHOLE;
}

void fr_datatype_unit_close(struct fr_datatype_decoded *decoded)
{
    size_t bytes = decoded->list.bytes;
    if (decoded->unit_bytes == WHOLE ||
        (decoded->unit_bytes > 0 && bytes % decoded->unit_bytes != 0))
        decoded->unit_bytes = bytes;
}
