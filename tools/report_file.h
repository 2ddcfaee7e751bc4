// SPDX-License-Identifier: BSD-3-Clause
// Files of JSON that the library or fabrail bench has written, read with json-c. Whatever is wrong
// with one is said in one line that names it.
#ifndef FR_TOOLS_REPORT_FILE_H
#define FR_TOOLS_REPORT_FILE_H

#include "command.h"

#include <json-c/json.h>

// Reads a file of any JSON. The caller puts the object. NULL after a complaint.
json_object *fr_file_parse(const char *name);

// Reads a file of this format ("fabrail-report", "fabrail-trace") and of the version that is known.
// The caller puts the object. NULL after a complaint.
json_object *fr_file_read(const char *name, const char *format);

// A member of an object. Complains, and notes it in *wrong, when it is not there or another type;
// once *wrong is set there are no more complaints. Texts belong to the object; the second form
// takes JSON's null, too, as NULL.
struct fr_file {
    const char *name;
    bool wrong;
};
bool fr_file_has(json_object *object, const char *key); // complains of nothing
json_object *fr_file_member(struct fr_file *file, json_object *object, const char *key,
                            json_type type);
uint64_t fr_file_count(struct fr_file *file, json_object *object, const char *key);
int fr_file_int(struct fr_file *file, json_object *object, const char *key);
const char *fr_file_text(struct fr_file *file, json_object *object, const char *key);
const char *fr_file_text_or_null(struct fr_file *file, json_object *object, const char *key);

#endif
