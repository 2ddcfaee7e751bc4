// SPDX-License-Identifier: BSD-3-Clause
// Tables of datatypes in device memory, for kernels (fabrail/device/shape.h).
//
// A table lies in workspace and is made when a copy first uses it on a device. It goes with its
// datatype, when no copy has used it for seconds, and when workspace or all tables together reach
// their bound. A table that a copy uses goes once the copy is done. The driver is called under no
// lock, so threads that need other tables do not wait. Threads that make the same table at once
// keep that of the first.
#include "config.h"

#include "staging/staging_int.h"

#include "fabrail/core/hash.h"
#include "fabrail/core/time.h"
#include "fabrail/device/shape_table.h"
#include "fabrail/staging/tables.h"

#include <stdlib.h>

#define TABLES_MOST ((size_t)64 << 20)

struct key {
    uint64_t id; // of the compiled layout
    uint64_t device;
};

struct fr_staging_table {
    struct key key;
    struct fr_list link; // of the list by use; empty once the table is doomed
    UT_hash_handle hh;
    unsigned users;
    uint64_t used_ns;
    uint64_t buffer_id;
    struct fr_staging_lease lease;
};

static struct fr_lock tables_lock = FR_LOCK_INIT;
static struct fr_staging_table *by_key FR_GUARDED_BY(tables_lock);
static struct fr_list by_use FR_GUARDED_BY(tables_lock) = FR_LIST_INIT(by_use); // the latest first
static size_t all_bytes FR_GUARDED_BY(tables_lock);
static int last_device FR_GUARDED_BY(tables_lock); // no table is on a device beyond
static _Atomic bool any_tables;

static struct fr_staging_table *find(const struct key *key) FR_REQUIRES(tables_lock)
{
    struct fr_staging_table *found = NULL;
    HASH_FIND(hh, by_key, key, sizeof(*key), found);
    return found;
}

// Takes a table out of the books. If no copy uses it, moves it to `victims`; else its last user
// destroys it.
static void doom(struct fr_staging_table *table, struct fr_list *victims) FR_REQUIRES(tables_lock)
{
    HASH_DELETE(hh, by_key, table);
    fr_list_remove(&table->link);
    all_bytes -= table->lease.bytes;
    atomic_store_explicit(&any_tables, by_key != NULL, memory_order_relaxed);
    if (table->users == 0)
        fr_list_push_front(victims, &table->link);
}

static void destroy(struct fr_staging_table *table)
{
    fr_staging_return(&table->lease);
    free(table);
}

static bool destroy_all(struct fr_list *victims)
{
    bool some = !fr_list_is_empty(victims);
    while (!fr_list_is_empty(victims)) {
        struct fr_staging_table *table =
            FR_LIST_ENTRY(victims->next, struct fr_staging_table, link);
        fr_list_remove(&table->link);
        destroy(table);
    }
    return some;
}

// Drops tables that no copy uses, least recently used first: those that were last used before
// `before_ns`, and others until no more than `most` bytes are left. Returns whether there was one.
static bool drop(size_t most, uint64_t before_ns)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock(&tables_lock);
    for (struct fr_list *link = by_use.prev, *next; link != &by_use; link = next) {
        struct fr_staging_table *table = FR_LIST_ENTRY(link, struct fr_staging_table, link);
        next = link->prev;
        if (all_bytes <= most && table->used_ns >= before_ns)
            break;
        if (table->users == 0)
            doom(table, &victims);
    }
    fr_core_unlock(&tables_lock);
    return destroy_all(&victims);
}

// Makes room for a table of `bytes`. Returns false, and drops none, if those that copies use leave
// too little.
static bool make_room(size_t bytes)
{
    size_t used = 0;
    fr_core_lock(&tables_lock);
    for (struct fr_list *link = by_use.next; link != &by_use; link = link->next) {
        const struct fr_staging_table *table = FR_LIST_ENTRY(link, struct fr_staging_table, link);
        used += table->users > 0 ? table->lease.bytes : 0;
    }
    fr_core_unlock(&tables_lock);
    bool fits = bytes <= TABLES_MOST && used <= TABLES_MOST - bytes;
    if (fits)
        (void)drop(TABLES_MOST - bytes, 0);
    return fits;
}

// Drops the tables of a freed datatype.
static void forget(uint64_t id)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    if (!atomic_load_explicit(&any_tables, memory_order_relaxed))
        return;
    fr_core_lock(&tables_lock);
    for (int device = 0; device <= last_device; device++) {
        const struct key key = {id, (uint64_t)device};
        struct fr_staging_table *table = find(&key);
        if (table)
            doom(table, &victims);
    }
    fr_core_unlock(&tables_lock);
    (void)destroy_all(&victims);
}

void fr_staging_table_return(void *object)
{
    struct fr_staging_table *table = object;
    fr_core_lock(&tables_lock);
    bool last = --table->users == 0 && fr_list_is_empty(&table->link);
    fr_core_unlock(&tables_lock);
    if (last)
        destroy(table);
}

