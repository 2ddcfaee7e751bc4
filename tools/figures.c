// SPDX-License-Identifier: BSD-3-Clause
// Figures: a line of a program's output in; tables, CSV, JSON and Markdown out.
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

bool fr_figures_add(struct fr_figures *figures, const struct fr_figure *one)
{
    if (figures->count == figures->room) {
        size_t room = figures->room ? 2 * figures->room : 256;
        struct fr_figure *list = realloc(figures->list, room * sizeof(*list));
        if (list == NULL)
            return false;
        figures->list = list;
        figures->room = room;
    }
    figures->list[figures->count++] = *one;
    return true;
}

bool fr_figures_take(struct fr_figures *figures, const char *line, const struct fr_figure *like,
                     const char *column)
{
    struct fr_figure one = *like;
    const char *at = line + 4;
    char *end = NULL;
    if (strncmp(line, "row|", 4) != 0 || !take_field(&at, one.table, sizeof(one.table)) ||
        !take_field(&at, one.label, sizeof(one.label)) ||
        !take_field(&at, one.column, sizeof(one.column)) ||
        !take_field(&at, one.unit, sizeof(one.unit)))
        return false;
    one.value = strtod(at, &end);
    if (end == at || (*end != '\n' && *end != '\0'))
        return false;
    if (column != NULL)
        snprintf(one.column, sizeof(one.column), "%s", column);
    return fr_figures_add(figures, &one);
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

void fr_figures_describe(struct fr_figures_source *source, int argc, char *const *argv)
{
    static struct fr_info_gpus gpus;
    char model[256];
    struct tm when;
    time_t now = time(NULL);
    snprintf(source->version, sizeof(source->version), "%s", PACKAGE_VERSION);
    snprintf(source->command, sizeof(source->command), "fabrail bench");
    for (int i = 1; i < argc; i++) {
        size_t used = strlen(source->command);
        snprintf(source->command + used, sizeof(source->command) - used, " %s", argv[i]);
    }
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

static bool is_of(const struct fr_figure *one, const struct fr_figure *first)
{
    return strcmp(one->test, first->test) == 0 && strcmp(one->mpi, first->mpi) == 0 &&
           one->ranks == first->ranks && strcmp(one->table, first->table) == 0;
}

static void note(const char **names, int *count, int most, const char *name)
{
    for (int i = 0; i < *count; i++) {
        if (strcmp(names[i], name) == 0)
            return;
    }
    if (*count < most)
        names[(*count)++] = name;
}

bool fr_figures_next_table(const struct fr_figures *figures, size_t *at,
                           struct fr_figures_table *table)
{
    memset(table, 0, sizeof(*table));
    for (; *at < figures->count && table->first == NULL; ++*at) {
        bool again = false;
        for (size_t before = 0; before < *at && !again; before++)
            again = is_of(&figures->list[before], &figures->list[*at]);
        table->first = again ? NULL : &figures->list[*at];
    }
    for (size_t i = 0; i < figures->count && table->first != NULL; i++) {
        const struct fr_figure *one = &figures->list[i];
        if (!is_of(one, table->first))
            continue;
        note(table->columns, &table->column_count, FR_FIGURES_MOST_COLUMNS, one->column);
        note(table->labels, &table->label_count, FR_FIGURES_MOST_LABELS, one->label);
    }
    return table->first != NULL;
}

double fr_figures_value(const struct fr_figures *figures, const struct fr_figures_table *table,
                        int label, int column)
{
    for (size_t i = 0; i < figures->count; i++) {
        const struct fr_figure *one = &figures->list[i];
        if (is_of(one, table->first) && strcmp(one->label, table->labels[label]) == 0 &&
            strcmp(one->column, table->columns[column]) == 0)
            return one->value;
    }
    return 0;
}

static int longest(const char *const *texts, int count, int least)
{
    for (int i = 0; i < count; i++)
        least = (int)strlen(texts[i]) > least ? (int)strlen(texts[i]) : least;
    return least;
}

static void write_table(const struct fr_figures *figures, const struct fr_figures_table *table,
                        FILE *out)
{
    const struct fr_figure *first = table->first;
    int room = longest(table->labels, table->label_count, 12);
    fprintf(out, "\n%s%s%s", first->mpi, *first->mpi ? ": " : "", first->table);
    if (first->ranks > 0)
        fprintf(out, ", %d ranks", first->ranks);
    fprintf(out, ", %s\n  %-*s", first->unit, room, "");
    for (int column = 0; column < table->column_count; column++)
        fprintf(out, " %12s", table->columns[column]);
    fputc('\n', out);
    for (int label = 0; label < table->label_count; label++) {
        fprintf(out, "  %-*s", room, table->labels[label]);
        for (int column = 0; column < table->column_count; column++) {
            double value = fr_figures_value(figures, table, label, column);
            if (value > 0)
                fprintf(out, " %12.6g", value);
            else
                fprintf(out, " %12s", "-");
        }
        fputc('\n', out);
    }
}

void fr_figures_write_tables(const struct fr_figures *figures,
                             const struct fr_figures_source *source, FILE *out)
{
    struct fr_figures_table table;
    fprintf(out, "machine: %s\ndevice: %s%s\nmeasured: %s, by Fabrail %s\ncommand: %s\n",
            source->machine, source->device,
            source->simulated ? "; SIMULATED, its figures mean nothing" : "", source->day,
            source->version, source->command);
    for (size_t at = 0; fr_figures_next_table(figures, &at, &table);)
        write_table(figures, &table, out);
}

void fr_figures_write_pairs(const struct fr_figures *figures, const char *test, const char *mpi,
                            FILE *out)
{
    for (size_t i = 0; i < figures->count; i++) {
        const struct fr_figure *a = &figures->list[i];
        if (strcmp(a->test, test) != 0 || strcmp(a->mpi, mpi) != 0 ||
            strcmp(a->column, "without") != 0)
            continue;
        for (size_t k = i + 1; k < figures->count; k++) {
            const struct fr_figure *b = &figures->list[k];
            if (is_of(b, a) && strcmp(b->label, a->label) == 0 && strcmp(b->column, "with") == 0)
                fprintf(out, "  %-36s %10.1f %10.1f %10.1f %8.3f\n", a->label, a->value, b->value,
                        b->value - a->value, b->value / a->value);
        }
    }
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
    fputs("test,mpi,ranks,table,label,column,unit,value\n", out);
    for (size_t i = 0; i < figures->count; i++) {
        const struct fr_figure *one = &figures->list[i];
        put_field(out, one->test, ",");
        put_field(out, one->mpi, ",");
        if (one->ranks > 0)
            fprintf(out, "%d", one->ranks);
        fputc(',', out);
        put_field(out, one->table, ",");
        put_field(out, one->label, ",");
        put_field(out, one->column, ",");
        put_field(out, one->unit, ",");
        fprintf(out, "%.6g\n", one->value);
    }
}

// Returns 0 where the table has no such column.
static double value_of(const struct fr_figures *figures, const struct fr_figures_table *table,
                       int label, const char *column)
{
    for (int i = 0; i < table->column_count; i++) {
        if (strcmp(table->columns[i], column) == 0)
            return fr_figures_value(figures, table, label, i);
    }
    return 0;
}

// The better one of two ways, of which either may be missing: less of a time, more of a rate.
static double limit_of(const struct fr_figures *figures, const struct fr_figures_table *table,
                       int label)
{
    bool is_rate = strstr(table->first->unit, "/s") != NULL;
    double kernels = value_of(figures, table, label, "kernels");
    double engines = value_of(figures, table, label, "copy engines");
    if (kernels == 0 || engines == 0)
        return kernels + engines;
    return (kernels < engines) != is_rate ? kernels : engines;
}

static void put_cell(double value, FILE *out)
{
    if (value > 0)
        fprintf(out, " %.6g |", value);
    else
        fputs(" |", out);
}

static void write_markdown_row(const struct fr_figures *figures,
                               const struct fr_figures_table *table, int label, FILE *out)
{
    const struct fr_figure *first = table->first;
    char *end = NULL, text[FR_BYTES_TEXT];
    size_t bytes = strtoull(table->labels[label], &end, 10);
    fprintf(out, "| %s, %d ranks, %s | %s |", first->table, first->ranks, first->unit,
            *end == '\0' ? fr_core_bytes_text(bytes, text) : table->labels[label]);
    put_cell(value_of(figures, table, label, "Fabrail"), out);
    put_cell(value_of(figures, table, label, "by hand"), out);
    put_cell(value_of(figures, table, label, "NCCL"), out);
    put_cell(limit_of(figures, table, label), out);
    fputc('\n', out);
}

void fr_figures_write_markdown(const struct fr_figures *figures, FILE *out)
{
    struct fr_figures_table table;
    fputs("| workload | size | Fabrail | by hand | NCCL | limit |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          out);
    for (size_t at = 0; fr_figures_next_table(figures, &at, &table);) {
        for (int label = 0; label < table.label_count; label++) {
            if (value_of(figures, &table, label, "Fabrail") > 0)
                write_markdown_row(figures, &table, label, out);
        }
    }
}

static void write_figure(struct fr_json_out *json, const struct fr_figure *one)
{
    char *end = NULL;
    long long bytes = strtoll(one->label, &end, 10);
    fr_json_open(json, NULL, '{');
    fr_json_text(json, "test", one->test);
    fr_json_text(json, "mpi", *one->mpi ? one->mpi : NULL);
    if (one->ranks > 0)
        fr_json_number(json, "ranks", one->ranks);
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
    fr_json_text(&json, "fabrail", source->version);
    fr_json_text(&json, "machine", source->machine);
    fr_json_text(&json, "device", source->device);
    fr_json_truth(&json, "simulated", source->simulated);
    fr_json_text(&json, "day", source->day);
    fr_json_text(&json, "command", source->command);
    fr_json_open(&json, "figures", '[');
    for (size_t i = 0; i < figures->count; i++)
        write_figure(&json, &figures->list[i]);
    fr_json_close(&json, ']');
    fr_json_close(&json, '}');
}
