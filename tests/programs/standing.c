// SPDX-License-Identifier: BSD-3-Clause
// Persistent collectives of MPI 4: made once, started several times with new data in the same
// buffers, also where these have new memory.
#include "completion.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_PERSISTENT_COLLECTIVES

enum { ROUNDS = 4 };

// Arguments of the collectives of one step call. MPI may look at the arrays for as long as a
// request lives.
static struct {
    MPI_Comm comm;
    int rank;
    int n;                    // integers in a block
    block_count *counts;      // n a rank
    block_place *places;      // in integers, in rank order
    block_place *byte_places; // the same in bytes
    MPI_Aint *far_places;     // the same again
    MPI_Datatype *types;
    MPI_Comm ring; // every rank has its left neighbour as source and its right one as target
} given;

static void given_new(const struct run *run, int n)
{
    size_t ranks = (size_t)run->size;
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    given.comm = run->comm;
    given.rank = run->rank;
    given.n = n;
    given.counts = table_new(ranks, sizeof *given.counts);
    given.places = table_new(ranks, sizeof *given.places);
    given.byte_places = table_new(ranks, sizeof *given.byte_places);
    given.far_places = table_new(ranks, sizeof *given.far_places);
    given.types = table_new(ranks, sizeof *given.types);
    for (int rank = 0; rank < run->size; rank++) {
        given.counts[rank] = n;
        given.places[rank] = rank * n;
        given.byte_places[rank] = rank * n * (int)sizeof(int);
        given.far_places[rank] = given.byte_places[rank];
        given.types[rank] = MPI_INT;
    }
    MPI_Dist_graph_create_adjacent(run->comm, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &given.ring);
}

static void given_free(void)
{
    free(given.counts);
    free(given.places);
    free(given.byte_places);
    free(given.far_places);
    free(given.types);
    MPI_Comm_free(&given.ring);
}

