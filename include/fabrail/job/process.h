// SPDX-License-Identifier: BSD-3-Clause
// Processes of a job, as they know each other, and secrets that they share.
//
// All functions may be called by several threads at once.
#ifndef FR_FABRAIL_JOB_PROCESS_H
#define FR_FABRAIL_JOB_PROCESS_H

#include "fabrail/abi.h"

// A process, as all others know it. Plain bytes.
struct fr_job_process {
    uint64_t cookie; // drawn at random, since a process id can come back. Known to the job alone;
                     // 0 means no process
    uint64_t host;   // equal for processes that share a kernel, in whichever container
    int32_t pid;
    uint32_t pid_namespace; // in which `pid` holds; 0 unknown
};
_Static_assert(sizeof(struct fr_job_process) == 24, "no padding");

// Returns this process. The bytes stay valid until exit; a process keeps its cookie.
const struct fr_job_process *fr_job_control_self(void);

// Returns the process that has told these facts about itself.
struct fr_job_facts;
struct fr_job_process fr_job_process_from(const struct fr_job_facts *facts);

// Returns whether both are the same process.
static inline bool fr_job_control_is_same(const struct fr_job_process *a,
                                          const struct fr_job_process *b)
{
    return a->cookie == b->cookie;
}

// Returns false if a process of this host is known to be gone. Returns true as well where that
// cannot be known.
bool fr_job_process_is_alive(const struct fr_job_process *process);

// A secret, known to those alone that it was given to.
struct fr_job_secret {
    unsigned char bytes[16];
};

// Draws a secret from the kernel. Returns FR_ERR_UNSUPPORTED if it has no random bytes.
FR_MUST_CHECK enum fr_status fr_job_secret_draw(struct fr_job_secret *secret);

// Returns another secret, made from `secret` for one use (SipHash-2-4). `use` holds at most 64
// bytes that stand for that use. So a name that others can list gives nothing away of `secret`.
struct fr_job_secret fr_job_secret_derive(const struct fr_job_secret *secret, const void *use,
                                          size_t bytes);

#endif
