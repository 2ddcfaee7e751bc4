// SPDX-License-Identifier: BSD-3-Clause
// Reductions of a team of one host by its CPUs, for ranks that do not reach each other's memory.
//
// Each rank publishes its vector chunk by chunk in shared memory of this operation alone, and
// combines in rank order what it needs. No function of MPI is called, so any thread can go on with
// it. The memory has room for two chunks of each rank, whatever the size of the vectors, and
// at most 8 MiB of them; with little room in /dev/shm the chunks are short.
#ifndef FR_FABRAIL_COLL_HOST_REDUCE_H
#define FR_FABRAIL_COLL_HOST_REDUCE_H

#include "fabrail/coll/reduction.h"
#include "fabrail/job/shm.h"

// Where a program has a vector or a result.
struct fr_coll_place {
    struct fr_device_range range;
    uintptr_t address;
};

// One rank's part. The caller writes the first members.
struct fr_coll_host_reduce {
    const struct fr_coll_reduce *reduce; // form, row and elements
    struct fr_coll_place vector;
    struct fr_coll_place result; // unused where the rank gets none
    bool receives;
    uint64_t number; // of the operation, alike on all ranks; the team has no other one of it
    // Written by the functions below.
    struct fr_job_shm shm;
    struct fr_job_secret secret;
    bool is_open;
    void *sum;
    size_t chunk_bytes, chunk_elements, chunks; // alike on all ranks; known when the memory is open
    struct fr_wait lack;                        // the wait for memory
    int64_t retry_ns;
    struct fr_wait time; // the wait for other ranks
    int64_t looked_ns;
    unsigned looks;
};

// Goes on as far as is possible without waiting for another rank. Begins with the first call, for
// which `host` is zeros but for what the caller has written. Sets *over when it is over. Returns
// FR_OK until then, and the result of the operation with it. The work of the program on vector and
// result must be over. The caller has the team in hand.
FR_MUST_CHECK enum fr_status fr_coll_host_reduce_progress(struct fr_coll_team *team,
                                                          struct fr_coll_host_reduce *host,
                                                          bool *over);

// Gives memory back, also of a reduction that has not begun or is not over.
void fr_coll_host_reduce_end(const struct fr_coll_team *team, struct fr_coll_host_reduce *host);

#endif
