// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations of rank 0 on a window of rank 1, which waits in a barrier meanwhile. Both
// windows and buffers are device memory. Beside them stand a raw push through the mapping, which
// returns when the bytes are there, and the real MPI's windows and buffers of host memory. The
// bytes are verified. Figures are medians in microseconds.
//
//   onesided [--repeats=COUNT]
#include "config.h"

#include "fabrail/device/classify.h"
#include "peers.h"
#include "rows.h"

#include <stdint.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20, MANY = 1000, MANY_BYTES = 64, MOST_REPEATS = 1001 };

static int repeats = 101;

// Windows and buffers of rank 0.
struct bench {
    MPI_Win device, host;
    struct memory buffer, host_buffer, window;
    struct fr_device_range range;
    uintptr_t there; // the window of rank 1, as rank 0 has it mapped
};

typedef void step(const struct bench *bench, size_t bytes);

static void put(const struct bench *bench, size_t bytes)
{
    MPI_Put(bench->buffer.address, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, bench->device);
    MPI_Win_flush(1, bench->device);
}

static void get(const struct bench *bench, size_t bytes)
{
    MPI_Get(bench->buffer.address, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, bench->device);
    MPI_Win_flush(1, bench->device);
}

static void put_many(const struct bench *bench, size_t bytes)
{
    for (int i = 0; i < MANY; i++) {
        size_t at = (size_t)i * bytes;
        MPI_Put(bench->buffer.address + at, (int)bytes, MPI_BYTE, 1, (MPI_Aint)at, (int)bytes,
                MPI_BYTE, bench->device);
    }
    MPI_Win_flush(1, bench->device);
}

static void put_from_host(const struct bench *bench, size_t bytes)
{
    MPI_Put(bench->host_buffer.address, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE,
            bench->device);
    MPI_Win_flush(1, bench->device);
}

static void put_on_host(const struct bench *bench, size_t bytes)
{
    MPI_Put(bench->host_buffer.address, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE,
            bench->host);
    MPI_Win_flush(1, bench->host);
}

static void push(const struct bench *bench, size_t bytes, enum fr_device_engine engine)
{
    const struct fr_device_push_piece piece = {
        .dst = bench->there, .src = (uintptr_t)bench->buffer.address, .bytes = bytes};
    demand(fr_device_push(&bench->range, &piece, 1, engine, 0) == FR_OK, "a push failed");
}

static void push_by_kernel(const struct bench *bench, size_t bytes)
{
    push(bench, bytes, FR_ENGINE_SM);
}

static void push_by_engine(const struct bench *bench, size_t bytes)
{
    push(bench, bytes, FR_ENGINE_CE);
}

// The buffer begins with an addend, and the old value goes behind it.
static void fetch_and_add(const struct memory *buffer, MPI_Win win)
{
    MPI_Fetch_and_op(buffer->address, buffer->address + 8, MPI_UINT64_T, 1, 0, MPI_SUM, win);
    MPI_Win_flush(1, win);
}

static void fetch_and_op(const struct bench *bench, size_t bytes)
{
    (void)bytes;
    fetch_and_add(&bench->host_buffer, bench->device);
}

static void fetch_and_op_device(const struct bench *bench, size_t bytes)
{
    (void)bytes;
    fetch_and_add(&bench->buffer, bench->device);
}

static void fetch_and_op_on_host(const struct bench *bench, size_t bytes)
{
    (void)bytes;
    fetch_and_add(&bench->host_buffer, bench->host);
}

static void compare_and_swap(const struct bench *bench, size_t bytes)
{
    (void)bytes;
    MPI_Compare_and_swap(bench->host_buffer.address, bench->host_buffer.address + 8,
                         bench->host_buffer.address + 16, MPI_UINT64_T, 1, 0, bench->device);
    MPI_Win_flush(1, bench->device);
}

static void accumulate(const struct bench *bench, size_t bytes)
{
    int count = (int)(bytes / sizeof(double));
    MPI_Accumulate(bench->buffer.address, count, MPI_DOUBLE, 1, 0, count, MPI_DOUBLE, MPI_SUM,
                   bench->device);
    MPI_Win_flush(1, bench->device);
}

static double median_us(const struct bench *bench, step *call, size_t bytes)
{
    static double us[MOST_REPEATS];
    int count = bytes >= 1 << 20 && repeats > 21 ? 21 : repeats;
    for (int i = -3; i < count; i++) { // the first ones warm up
        double begin = MPI_Wtime();
        call(bench, bytes);
        if (i >= 0)
            us[i] = 1e6 * (MPI_Wtime() - begin);
    }
    return peers_median(us, count);
}

