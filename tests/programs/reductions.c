// SPDX-License-Identifier: BSD-3-Clause
// Reductions and scans: predefined operations on several types, and pairs whose padding must
// survive.
#include "harness.h"

#include <stdlib.h>
#include <string.h>

enum form { BLOCKING, NONBLOCKING };

// Small whole numbers, so that a sum in any order is exact in every type.
static int value_of(const struct run *run, int rank, size_t index)
{
    uint64_t word;
    pattern_write(&word, run_seed(run, rank, 0), index * sizeof word, sizeof word);
    return (int)(word % 1000) - 300;
}

struct type {
    const char *name;
    MPI_Datatype mpi;
    size_t bytes;
    void (*store)(void *at, long value);
};

static void store_int(void *at, long value)
{
    int typed = (int)value;
    memcpy(at, &typed, sizeof typed);
}

static void store_float(void *at, long value)
{
    float typed = (float)value;
    memcpy(at, &typed, sizeof typed);
}

static void store_double(void *at, long value)
{
    double typed = (double)value;
    memcpy(at, &typed, sizeof typed);
}

static void store_int64(void *at, long value)
{
    int64_t typed = value;
    memcpy(at, &typed, sizeof typed);
}

static struct type int_type(void)
{
    return (struct type){"int", MPI_INT, sizeof(int), store_int};
}

static struct type type_number(int number)
{
    switch (number % 4) {
    case 0:
        return (struct type){"double", MPI_DOUBLE, sizeof(double), store_double};
    case 1:
        return (struct type){"float", MPI_FLOAT, sizeof(float), store_float};
    case 2:
        return (struct type){"int64_t", MPI_INT64_T, sizeof(int64_t), store_int64};
    default:
        return int_type();
    }
}

enum operation { SUM, MAX, MIN, OPERATIONS };

static MPI_Op mpi_operation(enum operation operation)
{
    return operation == SUM ? MPI_SUM : operation == MAX ? MPI_MAX : MPI_MIN;
}

// The reduction of element index over ranks 0 to last.
static long reduced(const struct run *run, enum operation operation, int last, size_t index)
{
    long result = value_of(run, 0, index);
    for (int rank = 1; rank <= last; rank++) {
        long next = value_of(run, rank, index);
        if (operation == SUM)
            result += next;
        else if (operation == MAX ? next > result : next < result)
            result = next;
    }
    return result;
}

static void expect_values(struct buffer *buffer, const struct type *type, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        type->store(buffer->want + i * type->bytes, value_of(buffer->run, rank, i));
}

// Elements first to first + count of the reduction over ranks 0 to last.
static void expect_reduced(struct buffer *buffer, const struct type *type, enum operation operation,
                           int last, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        type->store(buffer->want + i * type->bytes,
                    reduced(buffer->run, operation, last, first + i));
}

static struct buffer *values_new(struct run *run, const char *name, const struct type *type,
                                 size_t count)
{
    struct buffer *buffer = buffer_new(run, name, count * type->bytes);
    expect_values(buffer, type, count, run->rank);
    buffer_upload(buffer);
    return buffer;
}

// The last rank reduces, so that the root is not the rank that everybody tests with; but MPICH 4.0
// crashes in an in-place reduction to any root other than 0.
static int root_of(const struct run *run, bool in_place)
{
    return in_place ? 0 : run->size - 1;
}

static void reduce(struct run *run, size_t bytes, enum operation operation, enum form form,
                   bool in_place)
{
    struct type type = type_number((int)run->round);
    size_t count = bytes / type.bytes;
    int root = root_of(run, in_place);
    bool here = run->rank == root;
    struct buffer *send = values_new(run, "send", &type, count);
    struct buffer *recv = here ? buffer_new(run, "recv", send->bytes) : NULL;
    const void *from = here && in_place ? MPI_IN_PLACE : send->data;
    void *to = here ? recv->data : NULL;
    if (in_place) // which says nothing of a rank that receives nothing
        to = here ? send->data : MPI_IN_PLACE;
    MPI_Op op = mpi_operation(operation);
    if (form == NONBLOCKING) {
        MPI_Request request;
        MPI_Ireduce(from, to, (int)count, type.mpi, op, root, run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Reduce(from, to, (int)count, type.mpi, op, root, run->comm);
    }
    if (here) {
        expect_reduced(in_place ? send : recv, &type, operation, run->size - 1, 0, count);
        buffer_finish(recv);
    }
    buffer_finish(send);
}

static void step_reduce(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++) {
        reduce(run, bytes, SUM, i % 2 == 0 ? BLOCKING : NONBLOCKING, i / 2 != 0);
        run->round++;
    }
}

