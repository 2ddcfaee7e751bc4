// SPDX-License-Identifier: BSD-3-Clause
// Cases of the simulated driver: kinds of memory, what the CPU can reach, addresses that come back,
// and memory that runs out.
#include "config.h"

#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

// One row of the recorded answers of the real driver.
struct expected {
    const char *kind;
    unsigned memory_type, managed, legacy_ipc;
    uint64_t handle_types;
    bool context, pool;
    CUresult retain;
};

static void check_single(const struct expected *expected, CUdeviceptr address)
{
    unsigned type = 99, managed = 99, legacy = 99;
    uint64_t handle_types = 99;
    void *context = &type, *pool = &type;
    OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    OK(cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    OK(cu.cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    OK(cu.cuPointerGetAttribute(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    OK(cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    OK(cu.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    CHECK(type == expected->memory_type, "%s %u", expected->kind, type);
    CHECK(managed == expected->managed, "%s %u", expected->kind, managed);
    CHECK(legacy == expected->legacy_ipc, "%s %u", expected->kind, legacy);
    CHECK(handle_types == expected->handle_types, "%s %x", expected->kind, (unsigned)handle_types);
    CHECK((context != NULL) == expected->context, "%s", expected->kind);
    CHECK((pool != NULL) == expected->pool, "%s", expected->kind);
}

static void check_range(const struct expected *expected, CUdeviceptr address, size_t bytes)
{
    CUdeviceptr start = 0, base = 0;
    size_t size = 0, range = 0;
    uint64_t id = 0;
    int ordinal = -1;
    unsigned mapped = 0, flags = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_ACCESS_FLAGS};
    void *values[] = {&start, &size, &id, &ordinal, &mapped, &flags};
    OK(cu.cuPointerGetAttributes(6, names, values, address + bytes - 1));
    CHECK(start == address && size == bytes, "%s", expected->kind);
    CHECK(id > 0 && ordinal == 1 && mapped == 1, "%s", expected->kind);
    CHECK(flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, "%s %u", expected->kind, flags);
    OK(cu.cuMemGetAddressRange(&base, &range, address + bytes / 2));
    CHECK(base == address && range == bytes, "%s", expected->kind);
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cu.cuMemRetainAllocationHandle(&handle, test_pointer(address));
    CHECK(result == expected->retain, "%s %d", expected->kind, result);
    if (result == CUDA_SUCCESS) {
        CUmemAllocationProp prop;
        OK(cu.cuMemGetAllocationPropertiesFromHandle(&prop, handle));
        CHECK((uint64_t)prop.requestedHandleTypes == expected->handle_types, "%s", expected->kind);
        OK(cu.cuMemRelease(handle));
    }
}

static void check_kind(const struct expected *expected, CUdeviceptr address, size_t bytes)
{
    check_single(expected, address);
    check_range(expected, address, bytes);
    CUdeviceptr device = 0;
    void *host = NULL;
    OK(cu.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 3));
    CHECK(device == address + 3, "%s", expected->kind);
    bool reachable = expected->memory_type == CU_MEMORYTYPE_HOST || expected->managed;
    EXPECT(reachable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
           cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 3));
    CHECK(host == (reachable ? test_pointer(address + 3) : NULL), "%s", expected->kind);
}

static void run_kinds(void)
{
    const unsigned device = CU_MEMORYTYPE_DEVICE, host = CU_MEMORYTYPE_HOST;
    const CUresult ok = CUDA_SUCCESS, no = CUDA_ERROR_INVALID_VALUE;
    const struct expected malloc_kind = {"malloc", device, 0, 1, 0, true, false, no};
    const struct expected managed_kind = {"managed", device, 1, 0, 0, true, false, no};
    const struct expected pool_kind = {"pool", device, 0, 0, 0, false, true, no};
    const struct expected pinned_kind = {"pinned", host, 0, 0, 0, true, false, no};
    CUdeviceptr address;
    void *pinned;
    CUstream stream;
    test_begin(1);
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemAlloc(&address, 1000));
    check_kind(&malloc_kind, address, 1000);
    OK(cu.cuMemAllocManaged(&address, 70000, CU_MEM_ATTACH_GLOBAL));
    check_kind(&managed_kind, address, 70000);
    OK(cu.cuMemAllocAsync(&address, 5000, stream));
    check_kind(&pool_kind, address, 5000);
    OK(cu.cuMemHostAlloc(&pinned, 9000, CU_MEMHOSTALLOC_PORTABLE));
    check_kind(&pinned_kind, (uintptr_t)pinned, 9000);
    static char registered[8192];
    OK(cu.cuMemHostRegister(registered, sizeof(registered), 0));
    check_kind(&pinned_kind, (uintptr_t)registered, sizeof(registered));
    const unsigned types[] = {0, 1, 8, 9};
    for (int i = 0; i < 4; i++) {
        struct test_mapping mapping;
        const struct expected vmm = {"vmm", device, 0, 0, types[i], false, false, ok};
        test_map(&mapping, GRANULE, types[i]);
        check_kind(&vmm, mapping.address, GRANULE);
        test_unmap(&mapping);
    }
}

static void run_plain_host(void)
{
    int here = 0;
    unsigned type = 99;
    uint64_t id = 99;
    int ordinal = 99;
    CUdeviceptr start = 99, at = 99;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *values[] = {&type, &id, &ordinal, &start, &at};
    EXPECT(CUDA_ERROR_NOT_INITIALIZED,
           cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&here));
    test_begin(0);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&here));
    CHECK(type == 99, "written on failure");
    OK(cu.cuPointerGetAttributes(5, names, values, (uintptr_t)&here));
    CHECK(type == 0 && id == 0, "not zeroed");
    CHECK(ordinal == -2 && at == (uintptr_t)&here, "device %d", ordinal);
    CHECK(start == 99, "the driver leaves the range of an unknown address unwritten");
    CUdeviceptr reserved;
    OK(cu.cuMemAddressReserve(&reserved, 2 * GRANULE, 0, 0, 0));
    OK(cu.cuPointerGetAttributes(5, names, values, reserved + 5));
    CHECK(type == 0 && start == reserved, "reserved addresses");
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reserved));
    CUdeviceptr base;
    EXPECT(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange(&base, NULL, (uintptr_t)&here));
}

