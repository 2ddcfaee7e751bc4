// SPDX-License-Identifier: BSD-3-Clause
// Messages to oneself in every mode of sending and receiving, on communicators of several ranks and
// of one.
#include "corners.h"

#include <stdlib.h>

// The rounds of the largest size see each of them once.
enum way {
    WAY_SSEND,
    WAY_TESTS,
    WAY_BSEND,
    WAY_MPROBE,
    WAY_REPLACE,
    WAY_PERSISTENT,
    WAY_ANY,
    WAY_RSEND,
    WAY_EXCHANGE,
    WAYS
};

// A message and where it goes.
struct own {
    void *out, *in;
    int count, self, tag;
    MPI_Comm comm;
};

static MPI_Request receive_begin(const struct own *own)
{
    MPI_Request request;
    MPI_Irecv(own->in, own->count, MPI_BYTE, own->self, own->tag, own->comm, &request);
    return request;
}

// A blocking send, for which a receive waits.
static void posted(const struct own *own, MPI_Status *status, bool ready)
{
    MPI_Request request = receive_begin(own);
    (ready ? MPI_Rsend : MPI_Ssend)(own->out, own->count, MPI_BYTE, own->self, own->tag, own->comm);
    MPI_Wait(&request, status);
}

// The send first: it can be complete at any time.
static void by_tests(const struct own *own, MPI_Status *status)
{
    MPI_Request requests[2];
    int sent = 0, received = 0;
    MPI_Isend(own->out, own->count, MPI_BYTE, own->self, own->tag, own->comm, &requests[0]);
    MPI_Test(&requests[0], &sent, MPI_STATUS_IGNORE);
    requests[1] = receive_begin(own);
    while (!sent)
        MPI_Test(&requests[0], &sent, MPI_STATUS_IGNORE);
    while (!received)
        MPI_Test(&requests[1], &received, status);
}

static void by_bsend(struct lane *lane, const struct own *own, MPI_Status *status)
{
    void *attached = lane_attach(lane->bytes, 1);
    MPI_Bsend(own->out, own->count, MPI_BYTE, own->self, own->tag, own->comm);
    lane_spoil(lane, 0, lane->bytes);
    MPI_Recv(own->in, own->count, MPI_BYTE, own->self, own->tag, own->comm, status);
    lane_detach(lane, attached);
}

static void by_mprobe(struct lane *lane, const struct own *own, MPI_Status *status)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Isend(own->out, own->count, MPI_BYTE, own->self, own->tag, own->comm, &request);
    MPI_Mprobe(MPI_ANY_SOURCE, own->tag, own->comm, &message, status);
    lane_status(lane, status, own->tag, lane->bytes);
    MPI_Mrecv(own->in, own->count, MPI_BYTE, &message, status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// The contents of the buffer go out and come back.
static void by_replace(struct lane *lane, const struct own *own, MPI_Status *status)
{
    struct buffer *in = lane->in[lane_take_place(lane, 0)];
    lane_got(lane, 0, lane->bytes);
    buffer_upload(in);
    MPI_Sendrecv_replace(own->in, own->count, MPI_BYTE, own->self, own->tag, own->self, own->tag,
                         own->comm, status);
}

static void by_persistent(struct lane *lane, struct own *own, MPI_Status *status)
{
    enum { STARTS = 2 };
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Recv_init(own->in, own->count, MPI_BYTE, own->self, own->tag, own->comm, &requests[0]);
    MPI_Send_init(own->out, own->count, MPI_BYTE, own->self, own->tag, own->comm, &requests[1]);
    for (int i = 0; i < STARTS; i++) {
        lane->run->round++;
        lane_give(lane, 0, lane->bytes);
        MPI_Startall(2, requests);
        if (i % 2 != 0)
            MPI_Wait(&requests[1], &statuses[1]);
        MPI_Waitall(2, requests, statuses);
        lane_got_now(lane, 0, lane->bytes);
    }
    *status = statuses[0];
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void by_any(struct lane *lane, const struct own *own, MPI_Status *status)
{
    MPI_Request requests[2];
    MPI_Issend(own->out, own->count, MPI_BYTE, own->self, own->tag, own->comm, &requests[0]);
    requests[1] = receive_begin(own);
    for (int i = 0; i < 2; i++) {
        MPI_Status one;
        int index = -1;
        MPI_Waitany(2, requests, &index, &one);
        run_check(lane->run, index == 0 || index == 1, "Waitany says %d", index);
        if (index == 1)
            *status = one;
    }
}

static void by_exchange(const struct own *own, MPI_Status *status)
{
#ifdef HAVE_ISENDRECV
    MPI_Request request;
    MPI_Isendrecv(own->out, own->count, MPI_BYTE, own->self, own->tag, own->in, own->count,
                  MPI_BYTE, own->self, own->tag, own->comm, &request);
    MPI_Waitall(1, &request, status);
#else
    MPI_Sendrecv(own->out, own->count, MPI_BYTE, own->self, own->tag, own->in, own->count, MPI_BYTE,
                 own->self, own->tag, own->comm, status);
#endif
}

static void round_way(struct lane *lane)
{
    MPI_Status status = LANE_NO_STATUS;
    enum way way = (enum way)(lane->round % WAYS);
    struct own own = {.count = (int)lane->bytes, .self = lane->partner};
    own.tag = lane->tag;
    own.comm = lane->comm;
    lane->from = lane->to = lane->run->rank;
    own.out = lane_give(lane, 0, lane->bytes);
    own.in = lane_take(lane, 0);
    if (way == WAY_SSEND || way == WAY_RSEND)
        posted(&own, &status, way == WAY_RSEND);
    else if (way == WAY_TESTS)
        by_tests(&own, &status);
    else if (way == WAY_BSEND)
        by_bsend(lane, &own, &status);
    else if (way == WAY_MPROBE)
        by_mprobe(lane, &own, &status);
    else if (way == WAY_REPLACE)
        by_replace(lane, &own, &status);
    else if (way == WAY_PERSISTENT)
        by_persistent(lane, &own, &status);
    else if (way == WAY_ANY)
        by_any(lane, &own, &status);
    else
        by_exchange(&own, &status);
#if defined HAVE_ISENDRECV && !defined OPEN_MPI
    if (way == WAY_EXCHANGE) { // whose status tells nothing in MPICH
        lane_got(lane, 0, lane->bytes);
        return;
    }
#endif
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

static void among_all(struct lane *base, const struct corner *corner)
{
    base->partner = base->run->rank;
    lanes_run(base, corner);
}

static void on_self(struct lane *base, const struct corner *corner)
{
    base->comm = MPI_COMM_SELF;
    base->partner = 0;
    lanes_run(base, corner);
}

static void alone(struct lane *base, const struct corner *corner)
{
    MPI_Comm_split(base->run->comm, base->run->rank, 0, &base->comm);
    base->partner = 0;
    lanes_run(base, corner);
    MPI_Comm_free(&base->comm);
}

static const struct corner list[] = {
    {.name = "self by all ways",
     .round = round_way,
     .around = among_all,
     .both_ways = true,
     .rounds = 4 * WAYS},
    {.name = "self on COMM_SELF",
     .round = round_way,
     .around = on_self,
     .both_ways = true,
     .most = 65536,
     .rounds = 2 * WAYS},
    {.name = "self alone",
     .round = round_way,
     .around = alone,
     .both_ways = true,
     .most = 65536,
     .rounds = 2 * WAYS},
};

struct corners corners_self(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
