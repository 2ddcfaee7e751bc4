// SPDX-License-Identifier: BSD-3-Clause
// Device memory registered with NICs that reach it, on the simulated driver and the stand-in for
// libfabric: which memory is taken, that an allocation is registered once, never found again once
// it is freed, and let go of then; what a NIC refuses; memory of the workspace; and what the
// settings do. Each case is a process of its own.
#include "config.h"

#include "apart.h"
#include "rail_standin.h"
#include "rndv_two_ranks.h"

#include "rndv/hmem.h"
#include "rndv/own_rails.h"

#include "driver.h"

#include <unistd.h>

enum { NICS = 2, BYTES = 1 << 20 };

// ---- a case

static CUcontext current; // in place of device 0's
static unsigned before;   // registrations of the rails' own

static unsigned registered(void)
{
    CHECK((standin->registered - before) % NICS == 0, "%u", standin->registered);
    return (standin->registered - before) / NICS;
}

static bool start_on(bool hmem, int device)
{
    CUcontext context;
    if (!driver_load() || !driver_start(&context) || !driver_is_simulated())
        return false;
    if (current != NULL)
        CU(cuCtxSetCurrent(current));
    load_standin();
    standin->nics = NICS;
    standin->hmem = hmem;
    standin->mr_mode = FI_MR_LOCAL;
    (void)fr_device_present();
    if (device >= 0)
        fr_rndv_rails_use_device(device);
    CHECK(fr_rndv_rails_to(1) == 0, "nobody has read yet");
    CHECK(fr_rndv_rails() != NULL && fr_rail_count(fr_rndv_rails()) == NICS);
    before = standin->registered;
    if (fr_rndv_rails() == NULL)
        exit(CHECK_FAIL);
    return true;
}

static bool start(bool hmem)
{
    return start_on(hmem, 0);
}

static void finish(void)
{
    fr_rndv_rails_close();
    CHECK(standin->open == 0, "%d objects were left open", standin->open);
    CHECK(standin->wrong[0] == '\0', "%s", standin->wrong);
}

static struct driver_memory allocate(enum fr_device_kind kind, size_t bytes)
{
    struct driver_memory memory;
    if (!driver_allocate(kind, 0, bytes, &memory))
        exit(CHECK_FAIL);
    return memory;
}

static enum fr_status pin(const char *address, size_t bytes, struct fr_rail_region **region,
                          size_t *offset)
{
    struct fr_device_range range;
    *region = NULL;
    fr_device_classify(address, bytes, &range);
    CHECK(fr_rndv_hmem_reaches(&range) == fr_device_owns(&range));
    return fr_rndv_hmem_register(&range, (uintptr_t)address, bytes, region, offset);
}

static struct fr_rail_region *must_pin(const char *address, size_t bytes, size_t offset_wanted)
{
    struct fr_rail_region *region;
    size_t offset = SIZE_MAX;
    enum fr_status status = pin(address, bytes, &region, &offset);
    CHECK(status == FR_OK, "%s", fr_core_status_text(status));
    CHECK(offset == offset_wanted, "offset %zu", offset);
    if (status != FR_OK)
        exit(CHECK_FAIL);
    return region;
}

static void release(struct fr_rail_region *region)
{
    fr_rail_release(fr_rndv_rails(), region);
}

// Looks for what was freed, as progress does, until there are so many registrations or 5 s are
// over.
static void wait_for_registered(unsigned wanted)
{
    double until = seconds() + 5;
    while (registered() != wanted && seconds() < until) {
        fr_rndv_hmem_poll();
        usleep(1000);
    }
    CHECK(registered() == wanted, "%u registrations, not %u", registered(), wanted);
}

// ---- the cases

