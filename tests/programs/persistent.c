// SPDX-License-Identifier: BSD-3-Clause
// Persistent requests: the same buffers sent and received over and over with new data each time, in
// every mode, and persistent collectives where the MPI has them.
#include "completion.h"
#include "harness.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = 41, ACK = 42, ROUNDS = 4 };

struct mode {
    const char *name;
    int (*init)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
};

static const struct mode modes[] = {
    {"Send_init", MPI_Send_init},
    {"Ssend_init", MPI_Ssend_init},
    {"Bsend_init", MPI_Bsend_init},
    {"Rsend_init", MPI_Rsend_init},
};

struct ring {
    int left, right;
    struct buffer *send, *recv;
};

static struct ring ring_new(struct run *run, size_t bytes)
{
    return (struct ring){.left = (run->rank + run->size - 1) % run->size,
                         .right = (run->rank + 1) % run->size,
                         .send = buffer_new(run, "send", bytes),
                         .recv = buffer_new(run, "recv", bytes)};
}

static void ring_finish(struct ring *ring)
{
    buffer_finish(ring->recv);
    buffer_finish(ring->send);
}

// The data of one round; the round number of the run is moved on so that each differs.
static void fill(struct run *run, struct buffer *send, size_t bytes)
{
    run->round++;
    buffer_expect(send, 0, bytes, run_seed(run, run->rank, 0));
    buffer_upload(send);
}

static void announce_receive(const struct run *run, const struct ring *ring)
{
    MPI_Sendrecv(NULL, 0, MPI_BYTE, ring->left, ACK, NULL, 0, MPI_BYTE, ring->right, ACK, run->comm,
                 MPI_STATUS_IGNORE);
}

// One round of a ring of persistent requests: requests[0] receives, requests[1] sends.
static void start_round(struct run *run, const struct ring *ring, MPI_Request *requests, int round)
{
    if (round % 2 == 0) {
        MPI_Start(&requests[0]);
        announce_receive(run, ring);
        MPI_Start(&requests[1]);
    } else {
        announce_receive(run, ring); // nobody's receive is left over from the round before
        MPI_Start(&requests[0]);
        announce_receive(run, ring);
        MPI_Startall(1, &requests[1]);
    }
}

struct expectation {
    struct run *run;
    struct ring *ring;
    size_t bytes;
    int told; // requests that were said to be complete
};

static void check_round(void *context, int index, const MPI_Status *status)
{
    struct expectation *e = context;
    e->told++;
    if (index != 0)
        return;
    status_check(e->run, status, e->ring->left, TAG, MPI_BYTE, (int)e->bytes);
    buffer_expect(e->ring->recv, 0, e->bytes, run_seed(e->run, e->ring->left, 0));
    buffer_check(e->ring->recv);
}

static void pass_in_mode(struct run *run, size_t bytes, const struct mode *mode)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Recv_init(ring.recv->data, (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, &requests[0]);
    mode->init(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm, &requests[1]);
    for (int round = 0; round < ROUNDS; round++) {
        struct expectation e = {run, &ring, bytes, 0};
        fill(run, ring.send, bytes);
        start_round(run, &ring, requests, round);
        complete((enum completion)(run->round % COMPLETIONS), 2, requests, check_round, &e);
        run_check(run, e.told == 2, "%d of 2 persistent requests were completed", e.told);
        run_check(run, requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL,
                  "completion took a persistent request away");
    }
    // An inactive request is complete, with an empty status.
    MPI_Wait(&requests[0], &status);
    status_check(run, &status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, 0);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    run_check(run, requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL,
              "Request_free left a persistent request behind");
    ring_finish(&ring);
}

// Open MPI 4.1 sends what its attached buffer held before, not the message, when a persistent
// buffered send is too long for the eager protocol.
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION < 5
enum { BSEND_INIT_MAX_BYTES = 1000 };
#else
enum { BSEND_INIT_MAX_BYTES = 1 << 30 };
#endif

static void step_modes(struct run *run, size_t bytes)
{
    int room = (int)(ROUNDS * (bytes + MPI_BSEND_OVERHEAD)), detached_bytes = 0;
    void *attached = table_new((size_t)room, 1), *detached = NULL;
    MPI_Buffer_attach(attached, room);
    for (int i = 0; i < COUNT_OF(modes); i++) {
        if (modes[i].init == MPI_Bsend_init && bytes > BSEND_INIT_MAX_BYTES)
            continue;
        run->step = modes[i].name;
        pass_in_mode(run, bytes, &modes[i]);
    }
    MPI_Buffer_detach(&detached, &detached_bytes);
    free(attached);
}

