// SPDX-License-Identifier: BSD-3-Clause
// What processes of other hosts have told of their ledgers: messages that are expected, and plain
// messages of a size that marks RTS.
//
// A message of that size that a probe finds is either an RTS, whose entry was sent before it, or a
// plain message, the first of which to an address is told of as well: so a receiver that knows of
// neither knows that one is still to come.
#include "config.h"

#include "core/hash.h"
#include "rndv/rndv_int.h"
#include "world/world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PLAIN = 64, // addresses with plain messages that are told apart, for each receiver
    MOST_EARLY = 64,
};

// A message from a process. Its bytes wait where the entry says.
struct expected {
    struct {
        uint64_t number;
        int64_t from;
    } key;
    bool taken;
    struct fr_rndv_entry entry;
    UT_hash_handle hh;
};

// An address that plain messages go to, or come from.
struct plain {
    struct fr_rndv_address address;
    UT_hash_handle hh;
};

// A message that was received before its sender told of it, or after it was over.
struct early {
    uint64_t number;
    int from;
};

// What this process has to do with another one, by rank.
struct peer {
    uint64_t latest; // message that it has told of
    unsigned told;   // addresses with plain messages to it; MOST_PLAIN + 1: all
    bool all_plain;  // from it
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct expected *expected FR_GUARDED_BY(lock);
static struct plain *plain_from FR_GUARDED_BY(lock);
static struct plain *plain_to FR_GUARDED_BY(lock);
static struct peer *peers FR_GUARDED_BY(lock); // NULL while closed
static struct early all_early[MOST_EARLY] FR_GUARDED_BY(lock);
static unsigned early_turn FR_GUARDED_BY(lock); // of those to be replaced
static atomic_bool any_told;                    // of plain messages
static atomic_bool any_lost;                    // there was no memory for something

bool fr_rndv_replica_open(void)
{
    struct peer *made = calloc((size_t)fr_world_size(), sizeof(*made));
    fr_core_lock(&lock);
    peers = made;
    atomic_store_explicit(&any_lost, false, memory_order_relaxed);
    fr_core_unlock(&lock);
    return made != NULL;
}

static void forget_plain(struct plain **table)
{
    struct plain *entry, *next;
    HASH_ITER(hh, *table, entry, next)
    {
        HASH_DELETE(hh, *table, entry);
        free(entry);
    }
}

void fr_rndv_replica_close(void)
{
    struct expected *entry, *next;
    fr_core_lock(&lock);
    HASH_ITER(hh, expected, entry, next)
    {
        HASH_DELETE(hh, expected, entry);
        free(entry);
    }
    forget_plain(&plain_from);
    forget_plain(&plain_to);
    free(peers);
    peers = NULL;
    memset(all_early, 0, sizeof(all_early));
    fr_core_unlock(&lock);
}

static struct expected *find(int from, uint64_t number) FR_REQUIRES(lock)
{
    struct expected *found = NULL;
    struct expected wanted = {.key = {number, from}};
    HASH_FIND(hh, expected, &wanted.key, sizeof(wanted.key), found);
    return found;
}

static void drop(struct expected *entry) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, expected, entry);
    free(entry);
}

static struct fr_rndv_address key_of(const struct fr_rndv_address *address)
{
    struct fr_rndv_address key;
    memset(&key, 0, sizeof(key));
    key.to = address->to;
    key.tag = address->tag;
    key.comm = address->comm;
    return key;
}

static bool has_plain(struct plain *table, const struct fr_rndv_address *address)
{
    const struct fr_rndv_address key = key_of(address);
    struct plain *found = NULL;
    HASH_FIND(hh, table, &key, sizeof(key), found);
    return found != NULL;
}

static bool add_plain(struct plain **table, const struct fr_rndv_address *address)
{
    struct plain *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return false;
    entry->address = key_of(address);
    HASH_ADD(hh, *table, address, sizeof(entry->address), entry);
    if (FR_HASH_HAS(entry))
        return true;
    free(entry);
    return false;
}

