// SPDX-License-Identifier: BSD-3-Clause
// What tests of room rndv have in place of room world, but for who there is: no NVLink between
// hosts, and no MPI.
#ifndef FR_TESTS_UNIT_RNDV_WORLD_H
#define FR_TESTS_UNIT_RNDV_WORLD_H

#include "world/world.h"

int fr_world_clique_count(void)
{
    return 0;
}

bool fr_world_is_partner(int rank)
{
    (void)rank;
    return false;
}

void fr_world_progress(void)
{
}

// No MPI: nothing goes to other hosts but by the test.
fr_word fr_world_comm(void)
{
    return fr_real_mpi.COMM_NULL;
}

#endif
