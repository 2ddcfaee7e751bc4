// SPDX-License-Identifier: BSD-3-Clause
// The replica: what processes of other hosts have told of their ledgers. It holds expected
// messages, and plain messages of a length that marks RTS.
//
// A probe may find a message of such a length. It is an RTS, whose entry was sent ahead, or a plain
// message. Plain ones are told of as well, unless one like it may still be under way. So a receiver
// that knows of neither knows that a notice is still to come. A receiver forgets plain messages
// before it tells their sender that it has received what was sent after them.
#include "config.h"

#include "rndv/replica.h"

#include "fabrail/core/hash.h"
#include "fabrail/job.h"
#include "rndv/plain.h"
#include "rndv/schemes.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EARLY = 64, MOST_LOST = 64 };

// An expected message. Its bytes wait where the entry says.
struct expected {
    struct {
        uint64_t number;
        int64_t from;
    } key;
    bool taken;
    bool doubted; // it may have been cut off; if it is taken as well, it or a later one was
    struct fr_rndv_entry entry;
    UT_hash_handle hh;
};

// A message that nothing is expected of. It was received before its sender told of it or after it
// was over, or it is lost.
struct single {
    uint64_t number; // 0: none
    int from;
    enum fr_status status; // why it is lost
};

// State of another process, by rank.
struct peer {
    uint64_t latest;    // number of the latest message that it has told of
    uint64_t lost;      // all up to this number may be lost that are not expected; mostly 0
    bool has_lost;      // some message was once lost
    bool has_failed;    // there was once no memory to expect one
    bool assumes_plain; // it knows that any message to it may be plain
    bool all_plain;     // any message from it may be plain
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct expected *expected FR_GUARDED_BY(lock);
static struct peer *peers FR_GUARDED_BY(lock); // NULL while closed
static struct single all_early[MOST_EARLY] FR_GUARDED_BY(lock);
static struct single all_lost[MOST_LOST] FR_GUARDED_BY(lock);
static unsigned early_turn FR_GUARDED_BY(lock); // index of the one to be replaced next
static unsigned lost_turn FR_GUARDED_BY(lock);
atomic_bool fr_rndv_replica_any_assumes_plain;
_Atomic size_t fr_rndv_replica_waiting;

bool fr_rndv_replica_open(void)
{
    struct peer *made = calloc((size_t)fr_job_size(), sizeof(*made));
    fr_core_lock(&lock);
    peers = made;
    fr_core_unlock(&lock);
    return made != NULL;
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
    atomic_store_explicit(&fr_rndv_replica_waiting, 0, memory_order_relaxed);
    free(peers);
    peers = NULL;
    memset(all_early, 0, sizeof(all_early));
    memset(all_lost, 0, sizeof(all_lost));
    atomic_store_explicit(&fr_rndv_replica_any_assumes_plain, false, memory_order_relaxed);
    fr_core_unlock(&lock);
}

// Stores how much of a message is ready, and counts those that wait in their buffers.
static void set_ready(struct expected *entry, uint64_t ready) FR_REQUIRES(lock)
{
    bool waited = entry->entry.ready == FR_RNDV_WAITS, waits = ready == FR_RNDV_WAITS;
    entry->entry.ready = ready;
    if (waits != waited)
        atomic_fetch_add_explicit(&fr_rndv_replica_waiting, waits ? 1 : (size_t)-1,
                                  memory_order_relaxed);
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
    set_ready(entry, 0);
    HASH_DELETE(hh, expected, entry);
    free(entry);
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

static struct single *find_single(struct single *list, size_t count, int from, uint64_t number)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].number == number && list[i].from == from)
            return &list[i];
    }
    return NULL;
}

static void note_early(int from, uint64_t number) FR_REQUIRES(lock)
{
    all_early[early_turn++ % MOST_EARLY] = (struct single){.number = number, .from = from};
}

static bool was_early(int from, uint64_t number) FR_REQUIRES(lock)
{
    return find_single(all_early, MOST_EARLY, from, number) != NULL;
}

// Notes a message that its sender has withdrawn, or that there is no memory to expect. Its receive
// fails, rather than that it waits for ever. More of them than there is room for take others of
// lower numbers along.
static void note_lost(int from, uint64_t number, enum fr_status status) FR_REQUIRES(lock)
{
    struct single *entry = &all_lost[lost_turn++ % MOST_LOST];
    if (entry->number > peers[entry->from].lost)
        peers[entry->from].lost = entry->number;
    *entry = (struct single){number, from, status};
    peers[from].has_lost = true;
}

