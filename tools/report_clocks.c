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

// The quickest way of messages from one host to another, by way of others too.
struct way {
    double us; // by the clocks of both ends
    unsigned hops;
};

// Finds the ways from a host to all others, or those back.
static void find_ways(const double *least_us, size_t hosts, size_t root, bool back,
                      struct way *ways)
{
    for (size_t h = 0; h < hosts; h++)
        ways[h] = (struct way){.us = h == root ? 0 : (double)INFINITY};
    bool found = true;
    for (size_t round = 0; round < hosts && found; round++) {
        found = false;
        for (size_t i = 0; i < hosts * hosts; i++) {
            size_t from = i / hosts, to = i % hosts;
            double us = ways[from].us + least_us[back ? to * hosts + from : i];
            if (from == to || to == root || !(us < ways[to].us))
                continue;
            ways[to] = (struct way){.us = us, .hops = ways[from].hops + 1};
            found = true;
        }
    }
}

// Takes a host's clock as right, and finds those of all hosts to which messages lead from there and
// back. Each hop of such a round is taken to have taken equally long.
static bool spread(const double *least_us, size_t hosts, size_t root, bool *known, double *ahead_us)
{
    struct way *there = malloc(2 * hosts * sizeof(*there)), *back = there + hosts;
    if (!there)
        return fr_tool_complain("out of memory");
    find_ways(least_us, hosts, root, false, there);
    find_ways(least_us, hosts, root, true, back);
    known[root] = true;
    for (size_t h = 0; h < hosts; h++) {
        if (known[h] || !isfinite(there[h].us + back[h].us))
            continue;
        double hop_us = (there[h].us + back[h].us) / (there[h].hops + back[h].hops);
        ahead_us[h] = ahead_us[root] + there[h].us - there[h].hops * hop_us;
        known[h] = true;
    }
    free(there);
    return true;
}

// Returns a host that is not known yet, where there is one, and how far it is ahead: one to or from
// which messages lead first, so that none comes before it was sent.
static size_t find_next(const double *least_us, size_t hosts, const bool *known, double *ahead_us)
{
    size_t next = hosts;
    for (size_t h = 0; h < hosts; h++) {
        for (size_t k = 0; k < hosts && !known[h]; k++) {
            double there = least_us[k * hosts + h], back = least_us[h * hosts + k];
            if (!known[k] || !isfinite(fmin(there, back)))
                continue;
            ahead_us[h] = ahead_us[k] + (isfinite(there) ? fmin(there, 0) : fmax(-back, 0));
            return h;
        }
        next = known[h] || next < hosts ? next : h;
    }
    return next;
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
    if (done)
        clocks->arrows = find_least(arrows, hosts, least_us);
    for (size_t h = 0; done && h < hosts;
         h = done ? find_next(least_us, hosts, known, clocks->ahead_us) : hosts)
        done = spread(least_us, hosts, h, known, clocks->ahead_us);
    free(least_us);
    free(known);
    return done;
}
