// SPDX-License-Identifier: BSD-3-Clause
// Cases of the simulated driver: work that waits, and what makes it run; contexts and threads.
#include "config.h"

#include "test.h"

#include <pthread.h>

#define BYTES 5000

// A device buffer with known bytes, and page-locked memory that does not have them yet.
struct scene {
    CUcontext ctx;
    CUstream blocking, free; // free: CU_STREAM_NON_BLOCKING
    CUdeviceptr device;
    unsigned char *pinned;
};

static void make_scene(struct scene *scene)
{
    void *pinned;
    scene->ctx = test_begin(0);
    OK(cu.cuStreamCreate(&scene->blocking, CU_STREAM_DEFAULT));
    OK(cu.cuStreamCreate(&scene->free, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemAlloc(&scene->device, BYTES));
    test_put(scene->device, BYTES, 1);
    OK(cu.cuMemHostAlloc(&pinned, BYTES, 0));
    scene->pinned = pinned;
    memset(pinned, 0, BYTES);
}

static bool arrived(const struct scene *scene)
{
    return check_first_difference(scene->pinned, BYTES, 1) == BYTES;
}

// Queues a copy to page-locked memory, and checks that it has not been done.
static void queue_copy(const struct scene *scene, CUstream stream)
{
    memset(scene->pinned, 0, BYTES);
    OK(cu.cuMemcpyDtoHAsync(scene->pinned, scene->device, BYTES, stream));
    CHECK(!arrived(scene), "the copy was not late");
}

static void run_lazy(void)
{
    struct scene scene;
    static unsigned char byte[1];
    make_scene(&scene);
    queue_copy(&scene, scene.free);
    OK(cu.cuStreamSynchronize(scene.blocking));
    OK(cu.cuStreamSynchronize(NULL));
    OK(cu.cuMemcpyDtoH(byte, scene.device, 1));
    CHECK(!arrived(&scene), "a stream that was not waited for has run");
    OK(cu.cuStreamSynchronize(scene.free));
    CHECK(arrived(&scene), "waiting for the stream");
    queue_copy(&scene, scene.free);
    OK(cu.cuCtxSynchronize());
    CHECK(arrived(&scene), "waiting for the context");
    queue_copy(&scene, scene.free);
    EXPECT(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(scene.free));
    OK(cu.cuStreamQuery(scene.free));
    CHECK(arrived(&scene), "asking the stream");
    queue_copy(&scene, scene.free);
    OK(cu.cuStreamDestroy(scene.free));
    CHECK(arrived(&scene), "destroying the stream");
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(scene.free));
    queue_copy(&scene, scene.blocking);
    OK(cu.cuMemFree(scene.device));
    CHECK(arrived(&scene), "freeing the memory");
}

static void run_eager(void)
{
    struct scene scene;
    make_scene(&scene);
    OK(cu.cuMemcpyDtoHAsync(scene.pinned, scene.device, BYTES, scene.free));
    CHECK(arrived(&scene), "eager means at once");
    OK(cu.cuStreamQuery(scene.free));
}

