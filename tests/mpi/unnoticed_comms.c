// SPDX-License-Identifier: BSD-3-Clause
// Communicators of the application's on which nothing but its own traffic may go.
#include "unnoticed.h"

#include <stdlib.h>

// Erroneous, and passed by MPI libraries: one rank alone starts a collective operation on
// MPI_COMM_WORLD, and never completes it.
static void unmatched(int number)
{
    int *from = calloc((size_t)size, sizeof(*from)); // MPI's until the end
    static int to;
    MPI_Request request;
    (void)number;
    if (rank == 0)
        MPI_Iscatter(from, 1, MPI_INT, &to, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
}

const struct unnoticed unnoticed_comms[] = {
    {"unmatched", unmatched, false},
    {NULL, NULL, false},
};
