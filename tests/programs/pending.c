// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking collectives that are under way while others go on: many at once on communicators that
// overlap, mixed with blocking ones, while this process waits for something else, and beyond the
// life of their communicator.
#include "harness.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 10, FEW = 4, COMMS = 4 };

// Operations in the order in which they are begun: those that reduce, then those that move data.
enum kind {
    ALLREDUCE,
    REDUCE,
    SCAN,
    EXSCAN,
    SCATTER,
    BCAST,
    ALLTOALL,
    GATHER,
    ALLTOALLV,
    ALLGATHER,
    KINDS
};

struct operation {
    enum kind kind;
    MPI_Comm comm;
    int root;
    size_t at; // bytes before the result; no kernel stores to a misplaced one
    struct buffer *send, *receive;
    MPI_Request request;
    int *counts, *displacements; // of an ALLTOALLV: both sides'
};

static int value_of(const struct run *run, int rank, size_t index, int number)
{
    uint64_t word;
    pattern_write(&word, run_seed(run, rank, number), index * sizeof word, sizeof word);
    return (int)(word % 100000) - 50000;
}

// Returns the rank in run->comm of a rank of another communicator.
static int world_of(const struct run *run, MPI_Comm comm, int rank)
{
    MPI_Group some, all;
    int world = 0;
    MPI_Comm_group(comm, &some);
    MPI_Comm_group(run->comm, &all);
    MPI_Group_translate_ranks(some, 1, &rank, all, &world);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return world;
}

// Says what the receive buffer holds after an operation: elements [first, first + count) of the sum
// over ranks [0, end).
static void expect_sum(struct operation *op, int number, int end, size_t first, size_t count)
{
    const struct run *run = op->receive->run;
    int worlds[64];
    for (int rank = 0; rank < end; rank++)
        worlds[rank] = world_of(run, op->comm, rank);
    for (size_t i = 0; i < count; i++) {
        int sum = 0;
        for (int rank = 0; rank < end; rank++)
            sum += value_of(run, worlds[rank], first + i, number);
        memcpy(op->receive->want + op->at + i * sizeof sum, &sum, sizeof sum);
    }
}

// Says what the receive buffer holds: from element `to` on, what rank `from` has from element
// `first` on.
static void expect_from(struct operation *op, int number, int from, size_t first, size_t to,
                        size_t count)
{
    const struct run *run = op->receive->run;
    int world = world_of(run, op->comm, from);
    for (size_t i = 0; i < count; i++) {
        int value = value_of(run, world, first + i, number);
        memcpy(op->receive->want + op->at + (to + i) * sizeof value, &value, sizeof value);
    }
}

// Returns how much of the space for it a rank sends another one.
static int part_of(int from, int to, int count)
{
    return (from + 2 * to) % 3 == 0 ? 0 : count - (from + to) % 2 * (count > 1);
}

// Begins an exchange of unequal parts. Received parts lie in the order of ranks turned round.
static void begin_parts(struct operation *op, int size, int rank, int count, int number)
{
    op->counts = calloc(4 * (size_t)size, sizeof(int));
    op->displacements = op->counts + 2 * size;
    for (int other = 0; other < size; other++) {
        op->counts[other] = part_of(rank, other, count);
        op->counts[size + other] = part_of(other, rank, count);
        op->displacements[other] = other * count;
        op->displacements[size + other] = (size - 1 - other) * count;
        expect_from(op, number, other, (size_t)(rank * count), (size_t)((size - 1 - other) * count),
                    (size_t)part_of(other, rank, count));
    }
    MPI_Ialltoallv(op->send->data, op->counts, op->displacements, MPI_INT,
                   op->receive->data + op->at, op->counts + size, op->displacements + size, MPI_INT,
                   op->comm, &op->request);
}

// Ranks of several hosts find out in a call that waits that they can do without MPI.
static void meet(MPI_Comm comm)
{
    int own = 1, all = 0;
    if (getenv("FR_TEST_MEETS"))
        MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, comm);
}

