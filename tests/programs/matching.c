// SPDX-License-Identifier: BSD-3-Clause
// Questions of a program about messages and requests: wildcards, probes, cancelling, truncation,
// null processes and null requests, and point to point between two groups.
#include "completion.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = 11, ACK = 12, PATIENCE_S = 60, LIST = 4, LISTED = 20 };

static struct buffer *to_zero(struct run *run, size_t bytes)
{
    return buffer_filled(run, "send", bytes, run_seed(run, run->rank, 0));
}

// Rank 0 receives one message from each rank, itself included, in whatever order they come.
static void step_any(struct run *run, size_t bytes)
{
    struct buffer *send = to_zero(run, bytes);
    MPI_Request request;
    MPI_Isend(send->data, (int)bytes, MPI_BYTE, 0, TAG + run->rank, run->comm, &request);
    for (int i = 0; run->rank == 0 && i < run->size; i++) {
        struct buffer *recv = buffer_new(run, "recv", bytes);
        MPI_Status status;
        if (i % 2 == 0) {
            MPI_Recv(recv->data, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, run->comm,
                     &status);
        } else {
            MPI_Request any;
            MPI_Irecv(recv->data, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, run->comm,
                      &any);
            MPI_Wait(&any, &status);
        }
        status_check(run, &status, MPI_ANY_SOURCE, TAG + status.MPI_SOURCE, MPI_BYTE, (int)bytes);
        buffer_expect(recv, 0, bytes, run_seed(run, status.MPI_SOURCE, 0));
        buffer_finish(recv);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(run->comm);
    buffer_finish(send);
}

enum probe { PROBE, IPROBE, MPROBE, IMPROBE, PROBES };

// Looks at the next message from anybody and receives it into a buffer of just its size.
static void receive_probed(struct run *run, size_t bytes, enum probe probe)
{
    MPI_Status seen, status;
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0, count = -1;
    if (probe == PROBE)
        MPI_Probe(MPI_ANY_SOURCE, TAG, run->comm, &seen);
    else if (probe == MPROBE)
        MPI_Mprobe(MPI_ANY_SOURCE, TAG, run->comm, &message, &seen);
    while (!flag && probe == IPROBE)
        MPI_Iprobe(MPI_ANY_SOURCE, TAG, run->comm, &flag, &seen);
    while (!flag && probe == IMPROBE)
        MPI_Improbe(MPI_ANY_SOURCE, TAG, run->comm, &flag, &message, &seen);
    status_check(run, &seen, MPI_ANY_SOURCE, TAG, MPI_BYTE, (int)bytes);
    MPI_Get_elements(&seen, MPI_BYTE, &count);
    run_check(run, count == (int)bytes, "Get_elements says %d, expected %zu", count, bytes);
    struct buffer *recv = buffer_new(run, "recv", bytes);
    if (probe == MPROBE) {
        MPI_Mrecv(recv->data, (int)bytes, MPI_BYTE, &message, &status);
    } else if (probe == IMPROBE) {
        MPI_Request request;
        MPI_Imrecv(recv->data, (int)bytes, MPI_BYTE, &message, &request);
        MPI_Wait(&request, &status);
    } else {
        MPI_Recv(recv->data, (int)bytes, MPI_BYTE, seen.MPI_SOURCE, seen.MPI_TAG, run->comm,
                 &status);
    }
    run_check(run, message == MPI_MESSAGE_NULL, "receiving left the message handle behind");
    status_check(run, &status, seen.MPI_SOURCE, TAG, MPI_BYTE, (int)bytes);
    buffer_expect(recv, 0, bytes, run_seed(run, seen.MPI_SOURCE, 0));
    buffer_finish(recv);
}

static void step_probe(struct run *run, size_t bytes)
{
    static const char *const names[] = {"Probe", "Iprobe", "Mprobe", "Improbe"};
    for (int probe = PROBE; probe < PROBES; probe++) {
        run->step = names[probe];
        struct buffer *send = to_zero(run, bytes);
        MPI_Request request;
        MPI_Isend(send->data, (int)bytes, MPI_BYTE, 0, TAG, run->comm, &request);
        for (int i = 0; run->rank == 0 && i < run->size; i++)
            receive_probed(run, bytes, (enum probe)probe);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(run->comm);
        buffer_finish(send);
    }
}

static void check_no_process(struct run *run, const MPI_Status *status)
{
    status_check(run, status, MPI_PROC_NULL, MPI_ANY_TAG, MPI_BYTE, 0);
    run_check(run, status->MPI_TAG == MPI_ANY_TAG, "a status of no process has tag %d",
              status->MPI_TAG);
}

static void step_no_process(struct run *run, size_t bytes)
{
    struct buffer *recv = buffer_new(run, "recv", bytes);
    MPI_Status status, statuses[2];
    MPI_Request requests[2];
    MPI_Message message;
    int count = (int)bytes;
    MPI_Send(recv->data, count, MPI_BYTE, MPI_PROC_NULL, TAG, run->comm);
    MPI_Recv(recv->data, count, MPI_BYTE, MPI_PROC_NULL, TAG, run->comm, &status);
    check_no_process(run, &status);
    MPI_Sendrecv_replace(recv->data, count, MPI_BYTE, MPI_PROC_NULL, TAG, MPI_PROC_NULL, TAG,
                         run->comm, &status);
    check_no_process(run, &status);
    MPI_Irecv(recv->data, count, MPI_BYTE, MPI_PROC_NULL, TAG, run->comm, &requests[0]);
    MPI_Isend(recv->data, count, MPI_BYTE, MPI_PROC_NULL, TAG, run->comm, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    check_no_process(run, &statuses[0]);
    MPI_Probe(MPI_PROC_NULL, TAG, run->comm, &status);
    check_no_process(run, &status);
    MPI_Mprobe(MPI_PROC_NULL, TAG, run->comm, &message, &status);
    run_check(run, message == MPI_MESSAGE_NO_PROC, "Mprobe of no process gave a message");
    MPI_Mrecv(recv->data, count, MPI_BYTE, &message, &status);
    check_no_process(run, &status);
    buffer_finish(recv);
}

// A receive that is too short, by each way to complete it. The bytes it may write are MPI's to
// choose; those behind are not.
enum truncated { BY_RECV, BY_WAIT, BY_WAITALL, TRUNCATED };

static int receive_truncated(MPI_Comm comm, struct buffer *recv, int count, int source,
                             enum truncated how)
{
    MPI_Status status;
    MPI_Request request;
    if (how == BY_RECV)
        return MPI_Recv(recv->data, count, MPI_BYTE, source, TAG, comm, &status);
    MPI_Irecv(recv->data, count, MPI_BYTE, source, TAG, comm, &request);
    if (how == BY_WAIT)
        return MPI_Wait(&request, &status);
    int code = MPI_Waitall(1, &request, &status), class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    return class == MPI_ERR_IN_STATUS ? status.MPI_ERROR : code;
}

// Errors of completing calls go, depending on the MPI, to the handler of the request's
// communicator, of MPI_COMM_SELF or of MPI_COMM_WORLD.
static void set_error_handlers(MPI_Comm comm, MPI_Errhandler handler)
{
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
}

// Open MPI's shared memory transport writes the whole message, where it can, even if that is more
// than was asked for. Memory that it cannot reach must not get those bytes.
static void accept_truncated(struct buffer *recv, int count)
{
    buffer_accept(recv, 0, memory_cpu_reaches(&recv->memory) ? recv->bytes : (size_t)count);
}

// Errors other than the expected one end the job, as they do everywhere else.
static void tolerate_truncation(MPI_Comm comm, int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    if (class == MPI_SUCCESS || class == MPI_ERR_TRUNCATE)
        return;
    set_error_handlers(comm, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_call_errhandler(comm, code);
}

static void step_truncation(struct run *run, size_t bytes)
{
    MPI_Comm comm;
    if (bytes < 2)
        return;
    MPI_Comm_dup(run->comm, &comm);
    set_error_handlers(comm, MPI_ERRORS_RETURN);
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    int count = (int)(bytes / 2);
    for (int how = BY_RECV; how < TRUNCATED; how++) {
        struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, right));
        struct buffer *recv = buffer_new(run, "recv", bytes);
        MPI_Request request;
        int class = MPI_SUCCESS;
        tolerate_truncation(
            comm, MPI_Isend(send->data, (int)bytes, MPI_BYTE, right, TAG, comm, &request));
        int code = receive_truncated(comm, recv, count, left, (enum truncated)how);
        tolerate_truncation(comm, code);
        MPI_Error_class(code, &class);
        run_check(run, class == MPI_ERR_TRUNCATE, "truncation gives error class %d, expected %d",
                  class, MPI_ERR_TRUNCATE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        accept_truncated(recv, count);
        buffer_finish(recv);
        buffer_finish(send);
    }
    set_error_handlers(comm, MPI_ERRORS_ARE_FATAL);
    MPI_Barrier(run->comm);
    MPI_Comm_free(&comm);
}

static void step_cancel(struct run *run, size_t bytes)
{
    struct buffer *recv = buffer_new(run, "recv", bytes);
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0;
    MPI_Irecv(recv->data, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, TAG, run->comm, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    run_check(run, cancelled != 0, "a receive that nothing matched was not cancelled");
    run_check(run, request == MPI_REQUEST_NULL, "Wait left the cancelled request behind");
    buffer_finish(recv);
    MPI_Barrier(run->comm);
}

// A send whose request is given up at once still arrives; the receiver says when.
static void step_request_free(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, right));
    struct buffer *recv = buffer_new(run, "recv", bytes);
    MPI_Request request;
    MPI_Isend(send->data, (int)bytes, MPI_BYTE, right, TAG, run->comm, &request);
    MPI_Request_free(&request);
    run_check(run, request == MPI_REQUEST_NULL, "Request_free left the request behind");
    MPI_Recv(recv->data, (int)bytes, MPI_BYTE, left, TAG, run->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, left, ACK, NULL, 0, MPI_BYTE, right, ACK, run->comm,
                 MPI_STATUS_IGNORE);
    buffer_expect(recv, 0, bytes, run_seed(run, left, run->rank));
    buffer_finish(recv);
    buffer_finish(send);
}

static bool has_come(const struct buffer *buffer, unsigned char *now)
{
    memory_read(&buffer->memory, GUARD_BYTES, now, buffer->bytes);
    return memcmp(now, buffer->want, buffer->bytes) == 0;
}

// A message whose receive was freed comes as soon as MPI is given time, in calls that have nothing
// to do with it.
static void step_free_receive(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, right));
    struct buffer *recv = buffer_new(run, "recv", bytes);
    unsigned char *now = table_new(bytes + 1, 1);
    MPI_Request request;
    MPI_Irecv(recv->data, (int)bytes, MPI_BYTE, left, TAG, run->comm, &request);
    MPI_Request_free(&request);
    run_check(run, request == MPI_REQUEST_NULL, "Request_free left the request behind");
    buffer_expect(recv, 0, bytes, run_seed(run, left, run->rank));
    MPI_Send(send->data, (int)bytes, MPI_BYTE, right, TAG, run->comm);
    double until = MPI_Wtime() + PATIENCE_S;
    for (int missing = 1, late = 0; missing && !late;) {
        int own[2] = {!has_come(recv, now), MPI_Wtime() > until}, all[2];
        MPI_Allreduce(own, all, 2, MPI_INT, MPI_MAX, run->comm);
        missing = all[0];
        late = all[1];
    }
    free(now);
    buffer_finish(recv);
    buffer_finish(send);
}

