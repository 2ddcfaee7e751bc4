// SPDX-License-Identifier: BSD-3-Clause
// Halo exchange: grids whose edges are swapped with their neighbours by derived datatypes, and
// messages of every kind of datatype, completed in every way.
#include "completion.h"
#include "harness.h"
#include "types.h"

#include <stdlib.h>

enum { TAG = 21, DIMENSIONS_MAX = 3, SIDES = 2 };

// A block of doubles with a ghost layer of one cell all around it, in a grid of ranks.
struct grid {
    struct run *run;
    MPI_Comm comm;
    int dimensions;
    int edges[DIMENSIONS_MAX]; // with ghosts
    int neighbours[DIMENSIONS_MAX][SIDES];
    struct buffer *cells;
};

static struct grid grid_new(struct run *run, int dimensions, int edge, bool periodic)
{
    struct grid grid = {.run = run, .dimensions = dimensions};
    int ranks[DIMENSIONS_MAX] = {0}, periods[DIMENSIONS_MAX] = {periodic, false, periodic};
    size_t cells = 1;
    MPI_Dims_create(run->size, dimensions, ranks);
    MPI_Cart_create(run->comm, dimensions, ranks, periods, 0, &grid.comm);
    for (int d = 0; d < dimensions; d++) {
        grid.edges[d] = edge + d + 2;
        cells *= (size_t)grid.edges[d];
        MPI_Cart_shift(grid.comm, d, 1, &grid.neighbours[d][0], &grid.neighbours[d][1]);
    }
    grid.cells = buffer_filled(run, "cells", cells * sizeof(double), run_seed(run, run->rank, 0));
    return grid;
}

static void grid_finish(struct grid *grid)
{
    buffer_finish(grid->cells);
    MPI_Comm_free(&grid->comm);
}

// The layer of cells at one side of one dimension: the ghosts, or the inner cells next to them. It
// leaves out the ghosts of the other dimensions.
struct layer {
    int parts[DIMENSIONS_MAX], starts[DIMENSIONS_MAX];
};

static struct layer layer_of(const struct grid *grid, int dimension, int side, bool ghosts)
{
    struct layer layer;
    for (int d = 0; d < grid->dimensions; d++) {
        layer.parts[d] = grid->edges[d] - 2;
        layer.starts[d] = 1;
    }
    layer.parts[dimension] = 1;
    layer.starts[dimension] = side == 0 ? !ghosts : grid->edges[dimension] - 2 + ghosts;
    return layer;
}

