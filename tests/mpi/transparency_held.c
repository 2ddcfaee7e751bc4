// SPDX-License-Identifier: BSD-3-Clause
// Memory that is held for messages goes back: after receives that were too short for them, and
// while a program goes on with host memory alone. A host message of any size changes nothing for
// those after it.
#include "transparency.h"

#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { TAG = 5, BYTES = 100000 };

static size_t memory_left(void)
{
    CUresult (*get)(size_t *, size_t *);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    size_t left = 0, total = 0;
    *(void **)&get = driver ? dlsym(driver, "cuMemGetInfo_v2") : NULL;
    must(get != NULL && get(&left, &total) == CUDA_SUCCESS, "the driver has no cuMemGetInfo");
    return left;
}

// ---- receives that are too short

static MPI_Comm on_comm = MPI_COMM_WORLD; // of the messages that follow

enum way { BY_RECV, BY_ANY, BY_WAIT, BY_WAITALL, BY_SENDRECV, BY_PERSISTENT, TO_DEVICE, WAYS };

// MPICH 5 loses the error of a receive from any source now and then, without Fabrail too: in 1 of
// 1000 receives of 688 bytes with room for 16. The status still has the count of the whole message.
static bool is_cut_off_in_silence(int code, MPI_Status *status, int room)
{
    int count = 0;
    return code == MPI_SUCCESS && MPI_Get_count(status, MPI_BYTE, &count) == MPI_SUCCESS &&
           count > room;
}

// Receives a message into too little memory. Returns MPI's code.
static int receive_short(enum way way, struct memory *host, struct memory *device, int room)
{
    void *data = (way == TO_DEVICE ? device : host)->address;
    MPI_Request request;
    MPI_Status status;
    int tag = TAG + (int)way, code = MPI_SUCCESS;
    switch (way) {
    case BY_ANY:
        code = MPI_Recv(data, room, MPI_BYTE, MPI_ANY_SOURCE, tag, on_comm, &status);
        return is_cut_off_in_silence(code, &status, room) ? MPI_ERR_TRUNCATE : code;
    case BY_WAIT:
        MPI_Irecv(data, room, MPI_BYTE, 0, tag, on_comm, &request);
        return MPI_Wait(&request, MPI_STATUS_IGNORE);
    case BY_WAITALL:
        MPI_Irecv(data, room, MPI_BYTE, 0, tag, on_comm, &request);
        code = MPI_Waitall(1, &request, &status);
        return code == MPI_SUCCESS ? code : status.MPI_ERROR;
    case BY_SENDRECV:
        return MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, data, room, MPI_BYTE, 0, tag,
                            on_comm, &status);
    case BY_PERSISTENT:
        MPI_Recv_init(data, room, MPI_BYTE, 0, tag, on_comm, &request);
        MPI_Start(&request);
        code = MPI_Wait(&request, &status);
        MPI_Request_free(&request);
        return code;
    default:
        return MPI_Recv(data, room, MPI_BYTE, 0, tag, on_comm, MPI_STATUS_IGNORE);
    }
}

// The barrier is so that the receiver has time to map the memory.
static void pass(const struct memory *memory, int tag, unsigned seed, bool synchronously)
{
    fill(memory, BYTES, seed + (unsigned)rank);
    if (rank == 0 && synchronously)
        MPI_Ssend(memory->address, BYTES, MPI_BYTE, 1, tag, on_comm);
    else if (rank == 0)
        MPI_Send(memory->address, BYTES, MPI_BYTE, 1, tag, on_comm);
    else
        MPI_Recv(memory->address, BYTES, MPI_BYTE, 0, tag, on_comm, MPI_STATUS_IGNORE);
    must(is_filled(memory, BYTES, seed), "message %u came otherwise", seed);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Calls a check with memory for so many bytes, on a communicator of its own each time.
static void with_each_room(void (*check)(int room))
{
    static const int rooms[] = {0, 4, 16, 36, 100};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); // of requests, before MPI 4
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (unsigned i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &on_comm);
        MPI_Comm_set_errhandler(on_comm, MPI_ERRORS_RETURN);
        check(rooms[i]);
        MPI_Comm_free(&on_comm);
    }
}

