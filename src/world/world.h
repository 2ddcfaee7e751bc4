// SPDX-License-Identifier: BSD-3-Clause
// Room world: who this process is among the processes of its job.
#ifndef FR_WORLD_WORLD_H
#define FR_WORLD_WORLD_H

#include "real/real.h"

// Notes rank and size of MPI_COMM_WORLD, if MPI has it (a job that only uses sessions does not).
void fr_world_note(void);

// -1 until noted.
int fr_world_rank(void);
int fr_world_size(void);

#endif
