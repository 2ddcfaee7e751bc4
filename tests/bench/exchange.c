// SPDX-License-Identifier: BSD-3-Clause
// MPI_Alltoall on device memory, side by side in one run: by hand through page-locked memory, NCCL,
// the raw limit (kernels and copy engines storing into mapped memory, between two barriers in
// shared memory), and the MPI call itself, which is Fabrail's under the preload. One rank a GPU,
// one host; medians of the slowest rank's time; what the call received is verified at every size.
//
//   exchange [LARGEST-BYTES-A-PAIR [KIND]]
#include "config.h"

#include "../programs/memory.h"
#include "buffer/buffer.h"
#include "peer/peer.h"
#include "peer/segment.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, MOST_REPEATS = 201, NCCL_UINT8 = 1 };

// NCCL's public interface, as far as it is used; the library is loaded at run time.
typedef struct {
    char bytes[128];
} nccl_id;
static struct {
    int (*get_id)(nccl_id *id);
    int (*init)(void **comm, int size, nccl_id id, int rank);
    int (*begin)(void);
    int (*end)(void);
    int (*send)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*receive)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    int (*destroy)(void *comm);
    int (*create_stream)(void **stream, unsigned flags);
    int (*synchronize)(void *stream);
    void *comm;
    void *stream;
} nccl;

static struct {
    int rank, size;
    struct memory send, receive;           // device
    struct memory host_send, host_receive; // page-locked
    struct fr_device_range range;          // of `send`
    uintptr_t peers[MOST_RANKS];           // receive buffers, as mapped here
    struct fr_peer_segment *segment;
    uint64_t round;
} bench;

static void demand(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "exchange: rank %d: %s\n", bench.rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

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
    int failed = nccl.begin();
    for (int peer = 0; peer < bench.size; peer++) {
        size_t offset = (size_t)peer * bytes;
        failed |=
            nccl.send(bench.send.address + offset, bytes, NCCL_UINT8, peer, nccl.comm, nccl.stream);
        failed |= nccl.receive(bench.receive.address + offset, bytes, NCCL_UINT8, peer, nccl.comm,
                               nccl.stream);
    }
    failed |= nccl.end();
    failed |= nccl.synchronize(nccl.stream);
    demand(!failed, "NCCL failed");
}

static void shared_barrier(void)
{
    bench.round++;
    demand(fr_peer_segment_wait_room(bench.segment, bench.round, NULL) == FR_OK &&
               fr_peer_segment_post(bench.segment, bench.round, NULL, 0) == FR_OK &&
               fr_peer_segment_wait_all(bench.segment, bench.round, NULL) == FR_OK,
           "the barrier failed");
    fr_peer_segment_done(bench.segment, bench.round);
}