// The data are there once the question is answered with yes, before the request is completed.
static void step_get_status(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, right));
    struct buffer *recv = buffer_new(run, "recv", bytes);
    MPI_Request requests[2];
    MPI_Status status;
    int flag = 0;
    MPI_Irecv(recv->data, (int)bytes, MPI_BYTE, left, TAG, run->comm, &requests[0]);
    MPI_Isend(send->data, (int)bytes, MPI_BYTE, right, TAG, run->comm, &requests[1]);
    while (!flag)
        MPI_Request_get_status(requests[0], &flag, &status);
    status_check(run, &status, left, TAG, MPI_BYTE, (int)bytes);
    buffer_expect(recv, 0, bytes, run_seed(run, left, run->rank));
    buffer_check(recv);
    MPI_Request_get_status(requests[0], &flag, &status);
    run_check(run, flag != 0, "a complete request became incomplete");
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    buffer_finish(recv);
    buffer_finish(send);
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
enum { PARTS = 4 };

// Asks in one of the three ways until every request has been seen to be complete.
static void await_all(MPI_Request *requests, int form)
{
    MPI_Status statuses[PARTS];
    int flag = 0, index = 0, indices[PARTS];
    while (!flag) {
        if (form == 0)
            MPI_Request_get_status_all(PARTS, requests, &flag, statuses);
        else if (form == 1)
            MPI_Request_get_status_any(1, requests, &index, &flag, statuses);
        else
            MPI_Request_get_status_some(1, requests, &flag, indices, statuses);
    }
}

