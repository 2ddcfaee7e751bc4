// SPDX-License-Identifier: BSD-3-Clause
// The table of a shape: how long it is, and which of its blocks has a packed byte. This header is
// compiled as kernels.h is.
#ifndef FR_FABRAIL_DEVICE_SHAPE_TABLE_H
#define FR_FABRAIL_DEVICE_SHAPE_TABLE_H

#include "fabrail/device/shape.h"

#ifdef __CUDACC__
#define FR_PACK_APART static __device__ __noinline__
#else
#define FR_PACK_APART static inline
#endif

// Returns entry `i` of a table in bytes.
FR_PUSH_FUNCTION int64_t fr_pack_entry(const struct fr_pack_shape *shape, const void *table,
                                       uint64_t i)
{
    int64_t entry = shape->wide ? ((const int64_t *)table)[i] : ((const int32_t *)table)[i];
    return entry * ((int64_t)1 << shape->unit_shift);
}

// Returns the bytes of a table without its index.
FR_PUSH_FUNCTION uint64_t fr_pack_entries_bytes(const struct fr_pack_shape *shape)
{
    uint64_t entries = (uint64_t)shape->blocks * (shape->each.value ? 1 : 2);
    return entries * (shape->wide ? sizeof(int64_t) : sizeof(int32_t));
}

// Returns the bytes of a table with its index, if it has one.
FR_PUSH_FUNCTION uint64_t fr_pack_table_bytes(const struct fr_pack_shape *shape)
{
    uint64_t index =
        (shape->period + FR_PACK_INDEX_BYTES - 1) / FR_PACK_INDEX_BYTES * sizeof(uint32_t);
    return fr_pack_entries_bytes(shape) + (shape->each.value ? 0 : index + sizeof(uint32_t));
}

// Finds the block that has byte `rest` of a unit, in a table of blocks whose lengths differ.
FR_PUSH_FUNCTION uint32_t fr_pack_block_at(const struct fr_pack_shape *shape, const void *table,
                                           uint64_t rest)
{
    const uint32_t *index = (const uint32_t *)((const char *)table + fr_pack_entries_bytes(shape));
    uint32_t low = index[rest / FR_PACK_INDEX_BYTES];
    uint32_t high = index[rest / FR_PACK_INDEX_BYTES + 1];
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if ((uint64_t)fr_pack_entry(shape, table, (uint64_t)shape->blocks + middle) <= rest)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// Finds byte `rest` of a unit in a table of blocks whose lengths differ.
FR_PACK_APART int64_t fr_pack_search(const struct fr_pack_shape *shape, const void *table,
                                     uint64_t rest)
{
    uint32_t low = fr_pack_block_at(shape, table, rest);
    uint64_t begin = (uint64_t)fr_pack_entry(shape, table, (uint64_t)shape->blocks + low);
    return fr_pack_entry(shape, table, low) + (int64_t)(rest - begin);
}

#endif
