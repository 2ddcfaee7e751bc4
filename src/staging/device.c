// SPDX-License-Identifier: BSD-3-Clause
// Leases of device memory: one pool for each device, the bound on it, and when memory goes back to
// the driver.
//
// One lock guards all pools and is held for a few list operations. Chunks are made and destroyed
// outside of it. One thread at a time adds a chunk to a pool. Others that find no room wait to see
// whether that chunk has room for them too. A chunk for each thread would take far more memory than
// is lent.
#include "config.h"

#include "staging/staging_int.h"

#include "fabrail/core/time.h"
#include "fabrail/core/wait.h"

#include <stdlib.h>

// A device with less than one SHORT_PART-th of its memory left is short of it. Idle memory is worth
// giving back if it is more than one WORTH_PART-th of what is left.
enum { SHORT_PART = 32, WORTH_PART = 8 };

// Time between two questions to the driver how much memory is left, each of which takes
// microseconds. Memory that is given back takes far longer to make again, and longer still until
// other processes have mapped it. A program that leaves little memory mostly does so all the time.
#define ASK_AGAIN_NS ((uint64_t)1000 * 1000 * 1000)

static struct fr_lock pools_lock = FR_LOCK_INIT;

// Pools by number of the device, initialised on first use.
static struct fr_staging_pool pools[FR_DEVICE_MAX] FR_GUARDED_BY(pools_lock);
static struct fr_staging_device_usage usage FR_GUARDED_BY(pools_lock);

// Time of the next look for memory that has been idle too long; 0 while nothing is idle.
_Atomic uint64_t fr_staging_look_at_ns;

static void set_look(uint64_t at_ns) FR_REQUIRES(&pools_lock)
{
    uint64_t before = atomic_exchange_explicit(&fr_staging_look_at_ns, at_ns, memory_order_relaxed);
    fr_core_housekeeping_change(before != 0, at_ns != 0);
}

static struct fr_staging_pool *pool_of(int device) FR_REQUIRES(&pools_lock)
{
    struct fr_staging_pool *pool = &pools[device];
    if (FR_UNLIKELY(pool->chunks.next == NULL))
        fr_staging_pool_init(pool);
    return pool;
}

static void count_lent(size_t bytes) FR_REQUIRES(&pools_lock)
{
    usage.lent_bytes += bytes;
    if (usage.lent_bytes > usage.peak_lent_bytes)
        usage.peak_lent_bytes = usage.lent_bytes;
}

static void count_made(size_t bytes) FR_REQUIRES(&pools_lock)
{
    usage.bytes += bytes;
    if (usage.bytes > usage.peak_bytes)
        usage.peak_bytes = usage.bytes;
}

// Condemns chunks that have been idle for `min_idle_ns`; 0 condemns all idle ones.
static void condemn(struct fr_staging_pool *pool, uint64_t now_ns, uint64_t min_idle_ns,
                    struct fr_list *victims) FR_REQUIRES(&pools_lock)
{
    usage.bytes -= fr_staging_pool_condemn(pool, now_ns, min_idle_ns, victims);
}

static void tell_watcher(const struct fr_staging_chunk *chunk)
{
    struct fr_device_range range;
    if (fr_device_query_id((const void *)chunk->memory.address, &range) == FR_OK)
        fr_staging_tell_watcher(range.buffer_id);
}

static void destroy_chunk(struct fr_staging_chunk *chunk)
{
    tell_watcher(chunk);
    fr_debug("device %d workspace gives back %zu bytes", chunk->memory.device, chunk->memory.bytes);
    fr_device_memory_destroy(&chunk->memory);
    free(chunk);
}

static void destroy_all(struct fr_list *victims)
{
    while (!fr_list_is_empty(victims)) {
        struct fr_staging_chunk *chunk =
            FR_LIST_ENTRY(victims->next, struct fr_staging_chunk, link);
        fr_list_remove(&chunk->link);
        destroy_chunk(chunk);
    }
}

static void release_idle(int device)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock(&pools_lock);
    condemn(pool_of(device), 0, 0, &victims);
    fr_core_unlock(&pools_lock);
    destroy_all(&victims);
}

