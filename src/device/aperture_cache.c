// SPDX-License-Identifier: BSD-3-Clause
// The cache of apertures.
//
// An aperture is known by its memory's BUFFER_ID, which the driver never gives twice, and by the
// aligned part of the address space that it covers. Marks in the same table tell allocations that
// were used once, and those that a way refused. One thread at a time opens and closes; another that
// would have to leaves its copy to the driver. Nothing is opened or closed under the lock.
#include "config.h"

#include "device/aperture_cache.h"

#include "fabrail/core/hash.h"
#include "fabrail/core/list.h"
#include "fabrail/core/time.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    MOST_OPEN = 256,   // apertures
    MOST_MARKS = 4096, // allocations without one that are remembered
    LOOK_EVERY_NS = 5000000,
    LOOK_AT = 16, // apertures in one look
};

#define MOST_BYTES ((size_t)64 << 20)
#define MARK       UINTPTR_MAX

struct key {
    uint64_t id;
    uintptr_t part; // of the address space; MARK for a mark
};

struct entry {
    struct key key;
    UT_hash_handle hh;
    struct fr_list link; // in `open`, `marks` or `gone`
    struct fr_device_aperture aperture;
    unsigned users;  // threads that copy by it
    bool is_listed;  // it is in the table; else its last user puts it in `gone`
    bool is_refused; // a mark: no way serves the allocation
    uint64_t call;   // a mark: the MPI call of the first use, as its thread counts them; 0 for none
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct entry *table FR_GUARDED_BY(lock);
static struct fr_list open FR_GUARDED_BY(lock) = FR_LIST_INIT(open);   // latest used first
static struct fr_list marks FR_GUARDED_BY(lock) = FR_LIST_INIT(marks); // newest first
static struct fr_list gone FR_GUARDED_BY(lock) = FR_LIST_INIT(gone);   // to be closed
static unsigned open_count FR_GUARDED_BY(lock);
static unsigned mark_count FR_GUARDED_BY(lock);
static size_t open_bytes FR_GUARDED_BY(lock);
static atomic_flag turn = ATOMIC_FLAG_INIT; // of the thread that opens and closes
static _Atomic int64_t looked_ns;
static atomic_bool is_child; // of a process that had apertures, which are not the child's

static _Atomic uint64_t openings;

_Atomic size_t fr_device_apertures_held;

static struct entry *entry_of(struct fr_list *link)
{
    return FR_LIST_ENTRY(link, struct entry, link);
}

static struct entry *find(uint64_t id, uintptr_t part) FR_REQUIRES(lock)
{
    const struct key key = {id, part};
    struct entry *entry = NULL;
    HASH_FIND(hh, table, &key, sizeof(key), entry);
    return entry;
}

// Takes an aperture out of the table. Its last user has it closed.
static void unlist(struct entry *entry) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, table, entry);
    fr_list_remove(&entry->link);
    entry->is_listed = false;
    open_count--;
    open_bytes -= entry->aperture.bytes;
    if (entry->users == 0)
        fr_list_push_front(&gone, &entry->link);
}

void fr_device_aperture_leave(struct fr_device_aperture *aperture)
{
    struct entry *entry = FR_LIST_ENTRY(aperture, struct entry, aperture);
    fr_core_lock(&lock);
    if (--entry->users == 0 && !entry->is_listed)
        fr_list_push_front(&gone, &entry->link);
    fr_core_unlock(&lock);
}

static void count_held(size_t more, size_t less)
{
    size_t before =
        atomic_fetch_add_explicit(&fr_device_apertures_held, more - less, memory_order_relaxed);
    fr_core_housekeeping_change(before > 0, before + more - less > 0);
}

// Closes what has left the table. The caller has the turn.
static void close_gone(void)
{
    for (;;) {
        fr_core_lock(&lock);
        struct entry *entry = fr_list_is_empty(&gone) ? NULL : entry_of(gone.next);
        if (entry != NULL)
            fr_list_remove(&entry->link);
        fr_core_unlock(&lock);
        if (entry == NULL)
            return;
        entry->aperture.way->close(&entry->aperture);
        free(entry);
        count_held(0, 1);
    }
}

static bool take_turn(void)
{
    return !atomic_flag_test_and_set_explicit(&turn, memory_order_acquire);
}

static void give_turn(void)
{
    atomic_flag_clear_explicit(&turn, memory_order_release);
}

