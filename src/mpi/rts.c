// SPDX-License-Identifier: BSD-3-Clause
// Which receives may bring an RTS, and which sends look like one, told from count and datatype
// alone: so that all others cost no more than that.
#include "config.h"

#include "mpi/mpi_int.h"

#include "memory/tuned.h"

#include <string.h>

enum { LARGEST_NAMED_BYTES = 32 }; // a complex number of two long doubles

// The size of a predefined datatype. Each place of the cache holds a handle and its size in one
// word; handles are addresses or integers, so that their highest bits say nothing.
static int named_bytes(fr_word type)
{
    enum { PLACES = 64, SIZE_BITS = 8 };
    static _Atomic uint64_t cache[PLACES];
    int bytes = 0;
    _Atomic uint64_t *place = &cache[((uint64_t)type * 0x9e3779b97f4a7c15u) >> 58];
    uint64_t word = atomic_load_explicit(place, memory_order_relaxed);
    if (FR_LIKELY(word >> SIZE_BITS == (uint64_t)type << SIZE_BITS >> SIZE_BITS && word))
        return (int)(word & ((1u << SIZE_BITS) - 1));
    FR_MPI(Type_size, type, FR_PTR(&bytes));
    if (bytes > 0 && bytes < 1 << SIZE_BITS)
        atomic_store_explicit(place, (uint64_t)type << SIZE_BITS | (uint64_t)bytes,
                              memory_order_relaxed);
    return bytes;
}

// Elements of a derived datatype are left to those who decode it.
bool fr_mpi_is_host_memory(fr_word buffer, int64_t count, fr_word type)
{
    struct fr_device_range range;
    if (count <= 0 || fr_buffer_is_surely_host((const void *)buffer))
        return buffer != fr_real_mpi.BOTTOM || count <= 0;
    if (buffer == fr_real_mpi.BOTTOM || type == fr_real_mpi.DATATYPE_NULL ||
        !fr_real_type_is_named(type))
        return false;
    fr_buffer_classify((const void *)buffer, (size_t)count * (size_t)named_bytes(type), &range);
    return !fr_device_kind_is_device(range.kind);
}

bool fr_mpi_may_bring(int64_t count, fr_word type)
{
    if (!fr_real_type_is_named(type))
        return count > 0;
    if (count >= FR_RNDV_RTS_BYTES)
        return true;
    return count * LARGEST_NAMED_BYTES >= FR_RNDV_RTS_BYTES && type != fr_real_mpi.DATATYPE_NULL &&
           count * named_bytes(type) >= FR_RNDV_RTS_BYTES;
}

// No predefined datatype has a size that the prime divides, so that it divides their count.
bool fr_mpi_may_be_as_rts(int64_t count, fr_word type)
{
    int bytes = 0;
    if (FR_LIKELY(fr_real_type_is_named(type)))
        return count >= FR_RNDV_RTS_PRIME && count <= FR_RNDV_RTS_LONGEST &&
               FR_UNLIKELY((uint32_t)count % FR_RNDV_RTS_PRIME == 0) &&
               type != fr_real_mpi.DATATYPE_NULL && fr_rndv_marks_rts(count * named_bytes(type));
    return count > 0 && count <= FR_RNDV_RTS_LONGEST && type != fr_real_mpi.DATATYPE_NULL &&
           FR_MPI(Type_size, type, FR_PTR(&bytes)) == fr_real_mpi.SUCCESS && bytes > 0 &&
           fr_rndv_marks_rts(count * bytes);
}

bool fr_mpi_may_go_over_rails(int64_t count, fr_word type)
{
    int bytes = 0;
    if (FR_LIKELY(!fr_mpi_rails_take_host) || count <= 0 || type == fr_real_mpi.DATATYPE_NULL)
        return false;
    size_t least = fr_memory_tuned(FR_SIZE_RAIL);
    if (fr_real_type_is_named(type))
        return (size_t)count * LARGEST_NAMED_BYTES >= least &&
               (size_t)count * (size_t)named_bytes(type) >= least;
    if (FR_MPI(Type_size, type, FR_PTR(&bytes)) != fr_real_mpi.SUCCESS)
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

// Predefined pairs, some of which have gaps.
static bool is_pair(fr_word type)
{
    return type == fr_real_mpi.FLOAT_INT || type == fr_real_mpi.DOUBLE_INT ||
           type == fr_real_mpi.LONG_INT || type == fr_real_mpi.SHORT_INT ||
           type == fr_real_mpi.TWOINT || type == fr_real_mpi.LONG_DOUBLE_INT;
}

bool fr_mpi_is_simple(fr_word type)
{
    return fr_real_type_is_named(type) && !is_pair(type) && type != fr_real_mpi.DATATYPE_NULL;
}
