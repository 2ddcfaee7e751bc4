// SPDX-License-Identifier: BSD-3-Clause
// The content of each MPI family's mpi.h as data, from the family's table. contrib/mpi-table makes
// the tables, and compares them with every mpi.h that is installed where Fabrail is tested.
#include "config.h"

#include "abi/personality.h"

// Returns whether every handle is known that every release of a family has.
static bool has_handles(const struct fr_abi_personality *mpi)
{
    const fr_word handles[] = {
#define FR_HANDLE(name) mpi->name,
#define FR_ADDRESS(name)
#define FR_INT(name)
#include "fabrail/abi/constants.def"
#undef FR_HANDLE
#undef FR_ADDRESS
#undef FR_INT
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(handles); i++) {
        if (!handles[i])
            return false;
    }
    return true;
}

#define FR_VALUE(member, value)   mpi->member = value;
#define FR_SYMBOL(member, symbol) mpi->member = (fr_word)find(library, #symbol);

bool fr_abi_personality_openmpi(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi)
{
    mpi->family = "Open MPI";
#include "abi/openmpi.def"
    return has_handles(mpi);
}

void fr_abi_personality_mpich(struct fr_abi_personality *mpi)
{
    mpi->family = "MPICH";
#include "abi/mpich.def"
}

void fr_abi_personality_abi(struct fr_abi_personality *mpi)
{
    mpi->family = "MPI ABI";
#include "abi/mpi5.def"
}
