// SPDX-License-Identifier: BSD-3-Clause
// Figures of a former run, from the JSON that was written then: so plots can be drawn where the
// benchmarks cannot run. Data that do not hold together get a complaint, with the figure's number.
#include "config.h"

#include "figures.h"

#include "report_file.h"

#include <string.h>

enum { MOST_RANKS = 1 << 20 };

// A text member that fits, or where it may be missing, an empty one. Texts are part of names of
// files and of lines of tables, so that control characters have no business there.
static bool take_text(json_object *from, const char *name, bool needed, char *text, size_t room)
{
    json_object *member = NULL;
    *text = '\0';
    if (!json_object_object_get_ex(from, name, &member) ||
        !json_object_is_type(member, json_type_string))
        return !needed;
    const char *found = json_object_get_string(member);
    size_t length = (size_t)json_object_get_string_len(member);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)found[i] < ' ')
            return false;
    }
    snprintf(text, room, "%s", found);
    return (length > 0 || !needed) && length < room;
}

// Returns 0 where there is no such member or it is no number.
static double number_of(json_object *from, const char *name)
{
    json_object *member = NULL;
    json_object_object_get_ex(from, name, &member);
    bool is_number =
        json_object_is_type(member, json_type_int) || json_object_is_type(member, json_type_double);
    return is_number ? json_object_get_double(member) : 0;
}

static bool take_label(json_object *from, struct fr_figure *one)
{
    double bytes = number_of(from, "bytes");
    if (!json_object_object_get_ex(from, "bytes", NULL))
        return take_text(from, "label", true, one->label, sizeof(one->label));
    snprintf(one->label, sizeof(one->label), "%.0f", bytes);
    return bytes >= 1 && bytes < 0x1p62;
}

// Returns NULL, or the member that is missing or no such thing.
static const char *take_figure(json_object *from, struct fr_figure *one)
{
    double ranks = number_of(from, "ranks");
    memset(one, 0, sizeof(*one));
    one->value = number_of(from, "value");
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

static bool take_source(json_object *tree, struct fr_figures_source *source)
{
    json_object *simulated = NULL;
    json_object_object_get_ex(tree, "simulated", &simulated);
    source->simulated = json_object_get_boolean(simulated);
    return take_text(tree, "fabrail", true, source->version, sizeof(source->version)) &&
           take_text(tree, "machine", false, source->machine, sizeof(source->machine)) &&
           take_text(tree, "device", false, source->device, sizeof(source->device)) &&
           take_text(tree, "day", false, source->day, sizeof(source->day)) &&
           take_text(tree, "command", false, source->command, sizeof(source->command));
}

static bool take_tree(const char *name, json_object *tree, struct fr_figures *figures,
                      struct fr_figures_source *source)
{
    json_object *list = NULL;
    json_object_object_get_ex(tree, "figures", &list);
    if (!json_object_is_type(list, json_type_array) || !take_source(tree, source))
        return fr_tool_complain("%s is not what fabrail bench --format=json writes", name);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct fr_figure one;
        const char *wrong = take_figure(json_object_array_get_idx(list, i), &one);
        if (wrong != NULL)
            return fr_tool_complain("%s: figure %zu has no %s", name, i + 1, wrong);
        if (!fr_figures_add(figures, &one))
            return fr_tool_complain("no memory");
    }
    return figures->count > 0 || fr_tool_complain("%s has no figures", name);
}

bool fr_figures_read(const char *name, struct fr_figures *figures, struct fr_figures_source *source)
{
    json_object *tree = fr_file_parse(name);
    bool good = tree != NULL && take_tree(name, tree, figures, source);
    json_object_put(tree);
    return good;
}
