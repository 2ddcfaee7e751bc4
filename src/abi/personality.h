// SPDX-License-Identifier: BSD-3-Clause
// How load.c asks a personality, one object built from personality.c for each MPI family.
#ifndef FR_ABI_PERSONALITY_H
#define FR_ABI_PERSONALITY_H

#include "fabrail/abi.h"

// Looks up a data symbol of the MPI library, which a handle of the loader's stands for: Open MPI's
// handles are addresses of its objects.
typedef void *fr_abi_finder(void *library, const char *symbol);

// Fills `mpi`. Returns false when a symbol is missing, so that the library is not of this family.
bool fr_abi_personality_openmpi(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);
bool fr_abi_personality_mpich(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);
bool fr_abi_personality_abi(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);

#endif
