// SPDX-License-Identifier: BSD-3-Clause
// Persistent collectives of MPI 4: made once, started several times with new data in the same
// buffers.
#include "completion.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_PERSISTENT_COLLECTIVES

enum { ROUNDS = 4 };

// A persistent collective over blocks of n integers: how it is made, and what the receive buffer
// holds after it. send has a block a rank; recv too.
struct collective {
    const char *name;
    void (*init)(struct run *run, int n, void *send, void *recv, MPI_Request *request);
    void (*expect)(struct buffer *recv, int n);
};

static int value_of(const struct run *run, int rank, size_t index)
{
    uint64_t word;
    pattern_write(&word, run_seed(run, rank, 0), index * sizeof word, sizeof word);
    return (int)(word % 10000);
}

// Block number to of recv becomes block number from of rank's send buffer.
static void expect_block(struct buffer *recv, int n, int to, int rank, int from)
{
    for (int i = 0; i < n; i++) {
        int value = value_of(recv->run, rank, (size_t)(from * n + i));
        memcpy(recv->want + ((size_t)to * (size_t)n + (size_t)i) * sizeof value, &value,
               sizeof value);
    }
}

// The first block of recv becomes the sum over ranks 0 to last of their blocks number from.
static void expect_sum(struct buffer *recv, int n, int last, int from)
{
    for (int i = 0; i < n; i++) {
        int sum = 0;
        for (int rank = 0; rank <= last; rank++)
            sum += value_of(recv->run, rank, (size_t)(from * n + i));
        memcpy(recv->want + (size_t)i * sizeof sum, &sum, sizeof sum);
    }
}

static void init_bcast(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Bcast_init(run->rank == 0 ? send : recv, n, MPI_INT, 0, run->comm, MPI_INFO_NULL, request);
}

static void expect_bcast(struct buffer *recv, int n)
{
    if (recv->run->rank != 0)
        expect_block(recv, n, 0, 0, 0);
}

static void init_alltoall(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Alltoall_init(send, n, MPI_INT, recv, n, MPI_INT, run->comm, MPI_INFO_NULL, request);
}

static void expect_alltoall(struct buffer *recv, int n)
{
    for (int rank = 0; rank < recv->run->size; rank++)
        expect_block(recv, n, rank, rank, recv->run->rank);
}

static void init_allgather(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Allgather_init(send, n, MPI_INT, recv, n, MPI_INT, run->comm, MPI_INFO_NULL, request);
}

static void expect_allgather(struct buffer *recv, int n)
{
    for (int rank = 0; rank < recv->run->size; rank++)
        expect_block(recv, n, rank, rank, 0);
}

static void init_gather(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Gather_init(send, n, MPI_INT, recv, n, MPI_INT, 0, run->comm, MPI_INFO_NULL, request);
}

static void expect_gather(struct buffer *recv, int n)
{
    if (recv->run->rank == 0)
        expect_allgather(recv, n);
}

static void init_scatter(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Scatter_init(send, n, MPI_INT, recv, n, MPI_INT, 0, run->comm, MPI_INFO_NULL, request);
}

static void expect_scatter(struct buffer *recv, int n)
{
    expect_block(recv, n, 0, 0, recv->run->rank);
}

static void init_allreduce(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Allreduce_init(send, recv, n, MPI_INT, MPI_SUM, run->comm, MPI_INFO_NULL, request);
}

static void expect_allreduce(struct buffer *recv, int n)
{
    expect_sum(recv, n, recv->run->size - 1, 0);
}

static void init_reduce(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Reduce_init(send, recv, n, MPI_INT, MPI_SUM, 0, run->comm, MPI_INFO_NULL, request);
}

static void expect_reduce(struct buffer *recv, int n)
{
    if (recv->run->rank == 0)
        expect_allreduce(recv, n);
}

static void init_scan(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Scan_init(send, recv, n, MPI_INT, MPI_SUM, run->comm, MPI_INFO_NULL, request);
}

static void expect_scan(struct buffer *recv, int n)
{
    expect_sum(recv, n, recv->run->rank, 0);
}

static void init_exscan(struct run *run, int n, void *send, void *recv, MPI_Request *request)
{
    MPI_Exscan_init(send, recv, n, MPI_INT, MPI_SUM, run->comm, MPI_INFO_NULL, request);
}

static void expect_exscan(struct buffer *recv, int n)
{
    if (recv->run->rank != 0)
        expect_sum(recv, n, recv->run->rank - 1, 0);
}

static void init_reduce_scatter_block(struct run *run, int n, void *send, void *recv,
                                      MPI_Request *request)
{
    MPI_Reduce_scatter_block_init(send, recv, n, MPI_INT, MPI_SUM, run->comm, MPI_INFO_NULL,
                                  request);
}

