// SPDX-License-Identifier: BSD-3-Clause
// Copies and fills: which bytes a device may touch, when an operation runs, and the moving itself.
// A copy reads its source when it runs, not when it is queued.
#include "config.h"

#include "sim.h"

#include <stdlib.h>
#include <string.h>

// Pageable sources up to this size are read when an asynchronous copy is queued, as the driver
// does.
#define SNAPSHOT_BYTES ((size_t)64 << 10)

static bool range_admits(const struct sim_range *range, int device, bool write)
{
    unsigned need = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    switch (range->kind) {
    case SIM_KIND_VMM:
        return (range->access[device] & need) == need;
    case SIM_KIND_POOL:
        return !range->freed && (range->pool->access[device] & need) == need;
    default:
        return !range->freed;
    }
}

bool sim_range_is_open(const struct sim_range *range, CUcontext ctx)
{
    switch (range->kind) {
    case SIM_KIND_MALLOC:
        return range->device == ctx->device ? range->ctx == ctx
                                            : (ctx->peers & 1ull << range->device) != 0;
    case SIM_KIND_POOL:
        return range->pool->access[ctx->device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    case SIM_KIND_VMM:
        return range->access[ctx->device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    case SIM_KIND_IPC:
        return range->ctx == ctx;
    default:
        return true;
    }
}

CUresult sim_check(uintptr_t address, size_t bytes, int device, enum sim_side side, bool write)
{
    if (!bytes)
        return CUDA_SUCCESS;
    if (!address || bytes > UINTPTR_MAX - address)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range = sim_range_find(address);
    if (!range) {
        // This is pageable host memory, unless it once was the driver's. It may run into
        // page-locked memory.
        bool host = side != SIM_SIDE_DEVICE && !sim_is_driver_address(address) &&
                    !sim_is_driver_address(address + bytes - 1);
        return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    while (range && range_admits(range, device, write)) {
        size_t here = range->base + range->bytes - address;
        if (bytes <= here)
            return CUDA_SUCCESS;
        // Only mappings of one reservation continue each other.
        if (range->kind != SIM_KIND_VMM)
            break;
        address += here;
        bytes -= here;
        range = sim_range_find(address);
        if (range && range->kind != SIM_KIND_VMM)
            break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// Returns where the simulator reaches `address`, and lowers *bytes to what is contiguous there.
static char *reach(uintptr_t address, size_t *bytes)
{
    struct sim_range *range = sim_range_find(address);
    if (!range)
        return sim_is_driver_address(address) ? NULL : sim_pointer(address);
    size_t here = range->base + range->bytes - address;
    if (*bytes > here)
        *bytes = here;
    return range->alias + (address - range->base);
}

static CUresult move_row(uintptr_t dst, uintptr_t src, const char *snapshot, size_t bytes)
{
    while (bytes) {
        size_t piece = bytes;
        char *to = reach(dst, &piece);
        const char *from = snapshot ? snapshot : reach(src, &piece);
        if (!to || !from)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        memmove(to, from, piece);
        dst += piece;
        src += piece;
        snapshot = snapshot ? snapshot + piece : NULL;
        bytes -= piece;
    }
    return CUDA_SUCCESS;
}

static CUresult fill_row(uintptr_t dst, size_t bytes, unsigned pattern, unsigned pattern_bytes)
{
    while (bytes) {
        size_t piece = bytes;
        char *to = reach(dst, &piece);
        if (!to)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        // Little endian, as is every machine that has the driver; pieces hold whole elements.
        if (pattern_bytes == 1)
            memset(to, (int)pattern, piece);
        else
            for (size_t i = 0; i + pattern_bytes <= piece; i += pattern_bytes)
                memcpy(to + i, &pattern, pattern_bytes);
        dst += piece;
        bytes -= piece;
    }
    return CUDA_SUCCESS;
}

CUresult sim_execute(const struct sim_op *op)
{
    const struct sim_shape *shape = &op->shape;
    const char *snapshot = op->snapshot;
    for (size_t z = 0; z < shape->depth; z++)
        for (size_t y = 0; y < shape->height; y++) {
            uintptr_t dst = op->dst + z * shape->dst_plane + y * shape->dst_pitch;
            uintptr_t src = op->src + z * shape->src_plane + y * shape->src_pitch;
            CUresult result = op->type == SIM_OP_SET
                                  ? fill_row(dst, shape->width, op->pattern, op->pattern_bytes)
                                  : move_row(dst, src, snapshot, shape->width);
            if (result != CUDA_SUCCESS)
                return result;
            if (snapshot)
                snapshot += shape->width;
        }
    return CUDA_SUCCESS;
}

static bool is_pageable(uintptr_t address)
{
    return !sim_range_find(address);
}

static bool is_plain_device(uintptr_t address)
{
    struct sim_range *range = sim_range_find(address);
    return range && !sim_range_is_host(range) && range->kind != SIM_KIND_MANAGED &&
           !range->sync_memops; // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS makes synchronous calls wait
}

static bool is_on_host(uintptr_t address)
{
    const struct sim_range *range = sim_range_find(address);
    return !range || sim_range_is_host(range);
}

static void *take_snapshot(const struct sim_op *op)
{
    const struct sim_shape *shape = &op->shape;
    char *copy = malloc(shape->width * shape->height * shape->depth);
    char *at = copy;
    for (size_t z = 0; copy && z < shape->depth; z++)
        for (size_t y = 0; y < shape->height; y++) {
            uintptr_t row = op->src + z * shape->src_plane + y * shape->src_pitch;
            memcpy(at, sim_pointer(row), shape->width);
            at += shape->width;
        }
    return copy;
}

static CUresult check_rows(uintptr_t address, const struct sim_shape *shape, bool is_dst,
                           int device, enum sim_side side)
{
    size_t pitch = is_dst ? shape->dst_pitch : shape->src_pitch;
    size_t plane = is_dst ? shape->dst_plane : shape->src_plane;
    for (size_t z = 0; z < shape->depth; z++)
        for (size_t y = 0; y < shape->height; y++) {
            CUresult result =
                sim_check(address + z * plane + y * pitch, shape->width, device, side, is_dst);
            if (result != CUDA_SUCCESS)
                return result;
        }
    return CUDA_SUCCESS;
}

CUresult sim_submit_copy(CUstream handle, struct sim_op *op, enum sim_side dst_side,
                         enum sim_side src_side, bool async)
{
    CUstream stream = sim_stream_get(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const struct sim_shape *shape = &op->shape;
    op->type = SIM_OP_COPY;
    op->device = stream->ctx->device;
    CUresult result = check_rows(op->dst, shape, true, op->device, dst_side);
    if (result == CUDA_SUCCESS)
        result = check_rows(op->src, shape, false, op->device, src_side);
    size_t bytes = shape->width * shape->height * shape->depth;
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    if (is_on_host(op->dst) != is_on_host(op->src))
        sim_count_host_copy();
    if (!async) // the driver's manual: a copy inside device memory does not block the host
        return sim_submit(stream, op, !is_plain_device(op->dst) || !is_plain_device(op->src));
    bool wait = is_pageable(op->dst);
    if (!wait && is_pageable(op->src)) {
        op->snapshot = bytes <= SNAPSHOT_BYTES ? take_snapshot(op) : NULL;
        wait = !op->snapshot;
    }
    return sim_submit(stream, op, wait);
}

CUresult sim_submit_set(CUstream handle, struct sim_op *op, bool async)
{
    CUstream stream = sim_stream_get(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    op->type = SIM_OP_SET;
    op->device = stream->ctx->device;
    if (op->dst % op->pattern_bytes || op->shape.dst_pitch % op->pattern_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_range *range = sim_range_find(op->dst);
    if (range && !sim_range_is_open(range, stream->ctx)) // copies may reach more
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_rows(op->dst, &op->shape, true, op->device, SIM_SIDE_DEVICE);
    if (result != CUDA_SUCCESS || !op->shape.width || !op->shape.height)
        return result;
    return sim_submit(stream, op, !async && !is_plain_device(op->dst));
}
