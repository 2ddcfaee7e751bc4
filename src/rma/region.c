// SPDX-License-Identifier: BSD-3-Clause
// Memory of dynamic windows. A rank enters what it attaches in a directory in the window's words.
// The ranks of its host find it there, and map it when they first use it. A detach changes the
// directory's version, by which they know that mappings may be stale. Memory that is not in the
// directory, or is on another host, is reached by messages.
#include "config.h"

#include "rma/region.h"

#include "rma/remote_access.h"

#include <stdlib.h>

static struct fr_lock lock = FR_LOCK_INIT; // of what this rank has attached, of all windows

static bool holds(const struct fr_rma_part *part, uint64_t low, uint64_t high)
{
    return low >= part->base && high <= part->base + part->bytes;
}

static bool overlaps(const struct fr_rma_window *window, uint64_t low, uint64_t high)
    FR_REQUIRES(lock)
{
    const struct fr_rma_region *region = window->attached;
    while (region && (high <= region->part.base || low >= region->part.base + region->part.bytes))
        region = region->next;
    return region != NULL;
}

// Returns whether device memory is still what was attached.
static bool is_there(const struct fr_rma_part *part)
{
    struct fr_device_range range;
    if (!fr_device_owns(&part->range))
        return true;
    fr_device_classify((const void *)part->address, (size_t)part->bytes, &range);
    return fr_device_owns(&range) && range.buffer_id == part->range.buffer_id;
}

static struct fr_rma_region *find_attached(struct fr_rma_window *window, uint64_t low,
                                           uint64_t high) FR_REQUIRES(lock)
{
    struct fr_rma_region *region = window->attached;
    while (region && !holds(&region->part, low, high))
        region = region->next;
    return region;
}

bool fr_rma_region_of_own(struct fr_rma_window *window, uint64_t low, uint64_t high,
                          struct fr_rma_part *part)
{
    fr_core_lock(&lock);
    const struct fr_rma_region *region = find_attached(window, low, high);
    if (region)
        *part = region->part;
    fr_core_unlock(&lock);
    return region && is_there(part);
}

// Exports a region to the ranks of this host. Returns false where they cannot map it.
static bool export(struct fr_rma_window *window, struct fr_rma_part *part)
{
    enum fr_status sent = FR_OK;
    if (!fr_device_owns(&part->range) || fr_ipc_export(&part->range, (const void *)part->address,
                                                       (size_t)part->bytes, &part->handle) != FR_OK)
        return false;
    for (int rank = 0; rank < window->size && sent == FR_OK; rank++) {
        if (!window->parts[rank].is_remote)
            sent = fr_ipc_send_descriptor(&part->handle, fr_job_process_of(window->world[rank]), 1,
                                          false);
    }
    return sent == FR_OK;
}

enum fr_status fr_rma_attach(struct fr_rma_window *window, uintptr_t address, size_t bytes)
{
    struct fr_rma_region *region = NULL;
    if (!window->words.is_dynamic)
        return FR_ERR_INVALID;
    if (bytes == 0)
        return FR_OK;
    region = calloc(1, sizeof(*region));
    if (!region)
        return FR_ERR_NO_MEMORY;
    struct fr_rma_part *part = &region->part;
    region->rank = window->rank;
    part->base = part->address = address;
    part->bytes = bytes;
    part->unit = 1;
    part->is_mapped = part->mapping.direct = true;
    fr_device_classify((const void *)address, bytes, &part->range);
    bool shows = export(window, part);
    fr_core_lock(&lock);
    bool fits = !overlaps(window, address, address + bytes);
    if (fits) {
        region->next = window->attached;
        window->attached = region;
    }
    fr_core_unlock(&lock);
    if (!fits) {
        free(region);
        return FR_ERR_INVALID;
    }
    if (shows)
        fr_rma_words_show(&window->words, &part->handle, part->base, part->bytes);
    return FR_OK;
}

// Copies the first region of device memory that lies at an address or above. Returns false where
// there is none.
static bool copy_next(const struct fr_rma_window *window, uint64_t from, struct fr_rma_part *part)
{
    const struct fr_rma_region *found = NULL;
    fr_core_lock(&lock);
    for (const struct fr_rma_region *region = window->attached; region; region = region->next) {
        if (fr_device_owns(&region->part.range) && region->part.base >= from &&
            (!found || region->part.base < found->part.base))
            found = region;
    }
    if (found)
        *part = found->part;
    fr_core_unlock(&lock);
    return found != NULL;
}

// Other threads may detach memory meanwhile.
enum fr_status fr_rma_regions_sync(struct fr_rma_window *window)
{
    enum fr_status status = FR_OK;
    struct fr_rma_part part;
    for (uint64_t from = 0; status == FR_OK && copy_next(window, from, &part);
         from = part.base + part.bytes)
        status = fr_device_sync_app_work(&part.range, part.address, (size_t)part.bytes);
    return status;
}

enum fr_status fr_rma_detach(struct fr_rma_window *window, uintptr_t address)
{
    fr_core_lock(&lock);
    struct fr_rma_region **at = &window->attached;
    while (*at && (*at)->part.base != address)
        at = &(*at)->next;
    struct fr_rma_region *region = *at;
    if (region)
        *at = region->next;
    fr_core_unlock(&lock);
    if (!region)
        return FR_ERR_INVALID;
    if (region->part.handle.bytes != 0)
        fr_rma_words_hide(&window->words, region->part.base);
    free(region);
    return FR_OK;
}

