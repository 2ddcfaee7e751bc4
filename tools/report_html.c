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
