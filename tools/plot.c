// SPDX-License-Identifier: BSD-3-Clause
// Plots of figures as SVG: lines over sizes on two logarithmic axes, or bars. Each file stands by
// itself, follows the reader's light or dark scheme, and can be read at the width of a phone: few
// and large letters, with the legend below.
#include "config.h"

#include "figures.h"

#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 520, LEFT = 88, RIGHT = 24, TOP = 92, PLOT = 320, MARGIN = 20 };
enum { LETTER = 8, SMALL_LETTER = 7, MOST_TICKS = 6 }; // widths of a letter, about
enum { LABEL_ROOM = 22, BAR = 18, GROUP_GAP = 12 };

struct chart {
    const struct fr_figures *figures;
    struct fr_figures_table table;
    int order[FR_FIGURES_MOST_COLUMNS]; // of the columns, the most important first
    double least_x, most_x, least_y, most_y;
    double low, high; // ends of the axis of values
};

// The look of each way: the limits of the machine grey, the others told apart by who sees
// few colours, too. A way without a row here gets one of the last.
static const struct look {
    const char *column, *light, *dark, *dashes, *width;
} looks[] = {
    {"Fabrail", "#0b5cad", "#58a6ff", "", "3.5"},
    {"with", "#0b5cad", "#58a6ff", "", "3.5"},
    {"NCCL", "#bc4c00", "#f0883e", "", "2"},
    {"by hand", "#7d3fc4", "#c297ff", "", "2"},
    {"copy engines", "#57606a", "#a9b3bd", "2 4", "2"},
    {"kernels", "#57606a", "#a9b3bd", "9 4", "2"},
    {"without", "#57606a", "#a9b3bd", "", "2"},
    {NULL, "#1a7f37", "#56d364", "", "1.5"},
    {NULL, "#9a6700", "#e3b341", "", "1.5"},
    {NULL, "#bf3989", "#f778ba", "", "1.5"},
    {NULL, "#0f766e", "#2dd4bf", "", "1.5"},
    {NULL, "#8c5a2b", "#d8a878", "", "1.5"},
};
enum { LOOKS = sizeof(looks) / sizeof(looks[0]) };

static int look_of(const struct chart *chart, int column)
{
    int others = 0;
    for (int i = 0; i < LOOKS; i++) {
        if (looks[i].column != NULL && strcmp(looks[i].column, chart->table.columns[column]) == 0)
            return i;
    }
    for (int before = 0; before < column; before++)
        others += look_of(chart, before) >= 7;
    return 7 + others % (LOOKS - 7);
}

static void put_in_order(struct chart *chart)
{
    int count = 0;
    for (int look = 0; look < LOOKS; look++) {
        for (int column = 0; column < chart->table.column_count; column++) {
            if (look_of(chart, column) == look)
                chart->order[count++] = column;
        }
    }
}

static bool is_size(const char *label, double *bytes)
{
    char *end = NULL;
    *bytes = strtod(label, &end);
    return end != label && *end == '\0' && *bytes > 0;
}

static double value_of(const struct chart *chart, int label, int column)
{
    double value = fr_figures_value(chart->figures, &chart->table, label, column);
    return value >= FR_FIGURES_LEAST && value <= FR_FIGURES_MOST ? value : 0;
}

// The ends of the axis of values: a 1, 2 or 5 with noughts just outside of all.
static double step_outside(double value, bool below)
{
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(value)));
    for (int i = 0; i < 3; i++) {
        if (below ? value < steps[i + 1] * power : value <= steps[i] * power)
            return steps[i] * power;
    }
    return below ? 5 * power : 10 * power;
}

// Collects what the chart spans. Returns whether its labels are sizes.
static bool survey(struct chart *chart)
{
    bool sizes = true;
    chart->least_x = chart->least_y = HUGE_VAL;
    chart->most_x = chart->most_y = 0;
    for (int label = 0; label < chart->table.label_count; label++) {
        double bytes;
        sizes = is_size(chart->table.labels[label], &bytes) && sizes;
        chart->least_x = fmin(chart->least_x, bytes);
        chart->most_x = fmax(chart->most_x, bytes);
        for (int column = 0; column < chart->table.column_count; column++) {
            double value = value_of(chart, label, column);
            chart->least_y = fmin(chart->least_y, value > 0 ? value : HUGE_VAL);
            chart->most_y = fmax(chart->most_y, value);
        }
    }
    put_in_order(chart);
    return sizes;
}