// More messages than can be under way at once are received with too little room, in each way; then
// others must have all the memory that there was at first.
static void cut_off_with(int room)
{
    enum { MESSAGES = 80, OTHERS = 40, REST_BYTES = 8 << 20 };
    struct memory device = memory_new(MEMORY_DEVICE, BYTES), host = memory_new(MEMORY_HOST, BYTES);
    for (unsigned i = 0; i < OTHERS; i++)
        pass(&device, TAG + WAYS, i, false);
    size_t before = memory_left();
    for (int i = 0; i < WAYS * MESSAGES; i++) {
        enum way way = (enum way)(i % WAYS);
        int code = MPI_SUCCESS, class = MPI_ERR_TRUNCATE;
        if (rank == 0)
            code = MPI_Send(device.address, BYTES, MPI_BYTE, 1, TAG + (int)way, on_comm);
        else
            MPI_Error_class(receive_short(way, &host, &device, room), &class);
        must(code == MPI_SUCCESS && class == MPI_ERR_TRUNCATE,
             "%d by way %d with %d bytes: class %d", i, way, room, class);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (unsigned i = 0; i < OTHERS; i++)
        pass(&device, TAG + WAYS, i, true);
    size_t after = memory_left();
    must(after + REST_BYTES > before, "%zu bytes are held", before - after);
    memory_free(&host);
    memory_free(&device);
}

static void cut_off(int number)
{
    (void)number;
    with_each_room(cut_off_with);
}

// Every other message is received so, in each way: those between them go as ever.
static void cut_off_some_with(int room)
{
    enum { MESSAGES = 40, OTHERS = 40 };
    struct memory device = memory_new(MEMORY_DEVICE, BYTES), host = memory_new(MEMORY_HOST, BYTES);
    for (unsigned i = 0; i < OTHERS; i++)
        pass(&device, TAG + WAYS, i, false);
    for (int i = 0; i < WAYS * MESSAGES; i++) {
        enum way way = (enum way)(i % WAYS);
        if (rank == 0)
            MPI_Send(device.address, BYTES, MPI_BYTE, 1, TAG + (int)way, on_comm);
        else
            (void)receive_short(way, &host, &device, room);
        pass(&device, TAG + (int)way, (unsigned)i, true);
    }
    memory_free(&host);
    memory_free(&device);
}

static void cut_off_some(int number)
{
    (void)number;
    with_each_room(cut_off_some_with);
}

// ---- messages without a receive

// Their communicator is freed with them, more often than there is room for as many messages: the
// memory that they had is there for the next ones.
static void freed_comm(int number)
{
    enum { MESSAGES = 300, OTHERS = 40, ROUNDS = 2, REST_BYTES = 8 << 20 };
    struct memory device = memory_new(MEMORY_DEVICE, BYTES);
    MPI_Comm comm;
    (void)number;
    for (unsigned i = 0; i < OTHERS; i++)
        pass(&device, TAG, i, false);
    size_t before = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < MESSAGES && rank == 0; i++)
            MPI_Send(device.address, BYTES, MPI_BYTE, 1, i, comm);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Comm_free(&comm);
        MPI_Barrier(MPI_COMM_WORLD);
        before = round == 0 ? memory_left() : before;
    }
    for (unsigned i = 0; i < OTHERS; i++)
        pass(&device, TAG, i, true);
    size_t after = memory_left();
    must(after + REST_BYTES > before, "%zu bytes are held", before - after);
}

