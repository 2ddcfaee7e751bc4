// SPDX-License-Identifier: BSD-3-Clause
// Several threads of each rank communicate at once, each on a communicator of its own, with buffers
// of every kind of memory.
#include "completion.h"
#include "harness.h"
#include "types.h"

#include <pthread.h>
#include <stdlib.h>

enum { TAG = 81, THREADS = 4, ROUNDS = 6, SHARED_ROUNDS = 8 };

// A thread works on a run of its own, so that rounds and failures are not shared.
struct worker {
    pthread_t thread;
    struct run run;
    int number;
    size_t bytes;
};

static void ring_round(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct buffer *send = buffer_filled(run, "send", bytes, run_seed(run, run->rank, right));
    struct buffer *recv = buffer_new(run, "recv", bytes);
    MPI_Request requests[2];
    MPI_Irecv(recv->data, (int)bytes, MPI_BYTE, left, TAG, run->comm, &requests[0]);
    MPI_Isend(send->data, (int)bytes, MPI_BYTE, right, TAG, run->comm, &requests[1]);
    complete((enum completion)(run->round % COMPLETIONS), 2, requests, NULL, NULL);
    buffer_expect(recv, 0, bytes, run_seed(run, left, run->rank));
    buffer_finish(recv);
    buffer_finish(send);
}

static void types_round(struct run *run, size_t bytes)
{
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    struct shape shape = shape_new((int)(run->round % (uint64_t)(shape_count() - 1)),
                                   (int)(bytes / sizeof(int)) + 1);
    struct buffer *send = shape_filled(run, "send", &shape, run_seed(run, run->rank, 0));
    struct buffer *recv = shape_buffer(run, shape.name, &shape);
    MPI_Sendrecv(shape_address(send, &shape), shape.count, shape.type, right, TAG,
                 shape_address(recv, &shape), shape.count, shape.type, left, TAG, run->comm,
                 MPI_STATUS_IGNORE);
    shape_expect(recv, &shape, &shape, run_seed(run, left, 0));
    buffer_finish(recv);
    buffer_finish(send);
    shape_free(&shape);
}

static void collective_round(struct run *run, size_t bytes)
{
    size_t all = bytes * (size_t)run->size;
    struct buffer *send = buffer_new(run, "send", all), *recv = buffer_new(run, "recv", all);
    MPI_Request request;
    for (int peer = 0; peer < run->size; peer++)
        buffer_expect(send, (size_t)peer * bytes, bytes, run_seed(run, run->rank, peer));
    buffer_upload(send);
    if (run->round % 2 == 0) {
        MPI_Alltoall(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE, run->comm);
    } else {
        MPI_Ialltoall(send->data, (int)bytes, MPI_BYTE, recv->data, (int)bytes, MPI_BYTE, run->comm,
                      &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int peer = 0; peer < run->size; peer++)
        buffer_expect(recv, (size_t)peer * bytes, bytes, run_seed(run, peer, run->rank));
    buffer_finish(recv);
    buffer_finish(send);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct run *run = &worker->run;
    memory_thread_attach();
    for (int i = 0; i < ROUNDS; i++) {
        run->round++;
        switch ((i + worker->number) % 3) {
        case 0:
            ring_round(run, worker->bytes);
            break;
        case 1:
            types_round(run, worker->bytes);
            break;
        default:
            collective_round(run, worker->bytes);
        }
    }
    run_check(run, memory_context_unchanged(), "the current context of a thread has changed");
    return NULL;
}

// Threads whose runs begin like this one's. Each has its own data and messages.
static void workers_start(struct run *run, size_t bytes, struct worker *workers,
                          void *(*body)(void *argument))
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].run = *run;
        workers[i].run.checks = workers[i].run.failures = 0;
        workers[i].run.round += (uint64_t)(i + 1) * 1000;
        workers[i].number = i;
        workers[i].bytes = bytes;
        if (body == work)
            MPI_Comm_dup(run->comm, &workers[i].run.comm);
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&workers[i].thread, NULL, body, &workers[i]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
}

static void workers_join(struct run *run, struct worker *workers)
{
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        run->checks += workers[i].run.checks;
        run->failures += workers[i].run.failures;
        if (workers[i].run.comm != run->comm)
            MPI_Comm_free(&workers[i].run.comm);
    }
    run->round += (uint64_t)(THREADS + 1) * 1000;
}

static void step_own_communicators(struct run *run, size_t bytes)
{
    struct worker workers[THREADS];
    workers_start(run, bytes, workers, work);
    workers_join(run, workers);
}

// All threads on one communicator, told apart by their tags.
static void *work_shared(void *argument)
{
    struct worker *worker = argument;
    struct run *run = &worker->run;
    int left = (run->rank + run->size - 1) % run->size, right = (run->rank + 1) % run->size;
    int tag = TAG + worker->number;
    memory_thread_attach();
    for (int i = 0; i < SHARED_ROUNDS; i++) {
        run->round++;
        struct buffer *send =
            buffer_filled(run, "send", worker->bytes, run_seed(run, run->rank, right));
        struct buffer *recv = buffer_new(run, "recv", worker->bytes);
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(send->data, (int)worker->bytes, MPI_BYTE, right, tag, run->comm, &request);
        MPI_Recv(recv->data, (int)worker->bytes, MPI_BYTE, left, tag, run->comm, &status);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        status_check(run, &status, left, tag, MPI_BYTE, (int)worker->bytes);
        buffer_expect(recv, 0, worker->bytes, run_seed(run, left, run->rank));
        buffer_finish(recv);
        buffer_finish(send);
    }
    return NULL;
}

static void step_one_communicator(struct run *run, size_t bytes)
{
    struct worker workers[THREADS];
    workers_start(run, bytes, workers, work_shared);
    workers_join(run, workers);
}

static const struct step steps[] = {
    {"own communicators", step_own_communicators, LIMIT_SMALL, 1},
    {"one communicator", step_one_communicator, LIMIT_SMALL, 1},
};

int main(int argc, char **argv)
{
    const struct program program = {.name = "threads",
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_MULTIPLE};
    return program_main(argc, argv, &program);
}