// Makes room for an aperture. Returns false where all of the others are in use.
static bool make_room(size_t bytes) FR_REQUIRES(lock)
{
    for (struct fr_list *at = open.prev, *before;
         at != &open && (open_count >= MOST_OPEN || open_bytes + bytes > MOST_BYTES); at = before) {
        before = at->prev;
        if (entry_of(at)->users == 0)
            unlist(entry_of(at));
    }
    return open_count < MOST_OPEN && open_bytes + bytes <= MOST_BYTES;
}

// Takes apertures out of the table that cover addresses of [low, low + bytes) with another id:
// their memory has been freed.
static void unlist_older(uint64_t id, uintptr_t low, size_t bytes) FR_REQUIRES(lock)
{
    for (struct fr_list *at = open.next, *next; at != &open; at = next) {
        struct entry *entry = entry_of(at);
        next = at->next;
        if (entry->key.id != id && entry->aperture.low < low + bytes &&
            low < entry->aperture.low + entry->aperture.bytes)
            unlist(entry);
    }
}

// Marks an allocation as used once. Returns the mark, NULL without memory, which only costs time.
static struct entry *mark(uint64_t id) FR_REQUIRES(lock)
{
    struct entry *entry = NULL;
    if (mark_count < MOST_MARKS) {
        entry = calloc(1, sizeof(*entry));
    } else { // the oldest serves again
        entry = entry_of(marks.prev);
        HASH_DELETE(hh, table, entry);
        fr_list_remove(&entry->link);
        mark_count--;
        memset(entry, 0, sizeof(*entry));
    }
    if (entry == NULL)
        return NULL;
    entry->key = (struct key){id, MARK};
    entry->call = fr_device_call;
    HASH_ADD(hh, table, key, sizeof(entry->key), entry);
    if (!FR_HASH_HAS(entry)) {
        free(entry);
        return NULL;
    }
    fr_list_push_front(&marks, &entry->link);
    mark_count++;
    return entry;
}

// Writes the part of the allocation around an address for which an aperture is made.
static void part_around(const struct fr_device_range *range, uintptr_t address, uintptr_t *low,
                        size_t *bytes)
{
    uintptr_t first = address >> FR_APERTURE_SHIFT << FR_APERTURE_SHIFT;
    uintptr_t end = first + ((uintptr_t)1 << FR_APERTURE_SHIFT);
    uintptr_t last = range->base + range->bytes;
    *low = first > range->base ? first : range->base;
    *bytes = (end < last ? end : last) - *low;
}

// Returns whether a part lies in the allocation of the range as a whole. The range of VMM memory
// can hold several.
static bool is_whole(const struct fr_device_range *range, uintptr_t low, size_t bytes)
{
    const uintptr_t ends[] = {low, low + bytes - 1};
    bool whole = true;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(ends) && whole && range->kind >= FR_KIND_VMM; i++)
        whole = fr_device_is_buffer((const void *)ends[i], range->buffer_id);
    return whole;
}

void fr_device_aperture_refuse(const struct fr_device_aperture_way *way, uint64_t id)
{
    static atomic_bool is_logged;
    fr_core_lock(&lock);
    struct entry *refused = find(id, MARK);
    if (refused == NULL)
        refused = mark(id);
    if (refused != NULL)
        refused->is_refused = true;
    for (struct fr_list *at = open.next, *next; at != &open; at = next) {
        next = at->next;
        if (entry_of(at)->key.id == id)
            unlist(entry_of(at));
    }
    fr_core_unlock(&lock);
    if (!atomic_exchange(&is_logged, true))
        fr_info("the CPU does not reach some memory of a GPU by %s, so the driver copies it",
                way->name);
    fr_debug("the CPU does not reach buffer %llu", (unsigned long long)id);
}

static void forget_in_child(void)
{
    atomic_store_explicit(&is_child, true, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_in_child);
}

