// SPDX-License-Identifier: BSD-3-Clause
// Many requests at once, lists that MPI refuses, threads, and error handlers that do not return.
#include "transparency.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { BYTES = 1 << 16, TAG = 3, DEPTH = 20, FRAME_BYTES = 4096 };

// Has so many requests that work which is quadratic in their number takes longer than any test may.
static void many(int number)
{
    enum { SMALL = 40, SLOTS = 32 };
    MPI_Request *requests = malloc((size_t)number * sizeof(MPI_Request));
    struct memory memory = memory_new(MEMORY_DEVICE, 2 * SLOTS * SMALL);
    must(requests != NULL, "no memory");
    fill(&memory, 2 * SLOTS * SMALL, 0);
    for (int i = 0; i < number / 2; i++)
        MPI_Irecv(memory.address + i % SLOTS * SMALL, SMALL, MPI_BYTE, 1 - rank, i % 100,
                  MPI_COMM_WORLD, &requests[i]);
    for (int i = number / 2; i < number; i++)
        MPI_Isend(memory.address + (SLOTS + i % SLOTS) * SMALL, SMALL, MPI_BYTE, 1 - rank,
                  (i - number / 2) % 100, MPI_COMM_WORLD, &requests[i]);
    double begin = MPI_Wtime();
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
        fprintf(stderr, "MPI_Waitall of %d requests: %.3f s\n", number, MPI_Wtime() - begin);
    memory_free(&memory);
    free(requests);
}