// Makes sure that the pool has a spare extent, to split another with. Releases the lock to allocate
// one. Returns false when there is no memory for it.
static bool stock_spare(struct fr_staging_pool *pool) FR_REQUIRES(&pools_lock)
{
    while (FR_UNLIKELY(fr_list_is_empty(&pool->spares))) {
        fr_core_unlock(&pools_lock);
        struct fr_staging_extent *spare = calloc(1, sizeof(*spare));
        fr_core_lock(&pools_lock);
        if (spare == NULL)
            return false;
        fr_list_push_front(&pool->spares, &spare->free);
    }
    return true;
}

// Lends an extent of the chunks that there are. Returns NULL if none has room. This thread, and no
// other one, then adds a chunk, and ends that with end_growth. Releases the lock while another
// thread does, which takes milliseconds.
static struct fr_staging_extent *borrow_cached(int device, size_t bytes)
{
    struct fr_staging_extent *extent = NULL;
    struct fr_wait wait = {.nap_ns = 20000};
    fr_core_lock(&pools_lock);
    struct fr_staging_pool *pool = pool_of(device);
    for (;;) {
        if (!fr_list_is_empty(&pool->chunks) && stock_spare(pool))
            extent = fr_staging_pool_lend(pool, bytes);
        if (extent != NULL || !pool->is_growing)
            break;
        fr_core_unlock(&pools_lock);
        (void)fr_wait_step(&wait);
        fr_core_lock(&pools_lock);
    }
    if (extent != NULL)
        count_lent(bytes);
    else
        pool->is_growing = true;
    fr_core_unlock(&pools_lock);
    return extent;
}

// A chunk to be added, with its extents.
struct addition {
    struct fr_staging_chunk *chunk;
    struct fr_staging_extent *whole;
    struct fr_staging_extent *spare;
};

static void discard(struct addition *made)
{
    free(made->spare);
    free(made->whole);
    free(made->chunk);
    *made = (struct addition){0};
}

static enum fr_status make_chunk(int device, size_t bytes, struct addition *made)
{
    made->chunk = calloc(1, sizeof(*made->chunk));
    made->whole = calloc(1, sizeof(*made->whole));
    made->spare = calloc(1, sizeof(*made->spare));
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (made->chunk != NULL && made->whole != NULL && made->spare != NULL)
        status = fr_device_memory_create(device, bytes, &made->chunk->memory);
    if (status != FR_OK) {
        discard(made);
        return status;
    }
    fr_device_classify((const void *)made->chunk->memory.address, 1, &made->chunk->range);
    made->chunk->range.device = device; // whatever device is current now
    fr_debug("device %d workspace takes %zu bytes at 0x%zx, shared in ways 0x%x", device,
             made->chunk->memory.bytes, (size_t)made->chunk->memory.address,
             made->chunk->memory.ways);
    return FR_OK;
}

// Returns the bytes of the chunk to add for a lease of `bytes`, and gives up all idle chunks, which
// were too small. Returns 0 when the bound does not allow it, and then gives up nothing.
static size_t plan(int device, size_t bytes, size_t max_bytes)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    fr_core_lock(&pools_lock);
    struct fr_staging_pool *pool = pool_of(device);
    size_t chunk_bytes = fr_staging_pool_plan(pool, bytes, max_bytes);
    if (chunk_bytes > 0)
        condemn(pool, 0, 0, &victims);
    fr_core_unlock(&pools_lock);
    destroy_all(&victims);
    return chunk_bytes;
}

// Ends the growth of a pool: adds the chunk, if there is one, and lends from it. Returns NULL when
// there is none, or when it came out larger than asked for and beyond the bound. It then stays the
// caller's.
static struct fr_staging_extent *end_growth(int device, size_t bytes, size_t max_bytes,
                                            const struct addition *made)
{
    struct fr_staging_extent *extent = NULL;
    size_t made_bytes = made->chunk != NULL ? made->chunk->memory.bytes : 0;
    fr_core_lock(&pools_lock);
    struct fr_staging_pool *pool = pool_of(device);
    if (made_bytes > 0 && pool->bytes + made_bytes <= max_bytes) {
        fr_staging_pool_add(pool, made->chunk, made->whole, made->spare);
        count_made(made_bytes);
        extent = fr_staging_pool_lend(pool, bytes);
        count_lent(bytes);
    }
    pool->is_growing = false;
    fr_core_unlock(&pools_lock);
    return extent;
}