// A message that was matched and is received later has its bytes, though its communicator has been
// freed meanwhile, or the next message was cut off (`number` is 1). Its RTS is as long as itself.
static void matched(int number)
{
    enum { SHORT = 60, ROOM = 16, OTHERS = 40 };
    struct memory device = memory_new(MEMORY_DEVICE, BYTES);
    char room[ROOM];
    MPI_Message message;
    MPI_Comm comm;
    for (unsigned i = 0; i < OTHERS; i++)
        pass(&device, TAG, i, false);
    fill(&device, SHORT, rank == 0 ? 5 : 6);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i <= number && rank == 0; i++)
        MPI_Send(device.address, SHORT, MPI_BYTE, 1, TAG, comm);
    if (rank == 1)
        MPI_Mprobe(0, TAG, comm, &message, MPI_STATUS_IGNORE);
    if (rank == 1 && number == 1)
        must(MPI_Recv(room, ROOM, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE) != MPI_SUCCESS,
             "nothing was cut off");
    MPI_Comm_free(&comm);
    if (rank == 1)
        MPI_Mrecv(device.address, SHORT, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    must(is_filled(&device, SHORT, 5), "the message came otherwise");
}

// ---- host messages as long as an RTS

// The receiver asks for the size of each message before it receives it, or not.
static void receive_sized(void *data, int bytes, bool probes)
{
    MPI_Status status;
    int found = bytes;
    if (probes) {
        MPI_Probe(0, TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &found);
    }
    must(found == bytes, "a message of %d bytes shows %d", bytes, found);
    MPI_Recv(data, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &found);
    must(found == bytes, "a message of %d bytes has %d", bytes, found);
}

