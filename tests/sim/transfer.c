// SPDX-License-Identifier: BSD-3-Clause
// The many calls for a copy and for a fill, turned into one operation each.
#include "config.h"

#include "sim.h"

static CUresult linear(CUstream stream, uintptr_t dst, uintptr_t src, size_t bytes,
                       enum sim_side dst_side, enum sim_side src_side, bool async)
{
    struct sim_op op = {.dst = dst, .src = src, .shape = {.width = bytes, .height = 1, .depth = 1}};
    return sim_submit_copy(stream, &op, dst_side, src_side, async);
}

CUresult sim_copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    return linear(NULL, dst, src, bytes, SIM_SIDE_ANY, SIM_SIDE_ANY, false);
}

CUresult sim_copy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    return linear(stream, dst, src, bytes, SIM_SIDE_ANY, SIM_SIDE_ANY, true);
}

CUresult sim_copy_htod(CUdeviceptr dst, const void *src, size_t bytes)
{
    return linear(NULL, dst, (uintptr_t)src, bytes, SIM_SIDE_DEVICE, SIM_SIDE_ANY, false);
}

CUresult sim_copy_htod_async(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    return linear(stream, dst, (uintptr_t)src, bytes, SIM_SIDE_DEVICE, SIM_SIDE_ANY, true);
}

CUresult sim_copy_dtoh(void *dst, CUdeviceptr src, size_t bytes)
{
    return linear(NULL, (uintptr_t)dst, src, bytes, SIM_SIDE_ANY, SIM_SIDE_DEVICE, false);
}

CUresult sim_copy_dtoh_async(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    return linear(stream, (uintptr_t)dst, src, bytes, SIM_SIDE_ANY, SIM_SIDE_DEVICE, true);
}

CUresult sim_copy_dtod(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    return linear(NULL, dst, src, bytes, SIM_SIDE_DEVICE, SIM_SIDE_DEVICE, false);
}

CUresult sim_copy_dtod_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    return linear(stream, dst, src, bytes, SIM_SIDE_DEVICE, SIM_SIDE_DEVICE, true);
}

