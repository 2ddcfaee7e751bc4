// SPDX-License-Identifier: BSD-3-Clause
// Messages around a ring, in every mode that MPI has for sending and receiving one.
#include "harness.h"

#include <stdlib.h>

enum { TAG = 7, TOKEN = 8, BACK = 9 };

struct ring {
    int left, right;
    struct buffer *send, *recv;
};

// Data goes to the right: send holds it, recv is for what the left neighbour sent.
static struct ring ring_new(struct run *run, size_t bytes)
{
    struct ring ring = {.left = (run->rank + run->size - 1) % run->size,
                        .right = (run->rank + 1) % run->size};
    ring.send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, ring.right));
    ring.recv = buffer_new(run, "recv", bytes);
    return ring;
}

static void ring_expect(const struct ring *ring, size_t bytes)
{
    struct run *run = ring->recv->run;
    buffer_expect(ring->recv, 0, bytes, run_seed(run, ring->left, run->rank));
}

static void ring_finish(struct ring *ring)
{
    buffer_finish(ring->recv);
    buffer_finish(ring->send);
}

struct mode {
    const char *name;
    int (*send)(const void *, block_count, MPI_Datatype, int, int, MPI_Comm);
    int (*isend)(const void *, block_count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
};

static const struct mode modes[] = {
    {.name = "Send", .send = MPI_Send},      {.name = "Ssend", .send = MPI_Ssend},
    {.name = "Bsend", .send = MPI_Bsend},    {.name = "Rsend", .send = MPI_Rsend},
    {.name = "Isend", .isend = MPI_Isend},   {.name = "Issend", .isend = MPI_Issend},
    {.name = "Ibsend", .isend = MPI_Ibsend}, {.name = "Irsend", .isend = MPI_Irsend},
};

// Tells the left neighbour that its message will find a receive, and waits to hear the same from
// the right one: what a ready send needs.
static void announce_receive(const struct run *run, const struct ring *ring)
{
    MPI_Sendrecv(NULL, 0, MPI_BYTE, ring->left, TOKEN, NULL, 0, MPI_BYTE, ring->right, TOKEN,
                 run->comm, MPI_STATUS_IGNORE);
}

static void pass_in_mode(struct run *run, size_t bytes, const struct mode *mode)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    run->step = mode->name;
    MPI_Irecv(ring.recv->data, (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, &requests[0]);
    announce_receive(run, &ring);
    requests[1] = MPI_REQUEST_NULL;
    if (mode->send != NULL)
        mode->send(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm);
    else
        mode->isend(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm,
                    &requests[1]);
    MPI_Waitall(2, requests, statuses);
    run_check(run, requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL,
              "Waitall left a request behind");
    status_check(run, &statuses[0], ring.left, TAG, MPI_BYTE, (int)bytes);
    ring_expect(&ring, bytes);
    ring_finish(&ring);
}

static void step_modes(struct run *run, size_t bytes)
{
    int room = (int)(2 * (bytes + MPI_BSEND_OVERHEAD)), detached_bytes = 0;
    struct memory attached = memory_new(memory_kind_on_rank(run->kind, run->rank), (size_t)room);
    void *detached = NULL;
    MPI_Buffer_attach(attached.address, room);
    for (int i = 0; i < COUNT_OF(modes); i++)
        pass_in_mode(run, bytes, &modes[i]);
    MPI_Buffer_detach(&detached, &detached_bytes);
    run_check(run, detached == attached.address && detached_bytes == room,
              "Buffer_detach gave back another buffer than was attached");
    memory_free(&attached);
}

// The sender may write its buffer again as soon as a buffered send has returned.
static void step_bsend_reuse(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    int room = (int)(bytes + MPI_BSEND_OVERHEAD), detached_bytes = 0;
    void *attached = table_new((size_t)room, 1), *detached = NULL;
    MPI_Buffer_attach(attached, room);
    MPI_Bsend(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm);
    buffer_expect(ring.send, 0, bytes, run_seed(run, -2, run->rank));
    buffer_upload(ring.send);
    MPI_Recv(ring.recv->data, (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&detached, &detached_bytes);
    ring_expect(&ring, bytes);
    ring_finish(&ring);
    free(attached);
}

static void step_recv(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Datatype type = bytes % sizeof(int) == 0 ? MPI_INT : MPI_BYTE;
    int count = (int)(bytes % sizeof(int) == 0 ? bytes / sizeof(int) : bytes);
    MPI_Status status;
    if (run->rank % 2 == 0)
        MPI_Ssend(ring.send->data, count, type, ring.right, TAG, run->comm);
    MPI_Recv(ring.recv->data, count, type, ring.left, TAG, run->comm, &status);
    if (run->rank % 2 != 0)
        MPI_Ssend(ring.send->data, count, type, ring.right, TAG, run->comm);
    status_check(run, &status, ring.left, TAG, type, count);
    ring_expect(&ring, bytes);
    ring_finish(&ring);
}

static void step_sendrecv(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Status status;
    MPI_Sendrecv(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, ring.recv->data,
                 (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, &status);
    status_check(run, &status, ring.left, TAG, MPI_BYTE, (int)bytes);
    ring_expect(&ring, bytes);
    ring_finish(&ring);
}

static void step_sendrecv_replace(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Status status;
    MPI_Sendrecv_replace(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, ring.left, TAG,
                         run->comm, &status);
    status_check(run, &status, ring.left, TAG, MPI_BYTE, (int)bytes);
    buffer_expect(ring.send, 0, bytes, run_seed(run, ring.left, run->rank));
    ring_finish(&ring);
}

#ifdef HAVE_ISENDRECV
static void step_isendrecv(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request request;
    MPI_Status status;
    MPI_Isendrecv(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, ring.recv->data,
                  (int)bytes, MPI_BYTE, ring.left, TAG, run->comm, &request);
    MPI_Wait(&request, &status);
    ring_expect(&ring, bytes);
    ring_finish(&ring);
}

static void step_isendrecv_replace(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request request;
    MPI_Status status;
    MPI_Isendrecv_replace(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, ring.left, TAG,
                          run->comm, &request);
    MPI_Wait(&request, &status);
    buffer_expect(ring.send, 0, bytes, run_seed(run, ring.left, run->rank));
    ring_finish(&ring);
}
#endif

// Several messages on the way at once, each into its own part of one buffer, so that neighbours in
// memory must not disturb each other.
static void step_many(struct run *run, size_t bytes)
{
    enum { MESSAGES = 8 };
    struct ring ring = ring_new(run, bytes * MESSAGES);
    MPI_Request requests[2 * MESSAGES];
    for (int i = 0; i < MESSAGES; i++)
        MPI_Irecv(ring.recv->data + (size_t)i * bytes, (int)bytes, MPI_BYTE, ring.left, TAG + i,
                  run->comm, &requests[i]);
    for (int i = MESSAGES - 1; i >= 0; i--)
        MPI_Isend(ring.send->data + (size_t)i * bytes, (int)bytes, MPI_BYTE, ring.right, TAG + i,
                  run->comm, &requests[MESSAGES + i]);
    MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
    ring_expect(&ring, bytes * MESSAGES);
    ring_finish(&ring);
}

static void step_self(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes);
    MPI_Request request;
    MPI_Status status;
    MPI_Isend(ring.send->data, (int)bytes, MPI_BYTE, run->rank, TAG, run->comm, &request);
    MPI_Recv(ring.recv->data, (int)bytes, MPI_BYTE, run->rank, TAG, run->comm, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    status_check(run, &status, run->rank, TAG, MPI_BYTE, (int)bytes);
    buffer_expect(ring.recv, 0, bytes, run_seed(run, run->rank, ring.right));
    buffer_check(ring.recv);
    MPI_Sendrecv(ring.recv->data, (int)bytes, MPI_BYTE, 0, BACK, ring.send->data, (int)bytes,
                 MPI_BYTE, 0, BACK, MPI_COMM_SELF, &status);
    status_check(run, &status, 0, BACK, MPI_BYTE, (int)bytes);
    ring_finish(&ring);
}

// A message shorter than the receive leaves the rest of the buffer as it was.
static void step_short(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, 2 * bytes + 100);
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(ring.recv->data, (int)ring.recv->bytes, MPI_BYTE, ring.left, TAG, run->comm,
              &request);
    MPI_Send(ring.send->data, (int)bytes, MPI_BYTE, ring.right, TAG, run->comm);
    MPI_Wait(&request, &status);
    status_check(run, &status, ring.left, TAG, MPI_BYTE, (int)bytes);
    ring_expect(&ring, bytes);
    buffer_check(ring.recv);
    MPI_Sendrecv(ring.send->data, (int)(bytes / 2), MPI_BYTE, ring.right, TAG, ring.recv->data,
                 (int)ring.recv->bytes, MPI_BYTE, ring.left, TAG, run->comm, &status);
    status_check(run, &status, ring.left, TAG, MPI_BYTE, (int)(bytes / 2));
    ring_finish(&ring);
}

// One message made of a piece of the run's memory and a piece of host memory, by absolute address.
struct scattered {
    struct buffer *near, *far;
    MPI_Datatype type;
};

static struct scattered scattered_new(struct run *run, size_t bytes, const uint64_t *seed)
{
    struct scattered s = {.near = buffer_new(run, "own part", bytes),
                          .far = buffer_new_in(run, "host part", bytes / 2, MEMORY_HOST)};
    int lengths[2] = {(int)bytes, (int)(bytes / 2)};
    MPI_Aint addresses[2];
    MPI_Get_address(s.near->data, &addresses[0]);
    MPI_Get_address(s.far->data, &addresses[1]);
    MPI_Type_create_hindexed(2, lengths, addresses, MPI_BYTE, &s.type);
    MPI_Type_commit(&s.type);
    if (seed != NULL) {
        buffer_expect(s.near, 0, bytes, seed[0]);
        buffer_expect(s.far, 0, bytes / 2, seed[1]);
        buffer_upload(s.near);
        buffer_upload(s.far);
    }
    return s;
}

static void scattered_finish(struct scattered *s, const uint64_t *seed)
{
    buffer_expect(s->near, 0, s->near->bytes, seed[0]);
    buffer_expect(s->far, 0, s->far->bytes, seed[1]);
    buffer_finish(s->near);
    buffer_finish(s->far);
    MPI_Type_free(&s->type);
}

static void step_bottom(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    const uint64_t mine[2] = {run_seed(run, run->rank, right), run_seed(run, run->rank, -1)};
    const uint64_t theirs[2] = {run_seed(run, left, run->rank), run_seed(run, left, -1)};
    struct scattered send = scattered_new(run, bytes, mine);
    struct scattered recv = scattered_new(run, bytes, NULL);
    struct scattered again = scattered_new(run, bytes, NULL);
    MPI_Request requests[2];
    MPI_Irecv(MPI_BOTTOM, 1, recv.type, left, TAG, run->comm, &requests[0]);
    MPI_Isend(MPI_BOTTOM, 1, send.type, right, TAG, run->comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(MPI_BOTTOM, 1, send.type, right, BACK, MPI_BOTTOM, 1, again.type, left, BACK,
                 run->comm, MPI_STATUS_IGNORE);
    scattered_finish(&again, theirs);
    scattered_finish(&recv, theirs);
    scattered_finish(&send, mine);
}

static const struct step steps[] = {
    {"modes", step_modes, LIMIT_LARGE, 1},
    {"Bsend reuse", step_bsend_reuse, LIMIT_MIDDLE, 1},
    {"Recv", step_recv, LIMIT_MIDDLE, 2},
    {"Sendrecv", step_sendrecv, LIMIT_LARGE, 1},
    {"Sendrecv_replace", step_sendrecv_replace, LIMIT_LARGE, 1},
#ifdef HAVE_ISENDRECV
    {"Isendrecv", step_isendrecv, LIMIT_MIDDLE, 1},
    {"Isendrecv_replace", step_isendrecv_replace, LIMIT_MIDDLE, 1},
#endif
    {"many", step_many, LIMIT_MIDDLE, 1},
    {"self", step_self, LIMIT_MIDDLE, 1},
    {"short", step_short, LIMIT_MIDDLE, 1},
    {"BOTTOM", step_bottom, LIMIT_MIDDLE, 1},
};

PROGRAM("ring", steps)
