// SPDX-License-Identifier: BSD-3-Clause
// Every mode of sending in its three forms, receives that name no source or tag, messages to
// oneself and to nobody.
#include "corners.h"

#include <stdlib.h>

enum mode { MODE_STANDARD, MODE_SYNCHRONOUS, MODE_READY, MODE_BUFFERED, MODE_AHEAD };
enum { ANY_SOURCE = 1, ANY_TAG = 2, PASSES = 7 };

static int (*const sends[])(const void *, int, MPI_Datatype, int, int,
                            MPI_Comm) = {MPI_Send, MPI_Ssend, MPI_Rsend, MPI_Bsend};
static int (*const isends[])(const void *, int, MPI_Datatype, int, int, MPI_Comm,
                             MPI_Request *) = {MPI_Isend, MPI_Issend, MPI_Irsend, MPI_Ibsend};
static int (*const inits[])(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {
    MPI_Send_init, MPI_Ssend_init, MPI_Rsend_init, MPI_Bsend_init, MPI_Bsend_init};

// Receives one message, before which the sender of a ready one hears that it may come.
static void receive(struct lane *lane, bool posted)
{
    MPI_Request request;
    MPI_Status status;
    void *data = lane_take(lane, 0);
    if (posted || lane->variant == MODE_READY) {
        MPI_Irecv(data, (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm, &request);
        if (lane->variant == MODE_READY)
            lane_sync(lane);
        MPI_Wait(&request, &status);
    } else {
        MPI_Recv(data, (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm, &status);
    }
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

static void round_blocking(struct lane *lane)
{
    if (!lane->sends) {
        receive(lane, lane->round / 4 % 2 != 0);
        return;
    }
    void *data = lane_give(lane, 0, lane->bytes), *attached = NULL;
    if (lane->variant == MODE_READY)
        lane_sync(lane);
    if (lane->variant == MODE_BUFFERED)
        attached = lane_attach(lane->bytes, 1);
    sends[lane->variant](data, (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm);
    lane_spoil(lane, 0, lane->bytes);
    if (attached != NULL)
        lane_detach(lane, attached);
}

static void round_nonblocking(struct lane *lane)
{
    if (!lane->sends) {
        receive(lane, lane->round / 4 % 2 == 0);
        return;
    }
    MPI_Request request;
    void *data = lane_give(lane, 0, lane->bytes), *attached = NULL;
    if (lane->variant == MODE_READY)
        lane_sync(lane);
    if (lane->variant == MODE_BUFFERED)
        attached = lane_attach(lane->bytes, 1);
    isends[lane->variant](data, (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                          &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    lane_spoil(lane, 0, lane->bytes);
    if (attached != NULL)
        lane_detach(lane, attached);
}

// One pass of a persistent request: new data, the same buffer. A buffered send is started again
// when its last message has arrived.
static void persistent_pass(struct lane *lane, MPI_Request *request, bool all)
{
    MPI_Status status;
    bool ready = lane->variant == MODE_READY;
    lane->run->round++;
    if (lane->sends)
        lane_give(lane, 0, lane->bytes);
    else
        lane_take(lane, 0);
    if (lane->variant == MODE_BUFFERED)
        lane_sync(lane);
    if (lane->sends && ready)
        lane_sync(lane);
    if (all)
        MPI_Startall(1, request);
    else
        MPI_Start(request);
    if (!lane->sends && ready)
        lane_sync(lane);
    MPI_Wait(request, &status);
    if (lane->sends) {
        lane_spoil(lane, 0, lane->bytes);
        return;
    }
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
    lane_check(lane);
}

static void round_persistent(struct lane *lane)
{
    MPI_Request request;
    MPI_Status status;
    void *attached = NULL;
    int count = (int)lane->bytes;
    if (lane->sends && lane->variant >= MODE_BUFFERED)
        attached = lane_attach(lane->bytes, PASSES);
    if (lane->sends)
        inits[lane->variant](lane_give(lane, 0, lane->bytes), count, MPI_BYTE, lane->partner,
                             lane->tag, lane->comm, &request);
    else
        MPI_Recv_init(lane_take(lane, 0), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                      &request);
    for (int pass = 0; pass < PASSES; pass++)
        persistent_pass(lane, &request, pass % 2 != 0);
    MPI_Wait(&request, &status);
    run_check(lane->run, request != MPI_REQUEST_NULL, "Wait took a persistent request away");
    MPI_Request_free(&request);
    if (attached != NULL)
        lane_detach(lane, attached);
}

// Two persistent requests at once, of which the second has only half the bytes.
static void round_startall(struct lane *lane)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    size_t bytes[2] = {lane->bytes, lane->bytes / 2};
    for (int i = 0; i < 2; i++) {
        if (lane->sends)
            MPI_Send_init(lane_give(lane, i, bytes[i]), (int)bytes[i], MPI_BYTE, lane->partner,
                          lane->tag, lane->comm, &requests[i]);
        else
            MPI_Recv_init(lane_take(lane, i), (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag,
                          lane->comm, &requests[i]);
    }
    for (int pass = 0; pass < PASSES; pass++) {
        lane->run->round++;
        for (int i = 0; i < 2 && lane->sends; i++)
            lane_give(lane, i, bytes[i]);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
        for (int i = 0; i < 2 && !lane->sends; i++) {
            lane_take(lane, i);
            lane_status(lane, &statuses[i], lane->tag, bytes[i]);
            lane_got(lane, i, bytes[i]);
        }
        lane_check(lane);
    }
    for (int i = 0; i < 2; i++)
        MPI_Request_free(&requests[i]);
}

static void round_wildcard(struct lane *lane)
{
    int source = lane->variant & ANY_SOURCE ? MPI_ANY_SOURCE : lane->partner;
    int tag = lane->tag + lane->round % LANE_TAGS, count = (int)lane->bytes;
    int asked = lane->variant & ANY_TAG ? MPI_ANY_TAG : tag;
    MPI_Request request;
    MPI_Status status;
    if (lane->sends) {
        MPI_Send(lane_give(lane, 0, lane->bytes), count, MPI_BYTE, lane->partner, tag, lane->comm);
        return;
    }
    void *data = lane_take(lane, 0);
    if (lane->round / 4 % 2 == 0) {
        MPI_Recv(data, count, MPI_BYTE, source, asked, lane->comm, &status);
    } else {
        MPI_Irecv(data, count, MPI_BYTE, source, asked, lane->comm, &request);
        MPI_Wait(&request, &status);
    }
    lane_status(lane, &status, tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// A message that is shorter than the receive leaves the rest of the buffer as it was.
static void round_short(struct lane *lane)
{
    size_t bytes = lane->round % 3 == 0 ? lane->bytes / 2 : lane->bytes;
    MPI_Status status;
    if (lane->sends) {
        MPI_Send(lane_give(lane, 0, bytes), (int)bytes, MPI_BYTE, lane->partner, lane->tag,
                 lane->comm);
        return;
    }
    MPI_Recv(lane_take(lane, 0), (int)lane->slot_bytes, MPI_BYTE, lane->partner, lane->tag,
             lane->comm, &status);
    lane_status(lane, &status, lane->tag, bytes);
    lane_got(lane, 0, bytes);
}

static void round_self(struct lane *lane)
{
    int count = (int)lane->bytes, self = lane->run->rank;
    MPI_Request requests[2];
    MPI_Status statuses[2] = {LANE_NO_STATUS};
    lane->from = lane->to = lane->partner = self;
    void *out = lane_give(lane, 0, lane->bytes), *in = lane_take(lane, 0);
    switch (lane->round / 4 % 4) {
    case 0:
        MPI_Isend(out, count, MPI_BYTE, self, lane->tag, lane->comm, &requests[1]);
        MPI_Irecv(in, count, MPI_BYTE, self, lane->tag, lane->comm, &requests[0]);
        MPI_Waitall(2, requests, statuses);
        break;
    case 1:
        MPI_Irecv(in, count, MPI_BYTE, self, lane->tag, lane->comm, &requests[0]);
        MPI_Send(out, count, MPI_BYTE, self, lane->tag, lane->comm);
        MPI_Wait(&requests[0], &statuses[0]);
        break;
    case 2:
        MPI_Isend(out, count, MPI_BYTE, self, lane->tag, lane->comm, &requests[1]);
        MPI_Probe(self, lane->tag, lane->comm, &statuses[0]);
        lane_status(lane, &statuses[0], lane->tag, lane->bytes);
        MPI_Recv(in, count, MPI_BYTE, MPI_ANY_SOURCE, lane->tag, lane->comm, &statuses[0]);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Sendrecv(out, count, MPI_BYTE, self, lane->tag, in, count, MPI_BYTE, self, lane->tag,
                     lane->comm, &statuses[0]);
    }
    lane_status(lane, &statuses[0], lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

static void check_nobody(struct lane *lane, const MPI_Status *status)
{
    status_check(lane->run, status, MPI_PROC_NULL, MPI_ANY_TAG, MPI_BYTE, 0);
    run_check(lane->run, status->MPI_TAG == MPI_ANY_TAG, "a status of no process has tag %d",
              status->MPI_TAG);
}

static void nobody_blocking(struct lane *lane, void *out, void *in)
{
    int count = (int)lane->bytes, none = MPI_PROC_NULL;
    MPI_Status status;
    MPI_Send(out, count, MPI_BYTE, none, lane->tag, lane->comm);
    MPI_Ssend(out, count, MPI_BYTE, none, lane->tag, lane->comm);
    MPI_Recv(in, count, MPI_BYTE, none, lane->tag, lane->comm, &status);
    check_nobody(lane, &status);
    MPI_Sendrecv(out, count, MPI_BYTE, none, lane->tag, in, count, MPI_BYTE, none, lane->tag,
                 lane->comm, &status);
    check_nobody(lane, &status);
    MPI_Probe(none, lane->tag, lane->comm, &status);
    check_nobody(lane, &status);
}

static void nobody_requests(struct lane *lane, void *out, void *in)
{
    int count = (int)lane->bytes, none = MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Status statuses[4];
    MPI_Isend(out, count, MPI_BYTE, none, lane->tag, lane->comm, &requests[0]);
    MPI_Irecv(in, count, MPI_BYTE, none, lane->tag, lane->comm, &requests[1]);
    MPI_Send_init(out, count, MPI_BYTE, none, lane->tag, lane->comm, &requests[2]);
    MPI_Recv_init(in, count, MPI_BYTE, none, lane->tag, lane->comm, &requests[3]);
    MPI_Startall(2, &requests[2]);
    MPI_Waitall(2, requests, statuses);
    check_nobody(lane, &statuses[1]);
    MPI_Waitall(2, &requests[2], &statuses[2]);
#ifdef OPEN_MPI // MPICH gives the status of no request
    check_nobody(lane, &statuses[3]);
#endif
    MPI_Request_free(&requests[2]);
    MPI_Request_free(&requests[3]);
}

// A message to the partner goes half way to nobody: what one side sends is received, and the buffer
// that nobody's message was asked into stays as it was.
static void round_nobody(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Status status;
    void *out = lane_give(lane, 0, lane->bytes), *in = lane_take(lane, 0);
    nobody_blocking(lane, out, in);
    nobody_requests(lane, out, in);
    MPI_Sendrecv(out, count, MPI_BYTE, lane->sends ? lane->partner : MPI_PROC_NULL, lane->tag, in,
                 count, MPI_BYTE, lane->sends ? MPI_PROC_NULL : lane->partner, lane->tag,
                 lane->comm, &status);
    if (lane->sends) {
        check_nobody(lane, &status);
        return;
    }
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// Open MPI 4 sends the first message again when a buffered send of more than an eager message is
// started again.
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION < 5
#define BSEND_INIT_MOST 1000
#else
#define BSEND_INIT_MOST 0
#endif

static const struct corner list[] = {
    {.name = "Send", .round = round_blocking, .variant = MODE_STANDARD},
    {.name = "Ssend", .round = round_blocking, .variant = MODE_SYNCHRONOUS},
    {.name = "Rsend", .round = round_blocking, .variant = MODE_READY, .most = 65536},
    {.name = "Bsend", .round = round_blocking, .variant = MODE_BUFFERED},
    {.name = "Isend", .round = round_nonblocking, .variant = MODE_STANDARD},
    {.name = "Issend", .round = round_nonblocking, .variant = MODE_SYNCHRONOUS},
    {.name = "Irsend", .round = round_nonblocking, .variant = MODE_READY, .most = 65536},
    {.name = "Ibsend", .round = round_nonblocking, .variant = MODE_BUFFERED, .most = 65536},
    {.name = "Send_init", .round = round_persistent, .variant = MODE_STANDARD, .rounds = 4},
    {.name = "Ssend_init",
     .round = round_persistent,
     .variant = MODE_SYNCHRONOUS,
     .rounds = 4,
     .most = 65536},
    {.name = "Rsend_init",
     .round = round_persistent,
     .variant = MODE_READY,
     .rounds = 4,
     .most = 65536},
    {.name = "Bsend_init",
     .round = round_persistent,
     .variant = MODE_BUFFERED,
     .rounds = 4,
     .most = BSEND_INIT_MOST},
    {.name = "Bsend_init ahead",
     .round = round_persistent,
     .variant = MODE_AHEAD,
     .rounds = 4,
     .most = BSEND_INIT_MOST},
    {.name = "Startall", .round = round_startall, .slots = 2, .rounds = 4, .most = 65536},
    {.name = "any source", .round = round_wildcard, .variant = ANY_SOURCE, .most = 65536},
    {.name = "any tag", .round = round_wildcard, .variant = ANY_TAG, .most = 65536},
    {.name = "anything", .round = round_wildcard, .variant = ANY_SOURCE | ANY_TAG},
    {.name = "short", .round = round_short, .room = 1100},
    {.name = "self", .round = round_self, .both_ways = true},
    {.name = "nobody", .round = round_nobody, .both_ways = true, .most = 65536},
};

struct corners corners_modes(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
