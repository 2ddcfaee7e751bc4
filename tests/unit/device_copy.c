// SPDX-License-Identifier: BSD-3-Clause
// Copies of every shape, direction and kind of memory against a byte-wise reference. The whole of
// the destination is compared, so a byte beside the copy counts as well.
#include "config.h"

#include "../sim/calls.h"
#include "driver.h"

#include <dlfcn.h>

enum { SPACE = 64 * 1024, GUARD = 64 };

static unsigned char host_bytes[GUARD + SPACE + GUARD];
static unsigned char device_mirror[SPACE];
static unsigned char expected[GUARD + SPACE + GUARD];
static unsigned char read_back[SPACE];

// One side of a copy: where the first row starts and how it goes on.
struct side {
    ptrdiff_t stride[2];
    ptrdiff_t origin;
};

struct shape {
    size_t bytes;
    size_t n[2];
    struct side dst, src;
};

// Sanitizers watch each byte that is compared here.
static bool is_light(void)
{
    const char *scope = getenv("FR_TEST_SCOPE");
    return scope != NULL && strcmp(scope, "light") == 0;
}

static ptrdiff_t pick(uint64_t *state, ptrdiff_t low, ptrdiff_t high)
{
    return low + (ptrdiff_t)(check_random(state) % (uint64_t)(high - low + 1));
}

// Places a side in the middle of its space. Returns false if it does not fit.
static bool place(const struct shape *shape, struct side *side, uint64_t *state)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)shape->bytes;
    for (int i = 0; i < 2; i++) {
        ptrdiff_t reach = (ptrdiff_t)(shape->n[i] - 1) * side->stride[i];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    if (high - low > SPACE)
        return false;
    side->origin = pick(state, 0, SPACE - (high - low)) - low;
    return true;
}

// Strides whose rows do not overlap, rows inside planes or planes inside rows, at times backwards.
static void pick_apart(const struct shape *shape, struct side *side, uint64_t *state)
{
    int inner = pick(state, 0, 3) > 0 ? 0 : 1;
    ptrdiff_t gap = pick(state, 0, 2) > 0 ? pick(state, 0, 40) : 0;
    ptrdiff_t first = (ptrdiff_t)shape->bytes + gap;
    ptrdiff_t whole = first * (ptrdiff_t)shape->n[inner];
    ptrdiff_t rows = pick(state, 0, 2); // extra rows between planes, at times not a whole number
    side->stride[inner] = first;
    side->stride[!inner] = whole + rows * first + (pick(state, 0, 3) == 0 ? pick(state, 0, 20) : 0);
    for (int i = 0; i < 2; i++) {
        if (pick(state, 0, 5) == 0)
            side->stride[i] = -side->stride[i];
    }
}

static bool pick_shape(struct shape *shape, uint64_t *state)
{
    shape->bytes = (size_t)pick(state, 1, pick(state, 0, 4) == 0 ? 3000 : 40);
    shape->n[0] = (size_t)pick(state, 1, 9);
    shape->n[1] = (size_t)pick(state, 1, 6);
    pick_apart(shape, &shape->dst, state);
    pick_apart(shape, &shape->src, state);
    if (pick(state, 0, 3) == 0) // both sides alike, as a message of one type is
        memcpy(shape->src.stride, shape->dst.stride, sizeof(shape->src.stride));
    if (pick(state, 0, 7) == 0) // rows that are sent more than once
        shape->src.stride[pick(state, 0, 1)] = pick(state, -3, 3);
    return place(shape, &shape->dst, state) && place(shape, &shape->src, state);
}

static void copy_by_bytes(unsigned char *dst, const unsigned char *src, const struct shape *shape)
{
    for (size_t j = 0; j < shape->n[1]; j++) {
        for (size_t i = 0; i < shape->n[0]; i++) {
            ptrdiff_t to = shape->dst.origin + (ptrdiff_t)i * shape->dst.stride[0] +
                           (ptrdiff_t)j * shape->dst.stride[1];
            ptrdiff_t from = shape->src.origin + (ptrdiff_t)i * shape->src.stride[0] +
                             (ptrdiff_t)j * shape->src.stride[1];
            memcpy(dst + to, src + from, shape->bytes);
        }
    }
}

