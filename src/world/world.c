// SPDX-License-Identifier: BSD-3-Clause
// Rank and size in the world.
#include "config.h"

#include "world/world.h"

static int world_rank = -1;
static int world_size = -1;

void fr_world_note(void)
{
    int started = 0, ended = 0, rank = -1, size = -1;
    FR_MPI(Initialized, FR_PTR(&started));
    FR_MPI(Finalized, FR_PTR(&ended));
    if (!started || ended)
        return;
    if (FR_MPI(Comm_rank, fr_real_mpi.COMM_WORLD, FR_PTR(&rank)) ||
        FR_MPI(Comm_size, fr_real_mpi.COMM_WORLD, FR_PTR(&size)))
        return;
    world_rank = rank;
    world_size = size;
}

int fr_world_rank(void)
{
    return world_rank;
}

int fr_world_size(void)
{
    return world_size;
}

// A probe that finds something may see to nothing else, hence a tag that hardly any program uses.
void fr_world_progress(void)
{
    enum { UNUSED_TAG = 32767 }; // the highest that every MPI has
    int flag = 0;
    FR_MPI(Iprobe, (fr_word)fr_real_mpi.ANY_SOURCE, UNUSED_TAG, fr_real_mpi.COMM_SELF,
           FR_PTR(&flag), fr_real_mpi.STATUS_IGNORE);
}
