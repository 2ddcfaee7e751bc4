// SPDX-License-Identifier: BSD-3-Clause
// The export cache: what this process has exported, so that the driver is asked once for each
// allocation.
//
// Entries are found by the driver's buffer id, which is never given twice. So an entry of freed
// memory is never found by mistake; it only takes up room.
#include "config.h"

#include "fabrail/core/hash.h"
#include "fabrail/core/list.h"
#include "ipc/ipc_int.h"

#include <stdlib.h>
#include <unistd.h>

struct export
{
    UT_hash_handle hh;
    struct fr_list use_link;
    enum fr_status status;       // not FR_OK: a refusal, with only base and bytes of the handle set
    struct fr_ipc_handle handle; // its buffer_id is the key
    uint64_t *sent_to;           // cookies of processes that got the descriptor
    unsigned sent_count;
    unsigned sent_capacity;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct export *table FR_GUARDED_BY(lock);
static struct fr_list recent FR_GUARDED_BY(lock) = FR_LIST_INIT(recent); // latest used first

// The log of exported memory that has been freed (fr_ipc_freed).
enum { MAX_FREED = 64 };
static uint64_t freed_log[MAX_FREED] FR_GUARDED_BY(lock);
static uint64_t freed_count FR_GUARDED_BY(lock); // entries that the log has ever had

static struct export *find(uint64_t buffer_id) FR_REQUIRES(lock)
{
    struct export *entry = NULL;
    HASH_FIND(hh, table, &buffer_id, sizeof(buffer_id), entry);
    return entry;
}

static void discard(struct export *entry) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, table, entry);
    fr_list_remove(&entry->use_link);
    free(entry->sent_to);
    free(entry);
}

// Returns whether there is an entry for this buffer.
static bool look_up(uint64_t buffer_id, struct fr_ipc_handle *handle, enum fr_status *status)
{
    fr_core_lock(&lock);
    struct export *entry = find(buffer_id);
    if (entry != NULL) {
        fr_list_remove(&entry->use_link);
        fr_list_push_front(&recent, &entry->use_link);
        *handle = entry->handle;
        *status = entry->status;
    }
    fr_core_unlock(&lock);
    return entry != NULL;
}

// Remembers an export or a refusal. Without memory the buffer is exported again the next time.
static void remember(const struct fr_ipc_handle *handle, enum fr_status status)
{
    struct export *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return;
    entry->handle = *handle;
    entry->status = status;
    fr_core_lock(&lock);
    bool added = find(handle->buffer_id) == NULL; // no other thread was faster
    if (added) {
        HASH_ADD(hh, table, handle.buffer_id, sizeof(entry->handle.buffer_id), entry);
        added = FR_HASH_HAS(entry);
    }
    if (added) {
        fr_list_push_front(&recent, &entry->use_link);
        if (HASH_COUNT(table) > FR_IPC_MAX_EXPORTS)
            discard(FR_LIST_ENTRY(recent.prev, struct export, use_link));
    }
    fr_core_unlock(&lock);
    if (!added)
        free(entry);
}

static enum fr_status export_anew(const struct fr_device_range *range, const void *address,
                                  struct fr_ipc_handle *handle)
{
    struct fr_device_export made = {0};
    enum fr_status status = fr_device_export(range, address, &made);
    *handle = (struct fr_ipc_handle){
        .owner = *fr_job_control_self(),
        .base = made.base,
        .bytes = made.bytes,
        .buffer_id = range->buffer_id,
        .ways = made.ways,
        .rank = fr_job_control_rank(),
    };
    memcpy(handle->device, made.uuid, sizeof(handle->device));
    memcpy(handle->token, made.token, sizeof(handle->token));
    if (status != FR_ERR_NO_MEMORY) // there may be memory another time
        remember(handle, status);
    if (status == FR_OK)
        fr_debug("exported %zu bytes of %s memory at 0x%zx, buffer %llu, ways %u", made.bytes,
                 fr_device_kind_name(range->kind), (size_t)made.base,
                 (unsigned long long)range->buffer_id, made.ways);
    return status;
}

enum fr_status fr_ipc_export(const struct fr_device_range *range, const void *address, size_t bytes,
                             struct fr_ipc_handle *handle)
{
    if (!(range->caps & FR_SHARE_ANY))
        return FR_ERR_UNSUPPORTED;
    struct fr_ipc_handle made;
    enum fr_status status = FR_OK;
    if (!look_up(range->buffer_id, &made, &status))
        status = fr_device_is_buffer(address, range->buffer_id) ? export_anew(range, address, &made)
                                                                : FR_ERR_UNSUPPORTED;
    if (status != FR_OK)
        return status;
    uint64_t offset = (uintptr_t)address - made.base;
    if (offset > made.bytes || bytes > made.bytes - offset)
        return FR_ERR_UNSUPPORTED; // the bytes go on in another allocation
    *handle = made;
    return FR_OK;
}

static bool is_sent(uint64_t buffer_id, uint64_t cookie)
{
    bool sent = false;
    fr_core_lock(&lock);
    const struct export *entry = find(buffer_id);
    for (unsigned i = 0; entry != NULL && !sent && i < entry->sent_count; i++)
        sent = entry->sent_to[i] == cookie;
    fr_core_unlock(&lock);
    return sent;
}

