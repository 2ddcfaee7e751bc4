// SPDX-License-Identifier: BSD-3-Clause
// Figures of benchmarks: collected from what the programs print, written as CSV, JSON and plots.
#ifndef FR_TOOLS_FIGURES_H
#define FR_TOOLS_FIGURES_H

#include "core/core.h"

#include <stdio.h>

struct fr_figure {
    char test[24];
    char mpi[48];
    char table[48];
    char label[64]; // a number of bytes, or words
    char column[48];
    char unit[16];
    double value;
};

struct fr_figures {
    struct fr_figure *list;
    size_t count, room;
};

// Adds the figure of a line "row|TABLE|LABEL|COLUMN|UNIT|VALUE". `column`, if not NULL, stands in
// place of the line's. Returns false for any other line.
bool fr_figures_take(struct fr_figures *figures, const char *line, const char *test,
                     const char *mpi, const char *column);
void fr_figures_free(struct fr_figures *figures);

// What was measured where.
struct fr_figures_source {
    char machine[320], device[240], day[32];
    bool simulated;
};
void fr_figures_describe(struct fr_figures_source *source);

void fr_figures_write_csv(const struct fr_figures *figures, FILE *out);
void fr_figures_write_json(const struct fr_figures *figures, const struct fr_figures_source *source,
                           FILE *out);

// Draws one plot (SVG) for each table of each MPI into a folder: lines over sizes, or bars where
// labels are words. Returns how many, -1 after a complaint.
int fr_figures_plot(const struct fr_figures *figures, const struct fr_figures_source *source,
                    const char *folder);

#endif
