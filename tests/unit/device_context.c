// SPDX-License-Identifier: BSD-3-Clause
// Contexts: the caller's stays as it was whatever the memory's; destroyed contexts whose address
// comes back; threads with and without a context at once; several devices; failing driver calls.
#include "config.h"

#include "failing.h"

#include <pthread.h>

enum { BYTES = 100000 };

// Copies a pattern to the memory and back through Fabrail. Returns the status of the first failure.
static enum fr_status round_trip(const struct driver_memory *memory, uint64_t seed)
{
    enum { GUARD = 64 };
    unsigned char *there = malloc(BYTES);
    unsigned char *back = malloc(GUARD + BYTES + GUARD);
    struct fr_device_range range;
    struct fr_device_batch batch;
    check_fill(there, BYTES, seed);
    memset(back, 0xee, GUARD + BYTES + GUARD);
    enum fr_status status = fr_device_query(memory->address, &range);
    struct fr_device_copy copy = {
        .dst = memory->address, .src = there, .bytes = BYTES, .n = {1, 1}};
    if (status == FR_OK) {
        // After a failed question, memory that the CPU cannot read is taken for VMM memory.
        bool guessed = range.kind == FR_KIND_VMM && range.base == 0;
        CHECK(range.kind == memory->kind || guessed, "%s", fr_device_kind_name(range.kind));
    }
    if (status == FR_OK) {
        fr_device_batch_begin(&batch);
        fr_device_batch_copy(&batch, &range, FR_FROM_STAGE, &copy);
        status = fr_device_batch_finish(&batch);
    }
    copy.dst = back + GUARD;
    copy.src = memory->address;
    if (status == FR_OK) {
        fr_device_batch_begin(&batch);
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
        status = fr_device_batch_finish(&batch);
    }
    if (status == FR_OK) {
        CHECK(check_first_difference(back + GUARD, BYTES, seed) == BYTES);
        for (size_t i = 0; i < GUARD; i++)
            CHECK(back[i] == 0xee && back[GUARD + BYTES + i] == 0xee);
    }
    free(there);
    free(back);
    return status;
}

static void check_current(CUcontext wanted, const char *where)
{
    CUcontext current = NULL;
    CU(cuCtxGetCurrent(&current));
    CHECK(current == wanted, "%s: %p is current, not %p", where, (void *)current, (void *)wanted);
}

// Every kind of memory, from a thread with the memory's context, with another and with none.
static void test_kept_current(CUcontext primary)
{
    CUcontext other = NULL;
    CU(cuCtxCreate_v2(&other, 0, 0));
    CU(cuCtxSetCurrent(NULL)); // takes it from the stack, where the primary one is below
    const CUcontext contexts[] = {primary, other, NULL};
    for (int kind = FR_KIND_MANAGED; kind < FR_KIND_COUNT; kind++) {
        struct driver_memory memory;
        CU(cuCtxSetCurrent(primary));
        if (!driver_allocate((enum fr_device_kind)kind, 0, BYTES, &memory))
            continue;
        for (size_t i = 0; i < FR_ARRAY_LENGTH(contexts); i++) {
            CU(cuCtxSetCurrent(contexts[i]));
            CHECK(round_trip(&memory, i) == FR_OK, "%s", fr_device_kind_name(memory.kind));
            check_current(contexts[i], fr_device_kind_name(memory.kind));
        }
        CU(cuCtxSetCurrent(primary));
        driver_free(&memory);
    }
    CU(cuCtxDestroy_v2(other));
    CU(cuCtxSetCurrent(primary));
}

// Streams cached for a destroyed context must not be used for its successor, which often gets the
// same address, nor be destroyed once more.
static void test_destroyed(CUcontext primary)
{
    CUcontext last = NULL;
    unsigned reused = 0;
    for (int i = 0; i < 6; i++) {
        CUcontext context = NULL;
        struct driver_memory memory;
        CU(cuCtxCreate_v2(&context, 0, 0));
        reused += context == last;
        last = context;
        if (!driver_allocate(FR_KIND_MALLOC, 0, BYTES, &memory))
            return;
        CHECK(round_trip(&memory, 7) == FR_OK);
        CHECK(round_trip(&memory, 8) == FR_OK);
        CU(cuCtxDestroy_v2(context));
        if (i == 2)
            fr_device_release();
    }
    printf("%u contexts at an address used before\n", reused);
    CU(cuCtxSetCurrent(primary));
    fr_device_release();
    check_current(primary, "main");
}

struct worker {
    pthread_t thread;
    CUcontext context; // NULL: works without
    const struct driver_memory *memory;
    uint64_t seed;
};

static void *work(void *cookie)
{
    const struct worker *worker = cookie;
    CU(cuCtxSetCurrent(worker->context));
    for (unsigned i = 0; i < 50; i++)
        CHECK(round_trip(worker->memory, worker->seed + i) == FR_OK);
    check_current(worker->context, "worker");
    return NULL;
}

static void test_threads(CUcontext primary)
{
    enum { WORKERS = 8 };
    struct worker workers[WORKERS];
    struct driver_memory memories[WORKERS];
    unsigned started = 0;
    for (unsigned i = 0; i < WORKERS; i++) {
        static const enum fr_device_kind kinds[] = {FR_KIND_MALLOC, FR_KIND_POOL, FR_KIND_VMM_FD,
                                                    FR_KIND_MANAGED};
        if (!driver_allocate(kinds[i % 4], 0, BYTES, &memories[i]))
            break;
        workers[i] = (struct worker){
            .context = i % 2 ? primary : NULL, .memory = &memories[i], .seed = 1000 * i};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            break;
        started++;
    }
    CHECK(started == WORKERS);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        driver_free(&memories[i]);
    }
}

