// SPDX-License-Identifier: BSD-3-Clause
// Device buffers in calls that a GPU-aware MPI takes itself and in calls that its manual excludes.
// The report says which path each took; here only the bytes are verified. Two ranks. Speaks TAP.
//
//   aware FILE      the calls; rank 0 writes FILE
//   aware --query   prints what MPIX_Query_cuda_support answers
#include "../programs/memory.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 2, BYTES = 30011, GUARD = 64, ALL = RANKS * BYTES + 2 * GUARD, UNTOUCHED = 0x3c };

static struct memory given, got;
static unsigned char image[ALL];
static int rank;
static int number;
static int failures;

static unsigned char byte_of(int owner, int index)
{
    return (unsigned char)(owner * 113 + index * 11 + index / 253);
}

static void empty(void)
{
    memset(image, UNTOUCHED, ALL);
    memory_write(&got, 0, image, ALL);
}

// Behind the guard are `blocks` blocks: the one that each rank, or rank `owner`, sent to `to`.
static void check(const char *call, int blocks, int owner, int to)
{
    int wrong = -1;
    memory_read(&got, 0, image, ALL);
    for (int at = 0; at < ALL && wrong < 0; at++) {
        int block = (at - GUARD) / BYTES;
        unsigned char expected = UNTOUCHED;
        if (at >= GUARD && block < blocks)
            expected = byte_of(owner < 0 ? block : owner, to * BYTES + (at - GUARD) % BYTES);
        if (image[at] != expected)
            wrong = at;
    }
    if (rank == 0)
        printf("%s %d - %s\n", wrong < 0 ? "ok" : "not ok", ++number, call);
    if (wrong >= 0)
        printf("# rank %d: byte %d of %s is wrong\n", rank, wrong - GUARD, call);
    fflush(stdout);
    failures += wrong >= 0;
}

static void exchange(const char *file_name)
{
    unsigned char *from = given.address + GUARD, *to = got.address + GUARD;
    MPI_Request request;
    MPI_File file;
    empty();
    if (rank == 0)
        MPI_Send(from, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(to, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check("Send and Recv", rank == 1, 0, 0);
    empty();
    MPI_Alltoall(from, BYTES, MPI_BYTE, to, BYTES, MPI_BYTE, MPI_COMM_WORLD);
    check("Alltoall", RANKS, -1, rank);
    empty();
    MPI_Ialltoall(from, BYTES, MPI_BYTE, to, BYTES, MPI_BYTE, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("Ialltoall", RANKS, -1, rank);
    empty();
    if (rank == 0) {
        MPI_File_open(MPI_COMM_SELF, file_name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                      &file);
        MPI_File_write_at(file, 0, from, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, 0, to, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
    }
    check("File_write_at and File_read_at", rank == 0, 0, 0);
}

static void print_query(void)
{
    int (*query)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    if (rank == 0 && query)
        printf("cuda %d\n", query());
    else if (rank == 0)
        printf("cuda absent\n");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(what, "--query") == 0) {
        print_query();
        MPI_Finalize();
        return 0;
    }
    memory_start(rank);
    given = memory_new(MEMORY_DEVICE, ALL);
    got = memory_new(MEMORY_DEVICE, ALL);
    for (int i = 0; i < ALL; i++)
        image[i] = byte_of(rank, i - GUARD);
    memory_write(&given, 0, image, ALL);
    exchange(what);
    memory_free(&given);
    memory_free(&got);
    memory_stop();
    MPI_Finalize();
    if (rank == 0)
        printf("1..%d\n", number);
    return failures != 0;
}
