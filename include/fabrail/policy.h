// SPDX-License-Identifier: BSD-3-Clause
// Module policy: decisions as pure functions of facts, of which the path of a buffer is one. It
// knows neither MPI nor CUDA, so every decision can be replayed from recorded facts.
#ifndef FR_FABRAIL_POLICY_H
#define FR_FABRAIL_POLICY_H

#include "fabrail/core.h"

enum fr_policy_path {
    FR_PATH_PASS,   // the real MPI gets the application's pointer
    FR_PATH_HOST,   // the real MPI gets a copy in host memory
    FR_PATH_FABRIC, // the real MPI gets a copy in fabric-allocated workspace
    FR_PATH_PEER,   // moved by Fabrail over NVLink; both ends, or all ranks of a collective, know
    FR_PATH_RAIL,   // moved by Fabrail over all NICs; both ends know
    FR_PATH_REFUSE, // no path is correct: an MPI error
    FR_PATH_COUNT,
};

// Facts about one buffer of one call.
struct fr_policy_facts {
    bool device_memory;     // the buffer is memory that a plain MPI must not be given
    bool stageable;         // the function's buffers can be staged
    bool mpi_gpu_aware;     // MPI or the user says so
    bool function_gpu_safe; // MPI's manual does not exclude this function from its GPU support
    unsigned paths;         // FR_PATH_BIT_*, what the user allows

    // The members below count only if the MPI library may be given device memory.
    bool fabric_allocated;         // the buffer itself is exportable as a fabric handle
    enum fr_fabric_use fabric_use; // FABRAIL_FABRIC
    bool multi_node_nvlink; // another host of the communicator is in reach of multi-node NVLink
    bool fabric_workspace;  // workspace is fabric-allocated, and has room
};

struct fr_policy_choice {
    enum fr_policy_path path;
    const char *reason; // for the report and the log, static text
};

// Returns the path of a buffer. Depends on the facts alone.
struct fr_policy_choice fr_policy_choose(const struct fr_policy_facts *facts);
// Returns the name of a path for the report and the log, static text.
const char *fr_policy_path_name(enum fr_policy_path path);

// The pieces of a copy of a datatype in device memory, as far as they were counted. Counting may
// stop beyond FR_POLICY_FEW_CALLS where only a kernel is asked about, and beyond
// FR_POLICY_MOST_CALLS in any case, since no copy takes so many calls.
enum { FR_POLICY_FEW_CALLS = 8, FR_POLICY_MOST_CALLS = 256 };
struct fr_policy_pieces {
    size_t calls;  // of the driver, one for each regular piece
    size_t blocks; // contiguous ones
    size_t bytes;
};

// Says whether one kernel makes the copy, in place of these calls.
struct fr_policy_packing {
    bool by_kernel;
    const char *reason; // static text
};
struct fr_policy_packing fr_policy_choose_packing(const struct fr_policy_pieces *pieces);

// Returns whether the host gets blocks sooner by one copy of all that they span than by a kernel
// that writes them over the bus.
bool fr_policy_copies_gaps(const struct fr_policy_pieces *pieces, size_t span_bytes);

// Returns whether the CPU packs the pieces sooner than the driver copies them, where there is no
// kernel. It packs `bytes` bytes on the host, after a copy of all of `span_bytes`.
bool fr_policy_packs_on_host(const struct fr_policy_pieces *pieces, size_t span_bytes,
                             size_t bytes);

#endif
