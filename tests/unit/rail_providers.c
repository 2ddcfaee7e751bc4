// SPDX-License-Identifier: BSD-3-Clause
// Rails over libfabric's own providers, between two processes on the loopback: the second owns
// memory and polls, the first reads and writes it.
#include "config.h"

#include "fabrail/rail.h"

#include "processes.h"
#include "rail/cores.c"

#include <time.h>

enum { MEMORY = 20 << 20, GUARD = 64, SECONDS = 60, NAP_NS = 400000000 };

struct told {
    unsigned char bytes[FR_RAIL_ADDRESS_MAX];
    size_t length;
};

static const char *provider;
static unsigned char *memory;

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static struct fr_rails *open_or_skip(void)
{
    struct fr_rails *rails = NULL;
    struct fr_rail_options options = fr_rail_options();
    options.provider = provider;
    options.nics = strcmp(provider, "shm") == 0 ? "" : "lo";
    options.rank = (unsigned)process_rank;
    enum fr_status status = fr_rail_open(&options, &rails);
    if (status == FR_ERR_NOT_FOUND) {
        fprintf(stderr, "skipped: libfabric has no provider %s here\n", provider);
        exit(CHECK_SKIP);
    }
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return rails;
}

static void exchange(struct fr_rails *rails)
{
    static struct told own, other;
    unsigned peer = process_rank == 0 ? 1 : 0;
    own.length = fr_rail_address(rails, own.bytes);
    process_say((int)peer, &own, sizeof(own));
    process_hear((int)peer, &other, sizeof(other));
    CHECK(fr_rail_peer_add(rails, peer, other.bytes, other.length - 1) == FR_ERR_INVALID);
    CHECK(fr_rail_peer_rails(rails, peer) == 0, "unknown still");
    CHECK(fr_rail_peer_add(rails, peer, other.bytes, other.length) == FR_OK);
    CHECK(fr_rail_peer_add(rails, peer, other.bytes, other.length) == FR_OK);
}

static struct fr_rail_region *register_all(struct fr_rails *rails, uint64_t id)
{
    struct fr_rail_region *region = NULL;
    struct fr_rail_memory what = {.address = memory, .bytes = MEMORY, .id = id};
    enum fr_status status = fr_rail_register(rails, &what, &region);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return region;
}

static enum fr_status wait_for(struct fr_rails *rails, struct fr_rail_transfer *transfer)
{
    enum fr_status status = FR_OK;
    double until = seconds() + SECONDS;
    while (!fr_rail_test(transfer, &status) && seconds() < until)
        fr_rail_poll(rails);
    bool ended = fr_rail_test(transfer, &status);
    CHECK(ended, "%s: no end within %d s", provider, SECONDS);
    if (!ended)
        _exit(CHECK_FAIL);
    fr_rail_finish(transfer);
    return status;
}

// The second process polls until the first has a word for it. It sleeps in between, up to so long;
// where the provider tells it when not to, no read has to wait for that.
static bool serve(struct fr_rails *rails, long nap_ns, char *word)
{
    double until = seconds() + 2 * SECONDS;
    while (recv(process_socket(0), word, 1, MSG_DONTWAIT) != 1) {
        fr_rail_poll(rails);
        if (nap_ns > 0 && !fr_rail_wait(rails, nap_ns))
            nap_ns = 0;
        if (seconds() > until)
            return false;
    }
    return true;
}

// The memory of the process that is read.
static const unsigned char *expected_memory(void)
{
    static unsigned char expected[MEMORY];
    static bool is_filled;
    if (!is_filled)
        check_fill(expected, MEMORY, 1);
    is_filled = true;
    return expected;
}

static void check_read(struct fr_rails *rails, struct fr_rail_region *region,
                       const struct told *key, size_t from, size_t to, size_t bytes)
{
    struct fr_rail_transfer *transfer = NULL;
    const unsigned char *expected = expected_memory();
    memset(memory, 0xee, MEMORY);
    enum fr_status status =
        fr_rail_read(rails, 1, key->bytes, key->length, from, region, to, bytes, &transfer);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    status = wait_for(rails, transfer);
    CHECK(status == FR_OK, "%s: %s", provider, fr_core_status_text(status));
    CHECK(memcmp(memory + to, expected + from, bytes) == 0, "%s: %zu bytes from %zu to %zu",
          provider, bytes, from, to);
    for (size_t i = 1; i <= GUARD; i++) {
        CHECK(to < i || memory[to - i] == 0xee, "%zu before", i);
        CHECK(to + bytes + i > MEMORY || memory[to + bytes + i - 1] == 0xee, "%zu after", i);
    }
}

