// SPDX-License-Identifier: BSD-3-Clause
// Persistent requests: the same buffers sent and received over and over with new data each time, in
// every mode, given up while they are active and cancelled.
#include "completion.h"
#include "harness.h"
#include "types.h"

#include <stdlib.h>

enum { TAG = 41, ACK = 42, ROUNDS = 4 };

struct mode {
    const char *name;
    int (*init)(const void *, block_count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
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

static const struct step steps[] = {
    {"modes", step_modes, LIMIT_MIDDLE, 1},
    {"types", step_types, LIMIT_SMALL, 1},
    {"Request_free of an active request", step_free_active, LIMIT_MIDDLE, 2},
    {"never started", step_never_started, LIMIT_SMALL, 1},
    {"Cancel", step_cancel, LIMIT_SMALL, 1},
};

PROGRAM("persistent", steps)
