// SPDX-License-Identifier: BSD-3-Clause
// Shared by the merging of traces and the alignment of their clocks. Private to these.
#ifndef FR_TOOLS_REPORT_TRACE_H
#define FR_TOOLS_REPORT_TRACE_H

#include "report.h"

// An end of an arrow, which a message draws from its sender to its receiver.
struct fr_arrow_end {
    uint64_t id; // of the message
    double us;   // by the clock of its host
    size_t trace, host;
    bool begins;
};

struct fr_arrows {
    struct fr_arrow_end *ends;
    size_t count;
};

// Adds an end. Returns false after a complaint if there is no memory.
bool fr_arrows_add(struct fr_arrows *arrows, const struct fr_arrow_end *end);

struct fr_clocks {
    double *ahead_us; // of the first host's clock, by host; the caller frees it
    size_t arrows;    // that have both ends
};

// Finds out how far the clocks of hosts are ahead. Where messages lead from one host to another and
// back, by way of others too, the hops of the quickest such round are taken to have taken equally
// long. Where there is one way, no message comes before it was sent. A clock of which nothing is
// known is right. Sorts the ends. Returns false after a complaint if there is no memory.
bool fr_clocks_find(struct fr_arrows *arrows, size_t hosts, struct fr_clocks *clocks);

#endif