static struct fr_device_copy as_copy(const struct shape *shape, void *dst, const void *src)
{
    return (struct fr_device_copy){
        .dst = (char *)dst + shape->dst.origin,
        .src = (const char *)src + shape->src.origin,
        .bytes = shape->bytes,
        .n = {shape->n[0], shape->n[1]},
        .dst_stride = {shape->dst.stride[0], shape->dst.stride[1]},
        .src_stride = {shape->src.stride[0], shape->src.stride[1]},
    };
}

static size_t first_difference(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && a[i] == b[i])
        i++;
    return i;
}

static void check_bytes(const unsigned char *got, size_t bytes, const struct shape *shape,
                        const char *what)
{
    size_t at = first_difference(got, expected, bytes);
    CHECK(at == bytes,
          "%s: byte %zu of %zu rows of %zu x %zu bytes, strides %td %td to %td %td differs", what,
          at, shape->n[1], shape->n[0], shape->bytes, shape->src.stride[0], shape->src.stride[1],
          shape->dst.stride[0], shape->dst.stride[1]);
}

// Fills both sides anew, copies one shape each way, compares all of both.
static void run_shape(const struct driver_memory *memory, const struct fr_device_range *range,
                      const struct shape *shape, uint64_t seed)
{
    struct fr_device_batch batch;
    unsigned char *host = host_bytes + GUARD;
    check_fill(host_bytes, sizeof(host_bytes), seed);
    check_fill(device_mirror, SPACE, seed + 1);
    driver_write(memory, device_mirror, SPACE);

    memcpy(expected, host_bytes, sizeof(expected));
    copy_by_bytes(expected + GUARD, device_mirror, shape);
    struct fr_device_copy copy = as_copy(shape, host, memory->address);
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, FR_TO_STAGE, &copy);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    check_bytes(host_bytes, sizeof(host_bytes), shape, "to host");

    memcpy(expected, device_mirror, SPACE);
    copy_by_bytes(expected, host, shape);
    copy = as_copy(shape, memory->address, host);
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, FR_FROM_STAGE, &copy);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    driver_read(read_back, memory, SPACE);
    check_bytes(read_back, SPACE, shape, "to device");
}

static void test_shapes(const struct driver_memory *memory, unsigned count)
{
    struct fr_device_range range;
    uint64_t state = 1000 + (uint64_t)memory->kind;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    CHECK(range.kind == memory->kind);
    for (unsigned i = 0; i < count;) {
        struct shape shape;
        if (!pick_shape(&shape, &state))
            continue;
        run_shape(memory, &range, &shape, check_random(&state));
        i++;
    }
}

// Shapes that random ones seldom meet.
static void test_edges(const struct driver_memory *memory)
{
    static const struct shape shapes[] = {
        {1, {1, 1}, {{0, 0}, 0}, {{0, 0}, 0}},
        {SPACE, {1, 1}, {{0, 0}, 0}, {{0, 0}, 0}},
        {16, {SPACE / 16, 1}, {{16, 0}, 0}, {{16, 0}, 0}},
        {16, {1, SPACE / 16}, {{0, 16}, 0}, {{0, 16}, 0}},
        {16, {64, 64}, {{16, 1024}, 0}, {{16, 1024}, 0}},
        {16, {64, 64}, {{-16, -1024}, SPACE - 16}, {{-16, -1024}, SPACE - 16}},
        {16, {64, 64}, {{16, 1024}, 0}, {{-16, -1024}, SPACE - 16}},
        {4, {64, 64}, {{4, 256}, 0}, {{16, 1024}, 0}},
        {4, {64, 64}, {{4, 256}, 0}, {{256, 4}, 0}},
        {8, {10, 1}, {{8, 0}, 0}, {{0, 0}, 128}},
        {8, {3, 4}, {{8, 24}, 0}, {{100, 150}, 0}},
    };
    struct fr_device_range range;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        run_shape(memory, &range, &shapes[i], i);
}

