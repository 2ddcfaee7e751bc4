// SPDX-License-Identifier: BSD-3-Clause
// Inside of the simulated CUDA driver: a test double that has no GPU behind it. One lock, taken by
// entry.c around every entry point, guards everything declared here; the exceptions say so.
#ifndef FR_TESTS_SIM_SIM_H
#define FR_TESTS_SIM_SIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_EXPORT      __attribute__((visibility("default")))
#define SIM_MAX_DEVICES 64
#define SIM_PAGE        ((size_t)4096)
#define SIM_GRANULARITY ((size_t)2 << 20)
#define SIM_VERSION     13000
#define SIM_FIRST_BUS   0x10 // PCI bus of physical device 0
#define SIM_DEVICE_NAME "Fabrail simulated device"

// An address as the pointer that it is for the application.
static inline void *sim_pointer(uintptr_t address)
{
    return (void *)address;
}

// What the environment asks for; README.md lists the variables. Read once, before the first call.
struct sim_knobs {
    int devices; // physical
    size_t memory_bytes;
    bool eager, managed_trap, host_access, imex, fabric, nvml, log;
    unsigned long fail_nth; // 0: never
    CUresult fail_code;
    bool count_fabrail_only;
    const char *count_file;
    unsigned clique, fabric_state, fabric_status;
    unsigned char cluster_uuid[16];
    int visible_count;
    int visible[SIM_MAX_DEVICES]; // physical index of each ordinal
};
const struct sim_knobs *sim_knobs(void);
// Fills in the 16 bytes that tell a physical device from all others; the same in every process.
void sim_device_uuid(int physical, unsigned char uuid[16]);
void sim_device_uuid_text(int physical, char text[48]); // "GPU-..."
void sim_device_pci_id(int physical, char *text, size_t bytes);

// Handles: every live stream, event, pool and memory object is in one tree, by address.
enum sim_type { SIM_STREAM = 1, SIM_EVENT, SIM_POOL, SIM_MEMORY };
struct sim_object {
    enum sim_type type;
};
bool sim_object_add(struct sim_object *object);
void sim_object_remove(struct sim_object *object);
// Returns NULL unless `handle` is live and of that type; the handle itself is not dereferenced.
void *sim_object_find(const void *handle, enum sim_type type);

struct CUctx_st {
    struct CUctx_st *next; // of all contexts ever; never freed, so that stale handles are told
    int device;
    bool alive, primary;
    unsigned flags, retained;
    uint64_t id;
    CUresult sticky; // an asynchronous error, reported by every later call
    struct CUstream_st *streams;
    uint64_t peers; // bit a device, peer access enabled
};
extern CUcontext sim_contexts;
// Returns the calling thread's context, or NULL; a destroyed one is returned too.
CUcontext sim_context_current(void);
// The same where the row of entry.def says CTX: then there is one, and it is live.
CUcontext sim_context_here(void) __attribute__((returns_nonnull));
bool sim_context_known(CUcontext ctx); // live
// Drops what a destroyed context owns. Queued work has run.
void sim_context_end(CUcontext ctx);

// A file-backed piece of memory. The trailer behind the data tells other processes what it is.
struct sim_backing {
    int fd;
    char *alias; // where the simulator itself reads and writes
    size_t bytes;
    struct sim_trailer *trailer;
};
#define SIM_TRAILER_SLOTS 4096
struct sim_trailer {
    uint64_t magic, unique;
    uint64_t bytes;
    uint32_t physical, handle_types;
    uint32_t clique, spare;
    unsigned char cluster_uuid[16];
    // Allocations exported by legacy IPC: buffer id of a live one, 0 for a free slot.
    _Atomic uint64_t slots[SIM_TRAILER_SLOTS];
};
#define SIM_TRAILER_BYTES ((sizeof(struct sim_trailer) + SIM_PAGE - 1) & ~(SIM_PAGE - 1))
bool sim_backing_create(size_t bytes, int physical, unsigned handle_types, struct sim_backing *out);
// Lets the simulator at part of the bytes; at first it reaches none but the trailer.
bool sim_backing_open(struct sim_backing *backing, size_t offset, size_t bytes);
// Takes a descriptor over (also on failure) after checking that a simulator made it.
bool sim_backing_adopt(int fd, struct sim_backing *out);
void sim_backing_close(struct sim_backing *backing);
void *sim_reserve(size_t bytes, size_t alignment, uintptr_t hint); // inaccessible addresses
void sim_unreserve(void *address, size_t bytes);
uint64_t sim_unique(void); // differs from that of every other process and call

