// SPDX-License-Identifier: BSD-3-Clause
// Point to point on communicators of other kinds: between two groups, with other ranks than
// MPI_COMM_WORLD has, made and freed from round to round; and by two threads at once.
#include "corners.h"

#include <pthread.h>

// One message, received in one of several ways.
static void round_mixed(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Request request;
    MPI_Status status = LANE_NO_STATUS;
    MPI_Message message;
    if (lane->sends) {
        void *data = lane_give(lane, 0, lane->bytes);
        if (lane->round / 4 % 2 == 0) {
            MPI_Send(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm);
            return;
        }
        MPI_Isend(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return;
    }
    void *data = lane_take(lane, 0);
    switch (lane->round % 5) {
    case 0:
        MPI_Recv(data, count, MPI_BYTE, lane->partner, lane->tag, lane->comm, &status);
        break;
    case 1:
        MPI_Irecv(data, count, MPI_BYTE, MPI_ANY_SOURCE, lane->tag, lane->comm, &request);
        MPI_Wait(&request, &status);
        break;
    case 2:
        MPI_Probe(MPI_ANY_SOURCE, lane->tag, lane->comm, &status);
        lane_status(lane, &status, lane->tag, lane->bytes);
        MPI_Recv(data, count, MPI_BYTE, status.MPI_SOURCE, lane->tag, lane->comm, &status);
        break;
    case 3:
        MPI_Mprobe(lane->partner, lane->tag, lane->comm, &message, &status);
        lane_status(lane, &status, lane->tag, lane->bytes);
        MPI_Mrecv(data, count, MPI_BYTE, &message, &status);
        break;
    default:
        MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, lane->tag, data, count, MPI_BYTE,
                     lane->partner, lane->tag, lane->comm, &status);
    }
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

static void round_exchange(struct lane *lane)
{
    int count = (int)lane->bytes;
    MPI_Status status;
    void *out = lane_give(lane, 0, lane->bytes), *in = lane_take(lane, 0);
    MPI_Sendrecv(out, count, MPI_BYTE, lane->partner, lane->tag, in, count, MPI_BYTE, lane->partner,
                 lane->tag, lane->comm, &status);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// To oneself, from both threads.
static void round_own(struct lane *lane)
{
    int count = (int)lane->bytes, self = lane->run->rank;
    MPI_Request request;
    MPI_Status status;
    lane->from = lane->to = lane->partner = self;
    void *out = lane_give(lane, 0, lane->bytes), *in = lane_take(lane, 0);
    MPI_Isend(out, count, MPI_BYTE, self, lane->tag, lane->comm, &request);
    MPI_Recv(in, count, MPI_BYTE, self, lane->tag, lane->comm, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    lane_status(lane, &status, lane->tag, lane->bytes);
    lane_got(lane, 0, lane->bytes);
}

// Even and odd ranks form a group each; partners have the same rank in the two.
static void between_groups(struct lane *base, const struct corner *corner)
{
    struct run *run = base->run;
    int side = run->rank % 2;
    MPI_Comm half;
    MPI_Comm_split(run->comm, side, run->rank, &half);
    MPI_Intercomm_create(half, 0, run->comm, 1 - side, base->tag, &base->comm);
    base->partner = run->rank / 2;
    lanes_run(base, corner);
    MPI_Comm_free(&base->comm);
    MPI_Comm_free(&half);
}

// Ranks in the opposite order.
static void backwards(struct lane *base, const struct corner *corner)
{
    struct run *run = base->run;
    MPI_Comm_split(run->comm, 0, -run->rank, &base->comm);
    base->partner = run->size - 1 - base->buddy;
    lanes_run(base, corner);
    MPI_Comm_free(&base->comm);
}

// A communicator for one message: a duplicate, the ranks backwards, or the pair alone. It is freed
// when the message has arrived, and the next one may get its handle.
static void round_brief(struct lane *lane)
{
    struct run *run = lane->run;
    struct lane brief = *lane;
    switch (lane->round / 4 % 3) {
    case 0:
        MPI_Comm_dup(run->comm, &brief.comm);
        break;
    case 1:
        MPI_Comm_split(run->comm, 0, -run->rank, &brief.comm);
        brief.partner = run->size - 1 - lane->buddy;
        break;
    default:
        MPI_Comm_split(run->comm, run->rank / 2, run->rank, &brief.comm);
        brief.partner = lane->buddy % 2;
    }
    round_mixed(&brief);
    lane_check(&brief);
    MPI_Comm_free(&brief.comm);
}

enum { THREADS = 2 };

struct worker {
    pthread_t thread;
    struct run run;
    struct lane base;
    const struct corner *corner;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    memory_thread_attach();
    lanes_run(&worker->base, worker->corner);
    run_check(&worker->run, memory_context_unchanged(), "the context of a thread has changed");
    return NULL;
}

// Two threads with tags of their own, going opposite ways: on one communicator, or, with a variant,
// each on its own.
static void by_threads(struct lane *base, const struct corner *corner)
{
    struct worker workers[THREADS];
    struct run *run = base->run;
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
        return;
    MPI_Comm_dup(run->comm, &base->other);
    for (int i = 0; i < THREADS; i++) {
        struct worker *worker = &workers[i];
        *worker = (struct worker){.run = *run, .base = *base, .corner = corner};
        worker->run.checks = worker->run.failures = 0;
        worker->run.round += (uint64_t)(i + 1) * 100001;
        worker->base.run = &worker->run;
        worker->base.tag += i * LANE_TAGS;
        if (corner->variant != 0 && i == 0)
            worker->base.comm = base->other;
        if (pthread_create(&worker->thread, NULL, work, worker) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        run->checks += workers[i].run.checks;
        run->failures += workers[i].run.failures;
    }
    run->round += (uint64_t)(THREADS + 1) * 100001;
    MPI_Comm_free(&base->other);
}

static const struct corner list[] = {
    {.name = "between groups", .round = round_mixed, .around = between_groups},
    {.name = "between groups both ways",
     .round = round_exchange,
     .around = between_groups,
     .both_ways = true,
     .most = 65536},
    {.name = "backwards", .round = round_mixed, .around = backwards, .most = 65536},
    {.name = "brief communicators", .round = round_brief, .most = 65536, .rounds = 12},
    {.name = "threads", .round = round_mixed, .around = by_threads, .most = 65536},
    {.name = "threads apart",
     .round = round_exchange,
     .around = by_threads,
     .variant = 1,
     .both_ways = true,
     .most = 65536},
    {.name = "threads to themselves",
     .round = round_own,
     .around = by_threads,
     .both_ways = true,
     .most = 65536},
};

struct corners corners_groups(void)
{
    return (struct corners){list, COUNT_OF(list)};
}