static void run_null_stream(void)
{
    struct scene scene;
    unsigned char byte;
    make_scene(&scene);
    // A synchronous copy is in the null stream: it waits for blocking streams, no others.
    queue_copy(&scene, scene.blocking);
    OK(cu.cuMemcpyDtoH(&byte, scene.device, 1));
    CHECK(arrived(&scene), "the null stream must wait for a blocking stream");
    queue_copy(&scene, scene.blocking);
    OK(cu.cuStreamSynchronize(NULL));
    CHECK(arrived(&scene), "so must waiting for the null stream");
    // Blocking streams wait for the null stream.
    queue_copy(&scene, NULL);
    OK(cu.cuStreamSynchronize(scene.blocking));
    CHECK(!arrived(&scene), "nothing was in the blocking stream");
    OK(cu.cuMemsetD8Async(scene.device, 1, 1, scene.blocking));
    OK(cu.cuStreamSynchronize(scene.blocking));
    CHECK(arrived(&scene), "a blocking stream must wait for the null stream");
    // Per-thread default streams are blocking ones.
    test_put(scene.device, BYTES, 1);
    queue_copy(&scene, CU_STREAM_PER_THREAD);
    OK(cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    CHECK(arrived(&scene), "the null stream must wait for a thread's stream");
}

// Copies inside the device are late even when synchronous. Work that follows in order sees them.
static void run_device_copies(void)
{
    struct scene scene;
    CUdeviceptr other;
    make_scene(&scene);
    OK(cu.cuMemAlloc(&other, BYTES));
    OK(cu.cuMemsetD8(other, 0, BYTES));
    OK(cu.cuMemcpyDtoD(other, scene.device, BYTES));
    OK(cu.cuMemcpyDtoHAsync(scene.pinned, other, BYTES, scene.free));
    OK(cu.cuStreamSynchronize(scene.free));
    CHECK(!arrived(&scene), "an unordered stream saw the copy");
    CHECK(test_holds(other, BYTES, 1), "an ordered one did not");
}

static void run_events(void)
{
    struct scene scene;
    CUevent event, untimed;
    float time = -1;
    make_scene(&scene);
    OK(cu.cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cu.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cu.cuEventQuery(event));
    OK(cu.cuEventRecord(event, scene.free));
    OK(cu.cuEventSynchronize(event));
    queue_copy(&scene, scene.free);
    OK(cu.cuEventQuery(event)); // the recording was before the copy
    OK(cu.cuEventRecord(untimed, scene.free));
    EXPECT(CUDA_ERROR_NOT_READY, cu.cuEventQuery(untimed));
    OK(cu.cuEventSynchronize(untimed));
    CHECK(arrived(&scene), "waiting for an event");
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime(&time, event, untimed));
    OK(cu.cuEventElapsedTime(&time, event, event));
    CHECK(time == 0, "%f", (double)time);
    // One stream waits for another: running the second runs the first, up to the event only.
    CUstream second;
    unsigned char *late = scene.pinned + BYTES - 1;
    OK(cu.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    memset(scene.pinned, 0, BYTES);
    OK(cu.cuMemcpyDtoHAsync(scene.pinned, scene.device, BYTES - 1, scene.free));
    OK(cu.cuEventRecord(event, scene.free));
    OK(cu.cuMemcpyDtoHAsync(late, scene.device + BYTES - 1, 1, scene.free));
    OK(cu.cuStreamWaitEvent(second, event, 0));
    *late = 0x5a;
    OK(cu.cuEventRecord(event, scene.blocking)); // a later recording changes nothing for `second`
    OK(cu.cuStreamSynchronize(second));
    CHECK(check_first_difference(scene.pinned, BYTES - 1, 1) == BYTES - 1, "before the event");
    CHECK(*late == 0x5a, "after the event");
    OK(cu.cuEventDestroy(event));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(event, scene.free));
    OK(cu.cuStreamSynchronize(scene.free));
    CHECK(arrived(&scene), "the rest");
}

static void run_sources(void)
{
    enum { SMALL = 64 << 10, LARGE = SMALL + 1 };
    static unsigned char pageable[LARGE];
    struct scene scene;
    CUdeviceptr device;
    make_scene(&scene);
    OK(cu.cuMemAlloc(&device, LARGE));
    // Page-locked memory is read when the copy runs.
    check_fill(scene.pinned, BYTES, 2);
    OK(cu.cuMemcpyHtoDAsync(device, scene.pinned, BYTES, scene.free));
    check_fill(scene.pinned, BYTES, 3);
    OK(cu.cuStreamSynchronize(scene.free));
    CHECK(test_holds(device, BYTES, 3), "a pinned source was read early");
    // Pageable memory may change as soon as the call has returned.
    for (size_t bytes = SMALL; bytes <= LARGE; bytes++) {
        check_fill(pageable, bytes, 4);
        OK(cu.cuMemcpyHtoDAsync(device, pageable, bytes, scene.free));
        memset(pageable, 0, bytes);
        CHECK(test_holds(device, bytes, 4) == (bytes == LARGE), "%zu bytes", bytes);
        OK(cu.cuStreamSynchronize(scene.free));
        CHECK(test_holds(device, bytes, 4), "%zu bytes", bytes);
    }
    // Pageable memory has the bytes when a copy to it has returned.
    OK(cu.cuMemcpyDtoHAsync(pageable, device, LARGE, scene.free));
    CHECK(check_first_difference(pageable, LARGE, 4) == LARGE, "to pageable memory");
}

static void note(void *argument)
{
    // The driver may not be called from here.
    *(CUresult *)argument = cu.cuCtxSynchronize();
}

static void run_host_functions(void)
{
    struct scene scene;
    CUresult result = CUDA_SUCCESS;
    make_scene(&scene);
    OK(cu.cuLaunchHostFunc(scene.free, note, &result));
    CHECK(result == CUDA_SUCCESS, "called early");
    OK(cu.cuStreamSynchronize(scene.free));
    CHECK(result == CUDA_ERROR_NOT_PERMITTED, "gave %d", (int)result);
}

