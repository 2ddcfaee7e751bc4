// SPDX-License-Identifier: BSD-3-Clause
// Lanes: their buffers, the data of a round, and the loop over sizes and rounds.
#include "corners.h"

#include <stdlib.h>
#include <string.h>

// Even the short ones use each outgoing buffer six times. Senders are no more than TOGETHER rounds
// ahead, or they would be through before a library's first answers come.
enum { ROUNDS = 16, LARGE_ROUNDS = 12, TOGETHER = 4, GAP_BYTES = 48 };
enum { LARGE_BYTES = 100000 }; // what takes longer to make and compare than to send

// Nothing; around the sizes of the shortest RTS and of most; below and above the eager limits; not
// a multiple of anything.
static const size_t sizes[CORNER_TAGS / (2 * LANE_TAGS)] = {0,   39,   40,    41,
                                                            656, 1000, 65536, (1 << 20) + 7};

// Four rounds see all four combinations of places.
static enum place give_place(const struct lane *lane, int slot)
{
    return (enum place)((lane->round + slot) % 2);
}

enum place lane_take_place(const struct lane *lane, int slot)
{
    return (enum place)((lane->round + slot) / 2 % 2);
}

static size_t slot_offset(const struct lane *lane, int slot)
{
    return (size_t)slot * lane->slot_bytes;
}

// Slots of one round carry different data.
static uint64_t slot_seed(const struct lane *lane, int from, int to, int slot)
{
    return run_seed(lane->run, from, to + (slot << 16));
}

static void write_slot(struct buffer *buffer, size_t offset, size_t bytes)
{
    if (bytes > 0)
        memory_write(&buffer->memory, GUARD_BYTES + offset, buffer->want + offset, bytes);
}

void *lane_give_in(struct lane *lane, enum place place, int slot, size_t bytes)
{
    struct buffer *buffer = lane->out[place];
    size_t offset = slot_offset(lane, slot);
    buffer_expect(buffer, offset, bytes, slot_seed(lane, lane->run->rank, lane->to, slot));
    write_slot(buffer, offset, bytes);
    return buffer->data + offset;
}

void *lane_give(struct lane *lane, int slot, size_t bytes)
{
    return lane_give_in(lane, give_place(lane, slot), slot, bytes);
}

void lane_spoil(struct lane *lane, int slot, size_t bytes)
{
    struct buffer *buffer = lane->out[give_place(lane, slot)];
    size_t offset = slot_offset(lane, slot);
    memset(buffer->want + offset, 1 + lane->round, bytes);
    write_slot(buffer, offset, bytes);
}

void *lane_take(struct lane *lane, int slot)
{
    enum place place = lane_take_place(lane, slot);
    lane->taken[place] = true;
    return lane->in[place]->data + slot_offset(lane, slot);
}

void lane_got(struct lane *lane, int slot, size_t bytes)
{
    buffer_expect(lane->in[lane_take_place(lane, slot)], slot_offset(lane, slot), bytes,
                  slot_seed(lane, lane->from, lane->run->rank, slot));
}

void lane_got_now(struct lane *lane, int slot, size_t bytes)
{
    const struct buffer *buffer = lane->in[lane_take_place(lane, slot)];
    size_t offset = slot_offset(lane, slot);
    unsigned char *now = table_new(bytes, 1);
    lane_got(lane, slot, bytes);
    if (bytes > 0)
        memory_read(&buffer->memory, GUARD_BYTES + offset, now, bytes);
    run_check(lane->run, memcmp(now, buffer->want + offset, bytes) == 0,
              "message %d of round %d is not there yet, though MPI says so", slot, lane->round);
    free(now);
}

void lane_check(struct lane *lane)
{
    for (int place = 0; place < PLACES; place++) {
        if (lane->taken[place])
            buffer_check(lane->in[place]);
        lane->taken[place] = false;
    }
}

void lane_status(struct lane *lane, const MPI_Status *status, int tag, size_t bytes)
{
    int elements = -1, cancelled = 1;
    status_check(lane->run, status, lane->partner, tag, MPI_BYTE, (int)bytes);
    MPI_Get_elements(status, MPI_BYTE, &elements);
    run_check(lane->run, elements == (int)bytes, "Get_elements says %d, expected %zu", elements,
              bytes);
    MPI_Test_cancelled(status, &cancelled);
    run_check(lane->run, !cancelled, "the status says that the message was cancelled");
}

