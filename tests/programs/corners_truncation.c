// SPDX-License-Identifier: BSD-3-Clause
// Receives that are too short for their message, by each way to complete them, under
// MPI_ERRORS_RETURN: the error has its class, nothing is written where it must not be, and the
// messages after it arrive as if nothing had happened.
#include "corners.h"

#include <stdlib.h>

enum how {
    BY_RECV,
    BY_WAIT,
    BY_TEST,
    BY_WAITALL,
    BY_TESTALL,
    BY_WAITSOME,
    BY_SENDRECV,
    BY_MRECV,
    BY_EXCHANGE, // from here on something of the length asked for goes the other way
    BY_REPLACE
};

// Slots: one message that fits before the one that does not, and one after it.
enum { BEFORE, LONG, AFTER, SLOTS };

static int class_of(int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    return class;
}

// Errors of completing calls go, depending on the MPI, to the handler of the request's
// communicator, of MPI_COMM_SELF or of MPI_COMM_WORLD.
static void set_error_handlers(MPI_Comm comm, MPI_Errhandler handler)
{
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
}

static void demand(struct lane *lane, int code, const char *call)
{
    run_check(lane->run, code == MPI_SUCCESS, "%s gives error class %d", call, class_of(code));
}

// How many bytes the receive asks for: always less than the message has.
static size_t asked_bytes(const struct lane *lane)
{
    const size_t choices[] = {lane->bytes / 2, lane->bytes - 1, 10, 39, 40, 656, 0};
    size_t asked = choices[lane->round % COUNT_OF(choices)];
    return asked < lane->bytes ? asked : lane->bytes - 1;
}

// Open MPI's shared memory transport writes the whole message, where it can, even if that is more
// than was asked for. Memory that it cannot reach must not get those bytes.
static void accept_long(struct lane *lane, size_t asked)
{
    struct buffer *buffer = lane->in[lane_take_place(lane, LONG)];
    size_t bytes = memory_cpu_reaches(&buffer->memory) ? lane->bytes : asked;
    if (bytes > 0)
        buffer_accept(buffer, LONG * lane->slot_bytes, bytes);
}

// Waits for the long message and the one before it in one call. Returns the error class of the long
// one, which only its status has.
static int finish_both(struct lane *lane, enum how how, MPI_Request *requests)
{
    MPI_Status statuses[2];
    int code = MPI_SUCCESS, flag = 0;
    if (how == BY_WAITALL)
        code = MPI_Waitall(2, requests, statuses);
    while (!flag && how == BY_TESTALL && code == MPI_SUCCESS)
        code = MPI_Testall(2, requests, &flag, statuses);
    run_check(lane->run, class_of(code) == MPI_ERR_IN_STATUS,
              "a truncated receive in a list gives error class %d, expected MPI_ERR_IN_STATUS (%d)",
              class_of(code), MPI_ERR_IN_STATUS);
    if (class_of(code) != MPI_ERR_IN_STATUS)
        return class_of(code);
    run_check(lane->run,
              statuses[0].MPI_ERROR == MPI_SUCCESS || statuses[0].MPI_ERROR == MPI_ERR_PENDING,
              "the message that fits has error class %d", class_of(statuses[0].MPI_ERROR));
    // One that was still pending is completed now, on its own.
    if (requests[0] != MPI_REQUEST_NULL)
        demand(lane, MPI_Wait(&requests[0], &statuses[0]), "Wait");
    lane_status(lane, &statuses[0], lane->tag, lane->bytes);
    return class_of(statuses[1].MPI_ERROR);
}

// Completes the two by Waitsome, which may tell of them at once or of one after the other.
static int finish_some(struct lane *lane, MPI_Request *requests)
{
    MPI_Status statuses[2];
    int indices[2], class = MPI_SUCCESS;
    for (int done = 0;;) {
        int code = MPI_Waitsome(2, requests, &done, indices, statuses);
        if (done == MPI_UNDEFINED)
            return class;
        for (int i = 0; i < done; i++) {
            bool is_long = indices[i] != 0;
            if (code == MPI_SUCCESS || !is_long)
                lane_status(lane, &statuses[i], lane->tag, lane->bytes);
            else
                class = class_of(statuses[i].MPI_ERROR);
        }
        if (code != MPI_SUCCESS)
            run_check(lane->run, class_of(code) == MPI_ERR_IN_STATUS,
                      "Waitsome gives error class %d", class_of(code));
    }
}

// Receives the long message alone. Returns its error class.
static int receive_alone(struct lane *lane, void *data, int count)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Status status = LANE_NO_STATUS;
    int code = MPI_SUCCESS, flag = 0;
    switch (lane->variant) {
    case BY_RECV:
        return class_of(
            MPI_Recv(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &status));
    case BY_SENDRECV:
        return class_of(MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, lane->tag, data, count,
                                     MPI_BYTE, lane->partner, lane->tag, lane->comm, &status));
    case BY_EXCHANGE:
        return class_of(MPI_Sendrecv(lane_take(lane, BEFORE), count, MPI_BYTE, lane->partner,
                                     lane->tag + 1, data, count, MPI_BYTE, lane->partner, lane->tag,
                                     lane->comm, &status));
    case BY_REPLACE:
        return class_of(MPI_Sendrecv_replace(data, count, MPI_BYTE, lane->partner, lane->tag + 1,
                                             lane->partner, lane->tag, lane->comm, &status));
    case BY_MRECV:
        demand(lane, MPI_Mprobe(lane->partner, lane->tag, lane->comm, &message, &status), "Mprobe");
        lane_status(lane, &status, lane->tag, lane->bytes);
        return class_of(MPI_Mrecv(data, count, MPI_BYTE, &message, &status));
    default:
        MPI_Irecv(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &request);
    }
    while (!flag && lane->variant == BY_TEST && code == MPI_SUCCESS)
        code = MPI_Test(&request, &flag, &status);
    if (lane->variant == BY_WAIT)
        code = MPI_Wait(&request, &status);
    run_check(lane->run, request == MPI_REQUEST_NULL, "the truncated request was left behind");
    return class_of(code);
}

