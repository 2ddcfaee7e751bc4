// SPDX-License-Identifier: BSD-3-Clause
// Two processes in one, on the stand-in for libfabric: `near` reads and writes what `far` owns.
#ifndef FR_TESTS_UNIT_RAIL_STANDIN_H
#define FR_TESTS_UNIT_RAIL_STANDIN_H

#include "fabrail/rail.h"

#include "../rail/standin.h"
#include "check.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <time.h>

enum { MEMORY = 8 << 20, FAR = 7 };

static struct standin *standin;
static struct fr_rails *near, *far;
static struct fr_rail_region *near_region, *far_region;
static unsigned char near_memory[MEMORY], far_memory[MEMORY], expected[MEMORY];
static unsigned char key[FR_RAIL_KEY_MAX];
static size_t key_bytes;

static standin_reset_fn standin_reset_function;

// Loads the stand-in, whose soname is that of libfabric. Ends the test without it.
static inline void load_standin(void)
{
    char path[4096];
    const char *folder = getenv("top_builddir");
    snprintf(path, sizeof(path), "%s/tests/rail/.libs/libfabric.so.1", folder ? folder : ".");
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        fprintf(stderr, "no stand-in: %s\n", dlerror());
        exit(CHECK_FAIL);
    }
    standin_reset_function = (standin_reset_fn)dlsym(handle, "standin_reset");
    standin = standin_reset_function();
    check_fill(expected, MEMORY, 1);
}

static inline double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline struct fr_rail_options usual_options(void)
{
    struct fr_rail_options options = fr_rail_options();
    options.stall_ns = 60000000;
    return options;
}

static inline struct fr_rail_region *register_with(struct fr_rails *rails, void *address,
                                                   size_t bytes, uint64_t id,
                                                   enum fr_rail_kind kind)
{
    struct fr_rail_region *region = NULL;
    struct fr_rail_memory memory = {.address = address, .bytes = bytes, .id = id, .kind = kind};
    enum fr_status status = fr_rail_register(rails, &memory, &region);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    return status == FR_OK ? region : NULL;
}

// Returns whether all could be had. `kind` is that of the near memory.
static inline bool open_pair(const struct fr_rail_options *options, enum fr_rail_kind kind)
{
    unsigned char address[FR_RAIL_ADDRESS_MAX];
    struct fr_rail_options others = usual_options();
    others.gpu = options->gpu;
    struct fr_rail_memory near_is = {
        .address = near_memory, .bytes = MEMORY, .id = 1, .kind = kind};
    struct fr_rail_memory far_is = {.address = far_memory, .bytes = MEMORY, .id = 2};
    near = far = NULL;
    near_region = far_region = NULL;
    memcpy(far_memory, expected, MEMORY);
    memset(near_memory, 0xee, MEMORY);
    if (fr_rail_open(options, &near) != FR_OK || fr_rail_open(&others, &far) != FR_OK ||
        fr_rail_register(near, &near_is, &near_region) != FR_OK ||
        fr_rail_register(far, &far_is, &far_region) != FR_OK)
        return false;
    size_t length = fr_rail_address(far, address);
    if (fr_rail_peer_add(near, FAR, address, length) != FR_OK)
        return false;
    length = fr_rail_address(near, address);
    if (fr_rail_peer_add(far, 0, address, length) != FR_OK)
        return false;
    key_bytes = fr_rail_describe(far_region, 0, MEMORY, key);
    return true;
}

static inline void close_pair(void)
{
    fr_rail_release(near, near_region);
    fr_rail_release(far, far_region);
    fr_rail_close(near);
    fr_rail_close(far);
    CHECK(standin->open == 0, "%d objects were left open", standin->open);
    CHECK(standin->wrong[0] == '\0', "%s", standin->wrong);
}

static inline void begin_case(void)
{
    standin_reset_function();
}

static inline void open_usual(void)
{
    struct fr_rail_options options = usual_options();
    CHECK(open_pair(&options, FR_RAIL_HOST));
}

// Begins a case on a stand-in of which nothing else is asked.
static inline void begin_usual(void)
{
    begin_case();
    open_usual();
}

static inline void begin_with(const struct fr_rail_options *options)
{
    begin_case();
    CHECK(open_pair(options, FR_RAIL_HOST));
}

// Has the calls of a name fail from now on: the `nth` one, with this negative code.
static inline void fail_call(const char *name, unsigned nth, int code)
{
    standin->fail_call = name;
    standin->calls = 0;
    standin->fail_nth = nth;
    standin->fail_code = code;
}

static inline void stall_all(bool stalled)
{
    for (unsigned i = 0; i < 4; i++)
        standin->stalled[i] = stalled;
}

static inline void poll_near_for(double most_seconds)
{
    double until = seconds() + most_seconds;
    while (seconds() < until)
        fr_rail_poll(near);
}

static inline struct fr_rail_transfer *start_read(size_t from, size_t to, size_t bytes)
{
    struct fr_rail_transfer *transfer = NULL;
    enum fr_status status =
        fr_rail_read(near, FAR, key, key_bytes, from, near_region, to, bytes, &transfer);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return transfer;
}

// Polls until the end; ends the test after 20 s.
static inline enum fr_status wait_for(struct fr_rail_transfer *transfer)
{
    enum fr_status status = FR_OK;
    double until = seconds() + 20;
    while (!fr_rail_test(transfer, &status)) {
        fr_rail_poll(near);
        fr_rail_poll(far);
        if (seconds() > until) {
            CHECK(false, "no end within 20 s");
            exit(CHECK_FAIL);
        }
    }
    fr_rail_finish(transfer);
    return status;
}

static inline bool is_ended(const struct fr_rail_transfer *transfer)
{
    enum fr_status status;
    return fr_rail_test(transfer, &status);
}

// Checks that exactly these bytes have been read.
static inline void check_read(size_t from, size_t to, size_t bytes)
{
    CHECK(memcmp(near_memory + to, expected + from, bytes) == 0, "%zu bytes", bytes);
    for (size_t i = 1; i <= 64; i++) {
        CHECK(to < i || near_memory[to - i] == 0xee, "%zu before", i);
        CHECK(to + bytes + i > MEMORY || near_memory[to + bytes + i - 1] == 0xee, "%zu after", i);
    }
}

static inline void read_and_check(size_t from, size_t to, size_t bytes)
{
    memset(near_memory, 0xee, MEMORY);
    enum fr_status status = wait_for(start_read(from, to, bytes));
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    check_read(from, to, bytes);
}

static inline struct fr_rail_counters counters_of(unsigned rail)
{
    struct fr_rail_counters counters;
    fr_rail_counters(near, rail, &counters);
    return counters;
}

static inline unsigned count_events(enum standin_event_kind kind, int nic)
{
    unsigned count = 0;
    for (unsigned i = 0; i < standin->events_count; i++)
        count +=
            standin->events[i].kind == kind && (nic < 0 || standin->events[i].nic == (unsigned)nic);
    return count;
}

#endif