// Receives into host memory of a process that uses a GPU, which are waited for one by one.
static void one_by_one(int number)
{
    enum { SMALL = 100 };
    MPI_Request *requests = malloc((size_t)number * sizeof(MPI_Request));
    char *bytes = calloc((size_t)number, SMALL), data[SMALL];
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Status status;
    int index;
    must(requests != NULL && bytes != NULL, "no memory");
    for (int i = 0; i < number; i++)
        MPI_Irecv(bytes + (size_t)i * SMALL, SMALL, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD,
                  &requests[i]);
    for (int i = 0; i < number; i++) {
        memset(data, i % 100, SMALL);
        MPI_Sendrecv(data, SMALL, MPI_BYTE, 1 - rank, TAG, NULL, 0, MPI_BYTE, MPI_PROC_NULL, TAG,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitany(number - i, requests + i, &index, &status);
        must(index == 0 && status.MPI_SOURCE == 1 - rank, "another request is complete: %d", index);
        must(bytes[(size_t)i * SMALL] == i % 100, "wrong bytes of receive %d", i);
    }
    memory_free(&memory);
    free(bytes);
    free(requests);
}

// Probes of a message that is as long as an RTS, while many such receives wait.
static void probes_beside(int number)
{
    enum { SMALL = 328, PROBES = 100000 };
    MPI_Request *requests = malloc((size_t)number * sizeof(MPI_Request));
    char *bytes = calloc((size_t)number, SMALL), data[SMALL] = {0};
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Status status;
    int flag = 0, count = 0;
    must(requests != NULL && bytes != NULL, "no memory");
    for (int i = 0; i < number; i++)
        MPI_Irecv(bytes + (size_t)i * SMALL, SMALL, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD,
                  &requests[i]);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, 1 - rank, TAG + 1, NULL, 0, MPI_BYTE, 1 - rank, TAG + 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(data, SMALL, MPI_BYTE, 1 - rank, TAG + 2, MPI_COMM_WORLD);
    MPI_Probe(1 - rank, TAG + 2, MPI_COMM_WORLD, &status);
    for (int i = 0; i < PROBES; i++)
        MPI_Iprobe(1 - rank, TAG + 2, MPI_COMM_WORLD, &flag, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    must(flag && count == SMALL, "a message of %d bytes", count);
    MPI_Recv(data, SMALL, MPI_BYTE, 1 - rank, TAG + 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < number; i++)
        MPI_Send(data, SMALL, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD);
    MPI_Waitall(number, requests, MPI_STATUSES_IGNORE);
    memory_free(&memory);
    free(bytes);
    free(requests);
}

static jmp_buf away;

static void leave(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    longjmp(away, 1);
}

// A message from further down the stack than the call that was left.
static __attribute__((noinline)) int deep(const struct memory *memory, int depth)
{
    volatile char frame[FRAME_BYTES];
    frame[0] = (char)depth;
    if (depth > 0)
        return deep(memory, depth - 1) + frame[0] - frame[0];
    if (rank == 0)
        return MPI_Send(memory->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    return MPI_Recv(memory->address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void message_after(const struct memory *memory)
{
    fill(memory, BYTES, (unsigned)rank);
    deep(memory, DEPTH);
    must(is_filled(memory, BYTES, 0), "wrong bytes");
}

// A message that is taken, after such a call that was left.
static void matched_after(const struct memory *memory)
{
    MPI_Message message;
    MPI_Status status;
    int flag;
    if (setjmp(away) == 0) {
        MPI_Improbe(size + 5, TAG, MPI_COMM_WORLD, &flag, &message, &status);
        must(false, "no error of a rank that does not exist");
    }
    fill(memory, BYTES, (unsigned)rank);
    if (rank == 0) {
        MPI_Send(memory->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        return;
    }
    MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(memory->address, BYTES, MPI_BYTE, &message, &status);
    must(is_filled(memory, BYTES, 0), "wrong bytes of a message that was taken");
}

// An error of a call itself, of a receive that is too short, and of one request among several: the
// other one is waited for again.
static void jumps(int number)
{
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    struct memory other = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Request requests[2];
    MPI_Errhandler handler;
    (void)number;
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (setjmp(away) == 0) {
        MPI_Send(memory.address, BYTES, MPI_BYTE, size + 5, TAG, MPI_COMM_WORLD);
        must(false, "no error of a rank that does not exist");
    }
    message_after(&memory);
    matched_after(&memory);
    if (rank == 0)
        MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    else if (setjmp(away) == 0) {
        MPI_Recv(memory.address, BYTES / 2, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(false, "no error of a message that is too long");
    }
    message_after(&memory);
    fill(&other, BYTES, 7);
    if (rank == 0) {
        fill(&memory, BYTES, 9);
        MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(memory.address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
    } else {
        MPI_Irecv(memory.address, BYTES / 2, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(other.address, BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, &requests[1]);
        if (setjmp(away) == 0) {
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
            must(false, "no error of a request");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        must(is_filled(&other, BYTES, 9), "wrong bytes of a request");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    memory_free(&memory);
    memory_free(&other);
}

// Rank 0 sends as often as it takes rank 1 to map the memory.
static void warm(const struct memory *memory)
{
    for (int i = 0; i < DEPTH; i++) {
        if (rank == 0)
            MPI_Send(memory->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(memory->address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

// A list of a receive that is too short and a send that is under way, which an error handler
// leaves. Returns whether the receive is still listed.
static bool jump_from_list(const struct memory *memory)
{
    enum { FEW = 100 };
    static char few[2 * FEW];
    static MPI_Request requests[2];
    MPI_Status statuses[2];
    static bool listed;
    if (rank == 0) {
        MPI_Irecv(few, FEW, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(memory->address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Barrier(MPI_COMM_WORLD);
        if (setjmp(away) == 0) {
            MPI_Waitall(2, requests, statuses);
            must(false, "no error of a list");
        }
        listed = requests[0] != MPI_REQUEST_NULL;
        if (setjmp(away) == 0) // what is left of it
            MPI_Waitall(2, requests, statuses);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(50000); // most often the other rank waits by then
        MPI_Send(few, 2 * FEW, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        usleep(50000);
        MPI_Recv(memory->address, BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return listed;
}

static void jumps_listed(int number)
{
    struct memory host = memory_new(MEMORY_HOST, BYTES), device = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Errhandler handler;
    (void)number;
    warm(&device);
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    bool listed = jump_from_list(&host);
    must(jump_from_list(&device) == listed, "a request is listed that is over, or the other way");
    message_after(&device);
    MPI_Errhandler_free(&handler);
    memory_free(&host);
    memory_free(&device);
}

// A receive that is too short for a message of device memory and is left by an error handler, then
// others, to whose requests MPI gives the same value.
static void jump_and_reuse(struct memory *first, int room, const struct memory into[2])
{
    enum { SENT = 8192, FEW = 100, ROUNDS = 6 };
    struct memory out = memory_new(MEMORY_DEVICE, SENT), few = memory_new(MEMORY_HOST, FEW);
    MPI_Request request;
    MPI_Status status;
    if (rank == 0)
        MPI_Send(out.address, SENT, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    else {
        MPI_Irecv(first->address, room, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        if (setjmp(away) == 0) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            must(false, "no error of a message that is too long");
        }
    }
    for (int i = 0; i < ROUNDS; i++) {
        const struct memory *to = &into[i / 2 % 2];
        int count, sent = i % 2 ? SENT : FEW;
        fill(&out, SENT, (unsigned)i);
        fill(&few, FEW, (unsigned)i);
        if (rank == 0) {
            MPI_Send(i % 2 ? out.address : few.address, sent, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            continue;
        }
        fill(to, SENT, 99);
        MPI_Irecv(to->address, SENT, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        must(count == sent, "%d bytes came, %d were sent: room for %d, then %d", count, sent, room,
             i);
        must(is_filled(to, (size_t)sent, (unsigned)i), "wrong bytes: room for %d, then %d", room,
             i);
    }
    memory_free(&out);
    memory_free(&few);
}

static const struct memory *inside; // what the handler receives into
static int calls_inside;

// Receives a message before the call goes on, by a request that may have the value of the one that
// has failed.
static void receive_inside(MPI_Comm *comm, int *code, ...)
{
    MPI_Request request;
    (void)code;
    if (calls_inside++ > 0) // MPICH 5 tells of it, and returns success all the same
        return;
    MPI_Irecv(inside->address, BYTES, MPI_BYTE, 0, TAG + 1, *comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void receive_in_handler(struct memory *first, int room, const struct memory *second)
{
    struct memory out = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Request request;
    fill(&out, BYTES, 7);
    if (rank == 0) {
        MPI_Send(out.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        fill(&out, BYTES, 8);
        MPI_Send(out.address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
    } else {
        inside = second;
        calls_inside = 0;
        MPI_Irecv(first->address, room, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        must(calls_inside > 0, "no error, room for %d", room);
        must(is_filled(second, BYTES, 8), "wrong bytes in the handler, room for %d", room);
    }
    memory_free(&out);
}

static void jumps_reused(int number)
{
    static const int modules[] = {500, 6000};
    struct memory memory[2] = {memory_new(MEMORY_HOST, BYTES), memory_new(MEMORY_DEVICE, BYTES)};
    MPI_Errhandler handler;
    (void)number;
    MPI_Comm_create_errhandler(leave, &handler);
    warm(&memory[1]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int i = 0; i < 4; i++)
        jump_and_reuse(&memory[i / 2], modules[i % 2], memory);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    MPI_Comm_create_errhandler(receive_inside, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int i = 0; i < 4; i++)
        receive_in_handler(&memory[i / 2], modules[i % 2], &memory[1 - i / 2]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    memory_free(&memory[0]);
    memory_free(&memory[1]);
}

static int calls; // of the error handler

static void count_call(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    calls++;
}

// A message of host memory that is too long for its receive is told of when that is completed,
// though another one, of device memory, is under way and this process waits for a third.
static void reported_once(int number)
{
    enum { SENT = 8192, ROOM = 1000, WAIT_US = 200000, ROUNDS = 2 };
    struct memory out = memory_new(MEMORY_DEVICE, BYTES), host = memory_new(MEMORY_HOST, SENT);
    struct memory into = memory_new(number ? MEMORY_DEVICE : MEMORY_HOST, SENT);
    MPI_Errhandler handler;
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    warm(&out);
    MPI_Comm_create_errhandler(count_call, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0) {
            MPI_Send(host.address, SENT, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Isend(out.address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, &request);
            usleep(WAIT_US);
            MPI_Send(host.address, 1, MPI_BYTE, 1, TAG + 2, MPI_COMM_WORLD);
            MPI_Wait(&request, &status);
            continue;
        }
        calls = 0;
        if (round > 0) // it is there already
            usleep(WAIT_US / 2);
        MPI_Irecv(into.address, ROOM, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        must(calls == 0, "%d calls of the error handler before a wait", calls);
        MPI_Mprobe(0, TAG + 2, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(host.address, 1, MPI_BYTE, &message, &status);
        must(calls == 0, "%d calls of the error handler while this process waits", calls);
        MPI_Wait(&request, &status); // MPICH 5 tells the handler, and returns success
        must(calls == 1, "%d calls of the error handler", calls);
        MPI_Recv(out.address, BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, &status);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    memory_free(&out);
    memory_free(&into);
    memory_free(&host);
}

// A collective that is started later with what its buffer held when it was made: MPICH takes some
// of the data there and then, also of host memory.
static void data_at_init(int number)
{
#if MPI_VERSION >= 4
    struct memory from = memory_new(MEMORY_DEVICE, BYTES);
    struct memory into = memory_new(MEMORY_DEVICE, (size_t)size * BYTES);
    (void)number;
    for (int bytes = 16; bytes <= BYTES; bytes += BYTES - 16) {
        MPI_Request request;
        fill(&from, BYTES, 5);
        MPI_Gather_init(from.address, bytes, MPI_BYTE, into.address, bytes, MPI_BYTE, size - 1,
                        MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        for (int pass = 0; pass < 2; pass++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; i < size && rank == size - 1; i++)
                must(is_same(&from, &into, (size_t)(i * bytes), (size_t)bytes), "rank %d's", i);
        }
        MPI_Request_free(&request);
    }
    memory_free(&into);
    memory_free(&from);
#else
    (void)number;
#endif
}

enum refused_way { WAY_WAITALL, WAY_WAITANY, WAY_WAITSOME, WAY_TESTALL, REFUSED_WAYS };

// Lists a request that is none until MPI says so. It may say that all are not complete before.
static int complete_refused(enum refused_way way, MPI_Request list[3], bool ignores)
{
    MPI_Status statuses[3], *given = ignores ? MPI_STATUSES_IGNORE : statuses;
    int flag = 0, number = 0x7ffffff0, indices[3], code = MPI_SUCCESS;
    if (way == WAY_WAITALL)
        return MPI_Waitall(3, list, given);
    if (way == WAY_WAITANY)
        return MPI_Waitany(3, list, &number, ignores ? MPI_STATUS_IGNORE : statuses);
    if (way == WAY_WAITSOME)
        return MPI_Waitsome(3, list, &number, indices, given);
    while (code == MPI_SUCCESS && !flag)
        code = MPI_Testall(3, list, &flag, given);
    return code;
}

// A send that its receiver has not fetched yet, and a receive, beside a request that is none.
static void refuse_with_send(const struct memory *from, const struct memory *into,
                             MPI_Request wrong, enum refused_way way, bool ignores)
{
    MPI_Request list[3] = {MPI_REQUEST_NULL, wrong, MPI_REQUEST_NULL};
    int class = MPI_SUCCESS;
    warm(from);
    fill(from, BYTES, 5 + (unsigned)rank);
    fill(into, BYTES, 99);
    if (rank == 0) {
        MPI_Isend(from->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &list[0]);
        MPI_Irecv(into->address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &list[2]);
        MPI_Error_class(complete_refused(way, list, ignores), &class);
        must(class == MPI_ERR_REQUEST, "error class %d of a request that is none, way %d", class,
             way);
        must(list[0] != MPI_REQUEST_NULL && list[1] == wrong && list[2] != MPI_REQUEST_NULL,
             "a refused list has lost requests, way %d", way);
        MPI_Send(NULL, 0, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
        list[1] = MPI_REQUEST_NULL;
        must(MPI_Waitall(3, list, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "the wait, way %d", way);
        must(is_filled(into, BYTES, 6), "wrong bytes of a listed receive, way %d", way);
    } else {
        usleep(5000); // most often the other rank waits by then
        MPI_Recv(into->address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(is_filled(into, BYTES, 5), "wrong bytes of a listed send, way %d", way);
        MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(from->address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

// Starts a request that is started already. Most MPIs refuse that, and what is under way goes on.
static void start_again(MPI_Request *request, int way)
{
    int code = way == 0 ? MPI_Start(request) : MPI_Startall(1, request);
#if defined MPICH_VERSION
    must(code != MPI_SUCCESS, "a request is started twice");
#else
    (void)code;
#endif
}

static void started_twice(int number)
{
    struct memory from = memory_new(MEMORY_DEVICE, BYTES);
    struct memory into = memory_new(MEMORY_DEVICE, (size_t)size * BYTES);
    MPI_Request request;
    (void)number;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    fill(&from, BYTES, 3);
    for (int way = 0; way < 2 && rank < 2; way++) {
        fill(&into, BYTES, 99);
        if (rank == 0)
            MPI_Send(from.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv_init(into.address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
        if (rank == 1) {
            MPI_Start(&request);
            start_again(&request, way);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            must(is_filled(&into, BYTES, 3), "wrong bytes of a receive that is started twice");
        }
        MPI_Request_free(&request);
    }
#if MPI_VERSION >= 4 && defined MPICH_VERSION
    for (int way = 0; way < 2; way++) {
        fill(&from, BYTES, 5 + (unsigned)rank);
        MPI_Allgather_init(from.address, BYTES, MPI_BYTE, into.address, BYTES, MPI_BYTE,
                           MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        for (int round = 0; round < 2; round++) {
            MPI_Start(&request);
            start_again(&request, way);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            must(is_same(&from, &into, (size_t)rank * BYTES, BYTES), "wrong bytes, round %d",
                 round);
        }
        MPI_Request_free(&request);
    }
#endif
    memory_free(&into);
    memory_free(&from);
}

// A request that stands and a receive that is cut off, whose error handler leaves the call. MPI has
// ended both, so the first one may be started again.
static void left_standing(int number)
{
    enum { ROUNDS = 3, FEW = 1000 };
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES);
    char few[2 * FEW] = {0};
    MPI_Request requests[2];
    MPI_Errhandler handler;
    (void)number;
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (rank == 0)
        MPI_Send_init(memory.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[0]);
    else
        MPI_Recv_init(memory.address, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
    for (volatile unsigned round = 0; round < ROUNDS; round++) {
        fill(&memory, BYTES, rank == 0 ? round : 99);
        MPI_Start(&requests[0]);
        MPI_Irecv(few, FEW, MPI_BYTE, 1 - rank, TAG + 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Send(few, 2 * FEW, MPI_BYTE, 1 - rank, TAG + 1, MPI_COMM_WORLD);
        usleep(50000); // by then everything has come
        if (setjmp(away) == 0) {
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            must(false, "no error of a list");
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    // The last round of its own ends as it should.
    fill(&memory, BYTES, rank == 0 ? ROUNDS : 99);
    MPI_Start(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    must(rank == 0 || is_filled(&memory, BYTES, ROUNDS), "wrong bytes of a request that stands");
    MPI_Request_free(&requests[0]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    memory_free(&memory);
}

// A list that MPI refuses for one of its requests has completed nothing of the others.
static void refused_list(int number)
{
#if defined OPEN_MPI
    MPI_Request wrong = NULL;
#else
    MPI_Request wrong = (MPI_Request)0x12345678;
#endif
    struct memory from = memory_new(MEMORY_DEVICE, BYTES), into = memory_new(MEMORY_DEVICE, BYTES);
    struct memory host = memory_new(MEMORY_HOST, BYTES);
    (void)number;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    fill(&from, BYTES, 3 + (unsigned)rank);
    for (int way = 0; way < 4; way++) {
        MPI_Request list[] = {MPI_REQUEST_NULL, wrong};
        MPI_Status statuses[2];
        int flag = 77, index = 0x7ffffff0, code; // an index that nobody has written may be anything
        fill(&into, BYTES, 99);
        MPI_Irecv(into.address, BYTES, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &list[0]);
        if (way == 0)
            code = MPI_Testall(2, list, &flag, statuses);
        else if (way == 1)
            code = MPI_Waitany(2, list, &index, statuses);
        else if (way == 2)
            code = MPI_Testany(2, list, &index, &flag, statuses);
        else
            code = MPI_Testsome(2, list, &index, &flag, statuses);
        bool waits_on = way == 0 && flag == 0; // all are not complete, whatever the others are
        must(code != MPI_SUCCESS || waits_on, "a request that is none, way %d", way);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(from.address, BYTES, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD);
        must(MPI_Wait(&list[0], MPI_STATUS_IGNORE) == MPI_SUCCESS, "the wait, way %d", way);
        must(is_filled(&into, BYTES, 3 + (unsigned)(1 - rank)), "wrong bytes, way %d", way);
    }
    for (int way = 0; way < REFUSED_WAYS; way++) {
        refuse_with_send(&from, &into, wrong, (enum refused_way)way, false);
        refuse_with_send(&from, &host, wrong, (enum refused_way)way, true);
    }
    memory_free(&host);
    memory_free(&into);
    memory_free(&from);
}

// Completes requests by tests of any, and counts them. Returns how many calls that took.
static int test_each(MPI_Request *requests, int count, int most_calls)
{
    int calls = 0, index = 0, flag = 0;
    for (int done = 0; done < count && calls < most_calls; calls++) {
        MPI_Testany(count, requests, &index, &flag, MPI_STATUS_IGNORE);
        done += flag && index != MPI_UNDEFINED;
    }
    return calls;
}

// Tests of many receives, while a message is under way that comes to none of them. The cost of such
// a call does not grow with their number. The program runs beside a library that counts.
static void asks_few(int number)
{
    enum { CALLS = 40, MOST_A_CALL = 12, SMALL = 400 };
    int (*asked)(void);
    void *at = dlsym(RTLD_DEFAULT, "frcount_asked");
    MPI_Request *requests = malloc((size_t)number * sizeof(MPI_Request)), held = MPI_REQUEST_NULL;
    int *indices = malloc((size_t)number * sizeof(int)), flag = 0, done = 0;
    struct memory memory = memory_new(MEMORY_DEVICE, BYTES), small = memory_new(MEMORY_HOST, SMALL);
    must(at && requests && indices, "nothing counts, or there is no memory");
    memcpy(&asked, &at, sizeof(asked));
    warm(&memory);
    if (rank == 0)
        MPI_Isend(memory.address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, &held);
    for (int i = 0; i < number && rank == 1; i++)
        MPI_Irecv(memory.address + i % 64 * SMALL, SMALL, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                  &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    int before = asked();
    for (int call = 0; call < CALLS && rank == 1; call++) {
        int index;
        MPI_Testany(number, requests, &index, &flag, MPI_STATUS_IGNORE);
        must(!flag, "request %d is complete", index);
        MPI_Testsome(number, requests, &done, indices, MPI_STATUSES_IGNORE);
        must(done == 0, "%d requests are complete", done);
        MPI_Testall(number, requests, &flag, MPI_STATUSES_IGNORE);
        must(!flag, "all requests are complete");
    }
    int asks = asked() - before;
    must(asks < 3 * CALLS * MOST_A_CALL, "%d questions in %d calls", asks, 3 * CALLS);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < number && rank == 0; i++)
        MPI_Send(small.address, SMALL, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        int calls = test_each(requests, number, 1000 * number);
        must(calls < 1000 * number, "not all have come after %d tests", calls);
        MPI_Recv(memory.address, BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&held, MPI_STATUS_IGNORE);
    memory_free(&small);
    memory_free(&memory);
    free(indices);
    free(requests);
}

// Erroneous, and passed by MPI libraries: requests that are freed and have no other side. One to
// which a message comes late has it all the same.
static void freed_unmatched(int number)
{
    struct memory host = memory_new(MEMORY_HOST, BYTES), device = memory_new(MEMORY_DEVICE, BYTES);
    struct memory late = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Request requests[4];
    (void)number;
    fill(&late, BYTES, (unsigned)rank);
    if (rank == 0) {
        MPI_Isend(device.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Issend(device.address, 20, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[1]);
        usleep(200000);
        MPI_Send(late.address, BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
    } else {
        MPI_Irecv(host.address, BYTES, MPI_BYTE, 0, TAG + 2, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(device.address, BYTES, MPI_BYTE, 0, TAG + 3, MPI_COMM_WORLD, &requests[1]);
        MPI_Irecv(late.address, BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD, &requests[2]);
        MPI_Recv_init(host.address, BYTES, MPI_BYTE, 0, TAG + 4, MPI_COMM_WORLD, &requests[3]);
        MPI_Start(&requests[3]);
        MPI_Request_free(&requests[2]);
        MPI_Request_free(&requests[3]);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Finalize();
    if (!is_filled(&late, BYTES, 0)) { // it is too late for MPI_Abort
        fprintf(stderr, "rank %d: wrong bytes\n", rank);
        exit(1);
    }
}

const struct transparency transparency_requests[] = {
    {"refused-list", refused_list, false},
    {"started-twice", started_twice, false},
    {"left-standing", left_standing, false},
    {"asks-few", asks_few, false},
    {"freed-unmatched", freed_unmatched, false},
    {"many-requests", many, false},
    {"one-by-one", one_by_one, false},
    {"probes-beside", probes_beside, false},
    {"jumps", jumps, false},
    {"jumps-reused", jumps_reused, false},
    {"jumps-listed", jumps_listed, false},
    {"reported-once", reported_once, false},
    {"data-at-init", data_at_init, false},
    {NULL, NULL, false},
};