static void run_sync_memops(void)
{
    unsigned on = 1, answer = 0;
    CUdeviceptr address;
    test_begin(0);
    OK(cu.cuMemAlloc(&address, 64));
    OK(cu.cuPointerGetAttribute(&answer, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    CHECK(answer == 0, "set from the start");
    OK(cu.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    OK(cu.cuPointerGetAttribute(&answer, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    CHECK(answer == 1, "not kept");
}

static bool readable_by_system(CUdeviceptr address)
{
    char byte = 0;
    struct iovec local = {&byte, 1}, remote = {test_pointer(address), 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

static void check_closed(CUdeviceptr address)
{
    CHECK(test_touch(address, false) == SIGSEGV, "a load went through");
    CHECK(test_touch(address, true) == SIGSEGV, "a store went through");
    CHECK(!readable_by_system(address) && errno == EFAULT, "process_vm_readv went through");
}

static void check_open(CUdeviceptr address)
{
    CHECK(test_touch(address, false) == 0, "a load was stopped");
    CHECK(test_touch(address, true) == 0, "a store was stopped");
    CHECK(readable_by_system(address), "process_vm_readv was stopped");
}

struct samples {
    CUdeviceptr malloc, pool, managed, pinned;
    struct test_mapping vmm;
};

static void make_samples(struct samples *samples)
{
    void *pinned;
    test_begin(0);
    OK(cu.cuMemAlloc(&samples->malloc, 4096));
    OK(cu.cuMemAllocAsync(&samples->pool, 4096, NULL));
    OK(cu.cuMemAllocManaged(&samples->managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cu.cuMemHostAlloc(&pinned, 4096, 0));
    samples->pinned = (uintptr_t)pinned;
    test_map(&samples->vmm, 4096, 0);
}

static void run_faults(void)
{
    struct samples samples;
    make_samples(&samples);
    check_closed(samples.malloc);
    check_closed(samples.pool);
    check_closed(samples.vmm.address);
    check_open(samples.managed);
    check_open(samples.pinned);
    test_unmap(&samples.vmm);
    OK(cu.cuMemFree(samples.malloc));
    check_closed(samples.malloc);
    OK(cu.cuMemFreeHost(test_pointer(samples.pinned)));
    CHECK(test_touch(samples.pinned, false) == SIGSEGV, "freed pinned memory is still there");
}

static void run_managed_trap(void)
{
    struct samples samples;
    make_samples(&samples);
    check_closed(samples.managed);
    check_open(samples.pinned);
    test_put(samples.managed, 4096, 1);
    CHECK(test_holds(samples.managed, 4096, 1), "copies must still work");
}

static void run_host_access(void)
{
    struct samples samples;
    make_samples(&samples);
    const CUdeviceptr all[] = {samples.malloc, samples.pool, samples.vmm.address, samples.managed};
    for (int i = 0; i < 4; i++) {
        check_open(all[i]);
        test_put(all[i], 4096, 7u + (unsigned)i);
        CHECK(check_first_difference(test_pointer(all[i]), 4096, 7u + (unsigned)i) == 4096,
              "kind %d: the CPU sees other bytes than the driver", i);
        memset(test_pointer(all[i]), 0, 4096);
        check_fill(test_pointer(all[i]), 4096, 70u + (unsigned)i);
        CHECK(test_holds(all[i], 4096, 70u + (unsigned)i), "kind %d", i);
    }
}

static uint64_t buffer_id(CUdeviceptr address)
{
    uint64_t id = 0;
    cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
    return id;
}

static void run_reuse(void)
{
    uint64_t last = 0;
    CUstream stream;
    test_begin(0);
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t bytes = 1; bytes < 100000000; bytes *= 3) {
        CUdeviceptr first, second, third;
        OK(cu.cuMemAlloc(&first, bytes));
        CHECK(buffer_id(first) > last, "%zu bytes", bytes);
        last = buffer_id(first);
        OK(cu.cuMemFree(first));
        CHECK(buffer_id(first) == 0, "%zu bytes: known after the free", bytes);
        EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree(first));
        OK(cu.cuMemAlloc(&second, bytes));
        CHECK(second == first, "%zu bytes: another address", bytes);
        CHECK(buffer_id(second) > last, "%zu bytes: the id was reused", bytes);
        OK(cu.cuMemFree(second));
        // The next owner may be of another kind.
        OK(cu.cuMemAllocAsync(&third, bytes, stream));
        CHECK(third == first, "%zu bytes: another address", bytes);
        OK(cu.cuMemFreeAsync(third, stream));
        OK(cu.cuStreamSynchronize(stream));
        CHECK(buffer_id(third) == 0, "%zu bytes: known after the free", bytes);
    }
    struct test_mapping one, two;
    test_map(&one, 3 * GRANULE, 1);
    last = buffer_id(one.address);
    test_unmap(&one);
    CHECK(buffer_id(one.address) == 0, "known after the unmap");
    test_map(&two, 3 * GRANULE, 0);
    CHECK(two.address == one.address && buffer_id(two.address) > last, "VMM address");
    test_unmap(&two);
}

static void run_out_of_memory(void)
{
    CUdeviceptr first, second;
    size_t available = 0, total = 0;
    CUmemGenericAllocationHandle handle;
    test_begin(0);
    const CUmemAllocationProp prop = test_prop(0, 0), other = test_prop(1, 0);
    OK(cu.cuMemAlloc(&first, 6 << 20));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(&second, (2 << 20) + 1));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemCreate(&handle, 4 << 20, &prop, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocManaged(&second, 3 << 20, CU_MEM_ATTACH_GLOBAL));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&second, 3 << 20, NULL));
    OK(cu.cuMemCreate(&handle, 2 << 20, &prop, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(&second, 1));
    OK(cu.cuMemGetInfo(&available, &total));
    CHECK(available == 0 && total == 8 << 20, "%zu of %zu", available, total);
    OK(cu.cuMemRelease(handle));
    OK(cu.cuMemCreate(&handle, 8 << 20, &other, 0));
    OK(cu.cuMemFree(first));
    OK(cu.cuMemAlloc(&first, 8 << 20));
    OK(cu.cuMemFree(first));
    // A free that is still queued counts as free.
    OK(cu.cuMemAllocAsync(&first, 8 << 20, NULL));
    OK(cu.cuMemFreeAsync(first, NULL));
    OK(cu.cuMemAllocAsync(&second, 7 << 20, NULL));
}

// Many blocks of random sizes, freed in random order: they never overlap, and each keeps its bytes.
static void run_heap(void)
{
    enum { SLOTS = 512, ROUNDS = 6000 };
    static CUdeviceptr address[SLOTS];
    static size_t bytes[SLOTS];
    uint64_t state = 1;
    test_begin(0);
    for (int round = 0; round < ROUNDS; round++) {
        size_t slot = check_random(&state) % SLOTS;
        if (address[slot]) {
            CHECK(test_holds(address[slot], bytes[slot], slot), "slot %zu lost its bytes", slot);
            OK(cu.cuMemFree(address[slot]));
            address[slot] = 0;
            continue;
        }
        bytes[slot] = 1 + check_random(&state) % (round % 50 ? 3000 : 300000);
        OK(cu.cuMemAlloc(&address[slot], bytes[slot]));
        CHECK(address[slot] % 256 == 0, "badly aligned");
        test_put(address[slot], bytes[slot], slot);
    }
}

// Takes more addresses than the heap has, all of different sizes. The gaps are found, and live
// blocks, which lie among them, keep their bytes.
static void run_heap_gaps(void)
{
    enum { KEPT = 8, ROUNDS = 600 };
    CUdeviceptr kept[KEPT] = {0};
    test_begin(0);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        CUdeviceptr address = 0;
        size_t bytes = 512 * (size_t)round - 100;
        OK(cu.cuMemAlloc(&address, bytes));
        CHECK(address % 512 == 0, "round %u: badly aligned", round);
        test_put(address, bytes, round);
        if (round % 75 == 0) {
            OK(cu.cuMemAlloc(&kept[round / 75 - 1], 700));
            test_put(kept[round / 75 - 1], 700, 1000 + round);
        }
        CHECK(test_holds(address, bytes, round), "round %u", round);
        OK(cu.cuMemFree(address));
    }
    for (unsigned i = 0; i < KEPT; i++)
        CHECK(test_holds(kept[i], 700, 1000 + 75 * (i + 1)), "block %u was overwritten", i);
}

static void run_pools(void)
{
    CUmemoryPool pool, seen, standard;
    CUdeviceptr address;
    uint64_t used = 99;
    unsigned long long flags = 99;
    const CUmemAccessDesc near = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                  .maxSize = 1 << 20};
    test_begin(0);
    OK(cu.cuDeviceGetDefaultMemPool(&standard, 0));
    OK(cu.cuMemAllocAsync(&address, 100, NULL));
    OK(cu.cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    CHECK(seen == standard, "not from the default pool");
    OK(cu.cuMemFree(address));
    OK(cu.cuMemPoolCreate(&pool, &props));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY,
           cu.cuMemAllocFromPoolAsync(&address, (1 << 20) + 1, pool, NULL));
    OK(cu.cuMemAllocFromPoolAsync(&address, 1000, pool, NULL));
    OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 1000, "%u", (unsigned)used);
    int device = -1;
    OK(cu.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CHECK(device == 1, "%d", device);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(address, 1, 16)); // closed to device 0
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(address, &used, sizeof(used)));
    OK(cu.cuMemPoolSetAccess(pool, &near, 1));
    OK(cu.cuMemGetAccess(&flags, &near.location, address));
    CHECK(flags == 0, "says of VMM memory alone who may access it");
    OK(cu.cuMemPoolDestroy(pool));
    test_put(address, 1000, 3);
    CHECK(test_holds(address, 1000, 3), "a block outlives its pool");
    OK(cu.cuMemFreeAsync(address, NULL));
    OK(cu.cuCtxSynchronize());
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolDestroy(standard));
}

