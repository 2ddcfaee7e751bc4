// SPDX-License-Identifier: BSD-3-Clause
// For programs that count the calls of the simulated driver, and end the job where they are wrong.
#ifndef FR_TESTS_MPI_COUNTED_H
#define FR_TESTS_MPI_COUNTED_H

#include "../sim/calls.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int rank; // in MPI_COMM_WORLD
static frsim_calls_fn *calls;

static inline void must(int right, const char *text, long long found)
{
    if (right)
        return;
    fprintf(stderr, "rank %d: %s: %lld\n", rank, text, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Finds the simulated driver, which the program uses already. Ends the job with a real one.
static inline void must_count(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&calls = driver ? dlsym(driver, "frsim_calls") : NULL;
    must(calls != NULL, "the driver is not the simulated one", 0);
}

#endif