// A value as a person says it: 2100 us is 2.1 ms.
static const char *value_text(double value, const char *unit, char *text, size_t room)
{
    static const char *const times[] = {"ns", "µs", "ms", "s"};
    static const char *const rates[] = {"kB/s", "MB/s", "GB/s"};
    bool rate = strcmp(unit, "GB/s") == 0;
    const char *const *units = rate ? rates : times;
    int at = rate ? 2 : strcmp(unit, "us") == 0 ? 1 : strcmp(unit, "ns") == 0 ? 0 : -1;
    for (; at >= 0 && at < (rate ? 2 : 3) && value >= 999.95; at++)
        value /= 1000;
    for (; at > 0 && rate && value < 0.99995; at--)
        value *= 1000;
    snprintf(text, room, "%.4g %s", value, at >= 0 ? units[at] : unit);
    return text;
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

// A line of small letters, cut where it would leave the picture.
static void put_line(FILE *out, int y, const char *text)
{
    size_t most = (WIDTH - 2 * MARGIN) / SMALL_LETTER, length = strlen(text);
    char line[512];
    size_t kept = length > most ? most : length;
    while (kept < length && kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80)
        kept--;
    snprintf(line, sizeof(line), "%.*s%s", (int)kept, text, kept < length ? "…" : "");
    fprintf(out, "<text class=\"small\" x=\"%d\" y=\"%d\">", MARGIN, y);
    put_text(out, line);
    fputs("</text>\n", out);
}

static void put_style(FILE *out)
{
    fputs("<style>svg{max-width:100%;height:auto;background:#fff;color:#1f2328;"
          "font:15px system-ui,sans-serif}text{fill:currentColor}.small{font-size:13px;opacity:.8}"
          ".grid{stroke:currentColor;stroke-opacity:.18}.fine{stroke-opacity:.07}"
          ".line path{fill:none;stroke:currentColor;stroke-linejoin:round}"
          ".dots path,rect{fill:currentColor}",
          out);
    for (int i = 0; i < LOOKS; i++)
        fprintf(out, ".w%d{color:%s}", i, looks[i].light);
    fputs("@media(prefers-color-scheme:dark){svg{background:#15181c;color:#e6e9ec}", out);
    for (int i = 0; i < LOOKS; i++)
        fprintf(out, ".w%d{color:%s}", i, looks[i].dark);
    fputs("}</style>\n", out);
}

static void begin(FILE *out, const struct chart *chart, const struct fr_figures_source *source,
                  int height)
{
    const struct fr_figure *first = chart->table.first;
    char title[96], line[768];
    snprintf(title, sizeof(title), "%s", first->table);
    title[0] = (char)toupper((unsigned char)title[0]);
    if (first->ranks > 0)
        snprintf(title + strlen(title), sizeof(title) - strlen(title), ", %d ranks", first->ranks);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
            WIDTH, height, WIDTH, height);
    put_text(out, title);
    fputs("</title>\n", out);
    put_style(out);
    fprintf(out, "<text x=\"%d\" y=\"30\" font-size=\"18\" font-weight=\"bold\">", MARGIN);
    put_text(out, title);
    fputs("</text>\n", out);
    snprintf(line, sizeof(line), "%s%s%s", first->mpi, *first->mpi ? "; " : "",
             source->simulated ? "SIMULATED device, figures mean nothing" : source->device);
    put_line(out, 52, line);
    snprintf(line, sizeof(line), "%s; Fabrail %s, %s", source->machine, source->version,
             source->day);
    put_line(out, 70, line);
}

static double x_of(const struct chart *chart, double bytes)
{
    double span = log2(chart->most_x / chart->least_x);
    double part = span > 0 ? log2(bytes / chart->least_x) / span : 0.5;
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct chart *chart, double value)
{
    double span = log10(chart->high / chart->low);
    double part = span > 0 ? log10(value / chart->low) / span : 0.5;
    return TOP + PLOT - part * PLOT;
}

