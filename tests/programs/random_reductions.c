// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's reductions and scans of numbers of several types, and barriers.
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum reduction {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER_BLOCK,
    REDUCE_SCATTER,
    SCAN,
    EXSCAN,
    BARRIER,
    REDUCTIONS,
};

static const char *const names[REDUCTIONS] = {
    "Allreduce", "Reduce", "Reduce_scatter_block", "Reduce_scatter", "Scan", "Exscan", "Barrier"};

// Sums and extremes of whole numbers, which are the same in any order and in any of the types, and
// an operation of the program's own, which is not: its result is what the first rank has.
enum number { INTEGER, LONG, FLOAT, DOUBLE, NUMBERS };
enum operation { SUM, MAX, MIN, FIRST, OPERATIONS };

static MPI_Datatype number_type(enum number number)
{
    const MPI_Datatype types[NUMBERS] = {MPI_INT, MPI_INT64_T, MPI_FLOAT, MPI_DOUBLE};
    return types[number];
}

static size_t number_bytes(enum number number)
{
    return number == INTEGER || number == FLOAT ? 4 : 8;
}

static void number_put(enum number number, unsigned char *to, int value)
{
    int64_t whole = value; // little endian
    float narrow = (float)value;
    double wide = value;
    memcpy(to,
           number == FLOAT    ? (void *)&narrow
           : number == DOUBLE ? (void *)&wide
                              : (void *)&whole,
           number_bytes(number));
}

static void take_first(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int bytes;
    MPI_Type_size(*type, &bytes);
    memcpy(inout, in, (size_t)*count * (size_t)bytes);
}

// The caller frees the program's own one.
static MPI_Op operation_new(enum operation operation)
{
    const MPI_Op known[] = {MPI_SUM, MPI_MAX, MPI_MIN};
    MPI_Op op;
    if (operation != FIRST)
        return known[operation];
    MPI_Op_create(take_first, 0, &op);
    return op;
}

struct work {
    struct walk *walk;
    const struct circle *circle;
    enum reduction what;
    enum manner manner;
    enum number number;
    enum operation operation;
    MPI_Op op;
    bool in_place;
    int n;       // numbers of a result
    int *counts; // of a Reduce_scatter's results, by rank
    int root;
    struct buffer *send, *recv;
};

// Small enough that their sums are exact.
static int *values_of(const struct work *work, int id, size_t count)
{
    int *values = table_new(count, sizeof *values);
    pattern_write(values, run_seed(&work->walk->run, id, -3), 0, count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] &= 0xffff;
    return values;
}

static size_t send_count(const struct work *work)
{
    bool blocks = work->what == REDUCE_SCATTER_BLOCK || work->what == REDUCE_SCATTER;
    return (size_t)work->n * (size_t)(blocks ? work->circle->size : 1);
}

// Writes this process's contribution to the buffer that MPI takes it from.
static void fill(const struct work *work)
{
    size_t count = send_count(work);
    struct buffer *from = work->in_place ? work->recv : work->send;
    int *values = values_of(work, circle_id(work->circle), count);
    for (size_t i = 0; i < count; i++)
        number_put(work->number, from->want + i * number_bytes(work->number), values[i]);
    buffer_upload(from);
    free(values);
}

static void call(const struct work *work, MPI_Request *request)
{
    const void *from = work->in_place ? MPI_IN_PLACE : work->send->data;
    void *to = work->recv->data;
    MPI_Comm comm = work->circle->comm;
    MPI_Datatype type = number_type(work->number);
    MPI_Op op = work->op;
    int n = work->n;
    switch (work->what) {
    case ALLREDUCE:
        IN_MANNER(work->manner, request, Allreduce, allreduce, from, to, n, type, op, comm);
        break;
    case REDUCE:
        IN_MANNER(work->manner, request, Reduce, reduce, from, to, n, type, op, work->root, comm);
        break;
    case REDUCE_SCATTER_BLOCK:
        IN_MANNER(work->manner, request, Reduce_scatter_block, reduce_scatter_block, from, to, n,
                  type, op, comm);
        break;
    case REDUCE_SCATTER:
        IN_MANNER(work->manner, request, Reduce_scatter, reduce_scatter, from, to, work->counts,
                  type, op, comm);
        break;
    case SCAN:
        IN_MANNER(work->manner, request, Scan, scan, from, to, n, type, op, comm);
        break;
    case EXSCAN:
        IN_MANNER(work->manner, request, Exscan, exscan, from, to, n, type, op, comm);
        break;
    default:
        IN_MANNER(work->manner, request, Barrier, barrier, comm);
    }
}

static int combined(enum operation operation, int a, int b)
{
    return operation == FIRST              ? a
           : operation == SUM              ? a + b
           : (operation == MAX) == (a > b) ? a
                                           : b;
}

