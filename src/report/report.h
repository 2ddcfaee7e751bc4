// SPDX-License-Identifier: BSD-3-Clause
// Room report: what was done with the device buffers of this process and why, as text or JSON.
#ifndef FR_REPORT_REPORT_H
#define FR_REPORT_REPORT_H

#include "device/device.h"
#include "policy/policy.h"
#include "real/real.h"

// Counts one device buffer of a call: the path that it took, the data bytes that the call reads and
// writes, and the policy's reason (static text). A few relaxed atomic additions.
void fr_report_count(enum fr_fn fn, enum fr_policy_path path, enum fr_device_kind kind,
                     size_t bytes, const char *reason);

// Counts a buffer that was counted under `from` when its call began under `to` instead.
void fr_report_recount(enum fr_fn fn, enum fr_policy_path from, enum fr_policy_path to,
                       enum fr_device_kind kind, size_t bytes, const char *reason);

// What the report says of the job besides the counters.
struct fr_report_job {
    bool mpi_gpu_aware;
    int hosts;                   // 0 while nobody asked
    int cliques;                 // groups of GPUs with NVLink across hosts
    const char *fabric_memory;   // whether the process can allocate it
    size_t workspace_peak_bytes; // of device memory
};

// Writes the report to where FABRAIL_REPORT says; "%r" in a file name becomes the rank. Once.
void fr_report_write(const struct fr_report_job *job);

#endif
