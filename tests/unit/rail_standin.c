// SPDX-License-Identifier: BSD-3-Clause
// Transfers on the stand-in for libfabric: whatever mode and limit a provider has, batches, turns,
// and each call that fails.
#include "config.h"

#include "rail_standin.h"

#include <pthread.h>
#include <time.h>

static void test_sizes(void)
{
    static const size_t sizes[] = {0,     1,     127,   128,   129,     65535,
                                   65536, 65537, 98303, 98304, 1 << 20, (4 << 20) + 77};
    begin_usual();
    CHECK(fr_rail_count(near) == 4 && fr_rail_writes(near));
    for (size_t i = 0; i < FR_ARRAY_LENGTH(sizes); i++) {
        read_and_check(0, 0, sizes[i]);
        read_and_check(i * 1001, i * 333 + 5, sizes[i]);
    }
    for (unsigned i = 0; i < 4; i++)
        CHECK(counters_of(i).read_bytes > 0 && counters_of(i).again == 0, "rail %u", i);
    close_pair();
}

static void test_writes(void)
{
    struct fr_rail_transfer *transfer = NULL;
    begin_usual();
    check_fill(near_memory, MEMORY, 9);
    CHECK(fr_rail_write(near, FAR, key, key_bytes, 11, near_region, 22, 3 << 20, &transfer) ==
          FR_OK);
    CHECK(wait_for(transfer) == FR_OK);
    CHECK(memcmp(far_memory + 11, near_memory + 22, 3 << 20) == 0);
    CHECK(memcmp(far_memory, expected, 11) == 0);
    CHECK(memcmp(far_memory + 11 + (3 << 20), expected + 11 + (3 << 20), 64) == 0);
    close_pair();
    // Without completion on delivery nobody knows when a write has arrived.
    begin_case();
    standin->refuses_delivery = true;
    open_usual();
    CHECK(!fr_rail_writes(near));
    CHECK(fr_rail_write(near, FAR, key, key_bytes, 0, near_region, 0, 8, &transfer) ==
          FR_ERR_UNSUPPORTED);
    close_pair();
}

// Every combination of the modes of registration that are offered.
static void test_modes(void)
{
    static const int bits[] = {FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY,
                               FI_MR_ENDPOINT};
    for (unsigned set = 0; set < 1u << FR_ARRAY_LENGTH(bits); set++) {
        begin_case();
        for (size_t i = 0; i < FR_ARRAY_LENGTH(bits); i++)
            standin->mr_mode |= set >> i & 1 ? bits[i] : 0;
        standin->key_size = set % 2 ? 4 : 8;
        open_usual();
        read_and_check(4097, 77, 1 << 20);
        close_pair();
    }
    begin_case(); // one that is not known is not taken
    standin->mr_mode = FI_MR_RAW;
    struct fr_rail_options options = usual_options();
    CHECK(fr_rail_open(&options, &near) == FR_ERR_NOT_FOUND);
}

// The provider's capabilities say whether it emulates writes.
static void test_emulated(void)
{
    for (unsigned set = 0; set < 8; set++) {
        begin_case();
        standin->efa = set & 1;
        standin->emulates_reads = set & 2;
        standin->emulates_writes = set & 4;
        open_usual();
        CHECK(fr_rail_emulates_reads(near) == ((set & 3) == 3), "%u", set);
        CHECK(fr_rail_emulates_writes(near) == ((set & 5) == 5), "%u", set);
        read_and_check(0, 0, 1 << 20);
        close_pair();
    }
}

static void test_progress_models(void)
{
    for (unsigned set = 0; set < 4; set++) {
        begin_case();
        standin->refuses_auto = set & 1;
        standin->refuses_completion = set & 2;
        open_usual();
        read_and_check(0, 0, 1 << 20);
        close_pair();
    }
}

static void test_limits(void)
{
    static const size_t messages[] = {127, 128, 129, 65535, 100000};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(messages); i++) {
        begin_case();
        standin->max_msg_size = messages[i];
        open_usual();
        read_and_check(3, 50, 300001);
        close_pair();
    }
    for (unsigned size = 1; size <= 3; size++) {
        begin_case();
        standin->tx_size = size;
        open_usual();
        read_and_check(3, 50, 4 << 20);
        close_pair();
    }
    for (unsigned every = 1; every <= 3; every++) {
        begin_case();
        standin->again_every = every + 1;
        standin->batch = every;
        open_usual();
        read_and_check(3, 50, 4 << 20);
        close_pair();
    }
}

