// SPDX-License-Identifier: BSD-3-Clause
// Several threads at the same messages: one waits or receives, another one probes or makes ready.
#include "transparency.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

// MPIs give MPI_STATUSES_IGNORE a small address, which gcc takes for an array that is too short.
#pragma GCC diagnostic ignored "-Wstringop-overflow"

enum { TAG = 5, TELL_TAG = 6, GO_TAG = 7, ROUNDS = 300, FEW = 1024, MORE = 2048, BATCH = 8 };

// Rank 1 sends as often as it takes rank 0 to map the memory.
static void warm(const struct memory *memory, int count)
{
    enum { MESSAGES = 12 };
    for (int i = 0; i < MESSAGES; i++) {
        if (rank == 1)
            MPI_Send(memory->address, count, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(memory->address, count, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

struct turns {
    enum memory_kind kind; // that is received into
    sem_t begin, posted, over;
};

// Waits for the first of two messages and a word that ends the round.
static void *wait_for_first(void *argument)
{
    struct turns *turns = argument;
    memory_thread_attach();
    struct memory memory = memory_new(turns->kind, FEW * sizeof(double));
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[2];
        int word;
        sem_wait(&turns->begin);
        MPI_Irecv(memory.address, FEW, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&word, 1, MPI_INT, 1, TELL_TAG, MPI_COMM_WORLD, &requests[1]);
        sem_post(&turns->posted);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        sem_post(&turns->over);
    }
    memory_free(&memory);
    return NULL;
}

// The first is the other thread's, since that has begun to receive it.
static void probe_second(struct turns *turns, const struct memory *memory, int i)
{
    MPI_Status status;
    int flag = 0, count = 0;
    sem_post(&turns->begin);
    sem_wait(&turns->posted);
    MPI_Send(&i, 1, MPI_INT, 1, GO_TAG, MPI_COMM_WORLD);
    while (!flag)
        MPI_Iprobe(1, TAG, MPI_COMM_WORLD, &flag, &status);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    must(count == MORE, "the probe of round %d says %d, not %d", i, count, MORE);
    MPI_Recv(memory->address, MORE, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD, &status);
    MPI_Send(&i, 1, MPI_INT, 1, GO_TAG, MPI_COMM_WORLD);
    sem_wait(&turns->over);
}

static void send_both(const struct memory *few, const struct memory *more)
{
    MPI_Request requests[2];
    int word;
    MPI_Recv(&word, 1, MPI_INT, 0, GO_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Isend(few->address, FEW, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(more->address, MORE, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(&word, 1, MPI_INT, 0, GO_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&word, 1, MPI_INT, 0, TELL_TAG, MPI_COMM_WORLD);
}

// A probe beside a thread that waits for a message of the same envelope, into memory of the host,
// or of a device if the number is not 0.
static void probe_beside(int number)
{
    struct turns turns = {.kind = number ? MEMORY_DEVICE : MEMORY_HOST};
    struct memory few = memory_new(MEMORY_DEVICE, FEW * sizeof(double));
    struct memory more = memory_new(MEMORY_DEVICE, MORE * sizeof(double));
    pthread_t thread;
    warm(&few, FEW);
    warm(&more, MORE);
    if (rank == 0) {
        sem_init(&turns.begin, 0, 0);
        sem_init(&turns.posted, 0, 0);
        sem_init(&turns.over, 0, 0);
        must(pthread_create(&thread, NULL, wait_for_first, &turns) == 0, "no thread");
        for (int i = 0; i < ROUNDS; i++)
            probe_second(&turns, &more, i);
        pthread_join(thread, NULL);
    } else {
        for (int i = 0; i < ROUNDS; i++)
            send_both(&few, &more);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    memory_free(&few);
    memory_free(&more);
}

static int count_of(int message)
{
    return 600 + 100 * (message % BATCH);
}

// Messages say how long they are.
static void must_say(const struct memory *memory, int count, const char *what)
{
    double said;
    memory_read(memory, 0, &said, sizeof(said));
    must((int)said == count, "%s has %d of %d", what, count, (int)said);
}

// Receives half of the messages: at once, later, into every second place, or into device memory.
static void *receive_half(void *argument)
{
    enum { AT_ONCE, LATER, APART, TO_DEVICE, WAYS };
    MPI_Datatype apart;
    (void)argument;
    memory_thread_attach();
    struct memory host = memory_new(MEMORY_HOST, 2 * MORE * sizeof(double));
    struct memory device = memory_new(MEMORY_DEVICE, MORE * sizeof(double));
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &apart);
    MPI_Type_commit(&apart);
    for (int i = 0; i < ROUNDS * BATCH / 2; i++) {
        int way = i % WAYS, count = 0;
        struct memory *memory = way == TO_DEVICE ? &device : &host;
        MPI_Request request;
        MPI_Status status;
        if (way == LATER) {
            MPI_Irecv(host.address, MORE, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, &status);
        } else {
            MPI_Recv(memory->address, MORE, way == APART ? apart : MPI_DOUBLE, 1, TAG,
                     MPI_COMM_WORLD, &status);
        }
        MPI_Get_count(&status, MPI_DOUBLE, &count);
        must_say(memory, count, "a receive");
    }
    MPI_Type_free(&apart);
    memory_free(&device);
    memory_free(&host);
    return NULL;
}

// Takes the other half.
static void match_half(void)
{
    struct memory memory = memory_new(MEMORY_HOST, MORE * sizeof(double));
    for (int i = 0; i < ROUNDS * BATCH / 2; i++) {
        MPI_Message message;
        MPI_Status status;
        int count = 0;
        MPI_Mprobe(1, TAG, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_DOUBLE, &count);
        MPI_Mrecv(memory.address, MORE, MPI_DOUBLE, &message, &status);
        must_say(&memory, count, "a matched message");
    }
    memory_free(&memory);
}

static void send_all(const struct memory memory[BATCH])
{
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[BATCH];
        for (int k = 0; k < BATCH; k++)
            MPI_Isend(memory[k].address, count_of(k), MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD,
                      &requests[k]);
        MPI_Waitall(BATCH, requests, MPI_STATUSES_IGNORE);
    }
}

// Two threads share the messages of one envelope, one of which takes them by matching.
static void match_beside(int number)
{
    struct memory memory[BATCH];
    pthread_t thread;
    int flag;
    MPI_Message none;
    (void)number;
    for (int k = 0; k < BATCH; k++) {
        double said = count_of(k);
        memory[k] = memory_new(MEMORY_DEVICE, MORE * sizeof(double));
        warm(&memory[k], count_of(k));
        memory_write(&memory[k], 0, &said, sizeof(said));
    }
    if (rank == 0) {
        // From here on receives are known to be beside such calls.
        MPI_Improbe(1, TELL_TAG, MPI_COMM_WORLD, &flag, &none, MPI_STATUS_IGNORE);
        must(pthread_create(&thread, NULL, receive_half, NULL) == 0, "no thread");
        match_half();
        pthread_join(thread, NULL);
    } else {
        send_all(memory);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < BATCH; k++)
        memory_free(&memory[k]);
}

#if MPI_VERSION >= 4 && !defined OPEN_MPI
enum { PARTS = 4, BYTES = 1 << 16 };

struct parts {
    struct memory memory;
    MPI_Request request;
};

static void *make_ready(void *argument)
{
    struct parts *parts = argument;
    usleep(100000); // until the other thread waits
    memory_thread_attach();
    fill(&parts->memory, PARTS * BYTES, 6);
    for (int i = 0; i < PARTS; i++)
        MPI_Pready(i, parts->request);
    return NULL;
}

// One thread waits, or asks, for a send whose partitions another one makes ready.
static void ready_beside(int number)
{
    struct parts parts = {.memory = memory_new(MEMORY_DEVICE, PARTS * BYTES)};
    pthread_t thread;
    int flag = 0;
    fill(&parts.memory, PARTS * BYTES, 1);
    if (rank == 0)
        MPI_Psend_init(parts.memory.address, PARTS, BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &parts.request);
    else
        MPI_Precv_init(parts.memory.address, PARTS, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &parts.request);
    MPI_Start(&parts.request);
    MPI_Request same = parts.request;
    if (rank == 0)
        must(pthread_create(&thread, NULL, make_ready, &parts) == 0, "no thread");
    while (number > 0 && !flag)
        MPI_Test(&same, &flag, MPI_STATUS_IGNORE);
    if (number == 0)
        MPI_Wait(&same, MPI_STATUS_IGNORE);
    if (rank == 0)
        pthread_join(thread, NULL);
    must(is_filled(&parts.memory, PARTS * BYTES, 6), "wrong bytes");
    MPI_Request_free(&same);
    memory_free(&parts.memory);
}
#else
static void ready_beside(int number)
{
    (void)number;
}
#endif

const struct transparency transparency_threads[] = {
    {"probe-beside", probe_beside, true},
    {"match-beside", match_beside, true},
    {"ready-beside", ready_beside, true},
    {NULL, NULL, false},
};
