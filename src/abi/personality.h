// SPDX-License-Identifier: BSD-3-Clause
// The interface by which load.c asks for a personality: what the mpi.h of an MPI family says.
#ifndef FR_ABI_PERSONALITY_H
#define FR_ABI_PERSONALITY_H

#include "fabrail/abi.h"

// Looks up a data symbol of the MPI library. `library` is the loader's handle of it. Returns NULL
// where there is no such symbol.
typedef void *fr_abi_finder(void *library, const char *symbol);

// Fills `mpi` for Open MPI, whose handles are addresses of objects in its library. Returns false
// when one of them is missing, so that the library is not of this family.
bool fr_abi_personality_openmpi(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi);

// Fill `mpi` for the MPICH family and for the MPI 5 standard ABI, whose handles are numbers.
void fr_abi_personality_mpich(struct fr_abi_personality *mpi);
void fr_abi_personality_abi(struct fr_abi_personality *mpi);

#endif
