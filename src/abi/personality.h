// SPDX-License-Identifier: BSD-3-Clause
// The interface by which load.c asks a personality. Each MPI family has one object file, built from
// personality.c.
#ifndef FR_ABI_PERSONALITY_H
#define FR_ABI_PERSONALITY_H

#include "fabrail/abi.h"

// Looks up a data symbol of the MPI library. `library` is the loader's handle of it. Open MPI's
// handles are addresses of its objects. Returns NULL where there is no such symbol.
typedef void *fr_abi_finder(void *library, const char *symbol);

// Fill `mpi` with what the family's mpi.h says. Return false when a symbol is missing, so that the
// library is not of this family.
bool fr_abi_personality_openmpi(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);
bool fr_abi_personality_mpich(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);
bool fr_abi_personality_abi(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);

#endif