static void allreduce(struct run *run, size_t bytes, enum operation operation, enum form form,
                      bool in_place)
{
    struct type type = type_number((int)run->round);
    size_t count = bytes / type.bytes;
    struct buffer *send = values_new(run, "send", &type, count);
    struct buffer *recv = buffer_new(run, "recv", send->bytes);
    const void *from = in_place ? MPI_IN_PLACE : send->data;
    struct buffer *to = in_place ? send : recv;
    MPI_Op op = mpi_operation(operation);
    if (form == NONBLOCKING) {
        MPI_Request request;
        MPI_Iallreduce(from, to->data, (int)count, type.mpi, op, run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Allreduce(from, to->data, (int)count, type.mpi, op, run->comm);
    }
    expect_reduced(to, &type, operation, run->size - 1, 0, count);
    buffer_finish(recv);
    buffer_finish(send);
}

static void step_allreduce(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++) {
        allreduce(run, bytes, (enum operation)(i % OPERATIONS), i % 2 == 0 ? BLOCKING : NONBLOCKING,
                  i / 2 != 0);
        run->round++;
    }
}

static void scan(struct run *run, size_t bytes, bool exclusive, enum form form, bool in_place)
{
    struct type type = type_number((int)run->round);
    size_t count = bytes / type.bytes;
    int n = (int)count, last = run->rank - exclusive;
    struct buffer *send = values_new(run, "send", &type, count);
    struct buffer *recv = buffer_new(run, "recv", send->bytes);
    const void *from = in_place ? MPI_IN_PLACE : send->data;
    struct buffer *to = in_place ? send : recv;
    MPI_Request request = MPI_REQUEST_NULL;
    if (exclusive && form == BLOCKING)
        MPI_Exscan(from, to->data, n, type.mpi, MPI_SUM, run->comm);
    else if (exclusive)
        MPI_Iexscan(from, to->data, n, type.mpi, MPI_SUM, run->comm, &request);
    else if (form == BLOCKING)
        MPI_Scan(from, to->data, n, type.mpi, MPI_SUM, run->comm);
    else
        MPI_Iscan(from, to->data, n, type.mpi, MPI_SUM, run->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    // An exclusive scan leaves undefined bytes on rank 0; all MPIs leave the buffer alone.
    if (last >= 0)
        expect_reduced(to, &type, SUM, last, 0, count);
    buffer_finish(recv);
    buffer_finish(send);
}

static void step_scan(struct run *run, size_t bytes)
{
    for (int i = 0; i < 8; i++) {
        scan(run, bytes, i % 2 != 0, i / 2 % 2 == 0 ? BLOCKING : NONBLOCKING, i / 4 != 0);
        run->round++;
    }
}

static void reduce_scatter_block(struct run *run, size_t bytes, enum form form, bool in_place)
{
    struct type type = type_number((int)run->round);
    size_t count = bytes / type.bytes, all = count * (size_t)run->size;
    struct buffer *send = values_new(run, "send", &type, all);
    struct buffer *recv = buffer_new(run, "recv", count * type.bytes);
    const void *from = in_place ? MPI_IN_PLACE : send->data;
    struct buffer *to = in_place ? send : recv;
    if (form == NONBLOCKING) {
        MPI_Request request;
        MPI_Ireduce_scatter_block(from, to->data, (int)count, type.mpi, MPI_SUM, run->comm,
                                  &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Reduce_scatter_block(from, to->data, (int)count, type.mpi, MPI_SUM, run->comm);
    }
    // In place, the rest of the buffer is MPI's to scribble in.
    if (in_place)
        buffer_accept(to, 0, to->bytes);
    expect_reduced(to, &type, SUM, run->size - 1, count * (size_t)run->rank, count);
    buffer_finish(recv);
    buffer_finish(send);
}

static void reduce_scatter(struct run *run, size_t bytes, enum form form, bool in_place)
{
    struct type type = type_number((int)run->round);
    block_count *counts = table_new((size_t)run->size, sizeof(block_count));
    size_t all = 0, first = 0;
    for (int rank = 0; rank < run->size; rank++) {
        counts[rank] = (block_count)(bytes / type.bytes) * (rank % 3) / 2;
        first += rank < run->rank ? (size_t)counts[rank] : 0;
        all += (size_t)counts[rank];
    }
    size_t count = (size_t)counts[run->rank];
    struct buffer *send = values_new(run, "send", &type, all);
    struct buffer *recv = buffer_new(run, "recv", count * type.bytes);
    const void *from = in_place ? MPI_IN_PLACE : send->data;
    struct buffer *to = in_place ? send : recv;
    if (form == NONBLOCKING) {
        MPI_Request request;
        MPI_Ireduce_scatter(from, to->data, counts, type.mpi, MPI_SUM, run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Reduce_scatter(from, to->data, counts, type.mpi, MPI_SUM, run->comm);
    }
    if (in_place)
        buffer_accept(to, 0, to->bytes);
    expect_reduced(to, &type, SUM, run->size - 1, first, count);
    buffer_finish(recv);
    buffer_finish(send);
    free(counts);
}

static void step_reduce_scatter(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++) {
        enum form form = i % 2 == 0 ? BLOCKING : NONBLOCKING;
        reduce_scatter_block(run, bytes, form, i / 2 != 0);
        run->round++;
        reduce_scatter(run, bytes, form, i / 2 != 0);
        run->round++;
    }
}

static void step_reduce_local(struct run *run, size_t bytes)
{
    struct type type = type_number((int)run->round);
    size_t count = bytes / type.bytes;
    struct buffer *in = buffer_new(run, "in", count * type.bytes);
    struct buffer *inout = buffer_new(run, "inout", count * type.bytes);
    expect_values(in, &type, count, 0);
    expect_values(inout, &type, count, 1);
    buffer_upload(in);
    buffer_upload(inout);
    MPI_Reduce_local(in->data, inout->data, (int)count, type.mpi, MPI_SUM);
    expect_reduced(inout, &type, SUM, 1, 0, count);
    buffer_finish(inout);
    buffer_finish(in);
}

// MPI_DOUBLE_INT has four bytes of padding after each pair, which no reduction may touch.
struct pair {
    double value;
    int rank;
};

static void put_pair(struct buffer *buffer, size_t index, double value, int rank)
{
    unsigned char *at = buffer->want + index * sizeof(struct pair);
    memcpy(at + offsetof(struct pair, value), &value, sizeof value);
    memcpy(at + offsetof(struct pair, rank), &rank, sizeof rank);
}

static int place_of_least(const struct run *run, size_t index)
{
    int place = 0;
    for (int rank = 1; rank < run->size; rank++)
        if (value_of(run, rank, index) < value_of(run, place, index))
            place = rank;
    return place;
}

static void step_minloc(struct run *run, size_t bytes)
{
    size_t count = bytes / sizeof(struct pair);
    struct buffer *send = buffer_new(run, "send", count * sizeof(struct pair));
    struct buffer *recv = buffer_new(run, "recv", count * sizeof(struct pair));
    for (size_t i = 0; i < count; i++)
        put_pair(send, i, value_of(run, run->rank, i), run->rank);
    buffer_upload(send);
    MPI_Allreduce(send->data, recv->data, (int)count, MPI_DOUBLE_INT, MPI_MINLOC, run->comm);
    for (size_t i = 0; i < count; i++) {
        int place = place_of_least(run, i);
        put_pair(recv, i, value_of(run, place, i), place);
    }
    buffer_finish(recv);
    buffer_finish(send);
}

static const struct step steps[] = {
    {"Reduce", step_reduce, LIMIT_MIDDLE, 1},
    {"Allreduce", step_allreduce, LIMIT_MIDDLE, 1},
    {"Scan and Exscan", step_scan, LIMIT_SMALL, 1},
    {"Reduce_scatter", step_reduce_scatter, LIMIT_SMALL, 1},
    {"Reduce_local", step_reduce_local, LIMIT_MIDDLE, 1},
    {"MINLOC", step_minloc, LIMIT_SMALL, 1},
};

PROGRAM("reductions", steps)
