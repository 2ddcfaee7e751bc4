// SPDX-License-Identifier: BSD-3-Clause
// Inside of room world: what its files share.
#ifndef FR_WORLD_WORLD_INT_H
#define FR_WORLD_WORLD_INT_H

#include "world/world.h"

// The ranks in MPI_COMM_WORLD of all processes on other hosts that are in this process's clique.
// Written at MPI_Init and MPI_Finalize alone; returns their number, 0 while facts are unknown.
int fr_world_partners(const int **ranks);

// Makes and gives back the keyvals under which answers are remembered.
void fr_world_clique_start(void);
void fr_world_clique_release(void);

// Makes the communicator of Fabrail's own unless it is there, collectively, and frees it.
bool fr_world_comm_make(void);
void fr_world_comm_free(void);

#endif
