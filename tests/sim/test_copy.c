// SPDX-License-Identifier: BSD-3-Clause
// Cases of the simulated driver: which bytes a copy may touch, strided copies, fills.
#include "config.h"

#include "test.h"

#define GRANULE ((size_t)2 << 20)

static void run_bounds(void)
{
    static unsigned char host[8192];
    CUdeviceptr first, second;
    void *pinned;
    test_begin(0);
    OK(cu.cuMemAlloc(&first, 512));
    OK(cu.cuMemAlloc(&second, 512));
    CHECK(second == first + 512, "the test wants neighbours");
    OK(cu.cuMemcpyHtoD(first, host, 512));
    OK(cu.cuMemcpyHtoD(first + 511, host, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(first, host, 513));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(first + 511, host, 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(host, second + 1, 512));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy(first, second, 513));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(first, 0, 513));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32(first + 2, 0, 1));
    // A device side must be the driver's memory; a host side may be device memory, too.
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD((uintptr_t)host, host + 4096, 16));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(host, (uintptr_t)host + 4096, 16));
    OK(cu.cuMemcpyHtoD(first, test_pointer(second), 16));
    OK(cu.cuMemcpyDtoH(test_pointer(first), second, 16));
    OK(cu.cuMemcpyHtoD(first, host, 0));
    // A host range may run into a registered one, but not out of it.
    OK(cu.cuMemHostRegister(host + 4096, 2048, 0));
    OK(cu.cuMemcpyHtoD(first, host + 4000, 200));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(first, host + 6000, 200));
    OK(cu.cuMemcpyHtoD(first, host + 4096, 200));
    OK(cu.cuMemHostAlloc(&pinned, 100, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(pinned, first, 101));
    OK(cu.cuMemFree(second));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(host, second, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy((uintptr_t)host, second, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyAsync(first, second, 1, NULL));
}

static void run_every_direction(void)
{
    enum { BYTES = 3000, KINDS = 7 };
    static unsigned char pageable[BYTES];
    CUdeviceptr at[KINDS];
    void *pinned;
    struct test_mapping vmm;
    CUcontext other = NULL, ctx = test_begin(0);
    OK(cu.cuDevicePrimaryCtxRetain(&other, 1));
    OK(cu.cuCtxPushCurrent(other));
    OK(cu.cuMemAlloc(&at[0], BYTES)); // on the other device
    OK(cu.cuCtxPopCurrent(&other));
    OK(cu.cuMemAlloc(&at[1], BYTES));
    OK(cu.cuMemAllocManaged(&at[2], BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(cu.cuMemAllocAsync(&at[3], BYTES, NULL));
    OK(cu.cuMemHostAlloc(&pinned, BYTES, 0));
    at[4] = (uintptr_t)pinned;
    test_map(&vmm, BYTES, 0);
    at[5] = vmm.address;
    at[6] = (uintptr_t)pageable;
    static unsigned char start[BYTES], end[BYTES];
    for (unsigned from = 0; from < KINDS; from++)
        for (unsigned to = 0; to < KINDS; to++) {
            if (from == to)
                continue;
            uint64_t seed = from * 100 + to;
            check_fill(start, BYTES, seed);
            OK(cu.cuMemcpy(at[from], (uintptr_t)start, BYTES));
            OK(cu.cuMemcpyAsync(at[to], at[from], BYTES, NULL));
            OK(cu.cuStreamSynchronize(NULL));
            OK(cu.cuMemcpy((uintptr_t)end, at[to], BYTES));
            CHECK(check_first_difference(end, BYTES, seed) == BYTES, "from %u to %u", from, to);
        }
    test_put(at[0], BYTES, 5);
    OK(cu.cuMemcpyPeer(at[1], ctx, at[0], other, BYTES));
    CHECK(test_holds(at[1], BYTES, 5), "peer copy");
}

static void run_adjacent_mappings(void)
{
    CUdeviceptr base, start = 0;
    CUmemGenericAllocationHandle handles[3];
    unsigned long long flags = 99;
    size_t bytes = 0;
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemAccessDesc write = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAccessDesc read = {here, CU_MEM_ACCESS_FLAGS_PROT_READ};
    const CUmemAllocationProp prop = test_prop(0, 0);
    test_begin(0);
    OK(cu.cuMemAddressReserve(&base, 4 * GRANULE, 0, 0, 0));
    for (unsigned i = 0; i < 3; i++) {
        OK(cu.cuMemCreate(&handles[i], GRANULE, &prop, 0));
        OK(cu.cuMemMap(base + i * GRANULE, GRANULE, 0, handles[i], 0));
    }
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(base + GRANULE, GRANULE, 0, handles[0], 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(base, 1, 16)); // no access yet
    OK(cu.cuMemGetAccess(&flags, &here, base));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE, "%llu", flags);
    OK(cu.cuMemSetAccess(base, 2 * GRANULE, &write, 1));
    OK(cu.cuMemSetAccess(base + 2 * GRANULE, GRANULE, &read, 1));
    // The reservation is one range, in which one copy may span all mappings.
    OK(cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + GRANULE + 5));
    OK(cu.cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + GRANULE + 5));
    CHECK(start == base && bytes == 4 * GRANULE, "a range for each mapping");
    test_put(base + GRANULE - 1000, 3000, 11);
    CHECK(test_holds(base + GRANULE - 1000, 3000, 11), "across two mappings");
    OK(cu.cuMemsetD8(base + GRANULE - 10, 7, 20));
    static unsigned char small[4096];
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD(base + 2 * GRANULE - 10, small, 20));
    OK(cu.cuMemcpyDtoH(small, base + 2 * GRANULE - 10, 20)); // readable on both sides
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(small, base + 3 * GRANULE - 10, 20));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(base, GRANULE / 2));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(base, 4 * GRANULE));
    // The memory lives as long as a mapping does.
    for (unsigned i = 0; i < 3; i++)
        OK(cu.cuMemRelease(handles[i]));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemRelease(handles[0]));
    test_put(base, 100, 12);
    CHECK(test_holds(base, 100, 12), "lost with the last handle");
    OK(cu.cuMemUnmap(base, 3 * GRANULE));
    OK(cu.cuMemAddressFree(base, 4 * GRANULE));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(base, GRANULE, 0, handles[0], 0));
}

