// SPDX-License-Identifier: BSD-3-Clause
// The calls that the test of the path fabric makes on each communicator.
#ifndef TESTS_MPI_FABRIC_H
#define TESTS_MPI_FABRIC_H

#include "../programs/memory.h"

#include <mpi.h>
#include <stdbool.h>

enum {
    FABRIC_BLOCK = 9001, // bytes of a message
    FABRIC_BLOCKS = 4,   // in a buffer, so many processes at most
    FABRIC_GUARD = 64,
    FABRIC_BYTES = FABRIC_BLOCKS * FABRIC_BLOCK,
    FABRIC_ALL = FABRIC_BYTES + 2 * FABRIC_GUARD,
};

// The arguments of a call. The buffers hold the bytes of fabric_byte, from of this rank, to of rank
// FABRIC_OTHER; a call that receives writes into `want` what `to` must hold then.
enum { FABRIC_OTHER = 77 };
struct fabric_run {
    MPI_Comm comm;
    int rank, size;
    unsigned char *from, *to; // behind the guards
    unsigned char *want;      // of `to`
    const char *file;         // a name to write to
    bool gave_from, gave_to;  // by the call: MPI was given the buffer, on this rank
};

unsigned char fabric_byte(int rank, int index);

// Flags of a call: which MPIs take device memory in it, and whose processes decide the path.
enum {
    FABRIC_NOT_OPEN_MPI = 1 << 0, // Open MPI's manual does not list the function
    FABRIC_NOBODY = 1 << 1,       // it is staged through the host for every MPI
    FABRIC_WORLD = 1 << 2,        // there is no communicator: the world decides
};
struct fabric_call {
    const char *name;
    unsigned flags;
    void (*make)(struct fabric_run *run);
};
extern const struct fabric_call fabric_calls[]; // ended by one without a name

#endif
