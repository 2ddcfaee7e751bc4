// SPDX-License-Identifier: BSD-3-Clause
// Matrix transpose, the communication of a parallel FFT: every rank sends a block to every other,
// by each of MPI's ways to say so.
#include "harness.h"
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum form { BLOCKING, NONBLOCKING };

// Nonblocking exchanges are done this often, each over what the one before has received: a library
// that maps buffers for them has done so by the last.
enum { TIMES = 4 };

static void finish(MPI_Request *request)
{
    MPI_Status status;
    MPI_Wait(request, &status);
}

// Blocks of equal size in rank order, each with the data that this rank sends or receives.
static void expect_blocks(struct buffer *buffer, size_t bytes, bool received)
{
    struct run *run = buffer->run;
    for (int peer = 0; peer < run->size; peer++) {
        uint64_t seed = received ? run_seed(run, peer, run->rank) : run_seed(run, run->rank, peer);
        buffer_expect(buffer, (size_t)peer * bytes, bytes, seed);
    }
}

static struct buffer *blocks_to_send(struct run *run, const char *name, size_t bytes)
{
    struct buffer *buffer = buffer_new(run, name, bytes * (size_t)run->size);
    expect_blocks(buffer, bytes, false);
    buffer_upload(buffer);
    return buffer;
}

static void alltoall(struct run *run, size_t bytes, enum form form)
{
    MPI_Datatype type = bytes % 8 == 0 ? MPI_DOUBLE : MPI_BYTE;
    int count = (int)(bytes % 8 == 0 ? bytes / 8 : bytes);
    struct buffer *send = blocks_to_send(run, "send", bytes);
    struct buffer *recv = buffer_new(run, "recv", send->bytes);
    if (form == NONBLOCKING) {
        for (int i = 0; i < TIMES; i++) {
            MPI_Request request;
            MPI_Ialltoall(send->data, count, type, recv->data, count, type, run->comm, &request);
            finish(&request);
        }
    } else {
        MPI_Alltoall(send->data, count, type, recv->data, count, type, run->comm);
    }
    expect_blocks(recv, bytes, true);
    buffer_finish(recv);
    buffer_finish(send);
}

static void step_alltoall(struct run *run, size_t bytes)
{
    alltoall(run, bytes, BLOCKING);
}

static void step_ialltoall(struct run *run, size_t bytes)
{
    alltoall(run, bytes, NONBLOCKING);
}

static void alltoall_in_place(struct run *run, size_t bytes, enum form form)
{
    struct buffer *both = blocks_to_send(run, "both", bytes);
    int count = (int)bytes;
    if (form == NONBLOCKING) {
        MPI_Request request;
        MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both->data, count, MPI_BYTE, run->comm,
                      &request);
        finish(&request);
    } else {
        MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both->data, count, MPI_BYTE, run->comm);
    }
    expect_blocks(both, bytes, true);
    buffer_finish(both);
}

static void step_alltoall_in_place(struct run *run, size_t bytes)
{
    alltoall_in_place(run, bytes, BLOCKING);
}

static void step_ialltoall_in_place(struct run *run, size_t bytes)
{
    alltoall_in_place(run, bytes, NONBLOCKING);
}

static void expect_plan(struct buffer *buffer, const struct plan *plan, bool received)
{
    struct run *run = buffer->run;
    for (int peer = 0; peer < plan->peers; peer++) {
        uint64_t seed = received ? run_seed(run, peer, run->rank) : run_seed(run, run->rank, peer);
        buffer_expect(buffer, (size_t)plan->displacements[peer], (size_t)plan->counts[peer], seed);
    }
}

static void alltoallv(struct run *run, size_t bytes, enum form form)
{
    struct plan plan = plan_new(run, run->size, bytes);
    struct buffer *send = buffer_new(run, "send", plan.bytes);
    struct buffer *recv = buffer_new(run, "recv", plan.bytes);
    expect_plan(send, &plan, false);
    buffer_upload(send);
    if (form == NONBLOCKING) {
        for (int i = 0; i < TIMES; i++) {
            MPI_Request request;
            MPI_Ialltoallv(send->data, plan.counts, plan.displacements, MPI_BYTE, recv->data,
                           plan.counts, plan.displacements, MPI_BYTE, run->comm, &request);
            finish(&request);
        }
    } else {
        MPI_Alltoallv(send->data, plan.counts, plan.displacements, MPI_BYTE, recv->data,
                      plan.counts, plan.displacements, MPI_BYTE, run->comm);
    }
    expect_plan(recv, &plan, true);
    buffer_finish(recv);
    buffer_finish(send);
    plan_free(&plan);
}