// Another device may use VMM memory only when it was given access. A copy acts for the device of
// its stream.
static void run_vmm_access(void)
{
    CUcontext other = NULL, popped;
    struct test_mapping mapping;
    CUdeviceptr base;
    unsigned flags = 99;
    test_begin(0);
    test_map(&mapping, GRANULE, 0);
    OK(cu.cuDevicePrimaryCtxRetain(&other, 1));
    OK(cu.cuCtxPushCurrent(other));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8(mapping.address, 1, 16));
    OK(cu.cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, mapping.address));
    CHECK(flags == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE, "%u", flags);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cu.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, mapping.address));
    EXPECT(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange(&base, NULL, mapping.address));
    OK(cu.cuCtxPopCurrent(&popped));
    OK(cu.cuCtxPopCurrent(&popped));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemGetAddressRange(&base, NULL, mapping.address));
    OK(cu.cuCtxSetCurrent(other));
    const CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cu.cuMemSetAccess(mapping.address, GRANULE, &access, 1));
    OK(cu.cuMemsetD8(mapping.address, 1, 16));
    OK(cu.cuCtxSynchronize());
}

static void run_vmm_refusals(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granularity = 0;
    CUmemAllocationProp prop = test_prop(0, 0);
    test_begin(0);
    OK(cu.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(granularity == GRANULE, "%zu", granularity);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, GRANULE + 1, &prop, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, 0, &prop, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&address, 4096, 0, 0, 0));
    prop.location.id = 4;
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cu.cuMemCreate(&handle, GRANULE, &prop, 0));
    prop = test_prop(0, CU_MEM_HANDLE_TYPE_WIN32);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&handle, GRANULE, &prop, 0));
    OK(cu.cuMemAddressReserve(&address, 4 * GRANULE, 8 * GRANULE, 0, 0));
    CHECK(address % (8 * GRANULE) == 0, "badly aligned");
    OK(cu.cuMemAddressFree(address, 4 * GRANULE));
}

// Compares a strided copy with one done by hand.
struct block {
    size_t width, height, depth, x, y, z, pitch, rows;
};