static void note_cookie(struct export *entry, uint64_t cookie) FR_REQUIRES(lock)
{
    if (entry->sent_count == entry->sent_capacity) {
        unsigned capacity = entry->sent_capacity > 0 ? 2 * entry->sent_capacity : 8;
        uint64_t *grown = realloc(entry->sent_to, capacity * sizeof(*grown));
        if (grown == NULL)
            return; // the descriptor is sent again, which does no harm
        entry->sent_to = grown;
        entry->sent_capacity = capacity;
    }
    entry->sent_to[entry->sent_count++] = cookie;
}

static void note_sent(uint64_t buffer_id, uint64_t cookie)
{
    fr_core_lock(&lock);
    struct export *entry = find(buffer_id);
    if (entry != NULL)
        note_cookie(entry, cookie);
    fr_core_unlock(&lock);
}

static enum fr_status send_one(const struct fr_ipc_handle *handle, const struct fr_job_process *to,
                               bool again, int *descriptor)
{
    bool sent = is_sent(handle->buffer_id, to->cookie);
    if (sent && !again)
        return FR_OK;
    enum fr_status status = FR_OK;
    if (*descriptor < 0)
        status = fr_device_export_descriptor((uintptr_t)handle->base, descriptor);
    if (status == FR_OK)
        status = fr_ipc_channel_send(to, handle->buffer_id, *descriptor);
    if (status == FR_OK && !sent)
        note_sent(handle->buffer_id, to->cookie);
    return status;
}

static void note_importers(const struct fr_ipc_handle *handle,
                           const struct fr_job_process *importers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int rank = fr_job_control_rank_of(&importers[i]);
        if (rank >= 0 && rank != fr_job_control_rank())
            fr_ipc_importers_note(handle, rank);
    }
}

enum fr_status fr_ipc_send_descriptor(const struct fr_ipc_handle *handle,
                                      const struct fr_job_process *importers, size_t count,
                                      bool again)
{
    const struct fr_job_process *self = fr_job_control_self();
    if (!fr_job_control_is_same(&handle->owner, self))
        return FR_ERR_INVALID;
    note_importers(handle, importers, count);
    if (!(handle->ways & FR_SHARE_FD))
        return FR_OK;
    if (!fr_device_is_buffer((const void *)(uintptr_t)handle->base, handle->buffer_id))
        return FR_ERR_NOT_FOUND;
    enum fr_status first = FR_OK;
    int descriptor = -1; // made for the first importer that needs it
    for (size_t i = 0; i < count; i++) {
        if (importers[i].host != self->host || fr_job_control_is_same(&importers[i], self))
            continue;
        enum fr_status status = send_one(handle, &importers[i], again, &descriptor);
        first = first == FR_OK ? status : first;
    }
    if (descriptor >= 0)
        close(descriptor);
    return first;
}

struct known {
    uint64_t buffer_id;
    uintptr_t base;
};

// Copies the list of exports, since the driver cannot be asked under the lock. Returns their
// number.
static size_t list_exports(struct known *known, size_t max)
{
    size_t count = 0;
    fr_core_lock(&lock);
    for (struct fr_list *at = recent.prev; at != &recent && count < max; at = at->prev) {
        const struct export *entry = FR_LIST_ENTRY(at, struct export, use_link);
        if (entry->status == FR_OK)
            known[count++] = (struct known){entry->handle.buffer_id, (uintptr_t)entry->handle.base};
    }
    fr_core_unlock(&lock);
    return count;
}

// Moves an entry to the log of freed memory.
void fr_ipc_export_drop(uint64_t buffer_id)
{
    fr_ipc_importers_forget(buffer_id);
    fr_core_lock(&lock);
    struct export *entry = find(buffer_id);
    if (entry != NULL) {
        freed_log[freed_count++ % MAX_FREED] = buffer_id;
        discard(entry);
    }
    fr_core_unlock(&lock);
}

static size_t count_exports(void)
{
    fr_core_lock(&lock);
    size_t count = HASH_COUNT(table);
    fr_core_unlock(&lock);
    return count;
}

static void find_freed(void)
{
    size_t max = count_exports();
    struct known *known = max > 0 ? calloc(max, sizeof(*known)) : NULL;
    size_t count = known != NULL ? list_exports(known, max) : 0;
    for (size_t i = 0; i < count; i++) {
        if (!fr_device_is_buffer((const void *)known[i].base, known[i].buffer_id))
            fr_ipc_export_drop(known[i].buffer_id);
    }
    free(known);
}

uint64_t fr_ipc_freed_mark(void)
{
    fr_core_lock(&lock);
    uint64_t mark = freed_count;
    fr_core_unlock(&lock);
    return mark;
}

size_t fr_ipc_freed(uint64_t *mark, uint64_t *buffer_ids, size_t max)
{
    size_t count = 0;
    find_freed();
    fr_core_lock(&lock);
    uint64_t next = freed_count - *mark > MAX_FREED ? freed_count - MAX_FREED : *mark;
    for (; next < freed_count && count < max; next++)
        buffer_ids[count++] = freed_log[next % MAX_FREED];
    fr_core_unlock(&lock);
    *mark = next;
    return count;
}

void fr_ipc_exports_release(void)
{
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&recent))
        discard(FR_LIST_ENTRY(recent.next, struct export, use_link));
    fr_core_unlock(&lock);
}
