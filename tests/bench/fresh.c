// SPDX-License-Identifier: BSD-3-Clause
// Messages of device memory that is allocated for each of them, beside messages of memory that has
// been sent before. The time is from the call of MPI_Send on rank 0 until an answer of one byte has
// come, in us, without the allocation. Figures are medians. Every message is verified.
//
//   fresh [LARGEST-BYTES [KIND]]
//
// Further ranks only wait for these two.
#include "config.h"

#include "../programs/memory.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 4096, REPEATS = 31, WARM_UP = 5, TAG = 1 };

struct run {
    int rank;
    MPI_Comm pair;
    enum memory_kind kind;
    struct memory known; // memory that rank 0 sends, or into which rank 1 receives
    unsigned char *host;
    unsigned seed;
};

static void fill(struct run *run, struct memory *memory, size_t bytes)
{
    run->seed++;
    for (size_t i = 0; i < bytes; i++)
        run->host[i] = (unsigned char)(run->seed * 31 + i * 7 + (i >> 8));
    memory_write(memory, 0, run->host, bytes);
}

static void verify(struct run *run, size_t bytes)
{
    run->seed++;
    memory_read(&run->known, 0, run->host, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (run->host[i] == (unsigned char)(run->seed * 31 + i * 7 + (i >> 8)))
            continue;
        fprintf(stderr, "fresh: byte %zu of %zu is wrong\n", i, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

// Returns rank 0's time in us.
static double send_one(struct run *run, struct memory *memory, size_t bytes)
{
    char answer = 0;
    fill(run, memory, bytes);
    MPI_Barrier(run->pair);
    double start = MPI_Wtime();
    MPI_Send(memory->address, (int)bytes, MPI_BYTE, 1, TAG, run->pair);
    MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG, run->pair, MPI_STATUS_IGNORE);
    return (MPI_Wtime() - start) * 1e6;
}

static void receive_one(struct run *run, size_t bytes)
{
    char answer = 1;
    MPI_Barrier(run->pair);
    MPI_Recv(run->known.address, (int)bytes, MPI_BYTE, 0, TAG, run->pair, MPI_STATUS_IGNORE);
    MPI_Send(&answer, 1, MPI_BYTE, 0, TAG, run->pair);
    verify(run, bytes);
}

static int compare(const void *first, const void *second)
{
    double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

static double median_of(struct run *run, size_t bytes, bool fresh)
{
    double us[REPEATS];
    for (int i = -WARM_UP; i < REPEATS; i++) {
        double took = 0;
        if (run->rank == 1) {
            receive_one(run, bytes);
        } else if (fresh) {
            struct memory memory = memory_new(run->kind, bytes);
            took = send_one(run, &memory, bytes);
            memory_free(&memory);
        } else {
            took = send_one(run, &run->known, bytes);
        }
        if (i >= 0)
            us[i] = took;
    }
    qsort(us, REPEATS, sizeof(us[0]), compare);
    return us[REPEATS / 2];
}

static int measure(struct run *run, size_t largest)
{
    memory_start(run->rank);
    int missing = memory_missing(run->kind) != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, run->pair);
    if (missing) {
        printf("skipped: no %s memory\n", memory_kind_name(run->kind));
        return 77;
    }
    run->known = memory_new(run->kind, largest);
    run->host = malloc(largest);
    if (run->rank == 0)
        printf("%10s %12s %12s %7s   (%s memory)\n", "bytes", "known us", "fresh us", "ratio",
               memory_kind_name(run->kind));
    for (size_t bytes = SMALLEST; bytes <= largest; bytes *= 4) {
        double known = median_of(run, bytes, false), fresh = median_of(run, bytes, true);
        if (run->rank == 0)
            printf("%10zu %12.1f %12.1f %7.2f\n", bytes, known, fresh, fresh / known);
        fflush(stdout);
    }
    free(run->host);
    memory_free(&run->known);
    memory_stop();
    return 0;
}

int main(int argc, char **argv)
{
    struct run run = {.kind = argc > 2 ? memory_kind_named(argv[2]) : MEMORY_DEVICE};
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)256 << 20;
    int size = 0, status = 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 3 || run.kind == MEMORY_KINDS || largest < SMALLEST || largest > (size_t)1 << 30) {
        if (run.rank == 0)
            fprintf(stderr, "usage: fresh [LARGEST-BYTES [KIND]]\n");
    } else if (size < 2) {
        printf("skipped: two ranks are needed\n");
        status = 77;
    } else {
        MPI_Comm_split(MPI_COMM_WORLD, run.rank < 2 ? 0 : MPI_UNDEFINED, 0, &run.pair);
        if (run.rank < 2) {
            status = measure(&run, largest);
            MPI_Comm_free(&run.pair);
        }
        MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return status;
}
