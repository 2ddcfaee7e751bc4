// SPDX-License-Identifier: BSD-3-Clause
// Copies that the CPU makes itself, by a stand-in of GDRCopy and by a dma-buf of the simulated
// driver: bytes, the driver's calls, when apertures are made and closed, their bounds, memory that
// is freed and comes back, threads, calls that fail, and children of fork. Both delay what is
// written until it is read back.
#include "config.h"

#include "../sim/calls.h"
#include "../sim/gdrapi.h"
#include "apart.h"
#include "driver.h"
#include "fabrail/core/time.h"
#include "fabrail/device/aperture.h"

#include <pthread.h>
#include <string.h>

enum { MOST_READ = 1024, MOST_WRITE = 8192, SPACE = 16384, GUARD = 64, PART = 2 << 20 };

static frsim_calls_fn *calls;
static frgdr_counts_fn *counts; // NULL: by dma-buf
static frgdr_fail_fn *fail;
static char gdrapi[4096];

static void sizes(size_t *read_bytes, size_t *write_bytes)
{
    *read_bytes = MOST_READ;
    *write_bytes = MOST_WRITE;
}

// Starts the driver, and loads what the setting asks for, as an application would have.
static bool start(void)
{
    CUcontext context = NULL;
    const char *access = getenv("FABRAIL_CPU_ACCESS");
    if (!driver_load() || !driver_start(&context))
        return false;
    *(void **)&calls = driver_symbol("frsim_calls");
    if (calls == NULL)
        return false;
    if (access == NULL || strcmp(access, "dmabuf") != 0) {
        void *library = dlopen(gdrapi, RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL, "%s", dlerror());
        *(void **)&counts = library != NULL ? dlsym(library, "frgdr_counts") : NULL;
        *(void **)&fail = library != NULL ? dlsym(library, "frgdr_fail") : NULL;
    }
    fr_device_aperture_start(sizes);
    return true;
}

// All apertures are closed, and nothing waits to be read back.
static void end(void)
{
    fr_device_release();
    CHECK(fr_device_aperture_get_usage().open == 0);
    if (counts == NULL)
        return;
    struct frgdr_counts now = counts();
    CHECK(now.pins == now.unpins && now.maps == now.unmaps, "%lu pins, %lu maps", now.pins,
          now.maps);
    CHECK(now.waiting == 0, "%lu writes wait", now.waiting);
}

static unsigned long copies(void)
{
    return calls("cuMemcpyAsync") + calls("cuMemcpy2DAsync_v2") + calls("cuMemcpy3DAsync_v2") +
           calls("cuLaunchKernel") + calls("cuGraphLaunch");
}

static enum fr_status run(const struct fr_device_range *range, enum fr_device_direction direction,
                          const struct fr_device_copy *copy)
{
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, direction, copy);
    return fr_device_batch_finish(&batch);
}

// Copies bytes to the host and back. Compares the whole of either side. Returns how many copies the
// driver made.
static unsigned long both_ways(const struct driver_memory *memory, size_t offset, size_t bytes)
{
    static _Thread_local uint64_t seed = 1;
    static _Thread_local unsigned char host[SPACE], written[SPACE], expected[SPACE], got[SPACE];
    struct driver_memory at = *memory;
    struct fr_device_range range;
    at.address += offset - GUARD;
    size_t around = bytes + 2 * GUARD;
    check_fill(host, around, ++seed);
    check_fill(written, around, ++seed);
    driver_write(&at, written, around);
    memcpy(expected, host, around);
    memcpy(expected + GUARD, written + GUARD, bytes);
    CHECK(fr_device_query(memory->address + offset, &range) == FR_OK);
    const struct fr_device_copy in = {
        .dst = host + GUARD, .src = memory->address + offset, .bytes = bytes, .n = {1, 1}};
    unsigned long before = copies();
    CHECK(run(&range, FR_TO_STAGE, &in) == FR_OK);
    unsigned long made = copies() - before;
    CHECK(memcmp(host, expected, around) == 0, "%zu bytes at %zu to the host", bytes, offset);

    check_fill(host, around, ++seed);
    memcpy(written + GUARD, host + GUARD, bytes);
    const struct fr_device_copy out = {
        .dst = memory->address + offset, .src = host + GUARD, .bytes = bytes, .n = {1, 1}};
    before = copies();
    CHECK(run(&range, FR_FROM_STAGE, &out) == FR_OK);
    made += copies() - before;
    driver_read(got, &at, around);
    CHECK(memcmp(got, written, around) == 0, "%zu bytes at %zu to the device", bytes, offset);
    return made;
}

