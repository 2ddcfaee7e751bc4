// SPDX-License-Identifier: BSD-3-Clause
// Looking at messages before they are received: a probe must show the size that the program sent,
// whatever else is on its way with the same tag, also beside messages of just the size that a
// library's own may have.
#include "corners.h"

enum look { LOOK_PROBE, LOOK_IPROBE, LOOK_MPROBE, LOOK_IMPROBE, LOOKS };

// A message that was seen.
struct sight {
    MPI_Status status;
    MPI_Message message; // null unless it was matched, too
};

static struct sight look_at(MPI_Comm comm, enum look look, int source, int tag)
{
    struct sight sight = {LANE_NO_STATUS, MPI_MESSAGE_NULL};
    int flag = 0;
    if (look == LOOK_PROBE)
        MPI_Probe(source, tag, comm, &sight.status);
    else if (look == LOOK_MPROBE)
        MPI_Mprobe(source, tag, comm, &sight.message, &sight.status);
    while (!flag && look == LOOK_IPROBE)
        MPI_Iprobe(source, tag, comm, &flag, &sight.status);
    while (!flag && look == LOOK_IMPROBE)
        MPI_Improbe(source, tag, comm, &flag, &sight.message, &sight.status);
    return sight;
}

// As programs do: with the count that the probe said, as far as there is room for it.
static void receive_sight(struct lane *lane, MPI_Comm comm, struct sight *sight, void *data,
                          MPI_Status *status)
{
    int count = 0, room = (int)lane->slot_bytes, source = sight->status.MPI_SOURCE;
    int tag = sight->status.MPI_TAG;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Get_count(&sight->status, MPI_BYTE, &count);
    count = count >= 0 && count < room ? count : room;
    bool now = lane->round / 4 % 2 == 0;
    if (sight->message != MPI_MESSAGE_NULL && now)
        MPI_Mrecv(data, count, MPI_BYTE, &sight->message, status);
    else if (sight->message != MPI_MESSAGE_NULL)
        MPI_Imrecv(data, count, MPI_BYTE, &sight->message, &request);
    else if (now)
        MPI_Recv(data, count, MPI_BYTE, source, tag, comm, status);
    else
        MPI_Irecv(data, count, MPI_BYTE, source, tag, comm, &request);
    if (!now)
        MPI_Wait(&request, status);
    run_check(lane->run, sight->message == MPI_MESSAGE_NULL,
              "receiving left the message handle behind");
}

// Receives what was seen, which is the message of a slot.
static void receive_slot(struct lane *lane, MPI_Comm comm, struct sight *sight, int tag, int slot,
                         size_t bytes)
{
    MPI_Status status;
    lane_status(lane, &sight->status, tag, bytes);
    receive_sight(lane, comm, sight, lane_take(lane, slot), &status);
    lane_status(lane, &status, tag, bytes);
    lane_got(lane, slot, bytes);
}

static void start_in(struct lane *lane, enum place place, int slot, size_t bytes,
                     MPI_Request *request)
{
    MPI_Isend(lane_give_in(lane, place, slot, bytes), (int)bytes, MPI_BYTE, lane->partner,
              lane->tag, lane->comm, request);
}

static void start(struct lane *lane, MPI_Comm comm, int tag, int slot, size_t bytes,
                  MPI_Request *request)
{
    MPI_Isend(lane_give(lane, slot, bytes), (int)bytes, MPI_BYTE, lane->partner, tag, comm,
              request);
}

static void round_one(struct lane *lane)
{
    enum look look = (enum look)lane->variant;
    bool any = lane->round % 8 > 4;
    if (lane->sends) {
        MPI_Send(lane_give(lane, 0, lane->bytes), (int)lane->bytes, MPI_BYTE, lane->partner,
                 lane->tag, lane->comm);
        return;
    }
    struct sight sight = look_at(lane->comm, look, any ? MPI_ANY_SOURCE : lane->partner,
                                 any ? MPI_ANY_TAG : lane->tag);
    if (sight.message == MPI_MESSAGE_NULL) { // looking again must show the same
        lane_status(lane, &sight.status, lane->tag, lane->bytes);
        sight = look_at(lane->comm, look, lane->partner, lane->tag);
    }
    receive_slot(lane, lane->comm, &sight, lane->tag, 0, lane->bytes);
}