// Nothing to copy copies nothing; an empty batch finishes; one batch takes both directions.
static void test_batches(const struct driver_memory *memory)
{
    enum { PIECES = 64, PIECE = SPACE / PIECES / 2 };
    struct fr_device_range range;
    struct fr_device_batch batch;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    fr_device_batch_begin(&batch);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);

    unsigned char *host = host_bytes + GUARD;
    check_fill(host_bytes, sizeof(host_bytes), 5);
    check_fill(device_mirror, SPACE, 6);
    driver_write(memory, device_mirror, SPACE);
    memcpy(expected, host_bytes, sizeof(expected));
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < PIECES; i++) { // even pieces go down, odd ones up
        size_t offset = i * 2 * PIECE;
        struct fr_device_copy copy = {.bytes = PIECE, .n = {1, 1}};
        struct fr_device_copy nothing = {.dst = host, .src = memory->address, .n = {1, 1}};
        bool down = i % 2 == 0;
        copy.dst = down ? (char *)host + offset : memory->address + offset;
        copy.src = down ? memory->address + offset : (char *)host + offset;
        if (down)
            memcpy(expected + GUARD + offset, device_mirror + offset, PIECE);
        else
            memcpy(device_mirror + offset, host + offset, PIECE);
        fr_device_batch_copy(&batch, &range, down ? FR_TO_STAGE : FR_FROM_STAGE, &copy);
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &nothing);
    }
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    CHECK(first_difference(host_bytes, expected, sizeof(host_bytes)) == sizeof(host_bytes));
    driver_read(read_back, memory, SPACE);
    CHECK(first_difference(read_back, device_mirror, SPACE) == SPACE);
}

// Marks behind each of many copies are reached in their order, each with all the bytes before it in
// place; a failure reaches all.
static void test_marks(const struct driver_memory *memory)
{
    enum { PIECES = 32, PIECE = SPACE / PIECES };
    struct fr_device_range range;
    struct fr_device_batch batch;
    unsigned char *host = aligned_alloc(4096, SPACE); // page-locked, or copies would not be late
    unsigned set = 0, waits = 0;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    CHECK(host != NULL && fr_device_host_register(host, SPACE) == FR_OK);
    check_fill(device_mirror, SPACE, 7);
    driver_write(memory, device_mirror, SPACE);
    memset(host, 0, SPACE);
    fr_device_batch_begin(&batch);
    CHECK(fr_device_batch_has_reached(&batch, 3), "a mark that was never set");
    for (unsigned reached = 0; reached < PIECES;) {
        for (; set < PIECES && set - reached < FR_DEVICE_MARKS; set++) {
            const struct fr_device_copy copy = {.dst = host + (size_t)set * PIECE,
                                                .src = memory->address + (size_t)set * PIECE,
                                                .bytes = PIECE,
                                                .n = {1, 1}};
            fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
            fr_device_batch_mark(&batch, set % FR_DEVICE_MARKS);
        }
        if (!fr_device_batch_has_reached(&batch, reached % FR_DEVICE_MARKS)) {
            waits++;
            continue;
        }
        reached++;
        CHECK(memcmp(host, device_mirror, (size_t)reached * PIECE) == 0, "before mark %u", reached);
    }
    CHECK(batch.status == FR_OK && fr_device_batch_finish(&batch) == FR_OK);
    CHECK(memcmp(host, device_mirror, SPACE) == 0);
    printf("%s: %u waits\n", fr_device_kind_name(memory->kind), waits);

    fr_device_batch_begin(&batch);
    const struct fr_device_copy wrong = {.dst = host, .src = NULL, .bytes = PIECE, .n = {1, 1}};
    if (driver_owns(memory)) {
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &wrong);
        fr_device_batch_mark(&batch, 0);
        CHECK(fr_device_batch_has_reached(&batch, 0));
        CHECK(fr_device_batch_finish(&batch) != FR_OK);
    }
    fr_device_host_unregister(host);
    free(host);
}

static void count_release(void *object)
{
    ++*(unsigned *)object;
}

// A window of messages holds few objects, but some of them often. The batch goes on meanwhile, and
// the last reference to each stays until it is finished.
static void test_held(void)
{
    enum { OBJECTS = 10, ROUNDS = 64 };
    unsigned released[OBJECTS] = {0};
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    for (unsigned i = 0; i < ROUNDS * OBJECTS; i++)
        fr_device_batch_hold(&batch, count_release, &released[i % OBJECTS]);
    for (unsigned i = 0; i < OBJECTS; i++)
        CHECK(released[i] < ROUNDS, "object %u: %u", i, released[i]);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    for (unsigned i = 0; i < OBJECTS; i++)
        CHECK(released[i] == ROUNDS, "object %u: %u", i, released[i]);
}

