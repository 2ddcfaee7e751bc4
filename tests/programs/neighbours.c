// SPDX-License-Identifier: BSD-3-Clause
// Neighbourhood collectives on a grid with edges and on a graph whose ranks have neighbours in
// different numbers, coming and going.
#include "harness.h"
#include "plan.h"

#include <stdlib.h>

enum { EDGES_MAX = 16, GAP_BYTES = 16 };

// The ranks that send to this one and those it sends to, in MPI's order.
struct neighbours {
    MPI_Comm comm;
    int sources, targets;
    int from[EDGES_MAX], to[EDGES_MAX]; // MPI_PROC_NULL beyond the edge of a grid
};

static struct neighbours grid_of(const struct run *run)
{
    struct neighbours n = {.sources = 4, .targets = 4};
    int dims[2] = {0}, periods[2] = {0};
    MPI_Dims_create(run->size, 2, dims);
    MPI_Cart_create(run->comm, 2, dims, periods, 0, &n.comm);
    for (int d = 0; d < 2; d++)
        MPI_Cart_shift(n.comm, d, 1, &n.from[2 * d], &n.from[2 * d + 1]);
    for (int i = 0; i < 4; i++)
        n.to[i] = n.from[i];
    return n;
}

// Rank r sends to all ranks whose distance ahead is at most 1 + r mod 3, itself not included.
static bool sends(const struct run *run, int from, int to)
{
    int ahead = (to - from + run->size) % run->size;
    return ahead != 0 && ahead <= 1 + from % 3;
}

static struct neighbours graph_of(const struct run *run)
{
    struct neighbours n = {0};
    for (int rank = run->size - 1; rank >= 0; rank--) {
        if (sends(run, rank, run->rank) && n.sources < EDGES_MAX)
            n.from[n.sources++] = rank;
        if (sends(run, run->rank, rank) && n.targets < EDGES_MAX)
            n.to[n.targets++] = rank;
    }
    MPI_Dist_graph_create_adjacent(run->comm, n.sources, n.from, MPI_UNWEIGHTED, n.targets, n.to,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &n.comm);
    return n;
}

// The block of neighbour number i of one direction.
struct blocks {
    block_count counts[EDGES_MAX];
    block_place places[EDGES_MAX];
    size_t bytes;
};

static size_t message_bytes(size_t bytes, bool vary, int from, int to)
{
    return vary ? plan_block_bytes(bytes, from, to) : bytes;
}

static struct blocks blocks_of(const struct run *run, const struct neighbours *n, bool receiving,
                               size_t bytes, bool vary)
{
    struct blocks blocks = {.bytes = 0};
    for (int i = 0; i < (receiving ? n->sources : n->targets); i++) {
        int other = receiving ? n->from[i] : n->to[i];
        size_t gap = vary ? GAP_BYTES : 0;
        size_t block =
            other == MPI_PROC_NULL ? bytes : message_bytes(bytes, vary, other, run->rank);
        blocks.places[i] = (block_place)(blocks.bytes + gap);
        blocks.counts[i] = (block_count)block;
        blocks.bytes += block + gap;
    }
    return blocks;
}

static struct buffer *outgoing(struct run *run, const struct neighbours *n,
                               const struct blocks *blocks)
{
    struct buffer *send = buffer_new(run, "send", blocks->bytes);
    for (int i = 0; i < n->targets; i++)
        if (n->to[i] != MPI_PROC_NULL)
            buffer_expect(send, (size_t)blocks->places[i], (size_t)blocks->counts[i],
                          run_seed(run, run->rank, n->to[i]));
    buffer_upload(send);
    return send;
}

// all_get_same: every neighbour gets the one block that the sender has for all.
static void check_incoming(struct buffer *recv, const struct neighbours *n,
                           const struct blocks *blocks, bool all_get_same)
{
    struct run *run = recv->run;
    for (int i = 0; i < n->sources; i++)
        if (n->from[i] != MPI_PROC_NULL)
            buffer_expect(recv, (size_t)blocks->places[i], (size_t)blocks->counts[i],
                          run_seed(run, n->from[i], all_get_same ? -1 : run->rank));
    buffer_finish(recv);
}

