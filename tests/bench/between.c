// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks on a host each, by whatever way the preload has them take: the one-way
// time of a ping-pong from device memory to device memory. `fabrail tune --rails` starts it once
// with rails and once without; tests/bench/rails starts it with other options. Figures are medians.
// Every byte that arrives is verified at every size.
//
//   between [--memory=KIND] [--bytes=BYTES,...] [--window=MESSAGES] [--cpu] [LARGEST-BYTES]
//
// --memory=host is also for machines without a GPU. With --window a rank sends so many messages in
// a row, which the other one answers when it has them all; the time is for each message. --cpu adds
// the CPU time of both ranks for a GiB. Sizes double from 1K, or are as listed.
//
// Besides rows (rows.h) it prints the kind of machine of each rank: machine|RANK|HOST|KIND
#include "config.h"

#include "../programs/memory.h"
#include "fabrail/device.h"
#include "rows.h"

#include <mpi.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// gcc takes MPI_STATUSES_IGNORE of MPICH's mpi.h for an object of no size.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum {
    SMALLEST = 1024,
    WARM_UP = 1 << 20, // long enough for rails
    TAG = 1,
    FEWEST = 5,
    MOST = 101,
    KIND_BYTES = 512,
    MOST_SIZES = 32,
    WIDEST = 256, // widest window
};

// The first message opens rails. They are used once both ends have met over them.
static const double warm_up_s = 1.0, size_s = 0.3;

static struct {
    enum memory_kind kind;
    size_t bytes[MOST_SIZES];
    size_t count; // number of sizes
    int window;   // 0: a ping-pong
    bool cpu;
} asked = {.kind = MEMORY_DEVICE};

static struct {
    int rank;
    struct memory send, receive;
    unsigned char *host; // as large as a message
} own;

