// SPDX-License-Identifier: BSD-3-Clause
// Pools: chunks of device memory, cut into leases of any size.
//
// Chunks keep their order, and a lease gets the lowest address with room. So leases gather in few
// chunks and the others fall idle. A program that does the same again gets the same addresses
// again. The MPI's caches of registered and mapped memory depend on that.
#include "config.h"

#include "staging/staging_int.h"

#define LEASE_UNIT_BYTES ((size_t)512)

#define EXTENT_OF_ORDER(link) FR_LIST_ENTRY(link, struct fr_staging_extent, order)
#define EXTENT_OF_FREE(link)  FR_LIST_ENTRY(link, struct fr_staging_extent, free)

static size_t round_up(size_t bytes, size_t unit)
{
    return bytes > SIZE_MAX - unit ? SIZE_MAX / unit * unit : (bytes + unit - 1) / unit * unit;
}

size_t fr_staging_pool_round(size_t bytes)
{
    return round_up(bytes, LEASE_UNIT_BYTES);
}

void fr_staging_pool_init(struct fr_staging_pool *pool)
{
    *pool = (struct fr_staging_pool){0};
    fr_list_init(&pool->chunks);
    fr_list_init(&pool->spares);
}

static struct fr_staging_extent *take_spare(struct fr_staging_pool *pool)
{
    struct fr_staging_extent *spare = EXTENT_OF_FREE(pool->spares.next);
    fr_list_remove(&spare->free);
    return spare;
}

static void put_spare(struct fr_staging_pool *pool, struct fr_staging_extent *extent)
{
    fr_list_push_front(&pool->spares, &extent->free);
}

// Returns the first extent of the chunk that holds `bytes`, NULL for none.
static struct fr_staging_extent *first_fit(struct fr_staging_chunk *chunk, size_t bytes)
{
    size_t largest = 0;
    if (chunk->room_bytes < bytes)
        return NULL;
    for (struct fr_list *link = chunk->free.next; link != &chunk->free; link = link->next) {
        struct fr_staging_extent *extent = EXTENT_OF_FREE(link);
        if (extent->bytes >= bytes)
            return extent;
        if (extent->bytes > largest)
            largest = extent->bytes;
    }
    chunk->room_bytes = largest; // the next lease that is too large needs no search
    return NULL;
}

// Lends the head of a free extent and leaves the rest free.
static void carve(struct fr_staging_pool *pool, struct fr_staging_extent *extent, size_t bytes)
{
    struct fr_staging_chunk *chunk = extent->chunk;
    if (extent->bytes > bytes) {
        struct fr_staging_extent *rest = take_spare(pool);
        rest->chunk = chunk;
        rest->offset_bytes = extent->offset_bytes + bytes;
        rest->bytes = extent->bytes - bytes;
        rest->lent = false;
        fr_list_push_front(&extent->order, &rest->order);
        fr_list_push_front(&extent->free, &rest->free);
        extent->bytes = bytes;
    }
    fr_list_remove(&extent->free);
    extent->lent = true;
    if (chunk->lent_bytes == 0)
        pool->idle_bytes -= chunk->memory.bytes;
    chunk->lent_bytes += bytes;
    pool->lent_bytes += bytes;
}

struct fr_staging_extent *fr_staging_pool_lend(struct fr_staging_pool *pool, size_t bytes)
{
    for (struct fr_list *link = pool->chunks.next; link != &pool->chunks; link = link->next) {
        struct fr_staging_extent *extent =
            first_fit(FR_LIST_ENTRY(link, struct fr_staging_chunk, link), bytes);
        if (extent != NULL) {
            carve(pool, extent, bytes);
            return extent;
        }
    }
    return NULL;
}

// Makes one extent of two neighbours that are free.
static void merge(struct fr_staging_pool *pool, struct fr_staging_extent *low,
                  struct fr_staging_extent *high)
{
    low->bytes += high->bytes;
    fr_list_remove(&high->order);
    fr_list_remove(&high->free);
    put_spare(pool, high);
}

// Puts an extent into the list of free ones, by address. Walks over lent ones in between, which are
// few as a rule.
static void insert_free(struct fr_staging_extent *extent)
{
    struct fr_staging_chunk *chunk = extent->chunk;
    struct fr_list *before = extent->order.prev;
    while (before != &chunk->order && EXTENT_OF_ORDER(before)->lent)
        before = before->prev;
    struct fr_list *place = before != &chunk->order ? &EXTENT_OF_ORDER(before)->free : &chunk->free;
    fr_list_push_front(place, &extent->free);
}