// The first part of the message is there as soon as any form has said so.
static void step_get_statuses(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct buffer *send =
        buffer_filled(run, "send", PARTS * bytes, run_seed(run, run->rank, right));
    for (int form = 0; form < 3; form++) {
        struct buffer *recv = buffer_new(run, "recv", PARTS * bytes);
        MPI_Request receives[PARTS], sends[PARTS];
        for (size_t i = 0; i < PARTS; i++) {
            MPI_Irecv(recv->data + i * bytes, (int)bytes, MPI_BYTE, left, TAG + (int)i, run->comm,
                      &receives[i]);
            MPI_Isend(send->data + i * bytes, (int)bytes, MPI_BYTE, right, TAG + (int)i, run->comm,
                      &sends[i]);
        }
        await_all(receives, form);
        pattern_write(recv->want, run_seed(run, left, run->rank), 0, bytes);
        if (form != 0) // the other parts may be there or not
            buffer_accept(recv, bytes, (PARTS - 1) * bytes);
        else
            buffer_expect(recv, 0, PARTS * bytes, run_seed(run, left, run->rank));
        buffer_check(recv);
        MPI_Waitall(PARTS, receives, MPI_STATUSES_IGNORE);
        MPI_Waitall(PARTS, sends, MPI_STATUSES_IGNORE);
        buffer_expect(recv, 0, PARTS * bytes, run_seed(run, left, run->rank));
        buffer_finish(recv);
    }
    buffer_finish(send);
}
#define HAVE_GET_STATUSES 1
#endif

