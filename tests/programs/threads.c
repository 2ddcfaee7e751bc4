// SPDX-License-Identifier: BSD-3-Clause
// Several threads of each rank communicate at once, on communicators of their own or on one, or
// through one window, with buffers of every kind of memory.
#include "completion.h"
#include "harness.h"
#include "types.h"

#include <pthread.h>
#include <stdlib.h>

enum { TAG = 81, THREADS = 4, ROUNDS = 6, SHARED_ROUNDS = 8, WINDOW_ROUNDS = 16 };

// A thread works on a run of its own, so that rounds and failures are not shared.
struct worker {
    pthread_t thread;
    struct run run;
    int number;
    size_t bytes;
    MPI_Win win;
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

static uint64_t round_of(const struct run *run, int thread)
{
    return run->round + (uint64_t)(thread + 1) * 1000;
}

// Threads whose runs begin like this one's. Each has its own data and messages.
static void workers_start(struct run *run, size_t bytes, struct worker *workers,
                          void *(*body)(void *argument))
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].run = *run;
        workers[i].run.checks = workers[i].run.failures = 0;
        workers[i].run.round = round_of(run, i);
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
    run->round = round_of(run, THREADS);
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

// One window, from which each thread reads a part of its own. Whichever of them synchronises it
// completes what the others have begun, too.
static void *work_window(void *argument)
{
    struct worker *worker = argument;
    struct run *run = &worker->run;
    int right = (run->rank + 1) % run->size, bytes = (int)worker->bytes;
    memory_thread_attach();
    for (int i = 0; i < WINDOW_ROUNDS; i++) {
        struct buffer *result = buffer_new(run, "result", worker->bytes);
        MPI_Get(result->data, bytes, MPI_BYTE, right, (MPI_Aint)worker->number * bytes, bytes,
                MPI_BYTE, worker->win);
        MPI_Win_flush(right, worker->win);
        buffer_expect(result, 0, worker->bytes, run_seed(run, right, -1));
        buffer_finish(result);
    }
    return NULL;
}

// Open MPI 4.1 has no windows for several threads where it cannot read other processes' memory.
static bool window_create(struct run *run, const struct buffer *memory, MPI_Win *win)
{
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_RETURN);
    int code =
        MPI_Win_create(memory->data, (MPI_Aint)memory->bytes, 1, MPI_INFO_NULL, run->comm, win);
    MPI_Comm_set_errhandler(run->comm, MPI_ERRORS_ARE_FATAL);
    return code == MPI_SUCCESS;
}

static void step_one_window(struct run *run, size_t bytes)
{
    struct worker workers[THREADS];
    struct buffer *memory = buffer_new_in(run, "window", THREADS * bytes, MEMORY_HOST);
    MPI_Win win;
    for (int i = 0; i < THREADS; i++) {
        struct run part = *run;
        part.round = round_of(run, i);
        buffer_expect(memory, (size_t)i * bytes, bytes, run_seed(&part, run->rank, -1));
    }
    buffer_upload(memory);
    if (window_create(run, memory, &win)) {
        MPI_Win_lock_all(0, win);
        for (int i = 0; i < THREADS; i++)
            workers[i].win = win;
        workers_start(run, bytes, workers, work_window);
        workers_join(run, workers);
        MPI_Win_unlock_all(win);
        MPI_Win_free(&win);
    }
    buffer_finish(memory);
}

static const struct step steps[] = {
    {"own communicators", step_own_communicators, LIMIT_SMALL, 1},
    {"one communicator", step_one_communicator, LIMIT_SMALL, 1},
    {"one window", step_one_window, LIMIT_SMALL, 1},
};

int main(int argc, char **argv)
{
    const struct program program = {.name = "threads",
                                    .steps = steps,
                                    .step_count = COUNT_OF(steps),
                                    .thread_level = MPI_THREAD_MULTIPLE};
    return program_main(argc, argv, &program);
}
