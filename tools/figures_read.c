// SPDX-License-Identifier: BSD-3-Clause
// Figures of a former run, from the JSON that was written then: so plots can be drawn where the
// benchmarks cannot run. What does not hold together is complained of, with the figure's number.
#include "config.h"

#include "figures.h"

#include "command.h"
#include "fabrail/core/files.h"
#include "json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 26, MOST_RANKS = 1 << 20 };

// A text member that fits, or where it may be missing, an empty one. Texts are part of names of
// files and of lines of tables, so that control characters have no business there.
static bool take_text(const struct fr_json *from, const char *name, bool needed, char *text,
                      size_t room)
{
    const char *found = fr_json_get_text(from, name, NULL);
    if (found == NULL) {
        *text = '\0';
        return !needed;
    }
    for (const char *c = found; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ')
            return false;
    }
    snprintf(text, room, "%s", found);
    return (*found != '\0' || !needed) && strlen(found) < room;
}

static bool take_label(const struct fr_json *from, struct fr_figure *one)
{
    double bytes = fr_json_get_number(from, "bytes", 0);
    if (fr_json_get(from, "bytes") == NULL)
        return take_text(from, "label", true, one->label, sizeof(one->label));
    snprintf(one->label, sizeof(one->label), "%.0f", bytes);
    return bytes >= 1 && bytes < 0x1p62;
}

// Returns NULL, or the member that is missing or no such thing.
static const char *take_figure(const struct fr_json *from, struct fr_figure *one)
{
    double ranks = fr_json_get_number(from, "ranks", 0);
    memset(one, 0, sizeof(*one));
    one->value = fr_json_get_number(from, "value", 0);
    if (!take_text(from, "test", true, one->test, sizeof(one->test)))
        return "test";
    if (!take_text(from, "mpi", false, one->mpi, sizeof(one->mpi)))
        return "mpi";
    if (!(ranks >= 0 && ranks <= MOST_RANKS))
        return "ranks";
    one->ranks = (int)ranks;
    if (!take_text(from, "table", true, one->table, sizeof(one->table)))
        return "table";
    if (!take_label(from, one))
        return "bytes or label";
    if (!take_text(from, "column", true, one->column, sizeof(one->column)))
        return "column";
    if (!take_text(from, "unit", true, one->unit, sizeof(one->unit)))
        return "unit";
    bool good = one->value >= FR_FIGURES_LEAST && one->value <= FR_FIGURES_MOST;
    return good ? NULL : "value above 0";
}

static bool take_source(const struct fr_json *tree, struct fr_figures_source *source)
{
    source->simulated = fr_json_get_truth(tree, "simulated", false);
    return take_text(tree, "fabrail", true, source->version, sizeof(source->version)) &&
           take_text(tree, "machine", false, source->machine, sizeof(source->machine)) &&
           take_text(tree, "device", false, source->device, sizeof(source->device)) &&
           take_text(tree, "day", false, source->day, sizeof(source->day)) &&
           take_text(tree, "command", false, source->command, sizeof(source->command));
}

static bool take_tree(const char *name, const struct fr_json *tree, struct fr_figures *figures,
                      struct fr_figures_source *source)
{
    const struct fr_json *list = fr_json_get(tree, "figures");
    if (list == NULL || list->kind != FR_JSON_LIST || !take_source(tree, source))
        return fr_tool_complain("%s is not what fabrail bench --format=json writes", name);
    size_t number = 1;
    for (const struct fr_json *item = list->first; item != NULL; item = item->next, number++) {
        struct fr_figure one;
        const char *wrong = take_figure(item, &one);
        if (wrong != NULL)
            return fr_tool_complain("%s: figure %zu has no %s", name, number, wrong);
        if (!fr_figures_add(figures, &one))
            return fr_tool_complain("no memory");
    }
    return figures->count > 0 || fr_tool_complain("%s has no figures", name);
}

bool fr_figures_read(const char *name, struct fr_figures *figures, struct fr_figures_source *source)
{
    struct fr_json_fault fault;
    char *text = NULL;
    size_t bytes = 0;
    if (fr_core_file_read(name, MOST_BYTES, &text, &bytes) != FR_OK)
        return fr_tool_complain("%s cannot be read: %s", name, strerror(errno));
    struct fr_json *tree = fr_json_read(text, bytes, &fault);
    free(text);
    if (tree == NULL)
        return fr_tool_complain("%s is no JSON of fabrail bench: line %u: %s", name, fault.line,
                                fault.text);
    bool good = take_tree(name, tree, figures, source);
    fr_json_free(tree);
    return good;
}
