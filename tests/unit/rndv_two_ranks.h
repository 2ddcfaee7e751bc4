// SPDX-License-Identifier: BSD-3-Clause
// The world of a test that is rank 0 and plays rank 1, or all others: they take messages over
// rails, on hosts of their own without NVLink between them.
#ifndef FR_TESTS_UNIT_RNDV_TWO_RANKS_H
#define FR_TESTS_UNIT_RNDV_TWO_RANKS_H

#include "rndv_world.h"

#ifndef RNDV_RANKS
#define RNDV_RANKS 2
#endif

static const struct fr_job_facts rndv_facts[] = {
    [0 ... RNDV_RANKS - 1] = {.takes_rts = 1, .rails = 1},
};
struct fr_job_world fr_job_world = {.rank = 0, .size = RNDV_RANKS, .facts = rndv_facts};

#endif
