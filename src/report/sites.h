// SPDX-License-Identifier: BSD-3-Clause
// Where the program calls MPI with device buffers, and on which communicator: counters of a thread,
// and their sums. Private to module report.
#ifndef FR_REPORT_SITES_H
#define FR_REPORT_SITES_H

#include "fabrail/core/meter.h"
#include "fabrail/core/site.h"
#include "fabrail/report.h"
#include "report/count.h"

enum {
    FR_SITES = 256,    // of a thread, and of a process; the last one has what has no room
    FR_SITE_TRIES = 16 // rows that are looked at for one
};

// Counters of one function called at one site on the communicators of one label.
struct fr_site {
    _Atomic bool taken; // key and site are set
    uint32_t key;       // label and function
    uintptr_t site;     // to which the calls return
    fr_count calls;
    fr_count ticks;                   // spent in them
    fr_count metered[FR_METER_COUNT]; // the parts of them that the meter knows
    fr_count bytes[FR_PATH_COUNT];
};

// The sites of a thread.
struct fr_sites {
    struct fr_site rows[FR_SITES];
    struct fr_site *last[FR_FN_STUB_COUNT]; // that each function used last
};

// Returns the row of a function, called at `site` on communicators with `label`. 0 for the site
// leads to the last row, and so does a lack of room.
struct fr_site *fr_report_site(struct fr_sites *table, enum fr_fn fn, uintptr_t site,
                               unsigned label);

// Communicators of equal names and sizes have one label. It is given when the first one is used.
struct fr_report_label {
    char name[48]; // empty for none
    int ranks;
};
// Returns the label of the communicator that the calling thread's call names, 0 where it names
// none. `args` may be NULL.
unsigned fr_report_label_of(enum fr_fn fn, const fr_word *args);
// Returns a label's name and size, NULL for label 0.
const struct fr_report_label *fr_report_label(unsigned label);

// Counters of one site, added up over all threads.
struct fr_report_site {
    enum fr_fn fn;  // FR_FN_STUB_COUNT for all that had no room
    uintptr_t site; // 0 for none
    unsigned label;
    uint64_t calls, ns, copies_ns, mpi_ns, wait_ns;
    uint64_t bytes[FR_PATH_COUNT];
};
// Returns the name of a site's function.
const char *fr_report_site_function(const struct fr_report_site *site);
// Adds up the sites of all threads. Called by fr_report_sum_up.
void fr_report_sites_sum_up(double ns_a_tick);
// Returns the sums, those that took longest first, and writes their number. `found` gets what is
// known of each, once fr_report_sites_name was called.
const struct fr_report_site *fr_report_sites(const struct fr_core_site **found, unsigned *count);
// Finds out in which functions the sites are.
void fr_report_sites_name(bool in_signal);
// Returns a site's time that is neither in copies, nor in the real MPI, nor a wait.
uint64_t fr_report_site_within(const struct fr_report_site *site);

#endif
