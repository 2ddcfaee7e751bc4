// SPDX-License-Identifier: BSD-3-Clause
// Leases of host memory, and the bounds on how much is page-locked and how much stays cached.
// Leases of device memory are in device.c.
//
// One lock guards all state and is held for a few list operations. Memory is mapped, registered and
// given back outside of it.
#include "config.h"

#include "staging/staging_int.h"

#include "fabrail/core/time.h"
#include "fabrail/device/aperture.h"

static struct fr_lock workspace_lock = FR_LOCK_INIT;

// Free blocks of each class. Zeroed heads stand for empty lists until first use.
static struct fr_list free_blocks[FR_STAGING_CLASSES] FR_GUARDED_BY(workspace_lock);

// A pinned region that has been idle for so long is no longer used by the program.
#define FORGOTTEN_NS ((uint64_t)30 * 1000 * 1000 * 1000)

// Idle regions, of which nothing is lent, latest used first.
static struct fr_list idle_pinned FR_GUARDED_BY(workspace_lock) = FR_LIST_INIT(idle_pinned);
static struct fr_list idle_pageable FR_GUARDED_BY(workspace_lock) = FR_LIST_INIT(idle_pageable);

static struct {
    size_t pinned_bytes;   // lent or not
    size_t pageable_bytes; // lent or not
} usage FR_GUARDED_BY(workspace_lock);
static _Atomic size_t lent_bytes; // of blocks; only the holder of the lock changes it
static size_t idle_bytes FR_GUARDED_BY(workspace_lock); // of idle regions

// Set when pinning has failed. Pageable regions are not tried again then.
static atomic_bool pinning_failed;

static struct fr_list *free_list(unsigned class_index) FR_REQUIRES(&workspace_lock)
{
    struct fr_list *list = &free_blocks[class_index];
    if (FR_UNLIKELY(list->next == NULL))
        fr_list_init(list);
    return list;
}

static void enter_idle(struct fr_staging_region *region) FR_REQUIRES(&workspace_lock)
{
    fr_list_push_front(region->pinned ? &idle_pinned : &idle_pageable, &region->idle_link);
    region->idle_since_ns = fr_time_coarse_ns();
    idle_bytes += region->bytes;
}

static void leave_idle(struct fr_staging_region *region) FR_REQUIRES(&workspace_lock)
{
    fr_list_remove(&region->idle_link);
    idle_bytes -= region->bytes;
}

static FR_OFTEN void lend_block(struct fr_staging_block *block) FR_REQUIRES(&workspace_lock)
{
    struct fr_staging_region *region = block->region;
    fr_list_remove(&block->free_link);
    if (region->lent_count++ == 0 && !fr_list_is_empty(&region->idle_link))
        leave_idle(region);
    atomic_store_explicit(&lent_bytes, lent_bytes + fr_staging_class_bytes(region->class_index),
                          memory_order_relaxed);
}

// Returns whether a new region for blocks of this class would be within the bound.
static bool has_room(unsigned class_index) FR_REQUIRES(&workspace_lock)
{
    size_t max = fr_core_settings()->staging_max_bytes;
    size_t bytes = fr_staging_region_bytes(class_index);
    size_t used = usage.pinned_bytes + usage.pageable_bytes;
    return bytes <= max && used <= max - bytes;
}

// Returns a free block of the class or of the two above it, NULL for none. Larger blocks are left
// to larger leases, unless there is no room for more.
static struct fr_staging_block *take_free(unsigned class_index) FR_REQUIRES(&workspace_lock)
{
    unsigned last = has_room(class_index) ? class_index + 2 : FR_STAGING_CLASSES;
    for (unsigned c = class_index; c <= last && c < FR_STAGING_CLASSES; c++) {
        struct fr_list *list = free_list(c);
        if (fr_list_is_empty(list))
            continue;
        struct fr_staging_block *block =
            FR_LIST_ENTRY(list->next, struct fr_staging_block, free_link);
        lend_block(block);
        return block;
    }
    return NULL;
}

// Takes an idle region out of the books and puts it on `victims`, to be destroyed without the lock.
static void condemn(struct fr_staging_region *region, struct fr_list *victims)
    FR_REQUIRES(&workspace_lock)
{
    leave_idle(region);
    for (unsigned i = 0; i < region->block_count; i++)
        fr_list_remove(&region->blocks[i].free_link);
    if (region->pinned)
        usage.pinned_bytes -= region->bytes;
    else
        usage.pageable_bytes -= region->bytes;
    fr_list_push_front(victims, &region->idle_link);
}

static void destroy_all(struct fr_list *victims)
{
    while (!fr_list_is_empty(victims)) {
        struct fr_staging_region *region =
            FR_LIST_ENTRY(victims->next, struct fr_staging_region, idle_link);
        fr_list_remove(&region->idle_link);
        fr_staging_region_destroy(region);
    }
}

