// SPDX-License-Identifier: BSD-3-Clause
// The world of a test that is rank 0 and plays rank 1: both take messages over rails, on two hosts
// without NVLink between them.
#ifndef FR_TESTS_UNIT_RNDV_TWO_RANKS_H
#define FR_TESTS_UNIT_RNDV_TWO_RANKS_H

#include "rndv_world.h"

int fr_world_rank(void)
{
    return 0;
}

int fr_world_size(void)
{
    return 2;
}

const struct fr_world_facts *fr_world_facts_of(int rank)
{
    static const struct fr_world_facts facts = {.takes_rts = 1, .rails = 1};
    return rank >= 0 && rank < 2 ? &facts : NULL;
}

#endif
