// SPDX-License-Identifier: BSD-3-Clause
// The counters of a thread, and how they are written out. Private to module report.
#ifndef FR_REPORT_REPORT_INT_H
#define FR_REPORT_REPORT_INT_H

#include "fabrail/core/meter.h"
#include "fabrail/report.h"
#include "fabrail/report/verdict.h"
#include "report/count.h"
#include "report/sites.h"

#include <limits.h>

enum { FR_ROWS = 1024, FR_SIZE_CLASSES = 64, FR_NO_PATH = FR_PATH_COUNT };

// Buffers and their bytes.
struct fr_cell {
    fr_count buffers;
    fr_count bytes;
};

// Function, path and kind of memory of a row in one word. Parts that are compared together are slow
// just after they were stored apart.
#define FR_ROW_KEY(fn, path, kind) ((uint32_t)(fn) << 8 | (uint32_t)(path) << 4 | (uint32_t)(kind))
#define FR_ROW_FN(key)             ((enum fr_fn)((key) >> 8))
#define FR_ROW_PATH(key)           ((key) >> 4 & 15u)
#define FR_ROW_KIND(key)           ((key)&15u)
_Static_assert(FR_PATH_COUNT < 16 && FR_KIND_COUNT <= 16, "each takes four bits");

// Counters of one function by one path and scheme with one kind of memory. FR_NO_PATH with
// FR_KIND_HOST counts calls without a device buffer.
struct fr_row {
    _Atomic bool taken; // key and scheme are set
    uint32_t key;       // FR_ROW_KEY
    const char *scheme;
    const char *_Atomic reason;
    struct fr_cell data;
    fr_count calls;
    fr_count timed_calls;
    fr_count ticks;                   // spent in timed calls
    fr_count metered[FR_METER_COUNT]; // the parts of them that the meter knows
};

// Counters of one thread. A slab is mapped memory, so that parts not used take no memory. It is
// never freed.
struct fr_slab {
    struct fr_slab *next;
    _Atomic bool used; // a live thread has it
    struct fr_row rows[FR_ROWS];
    fr_count lost; // buffers and calls for which there was no row
    struct fr_cell sizes[FR_PATH_COUNT][FR_SIZE_CLASSES];
    struct fr_cell everyone[FR_PATH_COUNT];         // data that goes to each rank of MPI_COMM_WORLD
    struct fr_cell (*_Atomic peers)[FR_PATH_COUNT]; // by rank of MPI_COMM_WORLD
    fr_count *_Atomic waits; // ticks spent waiting for it, by rank of MPI_COMM_WORLD
    int peer_count;
    struct fr_sites sites;
    struct fr_row *last[FR_FN_STUB_COUNT]; // row that each function used last
    // calls of each function to leave out before the next that is timed
    uint16_t skip[FR_FN_STUB_COUNT];
    uint16_t drawn[FR_FN_STUB_COUNT]; // what `skip` was set to after the last timed call
};

// Values of FABRAIL_REPORT and FABRAIL_TRACE. Relative names have the folder in front in which MPI
// was started. Set by fr_report_start.
extern FR_OWN const char *fr_report_target;
extern FR_OWN const char *fr_report_trace_target;

// Returns the slabs of all threads, the newest first.
struct fr_slab *fr_report_slabs(void);

// Adds what a buffer sends to the counters of the ranks that it goes to. Returns the rank for a
// message, else -1.
int fr_report_count_peers(struct fr_slab *slab, const struct fr_report_buffer *buffer);

// Adds ticks to the wait for a rank of MPI_COMM_WORLD.
void fr_report_count_wait_for(struct fr_slab *slab, int rank, uint64_t ticks);

// One event of the trace. Texts are static.
struct fr_report_event {
    const char *name;
    const char *path; // NULL for none
    const char *scheme;
    uint64_t begin; // ticks
    uint64_t end;
    uint64_t bytes;
    int peer;       // rank, -1 for none or several
    unsigned polls; // number of calls that only asked, joined in this event; 0 for any other event
    // The end of an arrow that this is, if any: of the message of rank `peer` that is numbered
    // `bytes`.
    enum { FR_REPORT_NO_ARROW, FR_REPORT_ARROW_BEGINS, FR_REPORT_ARROW_ENDS } arrow;
};

