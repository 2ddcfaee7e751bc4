// SPDX-License-Identifier: BSD-3-Clause
// Order of waiting: programs that are right, and one kind that is not but works everywhere, must
// not stop because a library waits in another place than MPI would.
#include "corners.h"

#include <string.h>

static void send_slot(struct lane *lane, int slot, size_t bytes)
{
    MPI_Send(lane_give(lane, slot, bytes), (int)bytes, MPI_BYTE, lane->partner, lane->tag,
             lane->comm);
}

static void start_send(struct lane *lane, int slot, size_t bytes, MPI_Request *request)
{
    MPI_Isend(lane_give(lane, slot, bytes), (int)bytes, MPI_BYTE, lane->partner, lane->tag,
              lane->comm, request);
}

static void start_receive(struct lane *lane, int slot, size_t bytes, MPI_Request *request)
{
    MPI_Irecv(lane_take(lane, slot), (int)bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm,
              request);
}

static void receive_slot(struct lane *lane, int slot, size_t bytes)
{
    MPI_Status status;
    MPI_Recv(lane_take(lane, slot), (int)bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm,
             &status);
    lane_status(lane, &status, lane->tag, bytes);
    lane_got(lane, slot, bytes);
}

static void finish_receive(struct lane *lane, int slot, size_t bytes, MPI_Request *request)
{
    MPI_Status status;
    MPI_Wait(request, &status);
    lane_status(lane, &status, lane->tag, bytes);
    lane_got(lane, slot, bytes);
}

// Both send before both receive. MPI does not promise that this ends, but every MPI lets small
// messages go.
static void round_head_to_head(struct lane *lane)
{
    send_slot(lane, 0, lane->bytes);
    receive_slot(lane, 0, lane->bytes);
}

// Does so several messages deep.
static void round_head_to_head_deep(struct lane *lane)
{
    for (int i = 0; i < 3; i++)
        send_slot(lane, i, lane->bytes);
    for (int i = 0; i < 3; i++)
        receive_slot(lane, i, lane->bytes);
}

// Sends that are waited for in another order than they were started in, each buffer written anew at
// once, and received when all of that is over. As small as every MPI lets go.
static void round_last_first(struct lane *lane)
{
    enum { MESSAGES = 3 };
    MPI_Request requests[MESSAGES];
    if (lane->sends) {
        for (int i = 0; i < MESSAGES; i++)
            start_send(lane, i, lane->bytes, &requests[i]);
        for (int i = MESSAGES - 1; i >= 0; i--) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            lane_spoil(lane, i, lane->bytes);
        }
    }
    lane_sync(lane);
    for (int i = 0; i < MESSAGES && !lane->sends; i++)
        receive_slot(lane, i, lane->bytes);
}

static void round_both_posted(struct lane *lane)
{
    MPI_Request request;
    start_receive(lane, 0, lane->bytes, &request);
    send_slot(lane, 0, lane->bytes);
    finish_receive(lane, 0, lane->bytes, &request);
}

// Both start everything, and one completes its send first, the other its receive.
static void round_both_started(struct lane *lane)
{
    MPI_Request send, receive;
    start_send(lane, 0, lane->bytes, &send);
    start_receive(lane, 0, lane->bytes, &receive);
    if (lane->sends)
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    finish_receive(lane, 0, lane->bytes, &receive);
    if (!lane->sends)
        MPI_Wait(&send, MPI_STATUS_IGNORE);
}

// A send must end while its receiver, who has posted the receive, sits in a barrier.
static void round_posted_barrier(struct lane *lane)
{
    MPI_Request request;
    if (lane->sends) {
        if (lane->variant != 0)
            lane_sync(lane);
        send_slot(lane, 0, lane->bytes);
        MPI_Barrier(lane->run->comm);
        return;
    }
    start_receive(lane, 0, lane->bytes, &request);
    if (lane->variant != 0)
        lane_sync(lane);
    MPI_Barrier(lane->run->comm);
    finish_receive(lane, 0, lane->bytes, &request);
}

