// SPDX-License-Identifier: BSD-3-Clause
// A sender that is killed in the middle of a message in fragments, in a job that goes on without
// it: the receive ends with an error.
#include "../programs/memory.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { BYTES = 32 << 20, CONNECTS = 3, TAG = 5, GIVEN_US = 500000 };

int main(int argc, char **argv)
{
    int rank, code = MPI_SUCCESS;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    for (int i = 0; i < CONNECTS; i++) {
        if (rank == 0)
            MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(memory.address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Request request;
        MPI_Isend(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        usleep(GIVEN_US); // in no call
        raise(SIGKILL);
    }
    code = MPI_Recv(memory.address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        printf("the receive has ended with an error\n");
    fflush(stdout);
    _exit(0); // MPI_Finalize may wait for the other rank
}
