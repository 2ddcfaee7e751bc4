// SPDX-License-Identifier: BSD-3-Clause
// Messages from device memory to device memory between ranks 0 and 1 of one host, a GPU each: the
// one-way time of a ping-pong, and the bandwidth of up to 64 messages in flight from 0 to 1. All
// ways stand side by side in one run. Figures are medians. Every received byte is verified at every
// size.
//
//   MPI      the call itself, which is Fabrail's under the preload
//   NCCL     send and receive on a stream, a window as one group; the host waits for what it
//            receives
//   by hand  copy to page-locked memory, MPI, copy up; message after message in a window, so that
//            copies and MPI overlap
//   raw      the limit: the receiver learns of the message through shared memory, pulls it out of
//            the sender's mapped buffer by copy engines (CE) or a kernel (SM), and answers likewise
// |
//   message [--only=pingpong|window] [--methods=mpi,nccl,hand,raw] [--complete=all|any|each]
//           [LARGEST-BYTES [KIND]]
//
// A line under each table says what the ranks' cores did in a cycle (core_share.h): what else runs
// on a core has short messages take up to twice as long.
//
// --complete has MPI complete a window by one MPI_Waitall, by MPI_Waitany or by MPI_Wait for each.
// Further ranks only wait for these two.
#include "config.h"

#include "core_share.h"
#include "rows.h"
#include "ways.h"

#include "fabrail/device/classify.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 8, GUARD_BYTES = 64, WARM_UP = 5 };

// Most bytes of the messages of a window, so that four buffers of them fit anywhere. Simulated
// memory is the host's, and its figures mean nothing, so less will do.
static const size_t most_in_flight = (size_t)1 << 30, most_simulated = (size_t)32 << 20;
enum { SIMULATED_REPEATS = 11 };

// Sets of ways.
enum {
    ALL_WAYS = (1 << WAYS) - 1,
    NCCL_WAY = 1 << WAY_NCCL,
    RAW_WAYS = 1 << WAY_RAW_CE | 1 << WAY_RAW_SM,
};
enum { PINGPONG = 1, STREAM = 2 };

struct options {
    size_t largest;
    enum memory_kind kind;
    unsigned methods; // a set of ways
    unsigned tests;   // PINGPONG, STREAM
};

static struct end own;
static bool simulated;
static uint64_t seed; // seed of the measurement under way

static size_t window_of(size_t bytes)
{
    size_t most = (simulated ? most_simulated : most_in_flight) / bytes;
    return most > WAYS_WINDOW ? WAYS_WINDOW : most > 0 ? most : 1;
}

static size_t next_size(size_t bytes)
{
    return bytes * (bytes < 4096 ? 8 : 4);
}

// Returns word `index` of what a rank sends. Each measurement has a seed of its own, so that bytes
// that an earlier one left in the buffer do not pass for its own.
static uint64_t word_of(int from, size_t index)
{
    uint64_t word = (seed * 2 + (uint64_t)from + 1) * 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 32) + index * 0xd6e8feb86659fd93u;
    return word ^ word >> 29;
}

static void fill(size_t sent_bytes, size_t received_bytes)
{
    uint64_t *words = (uint64_t *)(void *)own.host_send.address;
    unsigned char guard[GUARD_BYTES];
    seed++;
    for (size_t i = 0; i < sent_bytes / sizeof(words[0]); i++)
        words[i] = word_of(own.rank, i);
    if (sent_bytes > 0)
        memory_write(&own.send, 0, words, sent_bytes);
    memset(words, 0, sent_bytes); // the bytes sent have to come from the device
    memset(guard, (int)(0x80 | (seed & 0x7f)), sizeof(guard));
    memory_write(&own.receive, received_bytes, guard, sizeof(guard));
}

