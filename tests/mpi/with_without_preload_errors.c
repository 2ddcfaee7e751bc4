// SPDX-License-Identifier: BSD-3-Clause
// Messages that do not fit what receives them, the bytes that no message has, and wrong arguments.
#include "with_without_preload.h"

#include <string.h>

enum { FROM, TO, INTS = 100, FEWER = 50, BEFORE = 6 };

enum way { BY_RECV, BY_WAIT, BY_TEST, BY_EXCHANGE, BY_START, WAYS };

static int receive(struct run *run, enum way way, int count, MPI_Datatype type, MPI_Status *status)
{
    void *buffer = run->in + ORIGIN;
    MPI_Request request;
    int flag = 0, code = MPI_SUCCESS;
    if (way == BY_RECV)
        return MPI_Recv(buffer, count, type, FROM, run->tag, run->comm, status);
    if (way == BY_EXCHANGE)
        return MPI_Sendrecv(run->sent, 1, MPI_INT, MPI_PROC_NULL, 1, buffer, count, type, FROM,
                            run->tag, run->comm, status);
    if (way == BY_START) {
        MPI_Recv_init(buffer, count, type, FROM, run->tag, run->comm, &request);
        MPI_Start(&request);
        code = MPI_Wait(&request, status);
        MPI_Request_free(&request);
        return code;
    }
    MPI_Irecv(buffer, count, type, FROM, run->tag, run->comm, &request);
    if (way == BY_WAIT)
        return MPI_Wait(&request, status);
    while (!flag && code == MPI_SUCCESS)
        code = MPI_Test(&request, &flag, status);
    return code;
}

// MPICH counts nothing in the status of a message that is too long, and leaves there what the
// request had before: so another message goes before it.
void run_truncated(struct run *run)
{
    const MPI_Datatype types[] = {MPI_INT, MPI_FLOAT};
    enum way way = (enum way)draw(run, WAYS);
    MPI_Datatype type = types[draw(run, 2)];
    MPI_Status status;
    if (run->rank == FROM) {
        MPI_Send(run->sent, BEFORE, type, TO, run->tag, run->comm);
        MPI_Send(run->sent, INTS, type, TO, run->tag, run->comm);
    }
    for (int i = 0; i < 2 && run->rank == TO; i++) {
        fill_status(&status);
        say_code(run, "fewer", receive(run, way, FEWER, type, &status));
        say_status(run, &status, type, true);
    }
}

// Some bytes of a long double mean nothing. Writes which of them a receive changes.
void run_padding(struct run *run)
{
    enum { COUNT = 10, STRIDE = 3, VALUE_BYTES = 10 };
    int changed = 0;
    enum way way = (enum way)draw(run, WAYS);
    MPI_Datatype type;
    MPI_Status status;
    fill_status(&status);
    MPI_Type_vector(COUNT, 1, STRIDE, MPI_LONG_DOUBLE, &type);
    MPI_Type_commit(&type);
    if (run->rank == FROM)
        MPI_Send(run->sent, 1, type, TO, run->tag, run->comm);
    if (run->rank == TO) {
        memset(run->in, 0xee, ARENA_BYTES);
        say_code(run, "padding", receive(run, way, 1, type, &status));
        say_status(run, &status, type, true);
        for (size_t i = 0; i < COUNT * STRIDE * sizeof(long double); i++)
            changed += i % sizeof(long double) >= VALUE_BYTES && run->in[ORIGIN + i] != 0xee;
        say(run, "changed %d", changed != 0);
    }
    MPI_Type_free(&type);
}