static void step_alltoallv(struct run *run, size_t bytes)
{
    alltoallv(run, bytes, BLOCKING);
}

static void step_ialltoallv(struct run *run, size_t bytes)
{
    alltoallv(run, bytes, NONBLOCKING);
}

static void step_alltoallv_in_place(struct run *run, size_t bytes)
{
    struct plan plan = plan_new(run, run->size, bytes);
    struct buffer *both = buffer_new(run, "both", plan.bytes);
    expect_plan(both, &plan, false);
    buffer_upload(both);
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, both->data, plan.counts,
                  plan.displacements, MPI_BYTE, run->comm);
    expect_plan(both, &plan, true);
    buffer_finish(both);
    plan_free(&plan);
}

// Returns the bytes that rank `from` sends to rank `to` the `turn`th time.
static uint64_t turn_seed(const struct run *run, int from, int to, int turn)
{
    return run_seed(run, from + (turn + 1) * run->size, to);
}

static void turn_exchange(struct run *run, MPI_Comm comm, size_t bytes, int turn,
                          struct buffer *const *send, struct buffer *recv)
{
    struct buffer *from = send[turn % 2];
    for (int peer = 0; peer < run->size; peer++) {
        size_t at = (size_t)peer * bytes;
        buffer_expect(from, at, bytes, turn_seed(run, run->rank, peer, turn));
        buffer_expect(recv, at, bytes, turn_seed(run, peer, run->rank, turn));
    }
    buffer_upload(from);
    MPI_Alltoall(from->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE, comm);
    buffer_check(recv);
    buffer_check(from);
}

// Uses the same buffers again and again, on two communicators in turn, one of which comes and goes.
// Some ranks before others take another receive buffer, most likely at the same address.
static void step_again(struct run *run, size_t bytes)
{
    enum { TURNS = 14, OF_A_COMMUNICATOR = 5 };
    struct buffer *send[2] = {buffer_new(run, "even", bytes * (size_t)run->size),
                              buffer_new(run, "odd", bytes * (size_t)run->size)};
    struct buffer *recv = buffer_new(run, "recv", send[0]->bytes);
    MPI_Comm other = MPI_COMM_NULL;
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn % OF_A_COMMUNICATOR == 0) {
            if (other != MPI_COMM_NULL)
                MPI_Comm_free(&other);
            MPI_Comm_dup(run->comm, &other);
        }
        turn_exchange(run, turn / 2 % 2 ? other : run->comm, bytes, turn, send, recv);
        if ((turn + run->rank) % 4 == 3) {
            buffer_free(recv);
            recv = buffer_new(run, "recv", send[0]->bytes);
        }
    }
    MPI_Comm_free(&other);
    buffer_free(recv);
    buffer_free(send[1]);
    buffer_free(send[0]);
}

// One rank has nothing to send and nothing to receive, in turn.
static void step_idle_rank(struct run *run, size_t bytes)
{
    for (int idle = 0; idle < run->size; idle++) {
        struct plan plan = plan_new(run, run->size, bytes);
        struct buffer *send = buffer_new(run, "send", plan.bytes);
        struct buffer *recv = buffer_new(run, "recv", plan.bytes);
        for (int peer = 0; peer < run->size; peer++) {
            if (run->rank == idle || peer == idle)
                plan.counts[peer] = 0;
        }
        expect_plan(send, &plan, false);
        expect_plan(recv, &plan, true);
        buffer_upload(send);
        MPI_Alltoallv(send->data, plan.counts, plan.displacements, MPI_BYTE, recv->data,
                      plan.counts, plan.displacements, MPI_BYTE, run->comm);
        buffer_finish(recv);
        buffer_finish(send);
        plan_free(&plan);
    }
}

// The edge of a block, in doubles, so that a block has about so many bytes.
static int edge_of(size_t bytes)
{
    return (int)sqrt((double)bytes / sizeof(double));
}

// Row r of a block of doubles, at its place among rows that are width doubles long.
static void expect_block_rows(struct buffer *buffer, size_t first, int edge, int width,
                              uint64_t seed)
{
    size_t row_bytes = (size_t)edge * sizeof(double);
    for (int row = 0; row < edge; row++)
        pattern_write(buffer->want + (first + (size_t)row * (size_t)width) * sizeof(double), seed,
                      (size_t)row * row_bytes, row_bytes);
}

