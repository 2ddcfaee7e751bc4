// SPDX-License-Identifier: BSD-3-Clause
// Round trips and windows by MPI, by NCCL, by hand, and by pulls out of mapped memory.
#include "config.h"

#include "ways.h"

enum { TAG = 5, ANSWER_TAG = 6 };

enum ways_completion ways_completion = WAYS_WAITALL;

// gcc 12 takes MPICH's MPI_STATUSES_IGNORE for an array without room, and warns.
static void wait_for(MPI_Request *requests, size_t count)
{
    MPI_Status statuses[WAYS_WINDOW];
    int index;
    if (ways_completion == WAYS_WAITALL)
        MPI_Waitall((int)count, requests, statuses);
    for (size_t i = 0; i < count && ways_completion != WAYS_WAITALL; i++) {
        if (ways_completion == WAYS_WAITANY)
            MPI_Waitany((int)count, requests, &index, statuses);
        else
            MPI_Wait(&requests[i], statuses);
    }
}

static void answer(const struct end *end)
{
    if (end->rank == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, 1, ANSWER_TAG, end->pair, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_BYTE, 0, ANSWER_TAG, end->pair);
}

static void trip_by_mpi(const struct end *end, size_t bytes, size_t count)
{
    (void)count;
    if (end->rank == 0)
        MPI_Send(end->send.address, (int)bytes, MPI_BYTE, 1, TAG, end->pair);
    MPI_Recv(end->receive.address, (int)bytes, MPI_BYTE, end->other, TAG, end->pair,
             MPI_STATUS_IGNORE);
    if (end->rank == 1)
        MPI_Send(end->send.address, (int)bytes, MPI_BYTE, 0, TAG, end->pair);
}

static void window_by_mpi(const struct end *end, size_t bytes, size_t count)
{
    MPI_Request requests[WAYS_WINDOW];
    for (size_t i = 0; i < count; i++) {
        if (end->rank == 0)
            MPI_Isend(end->send.address + i * bytes, (int)bytes, MPI_BYTE, 1, TAG, end->pair,
                      &requests[i]);
        else
            MPI_Irecv(end->receive.address + i * bytes, (int)bytes, MPI_BYTE, 0, TAG, end->pair,
                      &requests[i]);
    }
    wait_for(requests, count);
    answer(end);
}

// Moves a message to and fro by NCCL. Rank 0 leaves the order of its send and receive to the
// stream, which favours NCCL a little.
static void trip_by_nccl(const struct end *end, size_t bytes, size_t count)
{
    (void)count;
    if (end->rank == 0)
        nccl_send(end->send.address, bytes, end->other);
    nccl_receive(end->receive.address, bytes, end->other);
    nccl_wait();
    if (end->rank == 1) {
        nccl_send(end->send.address, bytes, end->other);
        nccl_wait();
    }
}

static void window_by_nccl(const struct end *end, size_t bytes, size_t count)
{
    nccl_group_begin();
    for (size_t i = 0; i < count; i++) {
        if (end->rank == 0)
            nccl_send(end->send.address + i * bytes, bytes, 1);
        else
            nccl_receive(end->receive.address + i * bytes, bytes, 0);
    }
    nccl_group_end();
    nccl_wait();
    answer(end);
}

static void trip_by_hand(const struct end *end, size_t bytes, size_t count)
{
    (void)count;
    if (end->rank == 0) {
        memory_read(&end->send, 0, end->host_send.address, bytes);
        MPI_Send(end->host_send.address, (int)bytes, MPI_BYTE, 1, TAG, end->pair);
    }
    MPI_Recv(end->host_receive.address, (int)bytes, MPI_BYTE, end->other, TAG, end->pair,
             MPI_STATUS_IGNORE);
    memory_write(&end->receive, 0, end->host_receive.address, bytes);
    if (end->rank == 1) {
        memory_read(&end->send, 0, end->host_send.address, bytes);
        MPI_Send(end->host_send.address, (int)bytes, MPI_BYTE, 0, TAG, end->pair);
    }
}

static void window_by_hand(const struct end *end, size_t bytes, size_t count)
{
    MPI_Request requests[WAYS_WINDOW];
    if (end->rank == 0) {
        for (size_t i = 0; i < count; i++) {
            unsigned char *host = end->host_send.address + i * bytes;
            memory_read(&end->send, i * bytes, host, bytes);
            MPI_Isend(host, (int)bytes, MPI_BYTE, 1, TAG, end->pair, &requests[i]);
        }
        wait_for(requests, count);
    } else {
        for (size_t i = 0; i < count; i++)
            MPI_Irecv(end->host_receive.address + i * bytes, (int)bytes, MPI_BYTE, 0, TAG,
                      end->pair, &requests[i]);
        for (size_t i = 0; i < count; i++) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            memory_write(&end->receive, i * bytes, end->host_receive.address + i * bytes, bytes);
        }
    }
    answer(end);
}

static void pull(const struct end *end, size_t bytes, size_t count, enum fr_device_engine engine)
{
    struct fr_device_push_piece pieces[WAYS_WINDOW];
    for (size_t i = 0; i < count; i++) {
        pieces[i].dst = (uintptr_t)end->receive.address + i * bytes;
        pieces[i].src = end->theirs + i * bytes;
        pieces[i].bytes = bytes;
    }
    demand(fr_device_push(&end->range, pieces, count, engine, 0) == FR_OK, "a pull failed");
}

// Moves a message to and fro by pulls. Rank 1's post says that it has the message, and that its own
// can be pulled.
static void trip_raw(const struct end *end, size_t bytes, enum fr_device_engine engine)
{
    peers_round_begin();
    if (end->rank == 0)
        peers_round_post();
    peers_round_await(end->other);
    pull(end, bytes, 1, engine);
    if (end->rank == 1)
        peers_round_post();
    peers_round_end();
}

static void window_raw(const struct end *end, size_t bytes, size_t count,
                       enum fr_device_engine engine)
{
    peers_round_begin();
    if (end->rank == 0)
        peers_round_post();
    peers_round_await(end->other);
    if (end->rank == 1) {
        pull(end, bytes, count, engine);
        peers_round_post();
    }
    peers_round_end();
}

static void trip_by_engines(const struct end *end, size_t bytes, size_t count)
{
    (void)count;
    trip_raw(end, bytes, FR_ENGINE_CE);
}

static void trip_by_kernel(const struct end *end, size_t bytes, size_t count)
{
    (void)count;
    trip_raw(end, bytes, FR_ENGINE_SM);
}

static void window_by_engines(const struct end *end, size_t bytes, size_t count)
{
    window_raw(end, bytes, count, FR_ENGINE_CE);
}

static void window_by_kernel(const struct end *end, size_t bytes, size_t count)
{
    window_raw(end, bytes, count, FR_ENGINE_SM);
}

const struct way_row ways[WAYS] = {
    [WAY_MPI] = {"MPI", "Fabrail", "mpi", trip_by_mpi, window_by_mpi},
    [WAY_NCCL] = {"NCCL", "NCCL", "nccl", trip_by_nccl, window_by_nccl},
    [WAY_HAND] = {"by hand", "by hand", "hand", trip_by_hand, window_by_hand},
    [WAY_RAW_CE] = {"raw CE", "copy engines", "raw", trip_by_engines, window_by_engines},
    [WAY_RAW_SM] = {"raw SM", "kernels", "raw", trip_by_kernel, window_by_kernel},
};
