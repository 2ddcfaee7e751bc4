// SPDX-License-Identifier: BSD-3-Clause
// Pools of device memory without a device: where leases go, that neighbours become one again in
// whatever order they come back, how pools grow at their bounds plus and minus one, and what is due
// to be given back.
#include "config.h"

#include "staging/staging_int.h"

#include "check.h"

#include <stdlib.h>

#define UNIT FR_STAGING_CHUNK_UNIT

static struct fr_staging_pool pool;

static void add_spares(unsigned count)
{
    while (count-- > 0) {
        struct fr_staging_extent *spare = calloc(1, sizeof(*spare));
        if (spare != NULL)
            fr_list_push_front(&pool.spares, &spare->free);
    }
}

static struct fr_staging_chunk *add_chunk(uintptr_t address, size_t bytes)
{
    struct fr_staging_chunk *chunk = calloc(1, sizeof(*chunk));
    struct fr_staging_extent *whole = calloc(1, sizeof(*whole));
    struct fr_staging_extent *spare = calloc(1, sizeof(*spare));
    if (chunk == NULL || whole == NULL || spare == NULL)
        exit(CHECK_FAIL);
    chunk->memory = (struct fr_device_memory){.address = address, .bytes = bytes};
    fr_staging_pool_add(&pool, chunk, whole, spare);
    return chunk;
}

static unsigned length_of(const struct fr_list *list)
{
    unsigned length = 0;
    for (const struct fr_list *link = list->next; link != list; link = link->next) {
        CHECK(link->next->prev == link);
        length++;
    }
    return length;
}

static void start(void)
{
    fr_staging_pool_init(&pool);
    add_spares(8);
}

// Everything must have been returned: each chunk is one extent again.
static void finish(void)
{
    struct fr_list victims = FR_LIST_INIT(victims);
    unsigned chunks = length_of(&pool.chunks);
    size_t bytes = pool.bytes;
    CHECK(pool.lent_bytes == 0 && pool.idle_bytes == bytes);
    for (struct fr_list *link = pool.chunks.next; link != &pool.chunks; link = link->next) {
        struct fr_staging_chunk *chunk = FR_LIST_ENTRY(link, struct fr_staging_chunk, link);
        CHECK(length_of(&chunk->order) == 1 && length_of(&chunk->free) == 1);
        CHECK(chunk->room_bytes == chunk->memory.bytes);
    }
    CHECK(fr_staging_pool_condemn(&pool, 0, 0, &victims) == bytes);
    CHECK(pool.bytes == 0 && pool.idle_bytes == 0 && length_of(&victims) == chunks);
    CHECK(length_of(&pool.spares) == 8 + 2 * chunks);
    while (!fr_list_is_empty(&victims)) {
        struct fr_staging_chunk *chunk = FR_LIST_ENTRY(victims.next, struct fr_staging_chunk, link);
        fr_list_remove(&chunk->link);
        free(chunk);
    }
    while (!fr_list_is_empty(&pool.spares)) {
        struct fr_staging_extent *spare =
            FR_LIST_ENTRY(pool.spares.next, struct fr_staging_extent, free);
        fr_list_remove(&spare->free);
        free(spare);
    }
}

static struct fr_staging_extent *lend_at(size_t bytes, const struct fr_staging_chunk *chunk,
                                         size_t offset_bytes, int line)
{
    struct fr_staging_extent *extent = fr_staging_pool_lend(&pool, bytes);
    CHECK(extent != NULL && extent->chunk == chunk && extent->offset_bytes == offset_bytes &&
              extent->bytes == bytes && extent->lent,
          "line %d: %zu bytes at %zu", line, bytes, extent != NULL ? extent->offset_bytes : 0);
    if (extent == NULL)
        exit(CHECK_FAIL);
    return extent;
}
#define LEND(bytes, chunk, offset) lend_at(bytes, chunk, offset, __LINE__)
#define GIVE(extent)               fr_staging_pool_give_back(&pool, extent, 0)

static void test_round(void)
{
    CHECK(fr_staging_pool_round(1) == 512 && fr_staging_pool_round(511) == 512);
    CHECK(fr_staging_pool_round(512) == 512 && fr_staging_pool_round(513) == 1024);
    CHECK(fr_staging_pool_round(SIZE_MAX) > SIZE_MAX - 512); // and not 0
}

