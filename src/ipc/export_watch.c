// SPDX-License-Identifier: BSD-3-Clause
// The owner's side of mappings: which processes may have mapped memory of this one, or have said
// that they have. It asks them to map memory, and tells them when memory is gone. The importer's
// side is in map_requests.c.
//
// Memory that others may have mapped is shared. Freed memory stays allocated as long as others have
// it mapped. So this process asks the driver now and then whether shared memory is still there.
#include "config.h"

#include "fabrail/core/hash.h"
#include "fabrail/core/list.h"
#include "fabrail/core/time.h"
#include "ipc/ipc_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOK_AT = 16,           // buffers to look at in one look
    LOOK_EVERY_NS = 100000, // between two looks
    UNANSWERED_CALLS = 128, // calls until a question is asked again; doubles with each question
    MOST_ASKS = 8,          // questions that count for doubling
};

enum state { SEEN, ASKED, MAPPED };

// The news that one process has been sent about one piece of memory, and its answers.
struct importer {
    int rank;
    enum state state;
    bool may_map;  // it has been asked or sent a descriptor
    unsigned asks; // how often it was asked: an answer can be lost, or a mapping go
    unsigned skip; // calls to pass over before it is asked
};

struct shared {
    uint64_t buffer_id;
    uintptr_t base;
    UT_hash_handle hh;
    struct fr_list link; // in `turn` or in `gone`
    struct importer *importers;
    unsigned count;
    unsigned capacity;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct shared *table FR_GUARDED_BY(lock);
static struct fr_list turn FR_GUARDED_BY(lock) = FR_LIST_INIT(turn); // the next to look at first
static struct fr_list gone FR_GUARDED_BY(lock) = FR_LIST_INIT(gone); // to be told; not in the table
static _Atomic size_t shared_count;
static _Atomic size_t gone_count;
static _Atomic int64_t looked_ns;
static _Atomic uint64_t destroyed; // workspace given back, as of the last look

_Atomic uint64_t fr_ipc_importers_noted;

static void note_change(void)
{
    atomic_fetch_add_explicit(&fr_ipc_importers_noted, 1, memory_order_release);
}

static struct shared *shared_of(struct fr_list *link)
{
    return FR_LIST_ENTRY(link, struct shared, link);
}

static void destroy(struct shared *shared)
{
    free(shared->importers);
    free(shared);
}

static struct shared *find(uint64_t buffer_id) FR_REQUIRES(lock)
{
    struct shared *shared = NULL;
    HASH_FIND(hh, table, &buffer_id, sizeof(buffer_id), shared);
    return shared;
}

static struct importer *find_importer(struct shared *shared, int rank)
{
    for (unsigned i = 0; shared != NULL && i < shared->count; i++) {
        if (shared->importers[i].rank == rank)
            return &shared->importers[i];
    }
    return NULL;
}

// Adds shared memory to the table. Returns NULL without memory.
static struct shared *add(const struct fr_ipc_handle *handle) FR_REQUIRES(lock)
{
    struct shared *shared = calloc(1, sizeof(*shared));
    if (shared == NULL)
        return NULL;
    shared->buffer_id = handle->buffer_id;
    shared->base = (uintptr_t)handle->base;
    HASH_ADD(hh, table, buffer_id, sizeof(shared->buffer_id), shared);
    if (!FR_HASH_HAS(shared)) {
        free(shared);
        return NULL;
    }
    fr_list_push_back(&turn, &shared->link);
    atomic_fetch_add_explicit(&shared_count, 1, memory_order_relaxed);
    fr_core_housekeeping_change(false, true);
    return shared;
}

// Adds an importer of shared memory. Returns NULL without memory.
static struct importer *add_importer(struct shared *shared, int rank)
{
    if (shared->count == shared->capacity) {
        unsigned capacity = shared->capacity > 0 ? 2 * shared->capacity : 4;
        struct importer *grown = realloc(shared->importers, capacity * sizeof(*grown));
        if (grown == NULL)
            return NULL;
        shared->importers = grown;
        shared->capacity = capacity;
    }
    shared->importers[shared->count] = (struct importer){.rank = rank, .skip = 1};
    return &shared->importers[shared->count++];
}

// Returns what is known of one importer, and adds it if nothing is. Returns NULL without memory.
// Sets *is_new if the memory has become shared.
static struct importer *get(const struct fr_ipc_handle *handle, int rank, bool *is_new)
    FR_REQUIRES(lock)
{
    struct shared *shared = find(handle->buffer_id);
    struct importer *importer = find_importer(shared, rank);
    if (importer != NULL)
        return importer;
    *is_new = shared == NULL;
    if (shared == NULL)
        shared = add(handle);
    return shared != NULL ? add_importer(shared, rank) : NULL;
}

void fr_ipc_importers_forget(uint64_t buffer_id)
{
    fr_core_lock(&lock);
    struct shared *shared = find(buffer_id);
    if (shared != NULL) {
        HASH_DELETE(hh, table, shared);
        fr_list_remove(&shared->link);
        fr_list_push_back(&gone, &shared->link);
        atomic_fetch_sub_explicit(&shared_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&gone_count, 1, memory_order_release);
        note_change();
    }
    fr_core_unlock(&lock);
}

struct buffer {
    uint64_t id;
    uintptr_t base;
};

// Lists the next buffers to look at, since the driver cannot be asked under the lock.
static size_t list_next(struct buffer *next, size_t max)
{
    size_t count = 0;
    fr_core_lock(&lock);
    size_t all = HASH_COUNT(table);
    for (; count < max && count < all; count++) {
        struct shared *shared = shared_of(turn.next);
        next[count] = (struct buffer){shared->buffer_id, shared->base};
        fr_list_remove(&shared->link);
        fr_list_push_back(&turn, &shared->link);
    }
    fr_core_unlock(&lock);
    return count;
}

// Looks at the next buffers, `most` at most.
static FR_OFTEN void look(size_t most)
{
    struct buffer next[LOOK_AT];
    size_t looked = 0, count = 0;
    do {
        size_t max = most - looked < LOOK_AT ? most - looked : LOOK_AT;
        count = list_next(next, max);
        for (size_t i = 0; i < count; i++) {
            if (!fr_device_is_buffer((const void *)next[i].base, next[i].id))
                fr_ipc_export_drop(next[i].id);
        }
        looked += count;
    } while (count == LOOK_AT && looked < most);
}

static void look_at_all(void)
{
    look(atomic_load_explicit(&shared_count, memory_order_relaxed));
}

// Tells importers that memory is gone. Returns whether all that may have mapped it know, or are out
// of reach.
static bool tell(struct shared *shared)
{
    const struct fr_ipc_news news = {.owner = fr_job_control_self()->cookie,
                                     .buffer_id = shared->buffer_id};
    bool all = true;
    for (unsigned i = 0; i < shared->count; i++) {
        struct importer *importer = &shared->importers[i];
        if (!importer->may_map)
            continue;
        importer->may_map =
            !fr_job_control_send(importer->rank, FR_CONTROL_FREED, &news, sizeof(news)) &&
            fr_job_control_reaches(importer->rank) && fr_job_control_is_alive(importer->rank);
        all = all && !importer->may_map;
    }
    return all;
}

// Tells importers once of each memory that is gone, as far as their queues have room.
static void tell_gone(void)
{
    size_t rest = atomic_load_explicit(&gone_count, memory_order_acquire);
    for (; FR_UNLIKELY(rest > 0); rest--) {
        struct shared *shared = NULL;
        fr_core_lock(&lock);
        if (!fr_list_is_empty(&gone)) {
            shared = shared_of(gone.next);
            fr_list_remove(&shared->link);
        }
        fr_core_unlock(&lock);
        if (shared == NULL)
            return;
        bool sent = tell(shared);
        if (sent)
            destroy(shared);
        fr_core_housekeeping_change(sent, false);
        fr_core_lock(&lock);
        if (sent)
            atomic_fetch_sub_explicit(&gone_count, 1, memory_order_relaxed);
        else
            fr_list_push_back(&gone, &shared->link);
        fr_core_unlock(&lock);
        if (!sent)
            return;
    }
}

// Looks for memory that is gone, when a look is due. Workspace given back is known to be gone, so
// that makes a look due at once.
static void look_where_due(void)
{
    uint64_t now_destroyed = fr_device_memory_destroyed();
    if (atomic_load_explicit(&destroyed, memory_order_relaxed) != now_destroyed) {
        atomic_store_explicit(&destroyed, now_destroyed, memory_order_relaxed);
        look_at_all();
        return;
    }
    if (fr_time_is_due(&looked_ns, fr_time_ns(), LOOK_EVERY_NS))
        look(LOOK_AT);
}

void fr_ipc_poll(void)
{
    if (atomic_load_explicit(&shared_count, memory_order_relaxed) > 0)
        look_where_due();
    tell_gone();
    fr_ipc_map_requested();
}

void fr_ipc_importers_note(const struct fr_ipc_handle *handle, int rank)
{
    bool is_new = false;
    fr_core_lock(&lock);
    struct importer *importer = get(handle, rank, &is_new);
    if (importer != NULL)
        importer->may_map = true;
    fr_core_unlock(&lock);
    if (is_new) { // others must forget gone memory before they map new memory at its addresses
        look_at_all();
        tell_gone();
    }
}

// Returns whether an importer is to be asked now, and notes that, before the answer can come. Sets
// *again if it has been asked before.
static bool begin_to_ask(struct importer *importer, bool at_once, bool *again)
{
    if (importer->skip > 0 && !(at_once && importer->asks == 0)) {
        importer->skip--;
        return false;
    }
    *again = importer->asks > 0;
    importer->may_map = true;
    importer->state = ASKED;
    importer->asks += importer->asks < MOST_ASKS;
    importer->skip = (unsigned)UNANSWERED_CALLS << importer->asks;
    return true;
}

static void set_state(uint64_t buffer_id, int rank, enum state state)
{
    fr_core_lock(&lock);
    struct importer *importer = find_importer(find(buffer_id), rank);
    if (importer != NULL) {
        importer->state = state;
        if (state != MAPPED) { // later each time, since mapping one may unmap another
            importer->skip = 1u << importer->asks;
            note_change();
        }
    }
    fr_core_unlock(&lock);
}

// Sends a process what it needs to map memory besides the handle. Returns whether it can map.
static bool can_map(int to, const struct fr_ipc_handle *handle, bool again)
{
    const struct fr_job_process *process = fr_job_process_of(to);
    if (process == NULL)
        return handle->ways & FR_SHARE_FABRIC;
    return fr_ipc_send_descriptor(handle, process, 1, again) == FR_OK;
}

static void ask(int to, const struct fr_ipc_handle *handle, bool again)
{
    if (!can_map(to, handle, again) ||
        !fr_job_control_send(to, FR_CONTROL_MAP, handle, sizeof(*handle)))
        set_state(handle->buffer_id, to, SEEN);
}

bool fr_ipc_is_mapped_by(int to, const struct fr_ipc_handle *handle, bool at_once)
{
    bool is_new = false, due = false, again = false;
    if (to == fr_job_control_rank())
        return true;
    if (!fr_job_control_reaches(to))
        return false;
    fr_core_lock(&lock);
    struct importer *importer = get(handle, to, &is_new);
    bool mapped = importer != NULL && importer->state == MAPPED;
    if (FR_UNLIKELY(importer != NULL && !mapped))
        due = begin_to_ask(importer, at_once, &again);
    fr_core_unlock(&lock);
    if (FR_UNLIKELY(is_new))
        look_at_all();
    if (FR_UNLIKELY(is_new || due)) // others forget gone memory before they map
        tell_gone();
    if (due)
        ask(to, handle, again);
    return mapped;
}

void fr_ipc_importers_heard(int rank, uint64_t buffer_id, bool mapped)
{
    set_state(buffer_id, rank, mapped ? MAPPED : SEEN);
}

void fr_ipc_importers_release(void)
{
    fr_core_lock(&lock);
    HASH_CLEAR(hh, table);
    note_change();
    while (!fr_list_is_empty(&turn)) {
        struct shared *shared = shared_of(turn.next);
        fr_list_remove(&shared->link);
        destroy(shared);
        fr_core_housekeeping_change(true, false);
    }
    while (!fr_list_is_empty(&gone)) {
        struct shared *shared = shared_of(gone.next);
        fr_list_remove(&shared->link);
        destroy(shared);
        fr_core_housekeeping_change(true, false);
    }
    atomic_store_explicit(&shared_count, 0, memory_order_relaxed);
    atomic_store_explicit(&gone_count, 0, memory_order_relaxed);
    fr_core_unlock(&lock);
}