// Opens an aperture around an address. The caller has the turn. Returns it with one user, or NULL.
static struct entry *open_anew(const struct fr_device_aperture_way *way,
                               const struct fr_device_range *range, uintptr_t address)
{
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    uintptr_t low;
    size_t bytes;
    part_around(range, address, &low, &bytes);
    fr_core_lock(&lock);
    unlist_older(range->buffer_id, low, bytes);
    bool fits = make_room(bytes);
    fr_core_unlock(&lock);
    close_gone();
    struct entry *entry = fits ? calloc(1, sizeof(*entry)) : NULL;
    if (entry == NULL)
        return NULL;
    (void)pthread_once(&watching, watch_forks);
    entry->key = (struct key){range->buffer_id, address >> FR_APERTURE_SHIFT};
    entry->users = 1;
    enum fr_status status = is_whole(range, low, bytes)
                                ? way->open(range, low, bytes, &entry->aperture)
                                : FR_ERR_UNSUPPORTED;
    if (status != FR_OK) {
        fr_device_aperture_refuse(way, range->buffer_id);
        free(entry);
        return NULL;
    }
    entry->aperture.way = way;
    entry->aperture.low = low;
    entry->aperture.bytes = bytes;
    count_held(1, 0);
    atomic_fetch_add_explicit(&openings, 1, memory_order_relaxed);
    fr_core_lock(&lock);
    HASH_ADD(hh, table, key, sizeof(entry->key), entry);
    entry->is_listed = FR_HASH_HAS(entry);
    if (entry->is_listed) {
        fr_list_push_front(&open, &entry->link);
        open_count++;
        open_bytes += bytes;
    }
    fr_core_unlock(&lock);
    return entry;
}

struct fr_device_aperture *fr_device_aperture_enter(const struct fr_device_aperture_way *way,
                                                    const struct fr_device_range *range,
                                                    uintptr_t address)
{
    if (atomic_load_explicit(&is_child, memory_order_relaxed))
        return NULL;
    fr_core_lock(&lock);
    struct entry *entry = find(range->buffer_id, address >> FR_APERTURE_SHIFT);
    bool may_open = false;
    if (entry != NULL) {
        entry->users++;
        fr_list_remove(&entry->link);
        fr_list_push_front(&open, &entry->link);
    } else {
        struct entry *seen = find(range->buffer_id, MARK);
        may_open =
            seen != NULL && !seen->is_refused && (seen->call == 0 || seen->call != fr_device_call);
        if (seen == NULL)
            (void)mark(range->buffer_id);
    }
    fr_core_unlock(&lock);
    if (entry != NULL)
        return &entry->aperture;
    if (!may_open || !take_turn())
        return NULL;
    fr_core_lock(&lock); // another thread may have had the turn before
    entry = find(range->buffer_id, address >> FR_APERTURE_SHIFT);
    if (entry != NULL)
        entry->users++;
    fr_core_unlock(&lock);
    if (entry == NULL)
        entry = open_anew(way, range, address);
    give_turn();
    return entry != NULL ? &entry->aperture : NULL;
}

static void drop(const struct key *key)
{
    fr_core_lock(&lock);
    struct entry *entry = find(key->id, key->part);
    if (entry != NULL)
        unlist(entry);
    fr_core_unlock(&lock);
}

void fr_device_aperture_look(void)
{
    struct {
        struct key key;
        uintptr_t address;
    } looked[LOOK_AT];
    unsigned count = 0;
    static unsigned passed; // apertures that earlier looks were at; belongs to the turn
    if (atomic_load_explicit(&is_child, memory_order_relaxed) ||
        !fr_time_is_due(&looked_ns, fr_time_coarse_ns(), LOOK_EVERY_NS) || !take_turn())
        return;
    fr_core_lock(&lock);
    unsigned skip = passed < open_count ? passed : 0;
    passed = skip + LOOK_AT;
    for (struct fr_list *at = open.prev; at != &open && count < LOOK_AT; at = at->prev) {
        if (skip > 0) {
            skip--;
            continue;
        }
        looked[count].key = entry_of(at)->key;
        looked[count++].address = entry_of(at)->aperture.low;
    }
    fr_core_unlock(&lock);
    for (unsigned i = 0; i < count; i++) {
        if (!fr_device_is_buffer((const void *)looked[i].address, looked[i].key.id))
            drop(&looked[i].key);
    }
    close_gone();
    give_turn();
}

void fr_device_aperture_release(void)
{
    if (atomic_load_explicit(&is_child, memory_order_relaxed) || !take_turn())
        return;
    fr_core_lock(&lock);
    while (!fr_list_is_empty(&open))
        unlist(entry_of(open.next));
    while (!fr_list_is_empty(&marks)) {
        struct entry *entry = entry_of(marks.next);
        HASH_DELETE(hh, table, entry);
        fr_list_remove(&entry->link);
        free(entry);
    }
    mark_count = 0;
    fr_core_unlock(&lock);
    close_gone();
    give_turn();
}

void fr_device_aperture_count(struct fr_device_aperture_usage *usage)
{
    usage->openings = atomic_load_explicit(&openings, memory_order_relaxed);
    fr_core_lock(&lock);
    usage->open = open_count;
    usage->open_bytes = open_bytes;
    fr_core_unlock(&lock);
}
