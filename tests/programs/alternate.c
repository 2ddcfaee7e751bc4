// SPDX-License-Identifier: BSD-3-Clause
// All-to-all exchanges whose buffers are not those of the exchange before, as in programs that
// transpose back and forth, overlap several exchanges, or send other sizes each time; and other
// collectives on the same memory in turn.
#include "harness.h"

#include <stdlib.h>

enum { MANY = 10, TIMES = 4 };

struct pair {
    struct buffer *send, *receive;
};

static struct pair pair_new(struct run *run, size_t block_bytes)
{
    size_t bytes = block_bytes * (size_t)run->size;
    return (struct pair){buffer_new(run, "send", bytes), buffer_new(run, "receive", bytes)};
}

static void pair_finish(const struct pair *pair)
{
    buffer_finish(pair->send);
    buffer_finish(pair->receive);
}

static uint64_t seed_of(const struct run *run, int from, int to, int time)
{
    return run_seed(run, from, to) + (uint64_t)time * 0x9e3779b97f4a7c15u;
}

// Exchanges blocks at every `block_bytes`, of `bytes` each.
static void exchange(struct run *run, struct buffer *send, struct buffer *receive,
                     size_t block_bytes, size_t bytes, int time)
{
    int *counts = table_new((size_t)run->size, sizeof *counts);
    int *places = table_new((size_t)run->size, sizeof *places);
    for (int rank = 0; rank < run->size; rank++) {
        size_t place = (size_t)rank * block_bytes;
        counts[rank] = (int)bytes;
        places[rank] = (int)place;
        buffer_expect(send, place, bytes, seed_of(run, run->rank, rank, time));
        buffer_expect(receive, place, bytes, seed_of(run, rank, run->rank, time));
    }
    buffer_upload(send);
    if (bytes == block_bytes)
        MPI_Alltoall(send->data, (int)bytes, MPI_BYTE, receive->data, (int)bytes, MPI_BYTE,
                     run->comm);
    else
        MPI_Alltoallv(send->data, counts, places, MPI_BYTE, receive->data, counts, places, MPI_BYTE,
                      run->comm);
    buffer_check(receive);
    free(counts);
    free(places);
}

static void take_turns(struct run *run, size_t bytes, int pair_count, int times)
{
    struct pair pairs[MANY];
    for (int i = 0; i < pair_count; i++)
        pairs[i] = pair_new(run, bytes);
    for (int time = 0; time < times * pair_count; time++) {
        const struct pair *pair = &pairs[time % pair_count];
        exchange(run, pair->send, pair->receive, bytes, bytes, time);
    }
    for (int i = 0; i < pair_count; i++)
        pair_finish(&pairs[i]);
}

static void back_and_forth(struct run *run, size_t bytes)
{
    take_turns(run, bytes, 2, TIMES);
}

static void many_pairs(struct run *run, size_t bytes)
{
    take_turns(run, bytes, MANY, 2);
}

static void other_sizes(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    for (int time = 0; time < TIMES * 2; time++)
        exchange(run, pair.send, pair.receive, bytes, bytes - bytes * (size_t)(time % 5) / 8, time);
    pair_finish(&pair);
}

// Sends on what the last exchange brought, from where it lies.
static void from_there(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    for (int time = 0; time < TIMES * 2; time++) {
        bool back = time % 2;
        exchange(run, back ? pair.receive : pair.send, back ? pair.send : pair.receive, bytes,
                 bytes, time);
    }
    pair_finish(&pair);
}

// Reductions of numbers in host memory, as of a residual, between two exchanges.
static void host_between(struct run *run, size_t bytes)
{
    struct pair pair = pair_new(run, bytes);
    for (int time = 0; time < TIMES * 2; time++) {
        double own = run->rank + time, sum = 0;
        exchange(run, pair.send, pair.receive, bytes, bytes, time);
        MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, run->comm);
        run_check(run, sum == run->size * (run->size - 1) / 2.0 + (double)time * run->size,
                  "the sum on hosts is %g", sum);
    }
    pair_finish(&pair);
}

