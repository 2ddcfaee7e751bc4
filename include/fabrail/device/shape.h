// SPDX-License-Identifier: BSD-3-Clause
// This header holds what the host and the kernels of pack.cu agree on. That is where each byte of a
// packed copy stands in the memory of a datatype, and the parameters of a copy between the two.
// This header is compiled as kernels.h is.
//
// A unit of packed bytes is one block, or all blocks of a table. Units repeat along levels. The
// outermost level is the elements of a buffer, of which there can be any number.
#ifndef FR_FABRAIL_DEVICE_SHAPE_H
#define FR_FABRAIL_DEVICE_SHAPE_H

#include "fabrail/device/kernels.h"

// Names of the kernels. The first two do the same work. The inline one has a small table among its
// parameters; the other has a large table in device memory, or none. The third copies between two
// buffers, each in a shape of its own.
#define FR_PACK_NAME        "fr_pack"
#define FR_PACK_INLINE_NAME "fr_pack_inline"
#define FR_PACK_FUSED_NAME  "fr_pack_fused"

enum {
    FR_PACK_LEVELS = 4,
    FR_PACK_MAX_THREADS = 512,
    FR_PACK_MAX_WIDTH = 16,
    FR_PACK_INDEX_BYTES = 1024,  // packed bytes that an entry of the index stands for
    FR_PACK_INLINE_BYTES = 2816, // longest table among the parameters
};

// Division by a divisor below this is a multiplication. Quotients of larger divisors are 0 or 1,
// since a dividend is less than twice the divisor.
#define FR_PACK_SMALL ((uint64_t)1 << 30)

// A divisor, and what replaces a division by it. fr_device_pack_divisor makes one.
struct fr_pack_divisor {
    uint64_t value;
    uint32_t multiplier; // 0: the divisor is not small
    uint32_t shift;
};

// One level along which units repeat.
struct fr_pack_level {
    struct fr_pack_divisor count;
    int64_t stride;
};

// The shape of a datatype. Its table has `blocks` offsets. If block lengths differ, as many packed
// places follow them, and then the index. The index holds 32-bit numbers: of the block in which
// each FR_PACK_INDEX_BYTES begin, and of the last block. Offsets and places count in units of 2 to
// the power of `unit_shift` bytes. They have 32 bits, or 64 if `wide`.
struct fr_pack_shape {
    int64_t offset;                // of the first unit, from the buffer's address
    struct fr_pack_divisor period; // packed bytes of a unit
    struct fr_pack_divisor each;   // bytes of each block of the table; 0 where lengths differ
    uint32_t blocks;               // of the table; 0: there is no table
    uint32_t levels;               // at least 1
    uint16_t wide;
    uint16_t unit_shift;
    uint32_t align; // all offsets, strides and lengths are multiples of it; at most 16
    struct fr_pack_level level[FR_PACK_LEVELS]; // from the innermost on
};

// Parameters of a copy between a buffer and packed memory.
struct fr_pack {
    uint64_t words; // address in host memory of one 64-bit word for each block; 0: none
    uint64_t value; // what a block stores to its word when its bytes have landed
    uint64_t user;  // the buffer's address
    // Address of packed byte `first`. With `keeps_gaps`, the address on the packed side that
    // corresponds to `user`.
    uint64_t packed;
    uint64_t table; // address of a table that is not among the parameters
    uint64_t first; // packed bytes [first, last) are copied
    uint64_t last;
    uint64_t chunk_bytes; // multiple of the width; block b does chunks b, b + blocks, ...
    uint16_t width;       // bytes of a load and store; divides all addresses, offsets and lengths
    uint16_t unpacks;     // from packed memory to the buffer
    uint16_t keeps_gaps;  // the other side is not packed, but has the same gaps
    uint16_t is_inline;
    struct fr_pack_shape shape;
};

// Parameters of the inline kernel, with the table among them.
struct fr_pack_inline {
    struct fr_pack pack;
    uint64_t table[FR_PACK_INLINE_BYTES / sizeof(uint64_t)];
};

// Parameters of the fused kernel, which always unpacks. `packed` of `pack` is the address from
// which the offsets of `far` count. That shape has no table, and that of `pack` none among the
// parameters.
struct fr_pack_fused {
    struct fr_pack pack;
    struct fr_pack_shape far;
};

// The beginning of a chunk: its place in the unit, and the number of the unit along each level.
struct fr_pack_base {
    uint64_t rest; // bytes from the unit's beginning
    uint64_t digit[FR_PACK_LEVELS];
};

// Returns a quotient, rounded down. The dividend is below twice FR_PACK_SMALL or twice the divisor.
FR_PUSH_FUNCTION uint64_t fr_pack_divide(const struct fr_pack_divisor *by, uint64_t value)
{
    if (value < by->value)
        return 0;
    return by->multiplier ? value * by->multiplier >> 31 >> by->shift : 1;
}

// Writes where packed byte `position` stands.
FR_PUSH_FUNCTION void fr_pack_begin(const struct fr_pack_shape *shape, uint64_t position,
                                    struct fr_pack_base *base)
{
    uint64_t unit = position / shape->period.value;
    base->rest = position - unit * shape->period.value;
    for (uint32_t i = 0; i < FR_PACK_LEVELS; i++) {
        uint32_t is_inner = i + 1 < shape->levels;
        uint64_t above = is_inner ? unit / shape->level[i].count.value : 0;
        base->digit[i] = is_inner ? unit - above * shape->level[i].count.value : unit;
        unit = above;
    }
}

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
        (shape->period.value + FR_PACK_INDEX_BYTES - 1) / FR_PACK_INDEX_BYTES * sizeof(uint32_t);
    return fr_pack_entries_bytes(shape) + (shape->each.value ? 0 : index + sizeof(uint32_t));
}

// Finds byte `rest` of a unit in the table and returns its offset from the unit's.
FR_PUSH_FUNCTION int64_t fr_pack_look(const struct fr_pack_shape *shape, const void *table,
                                      uint64_t rest)
{
    if (shape->each.value) {
        uint64_t block = fr_pack_divide(&shape->each, rest);
        return fr_pack_entry(shape, table, block) + (int64_t)(rest - block * shape->each.value);
    }
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
    uint64_t begin = (uint64_t)fr_pack_entry(shape, table, (uint64_t)shape->blocks + low);
    return fr_pack_entry(shape, table, low) + (int64_t)(rest - begin);
}

// Returns the offset, from the buffer's address, of the packed byte that is `delta` bytes behind a
// base. `delta` is below FR_PACK_SMALL.
FR_PUSH_FUNCTION int64_t fr_pack_place(const struct fr_pack_shape *shape, const void *table,
                                       const struct fr_pack_base *base, uint32_t delta)
{
    uint64_t rest = base->rest + delta;
    uint64_t carry = fr_pack_divide(&shape->period, rest);
    rest -= carry * shape->period.value;
    int64_t place = shape->offset;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (uint32_t i = 0; i < FR_PACK_LEVELS; i++) {
        if (i < shape->levels) {
            uint64_t digit = base->digit[i] + carry;
            carry = i + 1 < shape->levels ? fr_pack_divide(&shape->level[i].count, digit) : 0;
            digit -= carry * shape->level[i].count.value;
            place += (int64_t)digit * shape->level[i].stride;
        }
    }
    return place + (shape->blocks ? fr_pack_look(shape, table, rest) : (int64_t)rest);
}

#endif
