// SPDX-License-Identifier: BSD-3-Clause
// Kernels that stand by for bytes: what they copy by order, and that they copy nothing when they
// have given up, were dismissed, have not started, or were not launched.
#include "config.h"

#include "../sim/calls.h"
#include "driver.h"
#include "fabrail/device/standby.h"

#include <string.h>

enum { SPACE = 1024, GUARD = 64 };

static frsim_calls_fn *calls;
static frsim_fail_fn *fail;

static struct driver_memory target;
static struct fr_device_range range;
static unsigned char before[SPACE], bytes[SPACE], expected[SPACE], read_back[SPACE];

// Fills both sides anew. The target is expected to stay.
static void fill(void)
{
    static uint64_t seed;
    check_fill(before, SPACE, ++seed);
    check_fill(bytes, SPACE, ++seed);
    driver_write(&target, before, SPACE);
    memcpy(expected, before, SPACE);
}

static void check_target(const char *what, size_t count, size_t offset)
{
    driver_read(read_back, &target, SPACE);
    CHECK(memcmp(read_back, expected, SPACE) == 0, "%s: %zu bytes at %zu", what, count, offset);
}

static bool begin(size_t offset, struct fr_device_standby *standby)
{
    return fr_device_standby_begin(&range, (uintptr_t)target.address + offset,
                                   FR_DEVICE_STANDBY_BYTES, standby);
}

static void test_sizes(void)
{
    struct fr_device_standby standby;
    for (size_t count = 1; count <= FR_DEVICE_STANDBY_BYTES; count++) {
        size_t offset = GUARD + count % 7;
        fill();
        CHECK(begin(offset, &standby));
        CHECK(fr_device_standby_copy(&standby, bytes + 1, count) == FR_OK);
        memcpy(expected + offset, bytes + 1, count);
        check_target("copied", count, offset);
        fr_device_standby_end(&standby);
    }
    CHECK(!fr_device_standby_begin(&range, (uintptr_t)target.address, 0, &standby), "no room");
    CHECK(!fr_device_standby_begin(&range, (uintptr_t)target.address, FR_DEVICE_STANDBY_BYTES + 1,
                                   &standby),
          "too much room");
    CHECK(fr_device_standby_copy(&standby, bytes, 1) == FR_ERR_UNSUPPORTED, "was not launched");
}

// Each kernel is used once. An order that comes too late finds that it has given up.
static void test_too_late(void)
{
    struct fr_device_standby standby;
    fill();
    CHECK(begin(GUARD, &standby));
    CU(cuCtxSynchronize());
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_ERR_UNSUPPORTED);
    check_target("given up", 8, GUARD);
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_ERR_UNSUPPORTED, "it is over");
    fr_device_standby_end(&standby);
    CHECK(begin(GUARD, &standby), "at once");
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_OK);
    CHECK(fr_device_standby_copy(&standby, bytes + 8, 8) == FR_ERR_UNSUPPORTED, "it is over");
    memcpy(expected + GUARD, bytes, 8);
    check_target("once", 8, GUARD);
    fr_device_standby_end(&standby);
}

// More are dismissed than can be left behind at once. What they hold is used again.
static void test_dismissed(void)
{
    enum { TIMES = 100 };
    struct fr_device_standby standby;
    fill();
    for (int i = 0; i < TIMES; i++) {
        unsigned long streams = calls("cuStreamCreate");
        CHECK(begin(GUARD, &standby));
        if (i % 3 == 1)
            CU(cuCtxSynchronize());
        fr_device_standby_end(&standby);
        fr_device_standby_end(&standby);
        CU(cuCtxSynchronize());
        CHECK(i == 0 || calls("cuStreamCreate") == streams, "dismissed %d", i);
    }
    check_target("dismissed", 0, GUARD);
}