// A few bytes that are no whole number of what receives them. MPICH 5 stops at some of them, also
// as the library of the standard ABI.
void run_short(struct run *run)
{
#if defined(OPEN_MPI) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 50000000)
    const MPI_Datatype basics[] = {MPI_INT, MPI_DOUBLE, MPI_DOUBLE_INT};
    struct kind kind = draw_kind(run, basics[draw(run, 3)]);
    int bytes = 1 + (int)draw(run, 70);
    enum way way = (enum way)draw(run, WAYS);
    MPI_Status status;
    if (run->rank == FROM) {
        MPI_Send(run->sent, 1, kind.type, TO, run->tag, run->comm);
        MPI_Send(run->sent, bytes, MPI_CHAR, TO, run->tag, run->comm);
    }
    for (int i = 0; i < 2 && run->rank == TO; i++) {
        fill_status(&status);
        say_code(run, "short", receive(run, way, 30, kind.type, &status));
        say_status(run, &status, kind.type, true);
        say_bytes(run, run->in);
    }
    free_kind(&kind);
#else
    say(run, "nothing");
#endif
}

// Writes what each call says of one wrong argument.
void run_wrong(struct run *run)
{
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm comm = run->comm;
    unsigned char *in = run->in, *sent = run->sent;
    int flag = -7;
    fill_status(&status);
    say_code(run, "rank", MPI_Recv(in, 50, MPI_INT, RANKS + 4, 1, comm, &status));
    say_code(run, "rank ignored", MPI_Recv(in, 50, MPI_INT, -9, 1, comm, MPI_STATUS_IGNORE));
    say_code(run, "tag", MPI_Recv(in, 50, MPI_DOUBLE, 0, -5, comm, &status));
    say_code(run, "count", MPI_Recv(in, -1, MPI_INT, 0, 1, comm, &status));
    say_code(run, "count", MPI_Irecv(in, -3, MPI_LONG_DOUBLE, 0, 1, comm, &request));
    say_code(run, "type", MPI_Recv(in, 50, MPI_DATATYPE_NULL, 0, 1, comm, &status));
    say_code(run, "type", MPI_Irecv(in, 50, MPI_DATATYPE_NULL, 0, 1, comm, &request));
    say_code(run, "comm", MPI_Recv(in, 50, MPI_INT, 0, 1, MPI_COMM_NULL, &status));
    say_code(run, "no buffer", MPI_Recv(NULL, 50, MPI_INT, 0, -5, comm, &status));
    say_code(run, "no buffer", MPI_Recv(NULL, 50, MPI_INT, 0, -5, comm, MPI_STATUS_IGNORE));
    say_code(run, "rank", MPI_Irecv(in, 50, MPI_INT, RANKS, 1, comm, &request));
    say_code(run, "rank", MPI_Recv_init(in, 50, MPI_FLOAT, RANKS, 1, comm, &request));
    say_code(run, "rank", MPI_Send(sent, 41, MPI_BYTE, RANKS, 1, comm));
    say_code(run, "rank", MPI_Send(sent, 164, MPI_INT, RANKS, 1, comm));
    say_code(run, "tag", MPI_Isend(sent, 41, MPI_DOUBLE, 0, -3, comm, &request));
    say_code(run, "rank",
             MPI_Sendrecv(sent, 82, MPI_DOUBLE, RANKS, 1, in, 50, MPI_INT, 0, 1, comm, &status));
    say_code(run, "rank",
             MPI_Sendrecv(sent, 5, MPI_INT, 0, 1, in, 50, MPI_INT, -8, 1, comm, MPI_STATUS_IGNORE));
    say_code(run, "rank", MPI_Sendrecv_replace(in, 50, MPI_INT, 9, 1, 9, 1, comm, &status));
    say_code(run, "rank", MPI_Probe(RANKS, 1, comm, &status));
    say_code(run, "tag", MPI_Iprobe(0, -8, comm, &flag, &status));
    say_code(run, "root", MPI_Bcast(in, 5, MPI_INT, RANKS, comm));
    say_code(run, "operation", MPI_Allreduce(sent, in, 5, MPI_INT, MPI_OP_NULL, comm));
    say_code(run, "count", MPI_Alltoall(sent, -2, MPI_INT, in, 5, MPI_INT, comm));
    say_code(run, "request", MPI_Start(&request));
    say_code(run, "null", MPI_Wait(&request, &status));
    say(run, "source %d tag %d", status.MPI_SOURCE, status.MPI_TAG);
    say_bytes(run, in);
}