// ---- memory of other ranks

// Returns FR_ERR_NOT_FOUND if a rank no longer shows the memory of a region, and FR_ERR_LIMIT where
// that is not known.
static enum fr_status find_shown(const struct fr_rma_window *window,
                                 const struct fr_rma_region *region)
{
    const struct fr_rma_part *part = &region->part;
    struct fr_ipc_handle handle;
    uint64_t base, bytes;
    enum fr_status status = fr_rma_words_find(&window->words, region->rank, part->base,
                                              part->base + part->bytes, &handle, &base, &bytes);
    bool differs =
        status == FR_OK && (handle.buffer_id != part->handle.buffer_id || base != part->base);
    return differs ? FR_ERR_NOT_FOUND : status;
}

// Unmaps memory of a rank, but for what it shows, or may show: other threads may be using that.
// Returns whether all is known.
static bool drop(struct fr_rma_window *window, int rank, bool all)
{
    struct fr_rma_region **at = &window->regions;
    bool known = true;
    while (*at) {
        struct fr_rma_region *region = *at;
        enum fr_status shown = FR_OK;
        if (region->rank == rank)
            shown = all ? FR_ERR_NOT_FOUND : find_shown(window, region);
        known = known && shown != FR_ERR_LIMIT;
        if (shown != FR_ERR_NOT_FOUND) {
            at = &region->next;
            continue;
        }
        *at = region->next;
        fr_ipc_unpin(&region->part.mapping);
        free(region);
    }
    return known;
}

void fr_rma_regions_trim(struct fr_rma_window *window)
{
    for (int rank = 0; rank < window->size; rank++) {
        struct fr_rma_part *part = &window->parts[rank];
        if (part->is_remote || rank == window->rank)
            continue;
        uint32_t version = fr_rma_words_version(&window->words, rank);
        if (version != part->version && drop(window, rank, false))
            part->version = version;
    }
}

void fr_rma_regions_free(struct fr_rma_window *window)
{
    for (int rank = 0; window->regions && rank < window->size; rank++)
        (void)drop(window, rank, true);
    while (window->attached) {
        struct fr_rma_region *region = window->attached;
        window->attached = region->next;
        free(region);
    }
}

// Maps a region that a rank of this host shows. Returns NULL where that does not work.
static struct fr_rma_region *map(struct fr_rma_window *window, int rank, uint64_t low,
                                 uint64_t high)
{
    struct fr_rma_region *region = calloc(1, sizeof(*region));
    int device = fr_device_current();
    const struct fr_device_range user = {.caps = FR_DEVICE_OWNED, .device = device, .home = device};
    if (!region)
        return NULL;
    struct fr_rma_part *part = &region->part;
    region->rank = rank;
    part->unit = 1;
    if (fr_rma_words_find(&window->words, rank, low, high, &part->handle, &part->base,
                          &part->bytes) == FR_OK &&
        fr_ipc_pin_beyond(&part->handle, &user, &part->mapping) == FR_OK) {
        fr_rma_describe(part);
        part->is_mapped = true;
        region->next = window->regions;
        window->regions = region;
        return region;
    }
    free(region);
    return NULL;
}

// Finds memory of another rank of this host. Accesses to memory that has been detached are
// completed first.
static struct fr_rma_region *find_mapped(struct fr_rma_window *window, int rank, uint64_t low,
                                         uint64_t high)
{
    if (fr_rma_words_version(&window->words, rank) != window->parts[rank].version) {
        fr_rma_queue_note(window->queue, fr_rma_queue_finish(window->queue));
        fr_rma_regions_trim(window);
    }
    struct fr_rma_region *region = window->regions;
    while (region && (region->rank != rank || !holds(&region->part, low, high)))
        region = region->next;
    return region ? region : map(window, rank, low, high);
}

// Data in several regions go by messages of this rank to itself.
static enum fr_status find_own(struct fr_rma_window *window, uint64_t low, uint64_t high,
                               struct fr_rma_part **part)
{
    fr_core_lock(&lock);
    struct fr_rma_region *region = find_attached(window, low, high);
    bool in_several = !region && window->is_remote && find_attached(window, low, low + 1) &&
                      find_attached(window, high - 1, high);
    fr_core_unlock(&lock);
    if (in_several)
        return FR_OK;
    if (!region || !is_there(&region->part))
        return FR_ERR_RANGE;
    *part = &region->part;
    return FR_OK;
}

enum fr_status fr_rma_region_find(struct fr_rma_window *window, int rank, uint64_t low,
                                  uint64_t high, struct fr_rma_part **part)
{
    *part = &window->parts[rank];
    if (rank == window->rank)
        return find_own(window, low, high, part);
    if ((*part)->is_remote)
        return FR_OK;
    fr_rma_enter(window);
    struct fr_rma_region *region = find_mapped(window, rank, low, high);
    fr_rma_leave(window);
    if (region)
        *part = &region->part;
    return FR_OK;
}