static void verify(size_t received_bytes, const char *title)
{
    const unsigned char *bytes = own.host_receive.address;
    const uint64_t *words = (const uint64_t *)(const void *)bytes;
    char text[128];
    memory_read(&own.receive, 0, own.host_receive.address, received_bytes + GUARD_BYTES);
    for (size_t i = 0; i < received_bytes / sizeof(words[0]); i++) {
        if (words[i] == word_of(own.other, i))
            continue;
        snprintf(text, sizeof(text), "%s: wrong bytes from %zu on of %zu", title,
                 i * sizeof(words[0]), received_bytes);
        demand(false, text);
    }
    for (size_t i = received_bytes; i < received_bytes + GUARD_BYTES; i++) {
        if (bytes[i] == (0x80 | (seed & 0x7f)))
            continue;
        snprintf(text, sizeof(text), "%s: a byte was written behind the %zu received", title,
                 received_bytes);
        demand(false, text);
    }
}

// Returns rank 0's median time in us. Trips follow each other without a pause, so that rank 1 is
// in its receive when the next message comes.
static double time_of(way *one, const char *title, size_t bytes, size_t count, unsigned test)
{
    double us[PEERS_MOST_REPEATS];
    bool both = test == PINGPONG;
    size_t received_bytes = both || own.rank == 1 ? bytes * count : 0;
    int repeats = peers_repeats(bytes);
    if (simulated && repeats > SIMULATED_REPEATS)
        repeats = SIMULATED_REPEATS;
    fill(both || own.rank == 0 ? bytes * count : 0, received_bytes);
    peers_barrier();
    for (int i = -WARM_UP; i < repeats; i++) {
        double start = MPI_Wtime();
        one(&own, bytes, count);
        if (i >= 0)
            us[i] = (MPI_Wtime() - start) * 1e6;
    }
    peers_barrier(); // before the buffers of any rank change
    verify(received_bytes, title);
    return peers_median(us, repeats);
}

// Returns the best raw figure: the least time, or the most bandwidth.
static double best_raw(const double *figures, unsigned test)
{
    double ce = figures[WAY_RAW_CE], sm = figures[WAY_RAW_SM];
    return (ce < sm) == (test == PINGPONG) ? ce : sm;
}

static void print_row(size_t bytes, size_t count, const double *figures, unsigned test)
{
    double raw = best_raw(figures, test), mpi = figures[WAY_MPI], nccl = figures[WAY_NCCL];
    if (own.rank != 0)
        return;
    printf("%10zu", bytes);
    if (test == STREAM)
        printf(" %7zu", count);
    for (int i = 0; i < WAYS; i++)
        rows_print(9, test == STREAM ? 3 : 1, figures[i]);
    rows_print(9, 2, raw > 0 ? mpi / raw : 0);
    rows_print(9, 2, nccl > 0 ? mpi / nccl : 0);
    printf("\n");
    for (int i = 0; i < WAYS; i++)
        rows_put(test == STREAM ? "bandwidth of messages in flight" : "one-way time of a message",
                 bytes, ways[i].name, test == STREAM ? "GB/s" : "us", figures[i]);
    fflush(stdout);
}

static void print_head(unsigned test)
{
    if (own.rank != 0)
        return;
    printf("\n%s\n", test == PINGPONG
                         ? "ping-pong, one-way time in us; ratios below 1: MPI is faster"
                         : "window of messages, GB/s; ratios above 1: MPI is faster");
    printf("%10s", "bytes");
    if (test == STREAM)
        printf(" %7s", "window");
    for (int i = 0; i < WAYS; i++)
        printf(" %9s", ways[i].title);
    printf(" %9s %9s\n", "MPI/raw", "MPI/NCCL");
    fflush(stdout);
}

// How much of its core a rank had, least and most.
struct share {
    double least, most;
};

static void look_at_core(struct share *share)
{
    double now = core_additions_per_cycle();
    share->least = now < share->least ? now : share->least;
    share->most = now > share->most ? now : share->most;
}

static void print_shares(const struct share *share)
{
    struct share shares[2];
    MPI_Allgather(share, 2, MPI_DOUBLE, shares, 2, MPI_DOUBLE, own.pair);
    if (own.rank == 0 && shares[0].most > 0)
        printf("additions in a cycle: rank 0 %.1f to %.1f, rank 1 %.1f to %.1f; about half where "
               "something else is on the core\n",
               shares[0].least, shares[0].most, shares[1].least, shares[1].most);
}

