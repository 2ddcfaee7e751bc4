// SPDX-License-Identifier: BSD-3-Clause
// Datatypes for the test of module datatype: made by hand to hit each constructor, and at random.
#ifndef FR_TESTS_MPI_DATATYPE_TYPES_H
#define FR_TESTS_MPI_DATATYPE_TYPES_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// MPICH's MPI_STATUSES_IGNORE is the address 1, which gcc takes for an array that is too short.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

// A committed datatype. `groups` is the most groups that its layout may have; a huge one has no
// buffer, only figures.
struct sample {
    const char *name;
    MPI_Datatype type;
    bool derived; // to be freed
    bool huge;
    size_t groups;
};

// Makes the sample of this index, false past the last one.
bool sample_make(int index, struct sample *sample);

// A predefined datatype fit to be part of a random one.
MPI_Datatype sample_basic(int index);

// A committed datatype nested `depth` deep, of a span that a test can afford. Always derived.
MPI_Datatype random_type(uint64_t *state, int depth);

// True for datatypes that must be freed.
bool type_is_derived(MPI_Datatype type);

// Gives up a datatype that another was made of; leaves predefined ones alone.
void type_drop(MPI_Datatype type);

#endif
