// SPDX-License-Identifier: BSD-3-Clause
// The table of posted receives, inside of it: sets of a few places each, of which the request
// chooses one.
//
// A place's word tells which request it holds and who may have it; its other members belong to the
// thread that has claimed it. Requests are held shifted by three bits: in every family they are
// addresses or sign-extended integers, so that their highest bits say the same four times.
#ifndef FR_REQUEST_PLACES_H
#define FR_REQUEST_PLACES_H

#include "fabrail/request/posted.h"

enum {
    FR_SET_BITS = 9,
    FR_WAYS = 4, // places of a set
    FR_PLACES = FR_WAYS << FR_SET_BITS,
    FR_STATE_BITS = 3,
};

// What a thread may do with a place.
enum {
    FR_READY = 1,   // claim it
    FR_CLAIMED = 2, // peek: another one completes the receive
    FR_LOOKED = 3,  // wait: another one looks whether an RTS has come
    FR_PEEKED = 4,  // wait, also who has claimed it: another one reads what stands in its memory
    FR_ADDED = 5,   // nothing: another one is about to add a receive
};
#define FR_FREE ((uint64_t)0)

struct fr_request_posted {
    _Alignas(64) const void *buffer; // where an RTS would stand, zeros if there is no room for one
    void *memory;                    // as it was given
    int64_t count;
    int source, tag;    // of functions that have them
    fr_word type, comm; // as they were given; the latter of functions that have one
    enum fr_fn fn;
};

extern _Atomic uint64_t fr_request_place_words[FR_PLACES];
extern struct fr_request_posted fr_request_places[FR_PLACES];

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
    return &fr_request_place_words[receive - fr_request_places];
}

// Where threads take turns by themselves, words are changed without locking the bus.
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

// The operation that would have been made of the receive at first; NULL when out of memory.
struct fr_request_op *fr_request_posted_make_op(const struct fr_request_posted *receive);

#endif