static enum fr_status refuse_beyond_limit(size_t max_bytes)
{
    char text[FR_BYTES_TEXT];
    if (max_bytes > 0) // 0 switches workspace off, so a warning would be noise
        fr_warn_once("the workspace in device memory is full with the %s of FABRAIL_WORKSPACE_MAX, "
                     "so some messages do without",
                     fr_core_bytes_text(max_bytes, text));
    return FR_ERR_LIMIT;
}

static enum fr_status refuse_without_memory(int device, size_t bytes)
{
    fr_warn_once("device %d has no memory left for %zu bytes of workspace, so some messages do "
                 "without",
                 device, bytes);
    return FR_ERR_NO_MEMORY;
}

// Lends from a new chunk. Returns NULL if there can be none, and writes why to *status.
static struct fr_staging_extent *grow(int device, size_t bytes, enum fr_status *status)
{
    struct addition made = {0};
    size_t max_bytes = fr_core_settings()->workspace_max_bytes;
    size_t chunk_bytes = plan(device, bytes, max_bytes);
    *status = chunk_bytes > 0 ? make_chunk(device, chunk_bytes, &made) : FR_ERR_LIMIT;
    if (*status == FR_ERR_NO_MEMORY) { // with what fell idle meanwhile, and no more than needed
        release_idle(device);
        *status = make_chunk(device, bytes, &made);
    }
    struct fr_staging_extent *extent = end_growth(device, bytes, max_bytes, &made);
    if (extent == NULL && *status == FR_OK) {
        fr_device_memory_destroy(&made.chunk->memory);
        discard(&made);
        *status = FR_ERR_LIMIT;
    }
    return extent;
}

static struct fr_staging_extent *lend(int device, size_t bytes, enum fr_status *status)
{
    struct fr_staging_extent *extent = borrow_cached(device, bytes);
    return extent != NULL ? extent : grow(device, bytes, status);
}

static enum fr_status refuse(int device, size_t bytes, enum fr_status status)
{
    if (status == FR_ERR_LIMIT)
        return refuse_beyond_limit(fr_core_settings()->workspace_max_bytes);
    return status == FR_ERR_NO_MEMORY ? refuse_without_memory(device, bytes) : status;
}

// Returns how much memory the driver had left on a device, a few milliseconds ago at most.
static size_t memory_left(int device)
{
    enum { FRESH_NS = 5000000 };
    static _Atomic uint64_t queried_ns[FR_DEVICE_MAX];
    static _Atomic size_t answers[FR_DEVICE_MAX];
    uint64_t now_ns = fr_time_coarse_ns();
    uint64_t at_ns = atomic_load_explicit(&queried_ns[device], memory_order_acquire);
    if (at_ns && now_ns - at_ns < FRESH_NS)
        return atomic_load_explicit(&answers[device], memory_order_relaxed);
    size_t free_bytes = 0, total = 0;
    fr_device_memory_left(device, &free_bytes, &total);
    atomic_store_explicit(&answers[device], free_bytes, memory_order_relaxed);
    atomic_store_explicit(&queried_ns[device], now_ns, memory_order_release);
    return free_bytes;
}

bool fr_staging_may_lend(int device, size_t bytes)
{
    enum { REST_BYTES = 8 << 20 }; // allocations are rounded up by no more than this
    if (device < 0 || device >= FR_DEVICE_MAX)
        return false;
    fr_core_lock(&pools_lock);
    const struct fr_staging_pool *pool = pool_of(device);
    size_t lent = pool->lent_bytes;
    size_t idle = pool->bytes - lent;
    fr_core_unlock(&pools_lock);
    if (bytes > fr_core_settings()->workspace_max_bytes ||
        lent > fr_core_settings()->workspace_max_bytes - bytes)
        return false;
    return bytes <= idle / 2 || memory_left(device) > bytes + bytes / 8 + REST_BYTES;
}

enum fr_status fr_staging_borrow_device(int device, size_t bytes, struct fr_staging_lease *lease)
{
    if (bytes == 0 || device < 0 || device >= FR_DEVICE_MAX)
        return FR_ERR_INVALID;
    bytes = fr_staging_pool_round(bytes);
    enum fr_status status = FR_OK;
    struct fr_staging_extent *extent = lend(device, bytes, &status);
    if (extent == NULL && fr_staging_tables_drop(UINT64_MAX)) // tables can be made again
        extent = lend(device, bytes, &status);
    if (extent == NULL)
        return refuse(device, bytes, status);
    // The extent belongs to the borrower now, so it is read without the lock.
    *lease = (struct fr_staging_lease){
        .address = (void *)(extent->chunk->memory.address + extent->offset_bytes),
        .bytes = extent->bytes,
        .extent = extent,
    };
    return FR_OK;
}

