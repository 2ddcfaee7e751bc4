// SPDX-License-Identifier: BSD-3-Clause
// Memory pools and stream-ordered allocation. A block can be used from the moment it is asked for.
// It goes back when its stream gets to the free.
#include "config.h"

#include "sim.h"

#include <stdlib.h>
#include <string.h>

static CUmemoryPool defaults[SIM_MAX_DEVICES];
static CUmemoryPool chosen[SIM_MAX_DEVICES]; // chosen by cuDeviceSetMemPool

static bool device_known(int device)
{
    return device >= 0 && device < sim_knobs()->visible_count;
}

static CUmemoryPool pool_new(const CUmemPoolProps *props)
{
    CUmemoryPool pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    pool->object.type = SIM_POOL;
    pool->props = *props;
    pool->device = props->location.id;
    pool->access[pool->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int i = 1; i <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++)
        pool->values[i] = 1;
    if (!sim_object_add(&pool->object)) {
        free(pool);
        return NULL;
    }
    return pool;
}

static CUmemoryPool default_pool(int device)
{
    if (!defaults[device]) {
        const CUmemPoolProps props = {
            .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        };
        defaults[device] = pool_new(&props);
        if (defaults[device])
            defaults[device]->is_default = true;
    }
    return defaults[device];
}

static CUmemoryPool current_pool(int device)
{
    return chosen[device] ? chosen[device] : default_pool(device);
}

static CUmemoryPool pool_find(CUmemoryPool handle)
{
    CUmemoryPool pool = sim_object_find(handle, SIM_POOL);
    return pool && !pool->dying ? pool : NULL;
}

CUresult sim_pool_default(CUmemoryPool *pool, CUdevice device)
{
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = default_pool(device);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_pool_of_device(CUmemoryPool *pool, CUdevice device)
{
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = current_pool(device);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_pool_set_device(CUdevice device, CUmemoryPool handle)
{
    CUmemoryPool pool = pool_find(handle);
    if (!device_known(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    chosen[device] = pool;
    return CUDA_SUCCESS;
}

CUresult sim_pool_create(CUmemoryPool *out, const CUmemPoolProps *props)
{
    if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_known(props->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (props->handleTypes)
        return CUDA_ERROR_NOT_SUPPORTED; // pools shared between processes are not simulated
    CUmemoryPool pool = pool_new(props);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = pool;
    return CUDA_SUCCESS;
}

static void pool_end_if_unused(CUmemoryPool pool)
{
    if (!pool->dying || pool->live)
        return;
    sim_object_remove(&pool->object);
    free(pool);
}

CUresult sim_pool_destroy(CUmemoryPool handle)
{
    CUmemoryPool pool = pool_find(handle);
    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (chosen[pool->device] == pool)
        chosen[pool->device] = NULL;
    pool->dying = true; // blocks that are still in use keep it alive
    pool_end_if_unused(pool);
    return CUDA_SUCCESS;
}

CUresult sim_pool_trim(CUmemoryPool handle, size_t keep_bytes)
{
    (void)keep_bytes; // nothing is held back here
    return pool_find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_pool_get(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CUmemoryPool pool = pool_find(handle);
    if (!pool || !value || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t number = pool->values[attribute];
    if (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(value, &number, sizeof(number));
    else
        *(int *)value = (int)number;
    return CUDA_SUCCESS;
}

CUresult sim_pool_set(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CUmemoryPool pool = pool_find(handle);
    if (!pool || !value || attribute < 1 || attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t number;
    if (attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->values[attribute] = *(int *)value != 0;
        return CUDA_SUCCESS;
    }
    memcpy(&number, value, sizeof(number));
    bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && (!high || number))
        return CUDA_ERROR_INVALID_VALUE; // the high-water marks can only be reset
    pool->values[attribute] = high ? pool->values[attribute - 1] : number;
    return CUDA_SUCCESS;
}

CUresult sim_pool_set_access(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count)
{
    CUmemoryPool pool = pool_find(handle);
    if (!pool || !access)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !device_known(access[i].location.id))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        pool->access[access[i].location.id] = (unsigned char)access[i].flags;
    return CUDA_SUCCESS;
}

CUresult sim_pool_get_access(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
    CUmemoryPool pool = pool_find(handle);
    if (!flags || !pool || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !device_known(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = (CUmemAccess_flags)pool->access[location->id];
    return CUDA_SUCCESS;
}

static void account(CUmemoryPool pool, ptrdiff_t bytes)
{
    for (int i = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT; i < CU_MEMPOOL_ATTR_USED_MEM_HIGH; i += 2) {
        pool->values[i] += (uint64_t)bytes;
        if (pool->values[i] > pool->values[i + 1])
            pool->values[i + 1] = pool->values[i];
    }
}

// Runs a stream up to its frees of blocks of this size. The driver hands a block that was freed
// earlier in the same stream to the next request.
static void run_frees(CUstream stream, CUmemoryPool pool, size_t bytes)
{
    uint64_t last = 0;
    for (struct sim_op *op = stream->head; op; op = op->next) {
        struct sim_range *range = op->type == SIM_OP_FREE ? sim_range_find(op->dst) : NULL;
        if (range && range->pool == pool && range->bytes == bytes)
            last = op->seq;
    }
    if (last)
        sim_stream_run(stream, last);
}

static CUresult pool_alloc(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct sim_range *range;
    if (!address || !pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->props.maxSize &&
        pool->values[CU_MEMPOOL_ATTR_USED_MEM_CURRENT] + bytes > pool->props.maxSize)
        return CUDA_ERROR_OUT_OF_MEMORY;
    run_frees(stream, pool, bytes);
    CUresult result = sim_block_take(SIM_KIND_POOL, pool->device, NULL, bytes, &range);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        // The driver would wait for blocks whose free is still queued, too.
        sim_run_everything();
        result = sim_block_take(SIM_KIND_POOL, pool->device, NULL, bytes, &range);
    }
    if (result != CUDA_SUCCESS)
        return result;
    range->pool = pool;
    pool->live++;
    account(pool, (ptrdiff_t)bytes);
    *address = range->base;
    return CUDA_SUCCESS;
}

CUresult sim_pool_alloc(CUdeviceptr *address, size_t bytes, CUstream handle)
{
    CUstream stream = sim_stream_get(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    return pool_alloc(address, bytes, current_pool(stream->ctx->device), stream);
}

CUresult sim_pool_alloc_from(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle)
{
    CUstream stream = sim_stream_get(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    return pool_alloc(address, bytes, pool_find(pool), stream);
}

CUresult sim_free_pool_range(CUdeviceptr address)
{
    struct sim_range *range = sim_range_find(address);
    if (!range || range->base != address || range->kind != SIM_KIND_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool pool = range->pool;
    pool->live--;
    account(pool, -(ptrdiff_t)range->bytes);
    sim_block_give(range);
    pool_end_if_unused(pool);
    return CUDA_SUCCESS;
}

CUresult sim_pool_free(CUdeviceptr address, CUstream handle)
{
    CUstream stream = sim_stream_get(handle);
    struct sim_range *range = sim_range_find(address);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!range || range->base != address || range->freed)
        return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == SIM_KIND_MALLOC)
        return sim_mem_free(address); // allowed by the driver; it waits, which is stricter
    if (range->kind != SIM_KIND_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_op op = {.type = SIM_OP_FREE, .dst = address};
    range->freed = true;
    CUresult result = sim_submit(stream, &op, false);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        range->freed = false;
    return result;
}
