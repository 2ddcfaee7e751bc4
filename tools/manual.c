// SPDX-License-Identifier: BSD-3-Clause
// The manual page's part on the subcommands, out of the one table.
#include "config.h"

#include "command.h"

#include <ctype.h>
#include <string.h>

// Text as roff takes it: a dash that stands for itself, no line that begins as a request does.
static void put_text(FILE *out, const char *text)
{
    bool begins = true;
    for (; *text != '\0'; text++) {
        if (begins && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        begins = *text == '\n';
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

static void put_option(FILE *out, const char *name, int code, const char *argument,
                       const char *help)
{
    fputs(".TP\n", out);
    if (code < FR_TOOL_NO_LETTER)
        fprintf(out, "\\fB\\-%c\\fR, ", code);
    fputs("\\fB\\-\\-", out);
    put_text(out, name);
    fputs("\\fR", out);
    if (argument != NULL)
        fprintf(out, "=\\fI%s\\fR", argument);
    fputc('\n', out);
    fputc(toupper((unsigned char)*help), out);
    put_text(out, help + 1);
    fputs(".\n", out);
}

void fr_tool_write_manual(FILE *out, const struct fr_tool_command *commands)
{
    for (const struct fr_tool_command *c = commands; c->name != NULL; c++) {
        fprintf(out, ".SS \"fabrail %s [\\fIOPTION\\fB...]%s", c->name, *c->operands ? " " : "");
        put_text(out, c->operands);
        fputs("\"\n", out);
        put_text(out, c->about);
        fputc('\n', out);
        for (const struct fr_tool_option *o = c->options; o->name != NULL; o++)
            put_option(out, o->name, o->code, o->argument, o->help);
    }
}
