// SPDX-License-Identifier: BSD-3-Clause
// Figures of benchmarks: collected from what the programs print, or read from JSON that was written
// before; written as tables, CSV, JSON, Markdown and plots.
#ifndef FR_TOOLS_FIGURES_H
#define FR_TOOLS_FIGURES_H

#include "fabrail/core.h"

#include <stdio.h>

struct fr_figure {
    char test[24];
    char mpi[48];
    int ranks; // 0: no program of MPI
    char table[48];
    char label[64]; // a number of bytes, or words
    char column[48];
    char unit[16];
    double value;
};

// No value of any unit is outside of these.
#define FR_FIGURES_LEAST 1e-15
#define FR_FIGURES_MOST  1e18

struct fr_figures {
    struct fr_figure *list;
    size_t count, room;
};

// Adds the figure of a line "row|TABLE|LABEL|COLUMN|UNIT|VALUE" to what `like` says of the run.
// `column`, if not NULL, stands in place of the line's. Returns false for any other line.
bool fr_figures_take(struct fr_figures *figures, const char *line, const struct fr_figure *like,
                     const char *column);
bool fr_figures_add(struct fr_figures *figures, const struct fr_figure *one);
void fr_figures_free(struct fr_figures *figures);

// Where figures were measured, by which release and which command.
struct fr_figures_source {
    char version[32], machine[320], device[240], day[32], command[1024];
    bool simulated;
};
void fr_figures_describe(struct fr_figures_source *source, int argc, char *const *argv);

// The figures of one table of one run, a row a label and a column a way: texts of the figures, in
// the order in which they came. `at` is 0 at first. Returns false when there is no further one.
enum { FR_FIGURES_MOST_COLUMNS = 8, FR_FIGURES_MOST_LABELS = 64 };
struct fr_figures_table {
    const struct fr_figure *first;
    const char *columns[FR_FIGURES_MOST_COLUMNS];
    const char *labels[FR_FIGURES_MOST_LABELS];
    int column_count, label_count;
};
bool fr_figures_next_table(const struct fr_figures *figures, size_t *at,
                           struct fr_figures_table *table);

// The value of a cell, 0 where there is none.
double fr_figures_value(const struct fr_figures *figures, const struct fr_figures_table *table,
                        int label, int column);

void fr_figures_write_tables(const struct fr_figures *figures,
                             const struct fr_figures_source *source, FILE *out);

// Columns "without" and "with" of a test beside each other: both, difference and ratio.
void fr_figures_write_pairs(const struct fr_figures *figures, const char *test, const char *mpi,
                            FILE *out);
void fr_figures_write_csv(const struct fr_figures *figures, FILE *out);
void fr_figures_write_json(const struct fr_figures *figures, const struct fr_figures_source *source,
                           FILE *out);

// Writes one table in Markdown, as in doc/performance.md: a row for each label of each table that
// has a column "Fabrail". The limit is the better one of the columns "kernels" and "copy engines".
void fr_figures_write_markdown(const struct fr_figures *figures, FILE *out);

// Reads what fr_figures_write_json has written. Returns false after a complaint.
bool fr_figures_read(const char *name, struct fr_figures *figures,
                     struct fr_figures_source *source);

// Draws one plot (SVG) for each table into a folder: lines over sizes, or bars where labels are
// words. Returns how many, -1 after a complaint.
int fr_figures_plot(const struct fr_figures *figures, const struct fr_figures_source *source,
                    const char *folder);

#endif
