// SPDX-License-Identifier: BSD-3-Clause
// Memory of the plain kinds: cuMemAlloc, managed, and page-locked host memory.
#include "config.h"

#include "pins.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)512)

// Rounds a size up. An allocation that can be protected apart from others takes whole pages.
static size_t round_up(size_t bytes)
{
    size_t alignment = sim_knobs()->record ? SIM_PAGE : ALIGNMENT;
    return (bytes + alignment - 1) & ~(alignment - 1);
}

CUresult sim_block_take(enum sim_kind kind, int device, CUcontext ctx, size_t bytes,
                        struct sim_range **out)
{
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    size_t rounded = round_up(bytes);
    if (!sim_budget_take(device, rounded))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_heap *heap = sim_heap_get(kind == SIM_KIND_MANAGED ? SIM_HEAP_MANAGED : device);
    uintptr_t base = heap ? sim_heap_take(heap, rounded, round_up(1)) : 0;
    if (!base)
        goto give_budget;
    struct sim_range content = {
        .base = base,
        .bytes = bytes,
        .alias = heap->backing.alias + (base - heap->base),
        .kind = kind,
        .device = device,
        .ctx = ctx,
    };
    *out = sim_range_add(&content);
    if (*out)
        return CUDA_SUCCESS;
    sim_heap_give(heap, base, rounded);
give_budget:
    sim_budget_give(device, rounded);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_block_give(struct sim_range *range)
{
    size_t rounded = round_up(range->bytes);
    struct sim_heap *heap =
        sim_heap_get(range->kind == SIM_KIND_MANAGED ? SIM_HEAP_MANAGED : range->device);
    if (range->ipc_slot >= 0)
        atomic_store(&heap->backing.trailer->slots[range->ipc_slot], 0);
    sim_budget_give(range->device, rounded);
    uintptr_t base = range->base;
    sim_range_remove(range);
    sim_heap_give(heap, base, rounded);
}

CUresult sim_mem_info(size_t *available, size_t *total)
{
    if (!available || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *total = sim_knobs()->memory_bytes;
    *available = *total - sim_budget_used(sim_context_here()->device);
    return CUDA_SUCCESS;
}

CUresult sim_mem_alloc(CUdeviceptr *address, size_t bytes)
{
    struct sim_range *range;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext ctx = sim_context_here();
    CUresult result = sim_block_take(SIM_KIND_MALLOC, ctx->device, ctx, bytes, &range);
    if (result == CUDA_SUCCESS)
        *address = range->base;
    return result;
}

CUresult sim_mem_alloc_pitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                             unsigned element)
{
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t rounded = (width + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (rounded < width || height > SIZE_MAX / rounded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_mem_alloc(address, rounded * height);
    if (result == CUDA_SUCCESS)
        *pitch = rounded;
    return result;
}

CUresult sim_mem_alloc_managed(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    struct sim_range *range;
    if (!address || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext ctx = sim_context_here();
    CUresult result = sim_block_take(SIM_KIND_MANAGED, ctx->device, ctx, bytes, &range);
    if (result == CUDA_SUCCESS)
        *address = range->base;
    return result;
}

CUresult sim_mem_free(CUdeviceptr address)
{
    if (!address)
        return CUDA_SUCCESS;
    sim_run_everything();
    struct sim_range *range = sim_range_find(address);
    if (!range || range->base != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == SIM_KIND_POOL)
        return sim_free_pool_range(address);
    if (range->kind != SIM_KIND_MALLOC && range->kind != SIM_KIND_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    sim_block_give(range);
    return CUDA_SUCCESS;
}

CUresult sim_mem_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct sim_range *range = sim_range_live(address);
    if (!range || !sim_range_is_open(range, sim_context_here()))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range->base;
    if (bytes)
        *bytes = range->bytes;
    return CUDA_SUCCESS;
}

CUresult sim_mem_advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                        CUmemLocation location)
{
    (void)advice;
    (void)location;
    struct sim_range *range = sim_range_find(address);
    bool inside = range && bytes && bytes <= range->base + range->bytes - address;
    return inside && range->kind == SIM_KIND_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_mem_prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
                          CUstream stream)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_get(stream))
        return CUDA_ERROR_INVALID_HANDLE;
    return sim_mem_advise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location);
}

// Host memory of the simulator's own: anonymous pages, gone from the process once freed.
static struct frsim_pins pins;

static void count_pinned(size_t bytes)
{
    pins.pins++;
    pins.bytes += bytes;
    pins.most_bytes = pins.bytes > pins.most_bytes ? pins.bytes : pins.most_bytes;
}

