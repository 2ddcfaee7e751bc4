// SPDX-License-Identifier: BSD-3-Clause
// Pointer attributes: one description of a range, answered field by field.
#include "config.h"

#include "sim.h"

#include <string.h>

// Stores a value in the width that the driver uses for the attribute.
static void put32(void *data, uint32_t value)
{
    memcpy(data, &value, sizeof(value));
}

static void put64(void *data, uint64_t value)
{
    memcpy(data, &value, sizeof(value));
}

// Returns the bytes of an attribute's value, 0 when there is no such attribute.
static size_t width_of(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    default:
        return 0;
    }
}

static unsigned access_of(const struct sim_range *range)
{
    CUcontext ctx = sim_context_current();
    if (range->kind != SIM_KIND_VMM)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    return ctx ? range->access[ctx->device] : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

static bool is_open_here(const struct sim_range *range)
{
    CUcontext ctx = sim_context_current();
    return sim_range_is_host(range) || (ctx && sim_range_is_open(range, ctx));
}

static uint32_t narrow_value(const struct sim_range *range, CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return sim_range_is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return range->sync_memops || range->kind == SIM_KIND_MANAGED;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return range->kind == SIM_KIND_MANAGED;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return (uint32_t)range->device;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return range->kind == SIM_KIND_MALLOC;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return 1;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return range->kind == SIM_KIND_MALLOC ||
               (range->memory && range->memory->prop.allocFlags.gpuDirectRDMACapable);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return access_of(range);
    default:
        return 0;
    }
}

// Finds the bounds of a range. For mapped memory they are the whole reservation, whatever else is
// mapped there.
static void range_bounds(const struct sim_range *range, uintptr_t *base, size_t *bytes)
{
    *base = range->base;
    *bytes = range->bytes;
    if (range->kind == SIM_KIND_VMM)
        (void)sim_reservation_bounds(range->base, base, bytes);
}

// Returns the bytes of the mapping that holds a range. Allocations share mappings of whole
// granules.
static uint64_t mapping_bytes(const struct sim_range *range)
{
    uintptr_t first = range->base & ~(SIM_GRANULARITY - 1);
    uintptr_t end = range->base + range->bytes;
    return (end - first + SIM_GRANULARITY - 1) & ~(SIM_GRANULARITY - 1);
}

static uint64_t wide_value(const struct sim_range *range, CUpointer_attribute attribute,
                           uintptr_t address)
{
    uintptr_t range_base;
    size_t range_bytes;
    range_bounds(range, &range_base, &range_bytes);
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return (uintptr_t)range->ctx;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return is_open_here(range) ? address : 0;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return sim_range_is_host(range) || range->kind == SIM_KIND_MANAGED ? address : 0;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return range->id;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return range->memory ? range->memory->backing.trailer->unique : range->id;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return range_base;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return range->base & ~(SIM_GRANULARITY - 1);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return range_bytes;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return mapping_bytes(range);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return range->memory ? (uint64_t)range->memory->prop.requestedHandleTypes : 0;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return (uintptr_t)range->pool;
    default:
        return 0;
    }
}

static void answer(const struct sim_range *range, CUpointer_attribute attribute, uintptr_t address,
                   void *data)
{
    if (width_of(attribute) == 4)
        put32(data, narrow_value(range, attribute));
    else
        put64(data, wide_value(range, attribute, address));
}

// Answers for an address that the driver does not know, which is no error where several attributes
// are asked for. Driver 580 on an H200 then leaves the two range attributes unwritten, unless the
// address is at least reserved.
static void answer_unknown(CUpointer_attribute attribute, uintptr_t address, void *data)
{
    uintptr_t base;
    size_t bytes;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        put64(data, address);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put32(data, (uint32_t)CU_DEVICE_INVALID);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        if (sim_reservation_bounds(address, &base, &bytes))
            put64(data, base);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        if (sim_reservation_bounds(address, &base, &bytes))
            put64(data, bytes);
        break;
    default:
        if (width_of(attribute) == 4)
            put32(data, 0);
        else
            put64(data, 0);
    }
}

CUresult sim_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct sim_range *range = sim_range_live(address);
    if (!data || !range || !width_of(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    answer(range, attribute, address, data);
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && !sim_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    // Memory that has no host or device pointer gives a null pointer. Asked for alone it is an
    // error, too.
    bool pointer = attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
                   attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
    return pointer && !wide_value(range, attribute, address) ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_SUCCESS;
}

CUresult sim_pointer_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (!width_of(attributes[i]) || !data[i])
            return CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range = sim_range_live(address);
    for (unsigned i = 0; i < count; i++)
        if (range)
            answer(range, attributes[i], address, data[i]);
        else
            answer_unknown(attributes[i], address, data[i]);
    return CUDA_SUCCESS;
}

CUresult sim_pointer_set_attribute(const void *value, CUpointer_attribute attribute,
                                   CUdeviceptr address)
{
    struct sim_range *range = sim_range_live(address);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !range)
        return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == SIM_KIND_VMM)
        return CUDA_ERROR_NOT_SUPPORTED;
    unsigned on;
    memcpy(&on, value, sizeof(on));
    range->sync_memops = on != 0;
    return CUDA_SUCCESS;
}