static void read_all(struct fr_rails *rails, struct fr_rail_region *region, const struct told *key)
{
    static const size_t sizes[] = {1,     127,     128,         129,     65535,          65536,
                                   65537, 1 << 20, 1048576 + 3, 5 << 20, (16 << 20) + 17};
    struct fr_rail_transfer *transfer = NULL;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sizes); i++) {
        check_read(rails, region, key, 0, 0, sizes[i]);
        check_read(rails, region, key, 77 + i, 1025 * i, sizes[i]);
    }
    check_read(rails, region, key, MEMORY - 1, MEMORY - 1, 1);
    check_read(rails, region, key, 0, 0, 0);
    CHECK(fr_rail_read(rails, 1, key->bytes, key->length, 1, region, 0, MEMORY, &transfer) ==
          FR_ERR_INVALID);
    CHECK(fr_rail_read(rails, 1, key->bytes, key->length, 0, region, 1, MEMORY, &transfer) ==
          FR_ERR_INVALID);
    CHECK(fr_rail_read(rails, 1, key->bytes, key->length - 1, 0, region, 0, 1, &transfer) ==
          FR_ERR_INVALID);
    CHECK(fr_rail_read(rails, 2, key->bytes, key->length, 0, region, 0, 1, &transfer) ==
          FR_ERR_NOT_FOUND);
}

// Many at once, of all sizes, each to a place of its own.
static void read_many(struct fr_rails *rails, struct fr_rail_region *region, const struct told *key)
{
    enum { COUNT = 200 };
    const unsigned char *expected = expected_memory();
    struct fr_rail_transfer *transfers[COUNT];
    size_t at[COUNT + 1] = {0};
    uint64_t state = 7;
    memset(memory, 0xee, MEMORY);
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = 1 + check_random(&state) % (MEMORY / COUNT - 1);
        at[i + 1] = at[i] + bytes;
        CHECK(fr_rail_read(rails, 1, key->bytes, key->length, at[i], region, at[i], bytes,
                           &transfers[i]) == FR_OK);
    }
    for (int i = COUNT; i-- > 0;)
        CHECK(wait_for(rails, transfers[i]) == FR_OK);
    CHECK(memcmp(memory, expected, at[COUNT]) == 0);
    CHECK(memory[at[COUNT]] == 0xee);
}

// One after the other, each of which finds the other process asleep.
static void read_singly(struct fr_rails *rails, struct fr_rail_region *region,
                        const struct told *key)
{
    enum { COUNT = 500 };
    struct fr_rail_transfer *transfer = NULL;
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(fr_rail_read(rails, 1, key->bytes, key->length, i, region, i, 1, &transfer) == FR_OK);
        CHECK(wait_for(rails, transfer) == FR_OK);
    }
}

static void write_some(struct fr_rails *rails, struct fr_rail_region *region,
                       const struct told *key)
{
    struct fr_rail_transfer *transfer = NULL;
    check_fill(memory, MEMORY, 2);
    enum fr_status status =
        fr_rail_write(rails, 1, key->bytes, key->length, 100, region, 33, 3 << 20, &transfer);
    if (!fr_rail_writes(rails)) {
        CHECK(status == FR_ERR_UNSUPPORTED);
        fprintf(stderr, "%s does not say when a write has arrived: not used\n", provider);
    } else {
        CHECK(status == FR_OK, "%s", fr_core_status_text(status));
        status = wait_for(rails, transfer);
        CHECK(status == FR_OK, "%s: %s", provider, fr_core_status_text(status));
    }
    char word = fr_rail_writes(rails) ? 'w' : 'n';
    process_say(1, &word, 1);
}

static void check_written(const char word)
{
    static unsigned char expected[MEMORY], source[MEMORY];
    check_fill(expected, MEMORY, 1);
    check_fill(source, MEMORY, 2);
    if (word == 'w')
        memcpy(expected + 100, source + 33, 3 << 20);
    CHECK(memcmp(expected, memory, MEMORY) == 0, "%s: what was written", provider);
}

// Memory that is not registered any more is refused. (shm has the kernel copy it, whatever the
// key.)
static void read_forgotten(struct fr_rails *rails, struct fr_rail_region *region,
                           const struct told *old)
{
    struct fr_rail_transfer *transfer = NULL;
    struct told key;
    process_hear(1, &key, sizeof(key));
    if (strcmp(provider, "shm") == 0)
        return;
    CHECK(fr_rail_read(rails, 1, old->bytes, old->length, 0, region, 0, 1 << 20, &transfer) ==
          FR_OK);
    enum fr_status status = wait_for(rails, transfer);
    CHECK(status == FR_ERR_RAIL, "%s: memory that is not registered: %s", provider,
          fr_core_status_text(status));
}

// Both read the upper half of the other's memory into the lower half of their own at once.
static void read_each_other(struct fr_rails *rails, struct fr_rail_region *region)
{
    unsigned peer = process_rank == 0 ? 1 : 0;
    size_t half = MEMORY / 2;
    struct told key = {.length = fr_rail_describe(region, half, half, key.bytes)}, other;
    struct fr_rail_transfer *transfer = NULL;
    char word = 'd';
    memset(memory, 0xee, half);
    check_fill(memory + half, half, 10 + (uint64_t)process_rank);
    process_say((int)peer, &key, sizeof(key));
    process_hear((int)peer, &other, sizeof(other));
    CHECK(fr_rail_read(rails, peer, other.bytes, other.length, 0, region, 0, half - GUARD,
                       &transfer) == FR_OK);
    CHECK(wait_for(rails, transfer) == FR_OK);
    CHECK(check_first_difference(memory, half - GUARD, 10 + peer) == half - GUARD, "%s", provider);
    for (size_t i = half - GUARD; i < half; i++)
        CHECK(memory[i] == 0xee, "byte %zu", i);
    process_say((int)peer, &word, 1);
    double until = seconds() + SECONDS;
    while (recv(process_socket((int)peer), &word, 1, MSG_DONTWAIT) != 1 && seconds() < until)
        fr_rail_poll(rails); // the other may not be through
}

