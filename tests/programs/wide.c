// SPDX-License-Identifier: BSD-3-Clause
// The large-count forms of MPI 4, whose names end in _c, on data of every size: what they do must
// not depend on the width of their counts.
#include "harness.h"
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4

enum { TAG = 91 };

struct ring {
    int left, right;
    struct buffer *send, *recv;
    MPI_Count count;
};

static struct ring ring_new(struct run *run, size_t bytes)
{
    struct ring ring = {.left = (run->rank + run->size - 1) % run->size,
                        .right = (run->rank + 1) % run->size,
                        .count = (MPI_Count)bytes};
    ring.send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, 0));
    ring.recv = buffer_new(run, "recv", bytes);
    return ring;
}

static void ring_finish(struct ring *ring)
{
    struct run *run = ring->recv->run;
    buffer_expect(ring->recv, 0, ring->recv->bytes, run_seed(run, ring->left, 0));
    buffer_finish(ring->recv);
    buffer_finish(ring->send);
}

static void check_count(struct run *run, const MPI_Status *status, MPI_Count expected)
{
    MPI_Count count = -1;
    MPI_Get_count_c(status, MPI_BYTE, &count);
    run_check(run, count == expected, "Get_count_c says %lld, expected %lld", (long long)count,
              (long long)expected);
}

static void step_blocking(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Status status;
    if (run->rank % 2 == 0)
        MPI_Ssend_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, run->comm);
    MPI_Recv_c(ring.recv->data, ring.count, MPI_BYTE, ring.left, TAG, run->comm, &status);
    if (run->rank % 2 != 0)
        MPI_Send_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, run->comm);
    check_count(run, &status, ring.count);
    ring_finish(&ring);
}

static void step_nonblocking(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv_c(ring.recv->data, ring.count, MPI_BYTE, ring.left, TAG, run->comm, &requests[0]);
    MPI_Isend_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, run->comm, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    check_count(run, &statuses[0], ring.count);
    ring_finish(&ring);
}

static void step_persistent(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request requests[2];
    MPI_Recv_init_c(ring.recv->data, ring.count, MPI_BYTE, ring.left, TAG, run->comm, &requests[0]);
    MPI_Send_init_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, run->comm,
                    &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    ring_finish(&ring);
}

static void step_sendrecv(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Status status;
    MPI_Sendrecv_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, ring.recv->data,
                   ring.count, MPI_BYTE, ring.left, TAG, run->comm, &status);
    check_count(run, &status, ring.count);
    MPI_Sendrecv_replace_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, ring.left, TAG,
                           run->comm, &status);
    check_count(run, &status, ring.count);
    buffer_expect(ring.send, 0, bytes, run_seed(run, ring.left, 0));
    ring_finish(&ring);
}