static MPI_Datatype layer_type(const struct grid *grid, int dimension, int side, bool ghosts)
{
    struct layer layer = layer_of(grid, dimension, side, ghosts);
    MPI_Datatype type;
    MPI_Type_create_subarray(grid->dimensions, grid->edges, layer.parts, layer.starts, MPI_ORDER_C,
                             MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

// Copies a layer of the neighbour's cells, which hold the stream of seed, into this rank's ghosts.
static void expect_ghosts(struct grid *grid, int dimension, int side, uint64_t seed)
{
    struct layer to = layer_of(grid, dimension, side, true);
    struct layer from = layer_of(grid, dimension, 1 - side, false);
    int third = grid->dimensions == 3 ? to.parts[2] : 1;
    for (int i = 0; i < to.parts[0] * to.parts[1] * third; i++) {
        int at[DIMENSIONS_MAX] = {i / third / to.parts[1], i / third % to.parts[1], i % third};
        size_t target = 0, source = 0;
        for (int d = 0; d < grid->dimensions; d++) {
            target = target * (size_t)grid->edges[d] + (size_t)(to.starts[d] + at[d]);
            source = source * (size_t)grid->edges[d] + (size_t)(from.starts[d] + at[d]);
        }
        pattern_write(grid->cells->want + target * sizeof(double), seed, source * sizeof(double),
                      sizeof(double));
    }
}

static void exchange(struct grid *grid, enum completion how)
{
    struct run *run = grid->run;
    MPI_Request requests[4 * DIMENSIONS_MAX];
    MPI_Datatype types[4 * DIMENSIONS_MAX];
    int n = 0;
    // A message is tagged with the side it came from: in a grid two ranks wide and periodic both
    // neighbours are the same rank.
    for (int i = 0; i < 2 * grid->dimensions; i++, n++) {
        int d = i / 2, side = i % 2;
        types[n] = layer_type(grid, d, side, true);
        MPI_Irecv(grid->cells->data, 1, types[n], grid->neighbours[d][side], TAG + 2 * d + side,
                  grid->comm, &requests[n]);
    }
    for (int i = 0; i < 2 * grid->dimensions; i++, n++) {
        int d = i / 2, side = i % 2;
        types[n] = layer_type(grid, d, side, false);
        MPI_Isend(grid->cells->data, 1, types[n], grid->neighbours[d][side], TAG + 2 * d + 1 - side,
                  grid->comm, &requests[n]);
    }
    // MPI keeps a freed type for as long as a message needs it.
    for (int i = 0; i < n; i++)
        MPI_Type_free(&types[i]);
    complete(how, n, requests, NULL, NULL);
    for (int i = 0; i < 2 * grid->dimensions; i++) {
        int neighbour = grid->neighbours[i / 2][i % 2];
        if (neighbour != MPI_PROC_NULL)
            expect_ghosts(grid, i / 2, i % 2, run_seed(run, neighbour, 0));
    }
}

static void exchange_grid(struct run *run, int dimensions, int edge, bool periodic)
{
    struct grid grid = grid_new(run, dimensions, edge, periodic);
    exchange(&grid, (enum completion)(run->round % COMPLETIONS));
    grid_finish(&grid);
}

// Edges of the grid such that a layer has about so many bytes.
static void step_plane(struct run *run, size_t bytes)
{
    int edge = (int)(bytes / 64) + 1;
    exchange_grid(run, 2, edge < 500 ? edge : 500, run->round % 2 == 0);
}

static void step_space(struct run *run, size_t bytes)
{
    int edge = 1;
    while ((size_t)(edge * edge) * sizeof(double) < bytes)
        edge++;
    exchange_grid(run, 3, edge, run->round % 2 == 0);
}

// A pass of messages around a ring, one of each type, to be checked one by one as they complete.
struct pass {
    int messages, left, right;
    struct shape *send_shapes, *recv_shapes;
    struct buffer **sends, **recvs;
    int received; // checked messages
    struct run *run;
};

enum side { SAME, PLAIN_SEND, PLAIN_RECV, SIDE_CHOICES };

static bool plain_possible(const struct shape *shape)
{
    return shape->ints != 0;
}

static struct pass pass_new(struct run *run, int n, enum side side)
{
    size_t count = (size_t)shape_count();
    struct pass pass = {.messages = (int)count,
                        .left = (run->rank + run->size - 1) % run->size,
                        .right = (run->rank + 1) % run->size,
                        .send_shapes = table_new(count, sizeof(struct shape)),
                        .recv_shapes = table_new(count, sizeof(struct shape)),
                        .sends = table_new(count, sizeof(struct buffer *)),
                        .recvs = table_new(count, sizeof(struct buffer *)),
                        .run = run};
    for (int i = 0; i < pass.messages; i++) {
        struct shape derived = shape_new(i, n), other = shape_new(i, n);
        if (side != SAME && plain_possible(&derived)) {
            shape_free(&other);
            other = shape_plain(derived.ints);
        }
        pass.send_shapes[i] = side == PLAIN_SEND ? other : derived;
        pass.recv_shapes[i] = side == PLAIN_SEND ? derived : other;
        pass.sends[i] =
            shape_filled(run, derived.name, &pass.send_shapes[i], run_seed(run, run->rank, i));
        pass.recvs[i] = shape_buffer(run, derived.name, &pass.recv_shapes[i]);
    }
    return pass;
}

static void pass_finish(struct pass *pass)
{
    run_check(pass->run, pass->received == pass->messages, "%d of %d messages were completed",
              pass->received, pass->messages);
    for (int i = 0; i < pass->messages; i++) {
        buffer_finish(pass->sends[i]);
        buffer_free(pass->recvs[i]);
        shape_free(&pass->send_shapes[i]);
        shape_free(&pass->recv_shapes[i]);
    }
    free(pass->sends);
    free(pass->recvs);
    free(pass->send_shapes);
    free(pass->recv_shapes);
}

static void check_message(void *context, int index, const MPI_Status *status)
{
    struct pass *pass = context;
    if (index >= pass->messages)
        return; // a send
    const struct shape *shape = &pass->recv_shapes[index];
    shape_expect(pass->recvs[index], shape, &pass->send_shapes[index],
                 run_seed(pass->run, pass->left, index));
    int size = 0;
    MPI_Type_size(shape->type, &size);
    status_check(pass->run, status, pass->left, TAG + index, shape->type,
                 size != 0 ? shape->count : 0);
    buffer_check(pass->recvs[index]);
    pass->received++;
}

static void step_types(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int)) + 1;
    struct pass pass = pass_new(run, n, (enum side)(run->round % SIDE_CHOICES));
    MPI_Request *requests = table_new(2 * (size_t)pass.messages, sizeof(MPI_Request));
    for (int i = 0; i < pass.messages; i++)
        MPI_Irecv(shape_address(pass.recvs[i], &pass.recv_shapes[i]), pass.recv_shapes[i].count,
                  pass.recv_shapes[i].type, pass.left, TAG + i, run->comm, &requests[i]);
    for (int i = 0; i < pass.messages; i++)
        MPI_Isend(shape_address(pass.sends[i], &pass.send_shapes[i]), pass.send_shapes[i].count,
                  pass.send_shapes[i].type, pass.right, TAG + i, run->comm,
                  &requests[pass.messages + i]);
    complete((enum completion)(run->round / SIDE_CHOICES % COMPLETIONS), 2 * pass.messages,
             requests, check_message, &pass);
    pass_finish(&pass);
    free(requests);
}

