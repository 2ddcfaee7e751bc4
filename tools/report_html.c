// SPDX-License-Identifier: BSD-3-Clause
// Text and numbers in HTML.
#include "config.h"

#include "report.h"

#include <inttypes.h>
#include <stdarg.h>

void fr_html_text(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

struct scale {
    double from;
    double unit;
    const char *suffix;
};

// Three digits are what people compare.
static const char *scaled(double value, const struct scale *scales, char text[32])
{
    while (value < scales->from)
        scales++;
    double shown = value / scales->unit;
    int decimals = scales->unit == 1 || shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2;
    snprintf(text, 32, "%.*f%s", decimals, shown, scales->suffix);
    return text;
}

static const char *grouped(uint64_t value, char text[32])
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

const char *fr_unit_text(enum fr_unit unit, uint64_t value, char text[32])
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

void fr_html_number(FILE *out, enum fr_unit unit, uint64_t value, const char *key, ...)
{
    static const char *const units[] = {"", "B", "ns"};
    char text[32];
    fprintf(out, "<data value=\"%" PRIu64 "\" data-u=\"%s\"", value, units[unit]);
    if (key) {
        va_list arguments;
        va_start(arguments, key);
        fputs(" data-k=\"", out);
        vfprintf(out, key, arguments);
        fputs("\"", out);
        va_end(arguments);
    }
    fprintf(out, ">%s</data>", fr_unit_text(unit, value, text));
}

unsigned fr_permille(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part * 1000 / (double)whole + 0.5) : 0;
}
