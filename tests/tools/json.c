// SPDX-License-Identifier: BSD-3-Clause
// JSON of the command: texts are escaped, and what JSON has no word for is null.
#include "config.h"

#include "../../tools/json_write.h"
#include "../unit/check.h"

#include <stdlib.h>
#include <string.h>

static void check_writing(void)
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
    CHECK(strcmp(text, "{\n"
                       "  \"t\\\"\\u000a\\u0001\": \"\\\\ \\\"x\\\" \\u0009\",\n"
                       "  \"bytes\": \"? \303\251\",\n"
                       "  \"none\": null,\n"
                       "  \"empty\": [],\n"
                       "  \"list\": [\n"
                       "    -9223372036854775808,\n"
                       "    0.125,\n"
                       "    null,\n"
                       "    false\n"
                       "  ]\n"
                       "}\n") == 0);
    free(text);
}

int main(void)
{
    check_writing();
    return check_result();
}
