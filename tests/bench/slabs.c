// SPDX-License-Identifier: BSD-3-Clause
// The redistribution of a parallel FFT, as mpi4py-fft does it: MPI_Alltoallw of subarrays, between
// all ranks and on a communicator of one rank, and what a rank sends to itself. A cube of complex
// numbers whose first axis the ranks share goes into one whose second axis they share. Rows have
// gaps behind them. Beside it stand the same by hand (MPI_Pack, contiguous exchange, MPI_Unpack)
// and the contiguous exchange alone. Every number and every gap is verified. Figures are medians in
// microseconds.
//
//   slabs [--edge=NUMBER] [--repeats=COUNT]
#include "../programs/memory.h"
#include "rows.h"

#include <mpi.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wstringop-overflow" // gcc warns of MPI_STATUS_IGNORE

enum { MOST_REPEATS = 1001, MOST_RANKS = 64, GAP = 2, NUMBER_BYTES = 16, TAG = 5 };

struct number {
    uint64_t index, check;
};

static int repeats = 51, world_rank;

// One redistribution on a communicator. The send array is share x edge x (edge + GAP), the receive
// array edge x share x (edge + GAP).
struct work {
    MPI_Comm comm;
    int rank, size, edge, share;
    size_t array_bytes, block_bytes;
    MPI_Datatype sends[MOST_RANKS], receives[MOST_RANKS];
    int counts[MOST_RANKS], places[MOST_RANKS];
    struct memory send, receive, packed;
};

static struct number number_at(const struct work *work, int x, int y, int z)
{
    uint64_t index =
        ((uint64_t)x * (uint64_t)work->edge + (uint64_t)y) * (uint64_t)work->edge + (uint64_t)z;
    return (struct number){index, index * 0x9e3779b97f4a7c15u + 1};
}

static const struct number gap = {0x7a7a7a7a7a7a7a7au, 0x5c5c5c5c5c5c5c5cu};

static MPI_Datatype box(const int sizes[3], const int parts[3], int axis, int start)
{
    int starts[3] = {0};
    MPI_Datatype number, type;
    starts[axis] = start;
    MPI_Type_contiguous(2, MPI_DOUBLE, &number);
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, number, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&number);
    return type;
}

static void start(struct work *work, MPI_Comm comm, int edge)
{
    MPI_Comm_rank(comm, &work->rank);
    MPI_Comm_size(comm, &work->size);
    work->comm = comm;
    work->share = edge / work->size;
    work->edge = work->share * work->size;
    int row = work->edge + GAP;
    int from[3] = {work->share, work->edge, row}, to[3] = {work->edge, work->share, row};
    int part[3] = {work->share, work->share, work->edge};
    work->array_bytes = (size_t)work->share * (size_t)work->edge * (size_t)row * NUMBER_BYTES;
    work->block_bytes =
        (size_t)work->share * (size_t)work->share * (size_t)work->edge * NUMBER_BYTES;
    for (int peer = 0; peer < work->size; peer++) {
        work->sends[peer] = box(from, part, 1, peer * work->share);
        work->receives[peer] = box(to, part, 0, peer * work->share);
        work->counts[peer] = 1;
        work->places[peer] = 0;
    }
    work->send = memory_new(MEMORY_DEVICE, work->array_bytes);
    work->receive = memory_new(MEMORY_DEVICE, work->array_bytes);
    work->packed = memory_new(MEMORY_DEVICE, 2 * (size_t)work->size * work->block_bytes);
}

static void end(struct work *work)
{
    memory_free(&work->send);
    memory_free(&work->receive);
    memory_free(&work->packed);
    for (int peer = 0; peer < work->size; peer++) {
        MPI_Type_free(&work->sends[peer]);
        MPI_Type_free(&work->receives[peer]);
    }
}

// Fills an array with what has to be in it, by where its share of the cube begins. With `only_gaps`
// the numbers are left out.
static struct number *make_array(const struct work *work, const int shares[2], const int first[2],
                                 bool only_gaps)
{
    struct number *array = malloc(work->array_bytes), *at = array;
    for (int x = 0; x < shares[0]; x++)
        for (int y = 0; y < shares[1]; y++)
            for (int z = 0; z < work->edge + GAP; z++, at++)
                *at = z >= work->edge || only_gaps ? gap
                                                   : number_at(work, first[0] + x, first[1] + y, z);
    return array;
}

static void fill(const struct work *work)
{
    int whole[2] = {work->share, work->edge}, first[2] = {work->rank * work->share, 0};
    struct number *numbers = make_array(work, whole, first, false);
    struct number *empty = make_array(work, whole, first, true);
    memory_write(&work->send, 0, numbers, work->array_bytes);
    memory_write(&work->receive, 0, empty, work->array_bytes);
    free(numbers);
    free(empty);
}

