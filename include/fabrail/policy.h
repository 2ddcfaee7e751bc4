// SPDX-License-Identifier: BSD-3-Clause
// Module policy: which path a buffer takes, as a pure function of facts. Knows neither MPI nor
// CUDA, so every decision can be replayed from recorded facts.
#ifndef FR_FABRAIL_POLICY_H
#define FR_FABRAIL_POLICY_H

#include "fabrail/core.h"

enum fr_policy_path {
    FR_PATH_PASS,   // the real MPI gets the application's pointer
    FR_PATH_HOST,   // staged through pinned host memory
    FR_PATH_FABRIC, // copied into a fabric-allocated workspace, which the real MPI gets
    FR_PATH_PEER,   // moved by Fabrail over NVLink, as all ranks of the call have agreed
    FR_PATH_RAIL,   // moved by Fabrail over all NICs, as both ends have found out
    FR_PATH_REFUSE, // no path is correct: an MPI error
    FR_PATH_COUNT,
};

struct fr_policy_facts {
    bool device_memory;     // the buffer is memory that a plain MPI must not be given
    bool stageable;         // the function's buffers can be staged
    bool mpi_gpu_aware;     // the MPI says so, or the user does
    bool function_gpu_safe; // its manual does not exclude this function
    unsigned paths;         // FR_PATH_BIT_*, what the user allows

    // The rest is looked at only if the MPI library may be given device memory.
    bool fabric_allocated;         // the buffer itself is exportable as a fabric handle
    enum fr_fabric_use fabric_use; // FABRAIL_FABRIC
    bool multi_node_nvlink;        // this process has a partner for it in the communicator
    bool fabric_workspace;         // the workspace is fabric-allocated, and has room
};

struct fr_policy_choice {
    enum fr_policy_path path;
    const char *reason; // for the report and the log, static text
};

struct fr_policy_choice fr_policy_choose(const struct fr_policy_facts *facts);
const char *fr_policy_path_name(enum fr_policy_path path);

// Whether one kernel copies the pieces of a datatype in device memory, in place of `calls` calls of
// the driver, one for each regular piece. These are counted up to FR_POLICY_MOST_CALLS, beyond
// which nothing is copied by so many.
enum { FR_POLICY_MOST_CALLS = 256 };
bool fr_policy_packs_by_kernel(size_t calls);

#endif