// Blocks lie side by side where they are sent and one below the other, with padding to the right,
// where they are received.
enum { PADDING = 3 };

struct matrices {
    int edge, send_width, recv_width;
    block_count *ones;
    block_place *zeros, *recv_at;
    MPI_Datatype *send_types, *recv_types;
};

static struct matrices matrices_new(const struct run *run, int edge)
{
    size_t n = (size_t)run->size;
    struct matrices m = {.edge = edge,
                         .send_width = edge * run->size,
                         .recv_width = edge + PADDING,
                         .ones = table_new(n, sizeof(block_count)),
                         .zeros = table_new(n, sizeof(block_place)),
                         .recv_at = table_new(n, sizeof(block_place)),
                         .send_types = table_new(n, sizeof(MPI_Datatype)),
                         .recv_types = table_new(n, sizeof(MPI_Datatype))};
    for (int peer = 0; peer < run->size; peer++) {
        int sizes[2] = {edge, m.send_width}, parts[2] = {edge, edge}, starts[2] = {0, peer * edge};
        m.ones[peer] = 1;
        m.recv_at[peer] = peer * edge * m.recv_width * (int)sizeof(double);
        MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE,
                                 &m.send_types[peer]);
        MPI_Type_vector(edge, edge, m.recv_width, MPI_DOUBLE, &m.recv_types[peer]);
        MPI_Type_commit(&m.send_types[peer]);
        MPI_Type_commit(&m.recv_types[peer]);
    }
    return m;
}

static void matrices_free(const struct run *run, struct matrices *m)
{
    for (int peer = 0; peer < run->size; peer++) {
        MPI_Type_free(&m->send_types[peer]);
        MPI_Type_free(&m->recv_types[peer]);
    }
    free(m->ones);
    free(m->zeros);
    free(m->recv_at);
    free(m->send_types);
    free(m->recv_types);
}

static void alltoallw(struct run *run, size_t bytes, enum form form)
{
    int edge = edge_of(bytes);
    if (edge == 0)
        return;
    struct matrices m = matrices_new(run, edge);
    size_t rows = (size_t)edge * (size_t)run->size;
    struct buffer *send = buffer_new(run, "send", (size_t)edge * rows * sizeof(double));
    struct buffer *recv = buffer_new(run, "recv", rows * (size_t)m.recv_width * sizeof(double));
    for (int peer = 0; peer < run->size; peer++)
        expect_block_rows(send, (size_t)(peer * edge), edge, m.send_width,
                          run_seed(run, run->rank, peer));
    buffer_upload(send);
    if (form == NONBLOCKING) {
        for (int i = 0; i < TIMES; i++) {
            MPI_Request request;
            MPI_Ialltoallw(send->data, m.ones, m.zeros, m.send_types, recv->data, m.ones, m.recv_at,
                           m.recv_types, run->comm, &request);
            finish(&request);
        }
    } else {
        MPI_Alltoallw(send->data, m.ones, m.zeros, m.send_types, recv->data, m.ones, m.recv_at,
                      m.recv_types, run->comm);
    }
    for (int peer = 0; peer < run->size; peer++)
        expect_block_rows(recv, (size_t)(peer * edge) * (size_t)m.recv_width, edge, m.recv_width,
                          run_seed(run, peer, run->rank));
    buffer_finish(recv);
    buffer_finish(send);
    matrices_free(run, &m);
}

static void step_alltoallw(struct run *run, size_t bytes)
{
    alltoallw(run, bytes, BLOCKING);
}

static void step_ialltoallw(struct run *run, size_t bytes)
{
    alltoallw(run, bytes, NONBLOCKING);
}

static MPI_Datatype resized(MPI_Datatype *type, int doubles)
{
    MPI_Datatype result;
    MPI_Type_create_resized(*type, 0, (MPI_Aint)doubles * (MPI_Aint)sizeof(double), &result);
    MPI_Type_commit(&result);
    MPI_Type_free(type);
    return result;
}

// A block of a matrix whose rows are width doubles long, read column by column.
static MPI_Datatype block_by_columns(int edge, int width)
{
    MPI_Datatype column, columns;
    MPI_Type_vector(edge, 1, width, MPI_DOUBLE, &column);
    column = resized(&column, 1);
    MPI_Type_contiguous(edge, column, &columns);
    MPI_Type_free(&column);
    return resized(&columns, edge);
}

static MPI_Datatype block_by_rows(int edge, int width)
{
    MPI_Datatype rows;
    MPI_Type_vector(edge, edge, width, MPI_DOUBLE, &rows);
    return resized(&rows, edge);
}

