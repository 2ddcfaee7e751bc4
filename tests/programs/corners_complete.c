// SPDX-License-Identifier: BSD-3-Clause
// Every way to learn that a request is complete, with its status and without, and requests that are
// given up: freed or cancelled.
#include "completion.h"
#include "corners.h"

// Requests of one list; the one in the middle is null.
enum { REQUESTS = 5, NULL_REQUEST = 2 };

struct listing {
    struct lane *lane;
    int done;
};

// Later messages of the list are shorter.
static size_t listed_bytes(const struct lane *lane, int i)
{
    return i % 2 == 0 ? lane->bytes : lane->bytes / 2;
}

static void listed_done(void *context, int i, const MPI_Status *status)
{
    struct listing *listing = context;
    struct lane *lane = listing->lane;
    if (i == NULL_REQUEST)
        return;
    listing->done++;
    if (lane->sends) {
        int cancelled = 1;
        MPI_Test_cancelled(status, &cancelled);
        run_check(lane->run, !cancelled, "the status of a send says that it was cancelled");
        return;
    }
    lane_status(lane, status, lane->tag + i, listed_bytes(lane, i));
    lane_got_now(lane, i, listed_bytes(lane, i));
}

static void start_list(struct lane *lane, MPI_Request *requests)
{
    for (int i = 0; i < REQUESTS; i++) {
        int tag = lane->tag + i;
        if (i == NULL_REQUEST)
            requests[i] = MPI_REQUEST_NULL;
        else if (lane->sends)
            MPI_Isend(lane_give(lane, i, listed_bytes(lane, i)), (int)listed_bytes(lane, i),
                      MPI_BYTE, lane->partner, tag, lane->comm, &requests[i]);
        else
            MPI_Irecv(lane_take(lane, i), (int)lane->bytes, MPI_BYTE, lane->partner, tag,
                      lane->comm, &requests[i]);
    }
}

static void round_listed(struct lane *lane)
{
    MPI_Request requests[REQUESTS];
    struct listing listing = {.lane = lane};
    start_list(lane, requests);
    complete((enum completion)lane->variant, REQUESTS, requests, listed_done, &listing);
    run_check(lane->run, listing.done == REQUESTS - 1, "%d requests are complete, expected %d",
              listing.done, REQUESTS - 1);
    for (int i = 0; i < REQUESTS; i++)
        run_check(lane->run, requests[i] == MPI_REQUEST_NULL, "request %d was left behind", i);
}

// So many long messages that the first ones come while the last requests are made. Half of them
// lie in host memory.
enum { MANY = 20 };

static void many_done(void *context, int i, const MPI_Status *status)
{
    struct lane *lane = context;
    if (lane->sends)
        return;
    lane_status(lane, status, lane->tag, lane->bytes);
    lane_got(lane, i, lane->bytes);
}