// cudaMemset and copies between devices return before they are done; a copy right after them must
// show what they wrote all the same.
static void test_unfinished_calls(void)
{
    const int rounds = is_light() ? 4 : 20;
    const size_t bytes = (size_t)32 << 20;
    unsigned char *host = malloc(bytes);
    for (int round = 0; round < rounds; round++) {
        struct driver_memory memory, other;
        struct fr_device_range range;
        struct fr_device_batch batch;
        enum fr_device_kind kind = round % 2 ? FR_KIND_MALLOC : FR_KIND_VMM;
        if (!driver_allocate(kind, 0, bytes, &memory))
            continue;
        if (!driver_allocate(FR_KIND_MALLOC, 0, bytes, &other))
            break;
        for (unsigned char value = 1; value < 4; value++) {
            CU(cuMemsetD8_v2(driver_pointer(other.address), value, bytes));
            CU(cuMemcpyDtoD_v2(driver_pointer(memory.address), driver_pointer(other.address),
                               bytes));
            CHECK(fr_device_query(memory.address, &range) == FR_OK);
            struct fr_device_copy copy = {
                .dst = host, .src = memory.address, .bytes = bytes, .n = {1, 1}};
            memset(host, 0, bytes);
            fr_device_batch_begin(&batch);
            fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
            CHECK(fr_device_batch_finish(&batch) == FR_OK);
            bool all = host[0] == value && memcmp(host, host + 1, bytes - 1) == 0;
            size_t same = all ? bytes : 0; // byte by byte takes long
            while (same < bytes && host[same] == value)
                same++;
            CHECK(same == bytes, "round %d: byte %zu is %u, not %u", round, same, host[same],
                  value);
        }
        driver_free(&memory);
        driver_free(&other);
    }
    free(host);
}

// Memory whose driver cannot order the application's calls has the default streams waited for, once
// in an MPI call for all of a device.
static void test_waits_of_a_call(void)
{
    const size_t bytes = 1 << 16;
    struct driver_memory memory[2];
    struct fr_device_range ranges[2];
    frsim_calls_fn *calls = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver != NULL)
        *(void **)&calls = dlsym(driver, "frsim_calls");
    if (calls == NULL || !driver_allocate(FR_KIND_VMM, 0, bytes, &memory[0]))
        return;
    CHECK(driver_allocate(FR_KIND_VMM, 0, bytes, &memory[1]));
    CU(cuMemsetD8_v2(driver_pointer(memory[0].address), 1, bytes));
    for (int i = 0; i < 2; i++)
        CHECK(fr_device_query(memory[i].address, &ranges[i]) == FR_OK);
    fr_device_begin_call();
    CHECK(fr_device_sync_app_work(&ranges[0], ranges[0].base, bytes) == FR_OK);
    CHECK(cu.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS);
    unsigned long all = calls(NULL);
    CHECK(fr_device_sync_app_work(&ranges[1], ranges[1].base, bytes) == FR_OK);
    CHECK(calls(NULL) == all, "%lu calls for more memory of a call", calls(NULL) - all);
    fr_device_call = 0; // copies of the other tests are in no call
    driver_free(&memory[0]);
    driver_free(&memory[1]);
}

// Each row of a mixed copy is moved by its own device, which alone may access VMM memory here and
// has what the application did to it.
static void test_unfinished_mixed_calls(CUcontext context, enum fr_device_kind kind)
{
    enum { HALF = 4096 };
    unsigned char host[2 * HALF] = {0};
    struct driver_memory memory, other;
    struct fr_device_range range;
    struct fr_device_batch batch;
    CUcontext second = NULL;
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2 || !driver_allocate(kind, 0, HALF, &memory))
        return;
    CU(cuMemsetD8_v2(driver_pointer(memory.address), 1, HALF));
    CU(cuDevicePrimaryCtxRetain(&second, 1));
    CU(cuCtxSetCurrent(second));
    if (driver_allocate(kind, 1, HALF, &other)) {
        CU(cuMemsetD8_v2(driver_pointer(other.address), 1, HALF));
        CU(cuCtxSetCurrent(context));
        CHECK(fr_device_query(memory.address, &range) == FR_OK);
        struct fr_device_copy copy = {
            .dst = host, .src = memory.address, .bytes = HALF, .n = {2, 1}, .mixed = true};
        copy.dst_stride[0] = HALF;
        copy.src_stride[0] = (ptrdiff_t)((uintptr_t)other.address - (uintptr_t)memory.address);
        fr_device_batch_begin(&batch);
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
        CHECK(fr_device_batch_finish(&batch) == FR_OK);
        CHECK(host[0] == 1 && memcmp(host, host + 1, sizeof(host) - 1) == 0);
        driver_free(&other);
    }
    CU(cuCtxSetCurrent(context));
    driver_free(&memory);
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