// Returns why a message is lost, or FR_ERR_NOT_FOUND for one that is not.
static enum fr_status why_lost(int from, uint64_t number) FR_REQUIRES(lock)
{
    if (peers == NULL || !peers[from].has_lost)
        return FR_ERR_NOT_FOUND;
    const struct single *entry = find_single(all_lost, MOST_LOST, from, number);
    if (entry != NULL)
        return entry->status;
    return number <= peers[from].lost ? FR_ERR_NO_MEMORY : FR_ERR_NOT_FOUND;
}

// Forgets that a message was lost, since it has failed, or has been told of again.
static void end_lost(int from, uint64_t number) FR_REQUIRES(lock)
{
    struct single *entry = NULL;
    if (peers != NULL && peers[from].has_lost)
        entry = find_single(all_lost, MOST_LOST, from, number);
    if (entry != NULL)
        *entry = (struct single){0};
}

// Enters an expected message. A further entry of the same number says that the message has another
// scheme now. Threads of a sender may tell of their messages in another order than that of the
// numbers.
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
    end_lost(from, entry->number);
    if (known == NULL) {
        note_lost(from, entry->number, FR_ERR_NO_MEMORY);
        peers[from].has_failed = true;
        return;
    }
    set_ready(known, entry->ready);
    known->entry = *entry;
}

// Forgets where the bytes of a message wait that its sender has withdrawn. The RTS may come still.
static void withdraw(int from, uint64_t number) FR_REQUIRES(lock)
{
    struct expected *entry = find(from, number);
    if (entry != NULL)
        drop(entry);
    end_lost(from, number);
    note_lost(from, number, FR_ERR_CANCELLED);
}

void fr_rndv_replica_handle(int from, enum fr_job_control_kind kind,
                            const struct fr_rndv_entry *entry)
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
        set_ready(known, entry->ready);
    else if (kind == FR_CONTROL_PLAIN && entry->ready != 0)
        peers[from].all_plain = true;
    else if (kind == FR_CONTROL_PLAIN && entry->sizes <= FR_RNDV_RTS_LONGEST)
        (void)fr_rndv_plain_add(FR_PLAIN_FROM, &address, entry->sizes, entry->number);
    fr_core_unlock(&lock);
}

enum fr_status fr_rndv_replica_find(struct fr_rndv_incoming *incoming, unsigned other_than)
{
    enum fr_status status = FR_ERR_NOT_FOUND;
    fr_core_lock(&lock);
    const struct expected *known = find(incoming->from, incoming->number);
    if (known != NULL &&
        (other_than == FR_SCHEME_NONE || known->entry.location.scheme != other_than)) {
        incoming->bytes = fr_rndv_sizes_bytes(known->entry.sizes);
        incoming->index = known->entry.index;
        incoming->location = known->entry.location;
        incoming->ready = known->entry.ready;
        status = FR_OK;
    } else if (known == NULL && other_than != FR_SCHEME_NONE) {
        status = FR_ERR_CANCELLED; // it was known before, so the sender has withdrawn it
    } else if (known == NULL) {
        status = why_lost(incoming->from, incoming->number);
    }
    fr_core_unlock(&lock);
    return status;
}

static void tell_received(const struct expected *known)
{
    const struct fr_rndv_address from = {(int)known->key.from, known->entry.tag, known->entry.comm};
    fr_rndv_plain_received(FR_PLAIN_FROM, &from, known->key.number);
}

static bool is_from(const struct expected *entry, const struct fr_rndv_address *from,
                    size_t shortest, size_t longest)
{
    size_t length = fr_rndv_sizes_length(entry->entry.sizes);
    return length >= shortest && length <= longest && entry->key.from == from->to &&
           !entry->taken && entry->entry.tag == from->tag && entry->entry.comm == from->comm;
}

static struct expected *find_first(const struct fr_rndv_address *from, size_t shortest,
                                   size_t longest, bool doubted) FR_REQUIRES(lock)
{
    struct expected *first = NULL;
    for (struct expected *entry = expected; entry != NULL; entry = entry->hh.next) {
        if (is_from(entry, from, shortest, longest) && (doubted || !entry->doubted) &&
            (first == NULL || entry->key.number < first->key.number))
            first = entry;
    }
    return first;
}