// The whole transpose in one call: MPI reads each block by columns and writes it by rows.
static void step_matrix(struct run *run, size_t bytes)
{
    int edge = edge_of(bytes), width = edge * run->size;
    if (edge == 0)
        return;
    size_t local = (size_t)edge * (size_t)width, first_row = (size_t)(run->rank * edge);
    uint64_t seed = run_seed(run, 0, 0);
    struct buffer *send = buffer_new(run, "matrix", local * sizeof(double));
    struct buffer *recv = buffer_new(run, "transposed", local * sizeof(double));
    MPI_Datatype by_columns = block_by_columns(edge, width), by_rows = block_by_rows(edge, width);
    pattern_write(send->want, seed, first_row * (size_t)width * sizeof(double), send->bytes);
    buffer_upload(send);
    MPI_Alltoall(send->data, 1, by_columns, recv->data, 1, by_rows, run->comm);
    for (size_t row = 0; row < (size_t)edge; row++)
        for (size_t column = 0; column < (size_t)width; column++)
            pattern_write(recv->want + (row * (size_t)width + column) * sizeof(double), seed,
                          (column * (size_t)width + first_row + row) * sizeof(double),
                          sizeof(double));
    buffer_finish(recv);
    buffer_finish(send);
    MPI_Type_free(&by_columns);
    MPI_Type_free(&by_rows);
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Microseconds of the slowest rank, the median of run->repeat calls.
static double time_alltoall(struct run *run, const struct buffer *send, struct buffer *recv,
                            int count)
{
    double *times = table_new((size_t)run->repeat, sizeof(double));
    for (int i = 0; i < run->repeat; i++) {
        MPI_Barrier(run->comm);
        double start = MPI_Wtime();
        MPI_Alltoall(send->data, count, MPI_BYTE, recv->data, count, MPI_BYTE, run->comm);
        times[i] = (MPI_Wtime() - start) * 1e6;
    }
    MPI_Allreduce(MPI_IN_PLACE, times, run->repeat, MPI_DOUBLE, MPI_MAX, run->comm);
    qsort(times, (size_t)run->repeat, sizeof(double), compare_times);
    double median = times[run->repeat / 2];
    free(times);
    return median;
}

static void table_row(struct run *run, size_t bytes)
{
    static bool headed;
    struct buffer *send = blocks_to_send(run, "send", bytes);
    struct buffer *recv = buffer_new(run, "recv", send->bytes);
    MPI_Alltoall(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE, run->comm);
    double us = time_alltoall(run, send, recv, (int)bytes);
    expect_blocks(recv, bytes, true);
    int right = buffer_check(recv) && buffer_check(send);
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, run->comm);
    if (run->rank == 0 && !headed)
        printf("# %-10s %12s %12s %10s %9s\n", "memory", "bytes a pair", "us", "GB/s a rank",
               "verified");
    headed = true;
    if (run->rank == 0)
        printf("# %-10s %12zu %12.1f %11.3f %9s\n", run->memory_name, bytes, us,
               us > 0 ? (double)bytes * (run->size - 1) / us / 1e3 : 0.0, right ? "yes" : "NO");
    buffer_free(recv);
    buffer_free(send);
}

static const struct step steps[] = {
    {"alltoall", step_alltoall, LIMIT_LARGE, 1},
    {"ialltoall", step_ialltoall, LIMIT_MIDDLE, 1},
    {"alltoall in place", step_alltoall_in_place, LIMIT_MIDDLE, 1},
    {"ialltoall in place", step_ialltoall_in_place, LIMIT_SMALL, 1},
    {"alltoallv", step_alltoallv, LIMIT_MIDDLE, 1},
    {"ialltoallv", step_ialltoallv, LIMIT_MIDDLE, 1},
    {"alltoallv in place", step_alltoallv_in_place, LIMIT_SMALL, 1},
    {"alltoallw", step_alltoallw, LIMIT_MIDDLE, 1},
    {"ialltoallw", step_ialltoallw, LIMIT_SMALL, 1},
    {"matrix", step_matrix, LIMIT_MIDDLE, 1},
    {"again", step_again, LIMIT_SMALL, 1},
    {"idle rank", step_idle_rank, LIMIT_SMALL, 1},
};

int main(int argc, char **argv)
{
    const struct program program = {.name = "transpose",
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_SINGLE,
                                    .table = table_row};
    return program_main(argc, argv, &program);
}
