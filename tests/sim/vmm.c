// SPDX-License-Identifier: BSD-3-Clause
// Virtual memory management: reserved addresses, memory objects, and the mappings between them.
#include "config.h"

#include "sim.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reservation {
    uintptr_t base;
    size_t bytes;
};

static void *reservations;
// Freed reservations, newest last. The next reservation of that size gets the same addresses.
static struct reservation freed[16];
static unsigned freed_count;

static int compare(const void *left, const void *right)
{
    const struct reservation *a = left;
    const struct reservation *b = right;
    if (a->base + a->bytes <= b->base)
        return -1;
    return b->base + b->bytes <= a->base ? 1 : 0;
}

static struct reservation *find(uintptr_t address)
{
    const struct reservation key = {address, 1};
    struct reservation **node = tfind(&key, &reservations, compare);
    return node ? *node : NULL;
}

bool sim_reservation_covers(uintptr_t address)
{
    return find(address) != NULL;
}

bool sim_reservation_bounds(uintptr_t address, uintptr_t *base, size_t *bytes)
{
    const struct reservation *reservation = find(address);
    if (!reservation)
        return false;
    *base = reservation->base;
    *bytes = reservation->bytes;
    return true;
}

static bool aligned(uintptr_t value)
{
    return value % SIM_GRANULARITY == 0;
}

static uintptr_t recall_address(size_t bytes, size_t alignment)
{
    for (unsigned i = freed_count; i-- > 0;)
        if (freed[i].bytes == bytes && freed[i].base % alignment == 0) {
            uintptr_t base = freed[i].base;
            memmove(&freed[i], &freed[i + 1], (--freed_count - i) * sizeof(freed[0]));
            return base;
        }
    return 0;
}

static void remember_address(uintptr_t base, size_t bytes)
{
    if (freed_count == sizeof(freed) / sizeof(freed[0]))
        memmove(&freed[0], &freed[1], --freed_count * sizeof(freed[0]));
    freed[freed_count++] = (struct reservation){base, bytes};
}