static struct expected *add(int from, uint64_t number) FR_REQUIRES(lock)
{
    struct expected *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->key.number = number;
    made->key.from = from;
    HASH_ADD(hh, expected, key, sizeof(made->key), made);
    if (FR_HASH_HAS(made))
        return made;
    free(made);
    return NULL;
}

static void note_early(int from, uint64_t number) FR_REQUIRES(lock)
{
    all_early[early_turn++ % MOST_EARLY] = (struct early){number, from};
}

static bool was_early(int from, uint64_t number) FR_REQUIRES(lock)
{
    bool was = false;
    for (size_t i = 0; i < MOST_EARLY && !was; i++)
        was = all_early[i].number == number && all_early[i].from == from;
    return was;
}

// A further one of the same number says that the message has another scheme now. Threads of a
// sender may tell of their messages in another order than that of the numbers.
static void expect(int from, const struct fr_rndv_entry *entry) FR_REQUIRES(lock)
{
    struct expected *known = find(from, entry->number);
    bool again = entry->number <= peers[from].latest;
    if (!again)
        peers[from].latest = entry->number;
    if (known == NULL) {
        known = add(from, entry->number);
        if (known != NULL && again)
            known->taken = was_early(from, entry->number);
    }
    if (known == NULL)
        atomic_store_explicit(&any_lost, true, memory_order_relaxed);
    else
        known->entry = *entry;
}

// Nobody has received it, nor will.
static void withdraw(int from, uint64_t number) FR_REQUIRES(lock)
{
    struct expected *entry = find(from, number);
    if (entry != NULL)
        drop(entry);
}

void fr_rndv_replica_handle(int from, enum fr_control_kind kind, const struct fr_rndv_entry *entry)
{
    const struct fr_rndv_address address = {from, entry->tag, entry->comm};
    fr_core_lock(&lock);
    struct expected *known = peers != NULL ? find(from, entry->number) : NULL;
    if (peers == NULL)
        known = NULL;
    else if (kind == FR_CONTROL_RTS)
        expect(from, entry);
    else if (kind == FR_CONTROL_WITHDRAWN)
        withdraw(from, entry->number);
    else if (kind == FR_CONTROL_READY && known != NULL)
        known->entry.ready = entry->ready;
    else if (kind == FR_CONTROL_PLAIN && entry->ready != 0)
        peers[from].all_plain = true;
    else if (kind == FR_CONTROL_PLAIN && !has_plain(plain_from, &address))
        (void)add_plain(&plain_from, &address);
    fr_core_unlock(&lock);
}

enum fr_status fr_rndv_replica_find(struct fr_rndv_incoming *incoming, unsigned other_than)
{
    enum fr_status status = FR_ERR_NOT_FOUND;
    fr_core_lock(&lock);
    const struct expected *known = find(incoming->from, incoming->number);
    if (known != NULL &&
        (other_than == FR_SCHEME_NONE || known->entry.place.scheme != other_than)) {
        incoming->bytes = fr_rndv_sizes_bytes(known->entry.sizes);
        incoming->place = known->entry.index;
        incoming->scheme = known->entry.place.scheme;
        incoming->shift = known->entry.place.shift;
        incoming->address = known->entry.place.address;
        if (incoming->scheme == FR_SCHEME_RAIL)
            incoming->key = known->entry.place.key;
        else
            incoming->handle = known->entry.place.handle;
        incoming->ready = known->entry.ready;
        status = FR_OK;
    } else if (known == NULL && other_than != FR_SCHEME_NONE) {
        status = FR_ERR_CANCELLED; // it was known before: the sender has withdrawn it
    } else if (known == NULL && atomic_load_explicit(&any_lost, memory_order_relaxed)) {
        status = FR_ERR_NO_MEMORY;
    }
    fr_core_unlock(&lock);
    return status;
}

// What has been told of and is not known any more is over already; if a later one alone has been
// told of, it will be known as received.
bool fr_rndv_replica_take(int from, uint64_t number, bool over)
{
    fr_core_lock(&lock);
    struct expected *entry = find(from, number);
    bool known = entry != NULL || (peers != NULL && peers[from].latest >= number);
    if (entry != NULL && over)
        drop(entry);
    else if (entry != NULL)
        entry->taken = true;
    else if (known && !over)
        note_early(from, number);
    fr_core_unlock(&lock);
    return known;
}