// Several persistent requests of derived types, all started at once.
static void step_types(struct run *run, size_t bytes)
{
    int n = (int)(bytes / sizeof(int)) + 1, count = shape_count();
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct shape *shapes = table_new((size_t)count, sizeof(struct shape));
    struct buffer **buffers = table_new(2 * (size_t)count, sizeof(struct buffer *));
    MPI_Request *requests = table_new(2 * (size_t)count, sizeof(MPI_Request));
    for (int i = 0; i < count; i++) {
        shapes[i] = shape_new(i, n);
        buffers[i] = shape_buffer(run, shapes[i].name, &shapes[i]);
        buffers[count + i] = shape_buffer(run, "send", &shapes[i]);
        MPI_Recv_init(shape_address(buffers[i], &shapes[i]), shapes[i].count, shapes[i].type, left,
                      TAG + i, run->comm, &requests[i]);
        MPI_Send_init(shape_address(buffers[count + i], &shapes[i]), shapes[i].count,
                      shapes[i].type, right, TAG + i, run->comm, &requests[count + i]);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count; i++)
            fill(run, buffers[count + i], buffers[count + i]->bytes);
        MPI_Startall(2 * count, requests);
        MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
        uint64_t last = run->round;
        for (int i = 0; i < count; i++) {
            run->round = last - (uint64_t)(count - 1 - i);
            shape_expect(buffers[i], &shapes[i], &shapes[i], run_seed(run, left, 0));
            buffer_check(buffers[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        MPI_Request_free(&requests[i]);
        MPI_Request_free(&requests[count + i]);
        buffer_finish(buffers[i]);
        buffer_finish(buffers[count + i]);
        shape_free(&shapes[i]);
    }
    free(requests);
    free(buffers);
    free(shapes);
}

// A send that is given up while it is under way still arrives.
static void step_free_active(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request request;
    fill(run, ring.send, bytes);
    MPI_Send_init(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm, &request);
    MPI_Start(&request);
    MPI_Request_free(&request);
    run_check(run, request == MPI_REQUEST_NULL, "Request_free left an active request behind");
    MPI_Recv(ring.recv->data, (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, MPI_STATUS_IGNORE);
    announce_receive(run, &ring); // the right neighbour has what was sent
    buffer_expect(ring.recv, 0, bytes, run_seed(run, ring.left, 0));
    ring_finish(&ring);
}

// Requests that are made and never started touch nothing.
static void step_never_started(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request requests[2];
    int flag = 0;
    MPI_Recv_init(ring.recv->data, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, TAG, run->comm,
                  &requests[0]);
    MPI_Send_init(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm, &requests[1]);
    MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
    run_check(run, flag != 0, "Testall waits for requests that were never started");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    ring_finish(&ring);
}

// A persistent receive that is cancelled can be started again.
static void step_cancel(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0;
    MPI_Recv_init(ring.recv->data, (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, &request);
    MPI_Start(&request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    run_check(run, cancelled != 0, "a persistent receive that nothing matched was not cancelled");
    buffer_check(ring.recv);
    MPI_Barrier(run->comm);
    MPI_Start(&request);
    fill(run, ring.send, bytes);
    MPI_Send(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm);
    MPI_Wait(&request, &status);
    status_check(run, &status, ring.left, TAG, MPI_BYTE, (int)bytes);
    buffer_expect(ring.recv, 0, bytes, run_seed(run, ring.left, 0));
    MPI_Request_free(&request);
    ring_finish(&ring);
}

#ifdef HAVE_PERSISTENT_COLLECTIVES
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
#endif

static const struct step steps[] = {
    {"modes", step_modes, LIMIT_MIDDLE, 1},
    {"types", step_types, LIMIT_SMALL, 1},
    {"Request_free of an active request", step_free_active, LIMIT_MIDDLE, 2},
    {"never started", step_never_started, LIMIT_SMALL, 1},
    {"Cancel", step_cancel, LIMIT_SMALL, 1},
#ifdef HAVE_PERSISTENT_COLLECTIVES
    {"collectives", step_collectives, LIMIT_SMALL, 1},
    {"Alltoallv_init", step_vectors, LIMIT_SMALL, 1},
#endif
};

int main(int argc, char **argv)
{
    const struct program program = {.name = "persistent",
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_SINGLE};
    return program_main(argc, argv, &program);
}
