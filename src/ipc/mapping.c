// SPDX-License-Identifier: BSD-3-Clause
// The mapping cache: memory of other processes that is mapped here, and memory that could not be
// mapped.
//
// The driver is never called under the lock. An entry first leaves the table. Then it is unmapped,
// or its last user unmaps it. A thread that unmaps an entry counts as a user. Two threads that map
// the same memory at once both call the driver; the second keeps the first one's mapping.
//
// Entries are never freed, so that one that was pinned can be looked at again without a search. Its
// generation tells whether it still is what it was.
#include "config.h"

#include "fabrail/core/hash.h"
#include "ipc/mapping_cache.h"

#include <stdlib.h>

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_ipc_entry *table FR_GUARDED_BY(lock);
static struct fr_list recent FR_GUARDED_BY(lock) = FR_LIST_INIT(recent); // latest used first
static struct fr_list spare FR_GUARDED_BY(lock) = FR_LIST_INIT(spare);
static size_t mapped_bytes FR_GUARDED_BY(lock); // listed or not, or being mapped

static void count_mapped(size_t more, size_t less) FR_REQUIRES(lock)
{
    size_t before = mapped_bytes;
    mapped_bytes += more - less;
    fr_core_housekeeping_change(before > 0, mapped_bytes > 0);
}

static struct fr_ipc_entry *entry_of(struct fr_list *link)
{
    return FR_LIST_ENTRY(link, struct fr_ipc_entry, link);
}

// Returns a spare entry, or makes one. Returns NULL without memory.
static struct fr_ipc_entry *make_entry(void)
{
    struct fr_ipc_entry *entry = NULL;
    fr_core_lock_in_call(&lock);
    if (!fr_list_is_empty(&spare)) {
        entry = entry_of(spare.next);
        fr_list_remove(&entry->link);
    }
    fr_core_unlock(&lock);
    return entry != NULL ? entry : calloc(1, sizeof(*entry));
}

static void put_away(struct fr_ipc_entry *entry) FR_REQUIRES(lock)
{
    entry->pins = 0;
    entry->listed = false;
    entry->generation++;
    fr_list_push_front(&spare, &entry->link);
}

// Unmaps the entries of a list. They are in no table, and nobody has them pinned.
static void destroy_all(struct fr_list *gone)
{
    while (!fr_list_is_empty(gone)) {
        struct fr_ipc_entry *entry = entry_of(gone->next);
        fr_list_remove(&entry->link);
        if (entry->status == FR_OK)
            fr_device_import_close(&entry->memory);
        if (entry->dropped && entry->by_descriptor && entry->status == FR_OK)
            fr_ipc_say_unmapped(entry->rank, entry->key.owner, entry->key.buffer_id);
        fr_core_lock_in_call(&lock);
        if (entry->status == FR_OK)
            count_mapped(0, entry->bytes);
        put_away(entry);
        fr_core_unlock(&lock);
    }
}

// Gives up one pin. Puts the entry in `gone` if that was the last one and the table has it no more.
static void leave(struct fr_ipc_entry *entry, struct fr_list *gone) FR_REQUIRES(lock)
{
    if (entry->listed || entry->pins > 1)
        entry->pins--;
    else
        fr_list_push_front(gone, &entry->link);
}

// Removes an entry from the table, and puts it in `gone` if nobody has pinned it.
static void unlist(struct fr_ipc_entry *entry, struct fr_list *gone) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, table, entry);
    fr_list_remove(&entry->link);
    entry->listed = false;
    entry->pins++;
    leave(entry, gone);
}

static struct fr_ipc_entry *find(const struct fr_ipc_key *key) FR_REQUIRES(lock)
{
    struct fr_ipc_entry *entry = NULL;
    HASH_FIND(hh, table, key, sizeof(*key), entry);
    return entry;
}

struct fr_ipc_entry *fr_ipc_cache_find(const struct fr_ipc_key *key)
{
    fr_core_lock_in_call(&lock);
    struct fr_ipc_entry *entry = find(key);
    if (entry != NULL) {
        entry->pins++;
        fr_list_remove(&entry->link);
        fr_list_push_front(&recent, &entry->link);
    }
    fr_core_unlock(&lock);
    return entry;
}

struct fr_ipc_entry *fr_ipc_cache_find_any(const struct fr_ipc_handle *handle)
{
    struct fr_ipc_entry *found = NULL;
    fr_core_lock_in_call(&lock);
    for (struct fr_list *at = recent.next; at != &recent && found == NULL; at = at->next) {
        struct fr_ipc_entry *entry = entry_of(at);
        if (entry->status == FR_OK && entry->key.owner == handle->owner.cookie &&
            entry->key.buffer_id == handle->buffer_id)
            found = entry;
    }
    if (found != NULL)
        found->pins++;
    fr_core_unlock(&lock);
    return found;
}

