// SPDX-License-Identifier: BSD-3-Clause
// Calls that MPI refuses, of sizes that Fabrail looks at: the error handler of the application is
// called as often as ever, and told the same.
#include "with_without_preload.h"

#include <string.h>

enum { NOBODY = RANKS + 2, WRONG_TAG = -9 };

// The error handler has no other way to know.
static struct run *running;

// After such a handler some MPI libraries return success.
static void hear(MPI_Comm *comm, int *code, ...)
{
    const char *name = *comm == MPI_COMM_WORLD  ? "the world"
                       : *comm == MPI_COMM_SELF ? "the process"
                                                : "another";
    say_code(running, name, *code);
}

static void listen(struct run *run, MPI_Errhandler handler)
{
    running = run;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_set_errhandler(run->comm, handler);
}

// The arguments of a call, one of them wrong.
struct call {
    void *in, *sent;
    int count;
    MPI_Datatype type;
    int peer, tag;
    MPI_Comm comm;
};

// A handle that stands for nothing. Open MPI takes any for an address.
static MPI_Datatype draw_wrong_type(struct run *run)
{
    MPI_Datatype types[] = {
        MPI_DATATYPE_NULL,
#if defined(MPICH_NUMVERSION)
        (MPI_Datatype)0x4c00ff77,
        (MPI_Datatype)0x4c000477,
        (MPI_Datatype)MPI_COMM_WORLD,
        0,
#elif !defined(OPEN_MPI)
        (MPI_Datatype)0x2ff,
        (MPI_Datatype)0x1c5,
        (MPI_Datatype)MPI_COMM_WORLD,
        0,
#else
        0,
#endif
    };
    return types[draw(run, sizeof types / sizeof types[0])];
}

static MPI_Comm draw_wrong_comm(struct run *run)
{
    MPI_Comm comms[] = {
        MPI_COMM_NULL,
        0,
#if defined(MPICH_NUMVERSION)
        (MPI_Comm)0x40000fff,
        (MPI_Comm)MPI_INT,
#elif !defined(OPEN_MPI)
        (MPI_Comm)0x1c5,
#endif
    };
    return comms[draw(run, sizeof comms / sizeof comms[0])];
}

static void refuse_receives(struct run *run, const struct call *call)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    say_code(
        run, "receive",
        MPI_Recv(call->in, call->count, call->type, call->peer, call->tag, call->comm, &status));
    say_code(run, "ignored",
             MPI_Recv(call->in, call->count, call->type, call->peer, call->tag, call->comm,
                      MPI_STATUS_IGNORE));
    say_code(
        run, "begun",
        MPI_Irecv(call->in, call->count, call->type, call->peer, call->tag, call->comm, &request));
    say_code(run, "persistent",
             MPI_Recv_init(call->in, call->count, call->type, call->peer, call->tag, call->comm,
                           &request));
    say(run, "null %d", request == MPI_REQUEST_NULL);
}

static void refuse_sends(struct run *run, const struct call *call)
{
    MPI_Request request = MPI_REQUEST_NULL;
    say_code(run, "send",
             MPI_Send(call->sent, call->count, call->type, call->peer, call->tag, call->comm));
    say_code(run, "synchronous",
             MPI_Ssend(call->sent, call->count, call->type, call->peer, call->tag, call->comm));
    say_code(run, "begun",
             MPI_Isend(call->sent, call->count, call->type, call->peer, call->tag, call->comm,
                       &request));
    say_code(run, "persistent",
             MPI_Send_init(call->sent, call->count, call->type, call->peer, call->tag, call->comm,
                           &request));
    say(run, "null %d", request == MPI_REQUEST_NULL);
}

static void refuse_exchanges(struct run *run, const struct call *call)
{
    MPI_Status status;
    say_code(run, "exchange",
             MPI_Sendrecv(call->sent, call->count, call->type, call->peer, call->tag, call->in,
                          call->count, call->type, call->peer, call->tag, call->comm, &status));
    say_code(run, "replace",
             MPI_Sendrecv_replace(call->in, call->count, call->type, call->peer, call->tag,
                                  call->peer, call->tag, call->comm, &status));
#if MPI_VERSION >= 4
    MPI_Request request = MPI_REQUEST_NULL;
    say_code(run, "begun",
             MPI_Isendrecv(call->sent, call->count, call->type, call->peer, call->tag, call->in,
                           call->count, call->type, call->peer, call->tag, call->comm, &request));
    say(run, "null %d", request == MPI_REQUEST_NULL);
#endif
}

// Open MPI ends the process where a probe has no communicator.
static void refuse_probes(struct run *run, int peer, int tag, MPI_Comm comm)
{
    MPI_Message message;
    MPI_Status status;
    int flag = 0;
#if defined(OPEN_MPI)
    if (comm != run->comm)
        return;
#endif
    say_code(run, "probe", MPI_Probe(peer, tag, comm, &status));
    say_code(run, "ignored", MPI_Probe(peer, tag, comm, MPI_STATUS_IGNORE));
    say_code(run, "look", MPI_Iprobe(peer, tag, comm, &flag, &status));
    say_code(run, "matched", MPI_Mprobe(peer, tag, comm, &message, &status));
    say_code(run, "matched look", MPI_Improbe(peer, tag, comm, &flag, &message, &status));
}

