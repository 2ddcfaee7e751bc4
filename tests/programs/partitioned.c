// SPDX-License-Identifier: BSD-3-Clause
// Partitioned messages: parts of a message are given to MPI one by one, out of order, and looked at
// on the other side as they arrive.
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_PARTITIONED

enum { TAG = 71, PARTS = 8, ROUNDS = 3 };

enum ready { ONE_BY_ONE, BY_RANGE, BY_LIST, READY_FORMS };

struct ring {
    int left, right;
    size_t part_bytes;
    struct buffer *send, *recv;
    MPI_Request requests[2]; // receive, send
};

static struct ring ring_new(struct run *run, size_t part_bytes, int recv_parts)
{
    struct ring ring = {.left = (run->rank + run->size - 1) % run->size,
                        .right = (run->rank + 1) % run->size,
                        .part_bytes = part_bytes};
    size_t all = part_bytes * PARTS;
    ring.send = buffer_new(run, "send", all);
    ring.recv = buffer_new(run, "recv", all);
    MPI_Precv_init(ring.recv->data, recv_parts, (MPI_Count)(all / (size_t)recv_parts), MPI_BYTE,
                   ring.left, TAG, run->comm, MPI_INFO_NULL, &ring.requests[0]);
    MPI_Psend_init(ring.send->data, PARTS, (MPI_Count)part_bytes, MPI_BYTE, ring.right, TAG,
                   run->comm, MPI_INFO_NULL, &ring.requests[1]);
    return ring;
}

static void ring_finish(struct ring *ring)
{
    MPI_Request_free(&ring->requests[0]);
    MPI_Request_free(&ring->requests[1]);
    buffer_finish(ring->recv);
    buffer_finish(ring->send);
}

static uint64_t part_seed(const struct run *run, int from, int part)
{
    return run_seed(run, from, part);
}

// Writes one part of the send buffer: the others may be on their way already.
static void write_part(struct ring *ring, int part)
{
    struct buffer *send = ring->send;
    size_t at = (size_t)part * ring->part_bytes;
    buffer_expect(send, at, ring->part_bytes, part_seed(send->run, send->run->rank, part));
    memory_write(&send->memory, GUARD_BYTES + at, send->want + at, ring->part_bytes);
}

// Parts become ready in an order that is not theirs.
static void make_ready(struct ring *ring, enum ready form)
{
    static int shuffled[PARTS] = {5, 2, 7, 0, 3, 6, 1, 4};
    MPI_Request *request = &ring->requests[1];
    for (int i = 0; i < PARTS; i++) {
        write_part(ring, form == BY_RANGE ? i : shuffled[i]);
        if (form == ONE_BY_ONE)
            MPI_Pready(shuffled[i], *request);
    }
    if (form == BY_RANGE) {
        MPI_Pready_range(PARTS / 2, PARTS - 1, *request);
        MPI_Pready_range(0, PARTS / 2 - 1, *request);
    } else if (form == BY_LIST) {
        MPI_Pready_list(PARTS / 2, shuffled, *request);
        MPI_Pready_list(PARTS / 2, shuffled + PARTS / 2, *request);
    }
}

static void expect_part(struct ring *ring, int part)
{
    buffer_expect(ring->recv, (size_t)part * ring->part_bytes, ring->part_bytes,
                  part_seed(ring->recv->run, ring->left, part));
}

// The bytes of one part, now that MPI has said that it is there.
static void check_part(struct run *run, struct ring *ring, int part)
{
    size_t at = (size_t)part * ring->part_bytes;
    unsigned char *got = table_new(ring->part_bytes, 1);
    expect_part(ring, part);
    memory_read(&ring->recv->memory, GUARD_BYTES + at, got, ring->part_bytes);
    for (size_t i = 0; i < ring->part_bytes; i++)
        if (got[i] != ring->recv->want[at + i]) {
            run_check(run, false,
                      "byte %zu of recv is 0x%02x, expected 0x%02x, in part %d, which "
                      "has arrived",
                      at + i, got[i], ring->recv->want[at + i], part);
            break;
        }
    free(got);
}

static void await_parts(struct run *run, struct ring *ring)
{
    bool seen[PARTS] = {false};
    for (int left = PARTS; left > 0;) {
        for (int part = 0; part < PARTS; part++) {
            int flag = 0;
            if (!seen[part])
                MPI_Parrived(ring->requests[0], part, &flag);
            if (flag) {
                check_part(run, ring, part);
                seen[part] = true;
                left--;
            }
        }
    }
}

