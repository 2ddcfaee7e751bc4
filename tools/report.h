// SPDX-License-Identifier: BSD-3-Clause
// fabrail report, and explain --report: what their files share. A job is read from the reports of
// its ranks (report_read.c), and written as one page (report_page.c and others); traces are merged
// (report_trace.c).
#ifndef FR_TOOLS_REPORT_H
#define FR_TOOLS_REPORT_H

#include "command.h"
#include "fabrail/report/units.h"
#include "fabrail/report/verdict.h"

// The paths, as reports name them; module policy's, and what later versions of the library have.
enum fr_report_path {
    FR_TOOLS_JOB_PASS,
    FR_TOOLS_JOB_HOST,
    FR_TOOLS_JOB_FABRIC,
    FR_TOOLS_JOB_PEER,
    FR_TOOLS_JOB_RAIL,
    FR_TOOLS_JOB_REFUSE,
    FR_TOOLS_JOB_NONE,
    FR_TOOLS_JOB_PATHS,
};
const char *fr_tools_job_path_name(unsigned path);
const char *fr_tools_job_path_about(unsigned path); // some words for people
bool fr_tools_job_path_named(const char *name, unsigned *path);
// The path as module policy knows it; FR_PATH_COUNT for none.
enum fr_policy_path fr_tools_job_policy_path(unsigned path);

struct fr_tools_job_totals {
    uint64_t calls, buffers, bytes;
    uint64_t fabrail_ns, copies_ns, mpi_ns, wait_ns;
};
static inline uint64_t fr_tools_job_ns(const struct fr_tools_job_totals *totals)
{
    return totals->fabrail_ns + totals->copies_ns + totals->mpi_ns + totals->wait_ns;
}
void fr_tools_job_add(struct fr_tools_job_totals *to, const struct fr_tools_job_totals *from);

struct fr_tools_job_rank {
    int rank;
    char *host;
    char *ended;
    int signal; // 0 for none, or when only the summary is known
    uint64_t wall_ns;
    struct fr_tools_job_totals paths[FR_TOOLS_JOB_PATHS];
    char *file;                   // that it comes from
    bool detailed;                // which has more than the totals
    struct fr_verdict_rank facts; // of its details
};

struct fr_tools_job_setting {
    char *name, *value;
};

// A function in all ranks. Texts are NULL for none.
struct fr_tools_job_function {
    char *name;
    unsigned path;
    char *scheme;
    char *reason;
    struct fr_tools_job_totals totals;
};

// Calls of all ranks on the communicators of one name and size: of one function at one place, or
// all.
struct fr_tools_job_site {
    const char *where; // as fr_core_site_text says it; NULL if the place is unknown
    const char *name;  // of the function, NULL for any
    const char *comm;  // empty for none
    int comm_ranks;
    struct fr_tools_job_totals totals;
    uint64_t path_bytes[FR_TOOLS_JOB_PATHS];
};

// Returns whether a function starts or ends MPI, whose time would make that of all others look like
// none.
bool fr_tools_job_is_of_start(const char *name);

// Returns advice that would spare these buffers the way that they took, NULL for none.
const char *fr_tools_job_advice(const struct fr_tools_job_function *function, const char **title);

struct fr_tools_job_rail {
    char *name;
    uint64_t sent_bytes, received_bytes, device_bytes, stripes;
    unsigned ranks; // that have it
    unsigned lost;  // and have lost it
};

struct fr_tools_job_warning {
    char *text;
    bool error;
    unsigned count;
    int rank; // the first that has it
};

struct fr_tools_job_cell {
    uint64_t bytes, messages;
};

enum { FR_TOOLS_JOB_CLASSES = 64, FR_TOOLS_JOB_MOST_SIDE = 512 };

struct fr_job {
    char *name, *fabrail, *mpi, *fabric_memory;
    char *gpu, *command; // NULL where the reports do not say
    struct fr_tools_job_setting *settings;
    size_t setting_count;
    bool gpu_aware;
    uint64_t started_unix_ns;
    uint64_t hosts, cliques, workspace_peak_bytes;
    int size;
    bool detailed; // more than the summary is known

