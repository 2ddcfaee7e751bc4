// SPDX-License-Identifier: BSD-3-Clause
// The cost of fabric workspace: a call that copies in, or in and out, and moves nothing else, on
// one rank, beside raw device copies of the same bytes. It wants FABRAIL_FABRIC=force and
// FABRAIL_MPI_GPU_AWARE=yes. Any MPI will do, since it is given pointers and looks at none of the
// bytes.
//
//   fabric [LARGEST-BYTES [KIND]]
#include "../programs/memory.h"
#include "rows.h"

#include <cuda.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 201 };

static struct {
    __typeof__(cuMemcpyAsync) *copy;
    __typeof__(cuStreamCreate) *stream_create;
    __typeof__(cuStreamSynchronize) *synchronize;
} driver;

struct bench {
    struct memory user, other;
    CUstream stream;
};
typedef void call(struct bench *bench, size_t bytes);

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static CUdeviceptr pointer(const struct memory *memory)
{
    return (CUdeviceptr)(uintptr_t)memory->address;
}

static void raw_copy(struct bench *bench, size_t bytes)
{
    driver.copy(pointer(&bench->other), pointer(&bench->user), bytes, bench->stream);
    driver.synchronize(bench->stream);
}

static void two_raw_copies(struct bench *bench, size_t bytes)
{
    raw_copy(bench, bytes);
    raw_copy(bench, bytes);
}

// Copies in: the only rank is the root, whose buffer is read and sent to nobody.
static void call_in(struct bench *bench, size_t bytes)
{
    MPI_Bcast(bench->user.address, (int)bytes, MPI_BYTE, 0, MPI_COMM_SELF);
}

// Copies in and out: the only rank keeps its own block, which lies where it belongs.
static void call_in_and_out(struct bench *bench, size_t bytes)
{
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_BYTE, bench->user.address, (int)bytes, MPI_BYTE,
                 MPI_COMM_SELF);
}

static double time_of(struct bench *bench, call *timed, size_t bytes)
{
    double us[MOST_REPEATS];
    int repeats = bytes <= ((size_t)4 << 20) ? MOST_REPEATS : 51;
    for (int i = -3; i < repeats; i++) {
        double start = MPI_Wtime();
        timed(bench, bytes);
        if (i >= 0)
            us[i] = (MPI_Wtime() - start) * 1e6;
    }
    qsort(us, (size_t)repeats, sizeof *us, compare);
    return us[repeats / 2];
}

static void run_sizes(struct bench *bench, size_t largest)
{
    printf("%12s %10s %10s %8s %10s %10s %8s\n", "bytes", "copy us", "in us", "ratio", "copies us",
           "in+out us", "ratio");
    for (size_t bytes = 8; bytes <= largest; bytes *= bytes < 1024 ? 16 : 4) {
        double one = time_of(bench, raw_copy, bytes);
        double in = time_of(bench, call_in, bytes);
        double two = time_of(bench, two_raw_copies, bytes);
        double both = time_of(bench, call_in_and_out, bytes);
        printf("%12zu %10.1f %10.1f %8.2f %10.1f %10.1f %8.2f\n", bytes, one, in, in / one, two,
               both, both / two);
        rows_put("fabric workspace", bytes, "raw copy", "us", one);
        rows_put("fabric workspace", bytes, "call in", "us", in);
        rows_put("fabric workspace", bytes, "two raw copies", "us", two);
        rows_put("fabric workspace", bytes, "call in and out", "us", both);
    }
}

static int bind_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (handle == NULL)
        return 0;
    driver.copy = (__typeof__(cuMemcpyAsync) *)dlsym(handle, "cuMemcpyAsync");
    driver.stream_create = (__typeof__(cuStreamCreate) *)dlsym(handle, "cuStreamCreate");
    driver.synchronize = (__typeof__(cuStreamSynchronize) *)dlsym(handle, "cuStreamSynchronize");
    return driver.copy && driver.stream_create && driver.synchronize;
}

int main(int argc, char **argv)
{
    struct bench bench = {.stream = NULL};
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)256 << 20;
    enum memory_kind kind = argc > 2 ? memory_kind_named(argv[2]) : MEMORY_DEVICE;
    MPI_Init(&argc, &argv);
    memory_start(0);
    const char *missing = kind == MEMORY_KINDS ? "unknown kind of memory" : memory_missing(kind);
    if (missing == NULL && !bind_driver())
        missing = "the driver lacks a function";
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        MPI_Finalize();
        return 77;
    }
    driver.stream_create(&bench.stream, CU_STREAM_NON_BLOCKING);
    bench.user = memory_new(kind, largest);
    bench.other = memory_new(MEMORY_DEVICE, largest);
    run_sizes(&bench, largest);
    memory_free(&bench.other);
    memory_free(&bench.user);
    memory_stop();
    MPI_Finalize();
    return 0;
}
