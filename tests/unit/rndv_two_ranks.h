// SPDX-License-Identifier: BSD-3-Clause
// The world of a test that is rank 0 and plays rank 1, or all others: they take messages over
// rails, on hosts of their own without NVLink between them.
#ifndef FR_TESTS_UNIT_RNDV_TWO_RANKS_H
#define FR_TESTS_UNIT_RNDV_TWO_RANKS_H

#include "rndv_world.h"

#ifndef RNDV_RANKS
#define RNDV_RANKS 2
#endif

int fr_job_rank(void)
{
    return 0;
}

int fr_job_size(void)
{
    return RNDV_RANKS;
}

const struct fr_job_facts *fr_job_facts_of(int rank)
{
    static const struct fr_job_facts facts = {.takes_rts = 1, .rails = 1};
    return rank >= 0 && rank < RNDV_RANKS ? &facts : NULL;
}

#endif
