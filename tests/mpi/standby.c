// SPDX-License-Identifier: BSD-3-Clause
// Messages of a few bytes into device memory, for which calls wait one at a time: whether a kernel
// that was launched before the message came has copied each, by what the driver is asked to do.
//
//   standby always|never
#include "../programs/memory.h"
#include "counted.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, WARM = 4, ROUNDS = 12 };

static int stands_by;
static struct memory sent, received;

static long launches(void)
{
    return (long)(calls("cuLaunchKernel") + calls("cuGraphLaunch"));
}

static unsigned char byte_of(int from, int round, int at)
{
    return (unsigned char)(from * 101 + round * 37 + at * 13 + 1);
}

static void fill(int round)
{
    unsigned char own[MOST], none[MOST];
    for (int i = 0; i < MOST; i++)
        own[i] = byte_of(rank, round, i);
    memset(none, 0xee, sizeof(none));
    memory_write(&sent, 0, own, MOST);
    memory_write(&received, 0, none, MOST);
}

static void look(int round, int bytes)
{
    unsigned char got[MOST];
    memory_read(&received, 0, got, MOST);
    for (int i = 0; i < MOST; i++)
        must(got[i] == (i < bytes ? byte_of(1 - rank, round, i) : 0xee), "wrong byte", i);
}

// The functions receive into `room` bytes, and send `bytes`.
static void blocking(int room, int bytes)
{
    if (rank == 0)
        MPI_Send(sent.address, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(received.address, room, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(sent.address, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static void nonblocking(int room, int bytes)
{
    MPI_Request request;
    MPI_Status status;
    int count;
    MPI_Irecv(received.address, room, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &request);
    MPI_Send(sent.address, bytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    must(count == bytes, "wrong length", count);
}

static void both(int room, int bytes)
{
    MPI_Sendrecv(sent.address, bytes, MPI_BYTE, 1 - rank, 3, received.address, room, MPI_BYTE,
                 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Each send of a few bytes takes a launch. Each receive takes another, or a copy, and that of an
// MPI_Sendrecv a copy.
static void steady(const char *what, void (*exchange)(int room, int bytes), int room, int bytes)
{
    const int by_kernel = stands_by && exchange != both && room < 40 ? ROUNDS : 0;
    long launched = 0, copied = 0;
    for (int round = 0; round < WARM + ROUNDS; round++) {
        fill(round);
        MPI_Barrier(MPI_COMM_WORLD);
        long launches_before = launches(), copies_before = (long)calls("cuMemcpyAsync");
        exchange(room, bytes);
        if (round < WARM) // it is asked each millisecond who takes turns
            usleep(2000);
        launched += round < WARM ? 0 : launches() - launches_before;
        copied += round < WARM ? 0 : (long)calls("cuMemcpyAsync") - copies_before;
        look(round, bytes);
    }
    must(launched == ROUNDS + by_kernel, what, launched);
    must(copied == ROUNDS - by_kernel, what, copied);
}

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 8, 17, 39};
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(size == 2 && argc > 1, "wants two ranks, and what becomes of kernels", size);
    stands_by = strcmp(argv[1], "always") == 0;
    memory_start(rank);
    must_count();
    sent = memory_new(MEMORY_DEVICE, MOST);
    received = memory_new(MEMORY_DEVICE, MOST);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        steady("MPI_Recv", blocking, lengths[i], lengths[i]);
        steady("MPI_Wait", nonblocking, lengths[i], lengths[i]);
        steady("MPI_Sendrecv", both, lengths[i], lengths[i]);
    }
    steady("more room", blocking, 39, 5);
    steady("room for an RTS", blocking, 40, 5);
    memory_free(&sent);
    memory_free(&received);
    memory_stop();
    MPI_Finalize();
    return 0;
}
