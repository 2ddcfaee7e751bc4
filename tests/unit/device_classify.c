// SPDX-License-Identifier: BSD-3-Clause
// Kinds of buffers: memory that is certainly host memory, every kind of device memory, ranges that
// begin and end in different memory, and addresses that change owner.
#include "config.h"

#include "fabrail/device/classify.h"

#include "../sim/calls.h"
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static char initialised_data[8192] = {1};
static char zeroed_data[8192];

static struct fr_device_range classify(const void *address, size_t bytes)
{
    struct fr_device_range range;
    memset(&range, 0xa5, sizeof(range));
    fr_device_classify(address, bytes, &range);
    return range;
}

static enum fr_device_kind kind_of(const void *address, size_t bytes)
{
    return classify(address, bytes).kind;
}

static void check_surely_host(const char *memory, size_t bytes, const char *what)
{
    for (size_t offset = 0; offset<bytes; offset += bytes> 4096 ? bytes / 64 : 1)
        CHECK(fr_device_is_surely_host(memory + offset), "%s at %zu of %zu", what, offset, bytes);
    CHECK(fr_device_is_surely_host(memory + bytes - 1), "%s at its end", what);
    CHECK(kind_of(memory, bytes) == FR_KIND_HOST, "%s", what);
}

static void *use_thread_stack(void *cookie)
{
    char local[100000];
    memset(local, 0, sizeof(local));
    check_surely_host(local, sizeof(local), "stack of a thread");
    check_surely_host(cookie, 8, "stack of another thread");
    return NULL;
}

// Checks host memory, with and without a driver.
static void check_plain_memory(bool present)
{
    char local[100000];
    memset(local, 0, sizeof(local));
    check_surely_host(local, sizeof(local), "stack");
    check_surely_host(initialised_data, sizeof(initialised_data), "initialised data");
    check_surely_host(zeroed_data, sizeof(zeroed_data), "zeroed data");
    CHECK(fr_device_is_surely_host(NULL) && kind_of(NULL, 1) == FR_KIND_HOST, "null");
    char *small = malloc(1000);
    if ((char *)sbrk(0) - small < ((ptrdiff_t)1 << 30) && small < (char *)sbrk(0))
        check_surely_host(small, 1000, "heap");
    CHECK(kind_of(small, 1000) == FR_KIND_HOST);
    free(small);

    char *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fr_device_is_surely_host(mapped) == !present, "mapped memory");
    CHECK(kind_of(mapped, 1 << 20) == FR_KIND_HOST);
    munmap(mapped, 1 << 20);
    CHECK(!fr_device_is_surely_host(sbrk(0)) == present, "the break itself");
    CHECK(kind_of((void *)UINTPTR_MAX, 1) == FR_KIND_HOST);
    CHECK(kind_of((void *)UINTPTR_MAX, 0) == FR_KIND_HOST);

    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    // The main thread's stack is certain only from the main thread, so a static buffer it is.
    if (pthread_create(&thread, &attributes, use_thread_stack, zeroed_data) == 0)
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

// The heap shrinks as well, and what was heap is then anyone's.
static void test_shrinking_break(void)
{
    char *top = sbrk(1 << 20);
    if (top == (void *)-1)
        return;
    CHECK(fr_device_is_surely_host(top + 4096));
    if (sbrk(-(1 << 20)) != (void *)-1)
        CHECK(!fr_device_is_surely_host(top + 4096));
}

// A handler on a stack of its own, like a coroutine: its locals are host memory all the same.
static void use_signal_stack(int signal_number)
{
    char local[64] = {0};
    (void)signal_number;
    CHECK(kind_of(local, sizeof(local)) == FR_KIND_HOST);
}

static void test_signal_stack(void)
{
    stack_t stack = {.ss_sp = malloc(1 << 18), .ss_size = 1 << 18};
    struct sigaction action = {.sa_handler = use_signal_stack, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    free(stack.ss_sp);
}

static void test_kinds(void)
{
    enum { BYTES = 3 << 20 };
    for (int kind = FR_KIND_PINNED; kind < FR_KIND_COUNT; kind++) {
        struct driver_memory memory;
        if (!driver_allocate((enum fr_device_kind)kind, 0, BYTES, &memory))
            continue;
        const char *name = fr_device_kind_name(memory.kind);
        const struct {
            size_t offset, bytes;
        } parts[] = {{0, memory.bytes}, {0, 1}, {memory.bytes - 1, 1}, {12345, 100000}};
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            struct fr_device_range range =
                classify(memory.address + parts[i].offset, parts[i].bytes);
            CHECK(range.kind == memory.kind, "%s is %s", name, fr_device_kind_name(range.kind));
            if (driver_owns(&memory))
                CHECK(range.base == (uintptr_t)memory.address, "%s", name);
        }
        CHECK(!fr_device_is_surely_host(memory.address), "%s", name);
        CHECK(kind_of(memory.address, 0) == FR_KIND_HOST, "no byte of %s", name);
        driver_free(&memory);
        if (kind != FR_KIND_POOL)
            CHECK(kind_of(memory.address, 1) == FR_KIND_HOST, "freed %s", name);
    }
}

enum { GRAIN = 2 << 20 };