struct fr_device_range fr_staging_lease_range(const struct fr_staging_lease *lease)
{
    return lease->extent->chunk->range;
}

// Returns whether the program is about to run out of memory on the device, and `idle_bytes` more
// would help.
static bool is_short(int device, size_t idle_bytes)
{
    size_t free_bytes = 0, total = 0;
    fr_device_memory_left(device, &free_bytes, &total);
    return total > 0 && free_bytes < total / SHORT_PART && idle_bytes > free_bytes / WORTH_PART;
}

void fr_staging_device_return(struct fr_staging_extent *extent, uint64_t now_ns)
{
    int device = extent->chunk->memory.device;
    struct fr_list victims = FR_LIST_INIT(victims);
    bool ask = false;
    fr_core_lock(&pools_lock);
    struct fr_staging_pool *pool = pool_of(device);
    usage.lent_bytes -= extent->bytes;
    if (fr_staging_pool_give_back(pool, extent, now_ns)) {
        ask = now_ns > pool->queried_ns && now_ns - pool->queried_ns >= ASK_AGAIN_NS;
        if (ask)
            pool->queried_ns = now_ns;
    }
    condemn(pool, now_ns, FR_STAGING_IDLE_NS, &victims);
    size_t idle_bytes = pool->idle_bytes;
    if (idle_bytes > 0)
        set_look(now_ns + FR_STAGING_IDLE_NS);
    fr_core_unlock(&pools_lock);
    destroy_all(&victims);
    if (ask && is_short(device, idle_bytes))
        release_idle(device);
}

void fr_staging_device_look_after(uint64_t now_ns)
{
    fr_core_lock(&pools_lock);
    if (atomic_load_explicit(&fr_staging_look_at_ns, memory_order_relaxed) == 0)
        set_look(now_ns + FR_STAGING_IDLE_NS);
    fr_core_unlock(&pools_lock);
}

void fr_staging_device_trim(uint64_t now_ns)
{
    if (now_ns < atomic_load_explicit(&fr_staging_look_at_ns, memory_order_relaxed))
        return;
    struct fr_list victims = FR_LIST_INIT(victims);
    size_t idle_bytes = 0;
    (void)fr_staging_tables_drop(now_ns - FR_STAGING_IDLE_NS);
    fr_core_lock(&pools_lock);
    for (int device = 0; device < FR_DEVICE_MAX; device++) {
        struct fr_staging_pool *pool = pool_of(device);
        condemn(pool, now_ns, FR_STAGING_IDLE_NS, &victims);
        idle_bytes += pool->idle_bytes;
    }
    bool more = idle_bytes > 0 || fr_staging_tables_any();
    set_look(more ? now_ns + FR_STAGING_IDLE_NS : 0);
    fr_core_unlock(&pools_lock);
    destroy_all(&victims);
}

struct fr_staging_device_usage fr_staging_get_device_usage(void)
{
    fr_core_lock(&pools_lock);
    struct fr_staging_device_usage now = usage;
    fr_core_unlock(&pools_lock);
    return now;
}

// Gives back the idle memory of a pool, and frees its spare extents. There are as many of these as
// there ever were leases at once.
static void release_pool(int device)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    struct fr_list spares = FR_LIST_INIT(spares);
    fr_core_lock(&pools_lock);
    struct fr_staging_pool *pool = pool_of(device);
    condemn(pool, 0, 0, &victims);
    while (!fr_list_is_empty(&pool->spares)) {
        struct fr_list *link = pool->spares.next;
        fr_list_remove(link);
        fr_list_push_front(&spares, link);
    }
    fr_core_unlock(&pools_lock);
    destroy_all(&victims);
    while (!fr_list_is_empty(&spares)) {
        struct fr_staging_extent *spare =
            FR_LIST_ENTRY(spares.next, struct fr_staging_extent, free);
        fr_list_remove(&spare->free);
        free(spare);
    }
}

void fr_staging_device_release(void)
{
    (void)fr_staging_tables_drop(UINT64_MAX);
    for (int device = 0; device < FR_DEVICE_MAX; device++)
        release_pool(device);
}
