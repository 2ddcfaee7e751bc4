// SPDX-License-Identifier: BSD-3-Clause
// Broadcast, gather, scatter and their kin: blocks of one size and of many, in place, nonblocking,
// with derived types, and between two groups.
#include "harness.h"
#include "plan.h"
#include "types.h"

#include <stdlib.h>

enum form { BLOCKING, NONBLOCKING, FORMS };
enum { TAG = 31 };

static void step_bcast(struct run *run, size_t bytes)
{
    for (int root = 0; root < run->size; root++) {
        enum form form = (enum form)(root % FORMS);
        struct buffer *both = buffer_new(run, "both", bytes);
        if (run->rank == root) {
            buffer_expect(both, 0, bytes, run_seed(run, root, -1));
            buffer_upload(both);
        }
        if (form == BLOCKING) {
            MPI_Bcast(both->data, (int)bytes, MPI_BYTE, root, run->comm);
        } else {
            MPI_Request request;
            MPI_Ibcast(both->data, (int)bytes, MPI_BYTE, root, run->comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        buffer_expect(both, 0, bytes, run_seed(run, root, -1));
        buffer_finish(both);
    }
}

// The root describes the data otherwise than the others.
static void step_bcast_types(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int)) + 1, root = run->size - 1;
    for (int i = 0; i < shape_count(); i++) {
        struct shape derived = shape_new(i, n), plain = shape_plain(derived.ints);
        const struct shape *from = &derived;
        const struct shape *to = derived.ints != 0 && run->rank % 2 == 0 ? &plain : &derived;
        const struct shape *mine = run->rank == root ? from : to;
        uint64_t seed = run_seed(run, root, i);
        struct buffer *both = run->rank == root ? shape_filled(run, derived.name, mine, seed)
                                                : shape_buffer(run, derived.name, mine);
        MPI_Bcast(shape_address(both, mine), mine->count, mine->type, root, run->comm);
        if (run->rank != root)
            shape_expect(both, mine, from, seed);
        buffer_finish(both);
        shape_free(&derived);
    }
}

// Blocks of equal size of all ranks, in rank order.
static void expect_all(struct buffer *buffer, size_t bytes, int to)
{
    for (int rank = 0; rank < buffer->run->size; rank++)
        buffer_expect(buffer, (size_t)rank * bytes, bytes, run_seed(buffer->run, rank, to));
}

static void expect_plan(struct buffer *buffer, const struct plan *plan)
{
    for (int rank = 0; rank < plan->peers; rank++)
        buffer_expect(buffer, (size_t)plan->displacements[rank], (size_t)plan->counts[rank],
                      run_seed(buffer->run, rank, -1));
}

// A buffer of a rank that has none, which may be whatever the root has there.
static void *nothing(bool in_place)
{
    return in_place ? MPI_IN_PLACE : NULL;
}