static void allgather(struct run *run, size_t bytes, const struct neighbours *n, bool vary,
                      bool blocking)
{
    // The sender's block has one size for all its neighbours.
    struct blocks in = {.bytes = 0};
    size_t own = message_bytes(bytes, vary, run->rank, run->rank);
    for (int i = 0; i < n->sources; i++) {
        int from = n->from[i];
        in.places[i] = (block_place)in.bytes + (vary ? GAP_BYTES : 0);
        in.counts[i] =
            (int)(from == MPI_PROC_NULL ? bytes : message_bytes(bytes, vary, from, from));
        in.bytes = (size_t)in.places[i] + (size_t)in.counts[i];
    }
    struct buffer *send = buffer_filled(run, "send", own, run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", in.bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    if (vary && blocking)
        MPI_Neighbor_allgatherv(send->data, (int)own, MPI_BYTE, recv->data, in.counts, in.places,
                                MPI_BYTE, n->comm);
    else if (vary)
        MPI_Ineighbor_allgatherv(send->data, (int)own, MPI_BYTE, recv->data, in.counts, in.places,
                                 MPI_BYTE, n->comm, &request);
    else if (blocking)
        MPI_Neighbor_allgather(send->data, (int)own, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE,
                               n->comm);
    else
        MPI_Ineighbor_allgather(send->data, (int)own, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE,
                                n->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_incoming(recv, n, &in, true);
    buffer_finish(send);
}

static void alltoall(struct run *run, size_t bytes, const struct neighbours *n, bool vary,
                     bool blocking)
{
    struct blocks in = blocks_of(run, n, true, bytes, vary);
    struct blocks out = blocks_of(run, n, false, bytes, vary);
    struct buffer *send = outgoing(run, n, &out);
    struct buffer *recv = buffer_new(run, "recv", in.bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    if (vary && blocking)
        MPI_Neighbor_alltoallv(send->data, out.counts, out.places, MPI_BYTE, recv->data, in.counts,
                               in.places, MPI_BYTE, n->comm);
    else if (vary)
        MPI_Ineighbor_alltoallv(send->data, out.counts, out.places, MPI_BYTE, recv->data, in.counts,
                                in.places, MPI_BYTE, n->comm, &request);
    else if (blocking)
        MPI_Neighbor_alltoall(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE,
                              n->comm);
    else
        MPI_Ineighbor_alltoall(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE,
                               n->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_incoming(recv, n, &in, false);
    buffer_finish(send);
}

// Each neighbour's data are every other unit of four bytes on the receiving side, and a plain run
// on the sending one. Both count one element: MPICH 4.0 mixes up the counts of the two directions.
static void alltoallw(struct run *run, size_t bytes, const struct neighbours *n, bool blocking)
{
    int units = (int)(bytes / 4);
    block_count ones[EDGES_MAX];
    size_t sparse = (size_t)units * 8;
    MPI_Aint from_at[EDGES_MAX], to_at[EDGES_MAX];
    MPI_Datatype runs[EDGES_MAX], spreads[EDGES_MAX], run_type, spread_type;
    MPI_Type_contiguous(units * 4, MPI_BYTE, &run_type);
    MPI_Type_vector(units, 4, 8, MPI_BYTE, &spread_type);
    MPI_Type_commit(&run_type);
    MPI_Type_commit(&spread_type);
    for (int i = 0; i < EDGES_MAX; i++) {
        ones[i] = 1;
        to_at[i] = (MPI_Aint)(i * units * 4);
        from_at[i] = (MPI_Aint)((size_t)i * sparse);
        runs[i] = run_type;
        spreads[i] = spread_type;
    }
    struct buffer *send = buffer_new(run, "send", (size_t)(n->targets * units * 4));
    struct buffer *recv = buffer_new(run, "recv", (size_t)n->sources * sparse);
    for (int i = 0; i < n->targets; i++)
        if (n->to[i] != MPI_PROC_NULL)
            buffer_expect(send, (size_t)to_at[i], (size_t)(units * 4),
                          run_seed(run, run->rank, n->to[i]));
    buffer_upload(send);
    MPI_Request request = MPI_REQUEST_NULL;
    if (blocking)
        MPI_Neighbor_alltoallw(send->data, ones, to_at, runs, recv->data, ones, from_at, spreads,
                               n->comm);
    else
        MPI_Ineighbor_alltoallw(send->data, ones, to_at, runs, recv->data, ones, from_at, spreads,
                                n->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < n->sources; i++)
        for (int unit = 0; n->from[i] != MPI_PROC_NULL && unit < units; unit++)
            pattern_write(recv->want + (size_t)from_at[i] + (size_t)unit * 8,
                          run_seed(run, n->from[i], run->rank), (size_t)unit * 4, 4);
    buffer_finish(recv);
    buffer_finish(send);
    MPI_Type_free(&run_type);
    MPI_Type_free(&spread_type);
}

static void both_topologies(struct run *run, size_t bytes,
                            void (*call)(struct run *run, size_t bytes, const struct neighbours *n))
{
    struct neighbours grid = grid_of(run), graph = graph_of(run);
    call(run, bytes, &grid);
    call(run, bytes, &graph);
    MPI_Comm_free(&grid.comm);
    MPI_Comm_free(&graph.comm);
}

static void all_allgathers(struct run *run, size_t bytes, const struct neighbours *n)
{
    for (int form = 0; form < 6; form++) // blocking, nonblocking, blocking
        allgather(run, bytes, n, form % 2 != 0, form / 2 != 1);
}

static void all_alltoalls(struct run *run, size_t bytes, const struct neighbours *n)
{
    for (int form = 0; form < 4; form++)
        alltoall(run, bytes, n, form % 2 != 0, form / 2 == 0);
}

static void all_alltoallws(struct run *run, size_t bytes, const struct neighbours *n)
{
    alltoallw(run, bytes, n, true);
    alltoallw(run, bytes, n, false);
}

static void step_allgather(struct run *run, size_t bytes)
{
    both_topologies(run, bytes, all_allgathers);
}

static void step_alltoall(struct run *run, size_t bytes)
{
    both_topologies(run, bytes, all_alltoalls);
}

static void step_alltoallw(struct run *run, size_t bytes)
{
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    // On graphs whose ranks differ in their numbers of neighbours MPICH 4.0 loses messages.
    struct neighbours grid = grid_of(run);
    all_alltoallws(run, bytes, &grid);
    MPI_Comm_free(&grid.comm);
#else
    both_topologies(run, bytes, all_alltoallws);
#endif
}

static const struct step steps[] = {
    {"Neighbor_allgather", step_allgather, LIMIT_MIDDLE, 1},
    {"Neighbor_alltoall", step_alltoall, LIMIT_MIDDLE, 1},
    {"Neighbor_alltoallw", step_alltoallw, LIMIT_SMALL, 1},
};

PROGRAM("neighbours", steps)