// A stream is held until the host writes a word. Others go on, and a query never waits.
static void run_held(void)
{
    struct scene scene;
    CUdeviceptr address;
    uint32_t *word;
    make_scene(&scene);
    OK(cu.cuMemHostAlloc((void **)&word, sizeof(*word), 0));
    address = (CUdeviceptr)(uintptr_t)word;
    *word = 1;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuStreamWaitValue32(scene.free, scene.device, 2, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cu.cuStreamWaitValue32(scene.free, address, 2, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cu.cuMemcpyDtoHAsync(scene.pinned, scene.device, BYTES, scene.free));
    for (int i = 0; i < 10; i++)
        EXPECT(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(scene.free));
    OK(cu.cuStreamSynchronize(NULL));
    CHECK(!arrived(&scene), "the stream was held");
    *word = 2;
    OK(cu.cuStreamSynchronize(scene.free));
    CHECK(arrived(&scene), "the stream was let go");
    OK(cu.cuMemFreeHost(word));
}

// A stream writes a word behind the work before it.
static void run_told(void)
{
    struct scene scene;
    uint64_t *word;
    make_scene(&scene);
    OK(cu.cuMemHostAlloc((void **)&word, sizeof(*word), 0));
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)word;
    *word = 1;
    OK(cu.cuMemcpyDtoHAsync(scene.pinned, scene.device, BYTES, scene.free));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64(scene.free, scene.device, 2, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64(scene.free, address + 4, 2, 0));
    OK(cu.cuStreamWriteValue64(scene.free, address, UINT64_MAX - 1, 0));
    CHECK(*word == 1 && !arrived(&scene), "work is late");
    EXPECT(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(scene.free));
    CHECK(*word == UINT64_MAX - 1 && arrived(&scene), "the word comes with the copy");
    OK(cu.cuMemFreeHost(word));
}

static void run_late_free(void)
{
    struct scene scene;
    CUdeviceptr first, second;
    uint64_t id = 0;
    make_scene(&scene);
    OK(cu.cuMemAllocAsync(&first, BYTES, scene.free));
    OK(cu.cuMemcpyDtoDAsync(first, scene.device, BYTES, scene.free));
    OK(cu.cuMemcpyDtoHAsync(scene.pinned, first, BYTES, scene.free));
    OK(cu.cuMemFreeAsync(first, scene.free));
    CHECK(!arrived(&scene), "not late");
    // From the call on, only the work ahead of the free may use the memory.
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, first));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD(scene.device, first, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(first, scene.free));
    OK(cu.cuMemAllocAsync(&second, BYTES, scene.free));
    CHECK(second == first, "freed memory of a stream comes back to it");
    CHECK(arrived(&scene), "the free must have run, and all before it");
    // The end of a context runs queued work. Registered memory outlives the context, allocated
    // page-locked memory does not.
    static unsigned char kept[BYTES];
    CUcontext own;
    CUdeviceptr owned;
    OK(cu.cuMemHostRegister(kept, BYTES, 0));
    OK(cu.cuCtxCreate(&own, NULL, 0, 0));
    OK(cu.cuMemAlloc(&owned, BYTES));
    test_put(owned, BYTES, 4);
    OK(cu.cuCtxSetCurrent(scene.ctx));
    OK(cu.cuMemcpyDtoHAsync(kept, owned, BYTES, scene.free));
    OK(cu.cuCtxDestroy(own));
    CHECK(check_first_difference(kept, BYTES, 4) == BYTES, "the memory went before the copy");
    OK(cu.cuMemcpyDtoHAsync(kept, scene.device, BYTES, scene.free));
    CHECK(check_first_difference(kept, BYTES, 1) != BYTES, "not late");
    OK(cu.cuDevicePrimaryCtxReset(0));
    CHECK(check_first_difference(kept, BYTES, 1) == BYTES, "dropped with the context");
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, scene.device));
}

