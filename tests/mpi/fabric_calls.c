// SPDX-License-Identifier: BSD-3-Clause
// Calls of every class that takes a buffer, each made so that MPI must read or write every buffer
// that it is given.
#include "fabric.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = FABRIC_BLOCK, TAG = 5 };

unsigned char fabric_byte(int rank, int index)
{
    return (unsigned char)(rank * 113 + index * 11 + index / 253);
}

// Block `to` of the result is block `block` of what `rank` sent.
static void want_block(struct fabric_run *run, int to, int rank, int block)
{
    for (int i = 0; i < BLOCK; i++)
        run->want[to * BLOCK + i] = fabric_byte(rank, block * BLOCK + i);
}

static int right_of(const struct fabric_run *run)
{
    return (run->rank + 1) % run->size;
}

static int left_of(const struct fabric_run *run)
{
    return (run->rank + run->size - 1) % run->size;
}

static void gave(struct fabric_run *run, bool from, bool to)
{
    run->gave_from = from;
    run->gave_to = to;
}

static void passed_right(struct fabric_run *run)
{
    want_block(run, 0, left_of(run), 0);
    gave(run, true, true);
}

static void make_send(struct fabric_run *run)
{
    MPI_Request request;
    MPI_Irecv(run->to, BLOCK, MPI_BYTE, left_of(run), TAG, run->comm, &request);
    MPI_Send(run->from, BLOCK, MPI_BYTE, right_of(run), TAG, run->comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    passed_right(run);
}

static void make_isend(struct fabric_run *run)
{
    MPI_Request request;
    MPI_Issend(run->from, BLOCK, MPI_BYTE, right_of(run), TAG, run->comm, &request);
    MPI_Recv(run->to, BLOCK, MPI_BYTE, left_of(run), TAG, run->comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    passed_right(run);
}

// From host memory, so that the received message alone is judged: it names no communicator.
static void make_mrecv(struct fabric_run *run)
{
    static unsigned char plain[BLOCK];
    MPI_Request request;
    MPI_Message message;
    for (int i = 0; i < BLOCK; i++)
        plain[i] = fabric_byte(run->rank, i);
    MPI_Isend(plain, BLOCK, MPI_BYTE, right_of(run), TAG, run->comm, &request);
    MPI_Mprobe(left_of(run), TAG, run->comm, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(run->to, BLOCK, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    passed_right(run);
    gave(run, false, true);
}

static void make_sendrecv(struct fabric_run *run)
{
    MPI_Sendrecv(run->from, BLOCK, MPI_BYTE, right_of(run), TAG, run->to, BLOCK, MPI_BYTE,
                 left_of(run), TAG, run->comm, MPI_STATUS_IGNORE);
    passed_right(run);
}

static void make_replace(struct fabric_run *run)
{
    MPI_Sendrecv_replace(run->from, BLOCK, MPI_BYTE, right_of(run), TAG, left_of(run), TAG,
                         run->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(run->from, BLOCK, MPI_BYTE, left_of(run), TAG, run->to, BLOCK, MPI_BYTE,
                 right_of(run), TAG, run->comm, MPI_STATUS_IGNORE);
    want_block(run, 0, run->rank, 0);
    gave(run, true, true);
}

static void make_persistent(struct fabric_run *run)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Recv_init(run->to, BLOCK, MPI_BYTE, left_of(run), TAG, run->comm, &requests[0]);
    MPI_Send_init(run->from, BLOCK, MPI_BYTE, right_of(run), TAG, run->comm, &requests[1]);
    for (int round = 0; round < 2; round++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    passed_right(run);
}

// Every second byte of a block, sent and received so.
static void make_vector(struct fabric_run *run)
{
    MPI_Datatype type;
    MPI_Type_vector(BLOCK / 2, 1, 2, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Sendrecv(run->from, 1, type, right_of(run), TAG, run->to, 1, type, left_of(run), TAG,
                 run->comm, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    for (int i = 0; i < BLOCK / 2; i++)
        run->want[2 * i] = fabric_byte(left_of(run), 2 * i);
    gave(run, true, true);
}

// By absolute addresses, half of a block and as much of host memory.
static MPI_Datatype mixed_type(void *device, void *host)
{
    MPI_Datatype type;
    MPI_Aint addresses[2];
    const int lengths[2] = {BLOCK / 2, BLOCK / 2};
    MPI_Get_address(device, &addresses[0]);
    MPI_Get_address(host, &addresses[1]);
    MPI_Type_create_hindexed(2, lengths, addresses, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void make_mixed(struct fabric_run *run)
{
    static unsigned char near[BLOCK / 2], far[BLOCK / 2];
    for (int i = 0; i < BLOCK / 2; i++)
        near[i] = fabric_byte(run->rank, BLOCK + i);
    MPI_Datatype send = mixed_type(run->from, near), receive = mixed_type(run->to, far);
    MPI_Sendrecv(MPI_BOTTOM, 1, send, right_of(run), TAG, MPI_BOTTOM, 1, receive, left_of(run), TAG,
                 run->comm, MPI_STATUS_IGNORE);
    MPI_Type_free(&send);
    MPI_Type_free(&receive);
    for (int i = 0; i < BLOCK / 2; i++) {
        run->want[i] = fabric_byte(left_of(run), i);
        if (far[i] != fabric_byte(left_of(run), BLOCK + i))
            run->want[0] = (unsigned char)~fabric_byte(left_of(run), 0); // the result is wrong
    }
    gave(run, true, true);
}

// Between the two halves of the communicator, which only then has two groups.
static void make_between(struct fabric_run *run)
{
    MPI_Comm half, between;
    int lower = run->size / 2;
    bool low = run->rank < lower;
    int own = low ? run->rank : run->rank - lower;
    if (run->size < 2)
        return;
    MPI_Comm_split(run->comm, low, run->rank, &half);
    MPI_Intercomm_create(half, 0, run->comm, low ? lower : 0, TAG, &between);
    if (own < lower) { // pairs of equal rank; an odd process out has none
        MPI_Sendrecv(run->from, BLOCK, MPI_BYTE, own, TAG, run->to, BLOCK, MPI_BYTE, own, TAG,
                     between, MPI_STATUS_IGNORE);
        want_block(run, 0, low ? own + lower : own, 0);
        gave(run, true, true);
    }
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

static void make_bcast(struct fabric_run *run)
{
    bool root = run->rank == run->size - 1;
    MPI_Bcast(root ? run->from : run->to, BLOCK, MPI_BYTE, run->size - 1, run->comm);
    if (!root)
        want_block(run, 0, run->size - 1, 0);
    gave(run, root && run->size > 1, !root);
}

static void make_gather(struct fabric_run *run)
{
    MPI_Gather(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, 0, run->comm);
    for (int i = 0; run->rank == 0 && i < run->size; i++)
        want_block(run, i, i, 0);
    gave(run, true, run->rank == 0);
}

static void make_scatter(struct fabric_run *run)
{
    MPI_Scatter(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, 0, run->comm);
    want_block(run, 0, 0, run->rank);
    gave(run, run->rank == 0, true);
}

static void make_allgather(struct fabric_run *run)
{
    MPI_Allgather(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, run->comm);
    for (int i = 0; i < run->size; i++)
        want_block(run, i, i, 0);
    gave(run, true, true);
}

static void want_alltoall(struct fabric_run *run)
{
    for (int i = 0; i < run->size; i++)
        want_block(run, i, i, run->rank);
    gave(run, true, true);
}

static void make_alltoall(struct fabric_run *run)
{
    MPI_Alltoall(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, run->comm);
    want_alltoall(run);
}

static const int blocks[FABRIC_BLOCKS] = {BLOCK, BLOCK, BLOCK, BLOCK};
static const int places[FABRIC_BLOCKS] = {0, BLOCK, 2 * BLOCK, 3 * BLOCK};

static void make_alltoallv(struct fabric_run *run)
{
    MPI_Alltoallv(run->from, blocks, places, MPI_BYTE, run->to, blocks, places, MPI_BYTE,
                  run->comm);
    want_alltoall(run);
}

static void make_alltoallw(struct fabric_run *run)
{
    const MPI_Datatype types[FABRIC_BLOCKS] = {MPI_BYTE, MPI_BYTE, MPI_BYTE, MPI_BYTE};
    MPI_Alltoallw(run->from, blocks, places, types, run->to, blocks, places, types, run->comm);
    want_alltoall(run);
}

static void make_in_place(struct fabric_run *run)
{
    if (run->size < 2) // there would be nothing to move, which some do all the same
        return;
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_BYTE, run->to, BLOCK, MPI_BYTE, run->comm);
    for (int i = 0; i < run->size; i++)
        want_block(run, i, FABRIC_OTHER, run->rank);
    gave(run, false, true);
}

static void make_ialltoall(struct fabric_run *run)
{
    MPI_Request request;
    MPI_Ialltoall(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, run->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    want_alltoall(run);
}

static void make_neighbour(struct fabric_run *run)
{
    MPI_Comm ring;
    const int sources[] = {left_of(run)}, targets[] = {right_of(run)}, weights[] = {1};
    MPI_Dist_graph_create_adjacent(run->comm, 1, sources, weights, 1, targets, weights,
                                   MPI_INFO_NULL, 0, &ring);
    MPI_Neighbor_alltoall(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, ring);
    MPI_Comm_free(&ring);
    passed_right(run);
}

// The exclusive or of a block over ranks below `end`.
static void want_reduced(struct fabric_run *run, int end, int block)
{
    for (int i = 0; i < BLOCK; i++) {
        unsigned char byte = 0;
        for (int rank = 0; rank < end; rank++)
            byte ^= fabric_byte(rank, block * BLOCK + i);
        run->want[i] = byte;
    }
}

static void make_reduce(struct fabric_run *run)
{
    bool root = run->rank == run->size - 1;
    MPI_Reduce(run->from, run->to, BLOCK, MPI_BYTE, MPI_BXOR, run->size - 1, run->comm);
    if (root)
        want_reduced(run, run->size, 0);
    gave(run, true, root);
}

static void make_allreduce(struct fabric_run *run)
{
    MPI_Allreduce(run->from, run->to, BLOCK, MPI_BYTE, MPI_BXOR, run->comm);
    want_reduced(run, run->size, 0);
    gave(run, true, true);
}

static void make_scan(struct fabric_run *run)
{
    MPI_Scan(run->from, run->to, BLOCK, MPI_BYTE, MPI_BXOR, run->comm);
    want_reduced(run, run->rank + 1, 0);
    gave(run, true, true);
}

static void make_reduce_scatter(struct fabric_run *run)
{
    MPI_Reduce_scatter_block(run->from, run->to, BLOCK, MPI_BYTE, MPI_BXOR, run->comm);
    want_reduced(run, run->size, run->rank);
    gave(run, true, true);
}

static void make_reduce_local(struct fabric_run *run)
{
    MPI_Reduce_local(run->from, run->to, BLOCK, MPI_BYTE, MPI_BXOR);
    for (int i = 0; i < BLOCK; i++)
        run->want[i] ^= fabric_byte(run->rank, i);
    gave(run, true, true);
}

static void make_pack(struct fabric_run *run)
{
    int position = 0;
    MPI_Pack(run->from, BLOCK, MPI_BYTE, run->to, FABRIC_BYTES, &position, run->comm);
    want_block(run, 0, run->rank, 0);
    gave(run, true, true);
}

// A window over host memory, at whose right neighbour each process puts, gets and accumulates.
static unsigned char memory[BLOCK];

static MPI_Win open_window(struct fabric_run *run)
{
    MPI_Win window;
    for (int i = 0; i < BLOCK; i++)
        memory[i] = fabric_byte(run->rank, BLOCK + i);
    MPI_Win_create(memory, BLOCK, 1, MPI_INFO_NULL, run->comm, &window);
    MPI_Win_fence(0, window);
    return window;
}

static void make_put(struct fabric_run *run)
{
    MPI_Win window = open_window(run);
    MPI_Put(run->from, BLOCK, MPI_BYTE, right_of(run), 0, BLOCK, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    bool arrived = true;
    for (int i = 0; i < BLOCK; i++)
        arrived = arrived && memory[i] == fabric_byte(left_of(run), i);
    if (!arrived)
        run->want[0] = (unsigned char)~run->want[0]; // so that the result is called wrong
    MPI_Win_free(&window);
    gave(run, true, false);
}

static void make_get(struct fabric_run *run)
{
    MPI_Win window = open_window(run);
    MPI_Get(run->to, BLOCK, MPI_BYTE, right_of(run), 0, BLOCK, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    want_block(run, 0, right_of(run), 1);
    gave(run, false, true);
}

static void make_get_accumulate(struct fabric_run *run)
{
    MPI_Win window = open_window(run);
    MPI_Get_accumulate(run->from, BLOCK, MPI_BYTE, run->to, BLOCK, MPI_BYTE, right_of(run), 0,
                       BLOCK, MPI_BYTE, MPI_REPLACE, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    want_block(run, 0, right_of(run), 1);
    gave(run, true, true);
}

static void make_file(struct fabric_run *run)
{
    MPI_File file;
    MPI_File_open(run->comm, run->file, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                  MPI_INFO_NULL, &file);
    MPI_File_write_at(file, (MPI_Offset)run->rank * BLOCK, run->from, BLOCK, MPI_BYTE,
                      MPI_STATUS_IGNORE);
    MPI_File_read_at(file, (MPI_Offset)run->rank * BLOCK, run->to, BLOCK, MPI_BYTE,
                     MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    want_block(run, 0, run->rank, 0);
    gave(run, true, true);
}

const struct fabric_call fabric_calls[] = {
    {"Send", 0, make_send},
    {"Issend", 0, make_isend},
    {"Mrecv", FABRIC_WORLD, make_mrecv},
    {"Sendrecv", 0, make_sendrecv},
    {"Sendrecv_replace", 0, make_replace},
    {"Send_init", 0, make_persistent},
    {"Sendrecv of a vector", 0, make_vector},
    {"Sendrecv of device and host memory", 0, make_mixed},
    {"Sendrecv between two groups", 0, make_between},
    {"Bcast", 0, make_bcast},
    {"Gather", 0, make_gather},
    {"Scatter", 0, make_scatter},
    {"Allgather", 0, make_allgather},
    {"Alltoall", 0, make_alltoall},
    {"Alltoallv", 0, make_alltoallv},
    {"Alltoallw", 0, make_alltoallw},
    {"Alltoall in place", 0, make_in_place},
    {"Ialltoall", FABRIC_NOT_OPEN_MPI, make_ialltoall},
    {"Neighbor_alltoall", FABRIC_NOT_OPEN_MPI, make_neighbour},
    {"Reduce", 0, make_reduce},
    {"Allreduce", 0, make_allreduce},
    {"Scan", 0, make_scan},
    {"Reduce_scatter_block", 0, make_reduce_scatter},
    {"Reduce_local", FABRIC_NOT_OPEN_MPI | FABRIC_WORLD, make_reduce_local},
    {"Pack", FABRIC_NOT_OPEN_MPI, make_pack},
    {"Put", 0, make_put},
    {"Get", 0, make_get},
    {"Get_accumulate", FABRIC_NOT_OPEN_MPI, make_get_accumulate},
    {"File_write_at", FABRIC_NOBODY, make_file},
    {NULL, 0, NULL},
};
