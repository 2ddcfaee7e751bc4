// SPDX-License-Identifier: BSD-3-Clause
// Parts of a slab, and their positions.
//
// A position that a rank has left is free for it, but others may still be about to store there for
// its last use. So each rank that leaves a position stores a word to the slabs of all that used it.
// The position then serves other ranks once the words of all are there. The ranks of the last use
// themselves need no words, since each offers a position that it has left.
#include "config.h"

#include "coll/slab_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LINE_BYTES = 64,
    DEPTH = FR_COLL_SLAB_DEPTH,
    USES_SHIFT = 32,            // of an offer
    SPARE = 8,                  // positions for single parts, which pairs leave free
    ROUNDS_SHIFT = 32,          // a use has so many rounds, as a power of two
    MOST_USES = (1 << 27) - 16, // rounds are a word with their mark
};

enum fr_status fr_coll_slab_part_allocate(struct fr_coll_slab *slab)
{
    const size_t n = (size_t)slab->size;
    slab->members = calloc(n, sizeof(*slab->members));
    slab->addresses = calloc(n, sizeof(*slab->addresses));
    slab->pieces = calloc(n, sizeof(*slab->pieces));
    return slab->members && slab->addresses && slab->pieces ? FR_OK : FR_ERR_NO_MEMORY;
}