static void step_completions(struct run *run, size_t bytes)
{
    for (int i = 0; i < COMPLETIONS * SIDE_CHOICES; i++) {
        run->step = completion_name((enum completion)(run->round / SIDE_CHOICES % COMPLETIONS));
        step_types(run, bytes != 0 ? bytes : 40);
        run->round++;
    }
}

// Half a message of derived type: whole elements and a part of one, the rest as it was.
static void step_partial(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    int n = (int)(bytes / sizeof(int)) + 8;
    for (int i = 0; i < shape_count(); i++) {
        struct shape to = shape_new(i, n);
        struct shape from = shape_plain(to.ints * 2 / 3 + 1);
        MPI_Status status;
        int elements = 0;
        if (to.ints < 2) {
            shape_free(&to);
            continue;
        }
        struct buffer *send = shape_filled(run, "send", &from, run_seed(run, run->rank, right));
        struct buffer *recv = shape_buffer(run, to.name, &to);
        MPI_Sendrecv(shape_address(send, &from), from.count, from.type, right, TAG,
                     shape_address(recv, &to), to.count, to.type, left, TAG, run->comm, &status);
        MPI_Get_elements(&status, to.type, &elements);
        run_check(run, elements == from.ints, "Get_elements says %d, expected %d", elements,
                  from.ints);
        shape_expect(recv, &to, &from, run_seed(run, left, run->rank));
        buffer_finish(recv);
        buffer_finish(send);
        shape_free(&to);
    }
}

static const struct step steps[] = {
    {"2D grid", step_plane, LIMIT_MIDDLE, 1},  {"3D grid", step_space, LIMIT_SMALL, 1},
    {"types", step_types, LIMIT_MIDDLE, 1},    {"completions", step_completions, STEP_ONCE, 1},
    {"partial", step_partial, LIMIT_SMALL, 1},
};

PROGRAM("halo", steps)