// Passes the doubt on: a message in doubt is being received, so another one was cut off, and has
// been received.
static void pass_doubt(struct expected *entry) FR_REQUIRES(lock)
{
    const struct fr_rndv_address from = {(int)entry->key.from, entry->entry.tag, entry->entry.comm};
    struct expected *next =
        entry->doubted && entry->taken ? find_first(&from, 0, FR_RNDV_RTS_LONGEST, true) : NULL;
    entry->doubted = false;
    if (next != NULL)
        next->taken = next->doubted = true;
}

bool fr_rndv_replica_doubt(int from, uint64_t number, bool received)
{
    fr_core_lock(&lock);
    struct expected *entry = find(from, number);
    bool waits = entry != NULL && !entry->taken;
    if (waits) {
        entry->doubted = true;
        entry->taken = received;
    }
    fr_core_unlock(&lock);
    return waits;
}

// A message that has been told of and is no longer known is over already. If only a later one has
// been told of, this one will be known as received when its entry comes. A lost message stays lost
// until its receive has failed.
bool fr_rndv_replica_take(int from, uint64_t number, bool over)
{
    fr_core_lock(&lock);
    struct expected *entry = find(from, number);
    bool known = entry != NULL || (peers != NULL && peers[from].latest >= number);
    if (over)
        end_lost(from, number);
    if (entry != NULL) {
        tell_received(entry);
        pass_doubt(entry);
    }
    if (entry != NULL && over)
        drop(entry);
    else if (entry != NULL)
        entry->taken = true;
    else if (known && !over)
        note_early(from, number);
    fr_core_unlock(&lock);
    return known;
}

bool fr_rndv_replica_find_first(const struct fr_rndv_address *from, size_t shortest, size_t longest,
                                bool doubted, struct fr_rndv_incoming *incoming)
{
    fr_core_lock(&lock);
    const struct expected *first = find_first(from, shortest, longest, doubted);
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
    struct expected *first = find_first(from, length, length, true);
    if (first != NULL) {
        *bytes = fr_rndv_sizes_bytes(first->entry.sizes);
        first->taken = take;
        first->doubted = first->doubted && !take;
        answer = FR_RNDV_FOUND;
    } else if (peers == NULL || peers[from->to].all_plain ||
               fr_rndv_plain_has(FR_PLAIN_FROM, from, length)) {
        answer = FR_RNDV_PLAIN;
    }
    fr_core_unlock(&lock);
    return answer;
}

void fr_rndv_replica_tell_plain(const struct fr_rndv_address *address, size_t length,
                                uint64_t after, bool all)
{
    const struct fr_rndv_entry entry = {
        .number = after, .sizes = length, .tag = address->tag, .comm = address->comm, .ready = all};
    fr_core_lock(&lock);
    bool tells = peers != NULL && !peers[address->to].assumes_plain;
    if (tells && all) {
        peers[address->to].assumes_plain = true;
        atomic_store_explicit(&fr_rndv_replica_any_assumes_plain, true, memory_order_relaxed);
    }
    fr_core_unlock(&lock);
    if (tells && !fr_rndv_entry_send(address->to, FR_CONTROL_PLAIN, &entry, false))
        fr_warn_once("no memory to tell of a message, so that probes may wait for it");
}

bool fr_rndv_replica_peer_assumes_plain(int to)
{
    fr_core_lock(&lock);
    bool has = peers != NULL && to >= 0 && to < fr_job_size() && peers[to].assumes_plain;
    fr_core_unlock(&lock);
    return has;
}

void fr_rndv_replica_visit(void (*visit)(int from, unsigned index)) FR_UNANALYSED
{
    for (struct expected *entry = expected; entry != NULL; entry = entry->hh.next) {
        if (fr_rndv_scheme_has(entry->entry.location.scheme, FR_RNDV_FRAGMENTED))
            visit((int)entry->key.from, entry->entry.index);
    }
    for (int from = 0; peers != NULL && from < fr_job_size(); from++) {
        for (unsigned i = 0; i < FR_RNDV_SLOTS && peers[from].has_failed; i++)
            visit(from, i);
    }
}