static void step_null_requests(struct run *run, size_t bytes)
{
    (void)bytes;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[3], status;
    int flag = 0, index = 0, done = 0, indices[3];
    MPI_Wait(&requests[0], &status);
    status_check(run, &status, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, 0);
    run_check(run, status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG,
              "Wait on a null request gave a status that is not empty");
    MPI_Test(&requests[0], &flag, &status);
    run_check(run, flag != 0, "Test on a null request says no");
    flag = 0;
    MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status);
    run_check(run, flag != 0, "Request_get_status on a null request says no");
    MPI_Waitall(3, requests, statuses);
    status_check(run, &statuses[2], MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_BYTE, 0);
    MPI_Waitany(3, requests, &index, &status);
    run_check(run, index == MPI_UNDEFINED, "Waitany on null requests gave index %d", index);
    MPI_Testany(3, requests, &index, &flag, &status);
    run_check(run, flag != 0 && index == MPI_UNDEFINED, "Testany on null requests gave index %d",
              index);
    MPI_Waitsome(3, requests, &done, indices, statuses);
    run_check(run, done == MPI_UNDEFINED, "Waitsome on null requests gave %d", done);
    MPI_Testsome(3, requests, &done, indices, statuses);
    run_check(run, done == MPI_UNDEFINED, "Testsome on null requests gave %d", done);
    flag = 0;
    MPI_Testall(3, requests, &flag, statuses);
    run_check(run, flag != 0, "Testall on null requests says no");
    MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
}