static void refuse_messages(struct run *run, const struct call *call)
{
    refuse_receives(run, call);
    refuse_sends(run, call);
    refuse_exchanges(run, call);
}

// No library looks at a buffer's address when nothing else is right.
static void refuse_collectives(struct run *run, const struct call *call)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int count = call->count;
    say_code(run, "broadcast", MPI_Bcast(call->in, count, call->type, 0, call->comm));
    say_code(run, "all to all",
             MPI_Alltoall(call->sent, count, call->type, call->in, count, call->type, call->comm));
    say_code(run, "begun",
             MPI_Ialltoall(call->sent, count, call->type, call->in, count, call->type, call->comm,
                           &request));
    say(run, "null %d", request == MPI_REQUEST_NULL);
}

void run_refused(struct run *run)
{
    const int counts[] = {41, 50, 82, 164, 656};
    struct kind kind = draw_kind(run, MPI_INT);
    struct call call = {.in = run->in + ORIGIN,
                        .sent = run->sent,
                        .count = counts[draw(run, 5)],
                        .type = kind.type,
                        .tag = run->tag,
                        .comm = run->comm};
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(hear, &handler);
    listen(run, handler);
    struct call wrong = call;
    wrong.peer = draw(run, 2) != 0 ? NOBODY : -8;
    refuse_messages(run, &wrong);
    refuse_probes(run, wrong.peer, call.tag, call.comm);
    wrong.in = wrong.sent = NULL;
    refuse_messages(run, &wrong);
    wrong = call;
    wrong.tag = WRONG_TAG;
    refuse_messages(run, &wrong);
    refuse_probes(run, 0, wrong.tag, call.comm);
    // MPICH itself does not find a wrong type.
    wrong.type = draw_wrong_type(run);
    refuse_messages(run, &wrong);
    wrong = call;
    wrong.comm = draw_wrong_comm(run);
    refuse_messages(run, &wrong);
    wrong.comm = MPI_COMM_NULL;
    refuse_messages(run, &wrong);
    refuse_probes(run, 0, call.tag, wrong.comm);
    refuse_collectives(run, &wrong);
    wrong = call;
    wrong.type = MPI_DATATYPE_NULL;
    refuse_messages(run, &wrong);
    refuse_collectives(run, &wrong);
    listen(run, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    free_kind(&kind);
    say_bytes(run, run->in);
}

// One of several receives is too short, and nobody wants their statuses. All have come before,
// since some MPI libraries return something else then.
void run_ignored(struct run *run)
{
    enum { COUNT = 3, INTS = 50, FROM = 1, TO = 0 };
    bool persistent = draw(run, 2) != 0;
    MPI_Request requests[COUNT];
    for (int i = 0; i < COUNT && run->rank == TO; i++) {
        void *in = run->in + ORIGIN + 4 * INTS * i;
        int count = i == 1 ? INTS / 2 : INTS;
        if (persistent)
            MPI_Recv_init(in, count, MPI_INT, FROM, run->tag + i, run->comm, &requests[i]);
        else
            MPI_Irecv(in, count, MPI_INT, FROM, run->tag + i, run->comm, &requests[i]);
        if (persistent)
            MPI_Start(&requests[i]);
    }
    MPI_Barrier(run->comm);
    for (int i = 0; i < COUNT && run->rank == FROM; i++)
        MPI_Send(run->sent, INTS, MPI_INT, TO, run->tag + i, run->comm);
    MPI_Barrier(run->comm);
    if (run->rank == TO) {
        say_code(run, "all", MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < COUNT; i++) {
            say(run, "null %d", requests[i] == MPI_REQUEST_NULL);
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            if (requests[i] != MPI_REQUEST_NULL)
                MPI_Request_free(&requests[i]);
        }
        say(run, "persistent %d", persistent);
    }
}

// Null pointers where a call has something to say of a receive that is under way. The library of
// the standard ABI does not look at them.
void run_outputs(struct run *run)
{
#if defined(OPEN_MPI) || defined(MPICH_NUMVERSION)
    enum { INTS = 50 };
    MPI_Errhandler handler;
    MPI_Request request;
    MPI_Status status;
    int index = 0, flag = 0, count = 0;
    MPI_Comm_create_errhandler(hear, &handler);
    listen(run, handler);
    MPI_Irecv(run->in + ORIGIN, INTS, MPI_INT, run->rank, run->tag, run->comm, &request);
    say_code(run, "test", MPI_Test(&request, NULL, &status));
    say_code(run, "all", MPI_Testall(1, &request, NULL, &status));
    say_code(run, "any", MPI_Testany(1, &request, NULL, &flag, &status));
    say_code(run, "any", MPI_Testany(1, &request, &index, NULL, &status));
    say_code(run, "some", MPI_Testsome(1, &request, NULL, &index, &status));
    say_code(run, "some", MPI_Testsome(1, &request, &count, NULL, &status));
    say_code(run, "wait", MPI_Waitany(1, &request, NULL, &status));
    MPI_Send(run->sent, INTS, MPI_INT, run->rank, run->tag, run->comm);
    say_code(run, "received", MPI_Wait(&request, &status));
    listen(run, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
#endif
    say_bytes(run, run->in);
}