static void run_test(unsigned test, size_t largest, unsigned methods)
{
    struct share share = {.least = DBL_MAX};
    print_head(test);
    for (size_t bytes = SMALLEST; bytes <= largest; bytes = next_size(bytes)) {
        double figures[WAYS] = {0};
        size_t count = test == PINGPONG ? 1 : window_of(bytes);
        for (int i = 0; i < WAYS; i++) {
            if ((methods & 1u << i) == 0)
                continue;
            way *one = test == PINGPONG ? ways[i].trip : ways[i].window;
            double us = time_of(one, ways[i].title, bytes, count, test);
            if (i == WAY_MPI)
                look_at_core(&share);
            figures[i] = test == PINGPONG ? us / 2 : (double)(bytes * count) * 1e-3 / us;
        }
        print_row(bytes, count, figures, test);
    }
    if (methods & 1u << WAY_MPI)
        print_shares(&share);
}

// Allocates the buffers. Only the rank that sends windows, or receives them, has memory for a whole
// one.
static void allocate(const struct options *options)
{
    size_t most = options->largest;
    if (options->tests & STREAM) {
        for (size_t bytes = SMALLEST; bytes <= options->largest; bytes = next_size(bytes))
            most = bytes * window_of(bytes) > most ? bytes * window_of(bytes) : most;
    }
    enum memory_kind kind = memory_kind_on_rank(options->kind, own.rank);
    size_t send = own.rank == 0 ? most : options->largest;
    size_t receive = (own.rank == 1 ? most : options->largest) + GUARD_BYTES;
    own.send = memory_new(kind, send);
    own.receive = memory_new(kind, receive);
    own.host_send = memory_new(MEMORY_PINNED, send);
    own.host_receive = memory_new(MEMORY_PINNED, receive);
    fr_device_classify(own.receive.address, receive, &own.range);
}

static void release(void)
{
    memory_free(&own.host_receive);
    memory_free(&own.host_send);
    memory_free(&own.receive);
    memory_free(&own.send);
}

static void start_raw(unsigned *methods)
{
    uintptr_t mapped[PEERS_MOST];
    const char *refused = peers_map(&own.send, &own.range, mapped);
    if (refused != NULL) {
        *methods &= ~(unsigned)RAW_WAYS;
        if (own.rank == 0)
            printf("no raw columns: %s\n", refused);
        return;
    }
    own.theirs = mapped[own.other];
    if (own.rank == 0 && !fr_device_has_kernels(&own.range, FR_IMAGE_PUSH))
        printf("no kernels: column raw SM shows copy engines too\n");
}

// Takes methods away that are not to be had here, and says so.
static void start_methods(enum memory_kind kind, unsigned *methods)
{
    bool on_device = kind != MEMORY_HOST && kind != MEMORY_PINNED && kind != MEMORY_MIXED;
    if ((*methods & NCCL_WAY) && (!on_device || !nccl_start())) {
        *methods &= ~(unsigned)NCCL_WAY;
        if (own.rank == 0)
            printf("no NCCL column: %s\n",
                   on_device ? "it is not there or does not start" : "it takes device memory only");
    }
    if (*methods & RAW_WAYS)
        start_raw(methods);
    fflush(stdout);
}

static void describe_devices(const struct options *options)
{
    unsigned char uuids[2][FR_DEVICE_UUID_BYTES];
    struct memory probe = memory_new(MEMORY_DEVICE, 1);
    struct fr_device_range range;
    fr_device_classify(probe.address, 1, &range);
    memory_free(&probe);
    simulated = peers_device_is_simulated(range.device);
    fr_device_uuid(range.device, uuids[own.rank]);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, uuids, FR_DEVICE_UUID_BYTES, MPI_BYTE, own.pair);
    if (own.rank != 0)
        return;
    printf("%s, %s memory\n", peers_device_name(range.device), memory_kind_name(options->kind));
    if (memcmp(uuids[0], uuids[1], FR_DEVICE_UUID_BYTES) == 0)
        printf("both ranks are on one device\n");
    if (simulated)
        printf("SIMULATED; these figures say nothing about a GPU\n");
}

