// SPDX-License-Identifier: BSD-3-Clause
// Segments: shared memory of a set of processes. It has a header, and two cache lines for each
// rank. One has what the rank has posted, with a ring of entries. The other has what it is done
// with. An entry is a short post, or says in which slot of its process a longer one is
// (shm_slots.h).
//
// A rank writes its own lines alone. The store that announces a post is a release, and the load
// that sees it an acquire. So is the pair that says that a slot of a ring may be written again.
#include "config.h"

#include "fabrail/coll/segment.h"

#include "fabrail/coll/shm_slots.h"
#include "fabrail/job/shm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = FR_CONTROL_LINE_BYTES,
    MAX_SIZE = 1 << 16,
};

#define SEGMENT_MAGIC 0x46527365676d6e74u

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");

struct header {
    uint64_t magic;
    uint64_t post_bytes;
    uint32_t size;
    _Atomic uint32_t attached;
    char rest[LINE_BYTES - 24];
    _Atomic uint64_t mover; // of the last round for which one was chosen
    char rest_of_line[LINE_BYTES - 8];
    _Atomic uint64_t cores[CPU_SETSIZE / 64]; // cores on which any of the ranks may run
};

enum { IS_SHORT = 0, IS_EMPTY = UINT32_MAX }; // in place of the name of a slot

struct entry {
    uint32_t slot;
    uint32_t word;
};
_Static_assert(sizeof(((struct entry *)0)->word) == FR_COLL_SEGMENT_SHORT_POST, "a short post");

// Others spin on `posted`.
struct lines {
    _Atomic uint64_t posted;
    _Atomic uint64_t marked; // the last post that was marked
    struct entry entries[FR_COLL_SEGMENT_DEPTH];
    _Atomic uint64_t done;
    _Atomic bool is_awaited;
    _Atomic bool is_broken;
    char rest[LINE_BYTES - 10];
};
_Static_assert(sizeof(struct header) % LINE_BYTES == 0, "the lines are aligned");
_Static_assert(offsetof(struct lines, done) == LINE_BYTES, "of its own");
_Static_assert(sizeof(struct lines) == 2 * LINE_BYTES, "no padding");

struct fr_coll_segment {
    struct header *header;
    struct lines *lines;
    struct fr_job_shm shm;
    int rank;
    int size;
    int slot; // for long posts; -1: none
    unsigned spins;
    bool named;        // the name may still exist
    uint64_t complete; // all ranks are known to have posted up to here
    uint64_t looked;   // the round of the last look at all ranks
    int seen;          // ranks that had posted in that look, from the next rank on
    uint64_t released; // all ranks are known to be done up to here
    struct fr_job_secret secret;
};

static bool is_long(size_t bytes)
{
    return bytes > FR_COLL_SEGMENT_SHORT_POST;
}

// Chooses how long to spin. Where ranks have no core of their own, spinning only keeps others from
// running. The cores that all ranks together may use count, since each rank may be bound to a few.
static unsigned choose_spins(const struct fr_coll_segment *segment)
{
    int count = 0;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(segment->header->cores); i++)
        count += __builtin_popcountll(
            atomic_load_explicit(&segment->header->cores[i], memory_order_relaxed));
    return count >= segment->size ? FR_WAIT_SPINS : 0;
}

static void add_cores(const struct fr_coll_segment *segment)
{
    union {
        cpu_set_t set;
        uint64_t words[CPU_SETSIZE / 64];
    } own;
    _Static_assert(sizeof(own.set) == sizeof(own.words), "the same bits");
    CPU_ZERO(&own.set);
    if (sched_getaffinity(0, sizeof(own.set), &own.set) != 0) // more than 1024 cores
        CPU_SET((unsigned)segment->rank % CPU_SETSIZE, &own.set);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(own.words); i++)
        atomic_fetch_or_explicit(&segment->header->cores[i], own.words[i], memory_order_relaxed);
}

// Writes or checks the header, and makes this rank's lines known. New memory is zeroed.
static enum fr_status enter(struct fr_coll_segment *segment, size_t post_bytes)
{
    struct header *header = segment->header;
    if (segment->rank == 0) {
        header->magic = SEGMENT_MAGIC;
        header->post_bytes = post_bytes;
        header->size = (uint32_t)segment->size;
    } else if (header->magic != SEGMENT_MAGIC || header->post_bytes != post_bytes ||
               header->size != (uint32_t)segment->size) {
        return FR_ERR_INVALID;
    }
    add_cores(segment);
    atomic_fetch_add_explicit(&header->attached, 1, memory_order_acq_rel);
    return FR_OK;
}