static void begin(struct run *run, struct operation *op, size_t count, int number)
{
    int size, rank, n = (int)count;
    MPI_Comm_size(op->comm, &size);
    MPI_Comm_rank(op->comm, &rank);
    op->root = number % size;
    bool exchanges = op->kind == ALLTOALL || op->kind == ALLTOALLV;
    size_t each = count * (size_t)size;
    size_t sent = op->kind == SCATTER || exchanges ? each : count;
    bool gathers = exchanges || op->kind == ALLGATHER || op->kind == GATHER;
    op->send = buffer_new(run, "send", sent * sizeof(int));
    op->receive = buffer_new(run, "receive", (gathers ? each : count) * sizeof(int) + op->at);
    for (size_t i = 0; i < sent; i++) {
        int value = value_of(run, run->rank, i, number);
        memcpy(op->send->want + i * sizeof value, &value, sizeof value);
    }
    buffer_upload(op->send);
    static bool has_met;
    if (!has_met)
        meet(run->comm);
    has_met = true;
    void *from = op->send->data, *to = op->receive->data + op->at;
    switch (op->kind) {
    case ALLREDUCE:
        MPI_Iallreduce(from, to, n, MPI_INT, MPI_SUM, op->comm, &op->request);
        expect_sum(op, number, size, 0, count);
        break;
    case REDUCE:
        MPI_Ireduce(from, to, n, MPI_INT, MPI_SUM, op->root, op->comm, &op->request);
        expect_sum(op, number, rank == op->root ? size : 0, 0, rank == op->root ? count : 0);
        break;
    case SCAN:
        MPI_Iscan(from, to, n, MPI_INT, MPI_SUM, op->comm, &op->request);
        expect_sum(op, number, rank + 1, 0, count);
        break;
    case EXSCAN:
        MPI_Iexscan(from, to, n, MPI_INT, MPI_SUM, op->comm, &op->request);
        expect_sum(op, number, rank, 0, rank > 0 ? count : 0);
        break;
    case SCATTER:
        MPI_Ireduce_scatter_block(from, to, n, MPI_INT, MPI_SUM, op->comm, &op->request);
        expect_sum(op, number, size, (size_t)rank * count, count);
        break;
    case ALLTOALL:
        MPI_Ialltoall(from, n, MPI_INT, to, n, MPI_INT, op->comm, &op->request);
        for (int i = 0; i < size; i++)
            expect_from(op, number, i, (size_t)rank * count, (size_t)i * count, count);
        break;
    case ALLTOALLV:
        begin_parts(op, size, rank, n, number);
        break;
    case ALLGATHER:
        MPI_Iallgather(from, n, MPI_INT, to, n, MPI_INT, op->comm, &op->request);
        for (int i = 0; i < size; i++)
            expect_from(op, number, i, 0, (size_t)i * count, count);
        break;
    case GATHER:
        MPI_Igather(from, n, MPI_INT, to, n, MPI_INT, op->root, op->comm, &op->request);
        for (int i = 0; rank == op->root && i < size; i++)
            expect_from(op, number, i, 0, (size_t)i * count, count);
        break;
    default:
        MPI_Ibcast(rank == op->root ? from : to, n, MPI_INT, op->root, op->comm, &op->request);
        expect_from(op, number, op->root, 0, 0, rank == op->root ? 0 : count);
    }
}

static void finish(struct operation *op)
{
    free(op->counts);
    buffer_finish(op->send);
    buffer_finish(op->receive);
}

// A blocking one whose result all know.
static void reduce_now(struct run *run, MPI_Comm comm, size_t count, int number)
{
    int size;
    struct operation op = {.comm = comm};
    op.send = buffer_new(run, "send", count * sizeof(int));
    op.receive = buffer_new(run, "receive", count * sizeof(int));
    for (size_t i = 0; i < count; i++) {
        int value = value_of(run, run->rank, i, number);
        memcpy(op.send->want + i * sizeof value, &value, sizeof value);
    }
    buffer_upload(op.send);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(op.send->data, op.receive->data, (int)count, MPI_INT, MPI_SUM, comm);
    expect_sum(&op, number, size, 0, count);
    finish(&op);
}