static bool is_from(const struct expected *entry, const struct fr_rndv_address *from,
                    size_t shortest, size_t longest)
{
    size_t length = fr_rndv_sizes_length(entry->entry.sizes);
    return length >= shortest && length <= longest && entry->key.from == from->to &&
           !entry->taken && entry->entry.tag == from->tag && entry->entry.comm == from->comm;
}

static struct expected *find_first(const struct fr_rndv_address *from, size_t shortest,
                                   size_t longest) FR_REQUIRES(lock)
{
    struct expected *first = NULL;
    for (struct expected *entry = expected; entry != NULL; entry = entry->hh.next) {
        if (is_from(entry, from, shortest, longest) &&
            (first == NULL || entry->key.number < first->key.number))
            first = entry;
    }
    return first;
}

bool fr_rndv_replica_find_first(const struct fr_rndv_address *from, size_t shortest, size_t longest,
                                struct fr_rndv_incoming *incoming)
{
    fr_core_lock(&lock);
    const struct expected *first = find_first(from, shortest, longest);
    *incoming = (struct fr_rndv_incoming){.from = from->to};
    incoming->number = first != NULL ? first->key.number : 0;
    fr_core_unlock(&lock);
    return first != NULL && fr_rndv_replica_find(incoming, FR_SCHEME_NONE) == FR_OK;
}

enum fr_rndv_answer fr_rndv_replica_peek(const struct fr_rndv_address *from, size_t length,
                                         bool take, uint64_t *bytes)
{
    enum fr_rndv_answer answer = FR_RNDV_UNKNOWN;
    fr_core_lock(&lock);
    struct expected *first = find_first(from, length, length);
    if (first != NULL) {
        *bytes = fr_rndv_sizes_bytes(first->entry.sizes);
        first->taken = take;
        answer = FR_RNDV_FOUND;
    } else if (peers == NULL || peers[from->to].all_plain || has_plain(plain_from, from)) {
        answer = FR_RNDV_PLAIN;
    }
    fr_core_unlock(&lock);
    return answer;
}

// Whether the plain message needs to be told of, which it does once.
static bool is_new(const struct fr_rndv_address *address, bool *all) FR_REQUIRES(lock)
{
    if (peers == NULL || peers[address->to].told > MOST_PLAIN || has_plain(plain_to, address))
        return false;
    struct peer *peer = &peers[address->to];
    *all = peer->told == MOST_PLAIN || !add_plain(&plain_to, address);
    peer->told = *all ? MOST_PLAIN + 1 : peer->told + 1;
    atomic_store_explicit(&any_told, true, memory_order_relaxed);
    return true;
}

void fr_rndv_replica_mark_plain(const struct fr_rndv_address *address)
{
    bool all = false;
    fr_core_lock(&lock);
    bool tells = is_new(address, &all);
    fr_core_unlock(&lock);
    const struct fr_rndv_entry entry = {
        .tag = address->tag, .comm = address->comm, .ready = all ? 1 : 0};
    if (tells && !fr_rndv_tell(address->to, FR_CONTROL_PLAIN, &entry, false))
        fr_warn_once("no memory to tell of a message, so that probes may wait for it");
}

bool fr_rndv_replica_has_plain(const struct fr_rndv_address *address)
{
    if (FR_LIKELY(!atomic_load_explicit(&any_told, memory_order_relaxed)))
        return false;
    fr_core_lock(&lock);
    bool has =
        peers != NULL && (peers[address->to].told > MOST_PLAIN || has_plain(plain_to, address));
    fr_core_unlock(&lock);
    return has;
}

void fr_rndv_replica_visit(void (*visit)(int from, unsigned index)) FR_UNANALYSED
{
    for (struct expected *entry = expected; entry != NULL; entry = entry->hh.next) {
        if (entry->entry.place.scheme == FR_SCHEME_PIPELINE)
            visit((int)entry->key.from, entry->entry.index);
    }
}
