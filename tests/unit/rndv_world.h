// SPDX-License-Identifier: BSD-3-Clause
// Functions that tests of module rndv have in place of module job, other than who is there: no
// NVLink between hosts, and no MPI.
#ifndef FR_TESTS_UNIT_RNDV_WORLD_H
#define FR_TESTS_UNIT_RNDV_WORLD_H

#include "fabrail/job.h"

int fr_job_clique_count(void)
{
    return 0;
}

bool fr_job_is_partner(int rank)
{
    (void)rank;
    return false;
}

void fr_job_progress(void)
{
}

// No MPI: nothing goes to other hosts but by the test.
fr_word fr_job_comm(void)
{
    return fr_abi_mpi.COMM_NULL;
}

#endif