// Copies wait for work of the application on one device that it began while another one was
// current.
static void test_unfinished_calls_from_elsewhere(CUcontext context)
{
    unsigned char host[SPACE / 16];
    struct driver_memory memory;
    struct fr_device_range range;
    struct fr_device_batch batch;
    CUcontext second = NULL;
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2)
        return;
    CU(cuDevicePrimaryCtxRetain(&second, 1));
    CU(cuCtxSetCurrent(second));
    bool made = driver_allocate(FR_KIND_MALLOC, 1, sizeof(host), &memory);
    CU(cuCtxSetCurrent(context));
    if (made && cu.cuCtxEnablePeerAccess(second, 0) == CUDA_SUCCESS) {
        CU(cuMemsetD8_v2(driver_pointer(memory.address), 2, sizeof(host)));
        CHECK(fr_device_query(memory.address, &range) == FR_OK);
        const struct fr_device_copy copy = {
            .dst = host, .src = memory.address, .bytes = sizeof(host), .n = {1, 1}};
        memset(host, 0, sizeof(host));
        fr_device_batch_begin(&batch);
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
        CHECK(fr_device_batch_finish(&batch) == FR_OK);
        CHECK(host[0] == 2 && memcmp(host, host + 1, sizeof(host) - 1) == 0);
        CU(cuCtxDisablePeerAccess(second));
    }
    if (made)
        driver_free(&memory);
    CU(cuDevicePrimaryCtxRelease_v2(1));
}

// Copies one shape out of `memory` into staging memory of the device, and the same bytes back from
// there to where the shape's destination lies in `memory`.
static void run_on_device(const struct driver_memory *memory, const struct driver_memory *stage,
                          const struct fr_device_range *range, const struct shape *shape,
                          enum fr_device_direction direction)
{
    const struct driver_memory *to = direction == FR_TO_STAGE ? stage : memory;
    const struct driver_memory *from = direction == FR_TO_STAGE ? memory : stage;
    struct fr_device_copy copy = as_copy(shape, to->address, from->address);
    struct fr_device_batch batch;
    copy.on_device = true;
    memset(expected, 0x77, SPACE);
    driver_write(to, expected, SPACE);
    driver_write(from, device_mirror, SPACE);
    copy_by_bytes(expected, device_mirror, shape);
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, direction, &copy);
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    driver_read(read_back, to, SPACE);
    size_t same = first_difference(read_back, expected, SPACE);
    CHECK(same == SPACE, "%s on the device, %s staging: byte %zu of %zu x %zu x %zu",
          fr_device_kind_name(memory->kind), direction == FR_TO_STAGE ? "to" : "from", same,
          shape->bytes, shape->n[0], shape->n[1]);
}

// While the application captures a stream that waits for the legacy one, or its own default stream,
// in whichever mode, copies of memory old and new leave the capture alone, and it is looked after
// again afterwards.
static void test_captures(CUstream stream, CUstreamCaptureMode mode, enum fr_device_kind kind)
{
    const size_t bytes = 1 << 16;
    struct driver_memory memory;
    struct fr_device_range range;
    struct fr_device_batch batch;
    CUgraph graph = NULL;
    unsigned char *host = calloc(1, bytes);
    if (driver_allocate(kind, 0, bytes, &memory)) {
        CU(cuMemsetD8_v2(driver_pointer(memory.address), 3, bytes));
        CU(cuCtxSynchronize());
        CHECK(fr_device_query(memory.address, &range) == FR_OK);
        struct fr_device_copy copy = {
            .dst = host, .src = memory.address, .bytes = bytes, .n = {1, 1}};
        CU(cuStreamBeginCapture_v2(stream, mode));
        for (int i = 0; i < 2; i++) {
            fr_device_batch_begin(&batch);
            fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
            CHECK(fr_device_batch_finish(&batch) == FR_OK, "mode %d", (int)mode);
        }
        CU(cuStreamEndCapture(stream, &graph));
        CHECK(host[0] == 3 && memcmp(host, host + 1, bytes - 1) == 0, "mode %d", (int)mode);
        CU(cuMemsetD8_v2(driver_pointer(memory.address), 4, bytes));
        fr_device_batch_begin(&batch);
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
        CHECK(fr_device_batch_finish(&batch) == FR_OK);
        CHECK(host[0] == 4 && memcmp(host, host + 1, bytes - 1) == 0, "mode %d", (int)mode);
        driver_free(&memory);
    }
    free(host);
}

