// SPDX-License-Identifier: BSD-3-Clause
// The verdict of a job: what its time in MPI with device buffers went to, whom the ranks waited
// for, and what to do about it. The library judges what its ranks have counted, the command what
// they have written. Both do it here, so that they say the same.
#ifndef FR_FABRAIL_REPORT_VERDICT_H
#define FR_FABRAIL_REPORT_VERDICT_H

#include "fabrail/core/site.h"
#include "fabrail/policy.h"

enum {
    FR_VERDICT_ROWS = 32,   // of a rank; what has no room is in the last one
    FR_VERDICT_AWAITED = 4, // ranks that a rank has waited for most
    FR_VERDICT_NAME_BYTES = 40,
    FR_VERDICT_SITES = 8, // call sites of a rank that took longest
    FR_VERDICT_COMM_BYTES = 48,
    FR_VERDICT_TOPICS = 11,
    FR_VERDICT_LINES = 15,
    FR_VERDICT_LINE_BYTES = 192,
};

// Why a row of a report went the way that it took. Texts may be NULL, except the name.
struct fr_verdict_reason {
    const char *name; // of the function
    const char *scheme;
    const char *reason;
    enum fr_policy_path path;
    bool has_buffers;
};
// Returns the topic of advice for it, -1 if there is nothing to say.
int fr_verdict_topic(const struct fr_verdict_reason *row);
// Return static texts of a topic: what it is, what to do in a line, and the whole advice.
const char *fr_verdict_topic_title(int topic);
const char *fr_verdict_topic_brief(int topic);
const char *fr_verdict_topic_advice(int topic);

// Time of the calls of one function by one path. Plain data, like the next struct: ranks send it
// as bytes.
struct fr_verdict_row {
    char name[FR_VERDICT_NAME_BYTES];
    int32_t path;  // enum fr_policy_path
    int32_t topic; // -1 for none
    uint64_t calls, bytes;
    uint64_t fabrail_ns, copies_ns, mpi_ns, wait_ns;
};

// Calls of one function at one place on communicators of one name and size.
struct fr_verdict_site {
    char where[FR_SITE_TEXT_BYTES]; // as fr_core_site_text says it
    char name[FR_VERDICT_NAME_BYTES];
    char comm[FR_VERDICT_COMM_BYTES]; // empty for none
    int32_t comm_ranks;               // 0 if the communicator is unknown
    uint32_t unused;
    uint64_t ns, wait_ns;
};

// Counts and times of a rank.
struct fr_verdict_rank {
    int32_t rank; // in MPI_COMM_WORLD
    uint32_t rails;
    uint32_t rails_lost;
    uint32_t row_count;
    uint64_t wall_ns; // from start to end
    struct {
        int64_t rank; // that it waited for
        uint64_t ns;  // 0 for none
    } awaited[FR_VERDICT_AWAITED];
    struct fr_verdict_row rows[FR_VERDICT_ROWS];
    struct fr_verdict_site sites[FR_VERDICT_SITES]; // unused ones have an `ns` of 0
};

// Adds time of calls to a rank. Equal calls in equal order give equal ranks. Calls by no path are
// left out.
void fr_verdict_add_row(struct fr_verdict_rank *rank, const struct fr_verdict_reason *why,
                        const struct fr_verdict_row *row);
// Adds the calls of one place. Only those that took longest stay. Equal calls in equal order give
// equal ranks.
void fr_verdict_add_site(struct fr_verdict_rank *rank, const struct fr_verdict_site *site);
// Adds a wait for another rank. Called once for each, in the order of ranks.
void fr_verdict_add_wait(struct fr_verdict_rank *rank, int awaited, uint64_t ns);

enum { FR_VERDICT_LATE = 4, FR_VERDICT_SLOWEST = 3, FR_VERDICT_DEEDS = 3 };

// Something to do.
struct fr_verdict_deed {
    uint64_t ns; // that it would spare at most, of all ranks together
    int topic;   // -1: it is about the late ranks
};

// The verdict of a job. Times are sums over all ranks.
struct fr_verdict {
    int size;  // of the job
    int ranks; // that are judged
    uint64_t longest_ns, wall_ns;
    uint64_t ns; // in MPI calls with device buffers: the sum of the next four
    uint64_t wait_ns, copies_ns, wire_ns, fabrail_ns;
    uint64_t calls, bytes;
    uint64_t path_bytes[FR_PATH_COUNT];
    unsigned rails, rails_lost;
    int late[FR_VERDICT_LATE]; // ranks that the others waited for, the worst first
    unsigned late_count;       // 0 if none stand out
    struct fr_verdict_row slowest[FR_VERDICT_SLOWEST]; // without their waits, the slowest first
    unsigned slowest_count;
    struct fr_verdict_site site; // that took longest of all, with its waits; `ns` is 0 for none
    struct fr_verdict_deed deeds[FR_VERDICT_DEEDS]; // what spares most comes first
    unsigned deed_count;
};

// Judges the ranks that are known of a job of `size` ranks. Time in collectives of the MPI library
// that a rank has spent beyond the quickest rank becomes waiting in `ranks`. Returns false without
// memory.
bool fr_verdict_judge(struct fr_verdict_rank *ranks, int count, int size,
                      struct fr_verdict *verdict);

// Writes the verdict in one sentence.
void fr_verdict_sentence(const struct fr_verdict *verdict, char text[FR_VERDICT_LINE_BYTES]);
// Writes a thing to do and what it would spare, in a line.
void fr_verdict_deed_text(const struct fr_verdict *verdict, const struct fr_verdict_deed *deed,
                          char text[FR_VERDICT_LINE_BYTES]);
// Writes the verdict as lines whose columns are aligned. The second is the sentence.
void fr_verdict_lines(const struct fr_verdict *verdict,
                      char lines[FR_VERDICT_LINES][FR_VERDICT_LINE_BYTES]);
// Writes a communicator, such as "MPI_COMM_WORLD of 4 ranks". `name` may be empty.
void fr_verdict_comm_text(const char *name, int ranks, char text[FR_VERDICT_LINE_BYTES]);
// Writes the late ranks, such as "ranks 3 and 5", or "one another" if none stand out.
void fr_verdict_late_text(const struct fr_verdict *verdict, char text[FR_VERDICT_LINE_BYTES]);

#endif