// Two allocations of different kinds side by side in one reserved range.
static void test_neighbours(void)
{
    CUdeviceptr base = 0;
    CUmemGenericAllocationHandle low, high;
    CU(cuMemAddressReserve(&base, 2 * GRAIN, 0, 0, 0));
    if (base == 0 || driver_map(0, 1, base, GRAIN, &low) != CUDA_SUCCESS ||
        driver_map(0, 0, base + GRAIN, GRAIN, &high) != CUDA_SUCCESS) {
        CHECK(false, "no two allocations side by side");
        return;
    }
    const char *border = (const char *)(uintptr_t)(base + GRAIN);
    struct fr_device_range range = classify(border - 10, 20);
    CHECK(range.kind == FR_KIND_VMM_FD && range.base == base);
    CHECK(kind_of(border - 10, 10) == FR_KIND_VMM_FD);
    CHECK(kind_of(border, 10) == FR_KIND_VMM);

    // Without the first one its half of the range is nobody's: the second end decides.
    CU(cuMemUnmap(base, GRAIN));
    CU(cuMemRelease(low));
    CHECK(kind_of(border - 5000, 5000) == FR_KIND_HOST);
    range = classify(border - 5000, 5001);
    CHECK(range.kind == FR_KIND_VMM && range.base <= base + GRAIN &&
          range.base + range.bytes > base + GRAIN);
    range = classify(border - 1, 2);
    CHECK(range.kind == FR_KIND_VMM);
    CU(cuMemUnmap(base + GRAIN, GRAIN));
    CU(cuMemRelease(high));
    CU(cuMemAddressFree(base, 2 * GRAIN));
}

// A range is fabric memory only if it is so at both ends.
static void test_fabric_neighbours(void)
{
    static const unsigned other_types[] = {8, 1};
    for (int order = 0; order < 2; order++) {
        for (int i = 0; i < 2; i++) {
            CUdeviceptr base = 0;
            CUmemGenericAllocationHandle low, high;
            CU(cuMemAddressReserve(&base, 2 * GRAIN, 0, 0, 0));
            CUresult first = driver_map(0, order ? other_types[i] : 8, base, GRAIN, &low);
            CUresult second = driver_map(0, order ? 8 : other_types[i], base + GRAIN, GRAIN, &high);
            if (first != CUDA_SUCCESS || second != CUDA_SUCCESS) {
                CHECK(!driver_is_simulated(), "no fabric memory");
                return;
            }
            const char *border = (const char *)(uintptr_t)(base + GRAIN);
            enum fr_device_kind whole = i == 0 ? FR_KIND_VMM_FABRIC : FR_KIND_VMM_FD;
            CHECK(kind_of(border - 5000, 10000) == whole, "order %d other %d", order, i);
            CHECK(kind_of(border - 5000, 5000) == (order ? whole : FR_KIND_VMM_FABRIC));
            CHECK(kind_of(border, 5000) == (order ? FR_KIND_VMM_FABRIC : whole));
            CU(cuMemUnmap(base, 2 * GRAIN));
            CU(cuMemRelease(low));
            CU(cuMemRelease(high));
            CU(cuMemAddressFree(base, 2 * GRAIN));
        }
    }
}

// The last byte of fabric memory is looked at, but asked no more than where it belongs to.
static void test_fabric_calls(void)
{
    struct driver_memory memory;
    frsim_calls_fn *calls = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver != NULL)
        *(void **)&calls = dlsym(driver, "frsim_calls");
    if (calls == NULL || !driver_allocate(FR_KIND_VMM_FABRIC, 0, GRAIN, &memory))
        return;
    unsigned long all = calls(NULL), accesses = calls("cuMemGetAccess");
    CHECK(kind_of(memory.address, GRAIN) == FR_KIND_VMM_FABRIC);
    all = calls(NULL) - all;
    accesses = calls("cuMemGetAccess") - accesses;
    CHECK(all == 4 && accesses == 1, "%lu calls, %lu about accesses", all, accesses);
    driver_free(&memory);
}

// One address that is one kind of device memory after another, and host memory in between.
static void test_change_of_owner(void)
{
    static const struct {
        unsigned handle_types;
        enum fr_device_kind kind;
    } owners[] = {{0, FR_KIND_VMM}, {1, FR_KIND_VMM_FD}, {0, FR_KIND_VMM}};
    CUdeviceptr base = 0;
    uint64_t last_id = 0;
    CU(cuMemAddressReserve(&base, GRAIN, 0, 0, 0));
    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
        CUmemGenericAllocationHandle handle;
        if (driver_map(0, owners[i].handle_types, base, GRAIN, &handle) != CUDA_SUCCESS)
            return;
        struct fr_device_range range = classify((void *)(uintptr_t)(base + 100), 1000);
        CHECK(range.kind == owners[i].kind && range.buffer_id != last_id);
        last_id = range.buffer_id;
        CU(cuMemUnmap(base, GRAIN));
        CU(cuMemRelease(handle));
        CHECK(kind_of((void *)(uintptr_t)(base + 100), 1000) == FR_KIND_HOST);
    }
    CU(cuMemAddressFree(base, GRAIN));
}

static void *classify_in_thread(void *cookie)
{
    const struct driver_memory *memory = cookie;
    for (int i = 0; i < 1000; i++) {
        CHECK(kind_of(memory->address + i, 100) == memory->kind);
        CHECK(kind_of(&i, sizeof(i)) == FR_KIND_HOST);
    }
    return NULL;
}

static void test_threads(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct driver_memory memory;
    unsigned started = 0;
    if (!driver_allocate(FR_KIND_MALLOC, 0, GRAIN, &memory))
        return;
    while (started < THREADS &&
           pthread_create(&threads[started], NULL, classify_in_thread, &memory) == 0)
        started++;
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    driver_free(&memory);
}

int main(void)
{
    check_plain_memory(false);
    test_signal_stack();
    if (!driver_load())
        return CHECK_SKIP;
    CUcontext context = NULL;
    check_plain_memory(true); // loaded, yet not initialised
    if (!driver_start(&context))
        return CHECK_SKIP;
    check_plain_memory(true);
    test_shrinking_break();
    test_signal_stack();
    test_kinds();
    test_neighbours();
    test_fabric_neighbours();
    test_fabric_calls();
    test_change_of_owner();
    test_threads();
    return check_result();
}
