// SPDX-License-Identifier: BSD-3-Clause
// Writes JSON: commas, indentation and escapes are seen to here.
#ifndef FR_TOOLS_JSON_WRITE_H
#define FR_TOOLS_JSON_WRITE_H

#include "fabrail/core.h"

#include <stdio.h>

enum { FR_JSON_MOST_DEPTH = 16 };

struct fr_json_out {
    FILE *file;
    unsigned depth;
    bool filled[FR_JSON_MOST_DEPTH]; // something stands in the object or list of that depth
};

// `name` is NULL in a list and for the outermost value.
void fr_json_open(struct fr_json_out *out, const char *name, char bracket);
void fr_json_close(struct fr_json_out *out, char bracket);
void fr_json_text(struct fr_json_out *out, const char *name, const char *value); // NULL: null
void fr_json_number(struct fr_json_out *out, const char *name, int64_t value);
void fr_json_real(struct fr_json_out *out, const char *name, double value);
void fr_json_truth(struct fr_json_out *out, const char *name, bool value);

#endif