// Each is followed by a message of device memory that goes the same way, or `number` of them.
static void as_rts(int number)
{
    enum { ROUNDS = 60, LONGEST = 3936, SHORTEST = 656 };
    struct memory device = memory_new(MEMORY_DEVICE, BYTES);
    char host[LONGEST] = {0};
    for (unsigned i = 0; i < ROUNDS; i++)
        pass(&device, TAG, i, false);
    for (unsigned i = 0; i < ROUNDS; i++) {
        int bytes = SHORTEST * (1 + (int)i % (LONGEST / SHORTEST));
        fill(&device, BYTES, i + (unsigned)rank);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Send(host, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        else
            receive_sized(host, bytes, i % 3 != 0);
        for (int k = 0; k < number; k++) {
            if (rank == 0)
                MPI_Ssend(device.address, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            else
                receive_sized(device.address, BYTES, i % 2 == 0);
        }
        must(is_filled(&device, BYTES, i), "message %u came otherwise", i);
    }
}

// ---- phases of host memory

// Sends that leave before their receiver comes, as often as it takes that it has mapped the memory.
static void leave_many(const struct memory *memory, size_t bytes)
{
    enum { TIMES = 4, MESSAGES = 16, LATE_US = 300000 };
    MPI_Request requests[MESSAGES];
    for (int i = 0; i < TIMES; i++) {
        if (rank == 1 && i > 0)
            usleep(LATE_US);
        for (int k = 0; k < MESSAGES; k++) {
            if (rank == 0)
                MPI_Isend(memory->address, (int)bytes, MPI_BYTE, 1, k, MPI_COMM_WORLD,
                          &requests[k]);
            else
                MPI_Irecv(memory->address, (int)bytes, MPI_BYTE, 0, k, MPI_COMM_WORLD,
                          &requests[k]);
        }
        if (rank == 1 && i > 0)
            usleep(LATE_US / 3);
        MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

// After a phase of device memory comes one of host memory alone, in which all that was taken for
// the former is to go back.
static void host_phase(int number)
{
    enum { BYTES_EACH = 4 << 20, REST_BYTES = 8 << 20, LIMIT = 15000, PAUSE_US = 2000 };
    struct memory device = memory_new(MEMORY_DEVICE, BYTES_EACH);
    char out[2000] = {0}, in[2000];
    size_t before = memory_left();
    int held = 1;
    (void)number;
    leave_many(&device, BYTES_EACH);
    must(rank != 0 || memory_left() + 2 * REST_BYTES < before, "nothing was held");
    for (int i = 0; i < LIMIT && held; i++) {
        MPI_Sendrecv(out, sizeof(out), MPI_BYTE, 1 - rank, TAG, in, sizeof(in), MPI_BYTE, 1 - rank,
                     TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        held = memory_left() + REST_BYTES < before;
        MPI_Allreduce(MPI_IN_PLACE, &held, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        usleep(PAUSE_US);
    }
    must(!held, "%zu bytes are held", before - memory_left());
}

// ---- ranks that fail

static volatile sig_atomic_t is_over; // the receive has failed

static void note_over(int number)
{
    (void)number;
    is_over = 1;
}

// A sender on another host gives nothing more of a message for longer than FABRAIL_TIMEOUT, as one
// that has died. The receive fails. Bytes that the sender gives later come to no other message.
static void silent_sender(int number)
{
    enum { BIG = 32 << 20, LATER = 3, LATER_TAG = 40, NAP_US = 10000 };
    struct memory memory = memory_new(MEMORY_DEVICE, BIG);
    MPI_Request request = MPI_REQUEST_NULL;
    (void)number;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int sender = (int)getpid();
    signal(SIGUSR1, note_over);
    MPI_Bcast(&sender, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < LATER; i++) { // until the MPI library has connected them
        pass(&memory, TAG, (unsigned)i, true);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    fill(&memory, BIG, (unsigned)rank);
    if (rank == 0) {
        MPI_Isend(memory.address, BIG, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        while (!is_over) // in no call of MPI
            usleep(NAP_US);
    } else {
        int code =
            MPI_Recv(memory.address, BIG, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(code != MPI_SUCCESS, "no error of a message whose sender is silent");
        kill(sender, SIGUSR1);
    }
    for (int i = 0; i < LATER; i++) {
        MPI_Request later = MPI_REQUEST_NULL;
        struct memory other = memory_new(MEMORY_DEVICE, BIG);
        fill(&other, BIG, 5 + (unsigned)(rank + i));
        if (rank == 0)
            MPI_Isend(other.address, BIG, MPI_BYTE, 1, LATER_TAG, MPI_COMM_WORLD, &later);
        else
            must(MPI_Recv(other.address, BIG, MPI_BYTE, 0, LATER_TAG, MPI_COMM_WORLD,
                          MPI_STATUS_IGNORE) == MPI_SUCCESS,
                 "an error of a later message");
        MPI_Wait(&later, MPI_STATUS_IGNORE);
        must(is_filled(&other, BIG, 5 + (unsigned)i), "wrong bytes of a later message");
        memory_free(&other);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    memory_free(&memory);
}

static int (*recovery_call(const char *name))(MPI_Comm, void *)
{
    int (*call)(MPI_Comm, void *);
    *(void **)&call = dlsym(RTLD_DEFAULT, name);
    must(call != NULL, "the MPI library has no %s", name);
    return call;
}

// Rank 1 fails, and the others go on without it, as the fault tolerance of Open MPI 5 has it.
static void failed_rank(int number)
{
    enum { ROUNDS = 6, FAILS_IN = 3 };
    int (*revoke)(MPI_Comm, void *) = recovery_call("MPIX_Comm_revoke");
    int (*agree)(MPI_Comm, void *) = recovery_call("MPIX_Comm_agree");
    int (*shrink)(MPI_Comm, void *) = recovery_call("MPIX_Comm_shrink");
    MPI_Comm comm, smaller;
    (void)number;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < ROUNDS; i++) {
        int one = 1, all = 0;
        if (i == FAILS_IN && rank == 1)
            raise(SIGKILL);
        int goes_on = MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS;
        if (!goes_on)
            revoke(comm, NULL);
        agree(comm, &goes_on);
        if (goes_on)
            continue;
        must(shrink(comm, &smaller) == MPI_SUCCESS, "no communicator without the failed rank");
        comm = smaller;
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
}

const struct transparency transparency_held[] = {
    {"cut-off", cut_off, false},
    {"cut-off-some", cut_off_some, false},
    {"freed-comm", freed_comm, false},
    {"matched", matched, false},
    {"as-rts", as_rts, false},
    {"host-phase", host_phase, false},
    {"failed-rank", failed_rank, false},
    {"silent-sender", silent_sender, false},
    {NULL, NULL, false},
};
