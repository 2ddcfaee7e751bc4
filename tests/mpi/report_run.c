// SPDX-License-Identifier: BSD-3-Clause
// A program for reports: messages and collectives from device memory whose counts are known
// (report-check.py has them), and the ways in which a rank can end.
//
//   report_run messages | waits | late | alltoall | rails | finalize | abort | raise SIGNAL | fault
//   | overflow | exit | fork
//   |
//              handler before|after | error
//
// All but the first five end rank 1 in that way while the others wait for it, or end alike where it
// is a good end.
#include "../programs/memory.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 10, STEP = 1000, EXCHANGES = 3, PAIR = 64, OTHER_PAIR = 32, CAST = 100 };
enum { POSTED = 8, LENGTH = 600, ROOM = 4096, LATE = 40, TESTS = 20000 };
enum { STATUS_OF_HANDLER = 42 };

static int rank, size;

static void pass_messages(unsigned char *from, unsigned char *to)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Request request;
        MPI_Isend(from, STEP * (rank + 1), MPI_BYTE, right, 0, MPI_COMM_WORLD, &request);
        MPI_Recv(to, STEP * size, MPI_BYTE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

// Receives that are posted first, and have more room than there comes.
static void post_receives(unsigned char *from, unsigned char *to)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < POSTED; i++) {
        MPI_Request requests[2];
        MPI_Irecv(to, ROOM, MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Issend(from, LENGTH, MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[1]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    }
}

// The ranks of the other communicator are those of the world in reverse order.
static __attribute__((noinline)) void exchange(unsigned char *from, unsigned char *to)
{
    MPI_Comm other;
    int counts[64], displacements[64];
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &other);
    MPI_Comm_set_name(other, "reversed");
    for (int i = 0; i < size; i++) {
        counts[i] = i; // to the rank i of `other`
        displacements[i] = 64 * i;
    }
    for (int i = 0; i < EXCHANGES; i++)
        MPI_Alltoall(from, PAIR, MPI_BYTE, to, PAIR, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Alltoall(from, OTHER_PAIR, MPI_BYTE, to, OTHER_PAIR, MPI_BYTE, other);
    MPI_Scatterv(from, counts, displacements, MPI_BYTE, to, size - 1 - rank, MPI_BYTE, size - 1,
                 other); // the root is rank 0 of the world
    MPI_Bcast(from, CAST, MPI_BYTE, 1, MPI_COMM_WORLD);
    MPI_Comm_free(&other);
}

// Long waits, in exchanges and in a loop of tests, which are not to fill a trace.
static void wait_long(unsigned char *from, unsigned char *to)
{
    const struct timespec late = {.tv_nsec = 20000000};
    for (int i = 0; i < LATE; i++) {
        if (rank == 1)
            nanosleep(&late, NULL);
        MPI_Alltoall(from, PAIR, MPI_BYTE, to, PAIR, MPI_BYTE, MPI_COMM_WORLD);
    }
    int word = 0, done = 0;
    MPI_Request request;
    if (rank == 1) {
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(from, LENGTH, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    if (rank != 0)
        return;
    MPI_Irecv(to, ROOM, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    for (int i = 0; i < TESTS; i++) {
        MPI_Iprobe(1, 1, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

enum { STEPS = 30, LARGE = 1 << 18, LARGER = 1 << 23, LARGE_MESSAGES = 8 };

// Rank 1 comes late to everything.
static void come_late(unsigned char *from, unsigned char *to)
{
    const struct timespec late = {.tv_nsec = 20000000};
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < STEPS; i++) {
        MPI_Request request;
        if (rank == 1)
            nanosleep(&late, NULL);
        MPI_Alltoall(from, PAIR, MPI_BYTE, to, PAIR, MPI_BYTE, MPI_COMM_WORLD);
        if (rank == 1)
            nanosleep(&late, NULL);
        MPI_Isend(from, STEP, MPI_BYTE, right, 0, MPI_COMM_WORLD, &request);
        MPI_Recv(to, STEP, MPI_BYTE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void exchange_much(void)
{
    struct memory from = memory_new(MEMORY_DEVICE, (size_t)LARGE * (size_t)size),
                  to = memory_new(MEMORY_DEVICE, (size_t)LARGE * (size_t)size);
    for (int i = 0; i < STEPS; i++)
        MPI_Alltoall(from.address, LARGE, MPI_BYTE, to.address, LARGE, MPI_BYTE, MPI_COMM_WORLD);
    memory_free(&from);
    memory_free(&to);
}

// Pairs of ranks half the world apart, which are on two hosts.
static void send_much(void)
{
    struct memory memory = memory_new(MEMORY_DEVICE, LARGER);
    int half = size / 2;
    for (int i = 0; i < LARGE_MESSAGES; i++) {
        if (rank < half)
            MPI_Send(memory.address, LARGER, MPI_BYTE, rank + half, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(memory.address, LARGER, MPI_BYTE, rank - half, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    memory_free(&memory);
}

static void handle(int number)
{
    (void)number;
    _exit(STATUS_OF_HANDLER);
}

static int overflow(int depth)
{
    volatile char page[4096];
    page[0] = (char)depth;
    return depth < 0 ? 0 : overflow(depth + 1) + page[0];
}

// A child of fork has no report of its own, however it ends.
static void fork_children(void)
{
    pid_t exits = fork();
    if (exits == 0)
        exit(0);
    pid_t killed = fork();
    if (killed == 0) {
        raise(SIGTERM);
        _exit(1);
    }
    int status = 0;
    if (waitpid(exits, &status, 0) != exits || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (waitpid(killed, &status, 0) != killed || !WIFSIGNALED(status) ||
        WTERMSIG(status) != SIGTERM)
        MPI_Abort(MPI_COMM_WORLD, 3);
}

static void abort_from_handler(MPI_Comm *comm, int *code, ...)
{
    (void)code;
    MPI_Abort(*comm, 5);
}

// The MPI library finds the mistake while Fabrail serves the call.
static void err_with_device_buffer(const void *buffer)
{
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(abort_from_handler, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Send(buffer, STEP, MPI_BYTE, size, 0, MPI_COMM_WORLD);
}

static void end(const char *how, const char *detail, const void *buffer)
{
    static volatile int *volatile nowhere;
    if (strcmp(how, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    else if (strcmp(how, "raise") == 0)
        raise(atoi(detail));
    else if (strcmp(how, "fault") == 0 || strcmp(how, "handler") == 0)
        *nowhere = 1;
    else if (strcmp(how, "overflow") == 0)
        printf("%d\n", overflow(0));
    else if (strcmp(how, "exit") == 0)
        exit(7);
    else if (strcmp(how, "error") == 0)
        err_with_device_buffer(buffer);
}

// Returns whether rank 1 ends in a way that the others wait for.
static bool is_bad_end(const char *how)
{
    static const char *const good[] = {"messages", "waits", "late",
                                       "alltoall", "rails", "finalize"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (strcmp(how, good[i]) == 0)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "messages", *detail = argc > 2 ? argv[2] : "";
    bool handles = strcmp(how, "handler") == 0;
    if (handles && strcmp(detail, "before") == 0)
        signal(SIGSEGV, handle);
    MPI_Init(&argc, &argv);
    if (handles && strcmp(detail, "after") == 0)
        signal(SIGSEGV, handle);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory_start(rank);
    struct memory from = memory_new(MEMORY_DEVICE, 1 << 16),
                  to = memory_new(MEMORY_DEVICE, 1 << 16);
    pass_messages(from.address, to.address);
    if (strcmp(how, "messages") == 0) {
        post_receives(from.address, to.address);
        exchange(from.address, to.address);
    }
    if (strcmp(how, "waits") == 0)
        wait_long(from.address, to.address);
    if (strcmp(how, "late") == 0)
        come_late(from.address, to.address);
    if (strcmp(how, "alltoall") == 0)
        exchange_much();
    if (strcmp(how, "rails") == 0)
        send_much();
    if (strcmp(detail, "elsewhere") == 0 && chdir("/") != 0)
        return 1;
    if (strcmp(how, "fork") == 0)
        fork_children();
    else if (rank == 1)
        end(how, detail, from.address);
    else if (is_bad_end(how))
        MPI_Recv(to.address, 1, MPI_BYTE, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    memory_free(&from);
    memory_free(&to);
    memory_stop();
    MPI_Finalize();
    return 0;
}