// Sub-allocation of the memory of one device, or of managed memory.
enum { SIM_HEAP_MANAGED = SIM_MAX_DEVICES, SIM_HEAP_COUNT };
struct sim_heap {
    struct sim_backing backing;
    uintptr_t base;           // user-visible
    size_t span, top, opened; // `opened`: what the simulator may touch of the memory
    bool visible;             // to the CPU, at the application's addresses
    void *free_lists;         // tree of struct sim_free_list, by size
};
struct sim_heap *sim_heap_get(int index); // created on first use; NULL when out of memory
uintptr_t sim_heap_take(struct sim_heap *heap, size_t bytes, size_t alignment);
void sim_heap_give(struct sim_heap *heap, uintptr_t address, size_t bytes);
bool sim_heap_covers(uintptr_t address);
// Bytes in use of each device's memory, against FRSIM_MEMORY.
bool sim_budget_take(int device, size_t bytes);
void sim_budget_give(int device, size_t bytes);
size_t sim_budget_used(int device);

enum sim_kind {
    SIM_KIND_MALLOC,
    SIM_KIND_MANAGED,
    SIM_KIND_POOL,
    SIM_KIND_VMM,
    SIM_KIND_IPC,
    SIM_KIND_PINNED,
    SIM_KIND_REGISTERED,
};
// One allocation or mapping that the driver knows. Ranges never overlap.
struct sim_range {
    uintptr_t base;
    size_t bytes;
    char *alias;
    enum sim_kind kind;
    int device; // ordinal
    CUcontext ctx;
    uint64_t id;
    struct CUmemPoolHandle_st *pool;
    struct sim_memory *memory;             // SIM_KIND_VMM
    unsigned char access[SIM_MAX_DEVICES]; // SIM_KIND_VMM, CU_MEM_ACCESS_FLAGS_PROT_*
    unsigned flags;
    bool sync_memops;
    bool freed;   // by cuMemFreeAsync, which has not run yet
    int ipc_slot; // -1: not exported
    unsigned opens;
    struct sim_import *import; // SIM_KIND_IPC
    uint64_t origin;           // SIM_KIND_IPC, buffer id in the exporting process
};
struct sim_range *sim_range_add(const struct sim_range *content); // copies it, sets the id
void sim_range_remove(struct sim_range *range);
struct sim_range *sim_range_find(uintptr_t address);
// Without memory whose stream-ordered free is still queued: only work ahead of it may use that.
struct sim_range *sim_range_live(uintptr_t address);
// Returns any range that shares a byte with [address, address + bytes), or NULL.
struct sim_range *sim_range_overlap(uintptr_t address, size_t bytes);
void sim_range_walk(void (*visit)(struct sim_range *range));
static inline bool sim_range_is_host(const struct sim_range *range)
{
    return range->kind >= SIM_KIND_PINNED;
}
// Addresses that belong to the driver though nothing need be there now.
bool sim_is_driver_address(uintptr_t address);
bool sim_reservation_covers(uintptr_t address);
// Finds the reserved range around `address`. Returns false, and sets nothing, where none is.
bool sim_reservation_bounds(uintptr_t address, uintptr_t *base, size_t *bytes);

// Gives a block of a heap to the table, and takes it back.
CUresult sim_block_take(enum sim_kind kind, int device, CUcontext ctx, size_t bytes,
                        struct sim_range **out);
void sim_block_give(struct sim_range *range);

// Memory made by cuMemCreate or imported; freed when no handle and no mapping is left.
struct sim_memory {
    struct sim_object object;
    struct sim_backing backing;
    CUmemAllocationProp prop;
    unsigned handles, mappings;
    int charged; // ordinal whose budget it is taken from, -1 for imports
};
struct sim_memory *sim_memory_wrap(struct sim_backing *backing, const CUmemAllocationProp *prop);
void sim_memory_drop(struct sim_memory *memory); // frees it when unused
int sim_ordinal_of(int physical);                // -1 when not visible

struct CUmemPoolHandle_st {
    struct sim_object object;
    CUmemPoolProps props;
    int device;
    bool dying, is_default;
    size_t live;
    uint64_t values[16]; // by CUmemPool_attribute
    unsigned char access[SIM_MAX_DEVICES];
};
CUresult sim_free_pool_range(CUdeviceptr address); // what cuMemFreeAsync queues
void sim_ipc_end(CUcontext ctx);                   // closes what the context opened by legacy IPC

#include "sim_work.h"

// Every entry point is a row of entry.def; its implementation has the name in the third column.
#define SIM_ENTRY(name, since, needs, impl, params, args) CUresult impl params;
#include "entry.def"
#undef SIM_ENTRY

// Gives up and takes back the lock around a callback into the application.
void sim_unlock_for_callback(void);
void sim_lock_after_callback(void);
void sim_wait_for_callback(void); // until some other thread's callback has ended

#endif
