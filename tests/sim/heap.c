// SPDX-License-Identifier: BSD-3-Clause
// Heaps of simulated device memory. The bytes are a memory file that only the simulator maps. The
// addresses that the application sees are a reservation without any access.
//
// A freed block goes to the next request of its size, newest first. So code that keeps an address
// for too long meets its next owner.
#include "config.h"

#include "sim.h"

#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRAILER_MAGIC 0x314d495342415246ull // "FRABSIM1"
#define HEAP_STEP     (2 * SIM_GRANULARITY) // step by which a heap becomes readable
#define HEAP_SPREAD   4 // addresses for each byte of memory, against fragmentation

struct sim_free_list {
    size_t bytes;
    uintptr_t *addresses;
    size_t count, capacity;
};

static struct sim_heap heaps[SIM_HEAP_COUNT];
static size_t used[SIM_MAX_DEVICES];

uint64_t sim_unique(void)
{
    static uint64_t calls;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t mixed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    mixed = (mixed << 20) ^ ((uint64_t)getpid() << 40) ^ ++calls;
    return mixed ? mixed : 1;
}

static bool map_backing(struct sim_backing *backing)
{
    size_t total = backing->bytes + SIM_TRAILER_BYTES;
    backing->alias = mmap(NULL, total, PROT_NONE, MAP_SHARED | MAP_NORESERVE, backing->fd, 0);
    if (backing->alias == MAP_FAILED)
        return false;
    if (mprotect(backing->alias + backing->bytes, SIM_TRAILER_BYTES, PROT_READ | PROT_WRITE)) {
        munmap(backing->alias, total);
        return false;
    }
    // Core files of tests need not hold the memory of a device.
    madvise(backing->alias, total, MADV_DONTDUMP);
    backing->trailer = (struct sim_trailer *)(void *)(backing->alias + backing->bytes);
    return true;
}

// Opens only what is in use: leak checkers read all memory that can be read, and reading a hole
// would fill it.
bool sim_backing_open(struct sim_backing *backing, size_t offset, size_t bytes)
{
    size_t first = offset & ~(SIM_PAGE - 1);
    return mprotect(backing->alias + first, offset + bytes - first, PROT_READ | PROT_WRITE) == 0;
}

bool sim_backing_create(size_t bytes, int physical, unsigned handle_types, struct sim_backing *out)
{
    struct sim_backing backing = {.bytes = bytes};
    backing.fd = memfd_create("frsim-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (backing.fd < 0)
        return false;
    if (ftruncate(backing.fd, (off_t)(bytes + SIM_TRAILER_BYTES)) != 0 || !map_backing(&backing)) {
        close(backing.fd);
        return false;
    }
    // An importer trusts the size, so nobody may change it from here on.
    fcntl(backing.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    struct sim_trailer *trailer = backing.trailer;
    trailer->unique = sim_unique();
    trailer->bytes = bytes;
    trailer->physical = (uint32_t)physical;
    trailer->handle_types = handle_types;
    const struct sim_fabric *fabric = &sim_knobs()->fabrics[physical];
    trailer->clique = fabric->clique;
    memcpy(trailer->cluster_uuid, fabric->cluster_uuid, sizeof(trailer->cluster_uuid));
    trailer->magic = TRAILER_MAGIC;
    *out = backing;
    return true;
}

bool sim_backing_adopt(int fd, struct sim_backing *out)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    struct sim_backing backing = {.fd = fd};
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) != 0 ||
        (size_t)info.st_size <= SIM_TRAILER_BYTES)
        goto refuse;
    backing.bytes = (size_t)info.st_size - SIM_TRAILER_BYTES;
    if (!map_backing(&backing))
        goto refuse;
    if (backing.trailer->magic != TRAILER_MAGIC || backing.trailer->bytes != backing.bytes) {
        sim_backing_close(&backing);
        return false;
    }
    *out = backing;
    return true;
refuse:
    close(fd);
    return false;
}

void sim_backing_close(struct sim_backing *backing)
{
    munmap(backing->alias, backing->bytes + SIM_TRAILER_BYTES);
    close(backing->fd);
    memset(backing, 0, sizeof(*backing));
    backing->fd = -1;
}

