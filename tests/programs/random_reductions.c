// SPDX-License-Identifier: BSD-3-Clause
// The randomised program's reductions and scans of integers, and barriers.
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum reduction { ALLREDUCE, REDUCE, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, BARRIER, REDUCTIONS };

static const char *const names[REDUCTIONS] = {"Allreduce", "Reduce", "Reduce_scatter_block",
                                              "Scan",      "Exscan", "Barrier"};

struct work {
    struct walk *walk;
    const struct circle *circle;
    enum reduction what;
    enum manner manner;
    bool in_place;
    int n; // integers of a result
    int root;
    struct buffer *send, *recv;
};

// Small enough that their sums are integers.
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
    bool blocks = work->what == REDUCE_SCATTER_BLOCK;
    return (size_t)work->n * (size_t)(blocks ? work->circle->size : 1);
}

// What this process contributes, into the buffer that MPI takes it from.
static void fill(const struct work *work)
{
    size_t count = send_count(work);
    struct buffer *from = work->in_place ? work->recv : work->send;
    int *values = values_of(work, circle_id(work->circle), count);
    memcpy(from->want, values, count * sizeof *values);
    buffer_upload(from);
    free(values);
}

static void call(const struct work *work, MPI_Request *request)
{
    const void *from = work->in_place ? MPI_IN_PLACE : work->send->data;
    void *to = work->recv->data;
    MPI_Comm comm = work->circle->comm;
    int n = work->n;
    switch (work->what) {
    case ALLREDUCE:
        IN_MANNER(work->manner, request, Allreduce, allreduce, from, to, n, MPI_INT, MPI_SUM, comm);
        break;
    case REDUCE:
        IN_MANNER(work->manner, request, Reduce, reduce, from, to, n, MPI_INT, MPI_SUM, work->root,
                  comm);
        break;
    case REDUCE_SCATTER_BLOCK:
        IN_MANNER(work->manner, request, Reduce_scatter_block, reduce_scatter_block, from, to, n,
                  MPI_INT, MPI_SUM, comm);
        break;
    case SCAN:
        IN_MANNER(work->manner, request, Scan, scan, from, to, n, MPI_INT, MPI_SUM, comm);
        break;
    case EXSCAN:
        IN_MANNER(work->manner, request, Exscan, exscan, from, to, n, MPI_INT, MPI_SUM, comm);
        break;
    default:
        IN_MANNER(work->manner, request, Barrier, barrier, comm);
    }
}

// The sum over the first so many of ids, from block number first on.
static void expect_sum(const struct work *work, const int *ids, int count, int first)
{
    size_t n = (size_t)work->n, skip = (size_t)first * n;
    int *sums = table_new(n, sizeof *sums);
    for (int i = 0; i < count; i++) {
        int *values = values_of(work, ids[i], skip + n);
        for (size_t k = 0; k < n; k++)
            sums[k] += values[skip + k];
        free(values);
    }
    memcpy(work->recv->want, sums, n * sizeof *sums);
    free(sums);
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
    else if (work->what == ALLREDUCE)
        expect_sum(work, two ? circle->remote : circle->members,
                   two ? circle->remote_size : circle->size, 0);
    else if (work->what == REDUCE && circle->rank == work->root)
        expect_sum(work, circle->members, circle->size, 0);
}

static struct work work_new(struct walk *walk, const struct circle *circle)
{
    struct work work = {.walk = walk, .circle = circle, .manner = manner_draw(&walk->common)};
    work.what = (enum reduction)draw_below(&walk->common, REDUCTIONS);
    if (circle->making == MADE_BETWEEN && work.what != BARRIER)
        work.what = ALLREDUCE;
    work.n = (int)(draw_bytes(&walk->common, walk->mixture->most_bytes) / sizeof(int));
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
    return work;
}

void round_reduction(struct walk *walk, const struct circle *circle)
{
    struct work work = work_new(walk, circle);
    MPI_Request request = MPI_REQUEST_NULL;
    walk_say(walk, " %s%s%s of %d integers", manner_name(work.manner), names[work.what],
             work.in_place ? " in place" : "", work.n);
    work.send = walk_buffer(walk, "send", send_count(&work) * sizeof(int), sizeof(int));
    work.recv = walk_buffer(walk, "recv", (size_t)work.n * sizeof(int), sizeof(int));
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
    walk_finish(walk, work.recv);
    walk_finish(walk, work.send);
}