static void push(size_t bytes, enum fr_device_engine engine)
{
    struct fr_device_push_piece pieces[MOST_RANKS];
    memset(pieces, 0, sizeof(pieces));
    for (int i = 0; i < bench.size; i++) { // each begins with another peer
        int peer = (bench.rank + 1 + i) % bench.size;
        pieces[i].dst = bench.peers[peer] + (size_t)bench.rank * bytes;
        pieces[i].src = (uintptr_t)bench.send.address + (size_t)peer * bytes;
        pieces[i].bytes = bytes;
    }
    demand(fr_device_push(&bench.range, pieces, (size_t)bench.size, engine, 0) == FR_OK,
           "a push failed");
    shared_barrier();
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

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_of(void (*exchange)(size_t bytes), size_t bytes)
{
    double us[MOST_REPEATS];
    int repeats = bytes <= 65536 ? MOST_REPEATS : bytes <= (4u << 20) ? 51 : 11;
    for (int i = -5; i < repeats; i++) {
        shared_barrier();
        double start = MPI_Wtime();
        exchange(bytes);
        if (i >= 0)
            us[i] = (MPI_Wtime() - start) * 1e6;
    }
    MPI_Allreduce(MPI_IN_PLACE, us, repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(us, (size_t)repeats, sizeof(us[0]), compare);
    return us[repeats / 2];
}

static unsigned char byte_of(int from, int to, size_t index)
{
    return (unsigned char)((size_t)from * 101 + (size_t)to * 37 + index * 7 + index / 251);
}

static void fill(size_t bytes)
{
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

static void start_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    nccl_id id;
    int missing = !library || !driver;
    memset(&id, 0, sizeof(id));
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (missing)
        return;
    *(void **)&nccl.get_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.init = dlsym(library, "ncclCommInitRank");
    *(void **)&nccl.begin = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.end = dlsym(library, "ncclGroupEnd");
    *(void **)&nccl.send = dlsym(library, "ncclSend");
    *(void **)&nccl.receive = dlsym(library, "ncclRecv");
    *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
    *(void **)&nccl.create_stream = dlsym(driver, "cuStreamCreate");
    *(void **)&nccl.synchronize = dlsym(driver, "cuStreamSynchronize");
    demand(nccl.create_stream(&nccl.stream, 1) == 0, "no stream for NCCL");
    if (bench.rank == 0)
        missing = nccl.get_id(&id);
    MPI_Bcast(&missing, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (!missing)
        missing = nccl.init(&nccl.comm, bench.size, id, bench.rank);
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (missing)
        nccl.comm = NULL;
    if (missing && bench.rank == 0)
        printf("NCCL does not start here\n");
}

static void open_segment(void)
{
    struct fr_peer_secret secret;
    memset(&secret, 0, sizeof(secret));
    if (bench.rank == 0)
        demand(fr_peer_secret_draw(&secret) == FR_OK &&
                   fr_peer_segment_open(&secret, 0, bench.size, 8, &bench.segment) == FR_OK,
               "no shared memory");
    MPI_Bcast(&secret, sizeof(secret), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (bench.rank != 0)
        demand(fr_peer_segment_open(&secret, bench.rank, bench.size, 8, &bench.segment) == FR_OK,
               "no shared memory");
    demand(fr_peer_segment_seal(bench.segment, NULL) == FR_OK, "no shared memory");
}

// Maps everybody's receive buffer.
static void map_peers(size_t bytes)
{
    struct fr_peer_handle own, all[MOST_RANKS];
    struct fr_peer_process self = *fr_peer_self(), processes[MOST_RANKS];
    struct fr_device_range range;
    memset(&own, 0, sizeof(own));
    MPI_Allgather(&self, sizeof(self), MPI_BYTE, processes, sizeof(self), MPI_BYTE, MPI_COMM_WORLD);
    fr_buffer_classify(bench.send.address, 1, &bench.range);
    fr_buffer_classify(bench.receive.address, bytes, &range);
    demand(fr_peer_export(&range, bench.receive.address, bytes, &own) == FR_OK,
           "the receive buffer cannot be exported");
    if (fr_peer_needs_descriptor(&own))
        demand(fr_peer_send(&own, processes, (size_t)bench.size, false) == FR_OK, "no descriptor");
    MPI_Allgather(&own, sizeof(own), MPI_BYTE, all, sizeof(own), MPI_BYTE, MPI_COMM_WORLD);
    unsigned long long address = (unsigned long long)(uintptr_t)bench.receive.address;
    unsigned long long addresses[MOST_RANKS];
    MPI_Allgather(&address, 1, MPI_UNSIGNED_LONG_LONG, addresses, 1, MPI_UNSIGNED_LONG_LONG,
                  MPI_COMM_WORLD);
    for (int peer = 0; peer < bench.size; peer++) {
        struct fr_peer_mapping mapping;
        demand(fr_peer_import(&all[peer], &bench.range, &mapping) == FR_OK,
               "a receive buffer cannot be mapped");
        bench.peers[peer] = fr_peer_mapping_at(&mapping, &all[peer], addresses[peer]);
    }
}

static void run_sizes(size_t largest)
{
    if (bench.rank == 0)
        printf("%10s %10s %9s %9s %9s %9s %8s %7s %7s\n", "bytes/pair", "by hand", "NCCL",
               "kernels", "copy eng.", "fabrail", "GB/s", "/limit", "/NCCL");
    for (size_t bytes = 8; bytes <= largest; bytes *= bytes < 4096 ? 8 : 4) {
        double hand = time_of(by_hand, bytes);
        double other = nccl.comm ? verified_time_of(by_nccl, bytes, "NCCL's bytes are wrong") : 0;
        double sm = verified_time_of(by_kernels, bytes, "the kernels' bytes are wrong");
        double ce = verified_time_of(by_copy_engines, bytes, "the copy engines' bytes are wrong");
        double own = verified_time_of(by_call, bytes, "MPI_Alltoall's bytes are wrong");
        double leaving = (double)bytes * (bench.size - 1) * 1e-3; // GB/s times us
        double limit = sm < ce ? sm : ce;
        if (bench.rank == 0)
            printf("%10zu %10.1f %9.1f %9.1f %9.1f %9.1f %8.1f %7.2f %7.2f\n", bytes, hand, other,
                   sm, ce, own, leaving / own, own / limit, nccl.comm ? own / other : 0);
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
    if (bench.size > MOST_RANKS)
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
    demand(fr_device_present(), "no driver");
    open_segment();
    map_peers(all);
    start_nccl();
    run_sizes(largest);
    MPI_Barrier(MPI_COMM_WORLD); // before anybody's memory goes away
    if (nccl.comm)
        nccl.destroy(nccl.comm);
    fr_peer_segment_close(bench.segment);
    fr_peer_release();
    memory_free(&bench.host_receive);
    memory_free(&bench.host_send);
    memory_free(&bench.receive);
    memory_free(&bench.send);
    memory_stop();
    MPI_Finalize();
    return 0;
}
