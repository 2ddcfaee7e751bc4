// SPDX-License-Identifier: BSD-3-Clause
// Which device moves memory that lies on one and is open to others: the current one before those
// that have a context before the rest; bytes arrive, and no context is made that need not be.
#include "config.h"

#include "driver.h"

#include "fabrail/device/classify.h"

enum { BYTES = 100000, MOST_DEVICES = 3, NOBODY = -1 };

static int devices; // that are looked at

static bool is_active(int device)
{
    unsigned flags = 0;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    return active;
}

// Writes a pattern to the memory and reads it back, each through Fabrail.
static void round_trip(const struct driver_memory *memory, const struct fr_device_range *range)
{
    static unsigned char there[BYTES], back[BYTES];
    const struct fr_device_copy copies[] = {
        {.dst = memory->address, .src = there, .bytes = BYTES, .n = {1, 1}},
        {.dst = back, .src = memory->address, .bytes = BYTES, .n = {1, 1}},
    };
    struct fr_device_batch batch;
    check_fill(there, BYTES, range->buffer_id);
    memset(back, 0, BYTES);
    for (int i = 0; i < 2; i++) {
        fr_device_batch_begin(&batch);
        fr_device_batch_copy(&batch, range, i == 0 ? FR_FROM_STAGE : FR_TO_STAGE, &copies[i]);
        CHECK(fr_device_batch_finish(&batch) == FR_OK);
    }
    CHECK(check_first_difference(back, BYTES, range->buffer_id) == BYTES);
}

static bool make(int home, unsigned open_to, struct driver_memory *memory)
{
    if (!driver_allocate(FR_KIND_VMM_FD, home, BYTES, memory))
        return false;
    for (int device = 0; device < devices; device++) {
        const CUmemAccessDesc access = {
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
            .flags = open_to >> device & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        if (device == home || open_to >> device & 1)
            CU(cuMemSetAccess(driver_pointer(memory->address), memory->bytes, &access, 1));
    }
    return true;
}

// A process with contexts on the devices of `active` and that of `current` current.
struct place {
    unsigned active;
    int current;
    int home;
    unsigned open_to;
    int mover;
};
static const struct place places[] = {
    {.active = 1, .current = 0, .home = 0, .open_to = 1, .mover = 0},
    {.active = 1, .current = 0, .home = 1, .open_to = 1, .mover = 0},
    {.active = 1, .current = 0, .home = 1, .open_to = 3, .mover = 0},
    {.active = 1, .current = 0, .home = 1, .open_to = 2, .mover = 1}, // nothing else works
    {.active = 1, .current = 0, .home = 0, .open_to = 2, .mover = 1}, // nor here
    {.active = 3, .current = 1, .home = 0, .open_to = 3, .mover = 1},
    {.active = 3, .current = 1, .home = 0, .open_to = 1, .mover = 0},
    {.active = 5, .current = 0, .home = 1, .open_to = 6, .mover = 2},
    {.active = 7, .current = 0, .home = 2, .open_to = 6, .mover = 2},
    {.active = 1, .current = NOBODY, .home = 1, .open_to = 3, .mover = 0},
    {.active = 3, .current = NOBODY, .home = 1, .open_to = 3, .mover = 1},
    {.active = 5, .current = NOBODY, .home = 1, .open_to = 4, .mover = 2},
    {.active = 1, .current = NOBODY, .home = 1, .open_to = 6, .mover = 1},
    {.active = 1, .current = 0, .home = 1, .open_to = 4, .mover = 2},
};

static void check_place(const struct place *place, size_t number)
{
    CUcontext contexts[MOST_DEVICES] = {NULL}, current = NULL;
    struct driver_memory memory;
    struct fr_device_range range;
    for (int device = 0; device < devices; device++)
        if (place->active >> device & 1)
            CU(cuDevicePrimaryCtxRetain(&contexts[device], device));
    CU(cuCtxSetCurrent(place->current == NOBODY ? NULL : contexts[place->current]));
    if (make(place->home, place->open_to, &memory)) {
        fr_device_classify(memory.address, BYTES, &range);
        CHECK(range.device == place->mover && range.home == place->home,
              "place %zu: memory of device %d is moved by %d, not %d", number, range.home,
              range.device, place->mover);
        round_trip(&memory, &range);
        for (int device = 0; device < devices; device++)
            CHECK(is_active(device) ==
                      (device == place->mover || (place->active >> device & 1) != 0),
                  "place %zu: context of device %d", number, device);
        CU(cuCtxGetCurrent(&current));
        CHECK(current == (place->current == NOBODY ? NULL : contexts[place->current]));
        driver_free(&memory);
    }
    fr_device_release();
    CU(cuCtxSetCurrent(NULL));
    for (int device = 0; device < devices; device++)
        if (place->active >> device & 1)
            CU(cuDevicePrimaryCtxRelease_v2(device));
}

// A pool of device 1, closed to device 0 at first.
static void test_pool(CUcontext primary)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
    };
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    struct driver_memory memory = {.kind = FR_KIND_POOL, .bytes = BYTES, .device = 1};
    struct fr_device_range range;
    CUmemoryPool pool = NULL;
    CUdeviceptr address = 0;
    CU(cuCtxSetCurrent(primary));
    CU(cuMemPoolCreate(&pool, &props));
    CU(cuMemAllocFromPoolAsync(&address, BYTES, pool, NULL));
    CU(cuStreamSynchronize(NULL));
    memory.address = (char *)(uintptr_t)address;
    bool before = is_active(1); // by the driver's own doing
    fr_device_classify(memory.address, BYTES, &range);
    CHECK(range.device == 1 && range.home == 1, "closed memory is moved by device %d",
          range.device);
    CU(cuMemPoolSetAccess(pool, &access, 1));
    fr_device_classify(memory.address, BYTES, &range);
    CHECK(range.device == 0 && range.home == 1, "open memory is moved by device %d", range.device);
    round_trip(&memory, &range);
    CHECK(is_active(1) == before);
    driver_free(&memory);
    CU(cuMemPoolDestroy(pool));
    fr_device_release();
}

