// SPDX-License-Identifier: BSD-3-Clause
// MPI_Alltoall on device memory, side by side in one run: by hand through page-locked memory, by
// NCCL, the raw limit, and the MPI call itself, which is Fabrail's under the preload. The raw limit
// is kernels and copy engines that store into mapped memory, between two barriers in shared memory.
// The MPI call is made from the same buffer each time, and to and fro between two buffers. There is
// one rank a GPU, on one host. Figures are medians of the slowest rank's time. Received bytes are
// verified at every size.
//
//   exchange [LARGEST-BYTES-A-PAIR [KIND]]
#include "config.h"

#include "peers.h"
#include "rows.h"

#include "fabrail/device/classify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int rank, size;
    struct memory send, receive;           // device
    struct memory host_send, host_receive; // page-locked
    struct fr_device_range range;          // range of `send`
    uintptr_t peers[PEERS_MOST];           // receive buffers of all ranks, as mapped here
    bool nccl;                             // NCCL is there
    bool fro;                              // the next call sends back what was received
} bench;

static void by_hand(size_t bytes)
{
    size_t all = bytes * (size_t)bench.size;
    memory_read(&bench.send, 0, bench.host_send.address, all);
    MPI_Alltoall(bench.host_send.address, (int)bytes, MPI_BYTE, bench.host_receive.address,
                 (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    memory_write(&bench.receive, 0, bench.host_receive.address, all);
}

static void by_nccl(size_t bytes)
{
    nccl_group_begin();
    for (int peer = 0; peer < bench.size; peer++) {
        size_t offset = (size_t)peer * bytes;
        nccl_send(bench.send.address + offset, bytes, peer);
        nccl_receive(bench.receive.address + offset, bytes, peer);
    }
    nccl_group_end();
    nccl_wait();
}

static void push(size_t bytes, enum fr_device_engine engine)
{
    struct fr_device_push_piece pieces[PEERS_MOST];
    memset(pieces, 0, sizeof(pieces));
    for (int i = 0; i < bench.size; i++) { // each rank begins with another peer
        int peer = (bench.rank + 1 + i) % bench.size;
        pieces[i].dst = bench.peers[peer] + (size_t)bench.rank * bytes;
        pieces[i].src = (uintptr_t)bench.send.address + (size_t)peer * bytes;
        pieces[i].bytes = bytes;
    }
    demand(fr_device_push(&bench.range, pieces, (size_t)bench.size, engine, 0) == FR_OK,
           "a push failed");
    peers_barrier();
}

static void by_kernels(size_t bytes)
{
    push(bytes, FR_ENGINE_SM);
}

static void by_copy_engines(size_t bytes)
{
    push(bytes, FR_ENGINE_CE);
}

static void by_call(size_t bytes)
{
    MPI_Alltoall(bench.send.address, (int)bytes, MPI_BYTE, bench.receive.address, (int)bytes,
                 MPI_BYTE, MPI_COMM_WORLD);
}

static void to_and_fro(size_t bytes)
{
    const struct memory *from = bench.fro ? &bench.receive : &bench.send;
    const struct memory *to = bench.fro ? &bench.send : &bench.receive;
    MPI_Alltoall(from->address, (int)bytes, MPI_BYTE, to->address, (int)bytes, MPI_BYTE,
                 MPI_COMM_WORLD);
    bench.fro = !bench.fro;
}

static double time_of(void (*exchange)(size_t bytes), size_t bytes)
{
    double us[PEERS_MOST_REPEATS];
    int repeats = peers_repeats(bytes);
    for (int i = -5; i < repeats; i++) {
        peers_barrier();
        double start = MPI_Wtime();
        exchange(bytes);
        if (i >= 0)
            us[i] = (MPI_Wtime() - start) * 1e6;
    }
    MPI_Allreduce(MPI_IN_PLACE, us, repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return peers_median(us, repeats);
}

static unsigned char byte_of(int from, int to, size_t index)
{
    return (unsigned char)((size_t)from * 101 + (size_t)to * 37 + index * 7 + index / 251);
}

static void fill(size_t bytes)
{
    bench.fro = false;
    for (int peer = 0; peer < bench.size; peer++)
        for (size_t i = 0; i < bytes; i++)
            bench.host_send.address[(size_t)peer * bytes + i] = byte_of(bench.rank, peer, i);
    memory_write(&bench.send, 0, bench.host_send.address, bytes * (size_t)bench.size);
    memset(bench.host_receive.address, 0, bytes * (size_t)bench.size);
    memory_write(&bench.receive, 0, bench.host_receive.address, bytes * (size_t)bench.size);
}

static void verify(size_t bytes, const char *what)
{
    memory_read(&bench.receive, 0, bench.host_receive.address, bytes * (size_t)bench.size);
    for (int peer = 0; peer < bench.size; peer++)
        for (size_t i = 0; i < bytes; i++)
            demand(bench.host_receive.address[(size_t)peer * bytes + i] ==
                       byte_of(peer, bench.rank, i),
                   what);
}

static double verified_time_of(void (*exchange)(size_t bytes), size_t bytes, const char *what)
{
    fill(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double us = time_of(exchange, bytes);
    verify(bytes, what);
    return us;
}

static void run_sizes(size_t largest)
{
    if (bench.rank == 0)
        printf("%10s %10s %9s %9s %9s %9s %9s %8s %7s %7s\n", "bytes/pair", "by hand", "NCCL",
               "kernels", "copy eng.", "to + fro", "fabrail", "GB/s", "/limit", "/NCCL");
    for (size_t bytes = 8; bytes <= largest; bytes *= bytes < 4096 ? 8 : 4) {
        double hand = time_of(by_hand, bytes);
        double other = bench.nccl ? verified_time_of(by_nccl, bytes, "NCCL's bytes are wrong") : 0;
        double sm = verified_time_of(by_kernels, bytes, "the kernels' bytes are wrong");
        double ce = verified_time_of(by_copy_engines, bytes, "the copy engines' bytes are wrong");
        double turns =
            verified_time_of(to_and_fro, bytes, "MPI_Alltoall's bytes are wrong, in turns");
        double own = verified_time_of(by_call, bytes, "MPI_Alltoall's bytes are wrong");
        double leaving = (double)bytes * (bench.size - 1) * 1e-3; // GB/s times us
        double limit = sm < ce ? sm : ce;
        if (bench.rank == 0) {
            printf("%10zu %10.1f", bytes, hand);
            rows_print(9, 1, other);
            printf(" %9.1f %9.1f %9.1f %9.1f %8.1f %7.2f", sm, ce, turns, own, leaving / own,
                   own / limit);
            rows_print(7, 2, other > 0 ? own / other : 0);
            putchar('\n');
            rows_put("MPI_Alltoall", bytes, "by hand", "us", hand);
            rows_put("MPI_Alltoall", bytes, "NCCL", "us", other);
            rows_put("MPI_Alltoall", bytes, "kernels", "us", sm);
            rows_put("MPI_Alltoall", bytes, "copy engines", "us", ce);
            rows_put("MPI_Alltoall", bytes, "to and fro", "us", turns);
            rows_put("MPI_Alltoall", bytes, "Fabrail", "us", own);
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)256 << 20;
    enum memory_kind kind = argc > 2 ? memory_kind_named(argv[2]) : MEMORY_DEVICE;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    memory_start(bench.rank);
    const char *missing = kind == MEMORY_KINDS ? "unknown kind of memory" : memory_missing(kind);
    if (bench.size > PEERS_MOST)
        missing = "more than 16 ranks";
    if (missing != NULL) {
        printf("skipped: %s\n", missing);
        MPI_Finalize();
        return 77;
    }
    size_t all = largest * (size_t)bench.size;
    bench.send = memory_new(kind, all);
    bench.receive = memory_new(kind, all);
    bench.host_send = memory_new(MEMORY_PINNED, all);
    bench.host_receive = memory_new(MEMORY_PINNED, all);
    peers_start("exchange", MPI_COMM_WORLD);
    fr_device_classify(bench.send.address, 1, &bench.range);
    const char *refused = peers_map(&bench.receive, &bench.range, bench.peers);
    demand(refused == NULL, refused);
    bench.nccl = nccl_start();
    run_sizes(largest);
    MPI_Barrier(MPI_COMM_WORLD); // before the memory of any rank goes away
    nccl_stop();
    peers_stop();
    memory_free(&bench.host_receive);
    memory_free(&bench.host_send);
    memory_free(&bench.receive);
    memory_free(&bench.send);
    memory_stop();
    MPI_Finalize();
    return 0;
}