    struct fr_tools_job_rank *ranks;
    size_t rank_count;
    size_t current; // of the ranks: the one that is being read
    struct fr_tools_job_function *functions;
    size_t function_count;
    struct fr_tools_job_site *sites, *comms; // by place, and by communicator alone
    size_t site_count, comm_count;
    struct fr_tools_job_rail *rails;
    size_t rail_count;
    struct fr_tools_job_warning *warnings;
    size_t warning_count;
    struct fr_tools_job_cell sizes[FR_TOOLS_JOB_PATHS]
                                  [FR_TOOLS_JOB_CLASSES]; // `messages` are buffers

    // Bytes by sender and receiver: `side` rows of as many cells, each of `group` ranks, by sender.
    struct fr_tools_job_cell *matrix;
    int side, group;

    bool judged; // `verdict` is known, which takes details
    struct fr_verdict verdict;
};

// Adds a file to the job; complains and returns false when it is no report, or none of this job.
bool fr_tools_job_read(struct fr_job *job, const char *name);

// Adds a zeroed element to an array whose capacity follows from its length. Returns NULL after a
// complaint if there is no memory.
void *fr_tools_append(void *array_of_pointers, size_t *count, size_t bytes);

// Adds calls of the rank that is being read. The texts stay the caller's.
bool fr_tools_job_add_site(struct fr_job *job, const struct fr_tools_job_site *site);
// Makes waiting of the time in the MPI library, `ns` of the calls of a function.
void fr_tools_job_move_wait(struct fr_job *job, const char *name, uint64_t ns);
void fr_tools_job_sort_sites(struct fr_job *job); // those that took longest come first
void fr_tools_job_free_sites(struct fr_job *job);

// Sorts, and says whether the ranks fit together.
bool fr_tools_job_finish(struct fr_job *job);

// Returns whether the files of ranks were read. Complains of a summary alone, in file `name`.
bool fr_tools_job_is_detailed(const struct fr_job *job, const char *name);
void fr_tools_job_free(struct fr_job *job);
void fr_tools_job_sum(const struct fr_job *job,
                      struct fr_tools_job_totals paths[FR_TOOLS_JOB_PATHS]);

// Merges traces into one file, of which the last `most` events stay, as many of each rank.
bool fr_trace_merge(char *const *names, size_t count, size_t most, const char *output);

// The page; `other` is a job to compare with, or NULL.
void fr_page_write(FILE *out, const struct fr_job *job, const struct fr_job *other);

// The verdict as lines of text.
void fr_text_write(FILE *out, const struct fr_job *job);

// Its parts.
void fr_page_verdict(FILE *out, const struct fr_job *job);
void fr_page_compare(FILE *out, const struct fr_job *job, const struct fr_job *other);
void fr_page_job(FILE *out, const struct fr_job *job);
void fr_page_paths(FILE *out, const struct fr_job *job);
void fr_page_advice(FILE *out, const struct fr_job *job);
void fr_page_matrix(FILE *out, const struct fr_job *job);
void fr_page_sizes(FILE *out, const struct fr_job *job);
void fr_page_functions(FILE *out, const struct fr_job *job);
void fr_page_sites(FILE *out, const struct fr_job *job);
void fr_page_comms(FILE *out, const struct fr_job *job);
void fr_page_ranks(FILE *out, const struct fr_job *job);
void fr_page_rails(FILE *out, const struct fr_job *job);
void fr_page_warnings(FILE *out, const struct fr_job *job);

// Parts of rows of tables: where time went as a bar, its legend, and bytes a second of the time
// that was no waiting.
void fr_page_split(FILE *out, const struct fr_tools_job_totals *totals, uint64_t longest);
void fr_page_time_legend(FILE *out);
void fr_page_rate(FILE *out, const struct fr_tools_job_totals *totals);

// Text for HTML, and a number as people read it that knows its exact value; `key` names it, for
// scripts and tests, and may be NULL.
void fr_html_text(FILE *out, const char *text);
void fr_html_number(FILE *out, enum fr_unit unit, uint64_t value, const char *key, ...)
    FR_PRINTF(4, 5);

#endif
