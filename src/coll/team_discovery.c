// SPDX-License-Identifier: BSD-3-Clause
// The table in which ranks of one host find out whether they are a team. Slots are found and made
// under a lock that all processes share. A process that dies may leave it locked, so nobody waits
// for it without end. All else is atomic words.
#include "config.h"

#include "fabrail/coll/team_discovery.h"

#include "fabrail/core/wait.h"
#include "fabrail/job/shm.h"

#include <string.h>

enum {
    SLOTS = 4095,
    MOST_LOOKS = 100000, // looks at a lock that is held for some hundred nanoseconds
};
#define NAME_LEFT UINT64_MAX // of a slot that may be used again
#define NEVER     UINT64_MAX // in place of a team's first call

struct fr_coll_discovery {
    uint64_t name; // 0: as if never used; changed under the lock
    // Before there is a team: the last call that any of those who have joined has come to. Later:
    // the team's first call in the upper half, its number in the lower.
    _Atomic uint64_t progress;
    uint32_t size;
    _Atomic uint32_t joined; // changed under the lock
    uint32_t left;           // changed under the lock
    _Atomic int32_t made;
    _Atomic uint32_t could;
    _Atomic uint32_t could_not;
    _Atomic uint32_t quit; // how the first rank that has quit did so
    char rest[20];
};
_Static_assert(sizeof(struct fr_coll_discovery) == FR_CONTROL_LINE_BYTES, "a line each");

struct table {
    _Atomic uint32_t locked;
    _Atomic uint32_t attached; // processes
    char rest[FR_CONTROL_LINE_BYTES - 8];
    struct fr_coll_discovery slots[SLOTS];
};

static struct fr_lock attach_lock = FR_LOCK_INIT;
static struct fr_job_shm shared FR_GUARDED_BY(attach_lock) = {.file = -1};
static struct table *table FR_GUARDED_BY(attach_lock);
static bool failed FR_GUARDED_BY(attach_lock);
static bool named FR_GUARDED_BY(attach_lock); // the name may still exist
static struct fr_job_secret table_secret FR_GUARDED_BY(attach_lock);

// Attaches to the table. The last process that may come takes the name away.
static struct table *attach(const struct fr_job_secret *secret, int sharers)
{
    fr_core_lock(&attach_lock);
    if (!table && !failed) {
        table_secret = *secret;
        failed = fr_job_shm_open(secret, sizeof(*table), sizeof(*table), true, &shared) != FR_OK;
        named = !failed;
        table = failed ? NULL : shared.memory;
        if (table && atomic_fetch_add(&table->attached, 1) + 1 == (uint32_t)sharers) {
            fr_job_shm_remove(&table_secret);
            named = false;
        }
    }
    struct table *found = table;
    fr_core_unlock(&attach_lock);
    return found;
}

void fr_coll_discovery_release(void)
{
    fr_core_lock(&attach_lock);
    if (table)
        fr_job_shm_close(&shared);
    if (named)
        fr_job_shm_remove(&table_secret);
    table = NULL;
    named = failed = false;
    fr_core_unlock(&attach_lock);
}