// Removes the least recently used mapping from the table. Returns false when all are pinned.
static bool evict(struct fr_list *gone) FR_REQUIRES(lock)
{
    for (struct fr_list *at = recent.prev; at != &recent; at = at->prev) {
        if (entry_of(at)->pins == 0) {
            entry_of(at)->dropped = true;
            unlist(entry_of(at), gone);
            return true;
        }
    }
    return false;
}

// Removes mappings from the table, least recently used first, until no more than `most` of `used`
// bytes are mapped or all others are pinned.
static void trim(size_t used, size_t most, struct fr_list *gone) FR_REQUIRES(lock)
{
    while (used > most && evict(gone)) {
        struct fr_ipc_entry *entry = entry_of(gone->next);
        used -= entry->status == FR_OK ? entry->bytes : 0;
    }
}

void fr_ipc_cache_put(struct fr_ipc_entry *entry, bool drop)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock_in_call(&lock);
    if (drop && entry->listed) {
        entry->dropped = true;
        unlist(entry, &gone);
    }
    leave(entry, &gone);
    size_t most = fr_core_settings()->mapped_max_bytes;
    if (FR_UNLIKELY(mapped_bytes > most)) // memory had to be mapped beyond the bound
        trim(mapped_bytes, most, &gone);
    fr_core_unlock(&lock);
    destroy_all(&gone);
}

// Drops older mappings at the addresses of a buffer: they have another id, so the owner has freed
// their memory. The driver refuses to open legacy memory while an older mapping of its addresses is
// open.
static void drop_older(const struct fr_ipc_handle *handle)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock_in_call(&lock);
    for (struct fr_list *at = recent.next, *next; at != &recent; at = next) {
        struct fr_ipc_entry *entry = entry_of(at);
        next = at->next;
        if (entry->key.owner == handle->owner.cookie && entry->key.buffer_id != handle->buffer_id &&
            entry->key.base < handle->base + handle->bytes &&
            handle->base < entry->key.base + entry->bytes)
            unlist(entry, &gone);
    }
    fr_core_unlock(&lock);
    destroy_all(&gone);
}

bool fr_ipc_drop_idle(void)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock_in_call(&lock);
    for (struct fr_list *at = recent.next, *next; at != &recent; at = next) {
        next = at->next;
        if (entry_of(at)->pins > 0 || entry_of(at)->status != FR_OK)
            continue;
        entry_of(at)->dropped = true;
        unlist(entry_of(at), &gone);
    }
    fr_core_unlock(&lock);
    bool any = !fr_list_is_empty(&gone);
    destroy_all(&gone);
    return any;
}

// Returns whether a refusal lasts. Others are not remembered, since mapping may succeed later.
static bool is_lasting(enum fr_status status)
{
    return status != FR_ERR_NOT_FOUND && status != FR_ERR_LIMIT && status != FR_ERR_NO_MEMORY;
}

static size_t bytes_of_idle(void) FR_REQUIRES(lock)
{
    size_t bytes = 0;
    for (struct fr_list *at = recent.next; at != &recent; at = at->next) {
        if (entry_of(at)->pins == 0 && entry_of(at)->status == FR_OK)
            bytes += entry_of(at)->bytes;
    }
    return bytes;
}

// Counts so many bytes as mapped, and unmaps others to stay within the bound. Where pinned mappings
// leave no room it returns false and unmaps nothing. With `must` it goes beyond the bound instead,
// as long as the mapping is pinned.
static bool reserve(size_t bytes, bool must)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    size_t most = fr_core_settings()->mapped_max_bytes;
    fr_core_lock_in_call(&lock);
    size_t used = mapped_bytes;
    bool fits = bytes <= most && (used <= most - bytes || used - bytes_of_idle() <= most - bytes);
    if (fits || must)
        trim(used, bytes <= most ? most - bytes : 0, &gone);
    count_mapped(fits || must ? bytes : 0, 0);
    fr_core_unlock(&lock);
    destroy_all(&gone);
    if (!fits && !must)
        fr_warn_once("memory of other processes beyond FABRAIL_MAPPED_MAX is not mapped, so its "
                     "messages take a slower path");
    return fits || must;
}

static void unreserve(size_t bytes)
{
    fr_core_lock_in_call(&lock);
    count_mapped(0, bytes);
    fr_core_unlock(&lock);
}