static void wait_for_all(struct operation *ops, int count, int how)
{
    MPI_Request requests[MANY];
    int index = 0, flag = 0;
    for (int i = 0; i < count; i++)
        requests[i] = ops[i].request;
    switch (how % 4) {
    case 0:
        for (int i = count - 1; i >= 0; i--)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        break;
    case 1:
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        break;
    case 2:
        for (int i = 0; i < count; i++)
            MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
        break;
    default:
        while (!flag)
            MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < count; i++)
        finish(&ops[i]);
}

// The first collectives of a communicator are nonblocking. The communicator goes before they are
// complete, which Open MPI's own do not survive.
static void first(struct run *run, size_t bytes)
{
    struct operation ops[FEW];
    MPI_Comm comm;
    MPI_Comm_dup(run->comm, &comm);
    meet(comm);
    for (int i = 0; i < FEW; i++) {
        ops[i] = (struct operation){.kind = (enum kind)((unsigned)i % KINDS), .comm = comm};
        begin(run, &ops[i], bytes / sizeof(int), i);
    }
#ifdef OPEN_MPI
    wait_for_all(ops, FEW, (int)run->round);
    MPI_Comm_free(&comm);
#else
    MPI_Comm_free(&comm);
    wait_for_all(ops, FEW, (int)run->round);
#endif
}

static void make_comms(const struct run *run, MPI_Comm comms[COMMS])
{
    comms[0] = run->comm;
    MPI_Comm_dup(run->comm, &comms[1]);
    MPI_Comm_split(run->comm, run->rank % 2, -run->rank, &comms[2]);
    MPI_Comm_split(run->comm, run->rank > 0, run->rank, &comms[3]);
    for (int i = 1; i < COMMS; i++)
        meet(comms[i]);
}

