// SPDX-License-Identifier: BSD-3-Clause
// Memory of other processes that is mapped here, and what could not be mapped.
//
// The driver is never called under the lock: an entry leaves the table first and is unmapped after,
// or by its last user. Who unmaps it counts as its last user. Two threads that import the same at
// once both map it, and the second keeps the first one's mapping.
#include "config.h"

#include "core/hash.h"
#include "core/list.h"
#include "memory/memory_int.h"

#include <stdlib.h>
#include <unistd.h>

struct key {
    uint64_t owner; // cookie
    uint64_t buffer_id;
    uint64_t base;
    uint64_t context; // of legacy memory, else 0
    int64_t device;
};

struct fr_memory_import {
    struct key key;
    uint64_t bytes;
    UT_hash_handle hh;
    struct fr_list link;            // in `recent`, or in a list of what is to be unmapped
    struct fr_device_import memory; // with status FR_OK
    enum fr_status status;
    unsigned users;
    unsigned resting; // mappings that only keep this structure
    bool listed;      // in the table. Otherwise the last user unmaps
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_memory_import *table FR_GUARDED_BY(lock);
static struct fr_list recent FR_GUARDED_BY(lock) = FR_LIST_INIT(recent); // latest used first
static size_t mapped_bytes FR_GUARDED_BY(lock);                          // listed or not

static struct fr_memory_import *entry_of(struct fr_list *link)
{
    return FR_LIST_ENTRY(link, struct fr_memory_import, link);
}

// Unmaps and frees what is in a list of its own, of which this is the last user.
static void destroy_all(struct fr_list *gone)
{
    while (!fr_list_is_empty(gone)) {
        struct fr_memory_import *entry = entry_of(gone->next);
        fr_list_remove(&entry->link);
        if (entry->status == FR_OK)
            fr_device_import_close(&entry->memory);
        fr_core_lock(&lock);
        if (entry->status == FR_OK)
            mapped_bytes -= entry->bytes;
        entry->users--;
        bool kept = entry->resting > 0;
        fr_core_unlock(&lock);
        if (!kept)
            free(entry);
    }
}

// Gives up one use. Puts the entry in `gone` if it was the last of what is in no table.
static void leave(struct fr_memory_import *entry, struct fr_list *gone) FR_REQUIRES(lock)
{
    if (entry->listed || entry->users > 1)
        entry->users--;
    else
        fr_list_push_front(gone, &entry->link);
}

// Takes an entry out of the table, and puts it in `gone` if nobody uses it.
static void unlist(struct fr_memory_import *entry, struct fr_list *gone) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, table, entry);
    fr_list_remove(&entry->link);
    entry->listed = false;
    entry->users++;
    leave(entry, gone);
}

static struct fr_memory_import *find(const struct key *key) FR_REQUIRES(lock)
{
    struct fr_memory_import *entry = NULL;
    HASH_FIND(hh, table, key, sizeof(*key), entry);
    return entry;
}

// Returns the entry with one more user, or NULL.
static struct fr_memory_import *look_up(const struct key *key)
{
    fr_core_lock(&lock);
    struct fr_memory_import *entry = find(key);
    if (entry != NULL) {
        entry->users++;
        fr_list_remove(&entry->link);
        fr_list_push_front(&recent, &entry->link);
    }
    fr_core_unlock(&lock);
    return entry;
}

// Gives an entry back. `drop` takes it out of the table, too.
static void put(struct fr_memory_import *entry, bool drop)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock(&lock);
    if (drop && entry->listed)
        unlist(entry, &gone);
    leave(entry, &gone);
    fr_core_unlock(&lock);
    destroy_all(&gone);
}

// The owner has freed what is mapped from the addresses of a buffer with another id. The driver
// refuses to open legacy memory as long as an older mapping of its addresses is open.
static void drop_older(const struct fr_memory_handle *handle)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock(&lock);
    for (struct fr_list *at = recent.next, *next; at != &recent; at = next) {
        struct fr_memory_import *entry = entry_of(at);
        next = at->next;
        if (entry->key.owner == handle->owner.cookie && entry->key.buffer_id != handle->buffer_id &&
            entry->key.base < handle->base + handle->bytes &&
            handle->base < entry->key.base + entry->bytes)
            unlist(entry, &gone);
    }
    fr_core_unlock(&lock);
    destroy_all(&gone);
}

// Unmaps whatever nobody uses. Returns whether there was anything.
static bool drop_idle(void)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock(&lock);
    for (struct fr_list *at = recent.next, *next; at != &recent; at = next) {
        next = at->next;
        if (entry_of(at)->users == 0 && entry_of(at)->status == FR_OK)
            unlist(entry_of(at), &gone);
    }
    fr_core_unlock(&lock);
    bool any = !fr_list_is_empty(&gone);
    destroy_all(&gone);
    return any;
}