// One batch over the memory of more devices than it has streams; memory of a device other than the
// current one; a device whose primary context only Fabrail uses.
static void test_devices(CUcontext primary)
{
    enum { MAX = 8 };
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        printf("only one device\n");
        return;
    }
    count = count < MAX ? count : MAX;
    struct driver_memory memories[MAX];
    static unsigned char host[MAX][BYTES];
    struct fr_device_batch batch;
    for (int i = 0; i < count; i++) {
        if (!driver_allocate(FR_KIND_VMM_FD, i, BYTES, &memories[i]))
            return;
        CHECK(round_trip(&memories[i], 50 + (uint64_t)i) == FR_OK, "device %d", i);
        check_current(primary, "main");
    }
    fr_device_batch_begin(&batch);
    for (int pass = 0; pass < 2; pass++) { // up, then down
        for (int i = 0; i < count; i++) {
            struct fr_device_range range;
            CHECK(fr_device_query(memories[i].address, &range) == FR_OK && range.device == i);
            struct fr_device_copy copy = {.bytes = BYTES, .n = {1, 1}};
            copy.dst = pass ? (void *)host[i] : memories[i].address;
            copy.src = pass ? (void *)memories[i].address : host[i];
            if (pass == 0)
                check_fill(host[i], BYTES, (uint64_t)i);
            else
                memset(host[i], 0, BYTES);
            fr_device_batch_copy(&batch, &range, pass ? FR_TO_STAGE : FR_FROM_STAGE, &copy);
        }
        CHECK(fr_device_batch_finish(&batch) == FR_OK);
        fr_device_batch_begin(&batch);
    }
    for (int i = 0; i < count; i++) {
        CHECK(check_first_difference(host[i], BYTES, (uint64_t)i) == BYTES, "device %d", i);
        driver_free(&memories[i]);
    }
    fr_device_release();
    check_current(primary, "main");
}

// Once a batch is finished, well or not, no copy writes to the staging memory any more, which goes
// to somebody else. Only to pinned memory are copies late.
static enum fr_status finish_for_good(const struct driver_memory *memory,
                                      const struct driver_memory *stage)
{
    static unsigned char seen[BYTES];
    struct fr_device_range range;
    struct fr_device_batch batch;
    memset(stage->address, 0x11, BYTES);
    enum fr_status status = fr_device_query(memory->address, &range);
    if (status != FR_OK)
        return status;
    struct fr_device_copy copy = {
        .dst = stage->address, .src = memory->address, .bytes = BYTES, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
    status = fr_device_batch_finish(&batch);
    memcpy(seen, stage->address, BYTES);
    (void)cu.cuCtxSynchronize();
    CHECK(memcmp(seen, stage->address, BYTES) == 0, "written to after the end");
    return status;
}

// In a process in which a call of the driver fails: nothing crashes or hangs, what is
// said to have arrived has, the context is as before, and the next try succeeds.
static int fail_one_call(const void *cookie)
{
    (void)cookie;
    CUcontext context = NULL, current = NULL;
    CUdeviceptr address = 0;
    void *pinned = NULL;
    if (!driver_load() || cu.cuInit(0) != CUDA_SUCCESS ||
        cu.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cu.cuMemAlloc_v2(&address, BYTES) != CUDA_SUCCESS ||
        cu.cuMemHostAlloc(&pinned, BYTES, 0) != CUDA_SUCCESS)
        return CHECK_SKIP;
    struct driver_memory memory = {.kind = FR_KIND_MALLOC, .bytes = BYTES};
    memory.address = (char *)(uintptr_t)address;
    const struct driver_memory stage = {.kind = FR_KIND_PINNED, .address = pinned, .bytes = BYTES};
    unsigned failed = 0;
    for (unsigned round = 0; round < 4; round++) {
        failed += round_trip(&memory, round) != FR_OK;
        failed += finish_for_good(&memory, &stage) != FR_OK;
        CHECK(cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == context);
    }
    CHECK(failed <= 1, "%u rounds failed for one call", failed);
    fr_device_release();
    if (check_result() != CHECK_PASS)
        return CHECK_FAIL;
    return failed ? FAILING_REPORTED : CHECK_PASS;
}

// Memory that is no context's outlives a reset of its device, after which nobody but Fabrail may
// want the primary context.
static void test_reset(CUcontext *primary)
{
    struct driver_memory memory;
    unsigned flags = 0;
    int active = 1;
    if (!driver_is_simulated() || !driver_allocate(FR_KIND_VMM_FD, 0, BYTES, &memory))
        return; // other drivers may not stand it
    CU(cuCtxSetCurrent(NULL));
    CHECK(round_trip(&memory, 3) == FR_OK);
    CU(cuDevicePrimaryCtxReset_v2(0));
    CHECK(round_trip(&memory, 4) == FR_OK);
    CHECK(round_trip(&memory, 5) == FR_OK);
    CU(cuDevicePrimaryCtxRelease_v2(0)); // the test's own
    fr_device_release();
    CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active, "each reference is given back");
    CU(cuDevicePrimaryCtxRetain(primary, 0));
    CU(cuCtxSetCurrent(*primary));
    driver_free(&memory);
}

int main(void)
{
    CUcontext primary = NULL;
    failing_each(60, 8, fail_one_call, NULL);
    if (!driver_load() || !driver_start(&primary))
        return CHECK_SKIP;
    test_kept_current(primary);
    test_destroyed(primary);
    test_threads(primary);
    test_devices(primary);
    test_reset(&primary);
    return check_result();
}