enum fr_status fr_coll_segment_open(const struct fr_job_secret *secret, int rank, int size,
                                    size_t post_bytes, struct fr_coll_segment **out)
{
    if (size < 1 || size > MAX_SIZE || rank < 0 || rank >= size ||
        post_bytes > FR_COLL_SEGMENT_MAX_POST ||
        (is_long(post_bytes) && !fr_coll_slots_hold(post_bytes)))
        return FR_ERR_INVALID;
    struct fr_coll_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        return FR_ERR_NO_MEMORY;
    segment->secret = *secret;
    segment->rank = rank;
    segment->size = size;
    segment->slot = -1;
    size_t bytes = sizeof(struct header) + (size_t)size * sizeof(struct lines);
    enum fr_status status = fr_job_shm_map(secret, rank == 0, bytes, &segment->shm);
    if (status != FR_OK)
        goto free_segment;
    segment->named = rank == 0;
    segment->header = segment->shm.memory;
    segment->lines = (struct lines *)(void *)(segment->header + 1);
    status = enter(segment, post_bytes);
    if (status != FR_OK)
        goto unmap;
    *out = segment;
    return FR_OK;
unmap:
    fr_job_shm_close(&segment->shm);
free_segment:
    free(segment);
    return status;
}

static void remove_name(struct fr_coll_segment *segment)
{
    if (segment->named)
        fr_job_shm_remove(&segment->secret);
    segment->named = false;
    fr_job_shm_close_file(&segment->shm);
}

bool fr_coll_segment_seal(struct fr_coll_segment *segment)
{
    if (atomic_load_explicit(&segment->header->attached, memory_order_acquire) <
        (uint32_t)segment->size)
        return false;
    remove_name(segment);
    segment->spins = choose_spins(segment);
    return true;
}

void fr_coll_segment_free(struct fr_coll_segment *segment)
{
    fr_job_shm_close(&segment->shm);
    free(segment);
}

void fr_coll_segment_lose_slot(struct fr_coll_segment *segment)
{
    segment->slot = -1;
}

void fr_coll_segment_close(struct fr_coll_segment *segment)
{
    if (segment == NULL)
        return;
    remove_name(segment);
    if (fr_coll_slots_leave(&segment->slot))
        fr_coll_segment_free(segment);
}

static uint64_t posted_by(const struct fr_coll_segment *segment, int rank)
{
    return atomic_load_explicit(&segment->lines[rank].posted, memory_order_acquire);
}

static uint64_t done_by(const struct fr_coll_segment *segment, int rank)
{
    return atomic_load_explicit(&segment->lines[rank].done, memory_order_acquire);
}

static struct entry *entry_of(const struct fr_coll_segment *segment, int rank, uint64_t round)
{
    return &segment->lines[rank].entries[round % FR_COLL_SEGMENT_DEPTH];
}

static uint64_t least_done(const struct fr_coll_segment *segment)
{
    uint64_t least = UINT64_MAX;
    for (int rank = 0; rank < segment->size; rank++) {
        uint64_t done = done_by(segment, rank);
        least = done < least ? done : least;
    }
    return least;
}

bool fr_coll_segment_is_over(const struct fr_coll_segment *segment, uint64_t round)
{
    return least_done(segment) >= round;
}

// Makes room for a post. A slot that is reserved for a round stays until the round is over.
static enum fr_status reserve_room(struct fr_coll_segment *segment, uint64_t round, size_t bytes)
{
    if (round > segment->released + FR_COLL_SEGMENT_DEPTH)
        segment->released = least_done(segment);
    if (round > segment->released + FR_COLL_SEGMENT_DEPTH)
        return FR_ERR_LIMIT;
    return is_long(bytes) ? fr_coll_slots_reserve(segment, round, &segment->slot) : FR_OK;
}

static void write_post(struct fr_coll_segment *segment, uint64_t round, const void *data,
                       size_t bytes)
{
    struct entry *entry = entry_of(segment, segment->rank, round);
    if (is_long(bytes)) {
        entry->slot = fr_coll_slots_name(segment->slot);
        memcpy(fr_coll_slots_at(entry->slot), data, bytes);
        return;
    }
    entry->slot = bytes > 0 ? IS_SHORT : IS_EMPTY;
    if (bytes > 0)
        memcpy(&entry->word, data, bytes);
}

