// SPDX-License-Identifier: BSD-3-Clause
// Reads JSON into a tree. Text that is none, or is cut off, is told apart with its line.
#ifndef FR_TOOLS_JSON_READ_H
#define FR_TOOLS_JSON_READ_H

#include "fabrail/core.h"

enum fr_json_kind {
    FR_JSON_NULL,
    FR_JSON_TRUTH,
    FR_JSON_NUMBER,
    FR_JSON_TEXT,
    FR_JSON_LIST,
    FR_JSON_OBJECT,
};

struct fr_json {
    enum fr_json_kind kind;
    char *name;                   // in an object, else NULL
    char *text;                   // of a text; UTF-8, ended by a 0
    double number;                // of a number; 1 for true
    struct fr_json *first, *next; // of a list or object; beside this one
};

struct fr_json_fault {
    unsigned line; // from 1
    const char *text;
};

// Returns the tree, which the caller frees, or NULL with `fault` set.
struct fr_json *fr_json_read(const char *text, size_t bytes, struct fr_json_fault *fault);
void fr_json_free(struct fr_json *tree);

// The member of an object, NULL when there is none or `tree` is none.
const struct fr_json *fr_json_get(const struct fr_json *tree, const char *name);

// The same as a value of its kind; the default where there is no such member of that kind.
const char *fr_json_get_text(const struct fr_json *tree, const char *name, const char *otherwise);
double fr_json_get_number(const struct fr_json *tree, const char *name, double otherwise);
bool fr_json_get_truth(const struct fr_json *tree, const char *name, bool otherwise);

#endif
