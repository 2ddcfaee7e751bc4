// SPDX-License-Identifier: BSD-3-Clause
// What is told from count and datatype, where that takes more than a look at what is known.
#include "config.h"

#include "mpi/rts.h"

#include "memory/tuned.h"

#include <string.h>

_Atomic uint64_t fr_mpi_named_cache[FR_NAMED_PLACES];

unsigned fr_mpi_named_ask(fr_word type)
{
    int bytes = fr_real_type_bytes(type);
    if (bytes <= 0 || bytes >= FR_NAMED_PAIR)
        return 0;
    unsigned known = (unsigned)bytes | (fr_real_type_is_pair(type) ? FR_NAMED_PAIR : 0);
    atomic_store_explicit(fr_mpi_named_place(type), (uint64_t)type << FR_NAMED_BITS | known,
                          memory_order_relaxed);
    return known;
}

// Elements of a derived datatype are left to those who decode it.
bool fr_mpi_is_host_memory(fr_word buffer, int64_t count, fr_word type)
{
    struct fr_device_range range;
    if (count <= 0 || fr_device_is_surely_host((const void *)buffer))
        return buffer != fr_real_mpi.BOTTOM || count <= 0;
    if (buffer == fr_real_mpi.BOTTOM || type == fr_real_mpi.DATATYPE_NULL ||
        !fr_real_type_is_named(type))
        return false;
    fr_device_classify((const void *)buffer, (size_t)count * (size_t)fr_mpi_named_bytes(type),
                       &range);
    return !fr_device_owns(&range);
}

bool fr_mpi_may_be_as_rts(int64_t count, fr_word type)
{
    if (FR_LIKELY(fr_real_type_is_named(type)))
        return fr_mpi_may_mark(count) && type != fr_real_mpi.DATATYPE_NULL &&
               fr_rndv_marks_rts(count * fr_mpi_named_bytes(type));
    if (count <= 0 || count > FR_RNDV_RTS_LONGEST)
        return false;
    int bytes = fr_real_type_bytes(type);
    return bytes > 0 && fr_rndv_marks_rts(count * bytes);
}

bool fr_mpi_may_go_over_rails(int64_t count, fr_word type)
{
    if (FR_LIKELY(!fr_mpi_rails_take_host) || count <= 0 || type == fr_real_mpi.DATATYPE_NULL)
        return false;
    size_t least = fr_memory_tuned(FR_SIZE_RAIL);
    if (fr_real_type_is_named(type))
        return (size_t)count * FR_NAMED_LARGEST >= least &&
               (size_t)count * (size_t)fr_mpi_named_bytes(type) >= least;
    int bytes = fr_real_type_bytes(type);
    if (bytes == -1)
        return false;
    return bytes < 0 || (size_t)count * (size_t)bytes >= least; // more than an int holds
}

bool fr_mpi_takes_parts(void)
{
    static _Atomic int known; // 1 yes, 2 no
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (FR_UNLIKELY(!answer)) {
        answer = strcmp(fr_real_mpi.family, "Open MPI") == 0 ? 1 : 2;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 1;
}
