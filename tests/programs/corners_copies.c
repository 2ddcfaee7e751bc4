// SPDX-License-Identifier: BSD-3-Clause
// Messages whose buffer gets other data before they have arrived: buffered ones, which are complete
// though nobody has asked for them yet, and those of exchanges that receive where they send from.
#include "corners.h"
#include "types.h"

#include <stdlib.h>

enum { AHEAD_SLOTS = 4, SHAPE_ROUNDS = 8 };

// All messages are sent, and their buffers written again, before the partner receives the first.
static void round_ahead(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request requests[AHEAD_SLOTS];
    void *attached = lane_attach(lane->bytes, AHEAD_SLOTS);
    for (int i = 0; i < AHEAD_SLOTS && lane->sends; i++) {
        void *data = lane_give(lane, i, lane->bytes);
        if (lane->variant == 0)
            MPI_Bsend(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm);
        else
            MPI_Ibsend(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &requests[i]);
    }
    if (lane->sends && lane->variant != 0)
        MPI_Waitall(AHEAD_SLOTS, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < AHEAD_SLOTS && lane->sends; i++)
        lane_spoil(lane, i, lane->bytes);
    lane_sync(lane);
    for (int i = 0; i < AHEAD_SLOTS && !lane->sends; i++) {
        MPI_Status status;
        MPI_Recv(lane_take(lane, i), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                 &status);
        lane_status(lane, &status, lane->tag, lane->bytes);
        lane_got(lane, i, lane->bytes);
    }
    lane_detach(lane, attached);
}

// The incoming buffer, with this rank's message for the partner in it.
static void *give_and_take(struct lane *lane)
{
    struct buffer *in = lane->in[lane_take_place(lane, 0)];
    void *data = lane_take(lane, 0);
    pattern_write(in->want, run_seed(lane->run, lane->run->rank, lane->to), 0, lane->bytes);
    buffer_upload(in);
    return data;
}

#ifdef HAVE_ISENDRECV
static bool takes_nonblocking(const struct shape *shape)
{
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000
    return shape->type == MPI_BYTE; // with a derived type MPICH 4.0 destroys its own memory
#else
    return shape != NULL;
#endif
}
#endif

static void exchange(const struct lane *lane, void *data, const struct shape *shape, int to,
                     int from, MPI_Status *status)
{
#ifdef HAVE_ISENDRECV
    if (lane->run->round % 2 == 0 && takes_nonblocking(shape)) {
        MPI_Request request;
        MPI_Isendrecv_replace(data, shape->count, shape->type, to, lane->tag, from, lane->tag,
                              lane->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE); // which is wrong in MPICH
        status->MPI_SOURCE = MPI_ANY_SOURCE;
        return;
    }
#endif
    MPI_Sendrecv_replace(data, shape->count, shape->type, to, lane->tag, from, lane->tag,
                         lane->comm, status);
}

static bool is_told(const MPI_Status *status)
{
    return status->MPI_SOURCE != MPI_ANY_SOURCE;
}

