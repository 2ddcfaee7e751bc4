// SPDX-License-Identifier: BSD-3-Clause
// The clocks of hosts, from the messages that went between them.
#include "config.h"

#include "report_trace.h"

#include <math.h>
#include <stdlib.h>

bool fr_arrows_add(struct fr_arrows *arrows, const struct fr_arrow_end *end)
{
    struct fr_arrow_end *added = fr_tools_append(&arrows->ends, &arrows->count, sizeof(*added));
    if (added)
        *added = *end;
    return added != NULL;
}

static int by_message(const void *a, const void *b)
{
    const struct fr_arrow_end *first = a, *second = b;
    if (first->id != second->id)
        return first->id < second->id ? -1 : 1;
    return (int)second->begins - (int)first->begins;
}

// Finds the least time that a message took from one host to another, by their own clocks.
static size_t find_least(const struct fr_arrows *arrows, size_t hosts, double *least_us)
{
    size_t pairs = 0;
    for (size_t i = 0; i + 1 < arrows->count; i++) {
        const struct fr_arrow_end *from = &arrows->ends[i], *to = &arrows->ends[i + 1];
        if (from->id != to->id || !from->begins || to->begins)
            continue;
        double *least = &least_us[from->host * hosts + to->host];
        *least = fmin(*least, to->us - from->us);
        pairs++;
    }
    return pairs;
}

// Returns how far a clock is ahead of another one between which messages went there and back, or
// one way alone.
static double ahead_of(double there_us, double back_us)
{
    if (isfinite(there_us) && isfinite(back_us))
        return (there_us - back_us) / 2;
    return isfinite(there_us) ? fmin(there_us, 0) : fmax(-back_us, 0);
}

// Goes from host to host, by those between which messages went both ways first.
static void walk(const double *least_us, size_t hosts, bool both, bool *known, double *ahead_us)
{
    for (bool found = true; found;) {
        found = false;
        for (size_t h = 0; h < hosts; h++) {
            for (size_t k = 0; k < hosts && !known[h]; k++) {
                double there = least_us[k * hosts + h], back = least_us[h * hosts + k];
                bool ways =
                    both ? isfinite(there) && isfinite(back) : isfinite(there) || isfinite(back);
                if (!known[k] || !ways)
                    continue;
                ahead_us[h] = ahead_us[k] + ahead_of(there, back);
                known[h] = found = true;
            }
        }
    }
}

bool fr_clocks_find(struct fr_arrows *arrows, size_t hosts, struct fr_clocks *clocks)
{
    double *least_us = malloc(hosts * hosts * sizeof(*least_us));
    bool *known = calloc(hosts, sizeof(*known));
    clocks->ahead_us = calloc(hosts, sizeof(*clocks->ahead_us));
    bool done = (least_us && known && clocks->ahead_us) || fr_tool_complain("out of memory");
    for (size_t i = 0; done && i < hosts * hosts; i++)
        least_us[i] = (double)INFINITY;
    if (done && arrows->count)
        qsort(arrows->ends, arrows->count, sizeof(*arrows->ends), by_message);
    if (done) {
        clocks->arrows = find_least(arrows, hosts, least_us);
        for (size_t h = 0; h < hosts; h++) { // hosts that no message leads to begin anew
            if (known[h])
                continue;
            known[h] = true;
            walk(least_us, hosts, true, known, clocks->ahead_us);
            walk(least_us, hosts, false, known, clocks->ahead_us);
        }
    }
    free(least_us);
    free(known);
    return done;
}
