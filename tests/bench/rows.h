// SPDX-License-Identifier: BSD-3-Clause
// Figures that a benchmark prints for a program to read, besides its table for a person. Where
// BENCH_ROWS is in the environment there is a line for each figure:
//
//   row|TABLE|LABEL|COLUMN|UNIT|VALUE
//
// LABEL is a number of bytes, or words.
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

// Prints the line of a figure. One of 0 or less was not measured, and has no line.
static inline void rows_put_named(const char *table, const char *label, const char *column,
                                  const char *unit, double value)
{
    if (getenv("BENCH_ROWS") != NULL && value > 0)
        printf("row|%s|%s|%s|%s|%.6g\n", table, label, column, unit, value);
}

static inline void rows_put(const char *table, size_t bytes, const char *column, const char *unit,
                            double value)
{
    char label[32];
    snprintf(label, sizeof label, "%zu", bytes);
    rows_put_named(table, label, column, unit, value);
}

// Prints a cell of the table for a person, behind a blank. A figure of 0 or less was not measured.
static inline void rows_print(int width, int decimals, double value)
{
    if (value > 0)
        printf(" %*.*f", width, decimals, value);
    else
        printf(" %*s", width, "-");
}

#endif
