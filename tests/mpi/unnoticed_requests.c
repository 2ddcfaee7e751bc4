// SPDX-License-Identifier: BSD-3-Clause
// Many requests at once, and error handlers that do not return.
#include "unnoticed.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { BYTES = 1 << 16, TAG = 3, DEPTH = 20, FRAME_BYTES = 4096 };

// So many that work which is quadratic in their number takes longer than any test may.
static void many(int number)
{
    enum { SMALL = 40, SLOTS = 32 };
    MPI_Request *requests = malloc((size_t)number * sizeof(MPI_Request));
    struct memory memory = memory_new(MEMORY_DEVICE, 2 * SLOTS * SMALL);
    must(requests != NULL, "no memory");
    fill(&memory, 2 * SLOTS * SMALL, 0);
    for (int i = 0; i < number / 2; i++)
        MPI_Irecv(memory.address + i % SLOTS * SMALL, SMALL, MPI_BYTE, 1 - rank, i % 100,
                  MPI_COMM_WORLD, &requests[i]);
    for (int i = number / 2; i < number; i++)
        MPI_Isend(memory.address + (SLOTS + i % SLOTS) * SMALL, SMALL, MPI_BYTE, 1 - rank,
                  (i - number / 2) % 100, MPI_COMM_WORLD, &requests[i]);
    double begin = MPI_Wtime();
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        fprintf(stderr, "MPI_Waitall of %d requests: %.3f s\n", number, MPI_Wtime() - begin);
    memory_free(&memory);
    free(requests);
}

static jmp_buf away;

static void leave(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    longjmp(away, 1);
}

// A message from further down the stack than the call that was left.
static __attribute__((noinline)) int deep(const struct memory *memory, int depth)
{
    volatile char frame[FRAME_BYTES];
    frame[0] = (char)depth;
    if (depth > 0)
        return deep(memory, depth - 1) + frame[0] - frame[0];
    if (rank == 0)
        return MPI_Send(memory->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    return MPI_Recv(memory->address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void message_after(const struct memory *memory)
{
    fill(memory, BYTES, (unsigned)rank);
    deep(memory, DEPTH);
    must(is_filled(memory, BYTES, 0), "wrong bytes");
}

// A message that is taken, after such a call that was left.
static void matched_after(const struct memory *memory)
{
    MPI_Message message;
    MPI_Status status;
    int flag;
    if (setjmp(away) == 0) {
        MPI_Improbe(size + 5, TAG, MPI_COMM_WORLD, &flag, &message, &status);
        must(false, "no error of a rank that does not exist");
    }
    fill(memory, BYTES, (unsigned)rank);
    if (rank == 0) {
        MPI_Send(memory->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        return;
    }
    MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(memory->address, BYTES, MPI_BYTE, &message, &status);
    must(is_filled(memory, BYTES, 0), "wrong bytes of a message that was taken");
}

// An error of a call itself, of a receive that is too short, and of one request among several: the
// other one is waited for again.
static void jumps(int number)
{
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    struct memory other = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Request requests[2];
    MPI_Errhandler handler;
    (void)number;
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (setjmp(away) == 0) {
        MPI_Send(memory.address, BYTES, MPI_BYTE, size + 5, TAG, MPI_COMM_WORLD);
        must(false, "no error of a rank that does not exist");
    }
    message_after(&memory);
    matched_after(&memory);
    if (rank == 0)
        MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    else if (setjmp(away) == 0) {
        MPI_Recv(memory.address, BYTES / 2, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(false, "no error of a message that is too long");
    }
    message_after(&memory);
    fill(&other, BYTES, 7);
    if (rank == 0) {
        fill(&memory, BYTES, 9);
        MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
    } else {
        MPI_Irecv(memory.address, BYTES / 2, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(other.address, BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, &requests[1]);
        if (setjmp(away) == 0) {
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            must(false, "no error of a request");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        must(is_filled(&other, BYTES, 9), "wrong bytes of a request");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    memory_free(&memory);
    memory_free(&other);
}

// A collective that is started later with what its buffer held when it was made: MPICH takes some
// of the data there and then, also of host memory.
static void data_at_init(int number)
{
#if MPI_VERSION >= 4
    struct memory from = memory_new(MEMORY_DEVICE, BYTES);
    struct memory into = memory_new(MEMORY_DEVICE, (size_t)size * BYTES);
    (void)number;
    for (int bytes = 16; bytes <= BYTES; bytes += BYTES - 16) {
        MPI_Request request;
        fill(&from, BYTES, 5);
        MPI_Gather_init(from.address, bytes, MPI_BYTE, into.address, bytes, MPI_BYTE, size - 1,
                        MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        for (int pass = 0; pass < 2; pass++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; i < size && rank == size - 1; i++)
                must(is_same(&from, &into, (size_t)(i * bytes), (size_t)bytes), "rank %d's", i);
        }
        MPI_Request_free(&request);
    }
    memory_free(&into);
    memory_free(&from);
#else
    (void)number;
#endif
}

const struct unnoticed unnoticed_requests[] = {
    {"many-requests", many, false},
    {"jumps", jumps, false},
    {"data-at-init", data_at_init, false},
    {NULL, NULL, false},
};
