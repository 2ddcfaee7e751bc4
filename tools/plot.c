// SPDX-License-Identifier: BSD-3-Clause
// Plots of figures as SVG: lines over sizes on two logarithmic axes, or bars. Each file stands by
// itself and follows the reader's light or dark scheme.
#include "config.h"

#include "figures.h"

#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 860, HEIGHT = 460, LEFT = 80, RIGHT = 190, TOP = 60, BOTTOM = 60 };
enum { MOST_COLUMNS = 8, MOST_LABELS = 64, BAR = 16 };

// One table of one MPI.
struct chart {
    const struct fr_figures *figures;
    const struct fr_figure *first;
    const char *columns[MOST_COLUMNS];
    const char *labels[MOST_LABELS];
    int column_count, label_count;
    double least_x, most_x, least_y, most_y;
};

// Told apart by who sees few colours, too.
static const char *const colours[MOST_COLUMNS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                  "#e69f00", "#56b4e9", "#999933", "#882255"};

static bool belongs(const struct fr_figure *one, const struct fr_figure *first)
{
    return strcmp(one->test, first->test) == 0 && strcmp(one->mpi, first->mpi) == 0 &&
           strcmp(one->table, first->table) == 0;
}

static int find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    return -1;
}

static bool is_size(const char *label, double *bytes)
{
    char *end = NULL;
    *bytes = strtod(label, &end);
    return end != label && *end == '\0' && *bytes > 0;
}

// Collects what the chart shows. Returns whether its labels are sizes.
static bool survey(struct chart *chart)
{
    bool sizes = true;
    chart->least_x = chart->least_y = HUGE_VAL;
    for (size_t i = 0; i < chart->figures->count; i++) {
        const struct fr_figure *one = &chart->figures->list[i];
        double bytes;
        if (!belongs(one, chart->first))
            continue;
        if (find(chart->columns, chart->column_count, one->column) < 0 &&
            chart->column_count < MOST_COLUMNS)
            chart->columns[chart->column_count++] = one->column;
        if (find(chart->labels, chart->label_count, one->label) < 0 &&
            chart->label_count < MOST_LABELS)
            chart->labels[chart->label_count++] = one->label;
        if (is_size(one->label, &bytes)) {
            chart->least_x = fmin(chart->least_x, bytes);
            chart->most_x = fmax(chart->most_x, bytes);
        } else {
            sizes = false;
        }
        chart->least_y = fmin(chart->least_y, one->value);
        chart->most_y = fmax(chart->most_y, one->value);
    }
    return sizes;
}

static void put_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
    }
}

static void begin(FILE *out, const struct chart *chart, const struct fr_figures_source *source,
                  int height)
{
    const struct fr_figure *first = chart->first;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n<title>",
            WIDTH, height);
    put_text(out, first->table);
    fputs("</title>\n<style>svg{background:#fff;color:#222}text{fill:currentColor}"
          ".grid{stroke:currentColor;stroke-opacity:.15}"
          "@media(prefers-color-scheme:dark){svg{background:#15181c;color:#dde1e6}}</style>\n",
          out);
    fprintf(out, "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\">", LEFT);
    put_text(out, first->table);
    fprintf(out, ", %s</text>\n<text x=\"%d\" y=\"42\">", first->unit, LEFT);
    if (*first->mpi) {
        put_text(out, first->mpi);
        fputs("; ", out);
    }
    put_text(out, source->simulated ? "SIMULATED device, figures mean nothing" : source->device);
    fprintf(out, "; Fabrail %s, %s</text>\n", PACKAGE_VERSION, source->day);
}

static double x_of(const struct chart *chart, double bytes)
{
    double span = log2(chart->most_x / chart->least_x);
    double part = span > 0 ? log2(bytes / chart->least_x) / span : 0.5;
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct chart *chart, double value)
{
    double low = floor(log10(chart->least_y)), high = ceil(log10(chart->most_y));
    double part = high > low ? (log10(value) - low) / (high - low) : 0.5;
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *out, const struct chart *chart)
{
    double low = floor(log10(chart->least_y)), high = ceil(log10(chart->most_y));
    for (double power = low; power <= high; power++) {
        double y = y_of(chart, pow(10, power));
        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, pow(10, power));
    }
    double steps = log2(chart->most_x / chart->least_x);
    int each = (int)ceil(steps / 12); // as many as have room
    for (int step = 0; step <= steps; step += each > 0 ? each : 1) {
        char size[FR_BYTES_TEXT];
        double bytes = chart->least_x * exp2(step), x = x_of(chart, bytes);
        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%s</text>\n",
                x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18,
                fr_core_bytes_text((size_t)bytes, size));
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">bytes</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 40);
}