// Each size goes by the CPU up to its bound, wherever it lies.
static void test_bytes(void)
{
    static const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_POOL, FR_KIND_VMM,
                                                FR_KIND_VMM_FD};
    static const size_t lengths[] = {1,
                                     2,
                                     7,
                                     8,
                                     15,
                                     16,
                                     17,
                                     33,
                                     39,
                                     64,
                                     500,
                                     1023,
                                     MOST_READ,
                                     MOST_READ + 1,
                                     2000,
                                     4097,
                                     8191,
                                     MOST_WRITE,
                                     MOST_WRITE + 1};
    if (!start())
        return;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct driver_memory memory;
        if (!driver_allocate(kinds[i], 0, SPACE, &memory))
            continue;
        CHECK(both_ways(&memory, GUARD, 8) == 1, "%s: the first copy alone is the driver's",
              fr_device_kind_name(kinds[i]));
        for (size_t j = 0; j < sizeof(lengths) / sizeof(lengths[0]); j++) {
            size_t bytes = lengths[j];
            unsigned long want = (bytes > MOST_READ) + (bytes > MOST_WRITE);
            const size_t by = (bytes > 64 ? 7 : 1) * check_step();
            for (size_t offset = GUARD; offset < GUARD + 17; offset += by)
                CHECK(both_ways(&memory, offset, bytes) == want, "%s: %zu bytes at %zu",
                      fr_device_kind_name(kinds[i]), bytes, offset);
        }
        driver_free(&memory);
    }
    end();
}

// Copies across the end of one aperture, and at the ends of the allocation, use two or stay inside.
static void test_borders(void)
{
    struct driver_memory memory;
    if (!start() || !driver_allocate(FR_KIND_MALLOC, 0, 3 * (size_t)PART, &memory))
        return;
    uintptr_t border = ((uintptr_t)memory.address / PART + 1) * PART;
    size_t offset = border - (uintptr_t)memory.address - 100;
    (void)both_ways(&memory, offset, 300);
    (void)both_ways(&memory, offset, 300);
    CHECK(both_ways(&memory, offset, 300) == 0, "across a border");
    CHECK(both_ways(&memory, GUARD, 8) == 0);
    CHECK(both_ways(&memory, memory.bytes - GUARD - 8, 8) == 0);
    driver_free(&memory);
    end();
}

// A few rows go by the CPU. Many go by the driver, though they are few bytes.
static void test_rows(void)
{
    enum { STRIDE = 64, WIDTH = 8 };
    static unsigned char host[SPACE], written[SPACE];
    struct driver_memory memory;
    struct fr_device_range range;
    if (!start() || !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory))
        return;
    CHECK(fr_device_query(memory.address, &range) == FR_OK);
    (void)both_ways(&memory, GUARD, 8);
    for (size_t rows = 2; rows <= 64; rows *= 2) {
        check_fill(written, SPACE, rows);
        driver_write(&memory, written, SPACE);
        const struct fr_device_copy copy = {.dst = host,
                                            .src = memory.address,
                                            .bytes = WIDTH,
                                            .n = {rows, 1},
                                            .dst_stride = {WIDTH, 0},
                                            .src_stride = {STRIDE, 0}};
        unsigned long before = copies();
        CHECK(run(&range, FR_TO_STAGE, &copy) == FR_OK);
        CHECK((copies() == before) == (rows <= 4), "%zu rows", rows);
        for (size_t i = 0; i < rows; i++)
            CHECK(memcmp(host + i * WIDTH, written + i * STRIDE, WIDTH) == 0, "row %zu", i);
    }
    driver_free(&memory);
    end();
}