// A persistent collective over blocks of n integers: how it is made, and what the receive buffer
// holds after it. send has a block a rank; recv too.
struct collective {
    const char *name;
    void (*init)(void *send, void *recv, MPI_Request *request);
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

static void init_bcast(void *send, void *recv, MPI_Request *request)
{
    MPI_Bcast_init(given.rank == 0 ? send : recv, given.n, MPI_INT, 0, given.comm, MPI_INFO_NULL,
                   request);
}

static void expect_bcast(struct buffer *recv, int n)
{
    if (recv->run->rank != 0)
        expect_block(recv, n, 0, 0, 0);
}

static void init_alltoall(void *send, void *recv, MPI_Request *request)
{
    MPI_Alltoall_init(send, given.n, MPI_INT, recv, given.n, MPI_INT, given.comm, MPI_INFO_NULL,
                      request);
}

static void expect_alltoall(struct buffer *recv, int n)
{
    for (int rank = 0; rank < recv->run->size; rank++)
        expect_block(recv, n, rank, rank, recv->run->rank);
}

static void init_allgather(void *send, void *recv, MPI_Request *request)
{
    MPI_Allgather_init(send, given.n, MPI_INT, recv, given.n, MPI_INT, given.comm, MPI_INFO_NULL,
                       request);
}

static void expect_allgather(struct buffer *recv, int n)
{
    for (int rank = 0; rank < recv->run->size; rank++)
        expect_block(recv, n, rank, rank, 0);
}

static void init_gather(void *send, void *recv, MPI_Request *request)
{
    MPI_Gather_init(send, given.n, MPI_INT, recv, given.n, MPI_INT, 0, given.comm, MPI_INFO_NULL,
                    request);
}

static void expect_gather(struct buffer *recv, int n)
{
    if (recv->run->rank == 0)
        expect_allgather(recv, n);
}

static void init_scatter(void *send, void *recv, MPI_Request *request)
{
    MPI_Scatter_init(send, given.n, MPI_INT, recv, given.n, MPI_INT, 0, given.comm, MPI_INFO_NULL,
                     request);
}

static void expect_scatter(struct buffer *recv, int n)
{
    expect_block(recv, n, 0, 0, recv->run->rank);
}

static void init_allreduce(void *send, void *recv, MPI_Request *request)
{
    MPI_Allreduce_init(send, recv, given.n, MPI_INT, MPI_SUM, given.comm, MPI_INFO_NULL, request);
}

static void expect_allreduce(struct buffer *recv, int n)
{
    expect_sum(recv, n, recv->run->size - 1, 0);
}

static void init_reduce(void *send, void *recv, MPI_Request *request)
{
    MPI_Reduce_init(send, recv, given.n, MPI_INT, MPI_SUM, 0, given.comm, MPI_INFO_NULL, request);
}

static void expect_reduce(struct buffer *recv, int n)
{
    if (recv->run->rank == 0)
        expect_allreduce(recv, n);
}

static void init_scan(void *send, void *recv, MPI_Request *request)
{
    MPI_Scan_init(send, recv, given.n, MPI_INT, MPI_SUM, given.comm, MPI_INFO_NULL, request);
}

static void expect_scan(struct buffer *recv, int n)
{
    expect_sum(recv, n, recv->run->rank, 0);
}

static void init_exscan(void *send, void *recv, MPI_Request *request)
{
    MPI_Exscan_init(send, recv, given.n, MPI_INT, MPI_SUM, given.comm, MPI_INFO_NULL, request);
}

static void expect_exscan(struct buffer *recv, int n)
{
    if (recv->run->rank != 0)
        expect_sum(recv, n, recv->run->rank - 1, 0);
}

static void init_reduce_scatter_block(void *send, void *recv, MPI_Request *request)
{
    MPI_Reduce_scatter_block_init(send, recv, given.n, MPI_INT, MPI_SUM, given.comm, MPI_INFO_NULL,
                                  request);
}

static void expect_reduce_scatter_block(struct buffer *recv, int n)
{
    expect_sum(recv, n, recv->run->size - 1, recv->run->rank);
}

static void init_gatherv(void *send, void *recv, MPI_Request *request)
{
    MPI_Gatherv_init(send, given.n, MPI_INT, recv, given.counts, given.places, MPI_INT, 0,
                     given.comm, MPI_INFO_NULL, request);
}

static void init_scatterv(void *send, void *recv, MPI_Request *request)
{
    MPI_Scatterv_init(send, given.counts, given.places, MPI_INT, recv, given.n, MPI_INT, 0,
                      given.comm, MPI_INFO_NULL, request);
}

static void init_allgatherv(void *send, void *recv, MPI_Request *request)
{
    MPI_Allgatherv_init(send, given.n, MPI_INT, recv, given.counts, given.places, MPI_INT,
                        given.comm, MPI_INFO_NULL, request);
}

static void init_alltoallv(void *send, void *recv, MPI_Request *request)
{
    MPI_Alltoallv_init(send, given.counts, given.places, MPI_INT, recv, given.counts, given.places,
                       MPI_INT, given.comm, MPI_INFO_NULL, request);
}

static void init_alltoallw(void *send, void *recv, MPI_Request *request)
{
    MPI_Alltoallw_init(send, given.counts, given.byte_places, given.types, recv, given.counts,
                       given.byte_places, given.types, given.comm, MPI_INFO_NULL, request);
}

static void init_reduce_scatter(void *send, void *recv, MPI_Request *request)
{
    MPI_Reduce_scatter_init(send, recv, given.counts, MPI_INT, MPI_SUM, given.comm, MPI_INFO_NULL,
                            request);
}

static void init_neighbor_allgather(void *send, void *recv, MPI_Request *request)
{
    MPI_Neighbor_allgather_init(send, given.n, MPI_INT, recv, given.n, MPI_INT, given.ring,
                                MPI_INFO_NULL, request);
}

static void init_neighbor_allgatherv(void *send, void *recv, MPI_Request *request)
{
    MPI_Neighbor_allgatherv_init(send, given.n, MPI_INT, recv, given.counts, given.places, MPI_INT,
                                 given.ring, MPI_INFO_NULL, request);
}

static void init_neighbor_alltoall(void *send, void *recv, MPI_Request *request)
{
    MPI_Neighbor_alltoall_init(send, given.n, MPI_INT, recv, given.n, MPI_INT, given.ring,
                               MPI_INFO_NULL, request);
}

static void init_neighbor_alltoallv(void *send, void *recv, MPI_Request *request)
{
    MPI_Neighbor_alltoallv_init(send, given.counts, given.places, MPI_INT, recv, given.counts,
                                given.places, MPI_INT, given.ring, MPI_INFO_NULL, request);
}

static void init_neighbor_alltoallw(void *send, void *recv, MPI_Request *request)
{
    MPI_Neighbor_alltoallw_init(send, given.counts, given.far_places, given.types, recv,
                                given.counts, given.far_places, given.types, given.ring,
                                MPI_INFO_NULL, request);
}

static void expect_neighbor(struct buffer *recv, int n)
{
    expect_block(recv, n, 0, (recv->run->rank + recv->run->size - 1) % recv->run->size, 0);
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
    {"Gatherv_init", init_gatherv, expect_gather},
    {"Scatterv_init", init_scatterv, expect_scatter},
    {"Allgatherv_init", init_allgatherv, expect_allgather},
    {"Alltoallv_init", init_alltoallv, expect_alltoall},
    {"Alltoallw_init", init_alltoallw, expect_alltoall},
    {"Reduce_scatter_init", init_reduce_scatter, expect_reduce_scatter_block},
    {"Neighbor_allgather_init", init_neighbor_allgather, expect_neighbor},
    {"Neighbor_allgatherv_init", init_neighbor_allgatherv, expect_neighbor},
    {"Neighbor_alltoall_init", init_neighbor_alltoall, expect_neighbor},
    {"Neighbor_alltoallv_init", init_neighbor_alltoallv, expect_neighbor},
    {"Neighbor_alltoallw_init", init_neighbor_alltoallw, expect_neighbor},
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
    given_new(run, n);
    for (int i = 0; i < COUNT_OF(collectives); i++) {
        struct buffer *send = buffer_new(run, "send", all), *recv = buffer_new(run, "recv", all);
        MPI_Request request;
        run->step = collectives[i].name;
        collectives[i].init(send->data, recv->data, &request);
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
    given_free();
}

// Reductions that stand at once, and are started in one order by even ranks and in the other by odd
// ones. Fabrail does those of device memory that are not short; the MPI's own need not bear it.
static void step_orders(struct run *run, size_t bytes)
{
    enum { FIRST = 5, COUNT = 5, LEAST_BYTES = 16384 };
    struct buffer *send[COUNT], *recv[COUNT];
    MPI_Request requests[COUNT];
    int n = (int)(bytes / sizeof(int));
    size_t all = (size_t)n * sizeof(int) * (size_t)run->size;
    if (bytes < LEAST_BYTES || strcmp(run->memory_name, "host") == 0)
        return;
    given_new(run, n);
    for (int i = 0; i < COUNT; i++) {
        send[i] = buffer_new(run, "send", all);
        recv[i] = buffer_new(run, "recv", all);
        collectives[FIRST + i].init(send[i]->data, recv[i]->data, &requests[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        run->step = "orders";
        for (int i = 0; i < COUNT; i++) {
            fill_values(run, send[i]);
            collectives[FIRST + i].expect(recv[i], n);
        }
        for (int i = 0; i < COUNT; i++)
            MPI_Start(&requests[run->rank % 2 ? i : COUNT - 1 - i]);
        for (int i = 0; i < COUNT; i++)
            MPI_Wait(&requests[(i + round + run->rank) % COUNT], MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++)
            buffer_check(recv[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        MPI_Request_free(&requests[i]);
        buffer_finish(recv[i]);
        buffer_finish(send[i]);
    }
    given_free();
}

// Gives a buffer other memory, mostly at the same address. Returns whether it is there.
static bool swap_memory(struct buffer *buffer)
{
    unsigned char *address = buffer->memory.address;
    enum memory_kind kind = buffer->memory.kind;
    size_t bytes = buffer->memory.bytes;
    memory_free(&buffer->memory);
    buffer->memory = memory_new(kind, bytes);
    buffer->data += buffer->memory.address - address;
    buffer_upload(buffer);
    return buffer->memory.address == address;
}

// A standing reduction whose memory the ranks free and allocate anew between its starts.
static void step_swapped(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int)), same = 0;
    size_t all = (size_t)n * sizeof(int);
    struct buffer *send = buffer_new(run, "send", all), *recv = buffer_new(run, "recv", all);
    MPI_Request request = MPI_REQUEST_NULL;
    given_new(run, n);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        if (!same && round)
            MPI_Request_free(&request);
        if (!same)
            init_allreduce(send->data, recv->data, &request);
        fill_values(run, send);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect_allreduce(recv, n);
        buffer_check(recv);
        bool is_turn = round % (run->size + 1) != run->rank; // all ranks, or all but one
        same = !is_turn || (swap_memory(send) && (round % 2 || swap_memory(recv)));
        MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, run->comm);
    }
    MPI_Request_free(&request);
    buffer_finish(recv);
    buffer_finish(send);
    given_free();
}

static const struct step steps[] = {
    {"collectives", step_collectives, LIMIT_SMALL, 1},
    {"orders", step_orders, LIMIT_SMALL, 2},
    {"swapped", step_swapped, LIMIT_SMALL, 0},
};

PROGRAM("standing", steps)

#else

PROGRAM_SKIPPED("this MPI has no sound persistent collectives")

#endif
