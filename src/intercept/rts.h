// SPDX-License-Identifier: BSD-3-Clause
// Tells from count and datatype alone which receives may bring an RTS, and which sends look like
// one. So all other calls cost no more than that.
#ifndef FR_INTERCEPT_RTS_H
#define FR_INTERCEPT_RTS_H

#include "intercept/intercept_int.h"

// Cache of what MPI has said of predefined datatypes. A entry's word holds a handle, whether the
// datatype is a pair, and its size. Handles are addresses or integers, so their highest bits can be
// dropped.
enum {
    FR_NAMED_ENTRIES = 64,
    FR_NAMED_BITS = 8,
    FR_NAMED_PAIR = 1 << (FR_NAMED_BITS - 1), // some pairs have gaps
    FR_NAMED_LARGEST = 32,                    // a complex number of two long doubles
};
extern FR_OWN _Atomic uint64_t fr_intercept_named_cache[FR_NAMED_ENTRIES];

// Returns the entry of a datatype in the cache.
static inline _Atomic uint64_t *fr_intercept_named_entry(fr_word type)
{
    return &fr_intercept_named_cache[((uint64_t)type * 0x9e3779b97f4a7c15u) >> 58];
}

// Returns size and pair bit of a datatype, 0 if MPI has not been asked yet.
static inline unsigned fr_intercept_named_known(fr_word type)
{
    uint64_t word = atomic_load_explicit(fr_intercept_named_entry(type), memory_order_relaxed);
    uint64_t known = word ^ (uint64_t)type << FR_NAMED_BITS;
    return known < 1u << FR_NAMED_BITS ? (unsigned)known : 0;
}

// Asks MPI for size and pair bit of a predefined datatype. Returns 0 if MPI does not tell.
unsigned fr_intercept_named_ask(fr_word type);

// Returns the size of a predefined datatype in bytes, 0 if MPI does not tell.
static inline int fr_intercept_named_bytes(fr_word type)
{
    unsigned known = fr_intercept_named_known(type);
    return (int)((FR_LIKELY(known) ? known : fr_intercept_named_ask(type)) % FR_NAMED_PAIR);
}

// Returns whether a datatype is predefined and surely has no gaps. MPI is not asked: it has not yet
// seen the call, whose arguments may be wrong.
static inline bool fr_intercept_is_simple(fr_word type)
{
    unsigned known = fr_intercept_named_known(type);
    return fr_abi_type_is_named(type) && type != fr_abi_mpi.DATATYPE_NULL &&
           (known ? known < FR_NAMED_PAIR : !fr_abi_type_is_pair(type));
}

// Returns whether so many elements have room for an RTS.
static inline bool fr_intercept_may_bring(int64_t count, fr_word type)
{
    if (!fr_abi_type_is_named(type))
        return count > 0;
    if (count >= FR_RNDV_RTS_BYTES)
        return true;
    return count * FR_NAMED_LARGEST >= FR_RNDV_RTS_BYTES && type != fr_abi_mpi.DATATYPE_NULL &&
           count * fr_intercept_named_bytes(type) >= FR_RNDV_RTS_BYTES;
}

// Returns whether so many elements of a predefined datatype may be of a size that marks an RTS. The
// prime divides such a size, but the size of no predefined datatype, so it must divide the count.
static inline bool fr_intercept_may_mark(int64_t count)
{
    return count >= FR_RNDV_RTS_PRIME && count <= FR_RNDV_RTS_LONGEST &&
           FR_UNLIKELY((uint32_t)count % FR_RNDV_RTS_PRIME == 0);
}

// Returns whether a message surely has no size that marks an RTS, at a glance.
static inline bool fr_intercept_is_unmarked(int64_t count, fr_word type)
{
    return FR_LIKELY(fr_abi_type_is_named(type)) && !fr_intercept_may_mark(count);
}

// Says whether a receive buffer has room for an RTS, as far as a glance at its arguments tells.
enum fr_intercept_room {
    FR_INTERCEPT_ROOM_UNKNOWN,
    FR_INTERCEPT_ROOM_NONE,
    FR_INTERCEPT_ROOM_ENOUGH
};
// Returns the room of so many elements. Known for predefined datatypes without gaps.
static inline enum fr_intercept_room fr_intercept_room_of(int64_t count, fr_word type)
{
    const int64_t most = (FR_RNDV_RTS_BYTES - 1) / FR_NAMED_LARGEST; // elements of any size
    unsigned known = fr_intercept_named_known(type);
    if (FR_LIKELY(known && known < FR_NAMED_PAIR))
        return count * known < FR_RNDV_RTS_BYTES ? FR_INTERCEPT_ROOM_NONE
                                                 : FR_INTERCEPT_ROOM_ENOUGH;
    return count <= most && fr_abi_type_is_named(type) ? FR_INTERCEPT_ROOM_NONE
                                                       : FR_INTERCEPT_ROOM_UNKNOWN;
}

// Returns whether so many elements are of a size that marks an RTS.
bool fr_intercept_may_be_as_rts(int64_t count, fr_word type);

#endif