static enum fr_status map_by_descriptor(const struct fr_memory_handle *handle,
                                        const struct fr_device_range *user,
                                        const struct fr_device_export *export,
                                        struct fr_device_import *memory)
{
    int descriptor = fr_memory_channel_take(&handle->owner, handle->buffer_id);
    if (descriptor < 0)
        return FR_ERR_NOT_FOUND;
    enum fr_status status = fr_device_import(user, FR_SHARE_FD, export, descriptor, memory);
    if ((status == FR_ERR_LIMIT || status == FR_ERR_NO_MEMORY) && drop_idle())
        status = fr_device_import(user, FR_SHARE_FD, export, descriptor, memory);
    close(descriptor);
    return status;
}

static enum fr_status map_by_token(unsigned way, const struct fr_device_range *user,
                                   const struct fr_device_export *export,
                                   struct fr_device_import *memory)
{
    enum fr_status status = fr_device_import(user, way, export, -1, memory);
    if ((status == FR_ERR_LIMIT || status == FR_ERR_NO_MEMORY) && drop_idle())
        status = fr_device_import(user, way, export, -1, memory);
    return status;
}

// Maps in the first of its ways that works: a fabric handle needs no descriptor, but an IMEX
// channel in this process, too.
static enum fr_status map(const struct fr_memory_handle *handle, const struct fr_device_range *user,
                          struct fr_device_import *memory)
{
    struct fr_device_export export = {
        .base = (uintptr_t)handle->base,
        .bytes = (size_t)handle->bytes,
        .ways = handle->ways,
    };
    memcpy(export.uuid, handle->device, sizeof(export.uuid));
    memcpy(export.token, handle->token, sizeof(export.token));
    bool here = handle->owner.host == fr_control_self()->host;
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (handle->ways & FR_SHARE_FABRIC)
        status = map_by_token(FR_SHARE_FABRIC, user, &export, memory);
    if (status != FR_OK && here && (handle->ways & FR_SHARE_FD))
        status = map_by_descriptor(handle, user, &export, memory);
    if (status != FR_OK && here && (handle->ways & FR_SHARE_LEGACY))
        status = map_by_token(FR_SHARE_LEGACY, user, &export, memory);
    return status;
}

// What may succeed at another time is tried again then.
static bool is_lasting(enum fr_status status)
{
    return status != FR_ERR_NOT_FOUND && status != FR_ERR_LIMIT;
}

// Makes room for one more. Returns false when all are in use.
static bool make_room(struct fr_list *gone) FR_REQUIRES(lock)
{
    if (HASH_COUNT(table) < FR_MEMORY_MAX_IMPORTS)
        return true;
    for (struct fr_list *at = recent.prev; at != &recent; at = at->prev) {
        if (entry_of(at)->users == 0) {
            unlist(entry_of(at), gone);
            return true;
        }
    }
    return false;
}

// Puts a new entry, which has one user, into the table, unless another thread was faster or there
// is no room. Returns the entry to use with one user, or NULL.
static struct fr_memory_import *insert(struct fr_memory_import *entry, struct fr_list *gone)
    FR_REQUIRES(lock)
{
    struct fr_memory_import *other = find(&entry->key);
    if (other != NULL && other->status == FR_OK) {
        fr_list_push_front(gone, &entry->link);
        other->users++;
        return other;
    }
    if (other != NULL)
        unlist(other, gone);
    bool room = make_room(gone);
    if (room) {
        HASH_ADD(hh, table, key, sizeof(entry->key), entry);
        entry->listed = FR_HASH_HAS(entry);
    }
    if (!entry->listed) {
        fr_list_push_front(gone, &entry->link);
        return NULL;
    }
    fr_list_push_front(&recent, &entry->link);
    return entry;
}

static enum fr_status import_anew(const struct fr_memory_handle *handle,
                                  const struct fr_device_range *user, const struct key *key,
                                  struct fr_memory_import **out)
{
    struct fr_memory_import *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return FR_ERR_NO_MEMORY;
    drop_older(handle);
    *entry = (struct fr_memory_import){.key = *key, .bytes = handle->bytes, .users = 1};
    entry->status = map(handle, user, &entry->memory);
    fr_debug("import of %zu bytes, buffer %llu of process %d: %s", (size_t)handle->bytes,
             (unsigned long long)handle->buffer_id, handle->owner.pid,
             fr_core_status_text(entry->status));
    if (!is_lasting(entry->status)) {
        enum fr_status status = entry->status;
        free(entry);
        return status;
    }
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock(&lock);
    if (entry->status == FR_OK)
        mapped_bytes += entry->bytes;
    *out = insert(entry, &gone);
    fr_core_unlock(&lock);
    destroy_all(&gone);
    return *out != NULL ? FR_OK : FR_ERR_LIMIT;
}

