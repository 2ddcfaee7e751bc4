// SPDX-License-Identifier: BSD-3-Clause
// Messages by all functions that send and receive, probe, complete and cancel: that fit, that are
// shorter and longer than what receives them, and that are none.
#include "with_without_preload.h"

enum send_way { SEND, ISEND, SSEND, ISSEND, BSEND, SEND_INIT, SEND_WAYS };
enum recv_way { RECV, IRECV, TEST, RECV_INIT, PROBE, IPROBE, MRECV, IMRECV, RECV_WAYS };

// A message as all ranks know it.
struct message {
    struct kind sends, takes;
    int send_count, take_count, from, to, tag;
    enum send_way send_way;
    enum recv_way recv_way;
    bool any_source, any_tag, ignores_status, is_truncated;
};

static int elements_of(int count, const struct kind *kind)
{
    return count * kind->elements;
}

// Returns whether a status counts elements after an error. MPICH's does not: its requests keep the
// count of earlier ones.
static bool counts_errors(void)
{
#ifdef MPICH_VERSION
    return false;
#else
    return true;
#endif
}

// A receive of no elements of a derived datatype that is too short ends MPICH by a division by
// zero.
static struct message draw_message(struct run *run)
{
    struct message message = {.from = (int)draw(run, RANKS), .to = (int)draw(run, RANKS)};
    MPI_Datatype basic = draw_basic(run);
    int most[] = {0, 1, 3, 12, 40};
    message.sends = draw_kind(run, basic);
    message.takes = draw_kind(run, basic);
    message.send_count = (int)draw(run, 1 + (unsigned)most[draw(run, 5)]);
    int sent = elements_of(message.send_count, &message.sends);
    int fits = (sent + message.takes.elements - 1) / message.takes.elements;
    unsigned fit = draw(run, 8);
    message.take_count = fit == 0 ? fits + 3 : fit == 1 && fits > 1 ? fits - 1 : fits;
    message.is_truncated = elements_of(message.take_count, &message.takes) < sent;
    message.send_way = (enum send_way)draw(run, SEND_WAYS);
    message.recv_way = (enum recv_way)draw(run, RECV_WAYS);
    message.any_source = draw(run, 4) == 0;
    message.any_tag = draw(run, 4) == 0;
    message.ignores_status = draw(run, 4) == 0;
    message.tag = run->tag;
    return message;
}

static void free_message(struct message *message)
{
    free_kind(&message->sends);
    free_kind(&message->takes);
}

static MPI_Request begin_send(struct run *run, const struct message *message)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const unsigned char *buffer = run->sent + ORIGIN;
    int count = message->send_count, to = message->to, tag = message->tag;
    MPI_Datatype type = message->sends.type;
    switch (message->send_way) {
    case ISSEND:
    case SSEND:
        MPI_Issend(buffer, count, type, to, tag, run->comm, &request);
        break;
    case BSEND:
        MPI_Ibsend(buffer, count, type, to, tag, run->comm, &request);
        break;
    case SEND_INIT:
        MPI_Send_init(buffer, count, type, to, tag, run->comm, &request);
        MPI_Start(&request);
        break;
    default:
        MPI_Isend(buffer, count, type, to, tag, run->comm, &request);
    }
    return request;
}

// Begun before the rank's own receive, if it has one, and ended after it.
static void end_send(struct run *run, MPI_Request *request)
{
    MPI_Status status;
    fill_status(&status);
    int code = MPI_Wait(request, &status);
    int cancelled = -7;
    MPI_Test_cancelled(&status, &cancelled);
    say_code(run, "send", code);
    say(run, "sent, cancelled %d, null %d", cancelled, *request == MPI_REQUEST_NULL);
    if (*request != MPI_REQUEST_NULL)
        MPI_Request_free(request);
}

static void block_in_send(struct run *run, const struct message *message)
{
    const unsigned char *buffer = run->sent + ORIGIN;
    int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm) =
        message->send_way == SEND    ? MPI_Send
        : message->send_way == SSEND ? MPI_Ssend
                                     : MPI_Bsend;
    say_code(run, "send",
             send(buffer, message->send_count, message->sends.type, message->to, message->tag,
                  run->comm));
}

static int complete(const struct message *message, MPI_Request *request, MPI_Status *status)
{
    int flag = 0, code = MPI_SUCCESS;
    if (message->recv_way != TEST)
        return MPI_Wait(request, status);
    while (!flag && code == MPI_SUCCESS)
        code = MPI_Test(request, &flag, status);
    return code;
}