CUresult sim_copy_peer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
                       size_t bytes)
{
    if (!sim_context_known(dst_ctx) || !sim_context_known(src_ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return linear(NULL, dst, src, bytes, SIM_SIDE_DEVICE, SIM_SIDE_DEVICE, false);
}

CUresult sim_copy_peer_async(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
                             size_t bytes, CUstream stream)
{
    if (!sim_context_known(dst_ctx) || !sim_context_known(src_ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return linear(stream, dst, src, bytes, SIM_SIDE_DEVICE, SIM_SIDE_DEVICE, true);
}

// One side of a 2D or 3D copy as the application describes it.
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, rows;
};

// Finds the first byte, the pitch and the plane of a side, and what memory it may be.
static CUresult resolve_side(const struct side *side, const CUDA_MEMCPY3D *copy, uintptr_t *first,
                             size_t *pitch, size_t *plane, enum sim_side *kind)
{
    uintptr_t base;
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        base = (uintptr_t)side->host;
        *kind = SIM_SIDE_ANY;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = side->device;
        *kind = SIM_SIDE_DEVICE;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = side->device;
        *kind = SIM_SIDE_ANY;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return side->array ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = side->pitch ? side->pitch : side->x + copy->WidthInBytes;
    size_t rows = side->rows ? side->rows : side->y + copy->Height;
    if (*pitch < side->x + copy->WidthInBytes || rows < side->y + copy->Height)
        return CUDA_ERROR_INVALID_VALUE;
    *plane = *pitch * rows;
    *first = base + side->z * *plane + side->y * *pitch + side->x;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool async)
{
    if (!copy || copy->srcLOD || copy->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    const struct side src = {copy->srcMemoryType, copy->srcHost,     copy->srcDevice,
                             copy->srcArray,      copy->srcXInBytes, copy->srcY,
                             copy->srcZ,          copy->srcPitch,    copy->srcHeight};
    const struct side dst = {copy->dstMemoryType, copy->dstHost,     copy->dstDevice,
                             copy->dstArray,      copy->dstXInBytes, copy->dstY,
                             copy->dstZ,          copy->dstPitch,    copy->dstHeight};
    struct sim_op op = {.shape = {copy->WidthInBytes, copy->Height, copy->Depth, 0, 0, 0, 0}};
    enum sim_side src_side, dst_side;
    CUresult result =
        resolve_side(&src, copy, &op.src, &op.shape.src_pitch, &op.shape.src_plane, &src_side);
    if (result == CUDA_SUCCESS)
        result =
            resolve_side(&dst, copy, &op.dst, &op.shape.dst_pitch, &op.shape.dst_plane, &dst_side);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_submit_copy(stream, &op, dst_side, src_side, async);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool async)
{
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D deep = {
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = 1,
    };
    return copy_3d(&deep, stream, async);
}

// The largest pitch, as CU_DEVICE_ATTRIBUTE_MAX_PITCH says. The unaligned call has no such bound.
static bool pitch_fits(const CUDA_MEMCPY2D *copy)
{
    return copy && copy->srcPitch <= INT32_MAX && copy->dstPitch <= INT32_MAX;
}

CUresult sim_copy_2d(const CUDA_MEMCPY2D *copy)
{
    return pitch_fits(copy) ? copy_2d(copy, NULL, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_copy_2d_unaligned(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, false);
}

CUresult sim_copy_2d_async(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return pitch_fits(copy) ? copy_2d(copy, stream, true) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_copy_3d(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, NULL, false);
}

CUresult sim_copy_3d_async(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_3d(copy, stream, true);
}

// Returns whether the attributes of a batch are complete: each entry counts from a later copy on,
// the first one from the first copy.
static bool are_attributes_sound(const CUmemcpyAttributes *attributes, const size_t *from,
                                 size_t attribute_count, size_t count)
{
    if (!attributes || !from || attribute_count == 0 || attribute_count > count || from[0] != 0)
        return false;
    for (size_t i = 0; i < attribute_count; i++) {
        if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY || from[i] >= count ||
            (i > 0 && from[i] <= from[i - 1]))
            return false;
    }
    return true;
}

// The copies of a batch have no order. They run from the last to the first, so that copies that
// depend on each other give wrong bytes.
CUresult sim_copy_batch(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                        CUmemcpyAttributes *attributes, size_t *from, size_t attribute_count,
                        size_t *failed, CUstream stream)
{
    if (!sim_knobs()->batch)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (failed)
        *failed = SIZE_MAX;
    if (!dst || !src || !bytes || stream == NULL || stream == CU_STREAM_LEGACY ||
        !are_attributes_sound(attributes, from, attribute_count, count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = count; i-- > 0;) {
        CUresult result =
            linear(stream, dst[i], src[i], bytes[i], SIM_SIDE_ANY, SIM_SIDE_ANY, true);
        if (result != CUDA_SUCCESS) {
            if (failed)
                *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

// `width` counts elements.
static CUresult fill(CUstream stream, CUdeviceptr dst, size_t pitch, unsigned value, unsigned bytes,
                     size_t width, size_t height, bool async)
{
    if (width > SIZE_MAX / bytes || (height > 1 && pitch < width * bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op op = {
        .dst = dst,
        .pattern = value,
        .pattern_bytes = bytes,
        .shape = {.width = width * bytes, .height = height, .depth = 1, .dst_pitch = pitch},
    };
    return sim_submit_set(stream, &op, async);
}

CUresult sim_set8(CUdeviceptr dst, unsigned char value, size_t count)
{
    return fill(NULL, dst, 0, value, 1, count, 1, false);
}

CUresult sim_set16(CUdeviceptr dst, unsigned short value, size_t count)
{
    return fill(NULL, dst, 0, value, 2, count, 1, false);
}

CUresult sim_set32(CUdeviceptr dst, unsigned value, size_t count)
{
    return fill(NULL, dst, 0, value, 4, count, 1, false);
}

CUresult sim_set8_async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
    return fill(stream, dst, 0, value, 1, count, 1, true);
}

CUresult sim_set16_async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
    return fill(stream, dst, 0, value, 2, count, 1, true);
}

CUresult sim_set32_async(CUdeviceptr dst, unsigned value, size_t count, CUstream stream)
{
    return fill(stream, dst, 0, value, 4, count, 1, true);
}

CUresult sim_set2d8(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height)
{
    return fill(NULL, dst, pitch, value, 1, width, height, false);
}

CUresult sim_set2d16(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                     size_t height)
{
    return fill(NULL, dst, pitch, value, 2, width, height, false);
}

CUresult sim_set2d32(CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height)
{
    return fill(NULL, dst, pitch, value, 4, width, height, false);
}

CUresult sim_set2d8_async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                          size_t height, CUstream stream)
{
    return fill(stream, dst, pitch, value, 1, width, height, true);
}

CUresult sim_set2d16_async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                           size_t height, CUstream stream)
{
    return fill(stream, dst, pitch, value, 2, width, height, true);
}

CUresult sim_set2d32_async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width,
                           size_t height, CUstream stream)
{
    return fill(stream, dst, pitch, value, 4, width, height, true);
}