static size_t offset_of(const struct block *block, size_t z, size_t y)
{
    size_t rows = block->rows ? block->rows : block->height + block->y;
    return ((block->z + z) * rows + block->y + y) * block->pitch + block->x;
}

static void check_block(const unsigned char *got, const unsigned char *before,
                        const unsigned char *source, const struct block *dst,
                        const struct block *src, size_t bytes)
{
    unsigned char *want = malloc(bytes);
    memcpy(want, before, bytes);
    for (size_t z = 0; z < dst->depth; z++)
        for (size_t y = 0; y < dst->height; y++)
            memcpy(want + offset_of(dst, z, y), source + offset_of(src, z, y), dst->width);
    CHECK(memcmp(got, want, bytes) == 0, "width %zu height %zu depth %zu", dst->width, dst->height,
          dst->depth);
    free(want);
}

static void one_3d(CUdeviceptr device, unsigned char *source, unsigned char *got,
                   unsigned char *before, size_t bytes, uint64_t *state)
{
    struct block src = {.width = 1 + check_random(state) % 40,
                        .height = 1 + check_random(state) % 9,
                        .depth = 1 + check_random(state) % 5};
    struct block dst = src;
    struct block *const sides[] = {&src, &dst};
    for (int i = 0; i < 2; i++) {
        sides[i]->x = check_random(state) % 5;
        sides[i]->y = check_random(state) % 3;
        sides[i]->z = check_random(state) % 2;
        sides[i]->pitch = sides[i]->width + sides[i]->x + check_random(state) % 7;
        sides[i]->rows = sides[i]->height + sides[i]->y + check_random(state) % 3;
    }
    check_fill(source, bytes, check_random(state));
    check_fill(before, bytes, check_random(state));
    OK(cu.cuMemcpyHtoD(device, before, bytes));
    const CUDA_MEMCPY3D copy = {
        .srcXInBytes = src.x,
        .srcY = src.y,
        .srcZ = src.z,
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = source,
        .srcPitch = src.pitch,
        .srcHeight = src.rows,
        .dstXInBytes = dst.x,
        .dstY = dst.y,
        .dstZ = dst.z,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = device,
        .dstPitch = dst.pitch,
        .dstHeight = dst.rows,
        .WidthInBytes = src.width,
        .Height = src.height,
        .Depth = src.depth,
    };
    if (check_random(state) % 2)
        OK(cu.cuMemcpy3D(&copy));
    else
        OK(cu.cuMemcpy3DAsync(&copy, NULL));
    OK(cu.cuMemcpyDtoH(got, device, bytes));
    check_block(got, before, source, &dst, &src, bytes);
}

static void run_strided(void)
{
    enum { BYTES = 1 << 14 };
    static unsigned char source[BYTES], got[BYTES], before[BYTES];
    CUdeviceptr device;
    uint64_t state = 42;
    test_begin(0);
    OK(cu.cuMemAlloc(&device, BYTES));
    for (int i = 0; i < 300; i++)
        one_3d(device, source, got, before, BYTES, &state);
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = device,
        .srcPitch = 100,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = got,
        .dstPitch = 64,
        .WidthInBytes = 64,
        .Height = 100,
    };
    check_fill(source, BYTES, 9);
    OK(cu.cuMemcpyHtoD(device, source, BYTES));
    memset(got, 0xa5, BYTES);
    OK(cu.cuMemcpy2D(&copy));
    for (size_t y = 0; y < 100; y++)
        CHECK(memcmp(got + y * 64, source + y * 100, 64) == 0, "row %zu", y);
    CHECK(got[6400] == 0xa5, "too far");
    copy.Height = 165; // the last row ends past the allocation
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2D(&copy));
    copy.Height = 100;
    copy.dstPitch = 63;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2DUnaligned(&copy));
    copy.dstPitch = 64;
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = test_pointer(device);
    OK(cu.cuMemcpy2D(&copy));
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    OK(cu.cuMemcpy2DAsync(&copy, NULL));
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2D(&copy));
}

// The function by its exported name, which newer headers give to another one.
typedef CUresult CUDAAPI copy_batch_fn(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes,
                                       size_t count, CUmemcpyAttributes *attributes, size_t *from,
                                       size_t attribute_count, size_t *failed, CUstream stream);