uintptr_t fr_staging_table_address(const struct fr_staging_table *table)
{
    return (uintptr_t)table->lease.address;
}

uint64_t fr_staging_table_buffer(const struct fr_staging_table *table)
{
    return table->buffer_id;
}

// Returns whether a table is still there: a reset of the device may take its memory away.
static bool is_alive(const struct fr_staging_table *table)
{
    return fr_device_is_buffer(table->lease.address, table->buffer_id);
}

// Finds a table and adds the caller as a user. Drops a table whose memory is gone.
static struct fr_staging_table *take(const struct key *key)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock(&tables_lock);
    struct fr_staging_table *table = find(key);
    if (table) {
        table->users++;
        table->used_ns = fr_time_coarse_ns();
        fr_list_remove(&table->link);
        fr_list_push_front(&by_use, &table->link);
    }
    fr_core_unlock(&tables_lock);
    if (!table || is_alive(table))
        return table;
    fr_core_lock(&tables_lock);
    if (!fr_list_is_empty(&table->link))
        doom(table, &victims);
    fr_core_unlock(&tables_lock);
    fr_staging_table_return(table);
    return NULL;
}

static bool upload(struct fr_staging_table *table, const void *from, size_t bytes)
{
    struct fr_device_batch batch;
    struct fr_device_range range;
    const struct fr_device_copy copy = {
        .dst = table->lease.address, .src = from, .bytes = bytes, .n = {1, 1}, .own = true};
    if (fr_device_query(table->lease.address, &range) != FR_OK)
        return false;
    table->buffer_id = range.buffer_id;
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &range, FR_FROM_STAGE, &copy);
    return fr_device_batch_finish(&batch) == FR_OK;
}

// Enters a new table, with the caller as its user, unless another thread has been faster. Returns
// the table that counts; NULL without memory.
static struct fr_staging_table *enter(struct fr_staging_table *made)
{
    fr_core_lock(&tables_lock);
    struct fr_staging_table *first = find(&made->key);
    if (first) {
        first->users++;
    } else {
        HASH_ADD(hh, by_key, key, sizeof(made->key), made);
        if (FR_HASH_HAS(made)) {
            first = made;
            made->users = 1;
            made->used_ns = fr_time_coarse_ns();
            fr_list_push_front(&by_use, &made->link);
            all_bytes += made->lease.bytes;
            last_device = (int)made->key.device > last_device ? (int)made->key.device : last_device;
            atomic_store_explicit(&any_tables, true, memory_order_relaxed);
        }
    }
    fr_core_unlock(&tables_lock);
    if (first != made)
        destroy(made);
    return first;
}

// Returns whether this is the first question about a layout. Layouts share places, so the answer
// may be true again.
static bool is_first_use(uint64_t id)
{
    static _Atomic uint64_t last_ids[256];
    _Atomic uint64_t *last = &last_ids[id % FR_ARRAY_LENGTH(last_ids)];
    bool is_first = atomic_load_explicit(last, memory_order_relaxed) != id;
    if (is_first)
        atomic_store_explicit(last, id, memory_order_relaxed);
    return is_first;
}

static struct fr_staging_table *make(const struct fr_datatype_compiled *compiled,
                                     const struct key *key, size_t bytes)
{
    int device = (int)key->device;
    struct fr_staging_table *table;
    if (!make_room(bytes))
        return NULL;
    fr_datatype_watch(forget);
    table = calloc(1, sizeof(*table));
    if (!table)
        return NULL;
    table->key = *key;
    fr_list_init(&table->link);
    if (fr_staging_borrow_device(device, bytes, &table->lease) != FR_OK) {
        free(table);
        return NULL;
    }
    if (!upload(table, compiled->table, bytes)) {
        destroy(table);
        return NULL;
    }
    table = enter(table);
    fr_staging_device_look_after(fr_time_coarse_ns());
    return table;
}

struct fr_staging_table *fr_staging_table_borrow(const struct fr_datatype_compiled *compiled,
                                                 int device)
{
    const struct key key = {compiled->id, (uint64_t)device};
    struct fr_staging_table *table = take(&key);
    return table ? table : make(compiled, &key, fr_pack_table_bytes(&compiled->shape));
}

struct fr_staging_table *fr_staging_table_borrow_used(const struct fr_datatype_compiled *compiled,
                                                      int device)
{
    const struct key key = {compiled->id, (uint64_t)device};
    size_t bytes = fr_pack_table_bytes(&compiled->shape);
    struct fr_staging_table *table = take(&key);
    if (table || (bytes <= FR_PACK_INLINE_BYTES && is_first_use(compiled->id)))
        return table;
    return make(compiled, &key, bytes);
}

bool fr_staging_tables_drop(uint64_t unused_since_ns)
{
    return atomic_load_explicit(&any_tables, memory_order_relaxed) &&
           drop(unused_since_ns == UINT64_MAX ? 0 : TABLES_MOST, unused_since_ns);
}

bool fr_staging_tables_any(void)
{
    return atomic_load_explicit(&any_tables, memory_order_relaxed);
}
