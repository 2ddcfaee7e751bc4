// SPDX-License-Identifier: BSD-3-Clause
// How load.c asks a personality, one object built from personality.c for each MPI family.
#ifndef FR_REAL_PERSONALITY_H
#define FR_REAL_PERSONALITY_H

#include "real/real.h"

// Looks up a data symbol of the MPI library, which a handle of the loader's stands for: Open MPI's
// handles are addresses of its objects.
typedef void *fr_real_finder(void *library, const char *symbol);

// Fills `mpi`. Returns false when a symbol is missing, so that the library is not of this family.
bool fr_real_personality_openmpi(fr_real_finder *find, void *library,
                                 struct fr_real_personality *mpi);
bool fr_real_personality_mpich(fr_real_finder *find, void *library,
                               struct fr_real_personality *mpi);
bool fr_real_personality_abi(fr_real_finder *find, void *library, struct fr_real_personality *mpi);

#endif
