// SPDX-License-Identifier: BSD-3-Clause
// What heralds have told of: messages that are expected, and plain messages.
#include "config.h"

#include "core/hash.h"
#include "peer/herald_int.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    MOST_PLAIN = 64,   // tags with plain messages that are told apart, for each receiver
    LOOKS_A_YIELD = 8, // between looks for a herald
    PATIENCE_S = 10,   // for a herald that must come
};

enum entry_state { WAITING, TAKEN };

// A message, or a tag with plain messages, from one process or to it.
struct entry {
    struct {
        int32_t process;
        int32_t plain; // 1: `number` is a tag
        uint64_t number;
    } key;
    int32_t tag;
    enum entry_state state;
    uint64_t bytes;
    struct fr_peer_place *place; // where it waits, NULL for one in chunks; in the same allocation
    UT_hash_handle hh;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct entry *expected FR_GUARDED_BY(lock); // from others
static struct entry *told FR_GUARDED_BY(lock);     // plain messages to others
static uint32_t *told_count FR_GUARDED_BY(lock);   // of each process, MOST_PLAIN + 1: all its tags
static bool *all_plain FR_GUARDED_BY(lock);        // from each process
static uint64_t *latest FR_GUARDED_BY(lock);       // message that each process has told of
static atomic_bool any_lost;                       // there was no memory for something

bool fr_peer_expected_open(size_t processes)
{
    uint32_t *counts = calloc(processes, sizeof(*counts));
    bool *flags = calloc(processes, sizeof(*flags));
    uint64_t *numbers = calloc(processes, sizeof(*numbers));
    fr_core_lock(&lock);
    told_count = counts;
    all_plain = flags;
    latest = numbers;
    fr_core_unlock(&lock);
    return counts && flags && numbers;
}

static struct entry *find(struct entry *table, int process, bool plain, uint64_t number)
{
    struct entry *found = NULL;
    struct entry wanted = {.key = {process, plain, number}};
    HASH_FIND(hh, table, &wanted.key, sizeof(wanted.key), found);
    return found;
}

// Without memory nothing is added, and probes see what they would without this.
static struct entry *add(struct entry **table, int process, bool plain, uint64_t number,
                         const struct fr_peer_place *place)
{
    struct entry *entry = calloc(1, sizeof(*entry) + (place ? sizeof(*place) : 0));
    if (!entry)
        return NULL;
    entry->key.process = process;
    entry->key.plain = plain;
    entry->key.number = number;
    if (place) {
        entry->place = (struct fr_peer_place *)(void *)(entry + 1);
        *entry->place = *place;
    }
    HASH_ADD(hh, *table, key, sizeof(entry->key), entry);
    if (FR_HASH_HAS(entry))
        return entry;
    free(entry);
    return NULL;
}

static void drop(struct entry **table, struct entry *entry)
{
    HASH_DELETE(hh, *table, entry);
    free(entry);
}

static void forget_all(struct entry **table)
{
    struct entry *entry, *next;
    HASH_ITER(hh, *table, entry, next)
    {
        drop(table, entry);
    }
}

void fr_peer_expected_close(void)
{
    fr_core_lock(&lock);
    forget_all(&expected);
    forget_all(&told);
    free(told_count);
    free(all_plain);
    free(latest);
    told_count = NULL;
    all_plain = NULL;
    latest = NULL;
    fr_core_unlock(&lock);
}

bool fr_peer_herald_message(int to, int tag, uint64_t number, uint64_t bytes,
                            const struct fr_peer_place *place)
{
    struct fr_herald herald = {
        .kind = FR_HERALD_MESSAGE, .tag = tag, .number = number, .bytes = bytes};
    if (place) {
        herald.kind = FR_HERALD_PLACED;
        herald.address = place->address;
        herald.ready = place->ready;
        herald.handle = place->handle;
    }
    return fr_peer_herald_send(to, &herald);
}

void fr_peer_herald_withdraw(int to, uint64_t number)
{
    const struct fr_herald herald = {.kind = FR_HERALD_WITHDRAWN, .number = number};
    (void)!fr_peer_herald_send(to, &herald);
}

// The receiver waits for it.
void fr_peer_herald_ready(int to, uint64_t number, uint64_t ready)
{
    const struct fr_herald herald = {.kind = FR_HERALD_READY, .number = number, .ready = ready};
    while (!fr_peer_herald_send(to, &herald)) {
        fr_warn_once("no memory to tell rank %d of its message, which waits for some", to);
        fr_peer_herald_poll();
        sched_yield();
    }
}

void fr_peer_herald_fetched(int from, uint64_t number, bool whole)
{
    const struct fr_herald herald = {.kind = whole ? FR_HERALD_FETCHED : FR_HERALD_LOST,
                                     .number = number};
    if (!fr_peer_herald_send(from, &herald))
        fr_warn_once("no memory to tell a sender that its message has been fetched, so that it "
                     "keeps the memory");
}

// Whether the plain message needs a herald, which it does once.
static bool note_plain(int to, int tag, enum fr_herald_kind *kind) FR_REQUIRES(lock)
{
    if (told_count[to] > MOST_PLAIN || find(told, to, true, (uint32_t)tag))
        return false;
    bool known = told_count[to] < MOST_PLAIN && add(&told, to, true, (uint32_t)tag, NULL);
    *kind = known ? FR_HERALD_PLAIN : FR_HERALD_ALL_PLAIN;
    told_count[to] = known ? told_count[to] + 1 : MOST_PLAIN + 1;
    return true;
}

void fr_peer_herald_plain(int to, int tag)
{
    enum fr_herald_kind kind = FR_HERALD_PLAIN;
    fr_core_lock(&lock);
    bool is_new = note_plain(to, tag, &kind);
    fr_core_unlock(&lock);
    const struct fr_herald herald = {.kind = kind, .tag = tag};
    if (is_new && !fr_peer_herald_send(to, &herald))
        fr_warn_once("no memory to tell of a message, so that probes may wait for it");
}

bool fr_peer_herald_has_plain(int to, int tag)
{
    fr_core_lock(&lock);
    bool has = told_count[to] > MOST_PLAIN || find(told, to, true, (uint32_t)tag);
    fr_core_unlock(&lock);
    return has;
}

static void expect_message(int from, const struct fr_herald *herald) FR_REQUIRES(lock)
{
    const struct fr_peer_place place = {
        .handle = herald->handle, .address = herald->address, .ready = herald->ready};
    bool placed = herald->kind == FR_HERALD_PLACED;
    if (herald->number > latest[from])
        latest[from] = herald->number;
    struct entry *entry = add(&expected, from, false, herald->number, placed ? &place : NULL);
    if (!entry) {
        atomic_store_explicit(&any_lost, true, memory_order_relaxed);
        return;
    }
    entry->tag = herald->tag;
    entry->bytes = herald->bytes;
    entry->state = WAITING;
}

// Chunks that are on their way are looked for at the end.
static void withdraw(int from, uint64_t number) FR_REQUIRES(lock)
{
    struct entry *entry = find(expected, from, false, number);
    if (entry && entry->place)
        drop(&expected, entry);
    else if (entry)
        entry->state = TAKEN;
}

// What comes later than the first news is gone where the message has been given up.
static void expect_more(int from, const struct fr_herald *herald) FR_REQUIRES(lock)
{
    struct entry *entry = find(expected, from, false, herald->number);
    if (entry && entry->place)
        entry->place->ready = herald->ready;
}

void fr_peer_expect(int from, const struct fr_herald *herald)
{
    fr_core_lock(&lock);
    switch (herald->kind) {
    case FR_HERALD_MESSAGE:
    case FR_HERALD_PLACED:
        expect_message(from, herald);
        break;
    case FR_HERALD_READY:
        expect_more(from, herald);
        break;
    case FR_HERALD_WITHDRAWN:
        withdraw(from, herald->number);
        break;
    case FR_HERALD_PLAIN:
        (void)!add(&expected, from, true, (uint32_t)herald->tag, NULL);
        break;
    case FR_HERALD_ALL_PLAIN:
        all_plain[from] = true;
        break;
    default:
        break;
    }
    fr_core_unlock(&lock);
}

void fr_peer_expected_visit(bool (*visit)(int from, uint64_t number, bool placed)) FR_UNANALYSED
{
    struct entry *entry, *next;
    HASH_ITER(hh, expected, entry, next)
    {
        if (!entry->key.plain && visit(entry->key.process, entry->key.number, entry->place))
            drop(&expected, entry);
    }
}

enum answer { UNKNOWN, PLAIN, FOUND };

static enum answer look_up(int from, int tag, bool take, uint64_t *bytes)
{
    struct entry *first = NULL;
    fr_core_lock(&lock);
    for (struct entry *entry = expected; entry; entry = entry->hh.next) {
        if (entry->key.process == from && !entry->key.plain && entry->state == WAITING &&
            entry->tag == tag && (!first || entry->key.number < first->key.number))
            first = entry;
    }
    enum answer answer = first ? FOUND : UNKNOWN;
    if (first) {
        *bytes = first->bytes;
        first->state = take ? TAKEN : WAITING;
    } else if (all_plain[from] || find(expected, from, true, (uint32_t)tag)) {
        answer = PLAIN;
    }
    fr_core_unlock(&lock);
    return answer;
}

static int64_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec;
}

