// SPDX-License-Identifier: BSD-3-Clause
// Reductions and scans among the GPUs of a team. Each rank pulls a slice of all ranks' vectors, and
// combines it in rank order in one kernel. It pushes the result to the ranks that want it. So all
// ranks get the same bits, and vectors may be reduced where they are.
#ifndef FR_FABRAIL_COLL_REDUCTION_H
#define FR_FABRAIL_COLL_REDUCTION_H

#include "fabrail/coll/task.h"
#include "fabrail/device/reduce.h"
#include "fabrail/policy/coll_plan.h"

// The form of a reduction: which ranks get which part of the result.
enum fr_coll_form {
    FR_COLL_TO_ALL,
    FR_COLL_TO_ROOT,
    FR_COLL_SCATTERED, // each rank gets a part of the result
    FR_COLL_SCAN,
    FR_COLL_EXCLUSIVE_SCAN,
};

// One rank's part.
struct fr_coll_reduce {
    const char *call; // for messages
    enum fr_coll_form form;
    enum fr_reduce_row row;
    int root;         // with FR_COLL_TO_ROOT, else 0
    size_t elements;  // of the whole vector
    size_t own_first; // with FR_COLL_SCATTERED: where this rank's part begins
    size_t own_elements;
    bool is_queued;                    // on all ranks: the calls do not wait for it
    bool is_synced;                    // the program's work on its memory is over
    struct fr_coll_slot send;          // the vector
    struct fr_coll_slot receive;       // where this rank gets its result, if it gets any
    struct fr_coll_buffer read;        // memory of the vector
    struct fr_coll_buffer written;     // memory of the result
    struct fr_device_range mover;      // the device that this rank works with
    struct fr_coll_copy before, after; // copies if vector or result are in workspace (copies.h)
    // Written by fr_coll_reduce_begin.
    size_t element_bytes;
    bool is_shared;               // the ranks share the work
    struct fr_policy_slice slice; // what this rank combines
    struct fr_coll_slot slots[FR_COLL_ACCESSES];
    struct fr_device_reduction work; // what this rank's kernel does
    bool is_kept; // where ranks deliver: the slab has this rank's own bytes once more
};

// Returns whether a team is small enough for the kernel.
bool fr_coll_reduce_serves(const struct fr_coll_team *team);

// Begins a reduction. A result may be in the vector's memory only where it has the same elements.
// Task and reduction are the caller's, and must stay until the task is over.
void fr_coll_reduce_begin(struct fr_coll_task *task, struct fr_coll_team *team,
                          struct fr_coll_reduce *reduce);

#endif