void *sim_reserve(size_t bytes, size_t alignment, uintptr_t hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (hint) {
        void *wanted = sim_pointer(hint);
        void *there = mmap(wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (there == wanted)
            return there;
        if (there != MAP_FAILED)
            munmap(there, bytes);
    }
    char *start = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start & (alignment - 1);
    if (before)
        munmap(start, before);
    munmap(start + before + bytes, alignment - before);
    return start + before;
}

void sim_unreserve(void *address, size_t bytes)
{
    munmap(address, bytes);
}

static bool heap_create(struct sim_heap *heap, int index)
{
    const struct sim_knobs *knobs = sim_knobs();
    bool managed = index == SIM_HEAP_MANAGED;
    size_t span = (knobs->memory_bytes * HEAP_SPREAD + SIM_GRANULARITY) & ~(SIM_GRANULARITY - 1);
    int physical = managed ? 0 : knobs->visible[index];
    if (!sim_backing_create(span, physical, 0, &heap->backing))
        return false;
    void *base = sim_reserve(span, SIM_GRANULARITY, 0);
    bool visible = knobs->host_access || (managed && !knobs->managed_trap);
    // Where touches are recorded the bytes are behind the addresses, but inaccessible until
    // touched.
    if (base && visible)
        base = mmap(base, span, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, heap->backing.fd,
                    0);
    if (!base || base == MAP_FAILED) {
        sim_backing_close(&heap->backing);
        return false;
    }
    heap->base = (uintptr_t)base;
    heap->span = span;
    heap->visible = visible && !knobs->record;
    return true;
}

struct sim_heap *sim_heap_get(int index)
{
    struct sim_heap *heap = &heaps[index];
    return heap->span || heap_create(heap, index) ? heap : NULL;
}

bool sim_heap_covers(uintptr_t address)
{
    for (int i = 0; i < SIM_HEAP_COUNT; i++)
        if (heaps[i].span && address - heaps[i].base < heaps[i].span)
            return true;
    return false;
}

static int compare_free_lists(const void *left, const void *right)
{
    const struct sim_free_list *a = left;
    const struct sim_free_list *b = right;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static void free_list_end(void *node)
{
    struct sim_free_list *list = node;
    free(list->addresses);
    free(list);
}

// Returns the list of free blocks of exactly that size. Makes one where `make` is set. Returns NULL
// when there is none.
static struct sim_free_list *free_list_get(struct sim_heap *heap, size_t bytes, bool make)
{
    const struct sim_free_list key = {.bytes = bytes};
    struct sim_free_list **node = tfind(&key, &heap->free_lists, compare_free_lists);
    if (node || !make)
        return node ? *node : NULL;
    struct sim_free_list *list = calloc(1, sizeof(*list));
    if (!list)
        return NULL;
    list->bytes = bytes;
    if (tsearch(list, &heap->free_lists, compare_free_lists))
        return list;
    free(list);
    return NULL;
}

static void forget_free_lists(struct sim_heap *heap)
{
    tdestroy(heap->free_lists, free_list_end);
    heap->free_lists = NULL;
}

// Finds the first gap between live ranges. This is the slow way, for a heap whose addresses have
// been used up.
static uintptr_t take_from_gap(struct sim_heap *heap, size_t bytes, size_t alignment)
{
    forget_free_lists(heap);
    uintptr_t at = heap->base;
    while (at + bytes <= heap->base + heap->span) {
        struct sim_range *range = sim_range_overlap(at, bytes);
        if (!range)
            return at;
        at = (range->base + range->bytes + alignment - 1) & ~(alignment - 1);
    }
    return 0;
}

static bool raise_top(struct sim_heap *heap, size_t top)
{
    if (top > heap->opened) {
        size_t opened = (top + HEAP_STEP - 1) & ~(HEAP_STEP - 1);
        if (opened > heap->span)
            opened = heap->span;
        size_t bytes = opened - heap->opened;
        void *user = sim_pointer(heap->base + heap->opened);
        if (!sim_backing_open(&heap->backing, heap->opened, bytes) ||
            (heap->visible && mprotect(user, bytes, PROT_READ | PROT_WRITE) != 0))
            return false;
        heap->opened = opened;
    }
    heap->top = top;
    return true;
}

uintptr_t sim_heap_take(struct sim_heap *heap, size_t bytes, size_t alignment)
{
    struct sim_free_list *list = free_list_get(heap, bytes, false);
    if (list && list->count && !(list->addresses[list->count - 1] & (alignment - 1)))
        return list->addresses[--list->count];
    size_t start = (heap->top + alignment - 1) & ~(alignment - 1);
    if (start <= heap->span && bytes <= heap->span - start) {
        if (!raise_top(heap, start + bytes))
            return 0;
        return heap->base + start;
    }
    return take_from_gap(heap, bytes, alignment);
}

void sim_heap_give(struct sim_heap *heap, uintptr_t address, size_t bytes)
{
    // The memory of big blocks goes back to the system; small ones keep their stale bytes.
    if (bytes >= SIM_GRANULARITY)
        fallocate(heap->backing.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(address - heap->base), (off_t)bytes);
    struct sim_free_list *list = free_list_get(heap, bytes, true);
    if (!list)
        return; // the addresses stay unused until the gaps are searched
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        uintptr_t *more = realloc(list->addresses, capacity * sizeof(*more));
        if (!more)
            return;
        list->addresses = more;
        list->capacity = capacity;
    }
    list->addresses[list->count++] = address;
}

bool sim_budget_take(int device, size_t bytes)
{
    if (bytes > sim_knobs()->memory_bytes - used[device])
        return false;
    used[device] += bytes;
    return true;
}

void sim_budget_give(int device, size_t bytes)
{
    used[device] -= bytes;
}

size_t sim_budget_used(int device)
{
    return used[device];
}