static void step_parts(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes, PARTS);
    for (int round = 0; round < ROUNDS; round++) {
        run->round++;
        MPI_Startall(2, ring.requests);
        make_ready(&ring, (enum ready)(run->round % READY_FORMS));
        await_parts(run, &ring);
        MPI_Waitall(2, ring.requests, MPI_STATUSES_IGNORE);
        buffer_check(ring.recv);
    }
    ring_finish(&ring);
}

// The receiver may divide the message otherwise than the sender.
static void step_one_receive_part(struct run *run, size_t bytes)
{
    struct ring ring = ring_new(run, bytes, 1);
    for (int round = 0; round < ROUNDS; round++) {
        int flag = 0;
        run->round++;
        MPI_Start(&ring.requests[0]);
        MPI_Start(&ring.requests[1]);
        make_ready(&ring, (enum ready)(run->round % READY_FORMS));
        while (!flag)
            MPI_Test(&ring.requests[0], &flag, MPI_STATUS_IGNORE);
        MPI_Wait(&ring.requests[1], MPI_STATUS_IGNORE);
        for (int part = 0; part < PARTS; part++)
            expect_part(&ring, part);
        buffer_check(ring.recv);
    }
    ring_finish(&ring);
}

enum { BLOCK = 12, APART = 20 };

static void expect_blocks(struct buffer *buffer, int from, int part, int blocks)
{
    for (int i = 0; i < blocks; i++)
        buffer_expect(buffer, (size_t)(part * blocks + i) * APART, BLOCK,
                      part_seed(buffer->run, from, part) + (uint64_t)i);
}

// Each part has blocks with gaps, which stay as they are. Open MPI 5 overwrites gaps in host
// memory.
static void step_blocks(struct run *run, size_t bytes)
{
    if (strcmp(run->memory_name, "host") == 0)
        return;
    static const int shuffled[PARTS] = {5, 2, 7, 0, 3, 6, 1, 4};
    int blocks = 1 + (int)(bytes / APART);
    size_t part_bytes = (size_t)blocks * APART;
    struct ring ring = {.left = (run->rank + run->size - 1) % run->size,
                        .right = (run->rank + 1) % run->size,
                        .send = buffer_new(run, "send", part_bytes * PARTS),
                        .recv = buffer_new(run, "recv", part_bytes * PARTS)};
    MPI_Datatype blocked, type;
    MPI_Type_create_hvector(blocks, BLOCK, APART, MPI_BYTE, &blocked);
    MPI_Type_create_resized(blocked, 0, (MPI_Aint)part_bytes, &type);
    MPI_Type_commit(&type);
    MPI_Precv_init(ring.recv->data, PARTS, 1, type, ring.left, TAG, run->comm, MPI_INFO_NULL,
                   &ring.requests[0]);
    MPI_Psend_init(ring.send->data, PARTS, 1, type, ring.right, TAG, run->comm, MPI_INFO_NULL,
                   &ring.requests[1]);
    for (int round = 0; round < ROUNDS; round++) {
        run->round++;
        MPI_Startall(2, ring.requests);
        for (int i = 0; i < PARTS; i++) {
            size_t at = (size_t)shuffled[i] * part_bytes;
            expect_blocks(ring.send, run->rank, shuffled[i], blocks);
            memory_write(&ring.send->memory, GUARD_BYTES + at, ring.send->want + at, part_bytes);
            MPI_Pready(shuffled[i], ring.requests[1]);
        }
        MPI_Waitall(2, ring.requests, MPI_STATUSES_IGNORE);
        for (int part = 0; part < PARTS; part++)
            expect_blocks(ring.recv, ring.left, part, blocks);
        buffer_check(ring.recv);
    }
    MPI_Type_free(&blocked);
    MPI_Type_free(&type);
    ring_finish(&ring);
}

static const struct step steps[] = {
    {"parts", step_parts, LIMIT_SMALL, 2},
    {"one receive part", step_one_receive_part, LIMIT_SMALL, 2},
    {"blocks", step_blocks, LIMIT_SMALL, 2},
};

PROGRAM("partitioned", steps)

#else

PROGRAM_SKIPPED("this MPI has no partitioned communication")

#endif
