// SPDX-License-Identifier: BSD-3-Clause
// The content of an MPI family's mpi.h as data. This file is compiled once for each family, with
// that family's header and one of FR_PERSONALITY_OPENMPI, FR_PERSONALITY_MPICH, FR_PERSONALITY_ABI.
// Nothing here refers to a symbol of an MPI library at link time.
#include "config.h"

#include "abi/personality.h"

#if defined(FR_PERSONALITY_ABI)
#include "abi/mpi5.h"
#else
#include <mpi.h>
#endif

#if defined(FR_PERSONALITY_OPENMPI)
#define FR_FAMILY              "Open MPI"
#define FR_PERSONALITY_FILL    fr_abi_personality_openmpi
#define FR_HANDLE_WORD(name)   ((fr_word)(name))
#define FR_STATUS_BYTES_OFFSET ((int)offsetof(MPI_Status, _ucount))
// Open MPI's predefined handles are addresses in its library, which the header takes at link time.
// From here on they are looked up in the library that the process really has.
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) ((type)find_global(find, library, #global, &complete))
#elif defined(FR_PERSONALITY_MPICH)
#define FR_FAMILY              "MPICH"
#define FR_PERSONALITY_FILL    fr_abi_personality_mpich
#define FR_HANDLE_WORD(name)   ((fr_word)(uint32_t)(name))
// The count is two words of 32 bits. The higher one is shifted by the bit of cancelled receives.
#define FR_STATUS_BYTES_OFFSET ((int)offsetof(MPI_Status, count_lo))
#else
#define FR_FAMILY              "MPI ABI"
#define FR_PERSONALITY_FILL    fr_abi_personality_abi
#define FR_HANDLE_WORD(name)   ((fr_word)(name))
#define FR_STATUS_BYTES_OFFSET (-1)
#endif
#define MPI_TWOINT MPI_2INT
// Some versions of mpi.h lack these.
#ifndef MPI_LOGICAL1
#define MPI_LOGICAL1 MPI_DATATYPE_NULL
#define MPI_LOGICAL2 MPI_DATATYPE_NULL
#define MPI_LOGICAL4 MPI_DATATYPE_NULL
#define MPI_LOGICAL8 MPI_DATATYPE_NULL
#endif

#if defined(FR_PERSONALITY_OPENMPI)
static void *find_global(fr_abi_finder *find, void *library, const char *symbol, bool *complete)
{
    void *address = find(library, symbol);
    if (!address)
        *complete = false;
    return address;
}
#endif

bool FR_PERSONALITY_FILL(fr_abi_finder *find, void *library, struct fr_abi_personality *mpi)
{
    bool complete = true;
    (void)find;
    (void)library;
    mpi->family = FR_FAMILY;
    mpi->handle_bytes = sizeof(MPI_Comm);
    mpi->status_bytes = sizeof(MPI_Status);
    mpi->status_source_offset = offsetof(MPI_Status, MPI_SOURCE);
    mpi->status_tag_offset = offsetof(MPI_Status, MPI_TAG);
    mpi->status_error_offset = offsetof(MPI_Status, MPI_ERROR);
    mpi->status_bytes_offset = FR_STATUS_BYTES_OFFSET;
#define FR_HANDLE(name)  mpi->name = FR_HANDLE_WORD(MPI_##name);
#define FR_ADDRESS(name) mpi->name = (fr_word)MPI_##name;
#define FR_INT(name)     mpi->name = MPI_##name;
#include "fabrail/abi/constants.def"
    unsigned count = 0, operations = 0;
    bool complete_without = complete; // a build without Fortran may lack some
#define FR_DATATYPE(name, family) mpi->types[count++] = FR_HANDLE_WORD(MPI_##name);
#define FR_OPERATION(name)        mpi->operations[operations++] = FR_HANDLE_WORD(MPI_##name);
#include "fabrail/abi/types.def"
    return complete_without;
}