// In one call of poll nothing is read from a queue once something has been posted, and all posts to
// a NIC but the last say that more is to come.
static void test_batches(void)
{
    begin_usual();
    struct fr_rail_transfer *transfer = start_read(0, 0, MEMORY);
    while (!is_ended(transfer)) {
        unsigned posted = 0, last[STANDIN_NICS] = {0}, batch[STANDIN_NICS] = {0};
        standin->events_count = 0;
        fr_rail_poll(near);
        for (unsigned i = 0; i < standin->events_count; i++) {
            const struct standin_event *event = &standin->events[i];
            if (event->kind == STANDIN_READ_POSTED) {
                posted++;
                batch[event->nic]++;
                last[event->nic] = event->more ? last[event->nic] : batch[event->nic];
            }
            CHECK(event->kind != STANDIN_CQ_READ || posted == 0, "progress inside of posting");
        }
        for (unsigned i = 0; i < 4; i++)
            CHECK(last[i] == batch[i], "rail %u: of %u posts the %u. was the last", i, batch[i],
                  last[i]);
    }
    CHECK(wait_for(transfer) == FR_OK);
    check_read(0, 0, MEMORY);
    close_pair();
}

// Small messages take one rail after the other, each process beginning at another.
static void test_turns(void)
{
    for (unsigned rank = 0; rank < 6; rank++) {
        struct fr_rail_options options = usual_options();
        options.rank = rank;
        begin_with(&options);
        for (unsigned i = 0; i < 8; i++) {
            standin->events_count = 0;
            read_and_check(i, i, 1000);
            CHECK(count_events(STANDIN_READ_POSTED, -1) == 1);
            CHECK(count_events(STANDIN_READ_POSTED, (int)((rank + i) % 4)) == 1);
        }
        close_pair();
    }
}

static void test_refused_arguments(void)
{
    struct fr_rail_transfer *transfer = NULL;
    struct fr_rail_region *region = NULL;
    begin_usual();
    CHECK(fr_rail_read(near, FAR + 1, key, key_bytes, 0, near_region, 0, 8, &transfer) ==
          FR_ERR_NOT_FOUND);
    CHECK(fr_rail_read(near, FAR, key, key_bytes - 1, 0, near_region, 0, 8, &transfer) ==
          FR_ERR_INVALID);
    CHECK(fr_rail_read(near, FAR, key, key_bytes, 1, near_region, 0, MEMORY, &transfer) ==
          FR_ERR_INVALID);
    CHECK(fr_rail_read(near, FAR, key, key_bytes, 0, near_region, SIZE_MAX, 8, &transfer) ==
          FR_ERR_INVALID);
    struct fr_rail_memory none = {.address = near_memory, .bytes = 0};
    CHECK(fr_rail_register(near, &none, &region) == FR_ERR_INVALID);
    none.bytes = SIZE_MAX;
    CHECK(fr_rail_register(near, &none, &region) == FR_ERR_INVALID);
    struct fr_rail_memory device = {.address = near_memory, .bytes = 8, .kind = FR_RAIL_CUDA};
    CHECK(fr_rail_register(near, &device, &region) == FR_ERR_UNSUPPORTED);
    // The key of a part of a region gives access to nothing else.
    key_bytes = fr_rail_describe(far_region, 100, 50, key);
    CHECK(fr_rail_read(near, FAR, key, key_bytes, 1, near_region, 0, 50, &transfer) ==
          FR_ERR_INVALID);
    CHECK(fr_rail_read(near, FAR, key, key_bytes, 1, near_region, 30, 49, &transfer) == FR_OK);
    CHECK(wait_for(transfer) == FR_OK);
    check_read(101, 30, 49);
    close_pair();
}

// Each call of libfabric's fails, the first time to the thirtieth. Each request succeeds or ends
// with an error. Nothing is left open, and no byte is wrong.
static void test_failing_calls(void)
{
    static const char *const calls[] = {
        "fi_getinfo",   "fi_fabric",  "fi_domain",  "fi_av_open",    "fi_cq_open", "fi_endpoint",
        "fi_ep_bind",   "fi_enable",  "fi_getname", "fi_mr_regattr", "fi_mr_bind", "fi_mr_enable",
        "fi_av_insert", "fi_readmsg", "fi_cq_read", "fi_writemsg",
    };
    unsigned worked = 0, refused = 0;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(calls); i++) {
        for (unsigned nth = 1; nth <= 30; nth += check_step()) {
            begin_case();
            standin->mr_mode = FI_MR_ENDPOINT | FI_MR_LOCAL;
            fail_call(calls[i], nth, -FI_EIO);
            struct fr_rail_options options = usual_options();
            if (open_pair(&options, FR_RAIL_HOST)) {
                memset(near_memory, 0xee, MEMORY);
                enum fr_status status = wait_for(start_read(0, 0, 2 << 20));
                CHECK(status == FR_OK, "%s, the %u. time: %s", calls[i], nth,
                      fr_core_status_text(status));
                check_read(0, 0, 2 << 20);
                worked++;
            } else {
                refused++;
            }
            close_pair();
        }
    }
    printf("with a call failing %u went well, %u were refused\n", worked, refused);
    CHECK(worked > 300 / check_step());
}

