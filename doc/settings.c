// SPDX-License-Identifier: BSD-3-Clause
// Writes the settings part of the manual page or, with --markdown, doc/settings.md, out of the
// table that the library itself reads.
#include "config.h"

#include "fabrail/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Groups of settings, by the first of each. They are in the order of the table.
static const struct {
    const char *first, *title;
} groups[] = {
    {"FABRAIL_DISABLE", "What Fabrail does"},
    {"FABRAIL_STAGING_MAX", "Memory"},
    {"FABRAIL_CLIQUE_MIN", "NVLink and staging: sizes at which something else is better"},
    {"FABRAIL_RAIL", "Rails, all NICs of a process at once"},
    {"FABRAIL_TIMEOUT", "Waiting, and races between a GPU and MPI"},
    {"FABRAIL_REPORT", "Reports and traces"},
};
static size_t next_group;

static void write_manual(const struct fr_core_setting *setting)
{
    printf(".TP\n.B %s\n%s\n.br\n", setting->name, setting->help);
    if (setting->values != NULL)
        printf("Values: %s.\n", setting->values);
    printf("Default: %s.\n", *setting->default_text ? setting->default_text : "empty");
}

// Writes a text into a cell of a table: lines are joined, and roff's names of pages made plain.
static void write_cell(const char *text)
{
    static const char page[] = "\n.BR ";
    for (; *text; text++) {
        if (strncmp(text, page, sizeof(page) - 1) == 0) {
            text += sizeof(page) - 1;
            size_t name = strcspn(text, " ");
            printf(" `%.*s%.*s`", (int)name, text, (int)strcspn(text + name + 1, "\n"),
                   text + name + 1);
            text += strcspn(text, "\n");
            putchar(' ');
        } else if (*text == '\n') {
            putchar(' ');
        } else {
            if (*text == '|')
                putchar('\\');
            putchar(*text);
        }
    }
}

static void write_markdown(const struct fr_core_setting *setting)
{
    if (next_group < FR_ARRAY_LENGTH(groups) &&
        strcmp(setting->name, groups[next_group].first) == 0)
        printf("\n## %s\n\n| name | default | values | meaning |\n| --- | --- | --- | --- |\n",
               groups[next_group++].title);
    printf("| `%s` | %s | ", setting->name,
           *setting->default_text ? setting->default_text : "empty");
    write_cell(setting->values != NULL ? setting->values : "text");
    fputs(" | ", stdout);
    write_cell(setting->help);
    puts(" |");
}

static const char introduction[] =
    "# Settings\n"
    "\n"
    "Environment variables of the ranks, all optional. `fabrail run --set=timeout=60` sets one of "
    "them, and\n"
    "`fabrail info --settings` shows the values of this environment. An unknown name or a bad "
    "value is warned of and\n"
    "never stops a job. Names by which module files say where a package lies, with endings such "
    "as `_ROOT`, `_DIR` and\n"
    "`_VERSION`, are not warned of. Sizes take `K`, `M`, `G` and `T`. The manual page "
    "(`man 7 fabrail`) has the same\n"
    "texts. [understand.md](understand.md) explains paths, rails and tuning.\n"
    "\n"
    "`doc/settings --markdown`, of a build, writes this page.\n";

int main(int argc, char **argv)
{
    bool markdown = argc > 1 && strcmp(argv[1], "--markdown") == 0;
    struct fr_core_setting setting;
    if (markdown)
        fputs(introduction, stdout);
    for (size_t i = 0; fr_core_setting_at(i, &setting); i++)
        (markdown ? write_markdown : write_manual)(&setting);
    if (markdown && next_group < FR_ARRAY_LENGTH(groups)) {
        fprintf(stderr, "no setting %s begins a group\n", groups[next_group].first);
        return EXIT_FAILURE;
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