static void verify(const struct work *work, const char *what)
{
    int whole[2] = {work->edge, work->share}, first[2] = {0, work->rank * work->share};
    struct number *wanted = make_array(work, whole, first, false);
    struct number *found = malloc(work->array_bytes);
    memory_read(&work->receive, 0, found, work->array_bytes);
    for (size_t i = 0; i < work->array_bytes / NUMBER_BYTES; i++) {
        if (memcmp(&found[i], &wanted[i], NUMBER_BYTES) == 0)
            continue;
        fprintf(stderr, "rank %d: number %zu after %s is wrong\n", world_rank, i, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(wanted);
    free(found);
}

static void step_typed(struct work *work)
{
    MPI_Alltoallw(work->send.address, work->counts, work->places, work->sends,
                  work->receive.address, work->counts, work->places, work->receives, work->comm);
}

static void step_contiguous(struct work *work)
{
    int bytes = (int)work->block_bytes;
    MPI_Alltoall(work->packed.address, bytes, MPI_BYTE,
                 work->packed.address + (size_t)work->size * work->block_bytes, bytes, MPI_BYTE,
                 work->comm);
}

static void step_pack(struct work *work)
{
    for (int peer = 0; peer < work->size; peer++) {
        int at = 0;
        MPI_Pack(work->send.address, 1, work->sends[peer],
                 work->packed.address + (size_t)peer * work->block_bytes, (int)work->block_bytes,
                 &at, work->comm);
    }
}

static void step_unpack(struct work *work)
{
    for (int peer = 0; peer < work->size; peer++) {
        int at = 0;
        MPI_Unpack(work->packed.address + (size_t)(work->size + peer) * work->block_bytes,
                   (int)work->block_bytes, &at, work->receive.address, 1, work->receives[peer],
                   work->comm);
    }
}

static void step_by_hand(struct work *work)
{
    step_pack(work);
    step_contiguous(work);
    step_unpack(work);
}

// Messages of this rank to itself. Those of subarrays are a redistribution if there is one rank.
static void step_self_typed(struct work *work)
{
    MPI_Sendrecv(work->send.address, 1, work->sends[0], 0, TAG, work->receive.address, 1,
                 work->receives[0], 0, TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static void step_self_contiguous(struct work *work)
{
    int bytes = (int)work->block_bytes;
    MPI_Sendrecv(work->packed.address, bytes, MPI_BYTE, 0, TAG,
                 work->packed.address + (size_t)work->size * work->block_bytes, bytes, MPI_BYTE, 0,
                 TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(void (*step)(struct work *), struct work *work)
{
    static double us[MOST_REPEATS];
    for (int i = -3; i < repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        step(work);
        if (i >= 0)
            us[i] = (MPI_Wtime() - begin) * 1e6;
    }
    qsort(us, (size_t)repeats, sizeof(us[0]), compare);
    return us[repeats / 2];
}

struct step {
    const char *name;
    void (*step)(struct work *);
    bool is_verified;
};

static void run(const char *name, MPI_Comm comm, int edge, const struct step *steps, int count)
{
    static struct work work;
    start(&work, comm, edge);
    for (int i = 0; i < count; i++) {
        fill(&work);
        double us = median_of(steps[i].step, &work);
        if (steps[i].is_verified)
            verify(&work, steps[i].name);
        if (world_rank == 0) {
            printf("%-10s %6d %12zu  %-10s", name, work.edge, (size_t)work.size * work.block_bytes,
                   steps[i].name);
            rows_print(10, 1, us);
            printf("\n");
            rows_put_named("slabs", name, steps[i].name, "us", us);
        }
    }
    end(&work);
}

int main(int argc, char **argv)
{
    static const struct step exchange[] = {{"alltoallw", step_typed, true},
                                           {"by-hand", step_by_hand, true},
                                           {"contiguous", step_contiguous, false}};
    static const struct step self[] = {{"typed", step_self_typed, true},
                                       {"contiguous", step_self_contiguous, false}};
    int edge = 64, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memory_start(world_rank);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--edge=", 7) == 0)
            edge = atoi(argv[i] + 7);
        else if (strncmp(argv[i], "--repeats=", 10) == 0)
            repeats = atoi(argv[i] + 10);
    }
    repeats = repeats < 1 ? 1 : repeats > MOST_REPEATS ? MOST_REPEATS : repeats;
    const char *missing = memory_missing(MEMORY_DEVICE);
    if (missing || size > MOST_RANKS || edge < size) {
        if (world_rank == 0)
            printf("skipped: %s\n", missing ? missing : "too many ranks");
        MPI_Finalize();
        return 77;
    }
    if (world_rank == 0)
        printf("%-10s %6s %12s  %-10s %10s\n", "among", "edge", "bytes", "way", "us");
    run("all ranks", MPI_COMM_WORLD, edge, exchange, 3);
    run("one rank", MPI_COMM_SELF, edge, exchange, 3);
    run("itself", MPI_COMM_SELF, edge, self, 2);
    memory_stop();
    MPI_Finalize();
    return 0;
}