enum fr_status fr_coll_segment_post(struct fr_coll_segment *segment, uint64_t round,
                                    const void *data, size_t bytes)
{
    _Atomic uint64_t *posted = &segment->lines[segment->rank].posted;
    if (round != atomic_load_explicit(posted, memory_order_relaxed) + 1 ||
        bytes > segment->header->post_bytes)
        return FR_ERR_INVALID;
    enum fr_status status = reserve_room(segment, round, bytes);
    if (status != FR_OK)
        return status;
    write_post(segment, round, data, bytes);
    atomic_store_explicit(posted, round, memory_order_release);
    return FR_OK;
}

void fr_coll_segment_mark(struct fr_coll_segment *segment, uint64_t round)
{
    atomic_store_explicit(&segment->lines[segment->rank].marked, round, memory_order_relaxed);
}

bool fr_coll_segment_is_marked(const struct fr_coll_segment *segment, int rank, uint64_t round)
{
    return atomic_load_explicit(&segment->lines[rank].marked, memory_order_relaxed) == round;
}

bool fr_coll_segment_has(struct fr_coll_segment *segment, int rank, uint64_t round)
{
    return round <= segment->complete || posted_by(segment, rank) >= round;
}

bool fr_coll_segment_has_all(struct fr_coll_segment *segment, uint64_t round)
{
    if (round <= segment->complete)
        return true;
    if (segment->looked != round)
        segment->seen = 0;
    segment->looked = round;
    // Begins with the next rank, so that not all ranks look at the same line at once.
    for (; segment->seen < segment->size; segment->seen++) {
        if (posted_by(segment, (segment->rank + 1 + segment->seen) % segment->size) < round)
            return false;
    }
    segment->complete = round;
    return true;
}

enum { MOVERS = MAX_SIZE + 1 }; // words hold a round and a mover plus one

bool fr_coll_segment_has_chosen(const struct fr_coll_segment *segment, uint64_t round)
{
    return atomic_load_explicit(&segment->header->mover, memory_order_relaxed) / MOVERS == round;
}

int fr_coll_segment_choose_mover(struct fr_coll_segment *segment, uint64_t round, int mover)
{
    _Atomic uint64_t *word = &segment->header->mover;
    uint64_t chosen = round * MOVERS + (uint64_t)(mover + 1);
    uint64_t found = atomic_load_explicit(word, memory_order_acquire);
    while (found / MOVERS != round) {
        if (atomic_compare_exchange_weak_explicit(word, &found, chosen, memory_order_acq_rel,
                                                  memory_order_acquire))
            return mover;
    }
    return (int)(found % MOVERS) - 1;
}

void fr_coll_segment_break(struct fr_coll_segment *segment)
{
    atomic_store(&segment->lines[segment->rank].is_broken, true);
}

bool fr_coll_segment_is_broken(const struct fr_coll_segment *segment, int rank)
{
    return atomic_load(&segment->lines[rank].is_broken);
}

void fr_coll_segment_await(struct fr_coll_segment *segment, bool is_awaited)
{
    _Atomic bool *own = &segment->lines[segment->rank].is_awaited;
    if (atomic_load_explicit(own, memory_order_relaxed) == is_awaited)
        return;
    atomic_store_explicit(own, is_awaited, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); // looks at posts come after it
}

bool fr_coll_segment_all_await(const struct fr_coll_segment *segment)
{
    for (int rank = 0; rank < segment->size; rank++) {
        if (rank != segment->rank &&
            !atomic_load_explicit(&segment->lines[rank].is_awaited, memory_order_relaxed))
            return false;
    }
    return true;
}

struct fr_wait fr_coll_segment_pace(const struct fr_coll_segment *segment)
{
    return (struct fr_wait){.spins = segment->spins, .pauses = true};
}

// Checks what another process wrote before it is believed.
const void *fr_coll_segment_read(const struct fr_coll_segment *segment, int rank, uint64_t round)
{
    static _Alignas(LINE_BYTES) const char nothing[LINE_BYTES];
    const struct entry *entry = entry_of(segment, rank, round);
    if (entry->slot == IS_SHORT)
        return &entry->word;
    const void *post = entry->slot == IS_EMPTY ? NULL : fr_coll_slots_at(entry->slot);
    return post ? post : nothing;
}

void fr_coll_segment_done(struct fr_coll_segment *segment, uint64_t round)
{
    _Atomic uint64_t *done = &segment->lines[segment->rank].done;
    if (round > atomic_load_explicit(done, memory_order_relaxed))
        atomic_store_explicit(done, round, memory_order_release);
}