static void test_kinds(void)
{
    static const enum fr_device_kind taken[] = {FR_KIND_MALLOC, FR_KIND_VMM_FD, FR_KIND_VMM_FABRIC};
    static const enum fr_device_kind refused[] = {FR_KIND_MANAGED, FR_KIND_POOL, FR_KIND_VMM};
    struct fr_rail_region *region;
    struct fr_device_range other = {.caps = FR_DEVICE_OWNED, .device = 1};
    size_t offset;
    unsigned count = 0;
    if (!start(true))
        exit(CHECK_SKIP);
    CHECK(!fr_rndv_hmem_reaches(&other), "the NICs are another GPU's");
    for (size_t i = 0; i < FR_ARRAY_LENGTH(taken); i++) {
        struct driver_memory memory;
        if (!driver_allocate(taken[i], 0, 4 * BYTES, &memory)) {
            printf("%s memory cannot be had here\n", fr_device_kind_name(taken[i]));
            continue;
        }
        region = must_pin(memory.address + 100, BYTES, 100);
        CHECK(must_pin(memory.address + 2 * BYTES, 1, 2 * BYTES) == region, "it is one allocation");
        CHECK(registered() == ++count);
        CHECK(pin(memory.address + 100, memory.bytes, &region, &offset) == FR_ERR_UNSUPPORTED ||
                  memory.bytes > 4 * BYTES,
              "beyond the allocation");
    }
    for (size_t i = 0; i < FR_ARRAY_LENGTH(refused); i++) {
        struct driver_memory memory = allocate(refused[i], BYTES);
        CHECK(pin(memory.address, BYTES, &region, &offset) == FR_ERR_UNSUPPORTED);
    }
    CHECK(registered() == count && count >= 2);
    finish();
}

// The driver gives the address out again at once.
static void test_freed(void)
{
    if (!start(true))
        exit(CHECK_SKIP);
    struct driver_memory memory = allocate(FR_KIND_MALLOC, BYTES);
    struct fr_rail_region *held = must_pin(memory.address, BYTES, 0);
    CU(cuMemFree_v2(driver_pointer(memory.address)));
    struct driver_memory again = allocate(FR_KIND_MALLOC, BYTES);
    CHECK(again.address == memory.address, "the simulated driver has changed");
    struct fr_rail_region *region = must_pin(again.address, BYTES, 0);
    CHECK(region != held, "memory of the past was found again");
    CHECK(registered() == 2, "what is pinned stays");
    release(held);
    CHECK(registered() == 1, "it ended with its last pin");
    release(region);
    CHECK(must_pin(again.address, BYTES, 0) == region && registered() == 1, "once released");
    release(region);
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        fr_rndv_hmem_poll();
    }
    CHECK(registered() == 1, "what is there stays registered");
    CU(cuMemFree_v2(driver_pointer(again.address)));
    wait_for_registered(0);
    // More of them than are told of at once.
    enum { MANY = 40 };
    struct driver_memory many[MANY];
    for (int i = 0; i < MANY; i++) {
        many[i] = allocate(FR_KIND_MALLOC, 4096);
        release(must_pin(many[i].address, 4096, 0));
    }
    CHECK(registered() == MANY);
    for (int i = 0; i < MANY; i++)
        CU(cuMemFree_v2(driver_pointer(many[i].address)));
    wait_for_registered(0);
    finish();
}

// Refused once and for the retry without anything idle, it is not tried again; other memory is.
static void test_refused(void)
{
    struct fr_rail_region *region;
    size_t offset;
    if (!start(true))
        exit(CHECK_SKIP);
    struct driver_memory memory = allocate(FR_KIND_MALLOC, BYTES);
    struct driver_memory other = allocate(FR_KIND_MALLOC, BYTES);
    standin->fails_on = true;
    fail_call("fi_mr_regattr", 1, -FI_EINVAL);
    CHECK(pin(memory.address, BYTES, &region, &offset) == FR_ERR_UNSUPPORTED && region == NULL);
    unsigned calls = standin->calls;
    CHECK(calls == 2 * NICS, "%u calls", calls);
    CHECK(pin(memory.address, BYTES, &region, &offset) == FR_ERR_UNSUPPORTED && region == NULL);
    CHECK(standin->calls == calls, "it was tried again");
    standin->fail_call = NULL;
    CHECK(pin(memory.address, BYTES, &region, &offset) == FR_ERR_UNSUPPORTED && region == NULL);
    release(must_pin(other.address, BYTES, 0));
    // Want of memory says nothing of the next time.
    struct driver_memory third = allocate(FR_KIND_MALLOC, BYTES);
    standin->calls = 0;
    standin->fail_call = "fi_mr_regattr";
    standin->fail_code = -FI_ENOMEM;
    CHECK(pin(third.address, BYTES, &region, &offset) == FR_ERR_NO_MEMORY && region == NULL);
    standin->fail_call = NULL;
    release(must_pin(third.address, BYTES, 0));
    finish();
}

