// SPDX-License-Identifier: BSD-3-Clause
// The manual page's part on the subcommands and the completion of bash, out of the one table.
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

static void put_names(FILE *out, const struct fr_tool_command *command)
{
    for (const struct fr_tool_option *o = command->options; o->name != NULL; o++)
        fprintf(out, "--%s%s ", o->name, o->argument != NULL ? "=" : "");
    fputs("--help --version", out);
}

// What may follow an option's equals sign, one row of a case.
static void put_values(FILE *out, const struct fr_tool_command *command,
                       const struct fr_tool_option *option)
{
    fprintf(out, "    %s:--%s) ", command->name, option->name);
    if (strcmp(option->values, FR_TOOL_FILES) == 0)
        fputs("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\"))", out);
    else if (strcmp(option->values, FR_TOOL_FOLDERS) == 0)
        fputs("compopt -o filenames; COMPREPLY=($(compgen -d -- \"$current\"))", out);
    else
        fprintf(out, "COMPREPLY=($(compgen -W '%s' -- \"$current\"))", option->values);
    fputs("; return ;;\n", out);
}

void fr_tool_write_completion(FILE *out, const struct fr_tool_command *commands)
{
    fputs("# Completion of fabrail(1) for bash, made of the command's own tables.\n"
          "_fabrail()\n"
          "{\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-} option= i\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        COMPREPLY=($(compgen -W '",
          out);
    for (const struct fr_tool_command *c = commands; c->name != NULL; c++)
        fprintf(out, "%s ", c->name);
    fputs("--help --version' -- \"$current\"))\n"
          "        return\n"
          "    fi\n"
          "    # Behind -- the words are another command's.\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        if [ \"${COMP_WORDS[i]}\" = -- ]; then\n"
          "            if declare -F _command_offset >/dev/null; then\n"
          "                _command_offset $((i + 1))\n"
          "            fi\n"
          "            return\n"
          "        fi\n"
          "    done\n"
          "    # The equals sign is a word of its own to bash.\n"
          "    if [ \"$current\" = = ]; then\n"
          "        option=${COMP_WORDS[COMP_CWORD - 1]} current=\n"
          "    elif [ \"${COMP_WORDS[COMP_CWORD - 1]}\" = = ]; then\n"
          "        option=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    case $command:$option in\n",
          out);
    for (const struct fr_tool_command *c = commands; c->name != NULL; c++) {
        for (const struct fr_tool_option *o = c->options; o->name != NULL; o++) {
            if (o->values != NULL)
                put_values(out, c, o);
        }
    }
    fputs("    *:--*) return ;;\n"
          "    esac\n"
          "    if [[ $current != -* ]]; then\n"
          "        compopt -o filenames\n"
          "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          out);
    for (const struct fr_tool_command *c = commands; c->name != NULL; c++) {
        fprintf(out, "    %s) COMPREPLY=($(compgen -W '", c->name);
        put_names(out, c);
        fputs("' -- \"$current\")) ;;\n", out);
    }
    fputs("    esac\n"
          "    [[ ${COMPREPLY-} != *= ]] || compopt -o nospace\n"
          "}\n"
          "complete -F _fabrail fabrail\n",
          out);
}