bool fr_staging_pool_give_back(struct fr_staging_pool *pool, struct fr_staging_extent *extent,
                               uint64_t now_ns)
{
    struct fr_staging_chunk *chunk = extent->chunk;
    pool->lent_bytes -= extent->bytes;
    chunk->lent_bytes -= extent->bytes;
    insert_free(extent);
    extent->lent = false;
    struct fr_list *next = extent->order.next;
    struct fr_list *prev = extent->order.prev;
    if (next != &chunk->order && !EXTENT_OF_ORDER(next)->lent)
        merge(pool, extent, EXTENT_OF_ORDER(next));
    if (prev != &chunk->order && !EXTENT_OF_ORDER(prev)->lent) {
        struct fr_staging_extent *low = EXTENT_OF_ORDER(prev);
        merge(pool, low, extent);
        extent = low;
    }
    if (extent->bytes > chunk->room_bytes)
        chunk->room_bytes = extent->bytes;
    if (chunk->lent_bytes > 0)
        return false;
    chunk->idle_since_ns = now_ns;
    pool->idle_bytes += chunk->memory.bytes;
    return true;
}

// Plans to grow by half of what there was, so that a series of ever longer leases needs few chunks.
// The pool gets no more than half more than is lent. Pieces between leases take about as much
// again, and all of it should stay within twice what is lent. A lease that needs more gets what it
// needs.
size_t fr_staging_pool_plan(const struct fr_staging_pool *pool, size_t bytes, size_t max_bytes)
{
    size_t used_bytes = pool->bytes - pool->idle_bytes;
    size_t needed = round_up(bytes, FR_STAGING_CHUNK_UNIT);
    if (needed > max_bytes || used_bytes > max_bytes - needed)
        return 0;
    size_t live_bytes = pool->lent_bytes + bytes;
    size_t wanted = pool->bytes + pool->bytes / 2 - used_bytes;
    size_t enough = live_bytes + live_bytes / 2;
    size_t allowed = enough > used_bytes ? enough - used_bytes : 0;
    if (allowed > max_bytes - used_bytes)
        allowed = max_bytes - used_bytes;
    if (wanted > allowed)
        wanted = allowed;
    wanted -= wanted % FR_STAGING_CHUNK_UNIT;
    return wanted > needed ? wanted : needed;
}

void fr_staging_pool_add(struct fr_staging_pool *pool, struct fr_staging_chunk *chunk,
                         struct fr_staging_extent *whole, struct fr_staging_extent *spare)
{
    *whole = (struct fr_staging_extent){.chunk = chunk, .bytes = chunk->memory.bytes};
    fr_list_init(&chunk->order);
    fr_list_init(&chunk->free);
    fr_list_push_front(&chunk->order, &whole->order);
    fr_list_push_front(&chunk->free, &whole->free);
    chunk->room_bytes = whole->bytes;
    chunk->lent_bytes = 0;
    fr_list_push_front(&pool->chunks, &chunk->link);
    pool->bytes += chunk->memory.bytes;
    pool->idle_bytes += chunk->memory.bytes;
    put_spare(pool, spare);
}

static void condemn(struct fr_staging_pool *pool, struct fr_staging_chunk *chunk,
                    struct fr_list *victims)
{
    struct fr_staging_extent *whole = EXTENT_OF_ORDER(chunk->order.next);
    fr_list_remove(&whole->order);
    fr_list_remove(&whole->free);
    put_spare(pool, whole);
    pool->bytes -= chunk->memory.bytes;
    pool->idle_bytes -= chunk->memory.bytes;
    fr_list_remove(&chunk->link);
    fr_list_push_front(victims, &chunk->link);
}

size_t fr_staging_pool_condemn(struct fr_staging_pool *pool, uint64_t now_ns, uint64_t min_idle_ns,
                               struct fr_list *victims)
{
    size_t before = pool->bytes;
    struct fr_list *next = pool->chunks.next;
    while (pool->idle_bytes > 0 && next != &pool->chunks) {
        struct fr_staging_chunk *chunk = FR_LIST_ENTRY(next, struct fr_staging_chunk, link);
        next = next->next;
        // Threads read the clock before they take the lock, so `now_ns` can be the earlier time.
        bool is_due = min_idle_ns == 0 || (now_ns > chunk->idle_since_ns &&
                                           now_ns - chunk->idle_since_ns >= min_idle_ns);
        if (chunk->lent_bytes == 0 && is_due)
            condemn(pool, chunk, victims);
    }
    return before - pool->bytes;
}