static struct fr_staging_region *oldest(const struct fr_list *list)
{
    return FR_LIST_ENTRY(list->prev, struct fr_staging_region, idle_link);
}

// Condemns idle regions, least recently used first, until no more than `keep_bytes` are idle.
// Pageable regions go first, since pinning is what costs.
static void trim_idle(size_t keep_bytes, struct fr_list *victims) FR_REQUIRES(&workspace_lock)
{
    while (idle_bytes > keep_bytes)
        condemn(oldest(fr_list_is_empty(&idle_pageable) ? &idle_pinned : &idle_pageable), victims);
}

// Condemns idle pageable regions while `bytes` more would be beyond the bound.
static void trim_pageable(size_t bytes, struct fr_list *victims) FR_REQUIRES(&workspace_lock)
{
    size_t max = fr_core_settings()->staging_max_bytes;
    while (!fr_list_is_empty(&idle_pageable) &&
           usage.pinned_bytes + usage.pageable_bytes + bytes > max)
        condemn(oldest(&idle_pageable), victims);
}

// Returns whether an idle region may be unpinned for one of `bytes`: it is smaller, or forgotten.
// Otherwise programs that use both in turn would have memory pinned anew all the time.
static bool may_unpin(const struct fr_staging_region *region, size_t bytes, uint64_t now_ns)
{
    return region->bytes < bytes || now_ns - region->idle_since_ns >= FORGOTTEN_NS;
}

// Condemns idle pinned regions, least recently used first, until `bytes` more may be pinned.
// Returns false, with nothing condemned, if that cannot be: unpinning in vain would only cost.
static bool make_room(size_t bytes, struct fr_list *victims) FR_REQUIRES(&workspace_lock)
{
    const uint64_t now_ns = fr_time_coarse_ns();
    size_t most = fr_core_settings()->staging_max_bytes - bytes, found = 0;
    for (struct fr_list *link = idle_pinned.next; link != &idle_pinned; link = link->next) {
        const struct fr_staging_region *region =
            FR_LIST_ENTRY(link, struct fr_staging_region, idle_link);
        found += may_unpin(region, bytes, now_ns) ? region->bytes : 0;
    }
    if (usage.pinned_bytes - found > most)
        return false;
    for (struct fr_list *link = idle_pinned.prev; usage.pinned_bytes > most;) {
        struct fr_staging_region *region = FR_LIST_ENTRY(link, struct fr_staging_region, idle_link);
        link = link->prev;
        if (may_unpin(region, bytes, now_ns))
            condemn(region, victims);
    }
    return true;
}

// Counts `bytes` as pinned if the bound allows it.
static bool reserve_pinned(size_t bytes, struct fr_list *victims) FR_REQUIRES(&workspace_lock)
{
    size_t max = fr_core_settings()->staging_max_bytes;
    if (bytes > max || (usage.pinned_bytes > max - bytes && !make_room(bytes, victims)))
        return false;
    usage.pinned_bytes += bytes;
    return true;
}

static void cancel_reservation(size_t bytes)
{
    if (fr_device_present()) // otherwise nothing has failed yet
        atomic_store_explicit(&pinning_failed, true, memory_order_relaxed);
    fr_core_lock_in_call(&workspace_lock);
    usage.pinned_bytes -= bytes;
    usage.pageable_bytes += bytes;
    fr_core_unlock(&workspace_lock);
}

static void warn_of_limit(void)
{
    char text[FR_BYTES_TEXT];
    fr_warn_once("staging memory beyond the %s of FABRAIL_STAGING_MAX is not pinned, so its copies "
                 "are slower",
                 fr_core_bytes_text(fr_core_settings()->staging_max_bytes, text));
}

// Gives back all host memory that is not lent.
static void release_regions(void)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock_in_call(&workspace_lock);
    trim_idle(0, &victims);
    fr_core_unlock(&workspace_lock);
    destroy_all(&victims);
    fr_staging_reservations_release();
}

static struct fr_staging_region *create_or_trim(unsigned class_index, bool pin)
{
    struct fr_staging_region *region = fr_staging_region_create(class_index, pin);
    if (region == NULL) { // perhaps idle memory is what the system lacks
        release_regions();
        region = fr_staging_region_create(class_index, pin);
    }
    return region;
}

// Adds a region for blocks of this class and lends one of them.
static struct fr_staging_block *grow(unsigned class_index)
{
    size_t bytes = fr_staging_region_bytes(class_index);
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock_in_call(&workspace_lock);
    bool reserved = reserve_pinned(bytes, &victims);
    trim_pageable(reserved ? 0 : bytes, &victims);
    if (!reserved)
        usage.pageable_bytes += bytes;
    fr_core_unlock(&workspace_lock);
    destroy_all(&victims);
    if (!reserved)
        warn_of_limit();