static void gather(struct run *run, size_t bytes, int root, enum form form, bool in_place)
{
    bool here = run->rank == root;
    int n = (int)bytes;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, -1));
    struct buffer *recv = here ? buffer_new(run, "recv", bytes * (size_t)run->size) : NULL;
    const void *from = send->data;
    if (here && in_place) {
        from = MPI_IN_PLACE;
        buffer_expect(recv, (size_t)root * bytes, bytes, run_seed(run, root, -1));
        buffer_upload(recv);
    }
    void *to = here ? recv->data : nothing(in_place);
    if (form == BLOCKING) {
        MPI_Gather(from, n, MPI_BYTE, to, n, MPI_BYTE, root, run->comm);
    } else {
        MPI_Request request;
        MPI_Igather(from, n, MPI_BYTE, to, n, MPI_BYTE, root, run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (here) {
        expect_all(recv, bytes, -1);
        buffer_finish(recv);
    }
    buffer_finish(send);
}

static void step_gather(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        gather(run, bytes, i / 2 == 0 ? 0 : run->size - 1, (enum form)(i % FORMS), i / 2 != 0);
}

static void gatherv(struct run *run, size_t bytes, enum form form, bool in_place)
{
    int root = run->size / 2;
    bool here = run->rank == root;
    struct plan plan = plan_own(run->size, bytes);
    size_t own = (size_t)plan.counts[run->rank];
    struct buffer *send = buffer_filled(run, "send", own, run_seed(run, run->rank, -1));
    struct buffer *recv = here ? buffer_new(run, "recv", plan.bytes) : NULL;
    const void *from = send->data;
    if (here && in_place) {
        from = MPI_IN_PLACE;
        buffer_expect(recv, (size_t)plan.displacements[root], own, run_seed(run, root, -1));
        buffer_upload(recv);
    }
    void *to = here ? recv->data : nothing(in_place);
    if (form == BLOCKING) {
        MPI_Gatherv(from, (int)own, MPI_BYTE, to, plan.counts, plan.displacements, MPI_BYTE, root,
                    run->comm);
    } else {
        MPI_Request request;
        MPI_Igatherv(from, (int)own, MPI_BYTE, to, plan.counts, plan.displacements, MPI_BYTE, root,
                     run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (here) {
        expect_plan(recv, &plan);
        buffer_finish(recv);
    }
    buffer_finish(send);
    plan_free(&plan);
}

static void step_gatherv(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        gatherv(run, bytes, (enum form)(i % FORMS), i / 2 != 0);
}

static void scatter(struct run *run, size_t bytes, int root, enum form form, bool in_place)
{
    bool here = run->rank == root;
    int n = (int)bytes;
    struct buffer *send = here ? buffer_new(run, "send", bytes * (size_t)run->size) : NULL;
    struct buffer *recv = buffer_new(run, "recv", bytes);
    if (here) {
        expect_all(send, bytes, -1);
        buffer_upload(send);
    }
    const void *from = here ? send->data : nothing(in_place);
    void *to = here && in_place ? MPI_IN_PLACE : recv->data;
    if (form == BLOCKING) {
        MPI_Scatter(from, n, MPI_BYTE, to, n, MPI_BYTE, root, run->comm);
    } else {
        MPI_Request request;
        MPI_Iscatter(from, n, MPI_BYTE, to, n, MPI_BYTE, root, run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (!here || !in_place)
        buffer_expect(recv, 0, bytes, run_seed(run, run->rank, -1));
    buffer_finish(recv);
    if (here)
        buffer_finish(send);
}

static void step_scatter(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        scatter(run, bytes, i / 2 == 0 ? run->size - 1 : 0, (enum form)(i % FORMS), i / 2 != 0);
}

// Blocks that overlap in what is sent, as MPI allows: rank r gets bytes from r * bytes / 2 on.
static void scatterv(struct run *run, size_t bytes, enum form form, bool in_place)
{
    int root = run->size - 1;
    bool here = run->rank == root;
    struct plan plan = plan_own(run->size, bytes);
    size_t whole = bytes * (size_t)(run->size + 2), own = (size_t)plan.counts[run->rank];
    for (int rank = 0; rank < run->size; rank++)
        plan.displacements[rank] = rank * (block_place)(bytes / 2);
    struct buffer *send =
        here ? buffer_filled(run, "send", whole, run_seed(run, root, root)) : NULL;
    struct buffer *recv = buffer_new(run, "recv", own);
    const void *from = here ? send->data : nothing(in_place);
    void *to = here && in_place ? MPI_IN_PLACE : recv->data;
    if (form == BLOCKING) {
        MPI_Scatterv(from, plan.counts, plan.displacements, MPI_BYTE, to, (int)own, MPI_BYTE, root,
                     run->comm);
    } else {
        MPI_Request request;
        MPI_Iscatterv(from, plan.counts, plan.displacements, MPI_BYTE, to, (int)own, MPI_BYTE, root,
                      run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (!here || !in_place)
        pattern_write(recv->want, run_seed(run, root, root), (size_t)plan.displacements[run->rank],
                      own);
    buffer_finish(recv);
    if (here)
        buffer_finish(send);
    plan_free(&plan);
}

static void step_scatterv(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        scatterv(run, bytes, (enum form)(i % FORMS), i / 2 != 0);
}

static void allgather(struct run *run, size_t bytes, enum form form, bool in_place)
{
    int n = (int)bytes;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", bytes * (size_t)run->size);
    if (in_place) {
        buffer_expect(recv, (size_t)run->rank * bytes, bytes, run_seed(run, run->rank, -1));
        buffer_upload(recv);
    }
    const void *from = in_place ? MPI_IN_PLACE : send->data;
    if (form == BLOCKING) {
        MPI_Allgather(from, n, MPI_BYTE, recv->data, n, MPI_BYTE, run->comm);
    } else {
        MPI_Request request;
        MPI_Iallgather(from, n, MPI_BYTE, recv->data, n, MPI_BYTE, run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    expect_all(recv, bytes, -1);
    buffer_finish(recv);
    buffer_finish(send);
}

static void step_allgather(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        allgather(run, bytes, (enum form)(i % FORMS), i / 2 != 0);
}

static void allgatherv(struct run *run, size_t bytes, enum form form, bool in_place)
{
    struct plan plan = plan_own(run->size, bytes);
    block_count own = plan.counts[run->rank];
    size_t place = (size_t)plan.displacements[run->rank];
    struct buffer *send = buffer_filled(run, "send", (size_t)own, run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", plan.bytes);
    if (in_place) {
        buffer_expect(recv, place, (size_t)own, run_seed(run, run->rank, -1));
        buffer_upload(recv);
    }
    const void *from = in_place ? MPI_IN_PLACE : send->data;
    if (form == BLOCKING) {
        MPI_Allgatherv(from, own, MPI_BYTE, recv->data, plan.counts, plan.displacements, MPI_BYTE,
                       run->comm);
    } else {
        MPI_Request request;
        MPI_Iallgatherv(from, own, MPI_BYTE, recv->data, plan.counts, plan.displacements, MPI_BYTE,
                        run->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    expect_plan(recv, &plan);
    buffer_finish(recv);
    buffer_finish(send);
    plan_free(&plan);
}

static void step_allgatherv(struct run *run, size_t bytes)
{
    for (int i = 0; i < 4; i++)
        allgatherv(run, bytes, (enum form)(i % FORMS), i / 2 != 0);
}

// Columns are gathered into a matrix: the blocks of the ranks interleave in the receiver's memory.
static void step_columns(struct run *run, size_t bytes)
{
    int rows = (int)(bytes / sizeof(double));
    size_t width = (size_t)run->size + 1;
    MPI_Datatype column, narrow;
    MPI_Type_vector(rows, 1, (int)width, MPI_DOUBLE, &column);
    MPI_Type_create_resized(column, 0, sizeof(double), &narrow);
    MPI_Type_commit(&narrow);
    struct buffer *send =
        buffer_filled(run, "send", (size_t)rows * sizeof(double), run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", (size_t)rows * width * sizeof(double));
    MPI_Allgather(send->data, rows, MPI_DOUBLE, recv->data, 1, narrow, run->comm);
    for (int rank = 0; rank < run->size; rank++)
        for (size_t row = 0; row < (size_t)rows; row++)
            pattern_write(recv->want + (row * width + (size_t)rank) * sizeof(double),
                          run_seed(run, rank, -1), row * sizeof(double), sizeof(double));
    buffer_finish(recv);
    buffer_finish(send);
    MPI_Type_free(&column);
    MPI_Type_free(&narrow);
}

// Two nonblocking collectives on the way at once, completed in reverse order.
static void step_overlapped(struct run *run, size_t bytes)
{
    size_t all = bytes * (size_t)run->size;
    struct buffer *one = buffer_filled(run, "one", bytes, run_seed(run, run->rank, -1));
    struct buffer *gathered = buffer_new(run, "gathered", all);
    struct buffer *cast = run->rank == 0 ? buffer_filled(run, "cast", bytes, run_seed(run, 0, -2))
                                         : buffer_new(run, "cast", bytes);
    MPI_Request requests[2];
    MPI_Iallgather(one->data, (int)bytes, MPI_BYTE, gathered->data, (int)bytes, MPI_BYTE, run->comm,
                   &requests[0]);
    MPI_Ibcast(cast->data, (int)bytes, MPI_BYTE, 0, run->comm, &requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    buffer_expect(cast, 0, bytes, run_seed(run, 0, -2));
    buffer_finish(cast);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    expect_all(gathered, bytes, -1);
    buffer_finish(gathered);
    buffer_finish(one);
}

// Even and odd ranks as two groups that face each other.
struct groups {
    MPI_Comm half, between;
    int side, others;
};

static struct groups groups_new(const struct run *run)
{
    struct groups groups = {.side = run->rank % 2};
    MPI_Comm_split(run->comm, groups.side, run->rank, &groups.half);
    MPI_Intercomm_create(groups.half, 0, run->comm, 1 - groups.side, TAG, &groups.between);
    MPI_Comm_remote_size(groups.between, &groups.others);
    return groups;
}

static void groups_free(struct groups *groups)
{
    MPI_Comm_free(&groups->between);
    MPI_Comm_free(&groups->half);
}

// The rank among all of member number i of the other group.
static int other_rank(const struct groups *groups, int i)
{
    return 2 * i + 1 - groups->side;
}

static void between_bcast(struct run *run, size_t bytes, const struct groups *groups)
{
    bool even = groups->side == 0;
    struct buffer *both = run->rank == 0 ? buffer_filled(run, "both", bytes, run_seed(run, 0, -1))
                                         : buffer_new(run, "both", bytes);
    int root = !even ? 0 : run->rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Bcast(both->data, (int)bytes, MPI_BYTE, root, groups->between);
    if (!even)
        buffer_expect(both, 0, bytes, run_seed(run, 0, -1));
    buffer_finish(both);
}

static void between_allgather(struct run *run, size_t bytes, const struct groups *groups)
{
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", bytes * (size_t)groups->others);
    MPI_Allgather(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE,
                  groups->between);
    for (int i = 0; i < groups->others; i++)
        buffer_expect(recv, (size_t)i * bytes, bytes, run_seed(run, other_rank(groups, i), -1));
    buffer_finish(recv);
    buffer_finish(send);
}

static void between_alltoall(struct run *run, size_t bytes, const struct groups *groups)
{
    struct buffer *send = buffer_new(run, "send", bytes * (size_t)groups->others);
    struct buffer *recv = buffer_new(run, "recv", send->bytes);
    MPI_Request request;
    for (int i = 0; i < groups->others; i++)
        buffer_expect(send, (size_t)i * bytes, bytes,
                      run_seed(run, run->rank, other_rank(groups, i)));
    buffer_upload(send);
    MPI_Ialltoall(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE,
                  groups->between, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < groups->others; i++)
        buffer_expect(recv, (size_t)i * bytes, bytes,
                      run_seed(run, other_rank(groups, i), run->rank));
    buffer_finish(recv);
    buffer_finish(send);
}

// Rank 0 gathers from the odd ranks; nobody else has anything to receive into.
static void between_gather(struct run *run, size_t bytes, const struct groups *groups)
{
    bool even = groups->side == 0, here = run->rank == 0;
    int root = !even ? 0 : here ? MPI_ROOT : MPI_PROC_NULL;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", bytes * (size_t)groups->others);
    MPI_Gather(even ? NULL : send->data, (int)bytes, MPI_BYTE, here ? recv->data : NULL, (int)bytes,
               MPI_BYTE, root, groups->between);
    for (int i = 0; here && i < groups->others; i++)
        buffer_expect(recv, (size_t)i * bytes, bytes, run_seed(run, other_rank(groups, i), -1));
    buffer_finish(recv);
    buffer_finish(send);
}

static void step_between_groups(struct run *run, size_t bytes)
{
    struct groups groups = groups_new(run);
    between_bcast(run, bytes, &groups);
    between_allgather(run, bytes, &groups);
    between_alltoall(run, bytes, &groups);
    between_gather(run, bytes, &groups);
    groups_free(&groups);
}

static const struct step steps[] = {
    {"Bcast", step_bcast, LIMIT_LARGE, 1},
    {"Bcast of types", step_bcast_types, LIMIT_SMALL, 1},
    {"Gather", step_gather, LIMIT_MIDDLE, 1},
    {"Gatherv", step_gatherv, LIMIT_MIDDLE, 1},
    {"Scatter", step_scatter, LIMIT_MIDDLE, 1},
    {"Scatterv", step_scatterv, LIMIT_MIDDLE, 1},
    {"Allgather", step_allgather, LIMIT_MIDDLE, 1},
    {"Allgatherv", step_allgatherv, LIMIT_MIDDLE, 1},
    {"columns", step_columns, LIMIT_SMALL, 1},
    {"overlapped", step_overlapped, LIMIT_MIDDLE, 1},
    {"between groups", step_between_groups, LIMIT_MIDDLE, 2},
};

PROGRAM("collectives", steps)