// Other processes are told the device on which the memory lies.
static void test_export(CUcontext primary)
{
    struct driver_memory memory;
    struct fr_device_range range;
    struct fr_device_export export;
    unsigned char uuid[FR_DEVICE_UUID_BYTES];
    CU(cuCtxSetCurrent(primary));
    if (!make(1, 1, &memory))
        return;
    fr_device_classify(memory.address, BYTES, &range);
    CHECK(fr_device_export(&range, memory.address, &export) == FR_OK);
    fr_device_uuid(1, uuid);
    CHECK(memcmp(export.uuid, uuid, sizeof(uuid)) == 0);
    CHECK(!is_active(1));
    driver_free(&memory);
    fr_device_release();
}

// How many of the first devices reach each other.
static int count_devices(void)
{
    int count = 0;
    CU(cuDeviceGetCount(&count));
    count = count < MOST_DEVICES ? count : MOST_DEVICES;
    for (int from = 0; from < count; from++) {
        for (int to = 0; to < count; to++) {
            int can = from == to;
            if (!can)
                CU(cuDeviceCanAccessPeer(&can, from, to));
            if (!can)
                return 1;
        }
    }
    return count;
}

int main(void)
{
    CUcontext primary = NULL;
    if (!driver_load() || !driver_start(&primary))
        return CHECK_SKIP;
    devices = count_devices();
    if (devices < 2) {
        fprintf(stderr, "skipped: no two devices that reach each other\n");
        return CHECK_SKIP;
    }
    test_export(primary);
    test_pool(primary);
    CU(cuCtxSetCurrent(NULL));
    CU(cuDevicePrimaryCtxRelease_v2(0));
    for (size_t i = 0; i < FR_ARRAY_LENGTH(places); i++) {
        const struct place *place = &places[i];
        if ((place->active | place->open_to | 1u << place->home) >> devices == 0)
            check_place(place, i);
    }
    return check_result();
}
