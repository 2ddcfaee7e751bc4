// SPDX-License-Identifier: BSD-3-Clause
// Module report tells what was done with the device buffers of this process, why, and how long it
// took. It does so as text, as JSON (doc/report.schema.json), as a trace and as NVTX ranges. All of
// it is off, and costs a load, unless a setting or an attached tool asks for it.
//
// A call that Fabrail serves is counted between fr_report_call_begin and fr_report_call_end, and
// its buffers by fr_report_buffer in between. Each thread has counters of its own, so that no
// thread waits for another.
#ifndef FR_FABRAIL_REPORT_H
#define FR_FABRAIL_REPORT_H

#include "fabrail/abi.h"
#include "fabrail/device.h"
#include "fabrail/policy.h"

// One device buffer of a call.
struct fr_report_buffer {
    enum fr_fn fn;            // the function that the application has called
    enum fr_policy_path path; // the path that the buffer took
    const char *scheme;       // static text, NULL for none
    enum fr_device_kind kind;
    uint64_t in_bytes;  // data that the call reads
    uint64_t out_bytes; // data that the call writes
    const char *reason; // the policy's, static text
    bool posted;        // an earlier call posted it, and this call may have nothing to do with it
    unsigned label;     // of its communicator, for calls that name none; 0 for none

    // The call that names the ranks to which the bytes go, its arguments as the application gave
    // them, and the position of the buffer among them. `args` is NULL where that is not known.
    enum fr_fn call;
    const fr_word *args;
    unsigned arg;
};

// True if a setting or a tool asks for any report. Written once, by fr_report_start, and read
// without a lock.
extern FR_OWN bool fr_report_on;

// Reads the settings. Called when the MPI library is found, before any other function of this
// module.
void fr_report_start(void);

// Facts of the job that the report has besides the counters.
struct fr_report_job {
    bool mpi_gpu_aware;
    int hosts;                 // 0 until they are counted
    int cliques;               // groups of GPUs with NVLink across hosts
    const char *fabric_memory; // whether the process can allocate it, as fr_device_fabric_text says
    size_t workspace_peak_bytes; // of device memory; known at the end
    // Copies of data with gaps: by kernels, by the driver and by the CPU. Known at the end.
    struct fr_report_typed {
        uint64_t copies, bytes;
    } by_kernel, by_driver, by_cpu;
    // Copies that the CPU made itself by apertures, out of device memory and into it, and the last
    // way by which it did. Known at the end. The way is NULL for none.
    struct fr_report_typed cpu_read, cpu_written;
    const char *cpu_way;
};

// Called just before the real MPI's start. Notes which signals the application does not handle
// itself.
void fr_report_before_init(void);
// Called just after the real MPI's start, with what is known of the job by then. Installs handlers
// for the noted signals, so that a process which dies leaves a report. The MPI library's own
// actions on a signal still happen. Removes reports that an earlier job has left under the same
// names.
void fr_report_after_init(const struct fr_report_job *job);

// Notes that a session begins. A process that calls no MPI_Init writes its report when it exits.
void fr_report_session_begin(void);
// Notes that a session has ended, with what is known of the process by then.
void fr_report_session_end(const struct fr_report_job *job);

// Returns a label of the communicator that the calling thread's call names. Called by
// fr_report_call_label alone.
unsigned fr_report_find_label(void);
// Returns a label of the communicator that the calling thread's call names, 0 for none and without
// a report. It means something to fr_report_buffer, also when the communicator is gone.
static inline unsigned fr_report_call_label(void)
{
    return FR_UNLIKELY(fr_report_on) ? fr_report_find_label() : 0;
}

// Counts a buffer of the call that the calling thread is in. Called by fr_report_buffer alone.
void fr_report_count_buffer(const struct fr_report_buffer *buffer);
// Counts a buffer of the call that the calling thread is in, if a report is asked for.
static inline void fr_report_buffer(const struct fr_report_buffer *buffer)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_count_buffer(buffer);
}

// Counts the calling thread's call for a path and a communicator's label if it has none yet. Used
// for a call that has to do with a buffer of that path which an earlier call counted, or a later
// one will.
void fr_report_touch(enum fr_policy_path path, unsigned label);

// Begins a call. Called by fr_report_call_begin alone.
void fr_report_begin(enum fr_fn fn, uintptr_t site, const fr_word *args);
// Ends a call. Called by fr_report_call_end alone.
void fr_report_end(void);
// Counts the wait for a message. Called by fr_report_waited alone.
void fr_report_count_wait(int rank);
// Says that the calling thread's call has just learned of a message whose bytes are still to be
// moved: its time in the real MPI so far was spent waiting for `rank` of MPI_COMM_WORLD, or for
// several if that is -1.
static inline void fr_report_waited(int rank)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_count_wait(rank);
}

// Notes a message for the trace. Called by fr_report_message alone.
void fr_report_trace_message(bool leaves, int sender, uint64_t number);
// Says that a message that an RTS announces leaves this process in the calling thread's call, or
// has come. `sender` is a rank of MPI_COMM_WORLD, and `number` tells the message from its others.
static inline void fr_report_message(bool leaves, int sender, uint64_t number)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_trace_message(leaves, sender, number);
}

// Says that the calling thread begins to serve a call of `fn` that returns to `site`, if a report
// is asked for. `args` is not read after the end of the call, and may be NULL.
static inline void fr_report_call_begin(enum fr_fn fn, uintptr_t site, const fr_word *args)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_begin(fn, site, args);
}
// Says that the calling thread has served its call, if a report is asked for.
static inline void fr_report_call_end(void)
{
    if (FR_UNLIKELY(fr_report_on))
        fr_report_end();
}

// One NIC of this process, for the report. Bytes are counted by the process that moves them: it
// reads them from another process or writes them there.
struct fr_report_rail {
    const char *name;
    _Atomic uint64_t sent_bytes;     // written
    _Atomic uint64_t received_bytes; // read
    // the part of received_bytes that went straight into device memory
    _Atomic uint64_t device_bytes;
    _Atomic uint64_t stripes;
    _Atomic bool lost;
};
// Gives the report the rails of this process. The array stays the caller's and must live until
// MPI_Finalize.
void fr_report_rails(const struct fr_report_rail *rails, unsigned count);

// Returns whether this process gives what it has counted to rank 0 at the end.
bool fr_report_gathers(void);

// Writes the report to where FABRAIL_REPORT says, and the trace. Called just before the real
// MPI_Finalize. A report is written once. Where the facts of module job say that all processes
// gather, this is collective, and rank 0 finds the verdict of the job.
void fr_report_write(const struct fr_report_job *job);
// Writes the report and the trace when MPI_Abort is called.
void fr_report_write_abort(void);

// Combines the files that the ranks have written into one, on rank 0. Called after the real
// MPI_Finalize, which all ranks have reached. Waits two seconds at most.
void fr_report_summarise(void);

#endif