static bool lock_table(struct table *in)
{
    for (unsigned looks = 0; looks < MOST_LOOKS; looks++) {
        uint32_t unlocked = 0;
        if (atomic_compare_exchange_weak_explicit(&in->locked, &unlocked, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
        fr_wait_yield();
    }
    fr_warn_once("a process of this host has died and left a lock, so that exchanges of device "
                 "memory go through the host");
    return false;
}

static void unlock_table(struct table *in)
{
    atomic_store_explicit(&in->locked, 0, memory_order_release);
}

// Finds or makes the slot of a name. Returns NULL when all slots are used.
static struct fr_coll_discovery *find_slot(struct table *in, uint64_t name, int size)
{
    struct fr_coll_discovery *vacant = NULL;
    for (size_t i = 0; i < SLOTS; i++) {
        struct fr_coll_discovery *slot = &in->slots[(name + i) % SLOTS];
        if (slot->name == name)
            return slot;
        if (!vacant && (slot->name == 0 || slot->name == NAME_LEFT))
            vacant = slot;
        if (slot->name == 0)
            break;
    }
    if (vacant) {
        memset(vacant, 0, sizeof(*vacant));
        vacant->size = (uint32_t)size;
        vacant->name = name;
    }
    return vacant;
}

// Says that this rank has come to a call, unless there is a team already.
static void come_to(struct fr_coll_discovery *discovery, uint64_t call)
{
    uint64_t seen = atomic_load_explicit(&discovery->progress, memory_order_acquire);
    while (seen < call && !atomic_compare_exchange_weak(&discovery->progress, &seen, call))
        ;
}

struct fr_coll_discovery *fr_coll_discovery_join(const struct fr_job_secret *secret, int sharers,
                                                 uint64_t name, int size, uint64_t call)
{
    struct table *in = attach(secret, sharers);
    if (!in || name == 0 || name == NAME_LEFT || call > UINT32_MAX || !lock_table(in))
        return NULL;
    struct fr_coll_discovery *discovery = find_slot(in, name, size);
    if (discovery) {
        come_to(discovery, call);
        atomic_fetch_add(&discovery->joined, 1);
    }
    unlock_table(in);
    if (!discovery)
        fr_warn_once("more than %d communicators exchange device memory, the others do so through "
                     "the host",
                     SLOTS);
    return discovery;
}

// Has a slot serve other communicators. A look for one ends at a slot that was never used, so slots
// before such a one are as good as never used.
static void vacate(struct table *in, struct fr_coll_discovery *discovery)
{
    size_t at = (size_t)(discovery - in->slots);
    discovery->name = NAME_LEFT;
    if (in->slots[(at + 1) % SLOTS].name != 0)
        return;
    for (; in->slots[at].name == NAME_LEFT; at = (at + SLOTS - 1) % SLOTS)
        in->slots[at].name = 0;
}

// A slot that all ranks which joined have left is free for another communicator, even if some never
// join since they use no GPU. A rank that joins later finds nobody, and never will.
void fr_coll_discovery_leave(struct fr_coll_discovery *discovery)
{
    fr_core_lock(&attach_lock);
    struct table *in = table;
    fr_core_unlock(&attach_lock);
    if (!discovery || !in)
        return;
    if (!lock_table(in))
        return;
    if (++discovery->left == discovery->joined)
        vacate(in, discovery);
    unlock_table(in);
}

bool fr_coll_discovery_enter(struct fr_coll_discovery *discovery, uint64_t call, uint32_t number,
                             uint32_t *given)
{
    bool complete =
        atomic_load_explicit(&discovery->joined, memory_order_acquire) == discovery->size;
    uint64_t seen = atomic_load_explicit(&discovery->progress, memory_order_acquire);
    while (seen <= UINT32_MAX) {
        bool first = complete && call > seen && call <= UINT32_MAX;
        uint64_t next = first ? call << 32 | number : call > seen ? call : seen;
        if (!first && next > UINT32_MAX)
            return false;
        if (next == seen)
            return false;
        if (atomic_compare_exchange_weak(&discovery->progress, &seen, next)) {
            *given = number;
            return first;
        }
    }
    *given = (uint32_t)seen;
    return seen != NEVER && call >= seen >> 32;
}

void fr_coll_discovery_quit(struct fr_coll_discovery *discovery, enum fr_coll_quit quit)
{
    uint64_t seen = atomic_load_explicit(&discovery->progress, memory_order_acquire);
    while (seen <= UINT32_MAX && !atomic_compare_exchange_weak(&discovery->progress, &seen, NEVER))
        ;
    uint32_t stays = FR_COLL_STAYS;
    (void)atomic_compare_exchange_strong(&discovery->quit, &stays, (uint32_t)quit);
}

enum fr_coll_quit fr_coll_discovery_was_quit(const struct fr_coll_discovery *discovery)
{
    return (enum fr_coll_quit)atomic_load_explicit(&discovery->quit, memory_order_acquire);
}

void fr_coll_discovery_made(struct fr_coll_discovery *discovery, bool made)
{
    atomic_store_explicit(&discovery->made, made ? 1 : -1, memory_order_release);
}

int fr_coll_discovery_is_made(const struct fr_coll_discovery *discovery)
{
    return atomic_load_explicit(&discovery->made, memory_order_acquire);
}

void fr_coll_discovery_tried(struct fr_coll_discovery *discovery, bool could)
{
    atomic_fetch_add(could ? &discovery->could : &discovery->could_not, 1);
}

int fr_coll_discovery_all_tried(const struct fr_coll_discovery *discovery)
{
    uint32_t could_not = atomic_load_explicit(&discovery->could_not, memory_order_acquire);
    uint32_t could = atomic_load_explicit(&discovery->could, memory_order_acquire);
    if (could + could_not < discovery->size)
        return 0;
    return could_not ? -1 : 1;
}