static void draw_values(FILE *out, const struct chart *chart)
{
    static const int steps[] = {1, 2, 5};
    double decades = log10(chart->high / chart->low);
    for (int power = (int)floor(log10(chart->low)); power <= (int)ceil(log10(chart->high)); power++)
        for (int i = 0; i < 3; i++) {
            double value = steps[i] * pow(10, power), y = y_of(chart, value);
            bool labelled = i == 0 || decades < 2.2;
            char text[32];
            if (value < chart->low * 0.999 || value > chart->high * 1.001)
                continue;
            fprintf(out, "<path class=\"grid%s\" d=\"M%d %.1fH%d\"/>", labelled ? "" : " fine",
                    LEFT, y, WIDTH - RIGHT);
            if (labelled)
                fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 11,
                        y + 5, value_text(value, chart->table.first->unit, text, sizeof(text)));
            fputc('\n', out);
        }
}

static void draw_sizes(FILE *out, const struct chart *chart)
{
    double steps = log2(chart->most_x / chart->least_x);
    int each = (int)ceil(steps / MOST_TICKS);
    fprintf(out, "<text x=\"%d\" y=\"%d\">bytes</text>\n", MARGIN, TOP + PLOT + 28);
    for (int step = 0; step <= steps; step += each > 0 ? each : 1) {
        char size[FR_BYTES_TEXT];
        double bytes = chart->least_x * exp2(step), x = x_of(chart, bytes);
        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%s</text>\n",
                x, TOP, TOP + PLOT, x, TOP + PLOT + 28, fr_core_bytes_text((size_t)bytes, size));
    }
}

// Up to where the path's commands go.
static void begin_line(FILE *out, int look)
{
    fprintf(out, "<g class=\"w%d\"><g class=\"line\" stroke-width=\"%s\"", look, looks[look].width);
    if (*looks[look].dashes)
        fprintf(out, " stroke-dasharray=\"%s\"", looks[look].dashes);
    fputs("><path d=\"", out);
}

// A mark of a shape that goes with the look.
static void put_mark(FILE *out, int look, double x, double y)
{
    static const char *const shapes[] = {
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "m-4-4h8v8h-8z", "m0-5l5 9h-10z",
        "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",  "m0 5l5-9h-10z",
    };
    const char *shape =
        *looks[look].dashes ? "m-2-2h4v4h-4z" : shapes[look < 2 ? 0 : (look - 1) % 5];
    fprintf(out, "<path d=\"M%.1f %.1f%s\"", x, y, shape);
}

static void draw_line(FILE *out, const struct chart *chart, int column)
{
    int look = look_of(chart, column);
    const char *command = "M";
    begin_line(out, look);
    for (int dots = 0; dots < 2; dots++) {
        for (int label = 0; label < chart->table.label_count; label++) {
            double bytes, value = value_of(chart, label, column);
            char size[FR_BYTES_TEXT], text[32];
            if (!is_size(chart->table.labels[label], &bytes) || value <= 0)
                continue;
            double x = x_of(chart, bytes), y = y_of(chart, value);
            if (!dots) {
                fprintf(out, "%s%.1f %.1f", command, x, y);
                command = "L";
                continue;
            }
            put_mark(out, look, x, y);
            fputs("><title>", out);
            put_text(out, chart->table.columns[column]);
            fprintf(out, ", %s: %s</title></path>", fr_core_bytes_text((size_t)bytes, size),
                    value_text(value, chart->table.first->unit, text, sizeof(text)));
        }
        fputs(dots ? "</g></g>\n" : "\"/></g><g class=\"dots\">", out);
    }
}

// One name after the other, in as many lines as they take, the first at y. Returns where the next
// line would be; draws nothing when `out` is NULL.
static int draw_legend(FILE *out, const struct chart *chart, int y)
{
    int x = MARGIN;
    for (int i = 0; i < chart->table.column_count; i++) {
        int column = chart->order[i], look = look_of(chart, column);
        int width = 46 + LETTER * (int)strlen(chart->table.columns[column]);
        if (x > MARGIN && x + width > WIDTH - MARGIN) {
            x = MARGIN;
            y += 24;
        }
        if (out != NULL) {
            begin_line(out, look);
            fprintf(out, "M%d %dh26\"/></g><g class=\"dots\">", x, y);
            put_mark(out, look, x + 13, y);
            fprintf(out, "/></g></g><text x=\"%d\" y=\"%d\">", x + 32, y + 5);
            put_text(out, chart->table.columns[column]);
            fputs("</text>\n", out);
        }
        x += width + 10;
    }
    return y + 24;
}

