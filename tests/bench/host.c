// SPDX-License-Identifier: BSD-3-Clause
// What a host pointer costs: nanoseconds of MPI_Send to MPI_PROC_NULL, where the MPI library does
// next to nothing, for each place that a buffer can be in, and of an 8-byte ping-pong. The script
// `run` takes the difference between runs with and without the preload.
#include "../programs/memory.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BATCHES = 31, CALLS = 20000, ROUND_TRIPS = 2000, MAPPED_BYTES = 1 << 20 };

static char static_byte[8];

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, BATCHES, sizeof *values, compare);
    return values[BATCHES / 2];
}

static double time_calls(const void *buffer)
{
    double ns[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = MPI_Wtime();
        for (int i = 0; i < CALLS; i++)
            MPI_Send(buffer, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
        ns[batch] = (MPI_Wtime() - start) / CALLS * 1e9;
    }
    return median(ns);
}

static double time_ping_pong(int rank, char *buffer)
{
    double ns[BATCHES];
    int peer = 1 - rank;
    for (int batch = 0; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; i < ROUND_TRIPS; i++) {
            if (rank == 0)
                MPI_Send(buffer, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(buffer, 8, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        }
        ns[batch] = (MPI_Wtime() - start) / ROUND_TRIPS / 2 * 1e9;
    }
    return median(ns);
}

int main(int argc, char **argv)
{
    char stack_byte[8] = "";
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *heap_byte = malloc(8);
    char *mapped =
        mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap_byte == NULL || mapped == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(mapped, 0, MAPPED_BYTES);
    memset(heap_byte, 0, 8);
    for (int with_driver = 0; with_driver < 2 && rank == 0; with_driver++) {
        const char *suffix = with_driver ? ", driver in use" : "";
        if (with_driver) {
            memory_start(0);
            if (memory_missing(MEMORY_DEVICE) != NULL)
                break;
        }
        printf("stack%s|%.2f\n", suffix, time_calls(stack_byte));
        printf("heap%s|%.2f\n", suffix, time_calls(heap_byte));
        printf("static%s|%.2f\n", suffix, time_calls(static_byte));
        printf("mapped%s|%.2f\n", suffix, time_calls(mapped + 12345));
    }
    if (size == 2) {
        double ns = time_ping_pong(rank, heap_byte);
        if (rank == 0)
            printf("8-byte ping-pong|%.2f\n", ns);
    }
    fflush(stdout);
    free(heap_byte);
    munmap(mapped, MAPPED_BYTES);
    memory_stop();
    MPI_Finalize();
    return 0;
}
