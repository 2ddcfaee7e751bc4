// SPDX-License-Identifier: BSD-3-Clause
// The slots of this process, and the addresses of those of all others.
#include "config.h"

#include "fabrail/coll/shm_slots.h"

#include "fabrail/coll/segment.h"
#include "fabrail/job/shm.h"

#include <string.h>

enum {
    SLOTS = FR_COLL_POSTS_SLOTS,
    PAGE_BYTES = 4096,
    EAGER = 4, // slots that are claimed before one is taken from another segment
};

struct header {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t slot_bytes;
    _Atomic uint32_t attached; // processes
};

// The last user of a slot.
struct slot {
    struct fr_coll_segment *segment; // NULL: nobody
    uint64_t round;
    // Its segment was closed while others may read the slot. The segment ends with the slot's next
    // use.
    bool closed;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_job_shm shared FR_GUARDED_BY(lock) = {.file = -1};
static struct fr_job_secret name FR_GUARDED_BY(lock);
static bool named FR_GUARDED_BY(lock); // the name may still exist
static struct slot slots[SLOTS] FR_GUARDED_BY(lock);
static int claimed FR_GUARDED_BY(lock); // slots

// Constant while open.
static unsigned char *_Atomic memory;
static size_t slot_bytes, process_bytes;
static int own_index, process_count;

static size_t offset_of(int process, int slot)
{
    return PAGE_BYTES + (size_t)process * process_bytes + (size_t)slot * slot_bytes;
}

static bool claim(void) FR_REQUIRES(lock)
{
    if (claimed == SLOTS || !fr_job_shm_claim(&shared, offset_of(own_index, claimed), slot_bytes))
        return false;
    claimed++;
    return true;
}

// Attaches to the memory. The last process to do so takes the name away, which nobody needs any
// more.
static enum fr_status attach(const struct fr_job_secret *secret) FR_REQUIRES(lock)
{
    size_t bytes = offset_of(process_count, 0);
    enum fr_status status = fr_job_shm_open(secret, bytes, PAGE_BYTES, true, &shared);
    if (status != FR_OK)
        return status;
    struct header *header = shared.memory;
    uint64_t before = 0;
    name = *secret;
    named = true;
    if (!atomic_compare_exchange_strong(&header->slot_bytes, &before, slot_bytes) &&
        before != slot_bytes)
        status = FR_ERR_INVALID;
    else if (!claim())
        status = FR_ERR_NO_MEMORY;
    if (status != FR_OK) {
        fr_job_shm_close(&shared);
        return status;
    }
    if (atomic_fetch_add(&header->attached, 1) + 1 == (uint32_t)process_count) {
        fr_job_shm_remove(&name);
        named = false;
    }
    atomic_store_explicit(&memory, shared.memory, memory_order_release);
    return FR_OK;
}

enum fr_status fr_coll_slots_open(const struct fr_job_secret *secret, int index, int sharers,
                                  size_t bytes)
{
    enum fr_status status = FR_OK;
    fr_core_lock(&lock);
    if (!atomic_load_explicit(&memory, memory_order_relaxed)) {
        slot_bytes =
            (bytes + FR_CONTROL_LINE_BYTES - 1) / FR_CONTROL_LINE_BYTES * FR_CONTROL_LINE_BYTES;
        process_bytes = (SLOTS * slot_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        own_index = index;
        process_count = sharers;
        status = attach(secret);
    }
    fr_core_unlock(&lock);
    return status;
}

bool fr_coll_slots_hold(size_t bytes)
{
    return atomic_load_explicit(&memory, memory_order_acquire) && bytes <= slot_bytes;
}

void fr_coll_slots_release(void)
{
    fr_core_lock(&lock);
    for (int i = 0; i < claimed; i++) {
        if (slots[i].closed)
            fr_coll_segment_free(slots[i].segment);
        slots[i] = (struct slot){.segment = NULL};
    }
    if (named)
        fr_job_shm_remove(&name);
    if (atomic_load_explicit(&memory, memory_order_relaxed))
        fr_job_shm_close(&shared);
    named = false;
    claimed = 0;
    atomic_store_explicit(&memory, NULL, memory_order_release);
    fr_core_unlock(&lock);
}

static bool is_over(const struct slot *slot)
{
    return !slot->segment || fr_coll_segment_is_over(slot->segment, slot->round);
}

// Returns a slot that nobody uses, -1 if there is none.
static int find_vacant(void) FR_REQUIRES(lock)
{
    for (int i = 0; i < claimed; i++) {
        if (!slots[i].segment)
            return i;
    }
    if (claimed < EAGER && claim())
        return claimed - 1;
    for (int i = 0; i < claimed; i++) {
        if (is_over(&slots[i]))
            return i;
    }
    return claim() ? claimed - 1 : -1;
}

static void take_from_last(struct slot *slot) FR_REQUIRES(lock)
{
    if (slot->closed)
        fr_coll_segment_free(slot->segment);
    else if (slot->segment)
        fr_coll_segment_lose_slot(slot->segment);
    *slot = (struct slot){.segment = NULL};
}

enum fr_status fr_coll_slots_reserve(struct fr_coll_segment *segment, uint64_t round, int *own)
{
    fr_core_lock(&lock);
    int index = *own;
    enum fr_status status = index < 0 ? FR_ERR_NO_MEMORY : FR_ERR_LIMIT;
    if (index < 0)
        index = find_vacant();
    else if (slots[index].round != round && !is_over(&slots[index]))
        index = -1;
    if (index >= 0) {
        if (index != *own)
            take_from_last(&slots[index]);
        slots[index].segment = segment;
        slots[index].round = round;
        *own = index;
        status = FR_OK;
    }
    fr_core_unlock(&lock);
    return status;
}

bool fr_coll_slots_leave(const int *own)
{
    bool over = true;
    fr_core_lock(&lock);
    if (*own >= 0) {
        struct slot *slot = &slots[*own];
        over = is_over(slot);
        slot->closed = !over;
        if (over)
            *slot = (struct slot){.segment = NULL};
    }
    fr_core_unlock(&lock);
    return over;
}

uint32_t fr_coll_slots_name(int slot)
{
    return (uint32_t)(own_index * SLOTS + slot) + 1;
}

void *fr_coll_slots_at(uint32_t named_so)
{
    unsigned char *at = atomic_load_explicit(&memory, memory_order_acquire);
    if (!at || named_so == 0 || named_so > (uint32_t)(process_count * SLOTS))
        return NULL;
    return at + offset_of((int)((named_so - 1) / SLOTS), (int)((named_so - 1) % SLOTS));
}
