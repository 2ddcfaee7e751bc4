// SPDX-License-Identifier: BSD-3-Clause
// Predefined datatypes and operations, told by their handles.
#include "config.h"

#include "fabrail/abi.h"

static const unsigned char families[] = {
#define FR_DATATYPE(name, family) FR_FAMILY_##family,
#define FR_OPERATION(name)
#include "fabrail/abi/types.def"
#undef FR_DATATYPE
#undef FR_OPERATION
};
_Static_assert(FR_ARRAY_LENGTH(families) == FR_DATATYPES, "a family each");

// A datatype that this MPI lacks has the null handle in the table, which has no family.
enum fr_abi_family fr_abi_family_of(fr_word type)
{
    for (unsigned i = 0; i < FR_DATATYPES; i++) {
        if (fr_abi_mpi.types[i] == type)
            return type == fr_abi_mpi.DATATYPE_NULL ? FR_FAMILY_NONE : families[i];
    }
    return FR_FAMILY_NONE;
}

bool fr_abi_type_is_pair(fr_word type)
{
    return type == fr_abi_mpi.FLOAT_INT || type == fr_abi_mpi.DOUBLE_INT ||
           type == fr_abi_mpi.LONG_INT || type == fr_abi_mpi.SHORT_INT ||
           type == fr_abi_mpi.TWOINT || type == fr_abi_mpi.LONG_DOUBLE_INT;
}

enum fr_abi_operation fr_abi_operation_of(fr_word operation)
{
    unsigned i = 0;
    while (i < FR_OPERATIONS && fr_abi_mpi.operations[i] != operation)
        i++;
    return (enum fr_abi_operation)i;
}
