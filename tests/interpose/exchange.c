// SPDX-License-Identifier: BSD-3-Clause
// Send, Recv, Isend, Wait and Alltoall of device buffers, every byte and the guards verified.
#include "exchange.h"

#include "../programs/memory.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#ifdef EXCHANGE_BOUND
#include "bound.h"
#define MPI_Init      bound.Init_
#define MPI_Comm_rank bound.Comm_rank_
#define MPI_Send      bound.Send_
#define MPI_Recv      bound.Recv_
#define MPI_Isend     bound.Isend_
#define MPI_Wait      bound.Wait_
#define MPI_Alltoall  bound.Alltoall_
#define MPI_Finalize  bound.Finalize_
#endif

// For hostrecv.c, which opens this as a plugin.
__attribute__((visibility("default"))) int exchange_receive(void *buffer, int bytes, int source,
                                                            int tag, MPI_Status *status);

enum { RANKS = 2, BYTES = 70001, GUARD = 64, ALL = RANKS * BYTES + 2 * GUARD, UNTOUCHED = 0xa5 };

static struct memory given, got;
static unsigned char image[ALL]; // of a device buffer
static int rank;

static unsigned char byte_of(int owner, int step, int block, int index)
{
    return (unsigned char)(owner * 91 + step * 37 + block * 17 + index * 7 + index / 251);
}

static void fill(int step)
{
    memset(image, UNTOUCHED, ALL);
    memory_write(&got, 0, image, ALL);
    for (int block = 0; block < RANKS; block++) {
        for (int i = 0; i < BYTES; i++)
            image[GUARD + block * BYTES + i] = byte_of(rank, step, block, i);
    }
    memory_write(&given, 0, image, ALL);
}

// The first `blocks` blocks hold what rank `owner`, or each rank in turn, sent to block `sent`.
static int check(int step, int blocks, int owner, int sent)
{
    memory_read(&got, 0, image, ALL);
    for (int at = 0; at < ALL; at++) {
        int block = (at - GUARD) / BYTES;
        unsigned char expected = UNTOUCHED;
        if (at >= GUARD && block < blocks)
            expected = byte_of(owner < 0 ? block : owner, step, sent, (at - GUARD) % BYTES);
        if (image[at] != expected) {
            fprintf(stderr, "rank %d step %d byte %d is %d, expected %d\n", rank, step, at - GUARD,
                    image[at], expected);
            return 1;
        }
    }
    return 0;
}

static int exchange(void)
{
    unsigned char *from = given.address + GUARD, *to = got.address + GUARD;
    int other = 1 - rank, wrong;
    MPI_Request request;
    MPI_Status status;
    fill(1);
    if (rank == 0)
        MPI_Send(from, BYTES, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    MPI_Recv(to, BYTES, MPI_BYTE, other, 1, MPI_COMM_WORLD, &status);
    if (rank == 1)
        MPI_Send(from, BYTES, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    wrong = check(1, 1, other, 0);
    fill(2);
    MPI_Isend(from, BYTES, MPI_BYTE, other, 2, MPI_COMM_WORLD, &request);
    MPI_Recv(to, BYTES, MPI_BYTE, other, 2, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    wrong |= check(2, 1, other, 0) || request != MPI_REQUEST_NULL;
    fill(3);
    MPI_Alltoall(from, BYTES, MPI_BYTE, to, BYTES, MPI_BYTE, MPI_COMM_WORLD);
    return wrong | check(3, RANKS, -1, rank);
}

#ifndef EXCHANGE_BOUND
int exchange_receive(void *buffer, int bytes, int source, int tag, MPI_Status *status)
{
    return MPI_Recv(buffer, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, status);
}
#endif

int exchange_run(void)
{
    int wrong = EXCHANGE_SKIPPED;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memory_start(rank);
    if (!memory_missing(MEMORY_DEVICE)) {
        given = memory_new(MEMORY_DEVICE, ALL);
        got = memory_new(MEMORY_DEVICE, ALL);
        wrong = exchange();
        memory_free(&given);
        memory_free(&got);
        memory_stop();
    }
    MPI_Finalize();
    return wrong;
}