// One rank's memory is another one each time, or new where the others' stays.
static void one_changes(struct run *run, size_t bytes)
{
    struct pair own = pair_new(run, bytes), other = pair_new(run, bytes);
    for (int time = 0; time < TIMES * 2; time++) {
        bool odd = time % 2 && time / 2 % run->size == run->rank;
        const struct pair *pair = odd ? &other : &own;
        exchange(run, pair->send, pair->receive, bytes, bytes, time);
    }
    pair_finish(&own);
    pair_finish(&other);
}

static void freed_between(struct run *run, size_t bytes)
{
    struct pair kept = pair_new(run, bytes);
    for (int time = 0; time < TIMES * 2; time++) {
        struct pair fresh = pair_new(run, bytes);
        bool is_new = time % 2 || time / 2 % run->size == run->rank;
        const struct pair *pair = is_new ? &fresh : &kept;
        exchange(run, pair->send, pair->receive, bytes, bytes, time);
        pair_finish(&fresh);
    }
    pair_finish(&kept);
}

// In place at the last rank, whose other slices hold something else before.
static void gather(struct run *run, struct buffer *send, struct buffer *all, size_t bytes, int time)
{
    int root = run->size - 1;
    bool is_root = run->rank == root;
    for (int rank = 0; rank < root; rank++)
        buffer_expect(all, (size_t)rank * bytes, bytes, seed_of(run, rank, rank, time));
    buffer_expect(all, (size_t)root * bytes, bytes, seed_of(run, root, root, time));
    buffer_expect(send, 0, bytes, seed_of(run, run->rank, root, time));
    buffer_upload(all);
    buffer_upload(send);
    MPI_Gather(is_root ? MPI_IN_PLACE : send->data, (int)bytes, MPI_BYTE, all->data, (int)bytes,
               MPI_BYTE, root, run->comm);
    for (int rank = 0; rank < root && is_root; rank++)
        buffer_expect(all, (size_t)rank * bytes, bytes, seed_of(run, rank, root, time));
    buffer_check(all);
}

// A broadcast of as many bytes as a slice of the gathers around it, to where the first of them
// goes.
static void cast_between(struct run *run, size_t unused)
{
    enum { MOST = 1200 };
    struct buffer *send = buffer_new(run, "send", MOST);
    struct buffer *all = buffer_new(run, "all", MOST * (size_t)run->size);
    struct buffer *other = buffer_new(run, "other", MOST * (size_t)run->size);
    (void)unused;
    for (size_t bytes = 2; bytes <= MOST; bytes += 64) {
        gather(run, send, all, bytes, 0);
        gather(run, send, other, bytes, 1);
        buffer_expect(all, 0, bytes, seed_of(run, run->rank, 0, 2));
        buffer_upload(all);
        MPI_Bcast(all->data, (int)bytes, MPI_BYTE, 0, run->comm);
        buffer_expect(all, 0, bytes, seed_of(run, 0, 0, 2));
        buffer_check(all);
        gather(run, send, all, bytes, 3);
    }
    buffer_finish(send);
    buffer_finish(all);
    buffer_finish(other);
}

int main(int argc, char **argv)
{
    static const struct step steps[] = {
        {"back and forth", back_and_forth, LIMIT_MIDDLE, 0},
        {"many pairs", many_pairs, LIMIT_SMALL, 0},
        {"other sizes", other_sizes, LIMIT_MIDDLE, 0},
        {"from there", from_there, LIMIT_SMALL, 0},
        {"host between", host_between, LIMIT_SMALL, 0},
        {"one changes", one_changes, LIMIT_SMALL, 0},
        {"freed between", freed_between, LIMIT_SMALL, 0},
        {"cast between", cast_between, STEP_ONCE, 0},
    };
    static const struct program program = {
        .name = "alternate", .steps = steps, .step_count = COUNT_OF(steps)};
    return program_main(argc, argv, &program);
}