CUresult sim_vmm_granularity(size_t *bytes, const CUmemAllocationProp *prop,
                             CUmemAllocationGranularity_flags option)
{
    if (!bytes || !prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = SIM_GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult sim_vmm_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                         unsigned long long flags)
{
    if (!address || !bytes || !aligned(bytes) || flags || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < SIM_GRANULARITY)
        alignment = SIM_GRANULARITY;
    struct reservation *reservation = malloc(sizeof(*reservation));
    if (!reservation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!hint || hint % alignment)
        hint = recall_address(bytes, alignment);
    void *base = sim_reserve(bytes, alignment, hint);
    if (!base)
        goto free_reservation;
    *reservation = (struct reservation){(uintptr_t)base, bytes};
    if (!tsearch(reservation, &reservations, compare))
        goto free_base;
    *address = reservation->base;
    return CUDA_SUCCESS;
free_base:
    sim_unreserve(base, bytes);
free_reservation:
    free(reservation);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_vmm_unreserve(CUdeviceptr address, size_t bytes)
{
    struct reservation *reservation = find(address);
    if (!reservation || reservation->base != address || reservation->bytes != bytes ||
        sim_range_overlap(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    tdelete(reservation, &reservations, compare);
    free(reservation);
    sim_unreserve(sim_pointer(address), bytes);
    remember_address(address, bytes);
    return CUDA_SUCCESS;
}

struct sim_memory *sim_memory_wrap(struct sim_backing *backing, const CUmemAllocationProp *prop)
{
    struct sim_memory *memory = calloc(1, sizeof(*memory));
    if (!memory || !sim_backing_open(backing, 0, backing->bytes)) {
        free(memory);
        return NULL;
    }
    memory->object.type = SIM_MEMORY;
    memory->backing = *backing;
    memory->prop = *prop;
    memory->handles = 1;
    memory->charged = -1;
    if (!sim_object_add(&memory->object)) {
        free(memory);
        return NULL;
    }
    return memory;
}

void sim_memory_drop(struct sim_memory *memory)
{
    if (memory->handles || memory->mappings)
        return;
    if (memory->charged >= 0)
        sim_budget_give(memory->charged, memory->backing.bytes);
    sim_object_remove(&memory->object);
    sim_backing_close(&memory->backing);
    free(memory);
}

static struct sim_memory *memory_find(CUmemGenericAllocationHandle handle)
{
    struct sim_memory *memory = sim_object_find(sim_pointer(handle), SIM_MEMORY);
    return memory && memory->handles ? memory : NULL;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.id < 0 || prop->location.id >= sim_knobs()->visible_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((unsigned)prop->requestedHandleTypes & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC))
        return CUDA_SUCCESS;
    if (!sim_knobs()->fabric)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_knobs()->imex ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

CUresult sim_vmm_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                        const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (!handle || !bytes || !aligned(bytes) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    int device = prop->location.id;
    if (!sim_budget_take(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_backing backing;
    if (!sim_backing_create(bytes, sim_knobs()->visible[device],
                            (unsigned)prop->requestedHandleTypes, &backing))
        goto give_budget;
    struct sim_memory *memory = sim_memory_wrap(&backing, prop);
    if (!memory)
        goto close_backing;
    memory->charged = device;
    *handle = (uintptr_t)memory;
    return CUDA_SUCCESS;
close_backing:
    sim_backing_close(&backing);
give_budget:
    sim_budget_give(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_vmm_release(CUmemGenericAllocationHandle handle)
{
    struct sim_memory *memory = memory_find(handle);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    memory->handles--;
    sim_memory_drop(memory);
    return CUDA_SUCCESS;
}

// Maps the bytes at the application's addresses where the CPU may access them, or unmaps them where
// `memory` is NULL.
static bool expose(uintptr_t address, size_t bytes, const struct sim_memory *memory)
{
    if (!sim_knobs()->host_access)
        return true;
    void *at = sim_pointer(address);
    int access = sim_knobs()->record ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *there = memory ? mmap(at, bytes, access, MAP_SHARED | MAP_FIXED, memory->backing.fd, 0)
                         : mmap(at, bytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return there != MAP_FAILED;
}

CUresult sim_vmm_map(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct sim_memory *memory = memory_find(handle);
    struct reservation *place = find(address);
    if (!memory || !place || flags || !bytes || !aligned(address))
        return CUDA_ERROR_INVALID_VALUE;
    if (offset || bytes != memory->backing.bytes)
        return CUDA_ERROR_NOT_SUPPORTED; // parts of a memory object cannot be mapped
    if (bytes > place->base + place->bytes - address || sim_range_overlap(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range content = {
        .base = address,
        .bytes = bytes,
        .alias = memory->backing.alias,
        .kind = SIM_KIND_VMM,
        .device = memory->prop.location.id,
        .memory = memory,
    };
    struct sim_range *range = sim_range_add(&content);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!expose(address, bytes, memory)) {
        sim_range_remove(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->mappings++;
    return CUDA_SUCCESS;
}

// Returns true when whole mappings, and nothing else, fill [address, address + bytes).
static bool exactly_mapped(uintptr_t address, size_t bytes)
{
    while (bytes) {
        struct sim_range *range = sim_range_find(address);
        if (!range || range->kind != SIM_KIND_VMM || range->base != address || range->bytes > bytes)
            return false;
        address += range->bytes;
        bytes -= range->bytes;
    }
    return true;
}

// Returns true when [address, address + bytes) cuts no mapping in two.
static bool covers_whole_mappings(uintptr_t address, size_t bytes)
{
    struct sim_range *first = sim_range_find(address);
    struct sim_range *last = sim_range_find(address + bytes - 1);
    return (!first || first->base == address) &&
           (!last || last->base + last->bytes == address + bytes);
}

CUresult sim_vmm_unmap(CUdeviceptr address, size_t bytes)
{
    sim_run_everything();
    struct reservation *place = find(address);
    if (!place || !bytes || !aligned(address) || !aligned(bytes) ||
        bytes > place->base + place->bytes - address || !covers_whole_mappings(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    expose(address, bytes, NULL);
    struct sim_range *range;
    while ((range = sim_range_overlap(address, bytes))) {
        struct sim_memory *memory = range->memory;
        sim_range_remove(range);
        memory->mappings--;
        sim_memory_drop(memory);
    }
    return CUDA_SUCCESS;
}

CUresult sim_vmm_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                            size_t count)
{
    if (!access || !count || !bytes || !exactly_mapped(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (access[i].location.id < 0 || access[i].location.id >= sim_knobs()->visible_count)
            return CUDA_ERROR_INVALID_DEVICE;
        if ((unsigned)access[i].flags > CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (uintptr_t at = address; at < address + bytes;) {
        struct sim_range *range = sim_range_find(at);
        for (size_t i = 0; i < count; i++)
            range->access[access[i].location.id] = (unsigned char)access[i].flags;
        at += range->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult sim_vmm_get_access(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr address)
{
    struct sim_range *range = sim_range_find(address);
    if (!flags || !location || !range || sim_range_is_host(range) ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id < 0 ||
        location->id >= sim_knobs()->visible_count)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range->access[location->id]; // 0 for memory of other kinds, whoever may access it
    return CUDA_SUCCESS;
}

CUresult sim_vmm_retain(CUmemGenericAllocationHandle *handle, void *address)
{
    struct sim_range *range = sim_range_find((uintptr_t)address);
    if (!handle || !range || range->kind != SIM_KIND_VMM)
        return CUDA_ERROR_INVALID_VALUE;
    range->memory->handles++;
    *handle = (uintptr_t)range->memory;
    return CUDA_SUCCESS;
}

CUresult sim_vmm_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    struct sim_memory *memory = memory_find(handle);
    if (!prop || !memory)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = memory->prop;
    return CUDA_SUCCESS;
}
