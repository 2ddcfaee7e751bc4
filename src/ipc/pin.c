// SPDX-License-Identifier: BSD-3-Clause
// Pins of mappings: finds one that is alive, or has the memory mapped, and keeps it in place until
// it is unpinned.
#include "config.h"

#include "ipc/mapping_cache.h"

// Makes the key of a mapping. Legacy memory is mapped in one context; other memory belongs to none.
static enum fr_status make_key(const struct fr_ipc_handle *handle,
                               const struct fr_device_range *user, struct fr_ipc_key *key)
{
    void *context = NULL;
    enum fr_status status = FR_OK;
    if (handle->ways & FR_SHARE_LEGACY)
        status = fr_device_context_of(user, &context);
    *key = (struct fr_ipc_key){
        .owner = handle->owner.cookie,
        .buffer_id = handle->buffer_id,
        .base = handle->base,
        .context = (uintptr_t)context,
        .device = user->device,
    };
    return status;
}

// The mappings that this thread has last found alive, and the MPI call in which it did.
enum { LATELY = 8 };
static FR_TLS struct {
    uint64_t call, generation;
    const struct fr_ipc_entry *entry;
} alive_lately[LATELY];

// Returns whether a mapping is there still. A reset of the device takes mappings away. The thread
// resets no device within an MPI call, and what others do is not ordered with it, so the driver is
// asked once in a call.
static bool is_alive(const struct fr_ipc_entry *entry)
{
    size_t slot = (uintptr_t)entry / sizeof(*entry) % LATELY;
    if (fr_device_call != 0 && alive_lately[slot].call == fr_device_call &&
        alive_lately[slot].entry == entry && alive_lately[slot].generation == entry->generation)
        return true;
    bool alive = fr_device_import_is_alive(&entry->memory);
    alive_lately[slot].call = alive ? fr_device_call : 0;
    alive_lately[slot].entry = entry;
    alive_lately[slot].generation = entry->generation;
    return alive;
}

// Returns a pinned entry, or NULL and drops it if a reset of the device has taken it away.
static struct fr_ipc_entry *keep_alive(struct fr_ipc_entry *entry)
{
    if (entry == NULL || entry->status != FR_OK || is_alive(entry))
        return entry;
    fr_ipc_cache_put(entry, true);
    return NULL;
}

// Pins a mapping that a lookup finds alive, or maps the memory now. If that fails, pins a mapping
// for another device or context, where copies can run.
static enum fr_status pin_other(const struct fr_ipc_handle *handle,
                                const struct fr_device_range *user, bool must,
                                struct fr_ipc_mapping *out)
{
    struct fr_ipc_key key;
    enum fr_status status = make_key(handle, user, &key);
    if (status != FR_OK)
        return status;
    struct fr_ipc_entry *entry = keep_alive(fr_ipc_cache_find(&key));
    if (entry == NULL)
        status = fr_ipc_cache_map(handle, user, &key, must, &entry);
    if (status == FR_OK && entry->status != FR_OK) {
        status = entry->status;
        fr_ipc_cache_put(entry, false);
    }
    if (status == FR_ERR_NOT_FOUND)
        fr_ipc_say_unmapped(handle->rank, handle->owner.cookie,
                            handle->buffer_id); // so that the owner sends the descriptor again
    bool exact = status == FR_OK;
    if (!exact)
        entry = keep_alive(fr_ipc_cache_find_any(handle));
    if (entry == NULL)
        return status;
    *out = (struct fr_ipc_mapping){.address = entry->memory.address,
                                   .direct = exact,
                                   .pinned = true,
                                   .user = entry->user,
                                   .entry = entry,
                                   .generation = entry->generation};
    return FR_OK;
}

static enum fr_status pin(const struct fr_ipc_handle *handle, const struct fr_device_range *user,
                          bool must, struct fr_ipc_mapping *mapping)
{
    struct fr_device_range chosen;
    bool has_user = fr_ipc_choose_user(user, &chosen);
    if (!fr_job_control_is_same(&handle->owner, fr_job_control_self()))
        return has_user ? pin_other(handle, &chosen, must, mapping) : FR_ERR_UNSUPPORTED;
    fr_ipc_map_own(handle, &chosen, mapping);
    return FR_OK;
}

enum fr_status fr_ipc_pin(const struct fr_ipc_handle *handle, const struct fr_device_range *user,
                          struct fr_ipc_mapping *mapping)
{
    return pin(handle, user, false, mapping);
}

enum fr_status fr_ipc_pin_beyond(const struct fr_ipc_handle *handle,
                                 const struct fr_device_range *user, struct fr_ipc_mapping *mapping)
{
    return pin(handle, user, true, mapping);
}

void fr_ipc_unpin(struct fr_ipc_mapping *mapping)
{
    if (mapping == NULL)
        return;
    if (mapping->pinned)
        fr_ipc_cache_put(mapping->entry, false);
    *mapping = (struct fr_ipc_mapping){0};
}