// Waits for work of the application by calls that only look synchronous.
static void test_order(void)
{
    unsigned char value[16];
    static const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_VMM};
    if (!start())
        return;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct driver_memory memory;
        struct fr_device_range range;
        CHECK(driver_allocate(kinds[i], 0, SPACE, &memory));
        CHECK(fr_device_query(memory.address, &range) == FR_OK);
        for (int round = 0; round < 5; round++) {
            const struct fr_device_copy copy = {
                .dst = value, .src = memory.address, .bytes = sizeof(value), .n = {1, 1}};
            CU(cuMemsetD8_v2(driver_pointer(memory.address), (unsigned char)(7 + round), SPACE));
            CHECK(run(&range, FR_TO_STAGE, &copy) == FR_OK);
            CHECK(value[0] == 7 + round && value[15] == 7 + round, "round %d", round);
        }
        driver_free(&memory);
    }
    end();
}

// Managed and page-locked memory, and the host's, have none. So has memory that is used once.
static void test_never(void)
{
    static const enum fr_device_kind kinds[] = {FR_KIND_MANAGED, FR_KIND_PINNED, FR_KIND_HOST};
    struct driver_memory memory;
    if (!start())
        return;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        CHECK(driver_allocate(kinds[i], 0, SPACE, &memory));
        for (int round = 0; round < 3; round++)
            (void)both_ways(&memory, GUARD, 8);
        driver_free(&memory);
    }
    struct fr_device_range range;
    CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory));
    CHECK(fr_device_query(memory.address, &range) == FR_OK);
    fr_device_begin_call();
    CHECK(!fr_device_aperture_reads(&range, range.base, 8), "at the first use");
    CHECK(!fr_device_aperture_reads(&range, range.base, 8), "in the same call");
    CHECK(fr_device_aperture_get_usage().openings == 0);
    fr_device_begin_call();
    CHECK(!fr_device_aperture_reads(&range, range.base, MOST_READ + 1));
    CHECK(fr_device_aperture_reads(&range, range.base, MOST_READ), "at the second use");
    driver_free(&memory);
    end();
}

// Number and bytes of apertures are bounded. Those that go make room for others.
static void test_bounds(void)
{
    enum { SMALL = 300, LARGE = 40, MOST = 256, MOST_MIB = 64 };
    static struct driver_memory small[SMALL], large[LARGE];
    if (!start())
        return;
    for (int i = 0; i < SMALL; i++) {
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &small[i]));
        (void)both_ways(&small[i], GUARD, 8);
        CHECK(both_ways(&small[i], GUARD, 8) == 0, "allocation %d", i);
    }
    CHECK(fr_device_aperture_get_usage().open == MOST);
    CHECK(both_ways(&small[0], GUARD, 8) == 0, "one that had gone");
    for (int i = 0; i < LARGE; i++) {
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, PART, &large[i]));
        (void)both_ways(&large[i], GUARD, 8);
        CHECK(both_ways(&large[i], GUARD, 8) == 0, "large allocation %d", i);
        CHECK(fr_device_aperture_get_usage().open_bytes <= (size_t)MOST_MIB << 20);
    }
    for (int i = 0; i < SMALL; i++)
        driver_free(&small[i]);
    for (int i = 0; i < LARGE; i++)
        driver_free(&large[i]);
    end();
}

// Apertures of freed memory are closed soon, and other memory at the address has one of its own.
static void test_freed(void)
{
    enum { MILLISECOND = 1000000 };
    struct driver_memory memory;
    if (!start())
        return;
    char *first = NULL;
    for (int round = 0; round < 4; round++) {
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory));
        first = first != NULL ? first : memory.address;
        CHECK(memory.address == first, "the address has come back");
        CHECK(both_ways(&memory, GUARD, 8) == 1 && both_ways(&memory, GUARD, 8) == 0);
        CHECK(fr_device_aperture_get_usage().open == 1);
        driver_free(&memory);
    }
    fr_time_sleep(20 * MILLISECOND);
    fr_device_aperture_trim();
    CHECK(fr_device_aperture_get_usage().open == 0, "after it was freed");
    end();
}

static void *copy_in_thread(void *data)
{
    const struct driver_memory *shared = data;
    struct fr_device_range range;
    unsigned char value[MOST_READ];
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    for (int round = 0; round < 20; round++) {
        struct driver_memory own;
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &own));
        for (int i = 0; i < 4; i++)
            (void)both_ways(&own, GUARD, 40);
        driver_free(&own);
        const struct fr_device_copy copy = {
            .dst = value, .src = shared->address, .bytes = sizeof(value), .n = {1, 1}};
        CHECK(fr_device_query(shared->address, &range) == FR_OK);
        CHECK(run(&range, FR_TO_STAGE, &copy) == FR_OK);
        CHECK(check_first_difference(value, sizeof(value), 5) == sizeof(value));
        fr_device_aperture_trim();
    }
    return NULL;
}