static void test_first_fit(void)
{
    start();
    CHECK(fr_staging_pool_lend(&pool, 512) == NULL);
    struct fr_staging_chunk *chunk = add_chunk(0x1000000, UNIT);
    struct fr_staging_extent *a = LEND(512, chunk, 0);
    struct fr_staging_extent *b = LEND(1024, chunk, 512);
    struct fr_staging_extent *c = LEND(512, chunk, 1536);
    CHECK(!GIVE(b));
    b = LEND(512, chunk, 512);                             // the head of the hole
    struct fr_staging_extent *d = LEND(1024, chunk, 2048); // its rest is too small
    struct fr_staging_extent *e = LEND(512, chunk, 1024);  // for this it is just enough
    CHECK(pool.lent_bytes == 3072 && chunk->lent_bytes == 3072 && pool.idle_bytes == 0);
    CHECK(fr_staging_pool_lend(&pool, UNIT - 3072 + 512) == NULL);
    struct fr_staging_extent *f = LEND(UNIT - 3072, chunk, 3072);
    CHECK(pool.lent_bytes == UNIT);
    CHECK(fr_staging_pool_lend(&pool, 512) == NULL && chunk->room_bytes == 0);
    CHECK(!GIVE(a) && chunk->room_bytes == 512);
    a = LEND(512, chunk, 0);
    CHECK(!GIVE(f) && !GIVE(e) && !GIVE(d) && !GIVE(c) && !GIVE(b) && GIVE(a));
    a = LEND(UNIT, chunk, 0);
    CHECK(fr_staging_pool_lend(&pool, 512) == NULL);
    CHECK(GIVE(a));
    CHECK(fr_staging_pool_lend(&pool, UNIT + 512) == NULL);
    finish();
}

// Five leases side by side, returned in each of the 120 orders.
static void test_orders(void)
{
    enum { LEASES = 5, ORDERS = 120 };
    start();
    struct fr_staging_chunk *chunk = add_chunk(0x1000000, UNIT);
    for (unsigned order = 0; order < ORDERS; order++) {
        struct fr_staging_extent *leases[LEASES];
        for (size_t i = 0; i < LEASES; i++)
            leases[i] = LEND(1024, chunk, 1024 * i);
        unsigned digits = order;
        for (unsigned left = LEASES; left > 0; left--) {
            unsigned pick = digits % left;
            digits /= left;
            CHECK(GIVE(leases[pick]) == (left == 1));
            leases[pick] = leases[left - 1];
            CHECK(pool.lent_bytes == 1024 * (left - 1));
        }
        CHECK(length_of(&chunk->order) == 1 && length_of(&chunk->free) == 1, "order %u", order);
        CHECK(length_of(&pool.spares) == 9);
    }
    finish();
}

// The newest chunk first, and the same places again for the same requests.
static void test_chunks(void)
{
    start();
    struct fr_staging_chunk *old = add_chunk(0x1000000, UNIT);
    struct fr_staging_chunk *young = add_chunk(0x9000000, 2 * UNIT);
    CHECK(pool.bytes == 3 * UNIT && pool.idle_bytes == 3 * UNIT);
    for (int round = 0; round < 3; round++) {
        struct fr_staging_extent *a = LEND(UNIT + 512, young, 0);
        CHECK(pool.idle_bytes == UNIT);
        struct fr_staging_extent *b = LEND(UNIT, old, 0);
        struct fr_staging_extent *c = LEND(UNIT - 512, young, UNIT + 512);
        CHECK(pool.idle_bytes == 0);
        if (round == 1)
            CHECK(GIVE(b) && !GIVE(a) && GIVE(c));
        else
            CHECK(!GIVE(a) && GIVE(b) && GIVE(c));
        CHECK(pool.idle_bytes == 3 * UNIT);
    }
    finish();
}

