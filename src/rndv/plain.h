// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: plain messages of a length that marks RTS.
#ifndef FR_RNDV_PLAIN_H
#define FR_RNDV_PLAIN_H

#include "fabrail/rndv.h"

// Two tables: plain messages that this process has sent, and those that other hosts have told it
// of.
enum fr_rndv_plain_way { FR_PLAIN_TO, FR_PLAIN_FROM, FR_PLAIN_WAYS };

// Notes a plain message that is sent after the message of number `after`; UINT64_MAX where that is
// not known. Returns whether the receiver has to be told of it (FR_PLAIN_NEW). FR_PLAIN_BEYOND
// means that its address is not told apart, so that any message to that process may be plain.
enum fr_rndv_plain_news { FR_PLAIN_KNOWN, FR_PLAIN_NEW, FR_PLAIN_BEYOND };
enum fr_rndv_plain_news fr_rndv_plain_add(enum fr_rndv_plain_way way,
                                          const struct fr_rndv_address *address, size_t length,
                                          uint64_t after);

// Number of addresses with plain messages under way, as far as they are told apart.
extern FR_OWN _Atomic size_t fr_rndv_plain_counts[FR_PLAIN_WAYS];
// Says whether there are receivers beyond those that are told apart.
extern FR_OWN atomic_bool fr_rndv_plain_any_beyond;

// Returns what fr_rndv_plain_has does, and takes longer.
bool fr_rndv_plain_find(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                        size_t length);

// Returns whether a plain message of this length may be under way. Costs some loads where there is
// none at all.
static inline bool fr_rndv_plain_has(enum fr_rndv_plain_way way,
                                     const struct fr_rndv_address *address, size_t length)
{
    bool any = atomic_load_explicit(&fr_rndv_plain_counts[way], memory_order_relaxed) != 0 ||
               atomic_load_explicit(&fr_rndv_plain_any_beyond, memory_order_relaxed);
    return FR_UNLIKELY(any) && fr_rndv_plain_find(way, address, length);
}

// Notes that the message of this number has been received. Plain messages that were sent before it
// are no longer under way.
void fr_rndv_plain_received(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                            uint64_t number);
void fr_rndv_plain_forget_all(void);

#endif