static void draw_lines(FILE *out, struct chart *chart, const struct fr_figures_source *source)
{
    int legend = TOP + PLOT + 58;
    chart->low = step_outside(chart->least_y, true);
    chart->high = step_outside(chart->most_y, false);
    begin(out, chart, source, draw_legend(NULL, chart, legend));
    draw_values(out, chart);
    draw_sizes(out, chart);
    for (int i = chart->table.column_count - 1; i >= 0; i--)
        draw_line(out, chart, chart->order[i]);
    (void)draw_legend(out, chart, legend);
}

static void draw_bars(FILE *out, const struct chart *chart, const struct fr_figures_source *source)
{
    const struct fr_figures_table *table = &chart->table;
    int group = LABEL_ROOM + table->column_count * BAR + GROUP_GAP;
    int legend = TOP + table->label_count * group + 10;
    begin(out, chart, source, draw_legend(NULL, chart, legend));
    for (int label = 0; label < table->label_count; label++) {
        int y = TOP + label * group;
        fprintf(out, "<text x=\"%d\" y=\"%d\">", MARGIN, y + 15);
        put_text(out, table->labels[label]);
        fputs("</text>\n", out);
        for (int i = 0; i < table->column_count; i++) {
            int column = chart->order[i], top = y + LABEL_ROOM + i * BAR;
            double value = value_of(chart, label, column);
            double length = value / chart->most_y * (WIDTH - 2 * MARGIN - 80);
            char text[32];
            if (value <= 0)
                continue;
            fprintf(out,
                    "<rect class=\"w%d\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>"
                    "<text class=\"small\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                    look_of(chart, column), MARGIN, top, length, BAR - 3, MARGIN + length + 6,
                    top + 12, value_text(value, table->first->unit, text, sizeof(text)));
        }
    }
    (void)draw_legend(out, chart, legend);
}

// "mpi-alltoall-4-ranks-open-mpi-4.1.4.svg"
static void name_file(const struct fr_figure *first, const char *folder, char *path, size_t room)
{
    char name[160], ranks[32] = "";
    if (first->ranks > 0)
        snprintf(ranks, sizeof(ranks), "-%d-ranks", first->ranks);
    snprintf(name, sizeof(name), "%s%s%s%s", first->table, ranks, *first->mpi ? "-" : "",
             first->mpi);
    for (char *c = name; *c != '\0'; c++) {
        bool point = *c == '.' && c > name && isdigit((unsigned char)c[-1]);
        *c = (char)(point || isalnum((unsigned char)*c) ? tolower((unsigned char)*c) : '-');
    }
    snprintf(path, room, "%s/%s.svg", folder, name);
}

static bool draw(struct chart *chart, bool sized, const struct fr_figures_source *source,
                 const char *folder)
{
    char path[4096 + 192];
    name_file(chart->table.first, folder, path, sizeof(path));
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return fr_tool_complain("%s cannot be made: %s", path, strerror(errno));
    if (sized)
        draw_lines(out, chart, source);
    else
        draw_bars(out, chart, source);
    fputs("</svg>\n", out);
    bool good = !ferror(out);
    return (fclose(out) == 0 && good) ||
           fr_tool_complain("%s cannot be written: %s", path, strerror(errno));
}

int fr_figures_plot(const struct fr_figures *figures, const struct fr_figures_source *source,
                    const char *folder)
{
    int plots = 0;
    struct chart chart = {.figures = figures};
    for (size_t at = 0; fr_figures_next_table(figures, &at, &chart.table);) {
        bool sized = survey(&chart);
        if (chart.most_y <= 0) // none that a plot could show
            continue;
        if (!draw(&chart, sized, source, folder))
            return -1;
        plots++;
    }
    return plots;
}