static void many(struct run *run, size_t bytes)
{
    struct operation ops[MANY];
    MPI_Comm comms[COMMS];
    make_comms(run, comms);
    for (int time = 0; time < 4; time++) {
        for (int i = 0; i < MANY; i++) {
            ops[i] = (struct operation){.kind = (enum kind)((unsigned)(i + time) % KINDS),
                                        .comm = comms[i % COMMS]};
            begin(run, &ops[i], bytes / sizeof(int), time * MANY + i);
            if (i == MANY / 2)
                reduce_now(run, comms[time], bytes / sizeof(int), 1000 + time);
        }
        wait_for_all(ops, MANY, time + run->rank);
    }
    for (int i = 1; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
}

// Rank 0 waits for the collective before it lets the others go on, which are in another call. Half
// the time the last rank's results are misplaced.
static void elsewhere(struct run *run, size_t bytes)
{
    enum { WAYS = 8 };
    MPI_Comm other;
    MPI_Comm_dup(run->comm, &other);
    for (int way = 0; way < WAYS; way++) {
        static const enum kind kinds[] = {ALLREDUCE, SCAN, ALLTOALL, ALLTOALLV};
        struct operation op = {.kind = kinds[(way + way / 2) % 4], .comm = run->comm};
        op.at = way >= WAYS / 2 && run->rank == run->size - 1;
        int token = 0;
        begin(run, &op, bytes / sizeof(int), way);
        if (run->rank == 0)
            MPI_Wait(&op.request, MPI_STATUS_IGNORE);
        if (way / 2 % 2 == 0)
            MPI_Barrier(other);
        else if (run->rank > 0)
            MPI_Recv(&token, 1, MPI_INT, 0, 7, other, MPI_STATUS_IGNORE);
        for (int rank = 1; rank < run->size && way / 2 % 2 == 1 && run->rank == 0; rank++)
            MPI_Send(&token, 1, MPI_INT, rank, 7, other);
        if (run->rank != 0)
            MPI_Wait(&op.request, MPI_STATUS_IGNORE);
        finish(&op);
    }
    MPI_Comm_free(&other);
}

// Ten that move data are under way at once, after one of each other sort, and end in any order.
// With parts of unequal size each is begun before the ranks know how much there is.
static void moves(struct run *run, size_t bytes)
{
    struct operation ops[MANY];
    MPI_Comm comms[COMMS];
    make_comms(run, comms);
    for (int i = 0; i < MANY; i++) {
        ops[i] = (struct operation){.kind = (enum kind)(BCAST + i % (KINDS - BCAST)),
                                    .comm = comms[i % 2 ? i % COMMS : 0]};
        begin(run, &ops[i], bytes / sizeof(int), i);
        if (i % 5 == 2)
            MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, (int[64]){0}, 1, MPI_INT, run->comm);
    }
    wait_for_all(ops, MANY, run->rank);
    for (int i = 1; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
}

// The last rank is killed once it has begun as many operations as FR_TEST_KILL says. The others
// begin all, and must not wait for ever. But after FEW, none of them is in MPI_Wait.
static void killed(struct run *run, size_t bytes)
{
    struct operation ops[MANY];
    const char *after = getenv("FR_TEST_KILL");
    if (!after)
        return;
    for (int i = 0; i < MANY; i++) {
        if (run->rank == run->size - 1 && i == atoi(after))
            raise(SIGKILL);
        ops[i] =
            (struct operation){.kind = (enum kind)((unsigned)(i + 5) % KINDS), .comm = run->comm};
        begin(run, &ops[i], bytes / sizeof(int), i);
    }
    wait_for_all(ops, MANY, run->rank + (atoi(after) != FEW));
    run_check(run, false, "operations end without a rank");
}

// The last rank's results lie where no kernel stores them, so that they go through workspace.
static void misplaced(struct run *run, size_t bytes)
{
    size_t count = bytes / sizeof(int), at = run->rank == run->size - 1 ? 1 : 0;
    struct buffer *send = buffer_new(run, "send", count * sizeof(int));
    struct buffer *receive[FEW];
    MPI_Request requests[FEW];
    for (size_t i = 0; i < count; i++) {
        int value = value_of(run, run->rank, i, 0);
        memcpy(send->want + i * sizeof value, &value, sizeof value);
    }
    buffer_upload(send);
    for (int i = 0; i < FEW; i++) {
        receive[i] = buffer_new(run, "receive", (count + 1) * sizeof(int));
        if (i % 2)
            MPI_Iscan(send->data, receive[i]->data + at, (int)count, MPI_INT, MPI_SUM, run->comm,
                      &requests[i]);
        else
            MPI_Iallreduce(send->data, receive[i]->data + at, (int)count, MPI_INT, MPI_SUM,
                           run->comm, &requests[i]);
        for (size_t j = 0; j < count; j++) {
            int sum = 0;
            for (int rank = 0; rank < (i % 2 ? run->rank + 1 : run->size); rank++)
                sum += value_of(run, rank, j, 0);
            memcpy(receive[i]->want + at + j * sizeof sum, &sum, sizeof sum);
        }
    }
    for (int i = 0; i < FEW; i++) {
        MPI_Wait(&requests[run->rank % 2 ? i : FEW - 1 - i], MPI_STATUS_IGNORE);
        buffer_check(receive[run->rank % 2 ? i : FEW - 1 - i]);
    }
    for (int i = 0; i < FEW; i++)
        buffer_finish(receive[i]);
    buffer_finish(send);
}

// The root has its result where its vector is, by no MPI_IN_PLACE. MPIs take that, or can be set
// to.
static void aliased(struct run *run, size_t bytes)
{
    const size_t count = bytes / sizeof(int);
    const bool is_root = run->rank == run->size - 1;
    MPI_Request request;
    if (!getenv("FR_TEST_ALIASED"))
        return;
    struct buffer *vector = buffer_new(run, "vector", count * sizeof(int));
    for (size_t i = 0; i < count; i++) {
        int value = value_of(run, run->rank, i, 0);
        memcpy(vector->want + i * sizeof value, &value, sizeof value);
    }
    buffer_upload(vector);
    for (size_t i = 0; i < count && is_root; i++) {
        int sum = 0;
        for (int rank = 0; rank < run->size; rank++)
            sum += value_of(run, rank, i, 0);
        memcpy(vector->want + i * sizeof sum, &sum, sizeof sum);
    }
    MPI_Ireduce(vector->data, is_root ? vector->data : NULL, (int)count, MPI_INT, MPI_SUM,
                run->size - 1, run->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    buffer_check(vector);
    buffer_finish(vector);
}

// MPI refuses a collective on the last rank alone, while others are under way and before more come.
static void refused(struct run *run, size_t bytes)
{
    struct operation ops[MANY];
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm comm;
    MPI_Comm_dup(run->comm, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < MANY; i++) {
        ops[i] = (struct operation){.kind = (enum kind)((unsigned)i % KINDS), .comm = comm};
        begin(run, &ops[i], bytes / sizeof(int), i);
        if (i == 0) // there is memory by now
            meet(comm);
        if (i == FEW && run->rank == run->size - 1)
            run_check(run,
                      MPI_Iallreduce(ops[i].send->data, ops[i].receive->data, 1, MPI_INT,
                                     MPI_OP_NULL, comm, &request) != MPI_SUCCESS,
                      "no operation is not refused");
        if (i == MANY - 2)
            reduce_now(run, comm, bytes / sizeof(int), 1000);
    }
    wait_for_all(ops, MANY, run->rank);
    MPI_Comm_free(&comm);
}

// MPI forbids programs to free or to cancel the request of a nonblocking collective, and libraries
// refuse that in ways of their own. Fabrail refuses to cancel, and lets a freed operation go on.
static bool is_fabrails(const struct run *run, size_t bytes)
{
    enum memory_kind kind = memory_kind_named(run->memory_name); // alike on all ranks
    return kind != MEMORY_HOST && kind != MEMORY_PINNED && bytes >= sizeof(int);
}

// Nothing is stored after an operation that was begun later. Where ranks have host memory, those
// that move data are messages, which go on as they like.
static void freed(struct run *run, size_t bytes)
{
    struct operation ops[FEW], last = {.kind = ALLREDUCE, .comm = run->comm};
    if (!is_fabrails(run, bytes))
        return;
    bool moves = memory_kind_named(run->memory_name) != MEMORY_MIXED;
    for (int i = 0; i < FEW; i++) {
        unsigned kind = moves ? (unsigned)(BCAST - 2 + i) : (unsigned)i % BCAST;
        ops[i] = (struct operation){.kind = (enum kind)kind, .comm = run->comm};
        begin(run, &ops[i], bytes / sizeof(int), i);
        MPI_Request_free(&ops[i].request);
        run_check(run, ops[i].request == MPI_REQUEST_NULL, "a freed request is not null");
    }
    for (int i = 0; i < 2; i++)
        reduce_now(run, run->comm, bytes / sizeof(int), 1000 + i);
    begin(run, &last, bytes / sizeof(int), FEW);
    wait_for_all(&last, 1, run->rank);
    for (int i = 0; i < FEW; i++)
        buffer_accept(ops[i].receive, 0, ops[i].receive->bytes);
    for (int i = 0; i < FEW; i++)
        finish(&ops[i]);
}

static void cancelled(struct run *run, size_t bytes)
{
    if (!is_fabrails(run, bytes))
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        struct operation op = {.kind = i ? ALLTOALL : ALLREDUCE, .comm = run->comm};
        begin(run, &op, bytes / sizeof(int), 1);
        run_check(run, MPI_Cancel(&op.request) != MPI_SUCCESS, "a collective is cancelled");
        wait_for_all(&op, 1, run->rank);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    static const struct step steps[] = {
        {"first", first, LIMIT_SMALL, 0},     {"many", many, LIMIT_SMALL, 0},
        {"moves", moves, LIMIT_SMALL, 0},     {"misplaced", misplaced, LIMIT_SMALL, 0},
        {"refused", refused, LIMIT_SMALL, 0}, {"elsewhere", elsewhere, LIMIT_MIDDLE, 2},
        {"freed", freed, LIMIT_SMALL, 0},     {"cancelled", cancelled, LIMIT_SMALL, 0},
        {"killed", killed, LIMIT_SMALL, 0},   {"aliased", aliased, LIMIT_SMALL, 0},
    };
    static const struct program program = {
        .name = "pending", .steps = steps, .step_count = COUNT_OF(steps)};
    return program_main(argc, argv, &program);
}