// A message that was started must be there after the barrier, which does not wait for it.
static void round_started_barrier(struct lane *lane)
{
    MPI_Request request;
    if (lane->sends) {
        start_send(lane, 0, lane->bytes, &request);
        MPI_Barrier(lane->run->comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Barrier(lane->run->comm);
    receive_slot(lane, 0, lane->bytes);
}

// A barrier between the two ends of everything, so that both have started before either waits.
static void round_all_barrier(struct lane *lane)
{
    MPI_Request send, receive;
    start_receive(lane, 0, lane->bytes, &receive);
    start_send(lane, 0, lane->bytes, &send);
    MPI_Barrier(lane->run->comm);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    finish_receive(lane, 0, lane->bytes, &receive);
}

// The receiver waits for the second message first, while the sender does not send it before the
// first one is gone. Variants: one tag, two tags.
static void round_second_first(struct lane *lane)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int tags[2] = {lane->tag, lane->tag + (lane->variant != 0)};
    for (int i = 0; i < 2; i++) {
        if (lane->sends)
            MPI_Ssend(lane_give(lane, i, lane->bytes), (int)lane->bytes, MPI_BYTE, lane->partner,
                      tags[i], lane->comm);
        else
            MPI_Irecv(lane_take(lane, i), (int)lane->bytes, MPI_BYTE, lane->partner, tags[i],
                      lane->comm, &requests[i]);
    }
    for (int i = 1; i >= 0 && !lane->sends; i--) {
        MPI_Wait(&requests[i], &statuses[i]);
        lane_status(lane, &statuses[i], tags[i], lane->bytes);
        lane_got_now(lane, i, lane->bytes);
    }
}

// A blocking send ends while its receiver waits, in a receive, for a later message of the sender.
static void round_later_first(struct lane *lane)
{
    MPI_Request request;
    MPI_Status status;
    if (lane->sends) {
        send_slot(lane, 0, lane->bytes);
        MPI_Send(NULL, 0, MPI_BYTE, lane->partner, lane->tag + 1, lane->comm);
        return;
    }
    start_receive(lane, 0, lane->bytes, &request);
    MPI_Recv(NULL, 0, MPI_BYTE, lane->partner, lane->tag + 1, lane->comm, &status);
    finish_receive(lane, 0, lane->bytes, &request);
}

// Many messages before anybody waits, completed from the last to the first.
enum { MANY = 12 };
static void round_many(struct lane *lane)
{
    MPI_Request requests[MANY];
    for (int i = 0; i < MANY; i++) {
        if (lane->sends)
            start_send(lane, i, lane->bytes, &requests[i]);
        else
            start_receive(lane, i, lane->bytes, &requests[i]);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        if (lane->sends)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        else
            finish_receive(lane, i, lane->bytes, &requests[i]);
    }
}

// There and back again in the same buffers, as a benchmark does.
static void round_ping_pong(struct lane *lane)
{
    if (lane->sends)
        send_slot(lane, 0, lane->bytes);
    receive_slot(lane, 0, lane->bytes);
    if (!lane->sends)
        send_slot(lane, 0, lane->bytes);
}

static void enter_ring(struct lane *lane)
{
    const struct run *run = lane->run;
    lane->to = (run->rank + 1) % run->size;
    lane->from = lane->partner = (run->rank + run->size - 1) % run->size;
}

static void round_sendrecv(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Status status;
    enter_ring(lane);
    void *out = lane_give(lane, 0, lane->bytes), *in = lane_take(lane, 0);
    MPI_Sendrecv(out, count, MPI_BYTE, lane->to, lane->tag, in, count, MPI_BYTE, lane->from,
                 lane->tag, lane->comm, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// Sends from the buffer that it receives into: what it held goes out, what came stays.
static void round_replace(struct lane *lane)
{
    struct buffer *in = lane->in[lane_take_place(lane, 0)];
    int count = (int)lane->bytes;
    MPI_Status status;
    enter_ring(lane);
    void *data = lane_take(lane, 0);
    pattern_write(in->want, run_seed(lane->run, lane->run->rank, lane->to), 0, lane->bytes);
    buffer_upload(in);
    MPI_Sendrecv_replace(data, count, MPI_BYTE, lane->to, lane->tag, lane->from, lane->tag,
                         lane->comm, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

#ifdef HAVE_ISENDRECV
static void round_isendrecv(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request request;
    MPI_Status status;
    enter_ring(lane);
    void *out = lane_give(lane, 0, lane->bytes), *in = lane_take(lane, 0);
    MPI_Isendrecv(out, count, MPI_BYTE, lane->to, lane->tag, in, count, MPI_BYTE, lane->from,
                  lane->tag, lane->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    lane_got_now(lane, 0, lane->bytes);
    enter_ring(lane);
    MPI_Isendrecv_replace(in, count, MPI_BYTE, lane->to, lane->tag, lane->from, lane->tag,
                          lane->comm, &request);
    MPI_Wait(&request, &status);
    // The left neighbour had received from its own left one.
    buffer_expect(
        lane->in[lane_take_place(lane, 0)], 0, lane->bytes,
        run_seed(lane->run, (lane->from + lane->run->size - 1) % lane->run->size, lane->from));
}
#endif

static const struct corner list[] = {
    {.name = "head to head", .round = round_head_to_head, .both_ways = true, .most = 1000},
    {.name = "head to head deep",
     .round = round_head_to_head_deep,
     .both_ways = true,
     .slots = 3,
     .most = 1000},
    {.name = "last first", .round = round_last_first, .slots = 3, .most = 1000},
    {.name = "both posted", .round = round_both_posted, .both_ways = true},
    {.name = "both started", .round = round_both_started, .both_ways = true},
    {.name = "posted, barrier", .round = round_posted_barrier, .rounds = 12},
    {.name = "posted surely, barrier", .round = round_posted_barrier, .variant = 1, .rounds = 12},
    {.name = "started, barrier", .round = round_started_barrier, .rounds = 12},
    {.name = "both started, barrier", .round = round_all_barrier, .both_ways = true, .rounds = 12},
    {.name = "second first", .round = round_second_first, .slots = 2},
    {.name = "second tag first",
     .round = round_second_first,
     .variant = 1,
     .slots = 2,
     .rounds = 12},
    {.name = "later message first", .round = round_later_first},
    {.name = "many", .round = round_many, .slots = MANY, .most = 65536, .rounds = 12},
    {.name = "ping pong", .round = round_ping_pong, .both_ways = true},
    {.name = "Sendrecv", .round = round_sendrecv, .both_ways = true},
    {.name = "Sendrecv_replace", .round = round_replace, .both_ways = true, .rounds = 12},
#ifdef HAVE_ISENDRECV
    {.name = "Isendrecv", .round = round_isendrecv, .both_ways = true, .most = 65536, .rounds = 12},
#endif
};

struct corners corners_order(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
