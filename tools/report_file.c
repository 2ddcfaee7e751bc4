// SPDX-License-Identifier: BSD-3-Clause
// JSON files of the library, by json-c.
#include "config.h"

#include "report_file.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { KNOWN_VERSION = 1, DEPTH = 32, PART_BYTES = 1 << 16 };

static const size_t most_bytes = (size_t)2 << 30;

// JSON that is read part by part, so that a file which is none costs no more than its first part.
struct reading {
    const char *name;
    json_tokener *tokener;
    json_object *object; // once `is_whole`
    bool is_whole;
    size_t length; // that was read
};

static bool complain_of_byte(const struct reading *reading, const char *why, size_t at)
{
    return fr_tool_complain("%s is no JSON: %s at byte %zu", reading->name, why, at);
}

static bool take_part(struct reading *reading, const char *part, size_t length)
{
    if (length > most_bytes - reading->length)
        return fr_tool_complain("%s has more than 2 GiB, which is too much", reading->name);
    const size_t before = reading->length;
    reading->length += length;
    if (reading->is_whole) {
        size_t spaces = 0;
        while (spaces < length && strchr(" \t\r\n", part[spaces]) && part[spaces])
            spaces++;
        return spaces == length ||
               complain_of_byte(reading, "more behind its end", before + spaces);
    }
    reading->object = json_tokener_parse_ex(reading->tokener, part, (int)length);
    const enum json_tokener_error error = json_tokener_get_error(reading->tokener);
    reading->is_whole = error == json_tokener_success;
    return reading->is_whole || error == json_tokener_continue ||
           complain_of_byte(reading, json_tokener_error_desc(error),
                            before + json_tokener_get_parse_end(reading->tokener));
}

// Returns how many bytes at the end of a part are its last character, unless that is ASCII. The
// parser wants characters as a whole.
static size_t last_character(const char *part, size_t length)
{
    size_t bytes = 0;
    while (bytes < length && bytes < 3 && (part[length - bytes - 1] & 0xc0) == 0x80)
        bytes++;
    return bytes < length && (part[length - bytes - 1] & 0xc0) == 0xc0 ? bytes + 1 : bytes;
}

static bool take_all(struct reading *reading, FILE *in)
{
    char part[PART_BYTES];
    size_t length, kept = 0;
    while ((length = fread(part + kept, 1, sizeof(part) - kept, in)) > 0) {
        length += kept;
        kept = last_character(part, length);
        if (!take_part(reading, part, length - kept))
            return false;
        memmove(part, part + length - kept, kept);
    }
    if (ferror(in))
        return fr_tool_complain("%s cannot be read: %s", reading->name, strerror(errno));
    if (kept > 0 && !take_part(reading, part, kept))
        return false;
    if (reading->length == 0)
        return fr_tool_complain("%s is empty", reading->name);
    if (!reading->is_whole)
        return fr_tool_complain("%s is cut off: its JSON goes on behind its end", reading->name);
    return reading->object || fr_tool_complain("%s has nothing but JSON's null", reading->name);
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
    struct reading reading = {.name = name};
    FILE *in = fopen(name, "r");
    if (!in) {
        (void)fr_tool_complain("%s cannot be read: %s", name, strerror(errno));
        return NULL;
    }
    reading.tokener = json_tokener_new_ex(DEPTH);
    bool done = reading.tokener || fr_tool_complain("%s cannot be read: out of memory", name);
    if (done) {
        json_tokener_set_flags(reading.tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        done = take_all(&reading, in);
        json_tokener_free(reading.tokener);
    }
    fclose(in);
    if (done)
        return reading.object;
    json_object_put(reading.object);
    return NULL;
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
