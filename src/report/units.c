// SPDX-License-Identifier: BSD-3-Clause
// Numbers as people read them.
#include "config.h"

#include "fabrail/report/units.h"

#include <inttypes.h>
#include <stdio.h>

struct scale {
    double from;
    double unit;
    const char *suffix;
};

// Three digits are what people compare.
static const char *scaled(double value, const struct scale *scales, char text[FR_UNIT_TEXT_BYTES])
{
    while (value < scales->from)
        scales++;
    double shown = value / scales->unit;
    int decimals = scales->unit == 1 || shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2;
    snprintf(text, FR_UNIT_TEXT_BYTES, "%.*f%s", decimals, shown, scales->suffix);
    return text;
}

static const char *grouped(uint64_t value, char text[FR_UNIT_TEXT_BYTES])
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

const char *fr_unit_text(enum fr_unit unit, uint64_t value, char text[FR_UNIT_TEXT_BYTES])
{
    static const struct scale bytes[] = {
        {0x1p50, 0x1p50, " PiB"}, {0x1p40, 0x1p40, " TiB"}, {0x1p30, 0x1p30, " GiB"},
        {0x1p20, 0x1p20, " MiB"}, {0x1p10, 0x1p10, " KiB"}, {0, 1, " B"},
    };
    static const struct scale times[] = {
        {3.6e12, 3.6e12, " h"}, {6e10, 6e10, " min"}, {1e9, 1e9, " s"},
        {1e6, 1e6, " ms"},      {1e3, 1e3, " µs"},    {0, 1, " ns"},
    };
    static const struct scale counts[] = {{1e12, 1e12, " T"}, {1e9, 1e9, " G"}, {1e7, 1e6, " M"}};
    switch (unit) {
    case FR_UNIT_BYTES:
        return scaled((double)value, bytes, text);
    case FR_UNIT_NS:
        return value ? scaled((double)value, times, text) : "0";
    default:
        return value < 10000000 ? grouped(value, text) : scaled((double)value, counts, text);
    }
}

unsigned fr_permille(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part * 1000 / (double)whole + 0.5) : 0;
}
