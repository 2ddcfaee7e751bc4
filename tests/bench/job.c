// SPDX-License-Identifier: BSD-3-Clause
// A whole job on host memory: MPI_Init, some calls of MPI_Alltoall, MPI_Finalize. The script `many`
// runs it with more ranks than there are cores. Rank 0 prints the milliseconds of each part.
//
//   job [COMMUNICATORS]     so many more communicators, each with one MPI_Alltoall
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BYTES = 64, CALLS = 20 };

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void use_communicators(int count, char *from, char *to)
{
    MPI_Comm *comms = calloc((size_t)count + 1, sizeof *comms);
    for (int i = 0; i < count && comms != NULL; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        MPI_Alltoall(from, BYTES, MPI_BYTE, to, BYTES, MPI_BYTE, comms[i]);
    }
    for (int i = 0; i < count && comms != NULL; i++)
        MPI_Comm_free(&comms[i]);
    free(comms);
}

int main(int argc, char **argv)
{
    int rank, size;
    double began = now_ms();
    MPI_Init(&argc, &argv);
    double started = now_ms();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *buffers = calloc(2 * (size_t)size, BYTES);
    if (buffers == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int call = 0; call < CALLS; call++)
        MPI_Alltoall(buffers, BYTES, MPI_BYTE, buffers + (size_t)size * BYTES, BYTES, MPI_BYTE,
                     MPI_COMM_WORLD);
    use_communicators(argc > 1 ? atoi(argv[1]) : 0, buffers, buffers + (size_t)size * BYTES);
    double exchanged = now_ms();
    free(buffers);
    MPI_Finalize();
    if (rank == 0)
        printf("%.1f %.1f %.1f\n", started - began, exchanged - started, now_ms() - exchanged);
    return 0;
}
