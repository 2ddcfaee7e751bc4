// SPDX-License-Identifier: BSD-3-Clause
// Module report, inside: the counters of a thread, and how they come to paper.
#ifndef FR_REPORT_REPORT_INT_H
#define FR_REPORT_REPORT_INT_H

#include "fabrail/core/meter.h"
#include "fabrail/report.h"

#include <limits.h>

enum { FR_ROWS = 1024, FR_SIZE_CLASSES = 64, FR_NO_PATH = FR_PATH_COUNT };

// A counter that its thread alone writes, and anybody reads.
typedef _Atomic uint64_t fr_count;
static inline void fr_count_add(fr_count *count, uint64_t by)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + by, memory_order_relaxed);
}
static inline uint64_t fr_count_get(const fr_count *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

struct fr_cell {
    fr_count buffers;
    fr_count bytes;
};

// Function, path and kind of memory in one word, since parts that are compared together are slow
// just after they were stored apart.
#define FR_ROW_KEY(fn, path, kind) ((uint32_t)(fn) << 8 | (uint32_t)(path) << 4 | (uint32_t)(kind))
#define FR_ROW_FN(key)             ((enum fr_fn)((key) >> 8))
#define FR_ROW_PATH(key)           ((key) >> 4 & 15u)
#define FR_ROW_KIND(key)           ((key)&15u)
_Static_assert(FR_PATH_COUNT < 16 && FR_KIND_COUNT <= 16, "each takes four bits");

// What one function did by one path and scheme with one kind of memory; FR_NO_PATH and
// FR_KIND_HOST: calls without a device buffer.
struct fr_row {
    _Atomic bool taken; // the two below stand
    uint32_t key;       // FR_ROW_KEY
    const char *scheme;
    const char *_Atomic reason;
    struct fr_cell data;
    fr_count calls;
    fr_count timed_calls;
    fr_count ticks; // in the call, of which in copies and in the real MPI
    fr_count metered[FR_METER_COUNT];
};

// All of a thread. Mapped, so that what is not used takes no memory; never freed.
struct fr_slab {
    struct fr_slab *next;
    _Atomic bool used; // by a thread that lives
    struct fr_row rows[FR_ROWS];
    fr_count lost; // buffers and calls for which there was no row
    struct fr_cell sizes[FR_PATH_COUNT][FR_SIZE_CLASSES];
    struct fr_cell everyone[FR_PATH_COUNT];         // to each rank of MPI_COMM_WORLD
    struct fr_cell (*_Atomic peers)[FR_PATH_COUNT]; // by rank of MPI_COMM_WORLD
    int peer_count;
    struct fr_row *last[FR_FN_STUB_COUNT]; // row of the function that was used last
    uint16_t skip[FR_FN_STUB_COUNT];       // calls that are not timed before the next that is
    uint16_t drawn[FR_FN_STUB_COUNT];      // what that was after the last that was
};

// FABRAIL_REPORT and FABRAIL_TRACE, with the folder in which MPI was started before names without
// one. Set by fr_report_start.
extern const char *fr_report_target;
extern const char *fr_report_trace_target;

// The slabs of all threads, newest first.
struct fr_slab *fr_report_slabs(void);

// Adds what a buffer sends to the ranks that it goes to. Returns that of a message, else -1.
int fr_report_count_peers(struct fr_slab *slab, const struct fr_report_buffer *buffer);

// What a call is for the trace. `peer` is -1 for none or several.
struct fr_report_event {
    const char *name;
    const char *path; // NULL for none
    const char *scheme;
    uint64_t begin; // ticks
    uint64_t end;
    uint64_t bytes;
    int peer;
    unsigned polls; // calls in one event that have only asked, 0 for any other event
};

// The trace: starts it if FABRAIL_TRACE asks for it, adds an event, writes the file.
bool fr_report_trace_start(void);
void fr_report_trace_add(const struct fr_report_event *event);
void fr_report_trace_write(void);

// Ranges of NVTX, if a tool has been attached.
bool fr_report_nvtx_start(void);
void fr_report_nvtx_push(const char *name);
void fr_report_nvtx_pop(void);

// Text to a file by plain system calls: in a signal handler too.
struct fr_report_out {
    int fd;
    int failed;    // errno of the first write that did
    bool in_place; // the file has its name already
    size_t used;
    char *buffer;
    size_t room;
};

// Removes a file that an earlier job has left, if it is one.
void fr_report_out_remove(const char *name);

// Opens `name` with ".part" behind it; close gives it its name. Where that is a device or the like,
// it is written to as it is. False with errno set, by close to that of the first error.
bool fr_report_out_open(struct fr_report_out *out, const char *name, char *buffer, size_t room);
bool fr_report_out_close(struct fr_report_out *out, const char *name);

// Writes `format`, in which %s is text, %q text as a JSON string (null for NULL), %u a uint64_t, %i
// an int, %b a bool as JSON, and %t a uint64_t of nanoseconds as microseconds with three decimals.
void fr_report_put(struct fr_report_out *out, const char *format, ...);

// Ticks between two moments, or since the start, as nanoseconds. Signal-safe.
uint64_t fr_report_ns(uint64_t ticks);
uint64_t fr_report_start_ticks(void);
uint64_t fr_report_started_unix_ns(void);
const char *fr_report_host(void);
const char *fr_report_job_name(void);

// Writes `pattern` with every %r replaced by `rank`, or by "job" for FR_REPORT_JOB, to `name`.
// Without %r a rank's file has ".rank" and the rank behind it. False when that is too long.
#define FR_REPORT_JOB INT_MIN
bool fr_report_expand(const char *pattern, int rank, char *name, size_t room);

// How a process has ended: "finalize", "abort", "exit", "signal"; and the signal, else 0.
struct fr_report_end {
    const char *how;
    int signal;
};

// Warns that the file that a setting names `what`, with errno's reason.
void fr_report_complain(const char *setting, const char *name, const char *what);

// The JSON of this rank.
void fr_report_write_json(struct fr_report_out *out, const struct fr_report_end *end,
                          const struct fr_report_job *job);
void fr_report_write_text(const struct fr_report_job *job);

// The rows of all threads as one, in static memory; their number. One caller at a time.
struct fr_report_sum {
    enum fr_fn fn;
    unsigned path;
    const char *scheme;
    const char *reason;
    uint64_t buffers, bytes, calls, timed_calls, ns, copies_ns, mpi_ns;
};
const struct fr_report_sum *fr_report_sums(unsigned *count);

#define FR_REPORT_VERSION 1

#endif
