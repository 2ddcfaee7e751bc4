// SPDX-License-Identifier: BSD-3-Clause
// Regions of host memory. They come from the system, in huge pages where these help, and are
// page-locked by registering. Registering pages that exist is ten times faster than having the
// driver allocate them.
#include "config.h"

#include "staging/staging_int.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES  ((size_t)2 << 20)
#define REGION_BYTES     ((size_t)1 << 20) // size of a region of smaller blocks
#define MIN_SHIFT        12u               // 4 KiB
#define MAX_POWER_SHIFT  26u               // 64 MiB
#define POWER_CLASSES    (MAX_POWER_SHIFT - MIN_SHIFT + 1)
#define STEPS_A_DOUBLING 4u

#define ID_MARK ((uint64_t)1 << 63) // tells ids from BUFFER_IDs, which are small numbers

static void (*_Atomic watcher)(uint64_t id);

void fr_staging_watch(void (*gone)(uint64_t id))
{
    atomic_store_explicit(&watcher, gone, memory_order_release);
}

void fr_staging_tell_watcher(uint64_t id)
{
    void (*gone)(uint64_t id) = atomic_load_explicit(&watcher, memory_order_acquire);
    if (FR_UNLIKELY(gone != NULL))
        gone(id);
}

bool fr_staging_is_pinned(const struct fr_staging_lease *lease)
{
    return lease->block != NULL && lease->block->region->pinned;
}

uint64_t fr_staging_id(const struct fr_staging_lease *lease)
{
    return lease->block != NULL ? lease->block->region->id : 0;
}

static uint64_t draw_id(void)
{
    static _Atomic uint64_t last;
    return ID_MARK | (atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1);
}

FR_OFTEN unsigned fr_staging_class_of(size_t bytes)
{
    if (bytes <= (size_t)1 << MIN_SHIFT)
        return 0;
    unsigned shift = 63u - (unsigned)__builtin_clzl(bytes - 1); // 2^shift < bytes <= 2^(shift+1)
    if (shift < MAX_POWER_SHIFT)
        return shift + 1 - MIN_SHIFT;
    size_t step = (size_t)1 << (shift - 2);
    size_t steps = (bytes - ((size_t)1 << shift) + step - 1) / step; // 1 to 4
    size_t index = POWER_CLASSES + (shift - MAX_POWER_SHIFT) * STEPS_A_DOUBLING + steps - 1;
    return index < FR_STAGING_CLASSES ? (unsigned)index : FR_STAGING_CLASSES;
}

FR_OFTEN size_t fr_staging_class_bytes(unsigned class_index)
{
    if (class_index < POWER_CLASSES)
        return (size_t)1 << (MIN_SHIFT + class_index);
    unsigned beyond = class_index - POWER_CLASSES;
    unsigned shift = MAX_POWER_SHIFT + beyond / STEPS_A_DOUBLING;
    return ((size_t)1 << shift) + (beyond % STEPS_A_DOUBLING + 1) * ((size_t)1 << (shift - 2));
}

FR_OFTEN size_t fr_staging_region_bytes(unsigned class_index)
{
    size_t bytes = fr_staging_class_bytes(class_index);
    return bytes < REGION_BYTES ? REGION_BYTES : bytes;
}

// Returns `bytes` of fresh memory, aligned to huge pages if it is large enough for one. NULL if the
// system has none.
static void *map_memory(size_t bytes)
{
    size_t slack = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    char *memory =
        mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (slack > 0) {
        size_t head = -(uintptr_t)memory % HUGE_PAGE_BYTES;
        if (head > 0)
            munmap(memory, head);
        if (slack - head > 0)
            munmap(memory + head + bytes, slack - head);
        memory += head;
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    }
    // A child of fork has no use for workspace, and on older kernels copy-on-write may move the
    // parent's pages away from under the device.
    (void)madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

// Touches all pages, so that they exist before they are registered.
static void populate(void *memory, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return;
#endif
    volatile char *pages = memory;
    for (size_t offset = 0; offset < bytes; offset += 4096)
        pages[offset] = 0;
}

bool fr_staging_region_pin(struct fr_staging_region *region)
{
    if (!fr_device_present())
        return false;
    return fr_device_host_register(region->address, region->bytes) == FR_OK;
}

struct fr_staging_region *fr_staging_region_create(unsigned class_index, bool pin)
{
    size_t block_bytes = fr_staging_class_bytes(class_index);
    size_t region_bytes = fr_staging_region_bytes(class_index);
    size_t count = region_bytes / block_bytes;
    struct fr_staging_region *region =
        calloc(1, sizeof(*region) + count * sizeof(region->blocks[0]));
    if (region == NULL)
        return NULL;
    region->address = map_memory(region_bytes);
    if (region->address == NULL) {
        free(region);
        return NULL;
    }
    region->bytes = region_bytes;
    region->id = draw_id();
    region->class_index = class_index;
    region->block_count = (unsigned)count;
    fr_list_init(&region->idle_link);
    for (size_t i = 0; i < count; i++) {
        struct fr_staging_block *block = &region->blocks[i];
        fr_list_init(&block->free_link);
        block->region = region;
        block->address = (char *)region->address + i * block_bytes;
    }
    if (pin && fr_device_present()) {
        populate(region->address, region_bytes);
        region->pinned = fr_staging_region_pin(region);
    }
    return region;
}

void fr_staging_region_destroy(struct fr_staging_region *region)
{
    if (region == NULL)
        return;
    fr_staging_tell_watcher(region->id);
    if (region->pinned)
        fr_device_host_unregister(region->address);
    if (munmap(region->address, region->bytes) != 0)
        fr_warn("munmap of %zu bytes of staging memory failed: %m", region->bytes);
    free(region);
}