static void round_many(struct lane *lane)
{
    MPI_Request requests[MANY];
    lane_sync(lane);
    for (int i = 0; i < MANY; i++) {
        if (lane->sends)
            MPI_Isend(lane_give(lane, i, lane->bytes), (int)lane->bytes, MPI_BYTE, lane->partner,
                      lane->tag, lane->comm, &requests[i]);
        else
            MPI_Irecv(lane_take(lane, i), (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag,
                      lane->comm, &requests[i]);
    }
    complete((enum completion)(lane->round % COMPLETIONS), MANY, requests, many_done, lane);
}

static void ignore_single(MPI_Request *request, bool test)
{
    int flag = 0;
    while (test && !flag)
        MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    if (!test)
        MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void ignore_any(MPI_Request *requests, bool test)
{
    for (int index = 0, flag = 1; index != MPI_UNDEFINED || !flag;) {
        if (test)
            MPI_Testany(REQUESTS, requests, &index, &flag, MPI_STATUS_IGNORE);
        else
            MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
    }
}

static void ignore_some(MPI_Request *requests, bool test)
{
    int indices[REQUESTS];
    for (int done = 0; done != MPI_UNDEFINED;) {
        if (test)
            MPI_Testsome(REQUESTS, requests, &done, indices, MPI_STATUSES_IGNORE);
        else
            MPI_Waitsome(REQUESTS, requests, &done, indices, MPI_STATUSES_IGNORE);
    }
}

static void complete_ignoring(enum completion how, MPI_Request *requests)
{
    int flag = 0;
    bool test = how % 2 != 0;
    if (how <= COMPLETE_TEST) {
        for (int i = 0; i < REQUESTS; i++)
            ignore_single(&requests[i], test);
    } else if (how == COMPLETE_WAITALL) {
        MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
    } else if (how == COMPLETE_TESTALL) {
        while (!flag)
            MPI_Testall(REQUESTS, requests, &flag, MPI_STATUSES_IGNORE);
    } else if (how <= COMPLETE_TESTANY) {
        ignore_any(requests, test);
    } else {
        ignore_some(requests, test);
    }
}

static void round_ignoring(struct lane *lane)
{
    MPI_Request requests[REQUESTS];
    start_list(lane, requests);
    complete_ignoring((enum completion)lane->variant, requests);
    for (int i = 0; i < REQUESTS && !lane->sends; i++)
        if (i != NULL_REQUEST)
            lane_got(lane, i, listed_bytes(lane, i));
}

// Completes one request in a way that goes with the round.
static void finish_one(struct lane *lane, MPI_Request *request, MPI_Status *status)
{
    int flag = 0, index = 0;
    switch (lane->round / 4 % 4) {
    case 0:
        MPI_Wait(request, status);
        break;
    case 1:
        MPI_Test(request, &flag, status);
        run_check(lane->run, flag != 0, "Test says no after Request_get_status said yes");
        break;
    case 2:
        MPI_Waitall(1, request, status);
        break;
    default:
        MPI_Waitany(1, request, &index, status);
    }
    run_check(lane->run, *request == MPI_REQUEST_NULL, "the request was left behind");
}

// Asks again and again; a yes stays a yes, with the same status, and the data are there from then
// on, before the request is completed.
static void round_get_status(struct lane *lane)
{
    int count = (int)lane->bytes, flag = 0, again = 0;
    MPI_Request request;
    MPI_Status status;
    if (lane->sends)
        MPI_Isend(lane_give(lane, 0, lane->bytes), count, MPI_BYTE, lane->partner, lane->tag,
                  lane->comm, &request);
    else
        MPI_Irecv(lane_take(lane, 0), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                  &request);
    while (!flag)
        MPI_Request_get_status(request, &flag, lane->round % 3 == 0 ? MPI_STATUS_IGNORE : &status);
    if (lane->sends) {
        finish_one(lane, &request, &status);
        return;
    }
    if (lane->round % 3 != 0)
        lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got_now(lane, 0, lane->bytes);
    for (int i = 0; i < 2; i++) {
        MPI_Request_get_status(request, &again, &status);
        run_check(lane->run, again != 0, "a complete request became incomplete");
        lane_status(lane, &status, lane->tag, lane->bytes);
    }
    finish_one(lane, &request, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
}

// A send whose request is given up at once still arrives; the receiver says when.
static void round_free(struct lane *lane)
{
    MPI_Request request;
    MPI_Status status;
    if (lane->sends) {
        MPI_Isend(lane_give(lane, 0, lane->bytes), (int)lane->bytes, MPI_BYTE, lane->partner,
                  lane->tag, lane->comm, &request);
        MPI_Request_free(&request);
        run_check(lane->run, request == MPI_REQUEST_NULL, "Request_free left the request behind");
        lane_sync(lane);
        return;
    }
    MPI_Recv(lane_take(lane, 0), (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag, lane->comm,
             &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
    lane_sync(lane);
}

static bool was_cancelled(const MPI_Status *status)
{
    int cancelled = 0;
    MPI_Test_cancelled(status, &cancelled);
    return cancelled != 0;
}

// A receive that nothing matches is cancelled; the next one gets the message.
static void round_cancel_receive(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request request;
    MPI_Status status;
    if (lane->sends) {
        lane_sync(lane);
        MPI_Send(lane_give(lane, 0, lane->bytes), count, MPI_BYTE, lane->partner, lane->tag,
                 lane->comm);
        return;
    }
    void *data = lane_take(lane, 0);
    MPI_Irecv(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    run_check(lane->run, was_cancelled(&status),
              "a receive that nothing matched was not cancelled");
    run_check(lane->run, request == MPI_REQUEST_NULL, "Wait left the cancelled request behind");
    lane_check(lane);
    lane_sync(lane);
    MPI_Recv(lane_take(lane, 0), count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// Cancels a send that no receive was posted for. MPI may do it or not, but must say which.
static void round_cancel_send(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request request;
    MPI_Status status;
    if (lane->sends) {
        MPI_Isend(lane_give(lane, 0, lane->bytes), count, MPI_BYTE, lane->partner, lane->tag,
                  lane->comm, &request);
        MPI_Cancel(&request);
        lane_sync(lane);
        MPI_Wait(&request, &status);
        lane_swap(lane, was_cancelled(&status));
        return;
    }
    lane_sync(lane);
    MPI_Irecv(lane_take(lane, 0), count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &request);
    bool cancelled = lane_swap(lane, 0) != 0;
    if (cancelled)
        MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    run_check(lane->run, was_cancelled(&status) == cancelled,
              "a message that was cancelled has come, or one that was not has not");
    if (cancelled)
        return;
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

static const struct corner list[] = {
    {.name = "Wait",
     .round = round_listed,
     .variant = COMPLETE_WAIT,
     .slots = REQUESTS,
     .most = 65536},
    {.name = "Test",
     .round = round_listed,
     .variant = COMPLETE_TEST,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Waitall",
     .round = round_listed,
     .variant = COMPLETE_WAITALL,
     .slots = REQUESTS,
     .most = 65536},
    {.name = "Testall",
     .round = round_listed,
     .variant = COMPLETE_TESTALL,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Waitany",
     .round = round_listed,
     .variant = COMPLETE_WAITANY,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Testany",
     .round = round_listed,
     .variant = COMPLETE_TESTANY,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Waitsome",
     .round = round_listed,
     .variant = COMPLETE_WAITSOME,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Testsome",
     .round = round_listed,
     .variant = COMPLETE_TESTSOME,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "many", .round = round_many, .slots = MANY, .least = 1 << 20, .rounds = 8},
    {.name = "Wait, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_WAIT,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Test, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_TEST,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Waitall, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_WAITALL,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Testall, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_TESTALL,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Waitany, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_WAITANY,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Testany, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_TESTANY,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Waitsome, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_WAITSOME,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Testsome, ignoring",
     .round = round_ignoring,
     .variant = COMPLETE_TESTSOME,
     .slots = REQUESTS,
     .most = 65536,
     .rounds = 12},
    {.name = "Request_get_status", .round = round_get_status},
    {.name = "Request_free", .round = round_free},
    {.name = "Cancel receive", .round = round_cancel_receive},
    {.name = "Cancel send", .round = round_cancel_send, .rounds = 12},
};

struct corners corners_complete(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
