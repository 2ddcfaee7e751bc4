// SPDX-License-Identifier: BSD-3-Clause
// Plain messages of a length that marks RTS, by the address that they go to or come from. While one
// may be under way, a probe takes a message of that length from there for the plain one.
//
// Messages to one address are received in the order of their sends. Once a later message has been
// received, no plain message that was sent before it is under way any more.
#include "config.h"

#include "rndv/plain.h"

#include "fabrail/core/hash.h"

#include <stdlib.h>
#include <string.h>

// The most addresses of receivers that are told apart, and the number of bits that stand for all
// others by their hash. Addresses that share a bit are treated alike, which costs speed alone.
enum { MOST_APART = 1024, BEYOND_BITS = 1 << 16 };

struct plain {
    struct fr_rndv_address address;
    // For each length, the number of the last message that was sent before the latest plain one,
    // made odd, which no number is. 0 where no plain message can be under way.
    uint64_t after[FR_RNDV_RTS_LONGEST / FR_RNDV_RTS_PRIME + 1];
    size_t lengths; // how many of these are not 0
    UT_hash_handle hh;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct plain *tables[FR_PLAIN_WAYS] FR_GUARDED_BY(lock);
_Atomic size_t fr_rndv_plain_counts[FR_PLAIN_WAYS];
static _Atomic uint64_t beyond[BEYOND_BITS / 64];
atomic_bool fr_rndv_plain_any_beyond;

static struct fr_rndv_address key_of(const struct fr_rndv_address *address)
{
    struct fr_rndv_address key;
    memset(&key, 0, sizeof(key));
    key.to = address->to;
    key.tag = address->tag;
    key.comm = address->comm;
    return key;
}

static unsigned bit_of(const struct fr_rndv_address *address)
{
    const struct fr_rndv_address key = key_of(address);
    return fr_core_hash(&key, sizeof(key)) % BEYOND_BITS;
}

static void close_for_good(const struct fr_rndv_address *address)
{
    unsigned bit = bit_of(address);
    atomic_fetch_or_explicit(&beyond[bit / 64], (uint64_t)1 << bit % 64, memory_order_relaxed);
    atomic_store_explicit(&fr_rndv_plain_any_beyond, true, memory_order_relaxed);
}

static bool is_closed_for_good(const struct fr_rndv_address *address)
{
    if (FR_LIKELY(!atomic_load_explicit(&fr_rndv_plain_any_beyond, memory_order_relaxed)))
        return false;
    unsigned bit = bit_of(address);
    return (atomic_load_explicit(&beyond[bit / 64], memory_order_relaxed) >> bit % 64 & 1) != 0;
}

static struct plain *find(enum fr_rndv_plain_way way, const struct fr_rndv_address *address)
    FR_REQUIRES(lock)
{
    const struct fr_rndv_address key = key_of(address);
    struct plain *found = NULL;
    HASH_FIND(hh, tables[way], &key, sizeof(key), found);
    return found;
}

static struct plain *make(enum fr_rndv_plain_way way, const struct fr_rndv_address *address)
    FR_REQUIRES(lock)
{
    size_t count = atomic_load_explicit(&fr_rndv_plain_counts[way], memory_order_relaxed);
    bool has_room = way != FR_PLAIN_TO || count < MOST_APART;
    struct plain *made = has_room ? calloc(1, sizeof(*made)) : NULL;
    if (made == NULL)
        return NULL;
    made->address = key_of(address);
    HASH_ADD(hh, tables[way], address, sizeof(made->address), made);
    if (FR_HASH_HAS(made)) {
        atomic_fetch_add_explicit(&fr_rndv_plain_counts[way], 1, memory_order_relaxed);
        return made;
    }
    free(made);
    return NULL;
}

static void drop(enum fr_rndv_plain_way way, struct plain *plain) FR_REQUIRES(lock)
{
    HASH_DELETE(hh, tables[way], plain);
    free(plain);
    atomic_fetch_sub_explicit(&fr_rndv_plain_counts[way], 1, memory_order_relaxed);
}

static uint64_t *after_of(struct plain *plain, size_t length)
{
    return &plain->after[length / FR_RNDV_RTS_PRIME];
}

static enum fr_rndv_plain_news note(struct plain *plain, size_t length, uint64_t number)
{
    uint64_t *after = after_of(plain, length);
    if (*after >= (number | 1))
        return FR_PLAIN_KNOWN;
    plain->lengths += *after == 0;
    *after = number | 1;
    return FR_PLAIN_NEW;
}

enum fr_rndv_plain_news fr_rndv_plain_add(enum fr_rndv_plain_way way,
                                          const struct fr_rndv_address *address, size_t length,
                                          uint64_t after)
{
    enum fr_rndv_plain_news news = FR_PLAIN_BEYOND;
    fr_core_lock(&lock);
    struct plain *plain = find(way, address);
    plain = plain != NULL ? plain : make(way, address);
    if (plain != NULL)
        news = note(plain, length, after);
    fr_core_unlock(&lock);
    if (news == FR_PLAIN_BEYOND && way == FR_PLAIN_TO)
        close_for_good(address);
    return news;
}

bool fr_rndv_plain_find(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                        size_t length)
{
    if (!fr_rndv_marks_rts((int64_t)length))
        return false;
    if (way == FR_PLAIN_TO && is_closed_for_good(address))
        return true;
    fr_core_lock(&lock);
    struct plain *plain = find(way, address);
    bool has = plain != NULL && *after_of(plain, length) != 0;
    fr_core_unlock(&lock);
    return has;
}

void fr_rndv_plain_received(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                            uint64_t number)
{
    if (FR_LIKELY(atomic_load_explicit(&fr_rndv_plain_counts[way], memory_order_relaxed) == 0))
        return;
    fr_core_lock(&lock);
    struct plain *plain = find(way, address);
    for (size_t i = 0; plain != NULL && i < FR_ARRAY_LENGTH(plain->after); i++) {
        bool is_over = plain->after[i] != 0 && plain->after[i] < number;
        plain->after[i] = is_over ? 0 : plain->after[i];
        plain->lengths -= is_over;
    }
    if (plain != NULL && plain->lengths == 0)
        drop(way, plain);
    fr_core_unlock(&lock);
}

void fr_rndv_plain_forget_all(void)
{
    struct plain *plain, *next;
    fr_core_lock(&lock);
    for (int way = 0; way < FR_PLAIN_WAYS; way++) {
        HASH_ITER(hh, tables[way], plain, next)
        drop((enum fr_rndv_plain_way)way, plain);
    }
    fr_core_unlock(&lock);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(beyond); i++)
        atomic_store_explicit(&beyond[i], 0, memory_order_relaxed);
    atomic_store_explicit(&fr_rndv_plain_any_beyond, false, memory_order_relaxed);
}
