// SPDX-License-Identifier: BSD-3-Clause
// Figures: a line of a program's output in, CSV and JSON out.
#include "config.h"

#include "figures.h"

#include "info.h"
#include "json_write.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Copies up to the next bar and steps behind it. Returns false when there is none.
static bool take_field(const char **at, char *field, size_t room)
{
    size_t length = strcspn(*at, "|\n");
    snprintf(field, room, "%.*s", (int)length, *at);
    bool more = (*at)[length] == '|';
    *at += length + more;
    return more;
}

static struct fr_figure *add(struct fr_figures *figures)
{
    if (figures->count == figures->room) {
        size_t room = figures->room ? 2 * figures->room : 256;
        struct fr_figure *list = realloc(figures->list, room * sizeof(*list));
        if (list == NULL)
            return NULL;
        figures->list = list;
        figures->room = room;
    }
    return &figures->list[figures->count++];
}

bool fr_figures_take(struct fr_figures *figures, const char *line, const char *test,
                     const char *mpi, const char *column)
{
    struct fr_figure one;
    const char *at = line + 4;
    char *end = NULL;
    memset(&one, 0, sizeof(one));
    if (strncmp(line, "row|", 4) != 0 || !take_field(&at, one.table, sizeof(one.table)) ||
        !take_field(&at, one.label, sizeof(one.label)) ||
        !take_field(&at, one.column, sizeof(one.column)) ||
        !take_field(&at, one.unit, sizeof(one.unit)))
        return false;
    one.value = strtod(at, &end);
    if (end == at || (*end != '\n' && *end != '\0'))
        return false;
    snprintf(one.test, sizeof(one.test), "%s", test);
    snprintf(one.mpi, sizeof(one.mpi), "%s", mpi);
    if (column != NULL)
        snprintf(one.column, sizeof(one.column), "%s", column);
    struct fr_figure *place = add(figures);
    if (place != NULL)
        *place = one;
    return place != NULL;
}

void fr_figures_free(struct fr_figures *figures)
{
    free(figures->list);
    memset(figures, 0, sizeof(*figures));
}

static void read_model(char *model, size_t room)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(model, room, "unknown CPU");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (value == NULL)
            continue;
        value += 1 + strspn(value + 1, " ");
        snprintf(model, room, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file != NULL)
        fclose(file);
}

void fr_figures_describe(struct fr_figures_source *source)
{
    static struct fr_info_gpus gpus;
    char model[256];
    struct tm when;
    time_t now = time(NULL);
    read_model(model, sizeof(model));
    snprintf(source->machine, sizeof(source->machine), "%s, %ld cores", model,
             sysconf(_SC_NPROCESSORS_ONLN));
    fr_info_gpus_find(&gpus, false);
    source->simulated = gpus.simulated;
    if (gpus.count > 0)
        snprintf(source->device, sizeof(source->device), "%d x %s, driver %s", gpus.count,
                 gpus.gpus[0].name, gpus.driver);
    else
        snprintf(source->device, sizeof(source->device), "no GPU");
    if (localtime_r(&now, &when) != NULL)
        strftime(source->day, sizeof(source->day), "%Y-%m-%d", &when);
}

// Quoted where it has to be.
static void put_field(FILE *out, const char *text, const char *end)
{
    if (strpbrk(text, ",\"\n") == NULL) {
        fprintf(out, "%s%s", text, end);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fprintf(out, "\"%s", end);
}

void fr_figures_write_csv(const struct fr_figures *figures, FILE *out)
{
    fputs("test,mpi,table,label,column,unit,value\n", out);
    for (size_t i = 0; i < figures->count; i++) {
        const struct fr_figure *one = &figures->list[i];
        put_field(out, one->test, ",");
        put_field(out, one->mpi, ",");
        put_field(out, one->table, ",");
        put_field(out, one->label, ",");
        put_field(out, one->column, ",");
        put_field(out, one->unit, ",");
        fprintf(out, "%.6g\n", one->value);
    }
}

static void write_figure(struct fr_json_out *json, const struct fr_figure *one)
{
    char *end = NULL;
    long long bytes = strtoll(one->label, &end, 10);
    fr_json_open(json, NULL, '{');
    fr_json_text(json, "test", one->test);
    fr_json_text(json, "mpi", *one->mpi ? one->mpi : NULL);
    fr_json_text(json, "table", one->table);
    if (*end == '\0')
        fr_json_number(json, "bytes", bytes);
    else
        fr_json_text(json, "label", one->label);
    fr_json_text(json, "column", one->column);
    fr_json_text(json, "unit", one->unit);
    fr_json_real(json, "value", one->value);
    fr_json_close(json, '}');
}

void fr_figures_write_json(const struct fr_figures *figures, const struct fr_figures_source *source,
                           FILE *out)
{
    struct fr_json_out json = {.file = out};
    fr_json_open(&json, NULL, '{');
    fr_json_text(&json, "fabrail", PACKAGE_VERSION);
    fr_json_text(&json, "machine", source->machine);
    fr_json_text(&json, "device", source->device);
    fr_json_truth(&json, "simulated", source->simulated);
    fr_json_text(&json, "day", source->day);
    fr_json_open(&json, "figures", '[');
    for (size_t i = 0; i < figures->count; i++)
        write_figure(&json, &figures->list[i]);
    fr_json_close(&json, ']');
    fr_json_close(&json, '}');
}
