// SPDX-License-Identifier: BSD-3-Clause
// Declarations that the files of the test of module datatype share.
#ifndef FR_TESTS_MPI_DATATYPE_TEST_H
#define FR_TESTS_MPI_DATATYPE_TEST_H

#include "datatype_types.h"

#include "fabrail/datatype.h"

extern const char *current; // name of the datatype under test, for messages
extern uint64_t data_seed;  // of all data and all random datatypes

static inline fr_word word_of(MPI_Datatype type)
{
    return fr_abi_handle((fr_word)type);
}

static inline MPI_Datatype type_of(fr_word word)
{
    return (MPI_Datatype)word;
}

int size_of(MPI_Datatype type);

// Checks the layout of a datatype in every way, for counts from 0 to 3. `signature` says whether
// the datatype can be taken apart with MPI_Type_get_contents, else only its basic elements are
// counted.
void check_type(MPI_Datatype type, uint64_t *state, bool signature);

// Checks that failed in there, so far.
unsigned check_type_failures(void);

#endif