static void test_plan(void)
{
    start();
    const size_t no_bound = (size_t)1 << 44;
    CHECK(fr_staging_pool_plan(&pool, 1, no_bound) == UNIT);
    CHECK(fr_staging_pool_plan(&pool, UNIT, no_bound) == UNIT);
    CHECK(fr_staging_pool_plan(&pool, UNIT + 1, no_bound) == 2 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 1, 0) == 0);
    CHECK(fr_staging_pool_plan(&pool, 1, UNIT - 1) == 0);
    CHECK(fr_staging_pool_plan(&pool, UNIT, UNIT) == UNIT);
    CHECK(fr_staging_pool_plan(&pool, UNIT + 1, 2 * UNIT - 1) == 0);
    CHECK(fr_staging_pool_plan(&pool, SIZE_MAX, no_bound) == 0);
    CHECK(fr_staging_pool_plan(&pool, SIZE_MAX - UNIT, no_bound) == 0);

    struct fr_staging_chunk *chunk = add_chunk(0x1000000, 40 * UNIT);
    // All of it idle, and to be replaced: by half as much again.
    CHECK(fr_staging_pool_plan(&pool, 40 * UNIT + 1, no_bound) == 60 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 60 * UNIT + 1, no_bound) == 61 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 40 * UNIT + 1, 45 * UNIT) == 45 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 40 * UNIT + 1, 40 * UNIT) == 0);
    // All of it lent: half as much beside it.
    struct fr_staging_extent *all = LEND(40 * UNIT, chunk, 0);
    CHECK(fr_staging_pool_plan(&pool, 1, no_bound) == 20 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 20 * UNIT, no_bound) == 20 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 20 * UNIT + 1, no_bound) == 21 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, UNIT, 50 * UNIT + 1) == 10 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, UNIT, 41 * UNIT) == UNIT);
    CHECK(fr_staging_pool_plan(&pool, UNIT, 41 * UNIT - 1) == 0);
    CHECK(GIVE(all));
    // A part of it lent: what makes the whole half more than that.
    struct fr_staging_extent *half = LEND(26 * UNIT, chunk, 0);
    CHECK(fr_staging_pool_plan(&pool, 4 * UNIT, no_bound) == 5 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 4 * UNIT - 1, no_bound) == 4 * UNIT);
    CHECK(fr_staging_pool_plan(&pool, 1, no_bound) == UNIT);
    CHECK(GIVE(half));
    // Little of it lent, in the middle: no more than is needed.
    struct fr_staging_extent *head = LEND(20 * UNIT, chunk, 0);
    struct fr_staging_extent *middle = LEND(512, chunk, 20 * UNIT);
    CHECK(!GIVE(head));
    CHECK(fr_staging_pool_lend(&pool, 20 * UNIT + 512) == NULL);
    CHECK(fr_staging_pool_plan(&pool, 21 * UNIT, no_bound) == 21 * UNIT);
    CHECK(GIVE(middle));
    finish();
}

static struct fr_list victims = FR_LIST_INIT(victims);

static size_t condemn_at(uint64_t now_ns)
{
    return fr_staging_pool_condemn(&pool, now_ns, FR_STAGING_IDLE_NS, &victims);
}

static void test_due(void)
{
    const uint64_t start_ns = 1000000;
    start();
    struct fr_staging_chunk *first = add_chunk(0x1000000, UNIT);
    struct fr_staging_chunk *second = add_chunk(0x9000000, 2 * UNIT);
    struct fr_staging_extent *a = LEND(2 * UNIT, second, 0);
    struct fr_staging_extent *b = LEND(UNIT, first, 0);
    CHECK(fr_staging_pool_condemn(&pool, UINT64_MAX, 0, &victims) == 0); // all is lent
    CHECK(fr_staging_pool_give_back(&pool, a, start_ns));
    CHECK(fr_staging_pool_give_back(&pool, b, start_ns + 10));
    CHECK(condemn_at(0) == 0); // a clock read before the one of the return
    CHECK(condemn_at(start_ns) == 0);
    CHECK(condemn_at(start_ns + FR_STAGING_IDLE_NS - 1) == 0);
    CHECK(condemn_at(start_ns + FR_STAGING_IDLE_NS) == 2 * UNIT);
    CHECK(length_of(&victims) == 1 && victims.next == &second->link && pool.bytes == UNIT);
    CHECK(condemn_at(start_ns + FR_STAGING_IDLE_NS + 9) == 0);
    b = LEND(512, first, 0); // in use again, and idle from a later time on
    CHECK(condemn_at(UINT64_MAX) == 0);
    CHECK(fr_staging_pool_give_back(&pool, b, 2 * start_ns));
    CHECK(condemn_at(2 * start_ns + FR_STAGING_IDLE_NS - 1) == 0);
    CHECK(condemn_at(2 * start_ns + FR_STAGING_IDLE_NS) == UNIT);
    CHECK(length_of(&victims) == 2);
    free(first);
    free(second);
    CHECK(pool.bytes == 0 && length_of(&pool.spares) == 12);
    add_chunk(0x1000000, UNIT);
    struct fr_staging_extent *spare;
    for (int i = 0; i < 4; i++) { // those of the chunks above
        spare = FR_LIST_ENTRY(pool.spares.next, struct fr_staging_extent, free);
        fr_list_remove(&spare->free);
        free(spare);
    }
    finish();
}

int main(void)
{
    test_round();
    test_first_fit();
    test_orders();
    test_chunks();
    test_plan();
    test_due();
    return check_result();
}