static void print_sizes(const struct bench *bench)
{
    static const struct {
        const char *title;
        step *call;
        size_t most_bytes;
    } columns[] = {
        {"put", put, MOST_BYTES},
        {"get", get, MOST_BYTES},
        {"raw SM", push_by_kernel, MOST_BYTES},
        {"raw CE", push_by_engine, MOST_BYTES},
        {"from host", put_from_host, 1 << 20},
        {"accumulate", accumulate, MOST_BYTES},
        {"MPI on host", put_on_host, 1 << 20},
    };
    static const size_t sizes[] = {8, 64, 1024, 4096, 16384, 65536, 1 << 20, 16 << 20, MOST_BYTES};
    printf("%10s", "bytes");
    for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
        printf(" %12s", columns[c].title);
    printf("\n");
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        printf("%10zu", sizes[s]);
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            double us =
                sizes[s] <= columns[c].most_bytes ? median_us(bench, columns[c].call, sizes[s]) : 0;
            rows_print(12, 2, us);
            rows_put("onesided", sizes[s], columns[c].title, "us", us);
        }
        printf("\n");
    }
}

static void print_others(const struct bench *bench)
{
    double one = median_us(bench, put, MANY_BYTES);
    double many = median_us(bench, put_many, MANY_BYTES) / MANY;
    const struct {
        const char *title;
        double us;
    } rows[] = {
        {"put of 64 B and flush", one},
        {"put of 64 B, 1,000 before a flush", many},
        {"fetch and op, host operands", median_us(bench, fetch_and_op, 8)},
        {"fetch and op, device operands", median_us(bench, fetch_and_op_device, 8)},
        {"fetch and op, MPI on host", median_us(bench, fetch_and_op_on_host, 8)},
        {"compare and swap, host operands", median_us(bench, compare_and_swap, 8)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf("%-40s %10.3f\n", rows[i].title, rows[i].us);
        rows_put_named("onesided-single", rows[i].title, "Fabrail", "us", rows[i].us);
    }
}

static void fill(const struct memory *memory, unsigned char seed)
{
    unsigned char *bytes = malloc(MOST_BYTES);
    demand(bytes != NULL, "out of memory");
    for (size_t i = 0; i < MOST_BYTES; i++)
        bytes[i] = (unsigned char)(i * 131 / 7 + seed);
    memory_write(memory, 0, bytes, MOST_BYTES);
    free(bytes);
}

static void verify(const struct memory *memory, unsigned char seed, const char *what)
{
    unsigned char *bytes = malloc(MOST_BYTES);
    demand(bytes != NULL, "out of memory");
    memory_read(memory, 0, bytes, MOST_BYTES);
    for (size_t i = 0; i < MOST_BYTES; i++)
        demand(bytes[i] == (unsigned char)(i * 131 / 7 + seed), what);
    free(bytes);
}

static void run(struct bench *bench, int rank)
{
    if (rank == 0) {
        put(bench, MOST_BYTES);
        memory_write(&bench->host_buffer, 0, "\1\0\0\0\0\0\0", 8);
        print_sizes(bench);
        print_others(bench);
        fill(&bench->buffer, 1);
        put(bench, MOST_BYTES);
        fill(&bench->buffer, 9);
        get(bench, MOST_BYTES);
        verify(&bench->buffer, 1, "a get brought wrong bytes");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Win_sync(bench->device);
        verify(&bench->window, 1, "a put left wrong bytes");
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    uintptr_t addresses[PEERS_MOST];
    struct bench bench;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "--repeats=%d", &repeats) != 1 || repeats < 1 || repeats > MOST_REPEATS)
            return 2;
    }
    repeats |= 1;
    memory_start(rank);
    const char *missing = memory_missing(MEMORY_DEVICE);
    if (missing != NULL || size != 2) {
        if (rank == 0)
            printf("skipped: %s\n", missing != NULL ? missing : "wants two ranks");
        MPI_Finalize();
        return 77;
    }
    peers_start("onesided", MPI_COMM_WORLD);
    bench.buffer = memory_new(MEMORY_DEVICE, MOST_BYTES);
    bench.window = memory_new(MEMORY_DEVICE, MOST_BYTES);
    bench.host_buffer = memory_new(MEMORY_HOST, MOST_BYTES);
    struct memory host_window = memory_new(MEMORY_HOST, MOST_BYTES);
    memset(bench.host_buffer.address, 0, MOST_BYTES);
    memset(host_window.address, 0, MOST_BYTES);
    fr_device_classify(bench.buffer.address, MOST_BYTES, &bench.range);
    const char *unmapped = peers_map(&bench.window, &bench.range, addresses);
    demand(unmapped == NULL, "the window cannot be mapped");
    bench.there = addresses[1];
    MPI_Win_create(bench.window.address, MOST_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &bench.device);
    MPI_Win_create(host_window.address, MOST_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &bench.host);
    if (rank == 0)
        printf("microseconds on %s\n", peers_device_name(bench.range.device));
    MPI_Win_lock_all(0, bench.device);
    MPI_Win_lock_all(0, bench.host);
    run(&bench, rank);
    MPI_Win_unlock_all(bench.host);
    MPI_Win_unlock_all(bench.device);
    MPI_Win_free(&bench.host);
    MPI_Win_free(&bench.device);
    peers_stop();
    memory_free(&host_window);
    memory_free(&bench.host_buffer);
    memory_free(&bench.window);
    memory_free(&bench.buffer);
    memory_stop();
    MPI_Finalize();
    return 0;
}
