// SPDX-License-Identifier: BSD-3-Clause
// Memory of other processes: file descriptors and fabric handles of memory objects, and legacy IPC
// handles of cuMemAlloc memory. Behind each handle is the memory file of the exporter. It is
// reached as a descriptor or through /proc, while the exporter lives and has not freed it.
#include "config.h"

#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FABRIC_MAGIC 0x4d49534243524246ull
#define IPC_MAGIC    0x4d49534350494246ull

// Content of a fabric handle or a legacy IPC handle; both have 64 bytes.
struct ticket {
    uint64_t magic;
    int32_t pid, fd;
    uint64_t unique; // unique number of the memory file
    uint64_t offset, bytes;
    uint64_t buffer_id;
    int32_t slot, spare;
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUmemFabricHandle), "fits a fabric handle");
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "fits an IPC handle");

// The heap of another process. It is mapped once, however many of its blocks are open.
struct sim_import {
    struct sim_import *next;
    struct sim_backing backing;
    unsigned refs;
};
static struct sim_import *imports;

static int open_other(const struct ticket *ticket)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

CUresult sim_share_export(void *out, CUmemGenericAllocationHandle handle,
                          CUmemAllocationHandleType type, unsigned long long flags)
{
    struct sim_memory *memory = sim_object_find(sim_pointer(handle), SIM_MEMORY);
    if (!out || !memory || !memory->handles || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(type & memory->prop.requestedHandleTypes))
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        int fd = fcntl(memory->backing.fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
            return CUDA_ERROR_OPERATING_SYSTEM;
        *(int *)out = fd;
        return CUDA_SUCCESS;
    }
    if (type != CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_INVALID_VALUE;
    const struct ticket ticket = {
        .magic = FABRIC_MAGIC,
        .pid = getpid(),
        .fd = memory->backing.fd,
        .unique = memory->backing.trailer->unique,
        .bytes = memory->backing.bytes,
    };
    memset(out, 0, sizeof(CUmemFabricHandle));
    memcpy(out, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

int sim_ordinal_of(int physical)
{
    for (int i = 0; i < sim_knobs()->visible_count; i++)
        if (sim_knobs()->visible[i] == physical)
            return i;
    return -1;
}

// Returns whether a fabric handle works here: some visible device must be in its clique and
// cluster.
static bool same_fabric(const struct sim_trailer *trailer)
{
    const struct sim_knobs *knobs = sim_knobs();
    for (int i = 0; i < knobs->visible_count; i++) {
        const struct sim_fabric *own = &knobs->fabrics[knobs->visible[i]];
        if (trailer->clique == own->clique &&
            memcmp(trailer->cluster_uuid, own->cluster_uuid, sizeof(own->cluster_uuid)) == 0)
            return true;
    }
    return false;
}

static CUresult import_backing(void *in, CUmemAllocationHandleType type, struct sim_backing *out)
{
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        // The descriptor comes in place of the pointer. The caller still owns it.
        int fd = fcntl((int)(intptr_t)in, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
            return CUDA_ERROR_UNKNOWN;
        return sim_backing_adopt(fd, out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (type != CU_MEM_HANDLE_TYPE_FABRIC || !in)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_knobs()->fabric)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!sim_knobs()->imex)
        return CUDA_ERROR_NOT_PERMITTED;
    struct ticket ticket;
    memcpy(&ticket, in, sizeof(ticket));
    if (ticket.magic != FABRIC_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = open_other(&ticket);
    if (fd < 0 || !sim_backing_adopt(fd, out))
        return CUDA_ERROR_INVALID_VALUE;
    // The number may by now belong to another file.
    if (out->trailer->unique == ticket.unique && same_fabric(out->trailer))
        return CUDA_SUCCESS;
    sim_backing_close(out);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_share_import(CUmemGenericAllocationHandle *handle, void *in,
                          CUmemAllocationHandleType type)
{
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_backing backing;
    CUresult result = import_backing(in, type, &backing);
    if (result != CUDA_SUCCESS)
        return result;
    if (!(backing.trailer->handle_types & type)) {
        sim_backing_close(&backing);
        return CUDA_ERROR_INVALID_VALUE;
    }
    int ordinal = sim_ordinal_of((int)backing.trailer->physical);
    CUcontext ctx = sim_context_current();
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE, // imported memory is not passed on
        // The importing device stands in for one that this process does not see.
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                     .id = ordinal >= 0 ? ordinal
                           : ctx        ? ctx->device
                                        : 0},
    };
    struct sim_memory *memory = sim_memory_wrap(&backing, &prop);
    if (!memory) {
        sim_backing_close(&backing);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

// Marks a block as exported in the trailer, where importers look, so that they notice when it is
// freed.
static bool publish(struct sim_trailer *trailer, struct sim_range *range)
{
    for (int i = 0; range->ipc_slot < 0 && i < SIM_TRAILER_SLOTS; i++)
        if (atomic_load(&trailer->slots[i]) == 0) {
            atomic_store(&trailer->slots[i], range->id);
            range->ipc_slot = i;
        }
    return range->ipc_slot >= 0;
}

CUresult sim_ipc_get(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct sim_range *range = sim_range_find(address);
    if (!handle || !range || range->kind != SIM_KIND_MALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_heap *heap = sim_heap_get(range->device);
    if (!publish(heap->backing.trailer, range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct ticket ticket = {
        .magic = IPC_MAGIC,
        .pid = getpid(),
        .fd = heap->backing.fd,
        .unique = heap->backing.trailer->unique,
        .offset = range->base - heap->base,
        .bytes = range->bytes,
        .buffer_id = range->id,
        .slot = range->ipc_slot,
    };
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

static struct sim_import *import_get(const struct ticket *ticket)
{
    for (struct sim_import *at = imports; at; at = at->next)
        if (at->backing.trailer->unique == ticket->unique) {
            at->refs++;
            return at;
        }
    struct sim_backing backing;
    int fd = open_other(ticket);
    if (fd < 0 || !sim_backing_adopt(fd, &backing))
        return NULL;
    struct sim_import *import = calloc(1, sizeof(*import));
    if (!import || backing.trailer->unique != ticket->unique) {
        sim_backing_close(&backing);
        free(import);
        return NULL;
    }
    import->backing = backing;
    import->refs = 1;
    import->next = imports;
    imports = import;
    return import;
}

static void import_put(struct sim_import *import)
{
    if (--import->refs)
        return;
    struct sim_import **link = &imports;
    while (*link != import)
        link = &(*link)->next;
    *link = import->next;
    sim_backing_close(&import->backing);
    free(import);
}

static bool still_there(const struct sim_import *import, const struct ticket *ticket)
{
    const struct sim_trailer *trailer = import->backing.trailer;
    return ticket->slot >= 0 && ticket->slot < SIM_TRAILER_SLOTS &&
           atomic_load(&trailer->slots[ticket->slot]) == ticket->buffer_id &&
           ticket->offset < import->backing.bytes &&
           ticket->bytes <= import->backing.bytes - ticket->offset;
}

static const struct ticket *wanted;
static struct sim_range *opened;

static void match_opened(struct sim_range *range)
{
    if (range->kind == SIM_KIND_IPC && range->origin == wanted->buffer_id &&
        range->device == sim_context_here()->device &&
        range->import->backing.trailer->unique == wanted->unique)
        opened = range;
}

// Gives a block of another process inaccessible addresses of its own, with its offset in a page.
static struct sim_range *open_block(struct sim_import *import, const struct ticket *ticket)
{
    size_t lead = ticket->offset % SIM_PAGE;
    size_t span = (lead + ticket->bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    char *place = sim_reserve(span, SIM_GRANULARITY, 0);
    if (!place)
        return NULL;
    if (!sim_backing_open(&import->backing, ticket->offset, ticket->bytes))
        goto unreserve;
    int access = sim_knobs()->record ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (sim_knobs()->host_access &&
        mmap(place, span, access, MAP_SHARED | MAP_FIXED, import->backing.fd,
             (off_t)(ticket->offset - lead)) == MAP_FAILED)
        goto unreserve;
    CUcontext ctx = sim_context_here();
    struct sim_range content = {
        .base = (uintptr_t)place + lead,
        .bytes = ticket->bytes,
        .alias = import->backing.alias + ticket->offset,
        .kind = SIM_KIND_IPC,
        .device = ctx->device, // wherever the memory lies
        .ctx = ctx,
        .import = import,
        .origin = ticket->buffer_id,
        .opens = 1,
    };
    struct sim_range *range = sim_range_add(&content);
    if (range)
        return range;
unreserve:
    sim_unreserve(place, span);
    return NULL;
}

CUresult sim_ipc_open(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    struct ticket ticket;
    memcpy(&ticket, &handle, sizeof(ticket));
    if (!address || (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ||
        ticket.magic != IPC_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT; // the exporting process cannot open it
    wanted = &ticket;
    opened = NULL;
    sim_range_walk(match_opened);
    if (opened && opened->ctx != sim_context_current())
        return CUDA_ERROR_INVALID_HANDLE; // one context of a device can open it
    if (opened) {
        opened->opens++;
        *address = opened->base;
        return CUDA_SUCCESS;
    }
    struct sim_import *import = import_get(&ticket);
    if (!import)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_range *range = still_there(import, &ticket) ? open_block(import, &ticket) : NULL;
    if (!range) {
        import_put(import);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address = range->base;
    return CUDA_SUCCESS;
}

static void close_block(struct sim_range *range)
{
    size_t lead = range->base % SIM_PAGE;
    size_t span = (lead + range->bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    void *place = sim_pointer(range->base - lead);
    import_put(range->import);
    sim_range_remove(range);
    sim_unreserve(place, span);
}

CUresult sim_ipc_close(CUdeviceptr address)
{
    sim_run_everything();
    struct sim_range *range = sim_range_find(address);
    if (!range || range->kind != SIM_KIND_IPC || range->base != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (--range->opens == 0)
        close_block(range);
    return CUDA_SUCCESS;
}

static CUcontext ending;

static void match_ending(struct sim_range *range)
{
    if (range->kind == SIM_KIND_IPC && range->ctx == ending)
        opened = range;
}

void sim_ipc_end(CUcontext ctx)
{
    do {
        ending = ctx;
        opened = NULL;
        sim_range_walk(match_ending);
        if (opened)
            close_block(opened);
    } while (opened);
}
