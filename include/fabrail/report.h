// SPDX-License-Identifier: BSD-3-Clause
// Module report: what was done with the device buffers of this process, why, and how long it took:
// as text, as JSON (doc/report.schema.json), as a trace and as ranges of NVTX. All of it is off,
// and costs a load, unless a setting or an attached tool asks for it.
//
// A call that Fabrail serves is counted between fr_report_call_begin and fr_report_call_end, its
// buffers by fr_report_buffer in between. Counters belong to the thread, so that nobody waits.
#ifndef FR_FABRAIL_REPORT_H
#define FR_FABRAIL_REPORT_H

#include "fabrail/abi.h"
#include "fabrail/device.h"
#include "fabrail/policy.h"

// One device buffer of a call.
struct fr_report_buffer {
    enum fr_fn fn;            // the function that the application has called
    enum fr_policy_path path; // that the buffer took
    const char *scheme;       // static text, NULL for none
    enum fr_device_kind kind;
    uint64_t in_bytes; // data that the call reads and writes
    uint64_t out_bytes;
    const char *reason; // the policy's, static text
    bool posted;        // by an earlier call, which this one may have nothing to do with

    // Where the bytes go: the call that names the ranks, its arguments as the application gave
    // them, and which of them the buffer is. NULL where that is not known.
    enum fr_fn call;
    const fr_word *args;
    unsigned arg;
};

// Whether anything is asked for. Read without a lock; written once, by fr_report_start.
extern bool fr_report_on;

// Reads the settings. Called when the MPI library is found, before any other function here.
void fr_report_start(void);

// What the report says of the job besides the counters.
struct fr_report_job {
    bool mpi_gpu_aware;
    int hosts;                   // 0 while nobody asked
    int cliques;                 // groups of GPUs with NVLink across hosts
    const char *fabric_memory;   // whether the process can allocate it
    size_t workspace_peak_bytes; // of device memory; known at the end
};

// Around the real MPI's start, so that a process which dies leaves a report: signals that the
// application handles itself are left alone, and what the MPI library does of them still happens.
void fr_report_before_init(void);
void fr_report_after_init(const struct fr_report_job *job);

void fr_report_count_buffer(const struct fr_report_buffer *buffer);
static inline void fr_report_buffer(const struct fr_report_buffer *buffer)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_count_buffer(buffer);
}

// Says that the call has to do with a buffer of this path, which an earlier call counted.
void fr_report_touch(enum fr_policy_path path);

void fr_report_begin(enum fr_fn fn);
void fr_report_end(void);
static inline void fr_report_call_begin(enum fr_fn fn)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_begin(fn);
}
static inline void fr_report_call_end(void)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_end();
}

// One NIC of this process, for the report; the array lives until MPI_Finalize. Bytes are counted by
// the process that moves them: it reads them from another one, or writes them there.
struct fr_report_rail {
    const char *name;
    _Atomic uint64_t sent_bytes;     // written
    _Atomic uint64_t received_bytes; // read
    _Atomic uint64_t device_bytes;   // of those read, straight into device memory
    _Atomic uint64_t stripes;
    _Atomic bool lost;
};
void fr_report_rails(const struct fr_report_rail *rails, unsigned count);

// Writes the report to where FABRAIL_REPORT says, and the trace. Once: before the real
// MPI_Finalize, or when MPI_Abort is called.
void fr_report_write(const struct fr_report_job *job);
void fr_report_write_abort(void);

// Makes one file of what the ranks have written, on rank 0; after the real MPI_Finalize, which all
// of them have come to. Waits two seconds at most.
void fr_report_summarise(void);

#endif