static bool is_list(const char *list, const char *others)
{
    cpu_set_t cores, expected;
    CPU_ZERO(&cores);
    CPU_ZERO(&expected);
    for (; *others != '\0'; others++)
        CPU_SET(*others - '0', &expected);
    return read_list(list, &cores) && CPU_EQUAL(&cores, &expected);
}

// The loopback is near to no core, so that a thread may run on all.
static void check_cores(const struct fr_rails *rails)
{
    cpu_set_t before, one, after;
    CHECK(is_list("", "") && is_list("0\n", "0") && is_list("1-3,5,7-8\n", "123578"));
    CHECK(!is_list("x", "") && !is_list("1;2", "1") && is_list("2-1", ""));
    CHECK(is_list("4-4", "4") && is_list("99999", ""));
    sched_getaffinity(0, sizeof(before), &before);
    CPU_ZERO(&one);
    for (int core = CPU_SETSIZE; core-- > 0 && CPU_COUNT(&one) == 0;) {
        if (CPU_ISSET(core, &before))
            CPU_SET(core, &one);
    }
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    CHECK(fr_rail_stay_near(rails));
    sched_getaffinity(0, sizeof(after), &after);
    CPU_AND(&one, &before, &after);
    CHECK(CPU_EQUAL(&one, &before), "%d of %d cores", CPU_COUNT(&after), CPU_COUNT(&before));
    sched_setaffinity(0, sizeof(before), &before);
}

static void run(void)
{
    struct told key = {.length = 0};
    struct fr_rail_counters counters;
    memory = malloc(MEMORY);
    memset(memory, 0, MEMORY);
    struct fr_rails *rails = open_or_skip();
    check_cores(rails);
    exchange(rails);
    CHECK(fr_rail_count(rails) == 1);
    CHECK(fr_rail_takes(rails, FR_RAIL_HOST) && !fr_rail_takes(rails, FR_RAIL_CUDA));
    struct fr_rail_region *region = register_all(rails, 5);
    read_each_other(rails, region);
    if (process_rank == 0) {
        process_hear(1, &key, sizeof(key));
        read_all(rails, region, &key);
        read_many(rails, region, &key);
        read_singly(rails, region, &key);
        fr_rail_counters(rails, 0, &counters);
        CHECK(counters.read_bytes > 2 * (16 << 20) && counters.stripes > 200 &&
                  counters.busy_ns > 0,
              "%s: %llu bytes", provider, (unsigned long long)counters.read_bytes);
        CHECK(counters.errors == 0 && counters.again == 0 && !counters.out);
        write_some(rails, region, &key);
        read_forgotten(rails, region, &key);
        process_say(1, "e", 1);
    } else {
        char word = 0;
        check_fill(memory, MEMORY, 1);
        key.length = fr_rail_describe(region, 0, MEMORY, key.bytes);
        process_say(0, &key, sizeof(key));
        CHECK(serve(rails, NAP_NS, &word));
        check_written(word);
        fr_rail_release(rails, region);
        fr_rail_forget(rails, 5);
        region = register_all(rails, 6);
        key.length = fr_rail_describe(region, 0, MEMORY, key.bytes);
        process_say(0, &key, sizeof(key));
        CHECK(serve(rails, 0, &word) && word == 'e');
    }
    fr_rail_release(rails, region);
    fr_rail_close(rails);
    free(memory);
}

#define RUN(function, name)                                                                        \
    static void function(void)                                                                     \
    {                                                                                              \
        provider = name;                                                                           \
        run();                                                                                     \
    }
RUN(run_net, "net")
RUN(run_tcp, "tcp")
RUN(run_sockets, "sockets")
RUN(run_shm, "shm")

int main(int count, char **arguments)
{
    static const struct process_case cases[] = {
        {"net", 2, run_net, {NULL}, {{NULL}}},
        {"tcp", 2, run_tcp, {NULL}, {{NULL}}},
        {"sockets", 2, run_sockets, {NULL}, {{NULL}}},
        {"shm", 2, run_shm, {NULL}, {{NULL}}},
        {.name = NULL},
    };
#ifdef __SANITIZE_THREAD__
    (void)cases;
    (void)count;
    (void)arguments;
    puts("skipped: ThreadSanitizer does not see how libfabric's own threads wait for each other");
    return CHECK_SKIP;
#else
    return process_main(cases, count, arguments);
#endif
}