static void run_batches(void)
{
    static unsigned char host[2][64], got[64];
    CUdeviceptr device, dst[3], src[3];
    CUstream stream;
    size_t bytes[3] = {16, 16, 32}, from = 0, failed = 7;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    void *found = NULL;
    test_begin(0);
    OK(cu.cuGetProcAddress("cuMemcpyBatchAsync", &found, 12080, 0, NULL));
    copy_batch_fn *copy_batch;
    memcpy(&copy_batch, &found, sizeof(copy_batch));
    OK(cu.cuMemAlloc(&device, 64));
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_fill(host, sizeof(host), 4);
    for (size_t i = 0, at = 0; i < 3; at += bytes[i], i++) {
        dst[i] = device + at;
        src[i] = (uintptr_t)host[i % 2] + at;
    }
    OK(copy_batch(dst, src, bytes, 3, &attributes, &from, 1, &failed, stream));
    OK(cu.cuStreamSynchronize(stream));
    OK(cu.cuMemcpyDtoH(got, device, 64));
    CHECK(memcmp(got, host[0], 16) == 0 && memcmp(got + 16, host[1] + 16, 16) == 0 &&
          memcmp(got + 32, host[0] + 32, 32) == 0);
    bytes[1] = 64; // beyond the allocation
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           copy_batch(dst, src, bytes, 3, &attributes, &from, 1, &failed, stream));
    CHECK(failed == 1, "%zu", failed);
    bytes[1] = 16;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           copy_batch(dst, src, bytes, 3, &attributes, &from, 1, &failed, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           copy_batch(dst, src, bytes, 3, &attributes, &from, 0, &failed, stream));
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           copy_batch(dst, src, bytes, 3, &attributes, &from, 1, &failed, stream));
}

static void run_fills(void)
{
    static unsigned char got[4096];
    CUdeviceptr device;
    size_t pitch = 0;
    test_begin(0);
    OK(cu.cuMemAllocPitch(&device, &pitch, 100, 8, 4));
    CHECK(pitch >= 100 && pitch % 256 == 0 && pitch * 8 <= sizeof(got), "%zu", pitch);
    OK(cu.cuMemsetD8(device, 0x11, pitch * 8));
    OK(cu.cuMemsetD16(device + 2, 0x2233, 3));
    OK(cu.cuMemsetD32(device + 12, 0x44556677, 2));
    OK(cu.cuMemcpyDtoH(got, device, 24));
    const unsigned char want[24] = {0x11, 0x11, 0x33, 0x22, 0x33, 0x22, 0x33, 0x22,
                                    0x11, 0x11, 0x11, 0x11, 0x77, 0x66, 0x55, 0x44,
                                    0x77, 0x66, 0x55, 0x44, 0x11, 0x11, 0x11, 0x11};
    CHECK(memcmp(got, want, 24) == 0, "fills of 8, 16 and 32 bits");
    OK(cu.cuMemsetD2D32(device, pitch, 0x01020304, 5, 8));
    OK(cu.cuMemsetD2D16Async(device + 40, pitch, 0x0506, 3, 7, NULL));
    OK(cu.cuMemcpyDtoH(got, device, pitch * 8));
    for (size_t y = 0; y < 8; y++) {
        const unsigned char *row = got + y * pitch;
        CHECK(row[0] == 4 && row[3] == 1 && row[16] == 4 && row[19] == 1, "row %zu", y);
        CHECK(row[40] == (y < 7 ? 6 : 0x11) && row[45] == (y < 7 ? 5 : 0x11), "row %zu", y);
        CHECK(row[46] == 0x11 && row[pitch - 1] == 0x11, "row %zu", y);
    }
}

const struct test_case test_copy_cases[] = {
    {"bounds", {NULL}, run_bounds},
    {"every-direction", {NULL}, run_every_direction},
    {"every-direction-eager", {"FRSIM_ASYNC=eager"}, run_every_direction},
    {"adjacent-mappings", {NULL}, run_adjacent_mappings},
    {"vmm-access", {NULL}, run_vmm_access},
    {"vmm-refusals", {NULL}, run_vmm_refusals},
    {"strided", {NULL}, run_strided},
    {"batches", {NULL}, run_batches},
    {"fills", {NULL}, run_fills},
    {NULL, {NULL}, NULL},
};