static void receive_fitting(struct lane *lane, int slot)
{
    MPI_Status status;
    demand(lane,
           MPI_Recv(lane_take(lane, slot), (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag,
                    lane->comm, &status),
           "Recv");
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, slot, lane->bytes);
}

static bool in_list(const struct lane *lane)
{
    return lane->variant == BY_WAITALL || lane->variant == BY_TESTALL ||
           lane->variant == BY_WAITSOME;
}

static int receive_listed(struct lane *lane, int count)
{
    MPI_Request requests[2];
    MPI_Irecv(lane_take(lane, BEFORE), (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag,
              lane->comm, &requests[0]);
    MPI_Irecv(lane_take(lane, LONG), count, MPI_BYTE, lane->partner, lane->tag, lane->comm,
              &requests[1]);
    int class = lane->variant == BY_WAITSOME ? finish_some(lane, requests)
                                             : finish_both(lane, (enum how)lane->variant, requests);
    lane_got(lane, BEFORE, lane->bytes);
    return class;
}

static void send_all(struct lane *lane)
{
    MPI_Request requests[SLOTS], answer;
    MPI_Status status;
    void *answered = table_new(lane->bytes, 1);
    int count = -1;
    if (lane->variant >= BY_EXCHANGE)
        MPI_Irecv(answered, (int)lane->bytes, MPI_BYTE, lane->partner, lane->tag + 1, lane->comm,
                  &answer);
    for (int i = 0; i < SLOTS; i++)
        MPI_Isend(lane_give(lane, i, lane->bytes), (int)lane->bytes, MPI_BYTE, lane->partner,
                  lane->tag, lane->comm, &requests[i]);
    demand(lane, MPI_Waitall(SLOTS, requests, MPI_STATUSES_IGNORE), "Waitall of sends");
    if (lane->variant >= BY_EXCHANGE) {
        demand(lane, MPI_Wait(&answer, &status), "Wait for the other direction");
        MPI_Get_count(&status, MPI_BYTE, &count);
        run_check(lane->run, count == (int)asked_bytes(lane), "%d bytes have come back", count);
    }
    free(answered);
}

static void round_truncated(struct lane *lane)
{
    size_t asked = asked_bytes(lane);
    int class = MPI_SUCCESS;
    if (lane->sends) {
        send_all(lane);
        return;
    }
    if (in_list(lane)) {
        class = receive_listed(lane, (int)asked);
    } else {
        receive_fitting(lane, BEFORE);
        class = receive_alone(lane, lane_take(lane, LONG), (int)asked);
    }
    run_check(lane->run, class == MPI_ERR_TRUNCATE,
              "%zu of %zu bytes give error class %d, expected MPI_ERR_TRUNCATE (%d)", asked,
              lane->bytes, class, MPI_ERR_TRUNCATE);
    accept_long(lane, asked);
    receive_fitting(lane, AFTER);
}

// Open MPI 4 waits for ever in Waitall when a request of the list has failed by then and several
// threads may call it.
static bool waits_for_ever(const struct corner *corner)
{
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION < 5
    return level == MPI_THREAD_MULTIPLE && corner->variant == BY_WAITALL;
#else
    (void)corner;
    return false;
#endif
}

static void returning(struct lane *base, const struct corner *corner)
{
    if (waits_for_ever(corner))
        return;
    MPI_Comm_dup(base->run->comm, &base->comm);
    set_error_handlers(base->comm, MPI_ERRORS_RETURN);
    lanes_run(base, corner);
    set_error_handlers(base->comm, MPI_ERRORS_ARE_FATAL);
    MPI_Barrier(base->run->comm);
    MPI_Comm_free(&base->comm);
}

#define TRUNCATED(title, way)                                                                      \
    {                                                                                              \
        .name = title, .round = round_truncated, .around = returning, .variant = way, .least = 42, \
        .most = 65536, .slots = SLOTS, .rounds = 14                                                \
    }

static const struct corner list[] = {
    TRUNCATED("truncated Recv", BY_RECV),
    TRUNCATED("truncated Wait", BY_WAIT),
    TRUNCATED("truncated Test", BY_TEST),
    TRUNCATED("truncated Waitall", BY_WAITALL),
    TRUNCATED("truncated Testall", BY_TESTALL),
    TRUNCATED("truncated Waitsome", BY_WAITSOME),
    TRUNCATED("truncated Sendrecv", BY_SENDRECV),
    TRUNCATED("truncated Mrecv", BY_MRECV),
    TRUNCATED("truncated exchange", BY_EXCHANGE),
    TRUNCATED("truncated Sendrecv_replace", BY_REPLACE),
};

struct corners corners_truncation(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