static void run_register(void)
{
    static char memory[20000];
    CUdeviceptr device = 0;
    test_begin(0);
    OK(cu.cuMemHostRegister(memory + 100, 10000, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister(memory, 200, 0));
    OK(cu.cuMemHostGetDevicePointer(&device, memory + 500, 0));
    CHECK(device == (uintptr_t)memory + 500, "not the same address");
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(memory));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostUnregister(memory + 200));
    OK(cu.cuMemHostUnregister(memory + 100));
    CHECK(buffer_id((uintptr_t)memory + 500) == 0, "still known");
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister(test_pointer(4096), 10, 0));
}

const struct test_case test_memory_cases[] = {
    {"kinds", {NULL}, run_kinds},
    {"plain-host", {NULL}, run_plain_host},
    {"sync-memops", {NULL}, run_sync_memops},
    {"faults", {NULL}, run_faults},
    {"managed-trap", {"FRSIM_MANAGED_TRAP=1"}, run_managed_trap},
    {"host-access", {"FRSIM_HOST_ACCESS=1"}, run_host_access},
    {"reuse", {NULL}, run_reuse},
    {"out-of-memory", {"FRSIM_MEMORY=8M"}, run_out_of_memory},
    {"heap", {"FRSIM_MEMORY=64M"}, run_heap},
    {"heap-tight", {"FRSIM_MEMORY=4M"}, run_heap},
    {"heap-gaps", {"FRSIM_MEMORY=1M"}, run_heap_gaps},
    {"pools", {NULL}, run_pools},
    {"register", {NULL}, run_register},
    {NULL, {NULL}, NULL},
};