// Before anything was sent there is nothing to see.
static void round_nothing(struct lane *lane)
{
    MPI_Request request;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int flags[2] = {0, 0};
    if (lane->sends) {
        lane_sync(lane);
        start(lane, lane->comm, lane->tag, 0, lane->bytes, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Iprobe(lane->partner, lane->tag, lane->comm, &flags[0], &status);
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, lane->comm, &flags[1], &message, MPI_STATUS_IGNORE);
    run_check(lane->run, !flags[0] && !flags[1], "a probe sees a message that was never sent");
    lane_sync(lane);
    struct sight sight = look_at(lane->comm, LOOK_IPROBE, lane->partner, lane->tag);
    receive_slot(lane, lane->comm, &sight, lane->tag, 0, lane->bytes);
}

// Sizes of messages that are pending at once with one tag.
enum { PENDING = 6, PENDING_ROOM = 1000 };
enum { WAITED = 1, WITH_PLAIN = 2 };
static size_t pending_bytes(const struct lane *lane, int slot)
{
    size_t second = lane->variant & WITH_PLAIN ? ANNOUNCEMENT_BYTES : 200;
    const size_t bytes[PENDING] = {lane->bytes, second, lane->bytes + 1, PENDING_ROOM, 42, 0};
    return bytes[slot];
}

// Places alternate from slot to slot and from round to round. The variant says whether the receiver
// looks while the sender is still sending, and whether there is one of an announcement's size.
static void round_pending(struct lane *lane)
{
    MPI_Request requests[PENDING];
    for (int i = 0; i < PENDING && lane->sends; i++)
        start(lane, lane->comm, lane->tag, i, pending_bytes(lane, i), &requests[i]);
    if (lane->variant & WAITED)
        lane_sync(lane);
    for (int i = 0; i < PENDING && !lane->sends; i++) {
        struct sight sight =
            look_at(lane->comm, (enum look)((lane->round + i) % LOOKS), lane->partner, lane->tag);
        receive_slot(lane, lane->comm, &sight, lane->tag, i, pending_bytes(lane, i));
    }
    if (lane->sends)
        MPI_Waitall(PENDING, requests, MPI_STATUSES_IGNORE);
}

// A message of an announcement's size from host memory just before or after one of the run's kind,
// or from the run's kind itself. In the last variant it comes late, when the tag is well known.
static void round_plain(struct lane *lane)
{
    enum { MESSAGES = 3 };
    static const struct {
        bool is_plain;
        enum place place;
    } orders[][MESSAGES] = {
        {{true, PLACE_HOST}, {false, PLACE_KIND}, {true, PLACE_HOST}},
        {{false, PLACE_KIND}, {true, PLACE_HOST}, {false, PLACE_KIND}},
        {{true, PLACE_KIND}, {false, PLACE_HOST}, {true, PLACE_HOST}},
        {{true, PLACE_HOST}, {true, PLACE_KIND}, {false, PLACE_KIND}},
        {{false, PLACE_KIND}, {true, PLACE_HOST}, {false, PLACE_KIND}},
    };
    const bool late = lane->variant == COUNT_OF(orders) - 1 && lane->round < 12;
    MPI_Request requests[MESSAGES];
    MPI_Status status;
    for (int i = 0; i < MESSAGES; i++) {
        bool plain = orders[lane->variant][i].is_plain && !late;
        size_t bytes = plain ? ANNOUNCEMENT_BYTES : lane->bytes;
        if (lane->sends) {
            start_in(lane, orders[lane->variant][i].place, i, bytes, &requests[i]);
            continue;
        }
        if (i == 0 && lane->round % 2 == 0)
            lane_sync(lane);
        if (lane->round % 3 == 0) { // not looked at
            MPI_Recv(lane_take(lane, i), (int)lane->slot_bytes, MPI_BYTE, lane->partner, lane->tag,
                     lane->comm, &status);
            lane_status(lane, &status, lane->tag, bytes);
            lane_got(lane, i, bytes);
            continue;
        }
        struct sight sight =
            look_at(lane->comm, (enum look)((lane->round + i) % LOOKS), lane->partner, lane->tag);
        receive_slot(lane, lane->comm, &sight, lane->tag, i, bytes);
    }
    if (lane->sends && lane->round % 2 == 0)
        lane_sync(lane);
    if (lane->sends)
        MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
}

// A receive that was posted takes the first of two messages: a probe sees the second, whether or
// not the receive has been completed. The variant says whether it is posted after the messages
// came, and whether it is a persistent one.
enum { POSTED_LATE = 1, POSTED_PERSISTENT = 2 };
static void post_first(struct lane *lane, MPI_Request *request)
{
    int room = (int)lane->slot_bytes;
    if (lane->variant & POSTED_PERSISTENT) {
        MPI_Recv_init(lane_take(lane, 0), room, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                      request);
        MPI_Start(request);
    } else {
        MPI_Irecv(lane_take(lane, 0), room, MPI_BYTE, lane->partner, lane->tag, lane->comm,
                  request);
    }
}

static void round_posted(struct lane *lane)
{
    size_t second = lane->bytes / 2 + 100;
    MPI_Request requests[2];
    MPI_Status status;
    if (lane->sends) {
        if (!(lane->variant & POSTED_LATE))
            lane_sync(lane);
        for (int i = 0; i < 2; i++) { // from the same place, or from one each
            size_t bytes = i == 0 ? lane->bytes : second;
            if (lane->round % 3 == 0)
                start(lane, lane->comm, lane->tag, i, bytes, &requests[i]);
            else
                start_in(lane, PLACE_KIND, i, bytes, &requests[i]);
        }
        lane_sync(lane);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        return;
    }
    if (lane->variant & POSTED_LATE)
        lane_sync(lane);
    post_first(lane, &requests[0]);
    if (!(lane->variant & POSTED_LATE)) {
        lane_sync(lane);
        lane_sync(lane);
    }
    struct sight sight =
        look_at(lane->comm, (enum look)(lane->round % LOOKS), MPI_ANY_SOURCE, lane->tag);
    receive_slot(lane, lane->comm, &sight, lane->tag, 1, second);
    MPI_Wait(&requests[0], &status);
    if (lane->variant & POSTED_PERSISTENT)
        MPI_Request_free(&requests[0]);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// Uses one tag on two communicators at once; the first one's message is received first or last.
static void round_two_comms(struct lane *lane)
{
    size_t second = lane->bytes / 2 + 100;
    bool swapped = lane->round % 8 >= 4;
    MPI_Comm comms[2] = {lane->comm, lane->other};
    size_t bytes[2] = {lane->bytes, second};
    MPI_Request requests[2];
    for (int i = 0; i < 2 && lane->sends; i++)
        start(lane, comms[i], lane->tag, i, bytes[i], &requests[i]);
    if (lane->variant != 0)
        lane_sync(lane);
    if (lane->sends) {
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        return;
    }
    struct sight sights[2];
    for (int i = 0; i < 2; i++) {
        int which = swapped ? 1 - i : i;
        sights[which] =
            look_at(comms[which], (enum look)((lane->round + i) % LOOKS), lane->partner, lane->tag);
    }
    for (int i = 0; i < 2; i++)
        receive_slot(lane, comms[i], &sights[i], lane->tag, i, bytes[i]);
}

// Receives without a probe on both communicators, posted in the order that the variant says.
static void round_two_comms_posted(struct lane *lane)
{
    MPI_Comm comms[2] = {lane->comm, lane->other};
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int count = (int)lane->bytes;
    for (int k = 0; k < 2; k++) {
        int i = lane->sends || lane->variant == 0 ? k : 1 - k;
        if (lane->sends)
            MPI_Isend(lane_give(lane, i, lane->bytes), count, MPI_BYTE, lane->partner, lane->tag,
                      comms[i], &requests[i]);
        else
            MPI_Irecv(lane_take(lane, i), count, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i],
                      &requests[i]);
    }
    MPI_Waitall(2, requests, statuses);
    for (int i = 0; i < 2 && !lane->sends; i++) {
        lane_status(lane, &statuses[i], lane->tag, lane->bytes);
        lane_got(lane, i, lane->bytes);
    }
}

// Several tags are pending, and are looked at and received from the last to the first.
static void round_tags(struct lane *lane)
{
    enum { TAGS = 4 };
    const size_t bytes[TAGS] = {lane->bytes, ANNOUNCEMENT_BYTES, 1000, lane->bytes / 2 + 100};
    MPI_Request requests[TAGS];
    for (int i = 0; i < TAGS && lane->sends; i++)
        start(lane, lane->comm, lane->tag + i, i, bytes[i], &requests[i]);
    lane_sync(lane);
    if (lane->sends) {
        MPI_Waitall(TAGS, requests, MPI_STATUSES_IGNORE);
        return;
    }
    struct sight first = look_at(lane->comm, LOOK_PROBE, MPI_ANY_SOURCE, MPI_ANY_TAG);
    lane_status(lane, &first.status, lane->tag, bytes[0]);
    for (int i = TAGS - 1; i >= 0; i--) {
        struct sight sight = look_at(lane->comm, (enum look)((lane->round + i) % LOOKS),
                                     MPI_ANY_SOURCE, lane->tag + i);
        receive_slot(lane, lane->comm, &sight, lane->tag + i, i, bytes[i]);
    }
}

// A matched message is out of the way of later probes and receives, though its bytes come last.
static void round_matched(struct lane *lane)
{
    const size_t bytes[3] = {lane->bytes, lane->bytes / 2 + 100, 1000};
    MPI_Request requests[3];
    for (int i = 0; i < 3 && lane->sends; i++)
        start(lane, lane->comm, lane->tag, i, bytes[i], &requests[i]);
    if (lane->round % 2 == 0)
        lane_sync(lane);
    if (lane->sends) {
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        return;
    }
    struct sight sights[3] = {
        look_at(lane->comm, LOOK_MPROBE, lane->partner, lane->tag),
        look_at(lane->comm, LOOK_IMPROBE, MPI_ANY_SOURCE, MPI_ANY_TAG),
        look_at(lane->comm, LOOK_IPROBE, lane->partner, lane->tag),
    };
    static const int orders[][3] = {{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}};
    const int *order = orders[lane->variant];
    for (int i = 0; i < 3; i++)
        receive_slot(lane, lane->comm, &sights[order[i]], lane->tag, order[i], bytes[order[i]]);
}

static void with_other(struct lane *base, const struct corner *corner)
{
    MPI_Comm_dup(base->run->comm, &base->other);
    lanes_run(base, corner);
    MPI_Comm_free(&base->other);
}

static const struct corner list[] = {
    {.name = "Probe", .round = round_one, .variant = LOOK_PROBE},
    {.name = "Iprobe", .round = round_one, .variant = LOOK_IPROBE, .most = 65536},
    {.name = "Mprobe", .round = round_one, .variant = LOOK_MPROBE},
    {.name = "Improbe", .round = round_one, .variant = LOOK_IMPROBE, .most = 65536},
    {.name = "probe nothing", .round = round_nothing, .most = 1000},
    {.name = "pending",
     .round = round_pending,
     .variant = WAITED,
     .slots = PENDING,
     .most = 65536,
     .room = PENDING_ROOM},
    {.name = "coming",
     .round = round_pending,
     .slots = PENDING,
     .most = 65536,
     .room = PENDING_ROOM},
    {.name = "pending with plain",
     .round = round_pending,
     .variant = WAITED | WITH_PLAIN,
     .slots = PENDING,
     .most = 65536,
     .room = PENDING_ROOM,
     .rounds = 12},
    {.name = "coming with plain",
     .round = round_pending,
     .variant = WITH_PLAIN,
     .slots = PENDING,
     .most = 65536,
     .room = PENDING_ROOM,
     .rounds = 12},
    {.name = "plain first",
     .round = round_plain,
     .variant = 0,
     .slots = 3,
     .most = 65536,
     .room = 700},
    {.name = "plain between",
     .round = round_plain,
     .variant = 1,
     .slots = 3,
     .most = 65536,
     .room = 700},
    {.name = "plain of kind",
     .round = round_plain,
     .variant = 2,
     .slots = 3,
     .most = 65536,
     .room = 700},
    {.name = "plain twice",
     .round = round_plain,
     .variant = 3,
     .slots = 3,
     .most = 65536,
     .room = 700},
    {.name = "plain late",
     .round = round_plain,
     .variant = 4,
     .slots = 3,
     .most = 65536,
     .room = 700},
    {.name = "posted before", .round = round_posted, .slots = 2, .room = 700},
    {.name = "posted after",
     .round = round_posted,
     .variant = POSTED_LATE,
     .slots = 2,
     .most = 65536,
     .room = 700},
    {.name = "posted before, persistent",
     .round = round_posted,
     .variant = POSTED_PERSISTENT,
     .slots = 2,
     .most = 65536,
     .room = 700},
    {.name = "posted after, persistent",
     .round = round_posted,
     .variant = POSTED_LATE | POSTED_PERSISTENT,
     .slots = 2,
     .most = 65536,
     .room = 700},
    {.name = "two communicators",
     .round = round_two_comms,
     .around = with_other,
     .slots = 2,
     .most = 65536,
     .room = 700},
    {.name = "two communicators pending",
     .round = round_two_comms,
     .around = with_other,
     .variant = 1,
     .slots = 2,
     .most = 65536,
     .room = 700,
     .rounds = 12},
    {.name = "two communicators posted",
     .round = round_two_comms_posted,
     .around = with_other,
     .slots = 2,
     .most = 65536},
    {.name = "two communicators crossed",
     .round = round_two_comms_posted,
     .around = with_other,
     .variant = 1,
     .slots = 2,
     .most = 65536},
    {.name = "tags", .round = round_tags, .slots = 4, .most = 65536, .room = 1000, .rounds = 12},
    {.name = "matched last",
     .round = round_matched,
     .variant = 0,
     .slots = 3,
     .room = 1000,
     .most = 65536,
     .rounds = 12},
    {.name = "matched late",
     .round = round_matched,
     .variant = 1,
     .slots = 3,
     .room = 1000,
     .most = 65536,
     .rounds = 12},
    {.name = "matched between",
     .round = round_matched,
     .variant = 2,
     .slots = 3,
     .room = 1000,
     .most = 65536,
     .rounds = 12},
    {.name = "matched in order",
     .round = round_matched,
     .variant = 3,
     .slots = 3,
     .room = 1000,
     .most = 65536,
     .rounds = 12},
};

struct corners corners_probe(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
