// SPDX-License-Identifier: BSD-3-Clause
// Entries of posted receives, for the files of posted.h alone. They stand in sets of a few entries
// each; the value of a request chooses the set.
//
// An entry's word tells which request it holds and which threads may use it. Its other members
// belong to the thread that has claimed it. A word holds its request shifted by three bits.
// Requests are addresses or sign-extended integers in every family, so their highest four bits are
// equal and none is lost.
#ifndef FR_REQUEST_POSTED_TABLE_H
#define FR_REQUEST_POSTED_TABLE_H

#include "fabrail/request/posted.h"

enum {
    FR_SET_BITS = 9,
    FR_WAYS = 4, // entries of a set
    FR_POSTED_ENTRIES = FR_WAYS << FR_SET_BITS,
    FR_STATE_BITS = 3,
};

// States of an entry: what another thread may do with it.
enum {
    FR_READY = 1,   // claim it
    FR_CLAIMED = 2, // peek: another one completes the receive
    FR_LOOKED = 3,  // wait: another one looks whether an RTS has come
    FR_PEEKED = 4,  // wait, also the claimer: another one reads what stands in its memory
    FR_ADDED = 5,   // nothing: another one is about to add a receive
};
#define FR_FREE ((uint64_t)0)

// An entry: one posted receive.
struct fr_request_posted {
    _Alignas(64) const void *buffer; // where an RTS would stand, zeros if there is no room for one
    void *memory;                    // as it was given
    int64_t count;
    int source, tag;    // of functions that have them
    fr_word type, comm; // as they were given; comm of functions that have one
    enum fr_fn fn;
};

extern FR_OWN _Atomic uint64_t fr_request_posted_words[FR_POSTED_ENTRIES];
extern FR_OWN struct fr_request_posted fr_request_posted_entries[FR_POSTED_ENTRIES];

// Returns the word of an entry with this request and state.
static inline uint64_t fr_request_word_of(fr_word request, unsigned state)
{
    return ((uint64_t)request << FR_STATE_BITS) | state;
}

static inline fr_word fr_request_of_word(uint64_t word)
{
    return (fr_word)((int64_t)word >> FR_STATE_BITS);
}

static inline unsigned fr_request_state_of_word(uint64_t word)
{
    return word % (1u << FR_STATE_BITS);
}

static inline _Atomic uint64_t *fr_request_word_at(const struct fr_request_posted *receive)
{
    return &fr_request_posted_words[receive - fr_request_posted_entries];
}

// Changes a word from one value to another, and returns whether it had the first. Where threads
// call MPI one at a time, this does without locking the bus.
static inline bool fr_request_word_change(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
    if (FR_LIKELY(fr_request_serial)) {
        bool is_from = atomic_load_explicit(word, memory_order_relaxed) == from;
        if (is_from)
            atomic_store_explicit(word, to, memory_order_relaxed);
        return is_from;
    }
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acquire,
                                                   memory_order_relaxed);
}

// Makes the operation that the receive would have been without an entry. Returns NULL when out of
// memory.
struct fr_request_op *fr_request_posted_make_op(const struct fr_request_posted *receive);

#endif