// Returns the exit status of both ranks, which is the same.
static int run_pair(const struct options *options)
{
    unsigned methods = options->methods;
    memory_start(own.rank);
    const char *missing = memory_missing(MEMORY_DEVICE);
    if (missing == NULL)
        missing = memory_missing(memory_kind_on_rank(options->kind, own.rank));
    int missing_somewhere = missing != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &missing_somewhere, 1, MPI_INT, MPI_MAX, own.pair);
    if (missing_somewhere) {
        if (missing != NULL)
            printf("skipped: %s\n", missing);
        return 77;
    }
    peers_start("message", own.pair);
    describe_devices(options);
    allocate(options);
    start_methods(options->kind, &methods);
    if (options->tests & PINGPONG)
        run_test(PINGPONG, options->largest, methods);
    if (options->tests & STREAM)
        run_test(STREAM, options->largest, methods);
    MPI_Barrier(own.pair); // before the memory of any rank goes away
    nccl_stop();
    peers_stop();
    release();
    memory_stop();
    return 0;
}

static bool parse_methods(const char *text, unsigned *methods)
{
    *methods = 0;
    while (true) {
        size_t length = strcspn(text, ",");
        unsigned found = 0;
        for (unsigned i = 0; i < WAYS; i++) {
            const char *method = ways[i].method;
            if (strlen(method) == length && strncmp(method, text, length) == 0)
                found |= 1u << i;
        }
        if (found == 0)
            return false;
        *methods |= found;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static bool parse_completion(const char *text)
{
    static const char *const names[] = {
        [WAYS_WAITALL] = "all", [WAYS_WAITANY] = "any", [WAYS_WAIT] = "each"};
    for (int i = WAYS_WAITALL; i <= WAYS_WAIT; i++) {
        ways_completion = (enum ways_completion)i;
        if (strcmp(text, names[i]) == 0)
            return true;
    }
    return false;
}

static bool parse_largest(const char *text, size_t *largest)
{
    char *end = NULL;
    *largest = strtoull(text, &end, 0);
    return *end == '\0' && *largest >= SMALLEST && *largest <= most_in_flight;
}

static bool parse(int argc, char **argv, struct options *options)
{
    int plain = 0;
    *options = (struct options){.largest = (size_t)256 << 20,
                                .kind = MEMORY_DEVICE,
                                .methods = ALL_WAYS,
                                .tests = PINGPONG | STREAM};
    for (int i = 1; i < argc; i++) {
        bool good = true;
        if (strncmp(argv[i], "--methods=", 10) == 0)
            good = parse_methods(argv[i] + 10, &options->methods);
        else if (strcmp(argv[i], "--only=pingpong") == 0)
            options->tests = PINGPONG;
        else if (strcmp(argv[i], "--only=window") == 0)
            options->tests = STREAM;
        else if (strncmp(argv[i], "--complete=", 11) == 0)
            good = parse_completion(argv[i] + 11);
        else if (argv[i][0] == '-' || plain == 2)
            good = false;
        else if (plain++ == 0)
            good = parse_largest(argv[i], &options->largest);
        else
            options->kind = memory_kind_named(argv[i]);
        if (!good || options->kind == MEMORY_KINDS)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct options options;
    int size = 0, status = 2;
    bool usable = parse(argc, argv, &options);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    own.other = 1 - own.rank;
    if (!usable && own.rank == 0)
        fprintf(stderr, "usage: message [--only=pingpong|window] [--methods=mpi,nccl,hand,raw] "
                        "[--complete=all|any|each] [LARGEST-BYTES [KIND]]\n");
    if (usable && size < 2) {
        printf("skipped: two ranks are needed\n");
        status = 77;
    } else if (usable) {
        MPI_Comm_split(MPI_COMM_WORLD, own.rank < 2 ? 0 : MPI_UNDEFINED, 0, &own.pair);
        if (own.rank < 2) {
            status = run_pair(&options);
            MPI_Comm_free(&own.pair);
        }
        MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return status;
}