// Waiting for a herald that has been sent.
struct wait {
    unsigned looks;
    int64_t since_s;
};

// False when it takes long.
static bool keep_waiting(struct wait *wait)
{
    fr_peer_herald_poll();
    if (++wait->looks % LOOKS_A_YIELD)
        return true;
    sched_yield();
    wait->since_s = wait->since_s ? wait->since_s : now_s();
    return now_s() - wait->since_s <= PATIENCE_S;
}

bool fr_peer_herald_peek(int from, int tag, bool take, uint64_t *bytes)
{
    struct wait wait = {0};
    do {
        fr_peer_herald_read();
        enum answer answer = look_up(from, tag, take, bytes);
        if (answer != UNKNOWN)
            return answer == FOUND;
    } while (keep_waiting(&wait));
    fr_warn_once("a message of rank %d with tag %d came without notice, so that its size may not "
                 "be what a probe says",
                 from, tag);
    return false;
}

// What has been told of and is not known any more is over already.
static bool mark_received(int from, uint64_t number, bool over)
{
    fr_core_lock(&lock);
    struct entry *entry = find(expected, from, false, number);
    if (entry && over)
        drop(&expected, entry);
    else if (entry)
        entry->state = TAKEN;
    bool known = entry || (!over && latest[from] >= number);
    fr_core_unlock(&lock);
    return known;
}

// Reads heralds also when this one is known, so that those that nobody asks for do not pile up.
void fr_peer_herald_received(int from, uint64_t number, bool over)
{
    struct wait wait = {0};
    do {
        fr_peer_herald_read();
    } while (!mark_received(from, number, over) && keep_waiting(&wait));
}

static bool copy_place(int from, uint64_t number, uint64_t beyond, struct fr_peer_place *place)
{
    fr_core_lock(&lock);
    const struct entry *entry = find(expected, from, false, number);
    bool placed = entry && entry->place && entry->place->ready > beyond;
    if (placed)
        *place = *entry->place;
    fr_core_unlock(&lock);
    return placed;
}

// A sender may have been stopped for a while.
bool fr_peer_herald_find(int from, uint64_t number, uint64_t beyond, struct fr_peer_place *place)
{
    struct wait wait = {0};
    for (;;) {
        fr_peer_herald_read();
        if (copy_place(from, number, beyond, place))
            return true;
        if (keep_waiting(&wait))
            continue;
        if (atomic_load_explicit(&any_lost, memory_order_relaxed))
            return false;
        fr_warn_once("waiting for %d s for rank %d to say where a message is", PATIENCE_S, from);
    }
}