// Legacy memory is mapped in one context; other memory belongs to none.
static enum fr_status make_key(const struct fr_memory_handle *handle,
                               const struct fr_device_range *user, struct key *key)
{
    void *context = NULL;
    enum fr_status status = FR_OK;
    if (handle->ways & FR_SHARE_LEGACY)
        status = fr_device_context_of(user, &context);
    *key = (struct key){
        .owner = handle->owner.cookie,
        .buffer_id = handle->buffer_id,
        .base = handle->base,
        .context = (uintptr_t)context,
        .device = user->device,
    };
    return status;
}

static void map_own(const struct fr_memory_handle *handle, int device,
                    struct fr_memory_mapping *mapping)
{
    bool vmm = !(handle->ways & FR_SHARE_LEGACY);
    *mapping = (struct fr_memory_mapping){
        .address = (uintptr_t)handle->base,
        .direct = fr_memory_handle_is_on(handle, device) ||
                  (vmm && fr_device_vmm_is_open_to(device, (uintptr_t)handle->base)),
    };
}

enum fr_status fr_memory_import(const struct fr_memory_handle *handle,
                                const struct fr_device_range *user,
                                struct fr_memory_mapping *mapping)
{
    if (fr_control_is_same(&handle->owner, fr_control_self())) {
        map_own(handle, user->device, mapping);
        return FR_OK;
    }
    struct key key;
    enum fr_status status = make_key(handle, user, &key);
    if (status != FR_OK)
        return status;
    struct fr_memory_import *entry = look_up(&key);
    if (entry != NULL && entry->status == FR_OK && !fr_device_import_is_alive(&entry->memory)) {
        put(entry, true);
        entry = NULL;
    }
    if (entry == NULL)
        status = import_anew(handle, user, &key, &entry);
    if (status != FR_OK)
        return status;
    if (entry->status != FR_OK) {
        status = entry->status;
        put(entry, false);
        return status;
    }
    *mapping = (struct fr_memory_mapping){
        .address = entry->memory.address, .direct = true, .import = entry};
    return FR_OK;
}

static void drop_resting(struct fr_memory_import *entry)
{
    fr_core_lock(&lock);
    entry->resting--;
    bool last = !entry->listed && entry->users == 0 && entry->resting == 0;
    fr_core_unlock(&lock);
    if (last)
        free(entry);
}

void fr_memory_mapping_release(struct fr_memory_mapping *mapping)
{
    if (mapping == NULL)
        return;
    if (mapping->import != NULL && mapping->resting)
        drop_resting(mapping->import);
    else if (mapping->import != NULL)
        put(mapping->import, false);
    *mapping = (struct fr_memory_mapping){0};
}

void fr_memory_mappings_rest(struct fr_memory_mapping *mappings, size_t count)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        struct fr_memory_import *entry = mappings[i].import;
        if (entry == NULL || mappings[i].resting)
            continue;
        mappings[i].resting = true;
        entry->resting++;
        leave(entry, &gone);
    }
    fr_core_unlock(&lock);
    destroy_all(&gone);
}

bool fr_memory_mappings_wake(struct fr_memory_mapping *mappings, size_t count)
{
    bool all = true;
    fr_core_lock(&lock);
    for (size_t i = 0; i < count; i++) {
        struct fr_memory_import *entry = mappings[i].import;
        if (entry == NULL || !mappings[i].resting)
            continue;
        if (!entry->listed) {
            all = false;
            continue;
        }
        mappings[i].resting = false;
        entry->resting--;
        entry->users++;
        fr_list_remove(&entry->link);
        fr_list_push_front(&recent, &entry->link);
    }
    fr_core_unlock(&lock);
    return all;
}

// Takes out what `owner` exported (everybody's with NULL): one buffer, or all with NULL. Returns
// how many are still used.
static unsigned forget(const struct fr_control_process *owner, const uint64_t *buffer_id)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    unsigned used = 0;
    fr_core_lock(&lock);
    for (struct fr_list *at = recent.next, *next; at != &recent; at = next) {
        struct fr_memory_import *entry = entry_of(at);
        next = at->next;
        if ((owner != NULL && entry->key.owner != owner->cookie) ||
            (buffer_id != NULL && entry->key.buffer_id != *buffer_id))
            continue;
        used += entry->users > 0;
        unlist(entry, &gone);
    }
    fr_core_unlock(&lock);
    destroy_all(&gone);
    return used;
}

void fr_memory_forget(const struct fr_control_process *owner)
{
    fr_memory_channel_drop(owner, NULL);
    (void)forget(owner, NULL);
}

void fr_memory_forget_buffer(const struct fr_control_process *owner, uint64_t buffer_id)
{
    fr_memory_channel_drop(owner, &buffer_id);
    (void)forget(owner, &buffer_id);
}

void fr_memory_imports_count(size_t *imports, size_t *bytes)
{
    fr_core_lock(&lock);
    *imports = HASH_COUNT(table);
    *bytes = mapped_bytes;
    fr_core_unlock(&lock);
}

void fr_memory_imports_release(void)
{
    unsigned used = forget(NULL, NULL);
    if (used > 0)
        fr_debug("%u mappings of other processes' memory are in use at the end", used);
}