// Bytes of this rank's posts and all their words, in whole lines. Behind them, at position 0, are
// the words that this rank has left a position, one for each.
static size_t posting_bytes(const struct fr_coll_slab *slab)
{
    const size_t bytes =
        DEPTH * (slab->slot_bytes + sizeof(uint64_t)) + FR_COLL_SLAB_PART_WORDS_BYTES;
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

// Has a part use the host memory of a position.
static void take_host(struct fr_coll_slab *slab, unsigned position)
{
    slab->mirror = slab->memory->host + position * slab->memory->host_bytes;
    slab->posting = slab->mirror + slab->bytes;
    slab->is_ready = false;
}

enum fr_status fr_coll_slab_host_allocate(struct fr_coll_slab *slab)
{
    struct fr_coll_slab_memory *memory = slab->memory;
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = slab->bytes + posting_bytes(slab) + FR_COLL_SLAB_PARTS * sizeof(uint64_t);
    memory->host_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    void *host = mmap(NULL, memory->parts * memory->host_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED)
        return FR_ERR_NO_MEMORY;
    memory->host = host;
    take_host(slab, 0);
    return FR_OK;
}

void fr_coll_slab_host_free(struct fr_coll_slab_memory *memory)
{
    for (unsigned position = 0; position < memory->parts; position++) {
        if (memory->locked & UINT32_C(1) << position)
            fr_device_host_unregister(memory->host + position * memory->host_bytes);
    }
    if (memory->host)
        munmap(memory->host, memory->parts * memory->host_bytes);
}

void fr_coll_slab_host_lock(struct fr_coll_slab *slab)
{
    struct fr_coll_slab_memory *memory = slab->memory;
    if (slab->is_ready)
        return;
    slab->is_ready = true;
    if (!fr_coll_slab_host_is_locked(slab, slab->position) &&
        fr_device_host_register(slab->mirror, memory->host_bytes) == FR_OK)
        atomic_fetch_or(&memory->locked, UINT32_C(1) << slab->position);
}

void fr_coll_slab_part_compare(struct fr_coll_slab *slab)
{
    const struct fr_ipc_handle *handles = slab->memory->handles;
    slab->shares = false;
    for (int i = 0; i < slab->size; i++) {
        for (int j = 0; j < i && !slab->shares; j++)
            slab->shares = memcmp(handles[slab->members[i]].device,
                                  handles[slab->members[j]].device, sizeof(handles[0].device)) == 0;
    }
}

unsigned fr_coll_slab_position(const struct fr_coll_slab *part)
{
    return part->position;
}

uint64_t fr_coll_slab_first(const struct fr_coll_slab *part)
{
    return part->first;
}

struct fr_coll_slab *fr_coll_slab_part_new(const struct fr_coll_slab *other, const int *ranks,
                                           int rank, int size)
{
    struct fr_coll_slab *part = malloc(sizeof(*part));
    if (!part)
        return NULL;
    *part = (struct fr_coll_slab){
        .memory = other->memory,
        .rank = rank,
        .size = size,
        .slot_bytes = other->slot_bytes,
        .row_bytes = other->row_bytes,
        .given_offset = other->given_offset,
        .posts_offset = other->posts_offset,
        .control_offset = other->control_offset,
        .left_offset = other->left_offset,
        .parts_offset = other->parts_offset,
        .bytes = other->bytes,
        .chunk_bytes = other->chunk_bytes,
        .part_bytes = other->part_bytes,
        .range = other->range,
        .has_kernels = true,
    };
    atomic_fetch_add(&part->memory->open, 1);
    if (fr_coll_slab_part_allocate(part) != FR_OK) {
        fr_coll_slab_close(part, false);
        return NULL;
    }
    for (int i = 0; i < size; i++)
        part->members[i] = other->members[ranks ? ranks[i] : i];
    fr_coll_slab_part_compare(part);
    return part;
}

void fr_coll_slab_part_assign(struct fr_coll_slab *part, unsigned position, uint64_t first)
{
    struct fr_coll_slab_memory *memory = part->memory;
    const uint64_t offset = position * part->part_bytes;
    part->position = position;
    part->has_position = true;
    part->at = memory->own.address + offset;
    fr_coll_slab_inbox_place(part);
    take_host(part, position);
    for (int rank = 0; rank < part->size; rank++)
        part->addresses[rank] = memory->addresses[part->members[rank]] + offset;
    part->first = part->posted = part->given = part->complete = part->wanted = part->taken = first;
    part->posted_bytes = 0;
    part->delivered_parts = 0;
    part->kept = NULL;
    fr_core_lock(&memory->lock);
    memory->busy |= UINT32_C(1) << position;
    fr_core_unlock(&memory->lock);
}

// Says to all ranks of a part that this one has left it.
static void tell(struct fr_coll_slab *slab, uint64_t word)
{
    unsigned char *words = slab->memory->host + slab->bytes + posting_bytes(slab);
    uint64_t *from = (uint64_t *)(void *)words + slab->position;
    *from = word;
    if (fr_coll_slab_store(slab, from, slab->left_offset + (size_t)slab->rank * sizeof(uint64_t),
                           sizeof(uint64_t)) != FR_OK)
        fr_debug("other ranks do not hear that a part of a slab is free");
}

void fr_coll_slab_part_leave(struct fr_coll_slab *slab, bool notifies)
{
    if (!slab->has_position)
        return;
    struct fr_coll_slab_memory *memory = slab->memory;
    struct fr_coll_slab_use *last = &memory->last[slab->position];
    const uint64_t word = slab->first + 1;
    if (notifies)
        tell(slab, word);
    free(last->members);
    *last = (struct fr_coll_slab_use){word, slab->members, slab->size};
    slab->members = NULL;
    fr_core_lock(&memory->lock);
    memory->busy &= ~(UINT32_C(1) << slab->position);
    fr_core_unlock(&memory->lock);
}

static bool has_member(const struct fr_coll_slab *part, int rank)
{
    int i = 0;
    while (i < part->size && part->members[i] != rank)
        i++;
    return i < part->size;
}

// Returns whether all ranks that were at a position have left it, as far as their words say.
static bool have_left(struct fr_coll_slab *part, unsigned position,
                      const struct fr_coll_slab_use *last)
{
    const size_t bytes = (size_t)last->size * sizeof(uint64_t);
    uint64_t *words = malloc(bytes);
    bool left = words && fr_coll_slab_copy(part, (uintptr_t)words,
                                           part->memory->own.address + position * part->part_bytes +
                                               part->left_offset,
                                           bytes) == FR_OK;
    for (int i = 0; i < last->size && left; i++)
        left = words[i] == last->word;
    if (!part->is_forsaken) // else the device may still write there
        free(words);
    return left;
}

// Returns whether a position that this rank does not use can serve the ranks of a part.
static bool can_serve(struct fr_coll_slab *part, unsigned position)
{
    struct fr_coll_slab_use *last = &part->memory->last[position];
    bool all_here = true;
    for (int i = 0; i < last->size && all_here && last->word; i++)
        all_here = has_member(part, last->members[i]);
    if (last->word && !all_here && have_left(part, position, last))
        last->word = 0;
    return all_here || last->word == 0;
}

uint64_t fr_coll_slab_offer(struct fr_coll_slab *part, uint32_t *held)
{
    struct fr_coll_slab_memory *memory = part->memory;
    uint32_t offered = 0;
    fr_core_lock(&memory->lock);
    *held = ~memory->busy;
    memory->busy = UINT32_MAX;
    const uint64_t uses = memory->uses;
    fr_core_unlock(&memory->lock);
    for (unsigned position = 0; position < memory->parts && uses < MOST_USES; position++) {
        if (*held & UINT32_C(1) << position && can_serve(part, position))
            offered |= UINT32_C(1) << position;
    }
    return uses << USES_SHIFT | (uint32_t)~offered;
}

uint64_t fr_coll_slab_offer_add(uint64_t one, uint64_t other)
{
    const uint64_t uses = (one > other ? one : other) >> USES_SHIFT;
    return uses << USES_SHIFT | (uint32_t)(one | other);
}

bool fr_coll_slab_offer_take(struct fr_coll_slab *part, struct fr_coll_slab *other, uint32_t held,
                             uint64_t offers)
{
    struct fr_coll_slab *const parts[] = {part, other};
    struct fr_coll_slab_memory *memory = part->memory;
    const uint64_t use = (offers >> USES_SHIFT) + 1;
    uint32_t positions = ~(uint32_t)offers;
    const bool fits = __builtin_popcount(positions) >= (other ? 2 + SPARE : 1);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(parts) && parts[i] && fits; i++) {
        const unsigned position = (unsigned)__builtin_ctz(positions);
        fr_coll_slab_part_assign(parts[i], position, use << ROUNDS_SHIFT);
        positions &= positions - 1;
        held &= ~(UINT32_C(1) << position);
    }
    fr_core_lock(&memory->lock);
    memory->busy &= ~held;
    if (fits && memory->uses < use)
        memory->uses = (uint32_t)use;
    fr_core_unlock(&memory->lock);
    return fits;
}
