// SPDX-License-Identifier: BSD-3-Clause
// uthash as core sets it up: without memory an element stays out and nothing exits.
#include "config.h"

#include <stddef.h>
#include <stdlib.h>

static int allocations_left = -1; // -1: no end

static void *scarce_malloc(size_t bytes)
{
    if (allocations_left == 0)
        return NULL;
    if (allocations_left > 0)
        allocations_left--;
    return malloc(bytes);
}

#define uthash_malloc(bytes)       scarce_malloc(bytes)
#define uthash_free(memory, bytes) free(memory)
#include "fabrail/core/hash.h"

#include "check.h"

struct item {
    unsigned key;
    UT_hash_handle hh;
};

int main(void)
{
    enum { ITEMS = 2000 };
    static struct item items[ITEMS];
    for (int limit = 0; limit < 12; limit++) {
        struct item *table = NULL;
        unsigned held = 0;
        memset(items, 0, sizeof(items));
        allocations_left = limit;
        for (unsigned i = 0; i < ITEMS; i++) {
            items[i].key = i;
            HASH_ADD(hh, table, key, sizeof(items[i].key), &items[i]);
            held += FR_HASH_HAS(&items[i]);
        }
        CHECK(held == HASH_COUNT(table), "%u in a table of %u", held, HASH_COUNT(table));
        CHECK(limit >= 2 ? held > 0 : held == 0, "%u with %d allocations", held, limit);
        CHECK(limit >= 5 || held < ITEMS, "%u with %d allocations", held, limit);
        CHECK(limit < 11 || held == ITEMS, "%u with %d allocations", held, limit);
        for (unsigned i = 0; i < ITEMS; i++) {
            struct item *found = NULL;
            HASH_FIND(hh, table, &i, sizeof(i), found);
            CHECK(found == (FR_HASH_HAS(&items[i]) ? &items[i] : NULL), "item %u", i);
        }
        HASH_CLEAR(hh, table);
    }
    CHECK(allocations_left > 0, "the last round was meant to have plenty");
    return check_result();
}