int lane_swap(struct lane *lane, int number)
{
    int heard = -1;
    MPI_Sendrecv(&number, 1, MPI_INT, lane->buddy, lane->tag, &heard, 1, MPI_INT, lane->buddy,
                 lane->tag, lane->sync, MPI_STATUS_IGNORE);
    return heard;
}

void lane_sync(struct lane *lane)
{
    (void)lane_swap(lane, 0);
}

void *lane_attach(size_t bytes, int messages)
{
    int all = messages * ((int)bytes + MPI_BSEND_OVERHEAD);
    void *attached = table_new((size_t)all, 1);
    MPI_Buffer_attach(attached, all);
    return attached;
}

void lane_detach(struct lane *lane, void *attached)
{
    void *detached = NULL;
    int bytes = 0;
    MPI_Buffer_detach(&detached, &bytes);
    run_check(lane->run, detached == attached,
              "Buffer_detach gave back another buffer than was attached");
    free(attached);
}

static void lane_open(struct lane *lane, const struct corner *corner)
{
    const enum memory_kind kinds[PLACES] = {lane->run->kind, MEMORY_HOST};
    const char *out_names[PLACES] = {"send", "host send"};
    const char *in_names[PLACES] = {"recv", "host recv"};
    size_t all = lane->slot_bytes * (size_t)(corner->slots != 0 ? corner->slots : 1);
    for (int place = 0; place < PLACES; place++) {
        lane->out[place] = lane->in[place] = NULL;
        lane->taken[place] = false;
        if (corner->both_ways || lane->sends)
            lane->out[place] = buffer_new_in(lane->run, out_names[place], all, kinds[place]);
        if (corner->both_ways || !lane->sends)
            lane->in[place] = buffer_new_in(lane->run, in_names[place], all, kinds[place]);
    }
}

static void lane_close(struct lane *lane)
{
    for (int place = 0; place < PLACES; place++) {
        if (lane->out[place] != NULL)
            buffer_finish(lane->out[place]);
        if (lane->in[place] != NULL)
            buffer_finish(lane->in[place]);
    }
}

static void lane_round(struct lane *lane, const struct corner *corner)
{
    lane->run->round++;
    corner->round(lane);
    lane_check(lane);
    lane->round++;
    if (lane->round % TOGETHER == 0)
        lane_sync(lane);
}

static void lane_run(struct lane *lane, const struct corner *corner)
{
    bool large = lane->bytes >= LARGE_BYTES;
    int rounds = corner->rounds != 0 ? corner->rounds : ROUNDS;
    rounds = large && rounds > LARGE_ROUNDS ? LARGE_ROUNDS : rounds;
    lane_open(lane, corner);
    for (int i = 0; i < rounds; i++)
        lane_round(lane, corner);
    lane_close(lane);
    for (int i = 0; i < (large ? 1 : rounds / 4); i++) {
        lane_open(lane, corner);
        lane_round(lane, corner);
        lane_close(lane);
    }
}

// As the harness does: every size with the first kind of memory, a third of them with the others.
static bool size_wanted(const struct run *run, const struct corner *corner, int i)
{
    size_t most = corner->most != 0 ? corner->most : SIZE_MAX;
    return sizes[i] >= corner->least && sizes[i] <= most &&
           (run->kind_number == 0 || (i + run->kind_number) % 3 == 0);
}

void lanes_run(const struct lane *base, const struct corner *corner)
{
    struct run *run = base->run;
    int start = (int)(run->round % 2);
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        struct lane lane = *base;
        size_t room = sizes[i] + 1 > corner->room ? sizes[i] + 1 : corner->room;
        if (!size_wanted(run, corner, i))
            continue;
        run->bytes = lane.bytes = sizes[i];
        lane.tag += i * 2 * LANE_TAGS;
        lane.slot_bytes = (room + GAP_BYTES + 15) / 16 * 16;
        lane.variant = corner->variant;
        lane.turn = (start + i) % 2;
        lane.sends = run->rank % 2 == lane.turn;
        lane_run(&lane, corner);
    }
}