// Puts a new entry, which has one pin, into the table, unless another thread was faster or there is
// no room. Returns the entry to use, with one pin, or NULL.
static struct fr_ipc_entry *insert(struct fr_ipc_entry *entry, struct fr_list *gone)
    FR_REQUIRES(lock)
{
    struct fr_ipc_entry *other = find(&entry->key);
    if (other != NULL && other->status == FR_OK) {
        fr_list_push_front(gone, &entry->link);
        other->pins++;
        return other;
    }
    if (other != NULL)
        unlist(other, gone);
    if (HASH_COUNT(table) < FR_IPC_MAX_IMPORTS || evict(gone)) {
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

enum fr_status fr_ipc_cache_map(const struct fr_ipc_handle *handle,
                                const struct fr_device_range *user, const struct fr_ipc_key *key,
                                bool must, struct fr_ipc_entry **out)
{
    drop_older(handle);
    if (!reserve(handle->bytes, must))
        return FR_ERR_LIMIT;
    struct fr_ipc_entry *entry = make_entry();
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (entry == NULL)
        goto unreserve;
    entry->key = *key;
    entry->bytes = handle->bytes;
    entry->pins = 1;
    entry->user = *user;
    entry->rank = handle->rank;
    entry->by_descriptor = fr_ipc_needs_descriptor(handle);
    entry->dropped = false;
    status = fr_ipc_map(handle, user, &entry->memory);
    entry->status = status;
    memset(&entry->hh, 0, sizeof(entry->hh));
    fr_debug("mapping of %zu bytes, buffer %llu of process %d: %s", (size_t)handle->bytes,
             (unsigned long long)handle->buffer_id, handle->owner.pid, fr_core_status_text(status));
    if (status != FR_OK)
        unreserve(handle->bytes);
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock_in_call(&lock);
    if (is_lasting(status))
        *out = insert(entry, &gone);
    else
        put_away(entry);
    fr_core_unlock(&lock);
    destroy_all(&gone);
    if (!is_lasting(status))
        return status;
    return *out != NULL ? FR_OK : FR_ERR_LIMIT;
unreserve:
    unreserve(handle->bytes);
    return status;
}

void fr_ipc_mappings_rest(struct fr_ipc_mapping *mappings, size_t count)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    fr_core_lock_in_call(&lock);
    for (size_t i = 0; i < count; i++) {
        if (mappings[i].pinned)
            leave(mappings[i].entry, &gone);
        mappings[i].pinned = false;
    }
    fr_core_unlock(&lock);
    destroy_all(&gone);
}

// Returns whether mappings are alive. Asks for one of each sort, since a reset takes all mappings
// of a context away at once.
static bool are_alive(const struct fr_ipc_mapping *mappings, size_t count)
{
    bool checked[2] = {false, false};
    bool alive = true;
    for (size_t i = 0; i < count && alive && !(checked[0] && checked[1]); i++) {
        const struct fr_ipc_entry *entry = mappings[i].entry;
        if (!mappings[i].pinned || checked[entry->memory.legacy])
            continue;
        checked[entry->memory.legacy] = true;
        alive = fr_device_import_is_alive(&entry->memory);
    }
    return alive;
}

// Removes mappings from the table that a reset has taken away.
static void drop_dead(struct fr_ipc_mapping *mappings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (mappings[i].pinned)
            fr_ipc_cache_put(mappings[i].entry,
                             !fr_device_import_is_alive(&mappings[i].entry->memory));
        mappings[i].pinned = false;
    }
}

bool fr_ipc_mappings_wake(struct fr_ipc_mapping *mappings, size_t count)
{
    bool all = true;
    fr_core_lock_in_call(&lock);
    for (size_t i = 0; i < count; i++) {
        struct fr_ipc_entry *entry = mappings[i].entry;
        if (entry == NULL || mappings[i].pinned)
            continue;
        if (!entry->listed || entry->generation != mappings[i].generation) {
            all = false;
            continue;
        }
        mappings[i].pinned = true;
        entry->pins++;
        fr_list_remove(&entry->link);
        fr_list_push_front(&recent, &entry->link);
    }
    fr_core_unlock(&lock);
    if (FR_LIKELY(are_alive(mappings, count)))
        return all;
    drop_dead(mappings, count);
    return false;
}

unsigned fr_ipc_mappings_forget(const struct fr_job_process *owner, const uint64_t *buffer_id)
{
    struct fr_list gone = FR_LIST_INIT(gone);
    unsigned pinned = 0;
    fr_core_lock_in_call(&lock);
    for (struct fr_list *at = recent.next, *next; at != &recent; at = next) {
        struct fr_ipc_entry *entry = entry_of(at);
        next = at->next;
        if ((owner != NULL && entry->key.owner != owner->cookie) ||
            (buffer_id != NULL && entry->key.buffer_id != *buffer_id))
            continue;
        pinned += entry->pins > 0;
        unlist(entry, &gone);
    }
    fr_core_unlock(&lock);
    destroy_all(&gone);
    return pinned;
}