// Starts the trace if FABRAIL_TRACE asks for it. Returns whether it does.
bool fr_report_trace_start(void);
// Adds an event to the trace.
void fr_report_trace_add(const struct fr_report_event *event);
// Makes waiting for a rank, or for several if that is -1, of the calling thread's time in the MPI
// library since `begin`.
void fr_report_trace_waited(uint64_t begin, int rank);
// Writes the trace's file.
void fr_report_trace_write(void);

// Starts NVTX ranges. Returns whether a tool is attached.
bool fr_report_nvtx_start(void);
// Begins a range of this name on the calling thread.
void fr_report_nvtx_push(const char *name);
// Ends the calling thread's innermost range.
void fr_report_nvtx_pop(void);

// Returns ticks, between two moments or since the start, as nanoseconds. Signal-safe.
uint64_t fr_report_ns(uint64_t ticks);
// Returns the ticks at the start of the report. The first call sets the start, before any function
// below to fr_report_job_name.
uint64_t fr_report_start_ticks(void);
// Returns the time of the start, in nanoseconds since 1970.
uint64_t fr_report_started_unix_ns(void);
// Returns the name of this host.
const char *fr_report_host(void);
// Returns the launcher's name of the job.
const char *fr_report_job_name(void);
// Return the rank in MPI_COMM_WORLD and its size; the launcher's numbers in a process that has only
// sessions.
int fr_report_rank(void);
int fr_report_size(void);

// Stands in place of a rank for the file of the whole job.
#define FR_REPORT_JOB INT_MIN
// Writes `pattern` to `name` with every %r replaced by `rank`, or by "job" for FR_REPORT_JOB. If
// the pattern has no %r, ".rank" and the rank are put behind a rank's file. Returns false if the
// name is too long.
bool fr_report_expand(const char *pattern, int rank, char *name, size_t room);

// How a process has ended: "finalize", "abort", "exit" or "signal", and the number of the signal,
// else 0.
struct fr_report_end {
    const char *how;
    int signal;
};

// Warns of the file that a setting names. `what` says what could not be done; errno has the reason.
void fr_report_complain(const char *setting, const char *name, const char *what);

struct fr_report_out;
// Writes the JSON of this rank.
void fr_report_write_json(struct fr_report_out *out, const struct fr_report_end *end,
                          const struct fr_report_job *job);
// Writes the report as lines of the log.
void fr_report_write_text(const struct fr_report_job *job);

// Counters of one row, added up over all threads.
struct fr_report_sum {
    enum fr_fn fn;
    unsigned path;
    const char *scheme;
    const char *reason;
    uint64_t buffers, bytes, calls, timed_calls, ns, copies_ns, mpi_ns, wait_ns;
};
// Adds up the rows of all threads. The next functions tell what it has found.
void fr_report_sum_up(void);
// Returns the sums in the order of their functions, and writes their number.
const struct fr_report_sum *fr_report_sums(unsigned *count);
// Returns the time from the start to fr_report_sum_up.
uint64_t fr_report_wall_ns(void);
// Returns how long this rank has waited for messages of a rank.
uint64_t fr_report_waited_ns(int rank);
// Returns a row's time that is neither in copies, nor in the real MPI, nor a wait.
uint64_t fr_report_sum_within(const struct fr_report_sum *sum);

// Writes how many rails this process has, and how many of them it has lost.
void fr_report_count_rails(uint32_t *count, uint32_t *lost);

// Gives this rank's sums to rank 0, which finds the verdict. Collective where all processes gather.
void fr_report_gather(void);
// Returns a line of the verdict, NULL beyond the last or where there is none.
const char *fr_report_verdict_line(unsigned line);

// Return the program's command line and the GPUs of this machine, as they were when MPI had
// started. NULL if they are unknown.
const char *fr_report_command(void);
const char *fr_report_gpu(void);
// Finds out both.
void fr_report_look_around(void);

#define FR_REPORT_VERSION 1

#endif
