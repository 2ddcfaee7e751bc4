// SPDX-License-Identifier: BSD-3-Clause
// Messages and collectives of a few bytes of device memory, where the CPU reads and writes that
// itself. Once that has begun, the driver copies nothing, whichever calls are made. Freed memory
// whose address comes back, and a child of fork, change nothing.
#include "../programs/memory.h"
#include "counted.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { MOST = 2048, WARM = 4, ROUNDS = 12 };

static const int lengths[] = {1, 8, 39, 40, 41, 328, 656, 1024};
static struct memory sent, received;

// Copies and launches by the driver. The program itself uses other functions.
static unsigned long copies(void)
{
    return calls("cuMemcpyAsync") + calls("cuMemcpy2DAsync_v2") + calls("cuMemcpy3DAsync_v2") +
           calls("cuLaunchKernel") + calls("cuGraphLaunch");
}

static unsigned char byte_of(int from, int round, int at)
{
    return (unsigned char)(from * 101 + round * 37 + at * 13 + 1);
}

static void fill(int round, int bytes)
{
    unsigned char own[MOST], none[MOST];
    for (int i = 0; i < MOST; i++)
        own[i] = i < bytes ? byte_of(rank, round, i) : 0;
    memset(none, 0xee, sizeof(none));
    memory_write(&sent, 0, own, MOST);
    memory_write(&received, 0, none, MOST);
}

// Looks at what has come, and at what stands behind it.
static void look(const char *what, int from, int round, int bytes)
{
    unsigned char got[MOST];
    memory_read(&received, 0, got, MOST);
    for (int i = 0; i < MOST; i++) {
        unsigned char want = i < bytes ? byte_of(from, round, i) : 0xee;
        if (got[i] == want)
            continue;
        fprintf(stderr, "rank %d: %s of %d bytes, round %d: byte %d is %d, not %d\n", rank, what,
                bytes, round, i, got[i], want);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void blocking(int bytes)
{
    if (rank == 0)
        MPI_Send(sent.address, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(received.address, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(sent.address, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static void nonblocking(int bytes)
{
    MPI_Request requests[2];
    MPI_Irecv(received.address, bytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent.address, bytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void both(int bytes)
{
    MPI_Sendrecv(sent.address, bytes, MPI_BYTE, 1 - rank, 3, received.address, bytes, MPI_BYTE,
                 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void steady(const char *what, void (*exchange)(int bytes), int bytes)
{
    unsigned long before = 0;
    for (int round = 0; round < WARM + ROUNDS; round++) {
        fill(round, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == WARM)
            before = copies();
        exchange(bytes);
        look(what, 1 - rank, round, bytes);
    }
    unsigned long made = copies() - before;
    if (made > 0)
        fprintf(stderr, "rank %d: %s of %d bytes: %lu copies by the driver\n", rank, what, bytes,
                made);
    must(made == 0, what, bytes);
}

// A sum of a few numbers, as solvers have it, and a broadcast.
static void collectives(void)
{
    unsigned long before = 0;
    for (int round = 0; round < WARM + ROUNDS; round++) {
        double values[2] = {rank + 1.5, round}, sums[2];
        memory_write(&sent, 0, values, sizeof(values));
        if (round == WARM)
            before = copies();
        MPI_Allreduce(sent.address, received.address, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        memory_read(&received, 0, sums, sizeof(sums));
        must(sums[0] == 4.0 && sums[1] == 2 * round, "the sum of round", round);
        values[1] = round * 3 + 1;
        memory_write(rank == 0 ? &sent : &received, 0, values, sizeof(values));
        MPI_Bcast(rank == 0 ? sent.address : received.address, 16, MPI_BYTE, 0, MPI_COMM_WORLD);
        memory_read(rank == 0 ? &sent : &received, 0, values, sizeof(values));
        must(values[0] == 1.5 && values[1] == round * 3 + 1, "the broadcast of round", round);
    }
    must(copies() == before, "collectives: copies by the driver", (long long)(copies() - before));
}

static void renew(void)
{
    for (int round = 0; round < 6; round++) {
        memory_free(&received);
        memory_free(&sent);
        sent = memory_new(sent.kind, MOST);
        received = memory_new(received.kind, MOST);
        for (int again = 0; again < 3; again++) {
            fill(round + again, 40);
            MPI_Barrier(MPI_COMM_WORLD);
            blocking(40);
            look("new memory", 1 - rank, round + again, 40);
        }
    }
}

static void forked(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    must(waitpid(child, &status, 0) == child && status == 0, "the child", status);
    steady("after a fork", blocking, 8);
}

int main(int argc, char **argv)
{
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(size == 2 && argc > 1, "wants two ranks, a kind of memory and perhaps collectives", size);
    memory_start(rank);
    enum memory_kind kind = memory_kind_named(argv[1]);
    must(kind < MEMORY_KINDS && memory_missing(kind) == NULL, "that memory cannot be had", kind);
    must_count();
    sent = memory_new(kind, MOST);
    received = memory_new(kind, MOST);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        steady("a send", blocking, lengths[i]);
        steady("a nonblocking send", nonblocking, lengths[i]);
        steady("MPI_Sendrecv", both, lengths[i]);
    }
    if (argc > 2)
        collectives();
    renew();
    forked();
    memory_free(&sent);
    memory_free(&received);
    memory_stop();
    MPI_Finalize();
    return 0;
}
