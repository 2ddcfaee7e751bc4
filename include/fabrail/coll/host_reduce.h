// SPDX-License-Identifier: BSD-3-Clause
// Reductions of a team of one host by its CPUs (host.h). Each rank combines a share of the vectors
// in rank order, or its own part of a scattered result.
#ifndef FR_FABRAIL_COLL_HOST_REDUCE_H
#define FR_FABRAIL_COLL_HOST_REDUCE_H

#include "fabrail/coll/host.h"
#include "fabrail/coll/reduction.h"

// One rank's part. The caller writes all but the last member and most of the first; the rest are
// zeros.
struct fr_coll_host_reduce {
    struct fr_coll_host host;
    const struct fr_coll_reduce *reduce; // form, row and elements
    struct fr_coll_place vector;
    struct fr_coll_place result; // unused where the rank gets none
    bool receives;
    unsigned char *scratch;
    size_t combined; // pairs of elements, by this rank
};

// Goes on as fr_coll_host_progress does.
FR_MUST_CHECK enum fr_status fr_coll_host_reduce_progress(struct fr_coll_team *team,
                                                          struct fr_coll_host_reduce *host,
                                                          bool *over);

// Gives memory back, also of a reduction that has not begun or is not over.
void fr_coll_host_reduce_end(const struct fr_coll_team *team, struct fr_coll_host_reduce *host);

#endif