static void draw_line(FILE *out, const struct chart *chart, int column)
{
    const char *command = "M";
    fprintf(out, "<g stroke=\"%s\" fill=\"none\" stroke-width=\"2\"><path d=\"", colours[column]);
    for (int dots = 0; dots < 2; dots++) {
        for (size_t i = 0; i < chart->figures->count; i++) {
            const struct fr_figure *one = &chart->figures->list[i];
            double bytes;
            if (!belongs(one, chart->first) || strcmp(one->column, chart->columns[column]) != 0 ||
                !is_size(one->label, &bytes))
                continue;
            double x = x_of(chart, bytes), y = y_of(chart, one->value);
            if (dots)
                fprintf(out,
                        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s: %.4g</title>"
                        "</circle>",
                        x, y, one->label, one->value);
            else
                fprintf(out, "%s%.1f %.1f", command, x, y);
            command = "L";
        }
        if (!dots)
            fputs("\"/>", out);
    }
    double y = TOP + 12 + column * 22;
    fprintf(out, "<path d=\"M%d %.1fh22\"/></g><text x=\"%d\" y=\"%.1f\">", WIDTH - RIGHT + 16, y,
            WIDTH - RIGHT + 44, y + 4);
    put_text(out, chart->columns[column]);
    fputs("</text>\n", out);
}

static void draw_lines(FILE *out, const struct chart *chart, const struct fr_figures_source *source)
{
    begin(out, chart, source, HEIGHT);
    draw_axes(out, chart);
    for (int column = 0; column < chart->column_count; column++)
        draw_line(out, chart, column);
}

static void draw_bars(FILE *out, const struct chart *chart, const struct fr_figures_source *source)
{
    enum { LABELS = 260, ROOM = WIDTH - LABELS - 90 };
    int group = chart->column_count * BAR + 10, height = TOP + chart->label_count * group + 40;
    begin(out, chart, source, height);
    for (size_t i = 0; i < chart->figures->count; i++) {
        const struct fr_figure *one = &chart->figures->list[i];
        int label = find(chart->labels, chart->label_count, one->label);
        int column = find(chart->columns, chart->column_count, one->column);
        if (!belongs(one, chart->first) || label < 0 || column < 0)
            continue;
        int y = TOP + label * group + column * BAR;
        double length = one->value / chart->most_y * ROOM;
        if (column == 0) {
            fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LABELS - 8, y + BAR);
            put_text(out, one->label);
            fputs("</text>", out);
        }
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>"
                "<text x=\"%.1f\" y=\"%d\">%.4g</text>\n",
                LABELS, y, length, BAR - 2, colours[column], LABELS + length + 6, y + BAR - 4,
                one->value);
    }
    for (int column = 0; column < chart->column_count; column++) {
        int x = LABELS + column * 160;
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/><text "
                "x=\"%d\" y=\"%d\">",
                x, height - 28, colours[column], x + 20, height - 16);
        put_text(out, chart->columns[column]);
        fputs("</text>\n", out);
    }
}

// "ping-pong-open-mpi-4.1.4.svg"
static void name_file(const struct fr_figure *first, const char *folder, char *path, size_t room)
{
    char name[128];
    snprintf(name, sizeof(name), "%s%s%s", first->table, *first->mpi ? "-" : "", first->mpi);
    for (char *c = name; *c != '\0'; c++)
        *c = (char)(isalnum((unsigned char)*c) || *c == '.' ? tolower((unsigned char)*c) : '-');
    snprintf(path, room, "%s/%s.svg", folder, name);
}

static bool draw(const struct fr_figures *figures, const struct fr_figure *first,
                 const struct fr_figures_source *source, const char *folder)
{
    struct chart chart = {.figures = figures, .first = first};
    char path[4096 + 160];
    name_file(first, folder, path, sizeof(path));
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return fr_tool_complain("%s cannot be made: %s", path, strerror(errno));
    if (survey(&chart))
        draw_lines(out, &chart, source);
    else
        draw_bars(out, &chart, source);
    fputs("</svg>\n", out);
    bool good = !ferror(out);
    return (fclose(out) == 0 && good) ||
           fr_tool_complain("%s cannot be written: %s", path, strerror(errno));
}

int fr_figures_plot(const struct fr_figures *figures, const struct fr_figures_source *source,
                    const char *folder)
{
    int plots = 0;
    for (size_t i = 0; i < figures->count; i++) {
        bool again = false;
        for (size_t before = 0; before < i && !again; before++)
            again = belongs(&figures->list[before], &figures->list[i]);
        if (again)
            continue;
        if (!draw(figures, &figures->list[i], source, folder))
            return -1;
        plots++;
    }
    return plots;
}
