// SPDX-License-Identifier: BSD-3-Clause
// A halo exchange between device work of the application. In each step every rank overwrites a
// field on its GPU and waits for that. Then it exchanges a row with both neighbours of a ring by
// MPI_Irecv, MPI_Isend and MPI_Waitall. Where there are more ranks than GPUs they share some and
// take turns. It prints the microseconds of a step with and without the exchange, medians of the
// slowest rank. Every row is verified.
//
//   halo [BYTES-A-ROW [BYTES-OF-FIELD [KIND]]]
//
// To compare paths, start it again with another FABRAIL_PATHS.
#include "config.h"

#include "../programs/memory.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 300, WARM_UP = 20, ROWS = 4 };
enum row { TO_LOWER, TO_UPPER, FROM_LOWER, FROM_UPPER };

struct run {
    int rank, lower, upper;
    size_t row_bytes, field_bytes;
    struct memory field, rows[ROWS];
    unsigned char *host;
    int (*set)(unsigned long long address, unsigned char value, size_t bytes);
    int (*wait)(void *stream);
};

static void demand(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "halo: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char value_of(int rank, int step, enum row row)
{
    return (unsigned char)(rank * 50 + step * 3 + (int)row + 1);
}

static void work(struct run *run, int step)
{
    bool well = run->set((uintptr_t)run->field.address, (unsigned char)step, run->field_bytes) == 0;
    for (int row = TO_LOWER; row <= TO_UPPER; row++)
        well = well && run->set((uintptr_t)run->rows[row].address,
                                value_of(run->rank, step, (enum row)row), run->row_bytes) == 0;
    demand(well && run->wait(NULL) == 0, "the device refuses work");
}

static void exchange(struct run *run)
{
    MPI_Request requests[ROWS];
    MPI_Status statuses[ROWS]; // gcc 12 takes MPICH's MPI_STATUSES_IGNORE for an array without room
    int count = (int)run->row_bytes;
    MPI_Irecv(run->rows[FROM_LOWER].address, count, MPI_BYTE, run->lower, TO_UPPER, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Irecv(run->rows[FROM_UPPER].address, count, MPI_BYTE, run->upper, TO_LOWER, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Isend(run->rows[TO_LOWER].address, count, MPI_BYTE, run->lower, TO_LOWER, MPI_COMM_WORLD,
              &requests[2]);
    MPI_Isend(run->rows[TO_UPPER].address, count, MPI_BYTE, run->upper, TO_UPPER, MPI_COMM_WORLD,
              &requests[3]);
    MPI_Waitall(ROWS, requests, statuses);
}

static void verify_row(struct run *run, enum row row, unsigned char value)
{
    memory_read(&run->rows[row], 0, run->host, run->row_bytes);
    for (size_t i = 0; i < run->row_bytes; i++)
        demand(run->host[i] == value, "a row is wrong");
}

static int compare(const void *first, const void *second)
{
    double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

static double time_of(struct run *run, bool exchanges)
{
    double us[STEPS];
    for (int step = -WARM_UP; step < STEPS; step++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        work(run, step);
        if (exchanges)
            exchange(run);
        if (step >= 0)
            us[step] = (MPI_Wtime() - start) * 1e6;
        if (!exchanges)
            continue;
        verify_row(run, FROM_LOWER, value_of(run->lower, step, TO_UPPER));
        verify_row(run, FROM_UPPER, value_of(run->upper, step, TO_LOWER));
    }
    MPI_Allreduce(MPI_IN_PLACE, us, STEPS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(us, STEPS, sizeof(us[0]), compare);
    return us[STEPS / 2];
}

static const char *start(struct run *run, enum memory_kind kind)
{
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &run->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    run->lower = (run->rank + size - 1) % size;
    run->upper = (run->rank + 1) % size;
    memory_start(run->rank);
    const char *missing = memory_missing(kind);
    if (missing)
        return missing;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *set = driver ? dlsym(driver, "cuMemsetD8_v2") : NULL;
    void *wait = driver ? dlsym(driver, "cuStreamSynchronize") : NULL;
    if (!set || !wait)
        return "the driver lacks a function";
    memcpy(&run->set, &set, sizeof(set));
    memcpy(&run->wait, &wait, sizeof(wait));
    run->field = memory_new(kind, run->field_bytes);
    for (int row = 0; row < ROWS; row++)
        run->rows[row] = memory_new(kind, run->row_bytes);
    run->host = malloc(run->row_bytes);
    demand(run->host, "no memory");
    return NULL;
}

static void stop(struct run *run)
{
    free(run->host);
    for (int row = 0; row < ROWS; row++)
        memory_free(&run->rows[row]);
    memory_free(&run->field);
    memory_stop();
}

int main(int argc, char **argv)
{
    struct run run = {
        .row_bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)32 << 10,
        .field_bytes = argc > 2 ? strtoull(argv[2], NULL, 0) : (size_t)16 << 20,
    };
    enum memory_kind kind = argc > 3 ? memory_kind_named(argv[3]) : MEMORY_DEVICE;
    MPI_Init(&argc, &argv);
    const char *missing = kind == MEMORY_KINDS ? "unknown kind of memory" : start(&run, kind);
    if (missing) {
        printf("skipped: %s\n", missing);
        MPI_Finalize();
        return 77;
    }
    double alone = time_of(&run, false), both = time_of(&run, true);
    if (run.rank == 0)
        printf("%10s %14s %14s\n%10zu %14.1f %14.1f\n", "bytes/row", "work alone us",
               "and exchange us", run.row_bytes, alone, both);
    MPI_Barrier(MPI_COMM_WORLD); // before the memory of any rank goes away
    stop(&run);
    MPI_Finalize();
    return 0;
}