static void expect_reduce_scatter_block(struct buffer *recv, int n)
{
    expect_sum(recv, n, recv->run->size - 1, recv->run->rank);
}

static const struct collective collectives[] = {
    {"Bcast_init", init_bcast, expect_bcast},
    {"Alltoall_init", init_alltoall, expect_alltoall},
    {"Allgather_init", init_allgather, expect_allgather},
    {"Gather_init", init_gather, expect_gather},
    {"Scatter_init", init_scatter, expect_scatter},
    {"Allreduce_init", init_allreduce, expect_allreduce},
    {"Reduce_init", init_reduce, expect_reduce},
    {"Scan_init", init_scan, expect_scan},
    {"Exscan_init", init_exscan, expect_exscan},
    {"Reduce_scatter_block_init", init_reduce_scatter_block, expect_reduce_scatter_block},
};

static void fill_values(struct run *run, struct buffer *send)
{
    run->round++;
    for (size_t i = 0; i < send->bytes / sizeof(int); i++) {
        int value = value_of(run, run->rank, i);
        memcpy(send->want + i * sizeof value, &value, sizeof value);
    }
    buffer_upload(send);
}

// MPICH up to 5.0 is sound in two forms only; in the others a persistent collective that completes
// is an error.
static enum completion completion_for_collective(const struct run *run)
{
#ifdef OPEN_MPI
    return (enum completion)(run->round % COMPLETIONS);
#else
    return run->round % 2 == 0 ? COMPLETE_WAIT : COMPLETE_TEST;
#endif
}

static void step_collectives(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int));
    size_t all = (size_t)n * sizeof(int) * (size_t)run->size;
    for (int i = 0; i < COUNT_OF(collectives); i++) {
        struct buffer *send = buffer_new(run, "send", all), *recv = buffer_new(run, "recv", all);
        MPI_Request request;
        run->step = collectives[i].name;
        collectives[i].init(run, n, send->data, recv->data, &request);
        for (int round = 0; round < ROUNDS; round++) {
            fill_values(run, send);
            MPI_Start(&request);
            complete(completion_for_collective(run), 1, &request, NULL, NULL);
            collectives[i].expect(recv, n);
            buffer_check(recv);
        }
        MPI_Request_free(&request);
        buffer_finish(recv);
        buffer_finish(send);
    }
}

// Blocks of different lengths, and a type for each peer.
static void step_vectors(struct run *run, size_t bytes)
{
    size_t ranks = (size_t)run->size;
    int n = (int)(bytes / sizeof(int)), *counts = table_new(ranks, sizeof(int));
    int *places = table_new(ranks, sizeof(int)), *byte_places = table_new(ranks, sizeof(int));
    MPI_Datatype *types = table_new(ranks, sizeof(MPI_Datatype));
    struct buffer *send = buffer_new(run, "send", (size_t)n * sizeof(int) * ranks);
    struct buffer *recv = buffer_new(run, "recv", send->bytes);
    struct buffer *other = buffer_new(run, "other", send->bytes);
    MPI_Request requests[2];
    for (int rank = 0; rank < run->size; rank++) {
        counts[rank] = n;
        places[rank] = (run->size - 1 - rank) * n;
        byte_places[rank] = places[rank] * (int)sizeof(int);
        types[rank] = MPI_INT;
    }
    MPI_Alltoallv_init(send->data, counts, places, MPI_INT, recv->data, counts, places, MPI_INT,
                       run->comm, MPI_INFO_NULL, &requests[0]);
    MPI_Alltoallw_init(send->data, counts, byte_places, types, other->data, counts, byte_places,
                       types, run->comm, MPI_INFO_NULL, &requests[1]);
    // MPI may read the arrays for as long as the request lives, but the program may not change
    // them.
    for (int round = 0; round < ROUNDS; round++) {
        fill_values(run, send);
        MPI_Startall(2, requests);
        complete(completion_for_collective(run), 2, requests, NULL, NULL);
        for (int rank = 0; rank < run->size; rank++) {
            int to = run->size - 1 - rank, from = run->size - 1 - run->rank;
            expect_block(recv, n, to, rank, from);
            expect_block(other, n, to, rank, from);
        }
        buffer_check(recv);
        buffer_check(other);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    buffer_finish(other);
    buffer_finish(recv);
    buffer_finish(send);
    free(types);
    free(byte_places);
    free(places);
    free(counts);
}
static const struct step steps[] = {
    {"collectives", step_collectives, LIMIT_SMALL, 1},
    {"Alltoallv_init", step_vectors, LIMIT_SMALL, 1},
};

int main(int argc, char **argv)
{
    const struct program program = {.name = "standing",
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_SINGLE};
    return program_main(argc, argv, &program);
}

#else

int main(int argc, char **argv)
{
    return program_skip(argc, argv, "this MPI has no sound persistent collectives");
}

#endif
