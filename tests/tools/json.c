// SPDX-License-Identifier: BSD-3-Clause
// JSON of the command: what it writes is read back the same, what is no JSON is told with its line.
#include "config.h"

#include "../../tools/json_read.h"
#include "../../tools/json_write.h"
#include "../unit/check.h"

#include <stdlib.h>
#include <string.h>

static struct fr_json_fault fault;

static struct fr_json *read(const char *text)
{
    return fr_json_read(text, strlen(text), &fault);
}

static void check_texts(void)
{
    struct fr_json *tree = read("[\"a\\u00e9\\u20ac\\ud83d\\ude00\\n\\\"\\\\\", \"\"]");
    CHECK(tree != NULL && tree->kind == FR_JSON_LIST);
    CHECK(strcmp(tree->first->text, "a\303\251\342\202\254\360\237\230\200\n\"\\") == 0);
    CHECK(tree->first->next->text[0] == '\0' && tree->first->next->next == NULL);
    fr_json_free(tree);
}

static void check_numbers(void)
{
    struct fr_json *tree =
        read(" {\"a\": -0, \"b\": 12.5e-1, \"c\": 9007199254740991,\n \"d\": true} ");
    CHECK(tree != NULL);
    CHECK(fr_json_get_number(tree, "b", 0) == 1.25);
    CHECK(fr_json_get_number(tree, "c", 0) == 9007199254740991.0);
    CHECK(fr_json_get_number(tree, "d", 7) == 7 && fr_json_get_truth(tree, "d", false));
    CHECK(fr_json_get(tree, "e") == NULL && fr_json_get_text(tree, "a", NULL) == NULL);
    CHECK(fr_json_get(tree->first, "a") == NULL);
    fr_json_free(tree);
}

static void check_faults(void)
{
    static const struct {
        const char *text;
        unsigned line;
    } wrong[] = {
        {"", 1},
        {"{", 1},
        {"[1,\n2", 2},
        {"[1,]", 1},
        {"{\"a\" 1}", 1},
        {"{\"a\":}", 1},
        {"[1 2]", 1},
        {"\"abc", 1},
        {"\"\\q\"", 1},
        {"\"\\ud800\"", 1},
        {"\"\\u12\"", 1},
        {"01", 1},
        {"1.", 1},
        {"-", 1},
        {"1e", 1},
        {"tru", 1},
        {"nul", 1},
        {"{}\n\nx", 3},
        {"{1: 2}", 1},
        {"\"\t\"", 1},
        {"\"\\u0000\"", 1},
        {"[\n\n\"\\", 3},
        {"+1", 1},
        {"\"\\udc00\"", 1},
        {"[}", 1},
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(wrong); i++) {
        struct fr_json *tree = read(wrong[i].text);
        if (tree != NULL || fault.text == NULL || fault.line != wrong[i].line)
            fprintf(stderr, "text %zu, line %u\n", i, fault.line);
        CHECK(tree == NULL && fault.text != NULL && fault.line == wrong[i].line);
    }
}

static void check_depth(void)
{
    char text[260];
    for (size_t depth = 1; depth <= 128; depth *= 2) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = '\0';
        struct fr_json *tree = read(text);
        CHECK((tree != NULL) == (depth <= 64));
        fr_json_free(tree);
    }
}

static void check_round_trip(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    struct fr_json_out out = {.file = file};
    fr_json_open(&out, NULL, '{');
    fr_json_text(&out, "t\"\n\001", "\\ \"x\" \t");
    fr_json_text(&out, "bytes", "\351 \303\251");
    fr_json_text(&out, "none", NULL);
    fr_json_open(&out, "empty", '[');
    fr_json_close(&out, ']');
    fr_json_open(&out, "list", '[');
    fr_json_number(&out, NULL, INT64_MIN);
    fr_json_real(&out, NULL, 0.125);
    fr_json_real(&out, NULL, 1.0 / 0.0); // JSON has none
    fr_json_truth(&out, NULL, false);
    fr_json_close(&out, ']');
    fr_json_close(&out, '}');
    fclose(file);
    struct fr_json *tree = fr_json_read(text, bytes, &fault);
    CHECK(tree != NULL);
    CHECK(strcmp(fr_json_get_text(tree, "t\"\n\001", ""), "\\ \"x\" \t") == 0);
    CHECK(strcmp(fr_json_get_text(tree, "bytes", ""), "? \303\251") == 0);
    CHECK(fr_json_get(tree, "none")->kind == FR_JSON_NULL);
    CHECK(fr_json_get(tree, "empty")->first == NULL);
    const struct fr_json *one = fr_json_get(tree, "list")->first;
    CHECK(one->number == -9223372036854775808.0 && one->next->number == 0.125);
    CHECK(one->next->next->kind == FR_JSON_NULL && one->next->next->next->kind == FR_JSON_TRUTH);
    fr_json_free(tree);
    free(text);
}

int main(void)
{
    check_texts();
    check_numbers();
    check_faults();
    check_depth();
    check_round_trip();
    return check_result();
}
