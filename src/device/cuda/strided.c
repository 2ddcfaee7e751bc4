// SPDX-License-Identifier: BSD-3-Clause
// Copies on streams. A strided copy becomes the fewest driver calls that can express it.
#include "config.h"

#include "device/cuda/cuda_int.h"
#include "fabrail/device/runs.h"

// Returns whether rows lie in order and apart on both sides, as pitched copies need them.
static bool is_pitched(const struct fr_device_copy *copy, size_t max_pitch_bytes)
{
    const ptrdiff_t strides[] = {copy->dst_stride[0], copy->src_stride[0]};
    for (size_t side = 0; side < FR_ARRAY_LENGTH(strides); side++) {
        if (strides[side] < (ptrdiff_t)copy->bytes || (size_t)strides[side] > max_pitch_bytes)
            return false;
    }
    return true;
}

// Returns whether planes are a whole number of rows apart on both sides and do not overlap.
static bool is_boxed(const struct fr_device_copy *copy)
{
    const ptrdiff_t outer[] = {copy->dst_stride[1], copy->src_stride[1]};
    const ptrdiff_t inner[] = {copy->dst_stride[0], copy->src_stride[0]};
    for (size_t side = 0; side < FR_ARRAY_LENGTH(outer); side++) {
        if (outer[side] < 0 || outer[side] % inner[side] != 0 ||
            (size_t)(outer[side] / inner[side]) < copy->n[0])
            return false;
    }
    return true;
}

static CUdeviceptr as_device(const void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

static enum fr_status start_run(const struct fr_cuda_stream *stream, void *dst, const void *src,
                                size_t bytes)
{
    CUresult result = fr_cu.cuMemcpyAsync(as_device(dst), as_device(src), bytes, stream->handle);
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuMemcpyAsync", result);
}

static CUmemorytype dst_type(const struct fr_cuda_stream *stream, const struct fr_device_copy *copy)
{
    bool is_host = stream->base.direction == FR_TO_STAGE && !copy->on_device;
    return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static CUmemorytype src_type(const struct fr_cuda_stream *stream, const struct fr_device_copy *copy)
{
    bool is_host = stream->base.direction == FR_FROM_STAGE && !copy->on_device;
    return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// Starts a pitched copy. The driver reads, of the two addresses of a side, the one that its memory
// type names.
static enum fr_status start_rows(const struct fr_cuda_stream *stream,
                                 const struct fr_device_copy *copy)
{
    CUDA_MEMCPY2D call = {
        .dstMemoryType = dst_type(stream, copy),
        .dstHost = copy->dst,
        .dstDevice = as_device(copy->dst),
        .dstPitch = (size_t)copy->dst_stride[0],
        .srcMemoryType = src_type(stream, copy),
        .srcHost = copy->src,
        .srcDevice = as_device(copy->src),
        .srcPitch = (size_t)copy->src_stride[0],
        .WidthInBytes = copy->bytes,
        .Height = copy->n[0],
    };
    CUresult result = fr_cu.cuMemcpy2DAsync_v2(&call, stream->handle);
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuMemcpy2DAsync", result);
}

static enum fr_status start_box(const struct fr_cuda_stream *stream,
                                const struct fr_device_copy *copy)
{
    CUDA_MEMCPY3D call = {
        .dstMemoryType = dst_type(stream, copy),
        .dstHost = copy->dst,
        .dstDevice = as_device(copy->dst),
        .dstPitch = (size_t)copy->dst_stride[0],
        .dstHeight = (size_t)(copy->dst_stride[1] / copy->dst_stride[0]),
        .srcMemoryType = src_type(stream, copy),
        .srcHost = copy->src,
        .srcDevice = as_device(copy->src),
        .srcPitch = (size_t)copy->src_stride[0],
        .srcHeight = (size_t)(copy->src_stride[1] / copy->src_stride[0]),
        .WidthInBytes = copy->bytes,
        .Height = copy->n[0],
        .Depth = copy->n[1],
    };
    CUresult result = fr_cu.cuMemcpy3DAsync_v2(&call, stream->handle);
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuMemcpy3DAsync", result);
}

// Starts a copy of one plane: a pitched copy, or one copy for each row where the strides allow
// nothing better.
static enum fr_status start_plane(const struct fr_cuda_stream *stream,
                                  const struct fr_device_copy *copy)
{
    if (copy->n[0] > 1 && is_pitched(copy, stream->max_pitch_bytes))
        return start_rows(stream, copy);
    char *dst = copy->dst;
    const char *src = copy->src;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < copy->n[0] && status == FR_OK; i++) {
        status = start_run(stream, dst, src, copy->bytes);
        dst += copy->dst_stride[0];
        src += copy->src_stride[0];
    }
    return status;
}

enum fr_status fr_cuda_stream_copy(struct fr_device_stream *lent, const struct fr_device_copy *copy)
{
    const struct fr_cuda_stream *stream = fr_cuda_stream_of(lent);
    if (copy->n[1] > 1 && is_pitched(copy, stream->max_pitch_bytes) && is_boxed(copy))
        return start_box(stream, copy);
    struct fr_device_copy plane = *copy;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < copy->n[1] && status == FR_OK; i++) {
        status = start_plane(stream, &plane);
        plane.dst = (char *)plane.dst + copy->dst_stride[1];
        plane.src = (const char *)plane.src + copy->src_stride[1];
    }
    return status;
}

enum fr_status fr_cuda_stream_copy_runs(struct fr_device_stream *lent, struct fr_device_runs *runs)
{
    static atomic_bool is_refused;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t from = 0, failed = 0;
    if (fr_cu.cuMemcpyBatchAsync == NULL || atomic_load_explicit(&is_refused, memory_order_relaxed))
        return FR_ERR_UNSUPPORTED;
    CUresult result =
        fr_cu.cuMemcpyBatchAsync(runs->dst, runs->src, runs->bytes, runs->count, &attributes, &from,
                                 1, &failed, fr_cuda_stream_of(lent)->handle);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        atomic_store_explicit(&is_refused, true, memory_order_relaxed);
        return FR_ERR_UNSUPPORTED;
    }
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuMemcpyBatchAsync", result);
}