static void demand(int holds, const char *what)
{
    char host[64] = "";
    if (holds)
        return;
    gethostname(host, sizeof host - 1);
    fprintf(stderr, "between: rank %d on %s: %s\n", own.rank, host, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Returns byte i of what a rank sends at a size.
static unsigned char byte_of(int from, size_t bytes, size_t i)
{
    return (unsigned char)((i * 7 + i / 251 + bytes / 64 + (size_t)from * 101) % 253);
}

static size_t windows(void)
{
    return asked.window > 0 ? (size_t)asked.window : 1;
}

static void fill(size_t bytes)
{
    memset(own.host, 0xff, bytes);
    for (size_t i = 0; i < windows(); i++)
        memory_write(&own.receive, i * bytes, own.host, bytes);
    for (size_t i = 0; i < bytes; i++)
        own.host[i] = byte_of(own.rank, bytes, i);
    memory_write(&own.send, 0, own.host, bytes);
}

static void verify(size_t bytes)
{
    for (size_t at = 0; at < windows() && (asked.window == 0 || own.rank == 1); at++) {
        memory_read(&own.receive, at * bytes, own.host, bytes);
        for (size_t i = 0; i < bytes; i++)
            demand(own.host[i] == byte_of(1 - own.rank, bytes, i), "wrong bytes have arrived");
    }
}

static double trip(size_t bytes)
{
    double start = MPI_Wtime();
    if (own.rank == 0)
        MPI_Send(own.send.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    MPI_Recv(own.receive.address, (int)bytes, MPI_BYTE, 1 - own.rank, TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (own.rank == 1)
        MPI_Send(own.send.address, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

// Times a window: rank 0 sends all messages, and rank 1 answers from host memory. All messages of a
// window have the same bytes.
static double trip_of_window(size_t bytes)
{
    MPI_Request requests[WIDEST];
    char answer = 0;
    double start = MPI_Wtime();
    for (int i = 0; i < asked.window; i++) {
        if (own.rank == 0)
            MPI_Isend(own.send.address, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(own.receive.address + (size_t)i * bytes, (int)bytes, MPI_BYTE, 0, TAG,
                      MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(asked.window, requests, MPI_STATUSES_IGNORE);
    if (own.rank == 0)
        MPI_Recv(&answer, 1, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&answer, 1, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

static void warm_up(size_t largest)
{
    int more = 1;
    for (double start = MPI_Wtime(); more;) {
        (void)trip(largest < WARM_UP ? largest : WARM_UP);
        more = MPI_Wtime() - start < warm_up_s;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return seconds_of(&used.ru_utime) + seconds_of(&used.ru_stime);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof values[0], compare);
    return values[count / 2];
}

static void measure(size_t bytes)
{
    double (*run)(size_t) = asked.window > 0 ? trip_of_window : trip;
    int each = asked.window > 0 ? asked.window : 2; // messages of a run
    double runs[MOST], cpu[MOST], cpu_of_both[MOST];
    fill(bytes);
    double first = run(bytes);
    int count = first * MOST < size_s ? MOST : (int)(size_s / first);
    count = count < FEWEST ? FEWEST : count | 1;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        double before = cpu_seconds();
        runs[i] = run(bytes);
        cpu[i] = cpu_seconds() - before;
    }
    MPI_Allreduce(cpu, cpu_of_both, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    verify(bytes);
    if (own.rank != 0)
        return;
    rows_put("between hosts", bytes, asked.window > 0 ? "in flight" : "one way", "us",
             median(runs, count) / each * 1e6);
    rows_put("between hosts", bytes, "cpu", "s/GiB",
             median(cpu_of_both, count) / ((double)bytes * each) * (1 << 30));
}

// Checks that the ranks are on two hosts. Rank 0 prints the machines of both.
static void introduce(void)
{
    struct {
        char host[64], kind[KIND_BYTES];
    } all[2];
    char kind[FR_DEVICE_MACHINE_BYTES] = "";
    demand(asked.kind == MEMORY_HOST || fr_device_machine_text(kind) == FR_OK,
           "neither NVML nor the driver names its GPU");
    memset(&all[own.rank], 0, sizeof all[0]);
    gethostname(all[own.rank].host, sizeof all[0].host - 1);
    snprintf(all[own.rank].kind, sizeof all[0].kind, "%s", kind);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)sizeof all[0], MPI_BYTE,
                  MPI_COMM_WORLD);
    demand(strcmp(all[0].host, all[1].host) != 0, "the other rank is on the same host");
    for (int rank = 0; rank < 2 && own.rank == 0; rank++)
        printf("machine|%d|%s|%s\n", rank, all[rank].host, all[rank].kind);
}

static void take_sizes(const char *list)
{
    for (char *end = NULL; *list != '\0' && asked.count < MOST_SIZES; list = end) {
        asked.bytes[asked.count++] = strtoull(list, &end, 0);
        demand(end != list, "--bytes wants numbers");
        end += *end == ',';
    }
}

static void take_arguments(int argc, char **argv)
{
    size_t largest = (size_t)16 << 20;
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        if (strncmp(argv[i], "--memory=", 9) == 0)
            asked.kind = memory_kind_named(value + 1);
        else if (strncmp(argv[i], "--bytes=", 8) == 0)
            take_sizes(value + 1);
        else if (strncmp(argv[i], "--window=", 9) == 0)
            asked.window = (int)strtol(value + 1, NULL, 0);
        else if (strcmp(argv[i], "--cpu") == 0)
            asked.cpu = true;
        else
            largest = strtoull(argv[i], NULL, 0);
    }
    bool listed = asked.count > 0;
    for (size_t bytes = SMALLEST; !listed && bytes <= largest; bytes *= 2)
        asked.bytes[asked.count++] = bytes;
    demand(asked.kind < MEMORY_KINDS, "--memory wants a kind of memory");
    demand(asked.window >= 0 && asked.window <= WIDEST, "a window is of 1 to 256 messages");
    for (size_t i = 0; i < asked.count; i++)
        demand(asked.bytes[i] > 0 && asked.bytes[i] <= (size_t)1 << 30, "sizes are up to 1G");
    demand(asked.count > 0 && (listed || largest <= (size_t)1 << 30), "sizes are from 1K to 1G");
}

int main(int argc, char **argv)
{
    int size;
    size_t largest = SMALLEST; // the size that warming up takes
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    demand(size == 2, "there have to be two ranks");
    take_arguments(argc, argv);
    for (size_t i = 0; i < asked.count; i++)
        largest = asked.bytes[i] > largest ? asked.bytes[i] : largest;
    memory_start(0);
    demand(memory_missing(asked.kind) == NULL, "there is no such memory here");
    introduce();
    own.send = memory_new(asked.kind, largest);
    own.receive = memory_new(asked.kind, largest * windows());
    own.host = malloc(largest);
    demand(own.host != NULL, "no memory");
    warm_up(largest);
    for (size_t i = 0; i < asked.count; i++)
        measure(asked.bytes[i]);
    free(own.host);
    memory_free(&own.send);
    memory_free(&own.receive);
    memory_stop();
    MPI_Finalize();
    return 0;
}