// One sends to its partner and receives from nobody, so that its buffer stays as it was.
static void round_half(struct lane *lane)
{
    const struct shape bytes = {.type = MPI_BYTE, .count = (int)lane->bytes};
    MPI_Status status = LANE_NO_STATUS;
    void *data = give_and_take(lane);
    exchange(lane, data, &bytes, lane->sends ? lane->partner : MPI_PROC_NULL,
             lane->sends ? MPI_PROC_NULL : lane->partner, &status);
    if (lane->sends && is_told(&status))
        status_check(lane->run, &status, MPI_PROC_NULL, MPI_ANY_TAG, MPI_BYTE, 0);
    if (lane->sends)
        return;
    if (is_told(&status))
        lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// An exchange with nobody, while a receive is pending and somebody may wait for this process.
static void round_nobody(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status = LANE_NO_STATUS;
    void *out = lane_give(lane, 0, lane->bytes);
    if (!lane->sends)
        MPI_Irecv(lane_take(lane, 0), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                  &request);
    MPI_Sendrecv_replace(out, count, MPI_BYTE, MPI_PROC_NULL, lane->tag, MPI_PROC_NULL, lane->tag,
                         lane->comm, &status);
    status_check(lane->run, &status, MPI_PROC_NULL, MPI_ANY_TAG, MPI_BYTE, 0);
    lane_sync(lane);
    if (lane->sends) {
        MPI_Send(out, count, MPI_BYTE, lane->partner, lane->tag, lane->comm);
        return;
    }
    MPI_Wait(&request, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// The message that comes is shorter than the one that goes: the rest stays.
static void round_shorter(struct lane *lane)
{
    const struct shape bytes = {.type = MPI_BYTE, .count = (int)lane->bytes};
    MPI_Status status = LANE_NO_STATUS;
    size_t half = lane->bytes / 2;
    if (lane->sends) {
        exchange(lane, give_and_take(lane), &bytes, lane->partner, lane->partner, &status);
        if (is_told(&status))
            lane_status(lane, &status, lane->tag, half);
        lane_got(lane, 0, half);
        return;
    }
    void *out = lane_give(lane, 0, half), *in = lane_take(lane, 0);
    MPI_Sendrecv(out, (int)half, MPI_BYTE, lane->partner, lane->tag, in, (int)lane->bytes, MPI_BYTE,
                 lane->partner, lane->tag, lane->comm, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

static void check_elements(const struct lane *lane, const struct shape *shape, uint64_t seed,
                           const MPI_Status *status)
{
    int bytes = 0, got = -1;
    free(shape_message(shape, seed, &bytes));
    MPI_Get_elements(status, MPI_BYTE, &got);
    run_check(lane->run, !is_told(status) || got == bytes,
              "Get_elements says %d bytes, expected %d", got, bytes);
}

static void replace_shape(struct lane *lane, const struct shape *shape, enum memory_kind kind)
{
    struct buffer *buffer = buffer_new_in(lane->run, shape->name, shape->bytes, kind);
    uint64_t own, theirs;
    for (int round = 0; round < SHAPE_ROUNDS; round++) {
        MPI_Status status = LANE_NO_STATUS;
        lane->run->round++;
        own = run_seed(lane->run, lane->run->rank, lane->buddy);
        theirs = run_seed(lane->run, lane->buddy, lane->run->rank);
        buffer_expect(buffer, 0, buffer->bytes, own);
        buffer_upload(buffer);
        exchange(lane, shape_address(buffer, shape), shape, lane->partner, lane->partner, &status);
        check_elements(lane, shape, theirs, &status);
        shape_expect(buffer, shape, shape, theirs);
        buffer_check(buffer);
    }
    buffer_finish(buffer);
}

// Datatypes of every constructor.
static void replaced_shapes(struct lane *base, const struct corner *corner)
{
    static const int ints[] = {11, 250, 9000};
    struct run *run = base->run;
#ifdef MPICH_NUMVERSION
    int on_host = run->kind == MEMORY_HOST || run->kind == MEMORY_PINNED;
    MPI_Allreduce(MPI_IN_PLACE, &on_host, 1, MPI_INT, MPI_MAX, base->comm);
    if (on_host)
        return; // MPICH, to 5.0.2, takes its own copy of some datatypes for truncated
#endif
    for (int number = 0; number < shape_count(); number++) {
        for (int i = 0; i < COUNT_OF(ints); i++) {
            if ((run->kind_number != 0 && (number + i) % 4 != 0) ||
                (ints[i] > 1000 && number % 4 != 0))
                continue;
            struct shape shape = shape_new(number, ints[i]);
            run->bytes = shape.bytes;
            replace_shape(base, &shape, run->kind);
            shape_free(&shape);
        }
    }
    (void)corner;
}

static const struct corner list[] = {
    {.name = "Bsend ahead", .round = round_ahead, .slots = AHEAD_SLOTS, .most = 65536},
    {.name = "Ibsend ahead",
     .round = round_ahead,
     .variant = 1,
     .slots = AHEAD_SLOTS,
     .most = 65536,
     .rounds = 8},
    {.name = "replace half", .round = round_half, .both_ways = true},
    {.name = "replace by nobody", .round = round_nobody, .both_ways = true, .rounds = 12},
    {.name = "replace by less", .round = round_shorter, .both_ways = true, .rounds = 24},
    {.name = "replace shapes", .around = replaced_shapes},
};

struct corners corners_copies(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