static void test_threads(void)
{
    enum { THREADS = 4 };
    static unsigned char content[SPACE];
    pthread_t threads[THREADS];
    struct driver_memory shared;
    if (!start() || !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &shared))
        return;
    check_fill(content, SPACE, 5);
    driver_write(&shared, content, SPACE);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, copy_in_thread, &shared) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    driver_free(&shared);
    end();
}

// Whichever call fails, the bytes are right. An allocation that was refused is not tried again.
static void test_failures(void)
{
    enum { MADE = 14, CALLS = 18 }; // three to open, two for the first copy, three for both ways
    struct driver_memory first;
    if (!start() || fail == NULL || !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &first))
        return;
    (void)both_ways(&first, GUARD, 8); // opens the library
    driver_free(&first);
    for (unsigned nth = 1; nth <= CALLS; nth += check_step()) {
        struct driver_memory memory;
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory));
        fail(nth);
        for (int round = 0; round < 4; round++)
            (void)both_ways(&memory, GUARD, 40);
        fail(0);
        unsigned long pins = counts().pins;
        CHECK((both_ways(&memory, GUARD, 8) > 0) == (nth <= MADE), "after call %u", nth);
        CHECK(counts().pins == pins, "after call %u", nth);
        driver_free(&memory);
    }
    end();
}

static void test_fork(void)
{
    struct driver_memory memory;
    if (!start() || !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory))
        return;
    (void)both_ways(&memory, GUARD, 8);
    CHECK(both_ways(&memory, GUARD, 8) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct fr_device_range range;
        CHECK(fr_device_query(memory.address, &range) == FR_OK && !fr_device_owns(&range));
        fr_device_aperture_trim();
        fr_device_aperture_start(sizes);
        fr_device_release();
        _exit(check_result());
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    CHECK(both_ways(&memory, GUARD, 8) == 0, "in the parent");
    driver_free(&memory);
    end();
}

// A driver whose dma-bufs cannot be mapped, and a kernel module that is missing.
static void test_missing(void)
{
    struct driver_memory memory;
    const char *why_not;
    if (!start() || !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory))
        return;
    for (int round = 0; round < 4; round++)
        CHECK(both_ways(&memory, GUARD, 8) > 0);
    CHECK(fr_device_aperture_get_usage().openings == 0);
    printf("%s\n", fr_device_aperture_way(0, &why_not) ? "there, but refused" : why_not);
    driver_free(&memory);
    end();
}

static int run_all(const char *way)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"bytes", test_bytes}, {"borders", test_borders},   {"rows", test_rows},
        {"order", test_order}, {"never", test_never},       {"bounds", test_bounds},
        {"freed", test_freed}, {"failures", test_failures}, {"fork", test_fork},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        failed |= check_apart(tests[i].name, tests[i].run, "FABRAIL_CPU_ACCESS", way);
    return failed;
}

int main(void)
{
    const char *folder = getenv("top_builddir");
    if (folder == NULL) {
        printf("wants the simulated driver\n");
        return CHECK_SKIP;
    }
    snprintf(gdrapi, sizeof(gdrapi), "%s/tests/sim/gdrcopy/libgdrapi.so.2", folder);
    int failed = run_all("gdrcopy");
    // The stand-in of a dma-buf changes access to mappings that another thread may have ended.
    failed |= check_apart("threads", test_threads, "FABRAIL_CPU_ACCESS", "gdrcopy");
    setenv("FRGDR_OPENS", "0", 1);
    failed |= check_apart("does not open", test_missing, "FABRAIL_CPU_ACCESS", "gdrcopy");
    setenv("FABRAIL_CPU_ACCESS", "dmabuf", 1);
    failed |= check_apart("an old driver", test_missing, NULL, NULL);
    failed |= check_apart("not mapped", test_missing, "FRSIM_DMABUF", "2");
    setenv("FRSIM_DMABUF", "1", 1);
    failed |= run_all("dmabuf");
    failed |= check_apart("off", test_missing, "FABRAIL_CPU_ACCESS", "off");
    return failed != 0 ? CHECK_FAIL : CHECK_PASS;
}
