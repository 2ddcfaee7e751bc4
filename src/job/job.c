// SPDX-License-Identifier: BSD-3-Clause
// This process's rank in MPI_COMM_WORLD, and its size.
#include "config.h"

#include "fabrail/job.h"

struct fr_job_world fr_job_world = {.rank = -1, .size = -1};

void fr_job_note(void)
{
    int rank = -1, size = -1;
    if (!fr_abi_has_world() || FR_MPI(Comm_rank, fr_abi_mpi.COMM_WORLD, FR_PTR(&rank)) ||
        FR_MPI(Comm_size, fr_abi_mpi.COMM_WORLD, FR_PTR(&size)))
        return;
    fr_job_world.rank = rank;
    fr_job_world.size = size;
}
