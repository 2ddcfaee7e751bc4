// SPDX-License-Identifier: BSD-3-Clause
// Inside of the simulated CUDA driver: memory. The files behind it, its addresses, who may access
// it, and its handles.
#ifndef FR_TESTS_SIM_SIM_MEMORY_H
#define FR_TESTS_SIM_SIM_MEMORY_H

#include "sim_base.h"

#include <stdatomic.h>

// A file-backed piece of memory. The trailer behind the data tells other processes what it is.
struct sim_backing {
    int fd;
    char *alias; // the address at which the simulator itself reads and writes
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
// Lets the simulator access part of the bytes. At first it can access the trailer alone.
bool sim_backing_open(struct sim_backing *backing, size_t offset, size_t bytes);
// Takes a descriptor over after checking that a simulator made it. Closes it on failure, where it
// returns false.
bool sim_backing_adopt(int fd, struct sim_backing *out);
void sim_backing_close(struct sim_backing *backing);
void *sim_reserve(size_t bytes, size_t alignment, uintptr_t hint); // returns inaccessible addresses
void sim_unreserve(void *address, size_t bytes);
uint64_t sim_unique(void); // returns a number that no other call in any process returns

// Sub-allocation of the memory of one device, or of managed memory.
enum { SIM_HEAP_MANAGED = SIM_MAX_DEVICES, SIM_HEAP_COUNT };
struct sim_heap {
    struct sim_backing backing;
    uintptr_t base;           // address that the application sees
    size_t span, top, opened; // `opened`: bytes that the simulator may touch
    bool visible;             // the CPU can access it at the application's addresses
    void *free_lists;         // tree of struct sim_free_list, by size
};
struct sim_heap *sim_heap_get(int index); // creates it on first use; NULL when out of memory
uintptr_t sim_heap_take(struct sim_heap *heap, size_t bytes, size_t alignment);
void sim_heap_give(struct sim_heap *heap, uintptr_t address, size_t bytes);
bool sim_heap_covers(uintptr_t address);
// Account of the bytes in use of each device's memory, against FRSIM_MEMORY. Taking returns false
// where too few are left.
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
    bool freed;   // cuMemFreeAsync is queued for it
    int ipc_slot; // -1: not exported
    unsigned opens;
    struct sim_import *import; // SIM_KIND_IPC
    uint64_t origin;           // SIM_KIND_IPC, buffer id in the exporting process
};
struct sim_range *sim_range_add(const struct sim_range *content); // copies it, sets the id
void sim_range_remove(struct sim_range *range);
uint64_t sim_range_newest(void); // the id of the newest that there ever was
struct sim_range *sim_range_find(uintptr_t address);
// Finds a range as sim_range_find does, but none whose stream-ordered free is queued. Only work
// ahead of the free may use such memory.
struct sim_range *sim_range_live(uintptr_t address);
// Returns any range that shares a byte with [address, address + bytes), or NULL.
struct sim_range *sim_range_overlap(uintptr_t address, size_t bytes);
void sim_range_walk(void (*visit)(struct sim_range *range));
// Returns whether kernels and fills of the context may use the memory. Copies may reach more.
bool sim_range_is_open(const struct sim_range *range, CUcontext ctx);
static inline bool sim_range_is_host(const struct sim_range *range)
{
    return range->kind >= SIM_KIND_PINNED;
}
// The recorder of what the CPU touches (touch.h). These functions do nothing in other modes of
// FRSIM_HOST_ACCESS.
void sim_touch_start(void);
bool sim_touch_add(const struct sim_range *range); // false: too many to record
void sim_touch_remove(const struct sim_range *range);
// Returns whether an address belongs to the driver, though nothing need be there now.
bool sim_is_driver_address(uintptr_t address);
bool sim_reservation_covers(uintptr_t address);
// Finds the reserved range around `address`. Returns false and sets nothing where there is none.
bool sim_reservation_bounds(uintptr_t address, uintptr_t *base, size_t *bytes);

// Take a block from a heap and enter it into the table of ranges, and undo both.
CUresult sim_block_take(enum sim_kind kind, int device, CUcontext ctx, size_t bytes,
                        struct sim_range **out);
void sim_block_give(struct sim_range *range);

// Memory that cuMemCreate made or that was imported. It is freed when no handle and no mapping is
// left.
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
CUresult sim_free_pool_range(CUdeviceptr address); // the work that cuMemFreeAsync queues
void sim_ipc_end(CUcontext ctx);                   // closes what the context opened by legacy IPC

#endif
