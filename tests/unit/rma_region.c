// SPDX-License-Identifier: BSD-3-Clause
// Memory of another rank of a dynamic window that is mapped here: it goes when that rank shows it
// no more, and stays while nobody can tell.
#include "config.h"

#include "rma/directory.h"
#include "rma/region.h"

#include "check.h"

enum { OTHER = 1, SIZE = 2, BYTES = 4096 };

void __wrap_fr_ipc_unpin(struct fr_ipc_mapping *mapping);

static unsigned unpinned;

void __wrap_fr_ipc_unpin(struct fr_ipc_mapping *mapping)
{
    (void)mapping;
    unpinned++;
}

static struct fr_rma_part parts[SIZE];
static struct fr_rma_window window = {
    .size = SIZE, .parts = parts, .words = {.size = SIZE, .is_dynamic = true}};
static struct fr_rma_words others; // the same, as their owner has them

static void show(uint64_t base)
{
    const struct fr_ipc_handle handle = {.bytes = BYTES, .buffer_id = base};
    struct fr_rma_region *region = calloc(1, sizeof(*region));
    if (!region)
        exit(CHECK_FAIL);
    fr_rma_words_show(&others, &handle, base, BYTES);
    region->rank = OTHER;
    region->part.base = base;
    region->part.bytes = BYTES;
    region->part.handle = handle;
    region->next = window.regions;
    window.regions = region;
}

int main(void)
{
    _Alignas(64) static char rows[1 << 16];
    CHECK(SIZE * (fr_rma_directory_bytes() + 1024) < sizeof(rows));
    window.words.rows = rows;
    others = window.words;
    others.rank = OTHER;
    show(1 << 20);
    show(2 << 20);
    fr_rma_regions_trim(&window);
    CHECK(unpinned == 0, "nothing is taken away");

    fr_rma_words_hide(&others, 1 << 20);
    _Atomic uint32_t *writes =
        (void *)fr_rma_words_directory(&others, OTHER); // which it begins with
    atomic_fetch_add(writes, 1);
    fr_rma_regions_trim(&window);
    CHECK(unpinned == 0, "the owner is in the middle of a write");
    atomic_fetch_add(writes, 1);
    fr_rma_regions_trim(&window);
    CHECK(unpinned == 1 && window.regions && window.regions->part.base == 2 << 20 &&
          !window.regions->next);
    fr_rma_regions_free(&window);
    CHECK(unpinned == 2 && !window.regions);
    return check_result();
}
