// SPDX-License-Identifier: BSD-3-Clause
// JSON files of the library, by json-c.
#include "config.h"

#include "report_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN_VERSION = 1, DEPTH = 32 };

static char *read_text(const char *name, size_t *length)
{
    size_t room = 1 << 16, part;
    FILE *in = fopen(name, "r");
    if (!in) {
        (void)fr_tool_complain("%s cannot be read: %s", name, strerror(errno));
        return NULL;
    }
    char *text = malloc(room);
    *length = 0;
    while (text && (part = fread(text + *length, 1, room - *length, in)) > 0) {
        *length += part;
        char *more = *length < room ? text : realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    bool failed = ferror(in);
    int error = errno;
    fclose(in);
    if (text && !failed)
        return text;
    (void)fr_tool_complain("%s cannot be read: %s", name, strerror(failed ? error : ENOMEM));
    free(text);
    return NULL;
}

static json_object *parse(const char *name, const char *text, size_t length)
{
    bool fits = length > 0 && length <= INT_MAX;
    json_tokener *tokener = fits ? json_tokener_new_ex(DEPTH) : NULL;
    if (!tokener) {
        (void)fr_tool_complain("%s %s", name,
                               length == 0 ? "is empty"
                               : fits      ? "cannot be read: out of memory"
                                           : "has 2 GiB and more, which is too much");
        return NULL;
    }
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    json_object *object = json_tokener_parse_ex(tokener, text, (int)length);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t at = json_tokener_get_parse_end(tokener);
    if (error == json_tokener_continue)
        (void)fr_tool_complain("%s is cut off: its JSON goes on behind its end", name);
    else if (error != json_tokener_success)
        (void)fr_tool_complain("%s is no JSON: %s at byte %zu", name,
                               json_tokener_error_desc(error), at);
    else if (!object)
        (void)fr_tool_complain("%s has nothing but JSON's null", name);
    json_tokener_free(tokener);
    return object;
}

static const char *format_of(json_object *object)
{
    json_object *format = NULL, *other = NULL;
    if (!json_object_is_type(object, json_type_object))
        return "";
    if (json_object_object_get_ex(object, "otherData", &other)) // where traces have it
        json_object_object_get_ex(other, "format", &format);
    else
        json_object_object_get_ex(object, "format", &format);
    return json_object_is_type(format, json_type_string) ? json_object_get_string(format) : "";
}

static bool is_known(const char *name, json_object *object, const char *format)
{
    json_object *version = NULL, *other = NULL;
    const char *found = format_of(object);
    if (strcmp(found, format) != 0) {
        if (strcmp(found, "fabrail-trace") == 0)
            return fr_tool_complain("%s is a trace; fabrail report --trace=FILE merges traces",
                                    name);
        if (strcmp(found, "fabrail-report") == 0)
            return fr_tool_complain("%s is a report, and no trace", name);
        return fr_tool_complain("%s is JSON, but not of Fabrail's reports and traces", name);
    }
    if (!json_object_object_get_ex(object, "otherData", &other))
        other = object;
    json_object_object_get_ex(other, "version", &version);
    if (json_object_is_type(version, json_type_int) &&
        json_object_get_int64(version) == KNOWN_VERSION)
        return true;
    return fr_tool_complain("%s is of version %s, and this is Fabrail %s, which reads version %d",
                            name, version ? json_object_to_json_string(version) : "unknown",
                            PACKAGE_VERSION, KNOWN_VERSION);
}

json_object *fr_file_parse(const char *name)
{
    size_t length;
    char *text = read_text(name, &length);
    json_object *object = text ? parse(name, text, length) : NULL;
    free(text);
    return object;
}

json_object *fr_file_read(const char *name, const char *format)
{
    json_object *object = fr_file_parse(name);
    if (object && !is_known(name, object, format)) {
        json_object_put(object);
        return NULL;
    }
    return object;
}

static json_object *complain(struct fr_file *file, const char *key)
{
    if (!file->wrong)
        (void)fr_tool_complain("%s is no whole report: \"%s\" is missing or not what it should be",
                               file->name, key);
    file->wrong = true;
    return NULL;
}

bool fr_file_has(json_object *object, const char *key)
{
    json_object *member;
    return json_object_is_type(object, json_type_object) &&
           json_object_object_get_ex(object, key, &member);
}

json_object *fr_file_member(struct fr_file *file, json_object *object, const char *key,
                            json_type type)
{
    json_object *member = NULL;
    if (!json_object_is_type(object, json_type_object) ||
        !json_object_object_get_ex(object, key, &member) || !json_object_is_type(member, type))
        return complain(file, key);
    return member;
}

uint64_t fr_file_count(struct fr_file *file, json_object *object, const char *key)
{
    json_object *member = fr_file_member(file, object, key, json_type_int);
    if (member && json_object_get_int64(member) < 0)
        complain(file, key);
    return member ? json_object_get_uint64(member) : 0;
}

int fr_file_int(struct fr_file *file, json_object *object, const char *key)
{
    json_object *member = fr_file_member(file, object, key, json_type_int);
    int64_t value = member ? json_object_get_int64(member) : 0;
    if (value < INT_MIN || value > INT_MAX)
        complain(file, key);
    return (int)value;
}

const char *fr_file_text(struct fr_file *file, json_object *object, const char *key)
{
    json_object *member = fr_file_member(file, object, key, json_type_string);
    return member ? json_object_get_string(member) : NULL;
}

const char *fr_file_text_or_null(struct fr_file *file, json_object *object, const char *key)
{
    json_object *member = NULL;
    if (json_object_is_type(object, json_type_object) &&
        json_object_object_get_ex(object, key, &member) && !member)
        return NULL;
    return fr_file_text(file, object, key);
}