static void step_matched(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    MPI_Isend_c(ring.send->data, ring.count, MPI_BYTE, ring.right, TAG, run->comm, &request);
    MPI_Mprobe(ring.left, TAG, run->comm, &message, &status);
    check_count(run, &status, ring.count);
    MPI_Mrecv_c(ring.recv->data, ring.count, MPI_BYTE, &message, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    ring_finish(&ring);
}

// A type made with large counts, which only large-count calls can look into.
static void step_types(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    size_t n = bytes / sizeof(int);
    MPI_Datatype spread;
    MPI_Type_vector_c((MPI_Count)n, 1, 3, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    struct buffer *send =
        buffer_filled(run, "send", 3 * n * sizeof(int), run_seed(run, run->rank, 0));
    struct buffer *recv = buffer_new(run, "recv", 3 * n * sizeof(int));
    MPI_Sendrecv_c(send->data, 1, spread, right, TAG, recv->data, 1, spread, left, TAG, run->comm,
                   MPI_STATUS_IGNORE);
    for (size_t i = 0; i < n; i++)
        pattern_write(recv->want + 3 * i * sizeof(int), run_seed(run, left, 0), 3 * i * sizeof(int),
                      sizeof(int));
    buffer_finish(recv);
    buffer_finish(send);
    MPI_Type_free(&spread);
}

static void expect_blocks(struct buffer *buffer, size_t bytes, bool received)
{
    struct run *run = buffer->run;
    for (int peer = 0; peer < run->size; peer++)
        buffer_expect(buffer, (size_t)peer * bytes, bytes,
                      received ? run_seed(run, peer, run->rank) : run_seed(run, run->rank, peer));
}

static void step_alltoall(struct run *run, size_t bytes)
{
    size_t all = bytes * (size_t)run->size, ranks = (size_t)run->size;
    MPI_Count n = (MPI_Count)bytes, *counts = table_new(ranks, sizeof(MPI_Count));
    MPI_Aint *places = table_new(ranks, sizeof(MPI_Aint));
    MPI_Datatype *types = table_new(ranks, sizeof(MPI_Datatype));
    struct buffer *send = buffer_new(run, "send", all);
    struct buffer *recvs[4];
    MPI_Request request;
    expect_blocks(send, bytes, false);
    buffer_upload(send);
    for (int peer = 0; peer < run->size; peer++) {
        counts[peer] = n;
        places[peer] = (MPI_Aint)((size_t)peer * bytes);
        types[peer] = MPI_BYTE;
    }
    for (int i = 0; i < COUNT_OF(recvs); i++)
        recvs[i] = buffer_new(run, "recv", all);
    MPI_Alltoall_c(send->data, n, MPI_BYTE, recvs[0]->data, n, MPI_BYTE, run->comm);
    MPI_Alltoallv_c(send->data, counts, places, MPI_BYTE, recvs[1]->data, counts, places, MPI_BYTE,
                    run->comm);
    MPI_Alltoallw_c(send->data, counts, places, types, recvs[2]->data, counts, places, types,
                    run->comm);
    MPI_Ialltoall_c(send->data, n, MPI_BYTE, recvs[3]->data, n, MPI_BYTE, run->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT_OF(recvs); i++) {
        expect_blocks(recvs[i], bytes, true);
        buffer_finish(recvs[i]);
    }
    buffer_finish(send);
    free(types);
    free(places);
    free(counts);
}

static void step_gathers(struct run *run, size_t bytes)
{
    size_t all = bytes * (size_t)run->size;
    MPI_Count n = (MPI_Count)bytes;
    struct buffer *own = buffer_filled(run, "own", bytes, run_seed(run, run->rank, -1));
    struct buffer *gathered = buffer_new(run, "gathered", all);
    struct buffer *everywhere = buffer_new(run, "everywhere", all);
    struct buffer *back = buffer_new(run, "back", bytes);
    struct buffer *cast = buffer_new(run, "cast", bytes);
    MPI_Gather_c(own->data, n, MPI_BYTE, gathered->data, n, MPI_BYTE, 0, run->comm);
    MPI_Allgather_c(own->data, n, MPI_BYTE, everywhere->data, n, MPI_BYTE, run->comm);
    for (int rank = 0; rank < run->size; rank++) {
        buffer_expect(everywhere, (size_t)rank * bytes, bytes, run_seed(run, rank, -1));
        if (run->rank == 0)
            buffer_expect(gathered, (size_t)rank * bytes, bytes, run_seed(run, rank, -1));
    }
    buffer_check(gathered);
    MPI_Scatter_c(gathered->data, n, MPI_BYTE, back->data, n, MPI_BYTE, 0, run->comm);
    buffer_expect(back, 0, bytes, run_seed(run, run->rank, -1));
    MPI_Bcast_c(run->rank == 0 ? own->data : cast->data, n, MPI_BYTE, 0, run->comm);
    if (run->rank != 0)
        buffer_expect(cast, 0, bytes, run_seed(run, 0, -1));
    buffer_finish(cast);
    buffer_finish(back);
    buffer_finish(everywhere);
    buffer_finish(gathered);
    buffer_finish(own);
}

static void step_gatherv(struct run *run, size_t bytes)
{
    struct plan plan = plan_own(run->size, bytes);
    MPI_Count *counts = table_new((size_t)run->size, sizeof(MPI_Count));
    MPI_Aint *places = table_new((size_t)run->size, sizeof(MPI_Aint));
    for (int rank = 0; rank < run->size; rank++) {
        counts[rank] = plan.counts[rank];
        places[rank] = plan.displacements[rank];
    }
    MPI_Count own = counts[run->rank];
    struct buffer *send = buffer_filled(run, "send", (size_t)own, run_seed(run, run->rank, -1));
    struct buffer *recv = buffer_new(run, "recv", plan.bytes);
    MPI_Allgatherv_c(send->data, own, MPI_BYTE, recv->data, counts, places, MPI_BYTE, run->comm);
    for (int rank = 0; rank < run->size; rank++)
        buffer_expect(recv, (size_t)places[rank], (size_t)counts[rank], run_seed(run, rank, -1));
    buffer_finish(recv);
    buffer_finish(send);
    free(places);
    free(counts);
    plan_free(&plan);
}

// Element i of rank r is r + i, so every sum is plain to see.
static void expect_sums(struct buffer *buffer, size_t first, int from, int to)
{
    for (size_t i = 0; i < buffer->bytes / sizeof(int); i++) {
        int sum = 0;
        for (int rank = from; rank <= to; rank++)
            sum += rank + (int)(first + i);
        memcpy(buffer->want + i * sizeof sum, &sum, sizeof sum);
    }
}

static void step_reductions(struct run *run, size_t bytes)
{
    size_t n = bytes / sizeof(int), size = n * sizeof(int);
    int last = run->size - 1;
    struct buffer *send = buffer_new(run, "send", size);
    struct buffer *results[4];
    for (int i = 0; i < COUNT_OF(results); i++)
        results[i] = buffer_new(run, "result", size);
    expect_sums(send, 0, run->rank, run->rank);
    buffer_upload(send);
    MPI_Allreduce_c(send->data, results[0]->data, (MPI_Count)n, MPI_INT, MPI_SUM, run->comm);
    MPI_Reduce_c(send->data, results[1]->data, (MPI_Count)n, MPI_INT, MPI_SUM, 0, run->comm);
    MPI_Scan_c(send->data, results[2]->data, (MPI_Count)n, MPI_INT, MPI_SUM, run->comm);
    expect_sums(results[3], 0, 1, 1);
    buffer_upload(results[3]);
    MPI_Reduce_local_c(send->data, results[3]->data, (MPI_Count)n, MPI_INT, MPI_SUM);
    expect_sums(results[0], 0, 0, last);
    if (run->rank == 0)
        expect_sums(results[1], 0, 0, last);
    expect_sums(results[2], 0, 0, run->rank);
    for (size_t i = 0; i < n; i++) {
        int sum = run->rank + 1 + 2 * (int)i;
        memcpy(results[3]->want + i * sizeof sum, &sum, sizeof sum);
    }
    for (int i = 0; i < COUNT_OF(results); i++)
        buffer_finish(results[i]);
    buffer_finish(send);
}

static void step_pack(struct run *run, size_t bytes)
{
    uint64_t seed = run_seed(run, run->rank, 0);
    MPI_Count room = 0, position = 0;
    MPI_Pack_size_c((MPI_Count)bytes, MPI_BYTE, run->comm, &room);
    struct buffer *data = buffer_filled(run, "data", bytes, seed);
    struct buffer *packed = buffer_new(run, "packed", (size_t)room);
    struct buffer *again = buffer_new(run, "again", bytes);
    MPI_Pack_c(data->data, (MPI_Count)bytes, MPI_BYTE, packed->data, room, &position, run->comm);
    MPI_Count end = position;
    position = 0;
    MPI_Unpack_c(packed->data, room, &position, again->data, (MPI_Count)bytes, MPI_BYTE, run->comm);
    run_check(run, position == end, "Unpack_c moved the position to %lld, not %lld",
              (long long)position, (long long)end);
    buffer_expect(again, 0, bytes, seed);
    buffer_expect(packed, 0, bytes, seed);
    buffer_finish(again);
    buffer_finish(packed);
    buffer_finish(data);
}

// Bytes are the same in external32.
static void step_external(struct run *run, size_t bytes)
{
    uint64_t seed = run_seed(run, run->rank, 0);
    MPI_Count room = 0, position = 0;
    MPI_Pack_external_size_c("external32", (MPI_Count)bytes, MPI_BYTE, &room);
    struct buffer *data = buffer_filled(run, "data", bytes, seed);
    struct buffer *packed = buffer_new(run, "packed", (size_t)room);
    struct buffer *again = buffer_new(run, "again", bytes);
    MPI_Pack_external_c("external32", data->data, (MPI_Count)bytes, MPI_BYTE, packed->data, room,
                        &position);
    MPI_Count end = position;
    position = 0;
    MPI_Unpack_external_c("external32", packed->data, room, &position, again->data,
                          (MPI_Count)bytes, MPI_BYTE);
    run_check(run, position == end && end == (MPI_Count)bytes,
              "Unpack_external_c moved the position to %lld, not %lld", (long long)position,
              (long long)end);
    buffer_expect(again, 0, bytes, seed);
    buffer_expect(packed, 0, bytes, seed);
    buffer_finish(again);
    buffer_finish(packed);
    buffer_finish(data);
}

static void step_onesided(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    MPI_Count n = (MPI_Count)bytes;
    struct buffer *window = buffer_new_in(run, "window", bytes, MEMORY_HOST);
    struct buffer *origin = buffer_filled(run, "origin", bytes, run_seed(run, run->rank, 0));
    struct buffer *result = buffer_new(run, "result", bytes);
    MPI_Win win;
    MPI_Win_create(window->data, (MPI_Aint)bytes, 1, MPI_INFO_NULL, run->comm, &win);
    MPI_Win_fence(0, win);
    MPI_Put_c(origin->data, n, MPI_BYTE, right, 0, n, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    MPI_Get_c(result->data, n, MPI_BYTE, left, 0, n, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    buffer_expect(window, 0, bytes, run_seed(run, left, 0));
    buffer_expect(result, 0, bytes, run_seed(run, (left + run->size - 1) % run->size, 0));
    buffer_finish(result);
    buffer_finish(origin);
    buffer_finish(window);
}

static const struct step steps[] = {
    {"Send_c", step_blocking, LIMIT_MIDDLE, 2},
    {"Isend_c", step_nonblocking, LIMIT_MIDDLE, 1},
    {"Send_init_c", step_persistent, LIMIT_SMALL, 1},
    {"Sendrecv_c", step_sendrecv, LIMIT_MIDDLE, 1},
    {"Mrecv_c", step_matched, LIMIT_SMALL, 1},
    {"Type_vector_c", step_types, LIMIT_SMALL, 1},
    {"Alltoall_c", step_alltoall, LIMIT_MIDDLE, 1},
    {"Gather_c", step_gathers, LIMIT_SMALL, 1},
    {"Allgatherv_c", step_gatherv, LIMIT_SMALL, 1},
    {"Reduce_c", step_reductions, LIMIT_SMALL, 1},
    {"Pack_c", step_pack, LIMIT_SMALL, 1},
    {"Pack_external_c", step_external, LIMIT_SMALL, 1},
    {"Put_c", step_onesided, LIMIT_SMALL, 1},
};

PROGRAM("wide", steps)

#else

PROGRAM_SKIPPED("this MPI has no large-count forms")

#endif