// The result over the first so many of ids, from number `skip` on.
static void expect_result(const struct work *work, const int *ids, int count, size_t n, size_t skip)
{
    int *results = NULL;
    for (int i = 0; i < count; i++) {
        int *values = values_of(work, ids[i], skip + n);
        for (size_t k = 0; k < n && results; k++)
            results[k] = combined(work->operation, results[k], values[skip + k]);
        if (!results) {
            results = table_new(n, sizeof *results);
            memcpy(results, values + skip, n * sizeof *results);
        }
        free(values);
    }
    for (size_t k = 0; k < n; k++)
        number_put(work->number, work->recv->want + k * number_bytes(work->number), results[k]);
    free(results);
}

static void expect_sum(const struct work *work, const int *ids, int count, int first)
{
    size_t n = (size_t)work->n;
    expect_result(work, ids, count, n, (size_t)first * n);
}

static void expect_part(const struct work *work)
{
    const struct circle *circle = work->circle;
    size_t skip = 0;
    for (int rank = 0; rank < circle->rank; rank++)
        skip += (size_t)work->counts[rank];
    expect_result(work, circle->members, circle->size, (size_t)work->counts[circle->rank], skip);
}

static void expect(const struct work *work)
{
    const struct circle *circle = work->circle;
    bool two = circle->making == MADE_BETWEEN;
    if (work->what == SCAN)
        expect_sum(work, circle->members, circle->rank + 1, 0);
    else if (work->what == EXSCAN && circle->rank == 0)
        buffer_accept(work->recv, 0, work->recv->bytes);
    else if (work->what == EXSCAN)
        expect_sum(work, circle->members, circle->rank, 0);
    else if (work->what == REDUCE_SCATTER_BLOCK)
        expect_sum(work, circle->members, circle->size, circle->rank);
    else if (work->what == REDUCE_SCATTER)
        expect_part(work);
    else if (work->what == ALLREDUCE)
        expect_sum(work, two ? circle->remote : circle->members,
                   two ? circle->remote_size : circle->size, 0);
    else if (work->what == REDUCE && circle->rank == work->root)
        expect_sum(work, circle->members, circle->size, 0);
}

// Shares of all sizes, which come to as much as even ones would: none is more than twice that.
static void counts_draw(struct work *work)
{
    uint64_t *common = &work->walk->common;
    int size = work->circle->size;
    work->counts = table_new((size_t)size, sizeof *work->counts);
    for (int rank = 0; rank < size; rank++)
        work->counts[rank] = work->n;
    for (int rank = 0; rank + 1 < size; rank += 2) {
        int moved = draw_below(common, work->n + 1);
        work->counts[rank] -= moved;
        work->counts[rank + 1] += moved;
    }
}

static struct work work_new(struct walk *walk, const struct circle *circle)
{
    struct work work = {.walk = walk, .circle = circle, .manner = manner_draw(&walk->common)};
    work.what = (enum reduction)draw_below(&walk->common, REDUCTIONS);
    if (circle->making == MADE_BETWEEN && work.what != BARRIER)
        work.what = ALLREDUCE;
    work.number = (enum number)draw_below(&walk->common, NUMBERS);
    work.operation = (enum operation)draw_below(&walk->common, OPERATIONS);
    work.op = operation_new(work.operation);
    work.n =
        (int)(draw_bytes(&walk->common, walk->mixture->most_bytes) / number_bytes(work.number));
    work.root = draw_below(&walk->common, circle->size);
    work.in_place = draw_one_in(&walk->common, 3) && circle->making != MADE_BETWEEN &&
                    (work.what == ALLREDUCE || work.what == SCAN || work.what == REDUCE);
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    // MPICH 4.0 crashes in an in-place reduction to any root other than 0.
    if (work.in_place)
        work.root = 0;
#endif
    if (work.what == REDUCE && circle->rank != work.root)
        work.in_place = false;
    counts_draw(&work);
    return work;
}

static int result_count(const struct work *work)
{
    return work->what == REDUCE_SCATTER ? work->counts[work->circle->rank] : work->n;
}

void round_reduction(struct walk *walk, const struct circle *circle)
{
    struct work work = work_new(walk, circle);
    MPI_Request request = MPI_REQUEST_NULL;
    walk_say(walk, " %s%s%s of %d numbers of type %d, operation %d", manner_name(work.manner),
             names[work.what], work.in_place ? " in place" : "", work.n, work.number,
             work.operation);
    size_t bytes = number_bytes(work.number);
    work.send = walk_buffer(walk, "send", send_count(&work) * bytes, bytes);
    work.recv = walk_buffer(walk, "recv", (size_t)result_count(&work) * bytes, bytes);
    for (int time = 0; time < (work.manner == STANDING ? 2 : 1); time++) {
        walk_new_data(walk);
        if (work.what != BARRIER)
            fill(&work);
        if (time == 0)
            call(&work, &request);
        manner_complete(walk, work.manner, &request);
        expect(&work);
        walk_check(walk, work.recv);
    }
    if (work.manner == STANDING)
        MPI_Request_free(&request);
    if (work.operation == FIRST)
        MPI_Op_free(&work.op);
    walk_finish(walk, work.recv);
    walk_finish(walk, work.send);
    free(work.counts);
}
