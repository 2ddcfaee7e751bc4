// SPDX-License-Identifier: BSD-3-Clause
// Something of the application's own is under way, which goes on only if the MPI library of rank 0
// is given time while that rank waits for device memory to be moved; and rank 1 comes to that only
// when it has gone on.
//
// The number says what is under way: 0 a large message, 1 a collective operation.
#include "transparency.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    DEVICE_BYTES = 1 << 16, // of each message, or for each rank
    UNDER_WAY_BYTES = 8 << 20,
    ROUNDS = 6, // until the memory of all is mapped
    LATE_US = 200000,
    TAG = 5,
};

struct under_way {
    char *bytes, *result;
    MPI_Request request;
    MPI_Comm comm;
    bool collective;
};

struct job {
    struct memory out, in;
    struct under_way other;
    bool late; // the round that counts
};

static void begin(struct under_way *other)
{
    if (other->collective)
        MPI_Iallreduce(other->bytes, other->result, UNDER_WAY_BYTES, MPI_CHAR, MPI_MAX, other->comm,
                       &other->request);
    else if (rank == 0)
        MPI_Isend(other->bytes, UNDER_WAY_BYTES, MPI_CHAR, 1, TAG, other->comm, &other->request);
}

static void end(struct under_way *other)
{
    if (!other->collective && rank == 1)
        MPI_Recv(other->result, UNDER_WAY_BYTES, MPI_CHAR, 0, TAG, other->comm, MPI_STATUS_IGNORE);
    MPI_Wait(&other->request, MPI_STATUS_IGNORE);
    if (other->collective || rank == 1)
        must(other->result[0] == 1 && other->result[UNDER_WAY_BYTES - 1] == 1, "wrong bytes");
}

// Rank 0 goes ahead into what the case is about; the others come when the rest is done.
static void come(struct job *job)
{
    if (!job->late)
        return;
    begin(&job->other);
    if (rank == 0)
        return;
    usleep(LATE_US);
    end(&job->other);
}

static void gone(struct job *job)
{
    if (job->late && rank == 0)
        end(&job->other);
}

static void alltoall(struct job *job)
{
    come(job);
    MPI_Alltoall(job->out.address, DEVICE_BYTES, MPI_BYTE, job->in.address, DEVICE_BYTES, MPI_BYTE,
                 MPI_COMM_WORLD);
}

static void ialltoall(struct job *job)
{
    MPI_Request request;
    come(job);
    MPI_Ialltoall(job->out.address, DEVICE_BYTES, MPI_BYTE, job->in.address, DEVICE_BYTES, MPI_BYTE,
                  MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void receive(struct job *job)
{
    if (rank == 1)
        MPI_Recv(job->in.address, DEVICE_BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void send(struct job *job)
{
    come(job);
    if (rank == 0)
        MPI_Send(job->out.address, DEVICE_BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD);
    receive(job);
}

static void isend(struct job *job)
{
    MPI_Request request = MPI_REQUEST_NULL;
    come(job);
    if (rank == 0)
        MPI_Isend(job->out.address, DEVICE_BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, &request);
    receive(job);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void isend_any(struct job *job)
{
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int index;
    come(job);
    if (rank == 0)
        MPI_Isend(job->out.address, DEVICE_BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD,
                  &requests[1]);
    receive(job);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
}

static void isend_test(struct job *job)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int done = 0;
    come(job);
    if (rank == 0)
        MPI_Isend(job->out.address, DEVICE_BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD, &request);
    receive(job);
    while (!done)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

static void persistent_send(struct job *job)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0)
        MPI_Send_init(job->out.address, DEVICE_BYTES, MPI_BYTE, 1, TAG + 1, MPI_COMM_WORLD,
                      &request);
    come(job);
    if (rank == 0)
        MPI_Start(&request);
    receive(job);
    if (rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
}

// The message that is probed for comes after rank 1 has received the other one.
static void mprobe(struct job *job)
{
    MPI_Message message;
    come(job);
    if (rank == 1)
        MPI_Send(job->out.address, DEVICE_BYTES, MPI_BYTE, 0, TAG + 1, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Mprobe(1, TAG + 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(job->in.address, DEVICE_BYTES, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    }
}

static void run(void (*one)(struct job *job), int number)
{
    struct job job = {
        .out = memory_new(MEMORY_DEVICE, (size_t)size * DEVICE_BYTES),
        .in = memory_new(MEMORY_DEVICE, (size_t)size * DEVICE_BYTES),
        .other = {.bytes = malloc(UNDER_WAY_BYTES),
                  .result = calloc(1, UNDER_WAY_BYTES),
                  .request = MPI_REQUEST_NULL,
                  .collective = number == 1},
    };
    must(job.other.bytes && job.other.result, "no memory");
    for (size_t i = 0; i < UNDER_WAY_BYTES; i++)
        job.other.bytes[i] = 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &job.other.comm);
    fill(&job.out, (size_t)size * DEVICE_BYTES, (unsigned)rank);
    for (int round = 0; round <= ROUNDS; round++) {
        job.late = round == ROUNDS;
        one(&job);
        gone(&job);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Comm_free(&job.other.comm);
    memory_free(&job.out);
    memory_free(&job.in);
    free(job.other.bytes);
    free(job.other.result);
}

static void run_alltoall(int number)
{
    run(alltoall, number);
}

static void run_ialltoall(int number)
{
    run(ialltoall, number);
}

static void run_send(int number)
{
    run(send, number);
}

static void run_isend(int number)
{
    run(isend, number);
}

static void run_isend_any(int number)
{
    run(isend_any, number);
}

static void run_isend_test(int number)
{
    run(isend_test, number);
}

static void run_persistent_send(int number)
{
    run(persistent_send, number);
}

static void run_mprobe(int number)
{
    run(mprobe, number);
}

// A send whose request is gone may end in MPI_Finalize.
static void finalize(int number)
{
    char *bytes = calloc(1, UNDER_WAY_BYTES); // MPI's until the end
    MPI_Request request;
    (void)number;
    if (rank == 0) {
        MPI_Isend(bytes, UNDER_WAY_BYTES, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    } else if (rank == 1) {
        usleep(LATE_US);
        MPI_Recv(bytes, UNDER_WAY_BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

const struct transparency transparency_progress[] = {
    {"progress-alltoall", run_alltoall, false},
    {"progress-ialltoall", run_ialltoall, false},
    {"progress-send", run_send, false},
    {"progress-isend", run_isend, false},
    {"progress-isend-any", run_isend_any, false},
    {"progress-isend-test", run_isend_test, false},
    {"progress-persistent-send", run_persistent_send, false},
    {"progress-mprobe", run_mprobe, false},
    {"progress-finalize", finalize, false},
    {NULL, NULL, false},
};
