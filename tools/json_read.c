// SPDX-License-Identifier: BSD-3-Clause
// Reads JSON by recursive descent, of bounded depth, as RFC 8259 has it.
#include "config.h"

#include "json_read.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 64 };

struct reader {
    const char *at, *end;
    unsigned line, depth;
    const char *fault;
};

static struct fr_json *read_value(struct reader *reader);

static bool fail(struct reader *reader, const char *text)
{
    if (reader->fault == NULL)
        reader->fault = text;
    return false;
}

static char skip_space(struct reader *reader)
{
    for (; reader->at < reader->end && strchr(" \t\r\n", *reader->at) != NULL && *reader->at;
         reader->at++)
        reader->line += *reader->at == '\n';
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool read_hex(struct reader *reader, unsigned *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        if (reader->at >= reader->end || !isxdigit((unsigned char)*reader->at))
            return fail(reader, "\\u needs four hexadecimal digits");
        int digit = *reader->at <= '9' ? *reader->at - '0' : (*reader->at | 0x20) - 'a' + 10;
        *value = *value << 4 | (unsigned)digit;
    }
    return true;
}

static char *put_utf8(char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

// A character beyond the first 65536 is two of these behind each other.
static bool read_unicode(struct reader *reader, char **to)
{
    unsigned code, low;
    if (!read_hex(reader, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (reader->end - reader->at < 6 || reader->at[0] != '\\' || reader->at[1] != 'u')
            return fail(reader, "half of a character");
        reader->at += 2;
        if (!read_hex(reader, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(reader, "half of a character");
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
    } else if (code == 0 || (code >= 0xdc00 && code < 0xe000)) {
        return fail(reader, "a character that is none");
    }
    *to = put_utf8(*to, code);
    return true;
}

static bool read_escape(struct reader *reader, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (reader->at >= reader->end)
        return fail(reader, "the text is cut off");
    char c = *reader->at++;
    const char *found = strchr(names, c);
    if (c == 'u')
        return read_unicode(reader, to);
    if (c == '\0' || found == NULL)
        return fail(reader, "an escape that there is not");
    *(*to)++ = values[found - names];
    return true;
}

// Returns the text, which the caller frees. What it becomes is never longer than what it is.
static char *read_text(struct reader *reader)
{
    reader->at++; // the opening quote
    const char *close = reader->at;
    while (close < reader->end && *close != '"')
        close += *close == '\\' && close + 1 < reader->end ? 2 : 1;
    char *text = malloc((size_t)(close - reader->at) + 4);
    char *to = text;
    if (text == NULL)
        fail(reader, "no memory");
    while (reader->fault == NULL && reader->at < reader->end && *reader->at != '"') {
        unsigned char c = (unsigned char)*reader->at++;
        if (c == '\\')
            (void)read_escape(reader, &to);
        else if (c < 0x20)
            fail(reader, "a control character in a text");
        else
            *to++ = (char)c;
    }
    if (reader->fault == NULL && reader->at >= reader->end)
        fail(reader, "the text is cut off");
    if (reader->fault != NULL) {
        free(text);
        return NULL;
    }
    reader->at++;
    *to = '\0';
    return text;
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

static bool read_number(struct reader *reader, struct fr_json *value)
{
    char text[64];
    size_t length = 0;
    while (reader->at + length < reader->end && length + 1 < sizeof(text) &&
           strchr("+-.eE0123456789", reader->at[length]) != NULL && reader->at[length])
        length++;
    memcpy(text, reader->at, length);
    text[length] = '\0';
    const char *t = text + (text[0] == '-');
    size_t whole = count_digits(t);
    bool good = whole > 0 && (whole == 1 || t[0] != '0');
    t += whole;
    if (good && *t == '.') {
        size_t digits = count_digits(t + 1);
        good = digits > 0;
        t += 1 + digits;
    }
    if (good && (*t == 'e' || *t == 'E')) {
        t += 1 + (t[1] == '+' || t[1] == '-');
        size_t digits = count_digits(t);
        good = digits > 0;
        t += digits;
    }
    if (!good || *t != '\0')
        return fail(reader, "a number that is none");
    value->kind = FR_JSON_NUMBER;
    value->number = strtod(text, NULL); // this program keeps the C locale
    reader->at += length;
    return true;
}

static bool read_word(struct reader *reader, const char *word, enum fr_json_kind kind,
                      double number, struct fr_json *value)
{
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return fail(reader, "a word that is none of true, false and null");
    reader->at += length;
    value->kind = kind;
    value->number = number;
    return true;
}

static bool read_name(struct reader *reader, char **name)
{
    if (skip_space(reader) != '"')
        return fail(reader, reader->at < reader->end ? "a name is missing" : "the end is missing");
    *name = read_text(reader);
    if (*name == NULL)
        return false;
    if (skip_space(reader) != ':')
        return fail(reader, "a colon is missing");
    reader->at++;
    return true;
}

static bool read_members(struct reader *reader, struct fr_json *value, char close)
{
    struct fr_json **last = &value->first;
    value->kind = close == '}' ? FR_JSON_OBJECT : FR_JSON_LIST;
    if (++reader->depth > MOST_DEPTH)
        return fail(reader, "too many brackets in each other");
    reader->at++;
    if (skip_space(reader) == close) {
        reader->at++;
        reader->depth--;
        return true;
    }
    for (;;) {
        char *name = NULL;
        if (close == '}' && !read_name(reader, &name)) {
            free(name);
            return false;
        }
        struct fr_json *member = read_value(reader);
        if (member == NULL) {
            free(name);
            return false;
        }
        member->name = name;
        *last = member;
        last = &member->next;
        char c = skip_space(reader);
        if (c != ',' && c != close)
            return fail(reader, c ? "a comma or a bracket is missing" : "the end is missing");
        reader->at++;
        if (c == close)
            break;
    }
    reader->depth--;
    return true;
}

static bool fill(struct reader *reader, struct fr_json *value)
{
    char c = skip_space(reader);
    switch (c) {
    case '\0':
        return fail(reader, "the end is missing");
    case '{':
        return read_members(reader, value, '}');
    case '[':
        return read_members(reader, value, ']');
    case '"':
        value->kind = FR_JSON_TEXT;
        value->text = read_text(reader);
        return value->text != NULL;
    case 't':
        return read_word(reader, "true", FR_JSON_TRUTH, 1, value);
    case 'f':
        return read_word(reader, "false", FR_JSON_TRUTH, 0, value);
    case 'n':
        return read_word(reader, "null", FR_JSON_NULL, 0, value);
    default:
        return read_number(reader, value);
    }
}

static struct fr_json *read_value(struct reader *reader)
{
    struct fr_json *value = calloc(1, sizeof(*value));
    if (value == NULL) {
        fail(reader, "no memory");
        return NULL;
    }
    if (fill(reader, value))
        return value;
    fr_json_free(value);
    return NULL;
}

struct fr_json *fr_json_read(const char *text, size_t bytes, struct fr_json_fault *fault)
{
    struct reader reader = {.at = text, .end = text + bytes, .line = 1};
    struct fr_json *tree = read_value(&reader);
    (void)skip_space(&reader);
    if (tree != NULL && reader.at < reader.end) {
        fail(&reader, "something follows the end");
        fr_json_free(tree);
        tree = NULL;
    }
    fault->line = reader.line;
    fault->text = reader.fault;
    return tree;
}

void fr_json_free(struct fr_json *tree)
{
    while (tree != NULL) {
        struct fr_json *next = tree->next;
        fr_json_free(tree->first);
        free(tree->name);
        free(tree->text);
        free(tree);
        tree = next;
    }
}

const struct fr_json *fr_json_get(const struct fr_json *tree, const char *name)
{
    if (tree == NULL || tree->kind != FR_JSON_OBJECT)
        return NULL;
    for (const struct fr_json *member = tree->first; member != NULL; member = member->next) {
        if (strcmp(member->name, name) == 0)
            return member;
    }
    return NULL;
}

const char *fr_json_get_text(const struct fr_json *tree, const char *name, const char *otherwise)
{
    const struct fr_json *member = fr_json_get(tree, name);
    return member != NULL && member->kind == FR_JSON_TEXT ? member->text : otherwise;
}

double fr_json_get_number(const struct fr_json *tree, const char *name, double otherwise)
{
    const struct fr_json *member = fr_json_get(tree, name);
    return member != NULL && member->kind == FR_JSON_NUMBER ? member->number : otherwise;
}

bool fr_json_get_truth(const struct fr_json *tree, const char *name, bool otherwise)
{
    const struct fr_json *member = fr_json_get(tree, name);
    return member != NULL && member->kind == FR_JSON_TRUTH ? member->number != 0 : otherwise;
}