static int receive(struct run *run, const struct message *message, MPI_Status *status)
{
    void *buffer = run->in + ORIGIN;
    int count = message->take_count, flag = 0;
    int from = message->any_source ? MPI_ANY_SOURCE : message->from;
    int tag = message->any_tag ? MPI_ANY_TAG : message->tag;
    MPI_Datatype type = message->takes.type;
    MPI_Status probed;
    MPI_Message matched;
    MPI_Request request;
    fill_status(&probed);
    switch (message->recv_way) {
    case IRECV:
    case TEST:
        MPI_Irecv(buffer, count, type, from, tag, run->comm, &request);
        return complete(message, &request, status);
    case RECV_INIT: {
        MPI_Recv_init(buffer, count, type, from, tag, run->comm, &request);
        MPI_Start(&request);
        int code = MPI_Wait(&request, status);
        MPI_Request_free(&request);
        return code;
    }
    case PROBE:
        say_code(run, "probe", MPI_Probe(from, tag, run->comm, &probed));
        break;
    case IPROBE:
        while (!flag)
            MPI_Iprobe(from, tag, run->comm, &flag, &probed);
        break;
    case MRECV:
    case IMRECV:
        say_code(run, "mprobe", MPI_Mprobe(from, tag, run->comm, &matched, &probed));
        say_status(run, &probed, type, true);
        if (message->recv_way == MRECV)
            return MPI_Mrecv(buffer, count, type, &matched, status);
        MPI_Imrecv(buffer, count, type, &matched, &request);
        return MPI_Wait(&request, status);
    default:
        return MPI_Recv(buffer, count, type, from, tag, run->comm, status);
    }
    say_status(run, &probed, type, true);
    return MPI_Recv(buffer, count, type, from, tag, run->comm, status);
}

// Open MPI may write more of a long message than was asked for, depending on when it came; UCX in
// MPICH may write nothing of it. So nothing is said of that.
static void take(struct run *run, const struct message *message)
{
    MPI_Status status;
    fill_status(&status);
    int code = receive(run, message, message->ignores_status ? MPI_STATUS_IGNORE : &status);
    say_code(run, "receive", code);
    if (!message->ignores_status)
        say_status(run, &status, message->takes.type, code == MPI_SUCCESS || counts_errors());
    if (!message->is_truncated)
        say_bytes(run, run->in);
}

enum { BUFFERED_BYTES = 1 << 18 };
static char buffered[BUFFERED_BYTES];

void run_message(struct run *run)
{
    struct message message = draw_message(run);
    MPI_Request request;
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Type_get_name(message.takes.basic, name, &length);
    say(run, "%d of %d %s to %d of %d, by %d and %d", message.send_count, message.sends.elements,
        name, message.take_count, message.takes.elements, message.send_way, message.recv_way);
    void *buffer;
    int bytes;
    MPI_Buffer_attach(buffered, BUFFERED_BYTES);
    bool blocks =
        message.from != message.to &&
        (message.send_way == SEND || message.send_way == SSEND || message.send_way == BSEND);
    if (run->rank == message.from && blocks)
        block_in_send(run, &message);
    else if (run->rank == message.from)
        request = begin_send(run, &message);
    if (run->rank == message.to)
        take(run, &message);
    if (run->rank == message.from && !blocks)
        end_send(run, &request);
    MPI_Buffer_detach(&buffer, &bytes);
    free_message(&message);
}

enum list_way { WAITALL, TESTALL, WAITANY, WAITSOME, LIST_WAYS };

static void finish_list(struct run *run, enum list_way way, bool ignores, int count,
                        MPI_Request *requests)
{
    MPI_Status statuses[8];
    int code = MPI_SUCCESS, flag = 0, index = 0, done = 0, indices[8];
    for (int i = 0; i < count; i++)
        fill_status(&statuses[i]);
    if (way == WAITALL)
        code = MPI_Waitall(count, requests, ignores ? MPI_STATUSES_IGNORE : statuses);
    while (way == TESTALL && !flag && code == MPI_SUCCESS)
        code = MPI_Testall(count, requests, &flag, ignores ? MPI_STATUSES_IGNORE : statuses);
    say_code(run, "list", code);
    for (int i = 0; way <= TESTALL && !ignores && i < count; i++)
        say_status(run, &statuses[i], MPI_INT, code == MPI_SUCCESS || counts_errors());
    // In an order that only time knows, of which nothing is said.
    while (way == WAITANY && index != MPI_UNDEFINED) {
        code = MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
        done += code != MPI_SUCCESS;
    }
    while (way == WAITSOME && done != MPI_UNDEFINED)
        code = MPI_Waitsome(count, requests, &done, indices, MPI_STATUSES_IGNORE);
    say(run, "way %d, done %d", way, done);
    for (int i = 0; i < count; i++)
        say(run, "request %d null %d", i, requests[i] == MPI_REQUEST_NULL);
}

