// SPDX-License-Identifier: BSD-3-Clause
// MPI_Alltoall and a ping-pong on device buffers under Fabrail, from 1 KiB to 256 MiB. They stand
// beside what programs do by hand without it: copy to page-locked host memory, MPI, copy back.
//
//   device [LARGEST-BYTES [KIND]]
#include "../programs/memory.h"
#include "rows.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 201 };

struct bench {
    int rank, size;
    struct memory send, recv;           // device
    struct memory host_send, host_recv; // page-locked
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void alltoall_device(struct bench *bench, size_t bytes)
{
    MPI_Alltoall(bench->send.address, (int)bytes, MPI_BYTE, bench->recv.address, (int)bytes,
                 MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall_by_hand(struct bench *bench, size_t bytes)
{
    size_t all = bytes * (size_t)bench->size;
    memory_read(&bench->send, 0, bench->host_send.address, all);
    MPI_Alltoall(bench->host_send.address, (int)bytes, MPI_BYTE, bench->host_recv.address,
                 (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    memory_write(&bench->recv, 0, bench->host_recv.address, all);
}

static void ping_pong_device(struct bench *bench, size_t bytes)
{
    if (bench->rank == 0)
        MPI_Send(bench->send.address, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    if (bench->rank < 2)
        MPI_Recv(bench->recv.address, (int)bytes, MPI_BYTE, 1 - bench->rank, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (bench->rank == 1)
        MPI_Send(bench->send.address, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static void send_by_hand(struct bench *bench, size_t bytes, int peer)
{
    memory_read(&bench->send, 0, bench->host_send.address, bytes);
    MPI_Send(bench->host_send.address, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
}

static void ping_pong_by_hand(struct bench *bench, size_t bytes)
{
    if (bench->rank == 0)
        send_by_hand(bench, bytes, 1);
    if (bench->rank < 2) {
        MPI_Recv(bench->host_recv.address, (int)bytes, MPI_BYTE, 1 - bench->rank, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        memory_write(&bench->recv, 0, bench->host_recv.address, bytes);
    }
    if (bench->rank == 1)
        send_by_hand(bench, bytes, 0);
}

// Returns the median of the slowest rank's time in microseconds. The first calls warm caches up.
static double time_of(struct bench *bench, void (*call)(struct bench *bench, size_t bytes),
                      size_t bytes)
{
    double us[MOST_REPEATS];
    int repeats = bytes <= 65536 ? MOST_REPEATS : bytes <= (4u << 20) ? 21 : 5;
    for (int i = -2; i < repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        call(bench, bytes);
        if (i >= 0)
            us[i] = (MPI_Wtime() - start) * 1e6;
    }
    MPI_Allreduce(MPI_IN_PLACE, us, repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(us, (size_t)repeats, sizeof *us, compare);
    return us[repeats / 2];
}

static void print_row(const struct bench *bench, const char *what, size_t bytes, double by_hand,
                      double device)
{
    if (bench->rank == 0) {
        printf("%-10s %12zu %12.1f %12.1f %8.2f\n", what, bytes, by_hand, device, device / by_hand);
        rows_put(what, bytes, "by hand", "us", by_hand);
        rows_put(what, bytes, "Fabrail", "us", device);
    }
    fflush(stdout);
}

static void run_sizes(struct bench *bench, size_t largest)
{
    // The size of an alltoall is what one rank sends to all, so that both columns move as many
    // bytes.
    for (size_t bytes = 1024; bytes <= largest; bytes *= 4) {
        size_t pair = bytes / (size_t)bench->size;
        print_row(bench, "alltoall", bytes, time_of(bench, alltoall_by_hand, pair),
                  time_of(bench, alltoall_device, pair));
    }
    for (size_t bytes = 1024; bytes <= largest && bench->size > 1; bytes *= 4)
        print_row(bench, "ping-pong", bytes, time_of(bench, ping_pong_by_hand, bytes) / 2,
                  time_of(bench, ping_pong_device, bytes) / 2);
}

int main(int argc, char **argv)
{
    struct bench bench;
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)256 << 20;
    enum memory_kind kind = argc > 2 ? memory_kind_named(argv[2]) : MEMORY_DEVICE;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    memory_start(bench.rank);
    const char *missing = kind == MEMORY_KINDS ? "unknown kind of memory" : memory_missing(kind);
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        MPI_Finalize();
        return 77;
    }
    bench.send = memory_new(kind, largest);
    bench.recv = memory_new(kind, largest);
    bench.host_send = memory_new(MEMORY_PINNED, largest);
    bench.host_recv = memory_new(MEMORY_PINNED, largest);
    memset(bench.host_send.address, 1, largest);
    memset(bench.host_recv.address, 2, largest);
    memory_write(&bench.send, 0, bench.host_send.address, largest);
    if (bench.rank == 0)
        printf("%-10s %12s %12s %12s %8s\n", "", "bytes", "by hand us", "fabrail us", "ratio");
    run_sizes(&bench, largest);
    memory_free(&bench.host_recv);
    memory_free(&bench.host_send);
    memory_free(&bench.recv);
    memory_free(&bench.send);
    memory_stop();
    MPI_Finalize();
    return 0;
}
