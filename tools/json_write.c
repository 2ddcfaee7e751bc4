// SPDX-License-Identifier: BSD-3-Clause
// Writes JSON, an item a line.
#include "config.h"

#include "json_write.h"

#include "fabrail/core.h"

#include <math.h>

static void put_text(FILE *file, const char *text)
{
    fputc('"', file);
    while (*text != '\0') {
        unsigned char c = (unsigned char)*text;
        unsigned length = fr_core_utf8_length(text);
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else if (length == 0) // names of files may be in any encoding
            fputc('?', file);
        else
            fwrite(text, 1, length, file);
        text += length > 0 ? length : 1;
    }
    fputc('"', file);
}

static void begin_item(struct fr_json_out *out, const char *name)
{
    if (out->depth > 0) {
        fprintf(out->file, "%s\n%*s", out->filled[out->depth] ? "," : "", (int)out->depth * 2, "");
        out->filled[out->depth] = true;
    }
    if (name != NULL) {
        put_text(out->file, name);
        fputs(": ", out->file);
    }
}

void fr_json_open(struct fr_json_out *out, const char *name, char bracket)
{
    begin_item(out, name);
    fputc(bracket, out->file);
    if (out->depth + 1 < FR_JSON_MOST_DEPTH)
        out->depth++;
    out->filled[out->depth] = false;
}

void fr_json_close(struct fr_json_out *out, char bracket)
{
    bool filled = out->filled[out->depth];
    out->depth--;
    if (filled)
        fprintf(out->file, "\n%*s", (int)out->depth * 2, "");
    fputc(bracket, out->file);
    if (out->depth == 0)
        fputc('\n', out->file);
}

void fr_json_text(struct fr_json_out *out, const char *name, const char *value)
{
    begin_item(out, name);
    if (value != NULL)
        put_text(out->file, value);
    else
        fputs("null", out->file);
}

void fr_json_number(struct fr_json_out *out, const char *name, int64_t value)
{
    begin_item(out, name);
    fprintf(out->file, "%jd", (intmax_t)value);
}

void fr_json_real(struct fr_json_out *out, const char *name, double value)
{
    begin_item(out, name);
    if (isfinite(value))
        fprintf(out->file, "%.6g", value);
    else
        fputs("null", out->file);
}

void fr_json_truth(struct fr_json_out *out, const char *name, bool value)
{
    begin_item(out, name);
    fputs(value ? "true" : "false", out->file);
}