static void test_all_captures(void)
{
    CUstream streams[] = {NULL, CU_STREAM_PER_THREAD};
    CU(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
    for (size_t i = 0; i < FR_ARRAY_LENGTH(streams); i++) {
        for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
             mode++) {
            test_captures(streams[i], (CUstreamCaptureMode)mode, FR_KIND_MALLOC);
            test_captures(streams[i], (CUstreamCaptureMode)mode, FR_KIND_VMM);
        }
    }
    CU(cuStreamDestroy_v2(streams[0]));
}

static void test_on_device(const struct driver_memory *memory, unsigned count)
{
    uint64_t state = 4711;
    struct driver_memory stage;
    struct fr_device_range range;
    if (!driver_owns(memory) || !driver_allocate(FR_KIND_MALLOC, 0, SPACE, &stage))
        return;
    CHECK(fr_device_query(memory->address, &range) == FR_OK);
    for (size_t i = 0; i < SPACE; i++)
        device_mirror[i] = (unsigned char)(check_random(&state) >> 20);
    for (unsigned done = 0; done < count;) {
        struct shape shape;
        if (!pick_shape(&shape, &state))
            continue;
        run_on_device(memory, &stage, &range, &shape, done % 2 ? FR_TO_STAGE : FR_FROM_STAGE);
        done++;
    }
    driver_free(&stage);
}

// Runs about as long as what a kernel copies at most, more of them than it takes at once, and
// between two allocations of which only one is the application's.
static void test_runs_on_device(void)
{
    enum { RUNS = 9, MIB = 1 << 20 };
    size_t bytes = (size_t)RUNS * (MIB + 64);
    struct driver_memory user, stage;
    struct fr_device_range range;
    struct fr_device_batch batch;
    unsigned char *host = malloc(bytes);
    if (host == NULL || !driver_allocate(FR_KIND_MALLOC, 0, bytes, &user) ||
        !driver_allocate(FR_KIND_MALLOC, 0, bytes, &stage)) {
        CHECK(false, "no memory");
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        host[i] = (unsigned char)(i * 31 + i / 4093);
    driver_write(&user, host, bytes);
    memset(host, 0, bytes);
    driver_write(&stage, host, bytes);
    CHECK(fr_device_query(user.address, &range) == FR_OK);
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < RUNS; i++) {
        size_t offset = i * (MIB + 64);
        struct fr_device_copy copy = {.dst = stage.address + offset,
                                      .src = user.address + offset,
                                      .bytes = (size_t)MIB - 5 + i,
                                      .n = {1, 1},
                                      .on_device = true};
        fr_device_batch_copy(&batch, &range, FR_TO_STAGE, &copy);
    }
    CHECK(fr_device_batch_finish(&batch) == FR_OK);
    driver_read(host, &stage, bytes);
    for (size_t i = 0; i < bytes; i++) {
        bool copied = i % (MIB + 64) < (size_t)MIB - 5 + i / (MIB + 64);
        unsigned char wanted = copied ? (unsigned char)(i * 31 + i / 4093) : 0;
        if (host[i] != wanted) {
            CHECK(false, "byte %zu is %u, not %u", i, host[i], wanted);
            break;
        }
    }
    driver_free(&stage);
    driver_free(&user);
    free(host);
}

int main(void)
{
    CUcontext context = NULL;
    if (!driver_load() || !driver_start(&context))
        return CHECK_SKIP;
    for (int kind = FR_KIND_HOST; kind < FR_KIND_COUNT; kind++) {
        struct driver_memory memory;
        if (!driver_allocate((enum fr_device_kind)kind, 0, SPACE, &memory)) {
            printf("%s memory cannot be had here\n", fr_device_kind_name(kind));
            continue;
        }
        test_shapes(&memory, is_light() ? 60 : 400);
        test_edges(&memory);
        test_batches(&memory);
        test_marks(&memory);
        test_on_device(&memory, is_light() ? 10 : 40);
        driver_free(&memory);
    }
    test_runs_on_device();
    test_held();
    test_unfinished_calls();
    test_waits_of_a_call();
    test_unfinished_mixed_calls(context, FR_KIND_MALLOC);
    test_unfinished_mixed_calls(context, FR_KIND_VMM);
    test_unfinished_calls_from_elsewhere(context);
    test_all_captures();
    fr_device_release();
    return check_result();
}