// A kernel that does not start gets no order. It is left behind, and copies nothing when it starts
// at last. There may be some of these, and then no more until they are over.
static void test_not_started(void)
{
    enum { MOST = 8 };
    struct fr_device_standby standby;
    fill();
    for (int i = 0; i < MOST; i++) {
        CHECK(begin(GUARD, &standby), "%d", i);
        fail("cuStreamQuery", 1, CUDA_ERROR_NOT_READY);
        CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_ERR_UNSUPPORTED, "%d", i);
        fail("cuStreamQuery", 0, 0);
        fr_device_standby_end(&standby);
    }
    CHECK(!begin(GUARD, &standby), "too many have not started");
    CU(cuCtxSynchronize());
    check_target("not started", 8, GUARD);
    CHECK(begin(GUARD, &standby), "they are over");
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_OK);
    memcpy(expected + GUARD, bytes, 8);
    check_target("afterwards", 8, GUARD);
}

// A graph takes the place of a launch after some launches. Where the driver refuses it, a launch
// takes its place again.
static void test_refusals(void)
{
    struct fr_device_standby standby;
    fail("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHECK(begin(GUARD, &standby));
    CHECK(fr_device_standby_copy(&standby, before + GUARD, 1) == FR_OK);
    fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHECK(!begin(GUARD, &standby));
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_ERR_UNSUPPORTED);
    fr_device_standby_end(&standby);
    fail("cuLaunchKernel", 0, 0);
    fill();
    CHECK(begin(GUARD, &standby));
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_OK);
    memcpy(expected + GUARD, bytes, 8);
    check_target("after refusals", 8, GUARD);
}

// Kernels that were left behind do not outlive the release of devices.
static void test_release(void)
{
    struct fr_device_standby standby;
    CHECK(begin(GUARD, &standby));
    fr_device_standby_end(&standby);
    fr_device_release();
    CHECK(begin(GUARD, &standby));
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_OK);
}

// A kernel is left behind, and its context is reset: the words of both are gone. The kernels of the
// context that comes in its place may be described where those of the first one were.
static void test_reset(void)
{
    struct fr_device_standby standby;
    CUcontext context = NULL;
    for (int round = 0; round < 8; round++) {
        CHECK(begin(GUARD, &standby), "%d", round);
        fail("cuStreamQuery", 1, CUDA_ERROR_NOT_READY);
        CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_ERR_UNSUPPORTED, "%d", round);
        fail("cuStreamQuery", 0, 0);
        fr_device_standby_end(&standby);
        CU(cuDevicePrimaryCtxReset_v2(0));
        CU(cuDevicePrimaryCtxRetain(&context, 0));
        CU(cuCtxSetCurrent(context));
        CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &target));
        CHECK(fr_device_query(target.address, &range) == FR_OK);
        fill();
        CHECK(begin(GUARD, &standby), "after reset %d", round);
        CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_OK, "after reset %d", round);
        memcpy(expected + GUARD, bytes, 8);
        check_target("after a reset", 8, GUARD);
    }
}

// The driver waits for kernels before it frees memory, so one that stands by gives up meanwhile.
static void test_freed(void)
{
    struct fr_device_standby standby;
    CHECK(begin(GUARD, &standby));
    CU(cuMemFree_v2(driver_pointer(target.address)));
    CHECK(fr_device_standby_copy(&standby, bytes, 8) == FR_ERR_UNSUPPORTED);
    fr_device_standby_end(&standby);
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
    CHECK(driver_allocate(FR_KIND_MALLOC, 0, SPACE, &target));
    CHECK(fr_device_query(target.address, &range) == FR_OK);
    if (!fr_device_has_kernels(&range, FR_IMAGE_PUSH)) {
        printf("the library was built without kernels\n");
        return CHECK_SKIP;
    }
    test_sizes();
    test_too_late();
    test_dismissed();
    test_not_started();
    test_refusals();
    test_release();
    test_reset();
    test_freed();
    fr_device_release();
    return check_result();
}