enum { THREADS = 4, READS = 50 };

static void *read_in_thread(void *argument)
{
    size_t number = (size_t)(uintptr_t)argument;
    size_t own = MEMORY / THREADS * number;
    unsigned char passing[64];
    for (int i = 0; i < READS; i++) {
        size_t bytes = 1 + (size_t)i * 40000 % (MEMORY / THREADS);
        enum fr_status status = FR_OK;
        struct fr_rail_region *region = register_with(near, near_memory, MEMORY, 1, FR_RAIL_HOST);
        struct fr_rail_transfer *transfer = NULL;
        CHECK(fr_rail_read(near, FAR, key, key_bytes, own, region, own, bytes, &transfer) == FR_OK);
        fr_rail_release(near, region); // the transfer has its own pin
        fr_rail_release(near, register_with(near, passing, sizeof(passing), 0, FR_RAIL_HOST));
        while (!fr_rail_test(transfer, &status))
            fr_rail_poll(near);
        CHECK(status == FR_OK && memcmp(near_memory + own, expected + own, bytes) == 0);
        fr_rail_finish(transfer);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    begin_usual();
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, read_in_thread, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    close_pair();
}

// Has all that is on its way lie for so long.
static void stall_for(unsigned milliseconds)
{
    static const struct timespec one = {.tv_nsec = 1000000};
    for (unsigned i = 0; i < milliseconds; i++) {
        fr_rail_poll(near);
        nanosleep(&one, NULL);
    }
}

// A waiting thread rests while a slow rail has enough on its way, and else never: a rail that is
// not known yet is taken to be fast.
static void test_rests(void)
{
    enum { BYTES = 256 << 10, STALL_MS = 20, TRIES = 50 };
    begin_case();
    standin->nics = 1;
    open_usual();
    CHECK(!fr_rail_rest(near));
    for (unsigned i = 0; i < TRIES && counters_of(0).bytes_per_s > BYTES * 1000 / STALL_MS; i++) {
        standin->stalled[0] = true;
        struct fr_rail_transfer *transfer = start_read(0, 0, BYTES);
        fr_rail_poll(near);
        CHECK(i > 0 || !fr_rail_rest(near));
        stall_for(STALL_MS);
        standin->stalled[0] = false;
        CHECK(wait_for(transfer) == FR_OK);
    }
    CHECK(!fr_rail_rest(near));
    standin->stalled[0] = true;
    struct fr_rail_transfer *slow = start_read(0, 0, BYTES);
    fr_rail_poll(near);
    CHECK(fr_rail_rest(near));
    standin->stalled[0] = false;
    CHECK(wait_for(slow) == FR_OK);
    CHECK(!fr_rail_rest(near));
    close_pair();
}

// A waiting thread never rests on a rail that would fill its socket meanwhile, however much is on
// its way: the rail would be slow for that alone, and then be taken for a slow one.
static void test_rests_fit(void)
{
    enum { BYTES = 4 << 20, TRIES = 20, FAST = 700000000 };
    static const double stall_s = 0.002;
    begin_case();
    standin->nics = 1;
    open_usual();
    for (unsigned i = 0; i < TRIES; i++) {
        standin->stalled[0] = true;
        struct fr_rail_transfer *transfer = start_read(0, 0, BYTES);
        double until = seconds() + stall_s;
        while (seconds() < until)
            fr_rail_poll(near);
        unsigned long long rate = counters_of(0).bytes_per_s;
        CHECK(!fr_rail_rest(near) || rate < FAST, "%llu bytes/s", rate);
        standin->stalled[0] = false;
        CHECK(wait_for(transfer) == FR_OK);
    }
    close_pair();
}

int main(void)
{
    load_standin();
    test_sizes();
    test_writes();
    test_modes();
    test_emulated();
    test_progress_models();
    test_limits();
    test_batches();
    test_turns();
    test_refused_arguments();
    test_failing_calls();
    test_threads();
    test_rests();
    test_rests_fit();
    return check_result();
}