    struct fr_staging_region *region = create_or_trim(class_index, reserved);
    if (reserved && (region == NULL || !region->pinned))
        cancel_reservation(bytes);
    fr_core_lock_in_call(&workspace_lock);
    if (region == NULL) {
        usage.pageable_bytes -= bytes;
    } else {
        struct fr_list *list = free_list(class_index);
        for (unsigned i = region->block_count; i-- > 0;)
            fr_list_push_front(list, &region->blocks[i].free_link);
        lend_block(&region->blocks[0]);
    }
    fr_core_unlock(&workspace_lock);
    return region != NULL ? &region->blocks[0] : NULL;
}

// Pins the region of a block just lent, if it had stayed pageable for lack of room and there is
// room now. No other thread can do so with the same region, since it is no longer idle.
static void upgrade(struct fr_staging_region *region)
{
    bool pinned = fr_staging_region_pin(region);
    if (!pinned) {
        cancel_reservation(region->bytes);
        return;
    }
    fr_core_lock_in_call(&workspace_lock);
    region->pinned = true;
    fr_core_unlock(&workspace_lock);
}

// Lends a cached block of about this size, NULL for none.
static struct fr_staging_block *borrow_cached(unsigned class_index)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    bool reserved = false;
    fr_core_lock_in_call(&workspace_lock);
    struct fr_staging_block *block = take_free(class_index);
    if (block != NULL && FR_UNLIKELY(!block->region->pinned) && block->region->lent_count == 1 &&
        !atomic_load_explicit(&pinning_failed, memory_order_relaxed)) {
        reserved = reserve_pinned(block->region->bytes, &victims);
        if (reserved)
            usage.pageable_bytes -= block->region->bytes;
    }
    fr_core_unlock(&workspace_lock);
    if (FR_UNLIKELY(reserved)) {
        destroy_all(&victims);
        upgrade(block->region);
    }
    return block;
}

FR_OFTEN enum fr_status fr_staging_try_borrow(size_t bytes, struct fr_staging_lease *lease)
{
    unsigned class_index = fr_staging_class_of(bytes);
    if (bytes == 0 || class_index >= FR_STAGING_CLASSES)
        return bytes == 0 ? FR_ERR_INVALID : FR_ERR_NO_MEMORY;
    struct fr_staging_block *block = borrow_cached(class_index);
    if (block == NULL)
        block = grow(class_index);
    if (block == NULL)
        return FR_ERR_NO_MEMORY;
    *lease = (struct fr_staging_lease){
        .address = block->address,
        .bytes = fr_staging_class_bytes(block->region->class_index),
        .block = block,
    };
    return FR_OK;
}

FR_OFTEN enum fr_status fr_staging_borrow(size_t bytes, struct fr_staging_lease *lease)
{
    enum fr_status status = fr_staging_try_borrow(bytes, lease);
    if (status == FR_ERR_NO_MEMORY)
        fr_error("no memory for %zu bytes of staging memory", bytes);
    return status;
}

bool fr_staging_has_room(size_t bytes)
{
    size_t max = fr_core_settings()->staging_max_bytes;
    size_t lent = atomic_load_explicit(&lent_bytes, memory_order_relaxed);
    return bytes <= max && lent <= max - bytes;
}

static void return_block(struct fr_staging_block *block)
{
    struct fr_staging_region *region = block->region;
    struct fr_list victims = FR_LIST_INIT(victims);
    size_t keep = fr_core_settings()->staging_keep_bytes;

    fr_core_lock_in_call(&workspace_lock);
    atomic_store_explicit(&lent_bytes, lent_bytes - fr_staging_class_bytes(region->class_index),
                          memory_order_relaxed);
    struct fr_list *list = free_list(region->class_index);
    if (region->pinned)
        fr_list_push_front(list, &block->free_link);
    else // blocks of other regions go first
        fr_list_push_back(list, &block->free_link);
    if (--region->lent_count == 0) {
        enter_idle(region);
        if (region->bytes > keep) // this one goes, rather than all older ones
            condemn(region, &victims);
        else
            trim_idle(keep, &victims);
        trim_pageable(0, &victims);
    }
    fr_core_unlock(&workspace_lock);
    destroy_all(&victims);
}

void fr_staging_return(struct fr_staging_lease *lease)
{
    if (lease == NULL)
        return;
    const struct fr_staging_lease returned = *lease;
    *lease = (struct fr_staging_lease){0};
    if (returned.block != NULL)
        return_block(returned.block);
    else if (returned.extent != NULL)
        fr_staging_device_return(returned.extent, fr_time_coarse_ns());
    else if (returned.reservation != NULL)
        fr_staging_reservation_return(returned.reservation, returned.is_clean);
}

void fr_staging_forsake(struct fr_staging_lease *lease)
{
    lease->block = NULL;
    lease->extent = NULL;
    lease->reservation = NULL;
}

void fr_staging_release(void)
{
    release_regions();
    fr_staging_device_release();
}