// Several messages whose requests one call completes: of the last one the receive may be too short.
void run_list(struct run *run)
{
    enum { MOST = 4, INTS = 300 };
    int from = (int)draw(run, RANKS), to = (int)draw(run, RANKS), count = 1 + (int)draw(run, MOST);
    bool is_short = draw(run, 4) == 0, ignores = draw(run, 3) == 0;
    enum list_way way = (enum list_way)draw(run, is_short ? WAITANY : LIST_WAYS);
    int lengths[MOST];
    MPI_Request requests[MOST], sends[MOST];
    for (int i = 0; i < count; i++)
        lengths[i] = 1 + (int)draw(run, INTS);
    for (int i = 0; i < count && run->rank == from; i++)
        MPI_Isend(run->sent + ORIGIN, lengths[i], MPI_INT, to, run->tag + i, run->comm, &sends[i]);
    for (int i = 0; i < count && run->rank == to; i++)
        MPI_Irecv(run->in + ORIGIN + 4 * INTS * i, lengths[i] - (is_short && i == count - 1),
                  MPI_INT, from, run->tag + i, run->comm, &requests[i]);
    if (is_short) // what Open MPI 5 returns depends on what has come already
        MPI_Barrier(run->comm);
    if (run->rank == to) {
        finish_list(run, way, ignores, count, requests);
        // After an error of one, others may be pending.
        for (int i = 0; i < count; i++)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        if (!is_short)
            say_bytes(run, run->in);
    }
    if (run->rank == from)
        MPI_Waitall(count, sends, MPI_STATUSES_IGNORE);
}

void run_replace(struct run *run)
{
    struct kind kind = draw_kind(run, draw_basic(run)), other = draw_kind(run, kind.basic);
    int right = (run->rank + 1) % RANKS, left = (run->rank + RANKS - 1) % RANKS;
    int count = (int)draw(run, 30), code;
    bool replaces = draw(run, 2) != 0, ignores = draw(run, 3) == 0;
    MPI_Status status;
    fill_status(&status);
    if (replaces)
        code = MPI_Sendrecv_replace(run->in + ORIGIN, count, kind.type, right, run->tag, left,
                                    run->tag, run->comm, ignores ? MPI_STATUS_IGNORE : &status);
    else
        code = MPI_Sendrecv(run->sent + ORIGIN, count * other.elements, kind.type, right, run->tag,
                            run->in + ORIGIN, count * kind.elements, other.type, left, MPI_ANY_TAG,
                            run->comm, ignores ? MPI_STATUS_IGNORE : &status);
    say_code(run, replaces ? "replace" : "exchange", code);
    if (!ignores)
        say_status(run, &status, replaces ? kind.type : other.type, true);
    say_bytes(run, run->in);
    free_kind(&kind);
    free_kind(&other);
}

// A receive that nothing is sent to.
void run_cancel(struct run *run)
{
    struct kind kind = draw_kind(run, draw_basic(run));
    bool persistent = draw(run, 2) != 0;
    MPI_Request request;
    MPI_Status status;
    fill_status(&status);
    if (persistent) {
        MPI_Recv_init(run->in + ORIGIN, 20, kind.type, MPI_ANY_SOURCE, run->tag, run->comm,
                      &request);
        MPI_Start(&request);
    } else {
        MPI_Irecv(run->in + ORIGIN, 20, kind.type, 0, run->tag, run->comm, &request);
    }
    say_code(run, "cancel", MPI_Cancel(&request));
    say_code(run, "wait", MPI_Wait(&request, &status));
    int cancelled = -7;
    MPI_Test_cancelled(&status, &cancelled);
    say(run, "cancelled %d null %d", cancelled, request == MPI_REQUEST_NULL);
    if (persistent)
        MPI_Request_free(&request);
    say_bytes(run, run->in);
    free_kind(&kind);
}

// To nobody and from nobody.
void run_nobody(struct run *run)
{
    struct kind kind = draw_kind(run, draw_basic(run));
    MPI_Status status;
    MPI_Request requests[2];
    MPI_Message message;
    fill_status(&status);
    say_code(
        run, "receive",
        MPI_Recv(run->in + ORIGIN, 40, kind.type, MPI_PROC_NULL, run->tag, run->comm, &status));
    say_status(run, &status, kind.type, true);
    say_code(run, "ignored",
             MPI_Recv(NULL, 0, kind.type, MPI_PROC_NULL, run->tag, run->comm, MPI_STATUS_IGNORE));
    MPI_Irecv(run->in + ORIGIN, 40, kind.type, MPI_PROC_NULL, run->tag, run->comm, &requests[0]);
    MPI_Isend(run->sent, 40, kind.type, MPI_PROC_NULL, run->tag, run->comm, &requests[1]);
    fill_status(&status);
    say_code(run, "wait", MPI_Wait(&requests[0], &status));
    say_status(run, &status, kind.type, true);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    fill_status(&status);
    MPI_Mprobe(MPI_PROC_NULL, 3, run->comm, &message, &status);
    say(run, "no process %d", message == MPI_MESSAGE_NO_PROC);
    say_code(run, "matched", MPI_Mrecv(run->in + ORIGIN, 40, kind.type, &message, &status));
    say_status(run, &status, kind.type, true);
    say_bytes(run, run->in);
    free_kind(&kind);
}
