// SPDX-License-Identifier: BSD-3-Clause
// Facts on messages from count and datatype, where that takes more than a look at the cache.
#include "config.h"

#include "intercept/rts.h"

#include "fabrail/ipc/tuned.h"

#include <string.h>

_Atomic uint64_t fr_intercept_named_cache[FR_NAMED_ENTRIES];

unsigned fr_intercept_named_ask(fr_word type)
{
    int bytes = fr_abi_type_bytes(type);
    if (bytes <= 0 || bytes >= FR_NAMED_PAIR)
        return 0;
    unsigned known = (unsigned)bytes | (fr_abi_type_is_pair(type) ? FR_NAMED_PAIR : 0);
    atomic_store_explicit(fr_intercept_named_entry(type), (uint64_t)type << FR_NAMED_BITS | known,
                          memory_order_relaxed);
    return known;
}

// Elements of a derived datatype are left to the functions that decode it.
FR_OFTEN bool fr_intercept_is_host_memory(fr_word buffer, int64_t count, fr_word type)
{
    struct fr_device_range range;
    if (count <= 0 || fr_device_is_surely_host((const void *)buffer))
        return buffer != fr_abi_mpi.BOTTOM || count <= 0;
    if (buffer == fr_abi_mpi.BOTTOM || type == fr_abi_mpi.DATATYPE_NULL ||
        !fr_abi_type_is_named(type))
        return false;
    fr_device_classify_argument((const void *)buffer,
                                (size_t)count * (size_t)fr_intercept_named_bytes(type), &range);
    return !fr_device_owns(&range);
}

bool fr_intercept_may_be_as_rts(int64_t count, fr_word type)
{
    if (FR_LIKELY(fr_abi_type_is_named(type)))
        return fr_intercept_may_mark(count) && type != fr_abi_mpi.DATATYPE_NULL &&
               fr_rndv_marks_rts(count * fr_intercept_named_bytes(type));
    if (count <= 0 || count > FR_RNDV_RTS_LONGEST)
        return false;
    int bytes = fr_abi_type_bytes(type);
    return bytes > 0 && fr_rndv_marks_rts(count * bytes);
}

bool fr_intercept_may_go_over_rails(int64_t count, fr_word type)
{
    if (FR_LIKELY(!fr_intercept_rails_take_host) || count <= 0 || type == fr_abi_mpi.DATATYPE_NULL)
        return false;
    size_t least = fr_ipc_tuned(FR_SIZE_RAIL);
    if (fr_abi_type_is_named(type))
        return (size_t)count * FR_NAMED_LARGEST >= least &&
               (size_t)count * (size_t)fr_intercept_named_bytes(type) >= least;
    int bytes = fr_abi_type_bytes(type);
    if (bytes == -1)
        return false;
    return bytes < 0 || (size_t)count * (size_t)bytes >= least; // more than an int holds
}
