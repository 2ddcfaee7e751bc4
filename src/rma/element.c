// SPDX-License-Identifier: BSD-3-Clause
// Predefined datatypes and operations by numbers that all processes have alike. Handles may be
// addresses, which differ between processes.
#include "config.h"

#include "rma/remote_access.h"

enum { NUMBER_OF_NONE = 1 << 16, REPLACES = FR_OPERATIONS };

// Datatypes that kernels do not reduce, behind those of fr_abi_mpi.types.
static fr_word wide_type(uint32_t i)
{
    return i == 0   ? fr_abi_mpi.LONG_DOUBLE
           : i == 1 ? fr_abi_mpi.C_LONG_DOUBLE_COMPLEX
                    : fr_abi_mpi.LONG_DOUBLE_INT;
}
enum { WIDE_TYPES = 3 };

uint32_t fr_rma_element_index(fr_word type)
{
    for (uint32_t i = 0; i < FR_DATATYPES; i++) {
        if (fr_abi_mpi.types[i] == type)
            return i;
    }
    for (uint32_t i = 0; i < WIDE_TYPES; i++) {
        if (wide_type(i) == type)
            return FR_DATATYPES + i;
    }
    return NUMBER_OF_NONE;
}

bool fr_rma_element_from(uint32_t index, fr_word *type)
{
    *type = index < FR_DATATYPES                ? fr_abi_mpi.types[index]
            : index < FR_DATATYPES + WIDE_TYPES ? wide_type(index - FR_DATATYPES)
                                                : fr_abi_mpi.DATATYPE_NULL;
    return index < FR_DATATYPES + WIDE_TYPES || index == NUMBER_OF_NONE;
}

uint32_t fr_rma_operation_index(fr_word operation)
{
    return operation == fr_abi_mpi.REPLACE ? (uint32_t)REPLACES
                                           : (uint32_t)fr_abi_operation_of(operation);
}

bool fr_rma_operation_from(uint32_t index, fr_word *operation)
{
    *operation = index < FR_OPERATIONS ? fr_abi_mpi.operations[index] : fr_abi_mpi.REPLACE;
    return index <= REPLACES;
}
