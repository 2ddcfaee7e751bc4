// SPDX-License-Identifier: BSD-3-Clause
// Reductions of a team of one host by its CPUs (host.h). Each rank combines a share of the vectors
// in rank order, or its own part of a scattered result.
#ifndef FR_FABRAIL_COLL_HOST_REDUCE_H
#define FR_FABRAIL_COLL_HOST_REDUCE_H

#include "fabrail/coll/host.h"
#include "fabrail/coll/reduction.h"

// One rank's part.
struct fr_coll_host_reduce {
    struct fr_coll_host host;
    const struct fr_coll_reduce *reduce; // form, row and elements
    uintptr_t vector;
    uintptr_t result; // unused where the rank gets none
    bool receives;
    size_t combined; // pairs of elements, by this rank; zero at first
};

// Prepares a reduction, of which the caller has written all else.
void fr_coll_host_reduce_prepare(const struct fr_coll_team *team, struct fr_coll_host_reduce *host);

#endif
