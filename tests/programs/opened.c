// SPDX-License-Identifier: BSD-3-Clause
// Programs that open each other's memory themselves by CUDA IPC, as halo exchanges do, and give MPI
// the same memory: their own while the neighbour has it open, and what they have opened.
#include "harness.h"

#include <string.h>

enum { TAG = 31, TOKEN = 32 };

// Each rank has opened its right neighbour's memory.
struct pair {
    int left, right;
    struct buffer *own;
    struct memory opened; // `own` of the right neighbour
};

static struct pair pair_new(struct run *run, size_t bytes)
{
    struct pair pair = {.left = (run->rank + run->size - 1) % run->size,
                        .right = (run->rank + 1) % run->size};
    struct memory_token mine, theirs;
    pair.own = buffer_filled(run, "own", bytes, run_seed(run, run->rank, run->rank));
    memory_offer(&pair.own->memory, &mine);
    MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, pair.left, TOKEN, &theirs, sizeof theirs, MPI_BYTE,
                 pair.right, TOKEN, run->comm, MPI_STATUS_IGNORE);
    pair.opened = memory_open(&theirs, pair.own->memory.bytes);
    return pair;
}

// The owner frees its memory when nobody has it open any more.
static void pair_close(const struct pair *pair)
{
    memory_close(&pair->opened);
    MPI_Barrier(pair->own->run->comm);
}

static unsigned char *opened_data(const struct pair *pair)
{
    return pair->opened.address + GUARD_BYTES;
}

static void pass(const struct pair *pair, const void *send, void *recv)
{
    struct run *run = pair->own->run;
    int bytes = (int)pair->own->bytes;
    MPI_Sendrecv(send, bytes, MPI_BYTE, pair->right, TAG, recv, bytes, MPI_BYTE, pair->left, TAG,
                 run->comm, MPI_STATUS_IGNORE);
}

// Receives from the left neighbour what `send` of all ranks holds the stream of; `whose` is the
// rank that it belongs to.
static void pass_checked(const struct pair *pair, const void *send, int whose)
{
    struct run *run = pair->own->run;
    struct buffer *recv = buffer_new(run, "recv", pair->own->bytes);
    pass(pair, send, recv->data);
    buffer_expect(recv, 0, recv->bytes, run_seed(run, whose, whose));
    buffer_finish(recv);
}

static void step_own(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    for (int i = 0; i < 3; i++) // memory that was sent before may go another way
        pass_checked(&pair, pair.own->data, pair.left);
    pair_close(&pair);
    pass_checked(&pair, pair.own->data, pair.left);
    buffer_finish(pair.own);
}

static void step_send(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    for (int i = 0; i < 3; i++)
        pass_checked(&pair, opened_data(&pair), run->rank);
    MPI_Barrier(run->comm);
    pair_close(&pair);
    buffer_finish(pair.own);
}

// Each process receives from its left neighbour, straight into the memory of its right one.
static void step_receive(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    int writer = pair.left, sender = (writer + run->size - 1) % run->size;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, -1));
    for (int i = 0; i < 3; i++)
        pass(&pair, send->data, opened_data(&pair));
    MPI_Barrier(run->comm);
    buffer_expect(pair.own, 0, bytes, run_seed(run, sender, -1));
    buffer_check(pair.own);
    pair_close(&pair);
    buffer_finish(send);
    buffer_finish(pair.own);
}

static void step_collective(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    struct buffer *all = buffer_new(run, "all", bytes * (size_t)run->size);
    MPI_Allgather(opened_data(&pair), (int)bytes, MPI_BYTE, all->data, (int)bytes, MPI_BYTE,
                  run->comm);
    for (int rank = 0; rank < run->size; rank++) {
        int next = (rank + 1) % run->size;
        buffer_expect(all, (size_t)rank * bytes, bytes, run_seed(run, next, next));
    }
    buffer_check(all);
    for (int root = 0; root < run->size; root++) { // rank 0 writes to rank 1's and so on
        MPI_Bcast(run->rank == root ? all->data : opened_data(&pair), (int)bytes, MPI_BYTE, root,
                  run->comm);
        MPI_Barrier(run->comm);
        if (root != pair.left)
            buffer_expect(pair.own, 0, bytes, run_seed(run, 1 % run->size, 1 % run->size));
        buffer_check(pair.own);
        MPI_Barrier(run->comm);
    }
    pair_close(&pair);
    buffer_finish(all);
    buffer_finish(pair.own);
}

static const struct step steps[] = {
    {"own", step_own, LIMIT_LARGE, 2},
    {"send", step_send, LIMIT_LARGE, 2},
    {"receive", step_receive, LIMIT_LARGE, 3},
    {"collective", step_collective, LIMIT_MIDDLE, 3},
};

int main(int argc, char **argv)
{
    const struct program program = {
        .name = "opened", .steps = steps, .step_count = COUNT_OF(steps)};
    return program_main(argc, argv, &program);
}