static void run_contexts(void)
{
    CUcontext primary = NULL, own, other, seen = NULL;
    unsigned flags = 0;
    int active = 1;
    CUdevice device = -1;
    unsigned long long id = 0, other_id = 0;
    CUdeviceptr address;
    OK(cu.cuInit(0));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAlloc(&address, 16));
    OK(cu.cuDevicePrimaryCtxGetState(2, &flags, &active));
    CHECK(active == 0, "active before the first retain");
    OK(cu.cuDevicePrimaryCtxRetain(&primary, 2));
    OK(cu.cuCtxGetCurrent(&seen));
    CHECK(seen == NULL, "retain makes nothing current");
    OK(cu.cuCtxCreate(&own, NULL, 0, 1));
    OK(cu.cuCtxPushCurrent(primary));
    OK(cu.cuCtxGetDevice(&device));
    CHECK(device == 2, "%d", device);
    OK(cu.cuCtxGetId(NULL, &id));
    OK(cu.cuCtxGetId(own, &other_id));
    CHECK(id != other_id, "ids are unique");
    EXPECT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu.cuCtxEnablePeerAccess(primary, 0));
    OK(cu.cuCtxEnablePeerAccess(own, 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu.cuCtxEnablePeerAccess(own, 0));
    OK(cu.cuCtxPopCurrent(&other));
    CHECK(other == primary, "popped another one");
    OK(cu.cuMemAlloc(&address, 16));
    OK(cu.cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    CHECK(seen == own, "allocated in another context");
    OK(cu.cuCtxPushCurrent(primary));
    OK(cu.cuCtxDestroy(own));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree(address)); // went with its context
    OK(cu.cuCtxPopCurrent(&other));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuMemAlloc(&address, 16));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxDestroy(primary));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuCtxDestroy(own));
    OK(cu.cuCtxPopCurrent(&other));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent(&other));
    OK(cu.cuDevicePrimaryCtxRelease(2));
    OK(cu.cuDevicePrimaryCtxGetState(2, &flags, &active));
    CHECK(active == 0, "active after the last release");
}

struct worker {
    unsigned number;
    CUdeviceptr device, shared;
};

// Runs in a thread of its own, first without a context, then in one of two.
static void *work(void *argument)
{
    struct worker *worker = argument;
    CUcontext ctx = NULL, seen = NULL;
    CUstream stream;
    void *pinned;
    OK(cu.cuCtxGetCurrent(&seen));
    CHECK(seen == NULL, "a new thread has a context");
    OK(cu.cuDevicePrimaryCtxRetain(&ctx, (int)worker->number % 2));
    OK(cu.cuCtxSetCurrent(ctx));
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemHostAlloc(&pinned, BYTES, 0));
    for (unsigned round = 0; round < 50; round++) {
        CUdeviceptr device;
        uint64_t seed = worker->number * 1000 + round, id = 0;
        OK(cu.cuMemAlloc(&device, BYTES));
        check_fill(pinned, BYTES, seed);
        OK(cu.cuMemcpyHtoDAsync(device, pinned, BYTES, stream));
        OK(cu.cuStreamSynchronize(stream));
        OK(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, worker->shared));
        OK(cu.cuMemsetD8Async(worker->shared + worker->number, 1, 1, NULL));
        memset(pinned, 0, BYTES);
        OK(cu.cuMemcpyDtoHAsync(pinned, device, BYTES, CU_STREAM_PER_THREAD));
        OK(cu.cuStreamSynchronize(CU_STREAM_PER_THREAD));
        CHECK(check_first_difference(pinned, BYTES, seed) == BYTES, "round %u", round);
        OK(cu.cuMemFree(device));
    }
    OK(cu.cuMemFreeHost(pinned));
    OK(cu.cuStreamDestroy(stream));
    OK(cu.cuDevicePrimaryCtxRelease((int)worker->number % 2));
    return NULL;
}

static void run_threads(void)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    CUcontext other = NULL;
    CUdeviceptr shared;
    CUcontext ctx = test_begin(0);
    OK(cu.cuDevicePrimaryCtxRetain(&other, 1));
    OK(cu.cuCtxSetCurrent(other));
    OK(cu.cuCtxEnablePeerAccess(ctx, 0));
    OK(cu.cuCtxSetCurrent(ctx));
    OK(cu.cuMemAlloc(&shared, THREADS));
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .shared = shared};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(cu.cuCtxSynchronize());
}

const struct test_case test_async_cases[] = {
    {"lazy", {NULL}, run_lazy},
    {"eager", {"FRSIM_ASYNC=eager"}, run_eager},
    {"null-stream", {NULL}, run_null_stream},
    {"device-copies", {NULL}, run_device_copies},
    {"events", {NULL}, run_events},
    {"sources", {NULL}, run_sources},
    {"host-functions", {NULL}, run_host_functions},
    {"held", {NULL}, run_held},
    {"told", {NULL}, run_told},
    {"late-free", {NULL}, run_late_free},
    {"contexts", {NULL}, run_contexts},
    {"threads", {NULL}, run_threads},
    {"threads-eager", {"FRSIM_ASYNC=eager"}, run_threads},
    {NULL, {NULL}, NULL},
};
