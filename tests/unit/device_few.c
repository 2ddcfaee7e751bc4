// SPDX-License-Identifier: BSD-3-Clause
// Copies of few bytes between a device and the host: all sizes around the bound of the kernel that
// does those to the host, where it is used and where not, and what becomes of a copy when the
// driver refuses a call, or the kernel does not come.
#include "config.h"

#include "../sim/calls.h"
#include "driver.h"
#include "fabrail/core/time.h"
#include "fabrail/device/kernels.h"

#include <string.h>

enum { SPACE = 4096, GUARD = 64, MOST = 2 * FR_FETCH_BYTES, SHUNNED_NS = 200000000 };

static frsim_calls_fn *calls;
static frsim_fail_fn *fail;

static unsigned char host[SPACE], written[SPACE], expected[SPACE], read_back[SPACE];

static unsigned long launches(void)
{
    return calls("cuLaunchKernel") + calls("cuGraphLaunch");
}

static enum fr_status run(const struct fr_device_range *range, enum fr_device_direction direction,
                          void *dst, const void *src, size_t bytes)
{
    struct fr_device_batch batch;
    const struct fr_device_copy copy = {.dst = dst, .src = src, .bytes = bytes, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, direction, &copy);
    return fr_device_batch_finish(&batch);
}

// Copies to the host and back. The whole of either side is compared.
static void check_both_ways(const struct driver_memory *memory, const struct fr_device_range *range,
                            size_t offset, size_t bytes, const char *what)
{
    static uint64_t seed;
    check_fill(host, SPACE, ++seed);
    check_fill(written, SPACE, ++seed);
    driver_write(memory, written, SPACE);
    memcpy(expected, host, SPACE);
    memcpy(expected + GUARD, written + offset, bytes);
    CHECK(run(range, FR_TO_STAGE, host + GUARD, memory->address + offset, bytes) == FR_OK);
    CHECK(memcmp(host, expected, SPACE) == 0, "%s: %zu bytes at %zu to the host", what, bytes,
          offset);

    check_fill(host, SPACE, ++seed);
    memcpy(written + offset, host + GUARD, bytes);
    CHECK(run(range, FR_FROM_STAGE, memory->address + offset, host + GUARD, bytes) == FR_OK);
    driver_read(read_back, memory, SPACE);
    CHECK(memcmp(read_back, written, SPACE) == 0, "%s: %zu bytes at %zu to the device", what, bytes,
          offset);
}

static void test_sizes(const struct driver_memory *memory)
{
    static const size_t sizes[] = {1,  2,   3,   4,   5,   7,    8,    39,   40,
                                   41, 511, 512, 513, 514, 1023, 1024, 1025, MOST};
    struct fr_device_range range;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    // Not where the library was built without, nor for memory that is unmapped under a late kernel.
    bool has = fr_device_has_kernels(&range, FR_IMAGE_PUSH) && memory->kind == FR_KIND_MALLOC;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t offset = GUARD; offset < GUARD + 5; offset++) {
            unsigned long before = launches(), copied = calls("cuMemcpyAsync");
            unsigned kernels = has && sizes[i] <= FR_FETCH_BYTES;
            check_both_ways(memory, &range, offset, sizes[i], fr_device_kind_name(memory->kind));
            CHECK(launches() - before == kernels, "%zu bytes: %lu launches", sizes[i],
                  launches() - before);
            CHECK(calls("cuMemcpyAsync") - copied == 2 - kernels, "%zu bytes: %lu copies", sizes[i],
                  calls("cuMemcpyAsync") - copied);
        }
    }
}

// A launch that the driver refuses leaves the copy to a copy engine.
static void test_refusals(const struct driver_memory *memory)
{
    static const char *const names[] = {"cuLaunchKernel", "cuGraphLaunch",
                                        "cuGraphExecKernelNodeSetParams_v2"};
    struct fr_device_range range;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (unsigned nth = 1; nth <= 2; nth++) {
            fail(names[i], nth, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
            check_both_ways(memory, &range, GUARD, 8, names[i]);
            fail(names[i], 0, 0);
        }
    }
}

static unsigned long launches_of_a_copy(const struct driver_memory *memory,
                                        const struct fr_device_range *range)
{
    unsigned long before = launches();
    check_both_ways(memory, range, GUARD, 8, "after a late kernel");
    return launches() - before;
}

// A kernel that does not come is left behind. A copy engine copies in its place, also what comes
// shortly afterwards, and kernels are used again when it is over.
static void test_late(const struct driver_memory *memory)
{
    struct fr_device_range range;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    if (!fr_device_has_kernels(&range, FR_IMAGE_PUSH))
        return;
    fail("cuStreamQuery", 1, CUDA_ERROR_NOT_READY);
    CHECK(launches_of_a_copy(memory, &range) == 1);
    fail("cuStreamQuery", 0, 0);
    CHECK(launches_of_a_copy(memory, &range) == 0, "shortly afterwards");
    CU(cuCtxSynchronize());
    CHECK(launches_of_a_copy(memory, &range) == 0, "for a while");
    fr_time_sleep(SHUNNED_NS);
    CHECK(launches_of_a_copy(memory, &range) == 1, "when it is over");
}

// Several copies in one batch, and one before a mark, go together as others do.
static void test_company(const struct driver_memory *memory)
{
    enum { COUNT = 3, BYTES = 8 };
    struct fr_device_range range;
    struct fr_device_batch batch;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    check_fill(written, SPACE, 77);
    driver_write(memory, written, SPACE);
    memset(host, 0, SPACE);
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < COUNT; i++) {
        const struct fr_device_copy copy = {.dst = host + i * BYTES,
                                            .src = memory->address + i * BYTES,
                                            .bytes = BYTES,
                                            .n = {1, 1}};
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
    }
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    CHECK(memcmp(host, written, (size_t)COUNT * BYTES) == 0 && host[COUNT * BYTES] == 0);

    const struct fr_device_copy one = {
        .dst = host, .src = memory->address + BYTES, .bytes = BYTES, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &one);
    fr_device_batch_mark(&batch, 0);
    while (!fr_device_batch_has_reached(&batch, 0))
        continue;
    CHECK(memcmp(host, written + BYTES, BYTES) == 0, "at the mark");
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
}

int main(void)
{
    CUcontext context = NULL;
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    *(void **)&calls = driver_symbol("frsim_calls");
    *(void **)&fail = driver_symbol("frsim_fail");
    if (calls == NULL || fail == NULL) {
        printf("only the simulated driver counts its calls\n");
        return CHECK_SKIP;
    }
    static const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_VMM, FR_KIND_MANAGED};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct driver_memory memory;
        if (!driver_allocate(kinds[i], 0, SPACE, &memory))
            continue;
        test_sizes(&memory);
        test_company(&memory);
        driver_free(&memory);
    }
    struct driver_memory memory;
    CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &memory));
    test_refusals(&memory);
    test_late(&memory);
    driver_free(&memory);
    fr_device_release();
    return check_result();
}