static void test_workspace(void)
{
    struct fr_staging_lease leases[2] = {{.address = NULL}, {.address = NULL}};
    struct fr_rail_region *regions[2];
    size_t offsets[2] = {SIZE_MAX, SIZE_MAX};
    if (!start(true))
        exit(CHECK_SKIP);
    for (int i = 0; i < 2; i++) {
        CHECK(fr_staging_borrow_device(0, 100000, &leases[i]) == FR_OK);
        CHECK(fr_rndv_hmem_register_lease(&leases[i], &regions[i], &offsets[i]) == FR_OK);
    }
    CHECK(regions[0] == regions[1] && registered() == 1, "it is one allocation");
    CHECK(offsets[1] - offsets[0] ==
              (size_t)((char *)leases[1].address - (char *)leases[0].address),
          "%zu and %zu", offsets[0], offsets[1]);
    for (int i = 0; i < 2; i++) {
        release(regions[i]);
        fr_staging_return(&leases[i]);
    }
    CHECK(registered() == 1, "while it is the workspace's");
    fr_staging_release();
    CHECK(registered() == 0, "gone with the memory");
    finish();
}

// Only the bytes in question are registered of an allocation beyond half of the bound.
static void test_large(void)
{
    if (!start(true))
        exit(CHECK_SKIP);
    struct driver_memory memory = allocate(FR_KIND_MALLOC, 2 * BYTES + 4096);
    struct fr_rail_region *first = must_pin(memory.address + 4096, BYTES, 0);
    struct fr_rail_region *second = must_pin(memory.address + BYTES + 4096, BYTES, 0);
    CHECK(first != second && registered() == 2);
    release(first);
    release(second);
    CU(cuMemFree_v2(driver_pointer(memory.address)));
    wait_for_registered(0);
    struct driver_memory small = allocate(FR_KIND_MALLOC, 2 * BYTES);
    release(must_pin(small.address + 4096, BYTES, 4096));
    finish();
}

static void test_without(bool hmem)
{
    if (!start(hmem))
        exit(CHECK_SKIP);
    struct driver_memory memory = allocate(FR_KIND_MALLOC, BYTES);
    struct fr_device_range range;
    fr_device_classify(memory.address, BYTES, &range);
    CHECK(!fr_rndv_hmem_reaches(&range));
    fr_rndv_hmem_poll();
    finish();
}

static void test_no_hmem(void)
{
    test_without(false);
}

static void test_setting(void)
{
    test_without(true);
}

// A process that has handed MPI no buffer yet counts as using the device of its thread.
static void test_current(void)
{
    const struct fr_device_range first = {.caps = FR_DEVICE_OWNED, .device = 0};
    const struct fr_device_range second = {.caps = FR_DEVICE_OWNED, .device = 1};
    CUcontext context;
    if (!driver_load() || !driver_start(&context))
        exit(CHECK_SKIP);
    CU(cuDevicePrimaryCtxRetain(&context, 1));
    CU(cuCtxSetCurrent(context));
    current = context;
    if (!start_on(true, -1))
        exit(CHECK_SKIP);
    CHECK(fr_rndv_hmem_reaches(&second) && !fr_rndv_hmem_reaches(&first));
    finish();
}

// The driver says how writes are ordered and how it flushes them.
static void test_driver(void)
{
    CUcontext context;
    if (!driver_load() || !driver_start(&context) || !driver_is_simulated())
        exit(CHECK_SKIP);
    CHECK(!fr_device_orders_rdma(99) && !fr_device_can_flush_rdma(99));
    CHECK(fr_device_orders_rdma(0) && fr_device_can_flush_rdma(0));
    CU(cuCtxSetCurrent(NULL));
    CHECK(fr_device_flush_rdma(1) == FR_OK, "without a context");
    CHECK(cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == NULL, "one was left");
    CHECK(fr_device_adopt(1) == FR_OK);
    CHECK(cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL, "none was left");
    fr_device_release();
}

int main(void)
{
    int worst = check_apart("driver", test_driver, NULL, NULL);
    if (worst == CHECK_SKIP)
        return CHECK_SKIP;
    worst |= check_apart("kinds", test_kinds, NULL, NULL);
    worst |= check_apart("current", test_current, NULL, NULL);
    worst |= check_apart("freed", test_freed, NULL, NULL);
    worst |= check_apart("refused", test_refused, NULL, NULL);
    worst |= check_apart("workspace", test_workspace, NULL, NULL);
    worst |= check_apart("large", test_large, "FABRAIL_RAIL_CACHE", "4M");
    worst |= check_apart("no HMEM", test_no_hmem, NULL, NULL);
    worst |= check_apart("setting", test_setting, "FABRAIL_RAIL_HMEM", "no");
    return worst != 0 ? CHECK_FAIL : CHECK_PASS;
}