static void count_unpinned(size_t bytes)
{
    pins.unpins++;
    pins.bytes -= bytes;
}

struct frsim_pins frsim_pins(void)
{
    return pins;
}

CUresult sim_host_alloc(void **address, size_t bytes, unsigned flags)
{
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    CUcontext ctx = sim_context_here();
    if (!address || !bytes || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIZE_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_range content = {
        .base = (uintptr_t)base,
        .bytes = bytes,
        .alias = base,
        .kind = SIM_KIND_PINNED,
        .device = ctx->device,
        .ctx = ctx,
        .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP,
    };
    if (!sim_range_add(&content)) {
        munmap(base, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    count_pinned(bytes);
    *address = base;
    return CUDA_SUCCESS;
}

CUresult sim_host_alloc_plain(void **address, size_t bytes)
{
    return sim_host_alloc(address, bytes, 0);
}

CUresult sim_host_free(void *address)
{
    if (!address)
        return CUDA_SUCCESS;
    sim_run_everything();
    struct sim_range *range = sim_range_find((uintptr_t)address);
    if (!range || range->base != (uintptr_t)address || range->kind != SIM_KIND_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = range->bytes;
    count_unpinned(bytes);
    sim_range_remove(range);
    munmap(address, bytes);
    return CUDA_SUCCESS;
}

// The real driver locks the pages, so it notices missing ones.
static bool all_mapped(uintptr_t base, size_t bytes)
{
    unsigned char residence[1024];
    const size_t step = sizeof(residence) * SIM_PAGE;
    uintptr_t end = base + bytes;
    for (uintptr_t at = base & ~(SIM_PAGE - 1); at < end; at += step)
        if (mincore(sim_pointer(at), end - at < step ? end - at : step, residence) != 0)
            return false;
    return true;
}

CUresult sim_host_register(void *address, size_t bytes, unsigned flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    CUcontext ctx = sim_context_here();
    uintptr_t base = (uintptr_t)address;
    if (!address || !bytes || bytes > UINTPTR_MAX - base || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (sim_is_driver_address(base))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_range_overlap(base, bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!all_mapped(base, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range content = {
        .base = base,
        .bytes = bytes,
        .alias = address,
        .kind = SIM_KIND_REGISTERED,
        .device = ctx->device,
        .ctx = ctx,
        .flags = flags,
    };
    if (!sim_range_add(&content))
        return CUDA_ERROR_OUT_OF_MEMORY;
    count_pinned(bytes);
    return CUDA_SUCCESS;
}

CUresult sim_host_unregister(void *address)
{
    sim_run_everything();
    struct sim_range *range = sim_range_find((uintptr_t)address);
    if (!range || range->kind != SIM_KIND_REGISTERED)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range->base != (uintptr_t)address)
        return CUDA_ERROR_INVALID_VALUE;
    count_unpinned(range->bytes);
    sim_range_remove(range);
    return CUDA_SUCCESS;
}

CUresult sim_host_device_pointer(CUdeviceptr *device, void *address, unsigned flags)
{
    struct sim_range *range = sim_range_find((uintptr_t)address);
    if (!device || flags || !range || !sim_range_is_host(range))
        return CUDA_ERROR_INVALID_VALUE;
    *device = (uintptr_t)address;
    return CUDA_SUCCESS;
}

CUresult sim_host_flags(unsigned *flags, void *address)
{
    struct sim_range *range = sim_range_find((uintptr_t)address);
    if (!flags || !range || range->kind != SIM_KIND_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range->flags;
    return CUDA_SUCCESS;
}

static CUcontext ending;
static struct sim_range *doomed[256];
static size_t doomed_count;

static void collect_doomed(struct sim_range *range)
{
    bool owned = range->ctx == ending && range->kind != SIM_KIND_POOL &&
                 range->kind != SIM_KIND_VMM && range->kind != SIM_KIND_IPC;
    if (owned && doomed_count < sizeof(doomed) / sizeof(doomed[0]))
        doomed[doomed_count++] = range;
}

static void end_range(struct sim_range *range)
{
    if (range->kind == SIM_KIND_PINNED) {
        void *address = range->alias;
        size_t bytes = range->bytes;
        sim_range_remove(range);
        munmap(address, bytes);
    } else if (range->kind == SIM_KIND_REGISTERED) {
        sim_range_remove(range);
    } else {
        sim_block_give(range);
    }
}

void sim_context_end(CUcontext ctx)
{
    do {
        ending = ctx;
        doomed_count = 0;
        sim_range_walk(collect_doomed);
        for (size_t i = 0; i < doomed_count; i++)
            end_range(doomed[i]);
    } while (doomed_count);
    sim_ipc_end(ctx);
}