// Even and odd ranks form a group each; partners have the same rank in the two groups.
static void step_between_groups(struct run *run, size_t bytes)
{
    MPI_Comm half, between;
    MPI_Status status;
    int side = run->rank % 2, place = 0, others = 0;
    MPI_Comm_split(run->comm, side, run->rank, &half);
    MPI_Intercomm_create(half, 0, run->comm, 1 - side, TAG, &between);
    MPI_Comm_rank(between, &place);
    MPI_Comm_remote_size(between, &others);
    int partner = place < others ? place : MPI_PROC_NULL;
    int partner_rank = 2 * place + 1 - side;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, partner_rank));
    struct buffer *recv = buffer_new(run, "recv", bytes);
    MPI_Sendrecv(send->data, (int)bytes, MPI_BYTE, partner, TAG, recv->data, (int)bytes, MPI_BYTE,
                 partner, TAG, between, &status);
    if (partner != MPI_PROC_NULL) {
        status_check(run, &status, partner, TAG, MPI_BYTE, (int)bytes);
        buffer_expect(recv, 0, bytes, run_seed(run, partner_rank, run->rank));
    }
    buffer_finish(recv);
    buffer_finish(send);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

static void list_done(void *context, int i, const MPI_Status *status)
{
    struct buffer *recv = context;
    struct run *run = recv->run;
    size_t bytes = recv->bytes / LIST;
    status_check(run, status, run->rank - run->size / 2, LISTED + i, MPI_BYTE, (int)bytes);
    buffer_expect(recv, i * bytes, bytes, run_seed(run, run->rank - run->size / 2, i));
    run_check(run, memcmp(recv->data + i * bytes, recv->want + i * bytes, bytes) == 0,
              "message %d is not there yet, though MPI says so", i);
}

// The second half of the ranks receives into host memory, with nothing else under way, in all ways
// to complete a list of receives. The messages come from the run's memory of the first half.
static void step_to_host(struct run *run, size_t bytes)
{
    MPI_Request requests[LIST];
    const int half = run->size / 2;
    const bool sends = run->rank < half;
    if (run->rank >= 2 * half)
        return;
    for (int how = 0; how < COMPLETIONS; how++) {
        struct buffer *buffer =
            buffer_new_in(run, "list", LIST * bytes, sends ? run->kind : MEMORY_HOST);
        for (int i = 0; sends && i < LIST; i++)
            buffer_expect(buffer, i * bytes, bytes, run_seed(run, run->rank, i));
        if (sends)
            buffer_upload(buffer);
        for (int i = 0; i < LIST; i++) {
            unsigned char *data = buffer->data + i * bytes;
            if (sends)
                MPI_Isend(data, (int)bytes, MPI_BYTE, run->rank + half, LISTED + i, run->comm,
                          &requests[i]);
            else
                MPI_Irecv(data, (int)bytes, MPI_BYTE, run->rank - run->size / 2, LISTED + i,
                          run->comm, &requests[i]);
        }
        complete((enum completion)how, LIST, requests, sends ? NULL : list_done, buffer);
        buffer_finish(buffer);
    }
}

static const struct step steps[] = {
    {"wildcards", step_any, LIMIT_MIDDLE, 1},
    {"probe", step_probe, LIMIT_MIDDLE, 1},
    {"to host", step_to_host, LIMIT_MIDDLE, 1},
    {"no process", step_no_process, LIMIT_SMALL, 1},
    {"truncation", step_truncation, LIMIT_MIDDLE, 2},
    {"Cancel", step_cancel, LIMIT_MIDDLE, 1},
    {"Request_free", step_request_free, LIMIT_MIDDLE, 2},
    {"Request_free of a receive", step_free_receive, LIMIT_MIDDLE, 2},
    {"Request_get_status", step_get_status, LIMIT_MIDDLE, 1},
#ifdef HAVE_GET_STATUSES
    {"Request_get_status_all", step_get_statuses, LIMIT_MIDDLE, 1},
#endif
    {"null requests", step_null_requests, STEP_ONCE, 1},
    {"between groups", step_between_groups, LIMIT_MIDDLE, 2},
};

PROGRAM("matching", steps)
