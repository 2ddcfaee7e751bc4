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

#ifdef __CUDACC__
#define FR_PACK_UNROLL _Pragma("unroll")
#define FR_PACK_APART  static __device__ __noinline__
#else
#define FR_PACK_UNROLL
#define FR_PACK_APART static inline
#endif

// Names of the kernels. The first two do the same work. The inline one has a small table among its
// parameters; the other has a large table in device memory, or none. The fused one copies between
// two buffers, each in a shape of its own, and the last one makes several such copies.
#define FR_PACK_NAME        "fr_pack"
#define FR_PACK_INLINE_NAME "fr_pack_inline"
#define FR_PACK_FUSED_NAME  "fr_pack_fused"
#define FR_PACK_MANY_NAME   "fr_pack_many"

enum {
    FR_PACK_LEVELS = 4,
    FR_PACK_MAX_THREADS = 512,
    FR_PACK_MAX_WIDTH = 16,
    FR_PACK_LOADS = 8,           // of each thread, before its first store
    FR_PACK_INDEX_BYTES = 1024,  // packed bytes that an entry of the index stands for
    FR_PACK_INLINE_BYTES = 2816, // longest table among the parameters
    FR_PACK_MANY = 8,            // copies of one launch
};

// Chunks are shorter. Numbers that a thread counts down to reach nothing beyond it within a chunk.
#define FR_PACK_SMALL ((uint64_t)1 << 30)

// A divisor of at most FR_PACK_SMALL, and what replaces a division by it. fr_device_pack_divisor
// makes one.
struct fr_pack_divisor {
    uint64_t value;
    uint32_t multiplier;
    uint32_t shift;
};

// One level along which units repeat.
struct fr_pack_level {
    uint64_t count; // not used for the outermost level
    int64_t stride;
};

// The shape of a datatype. Its table has `blocks` offsets. If block lengths differ, as many packed
// places follow them, and then the index. The index holds 32-bit numbers: of the block in which
// each FR_PACK_INDEX_BYTES begin, and of the last block. Offsets and places count in units of 2 to
// the power of `unit_shift` bytes. They have 32 bits, or 64 if `wide`.
struct fr_pack_shape {
    int64_t offset;              // of the first unit, from the buffer's address
    uint64_t period;             // packed bytes of a unit
    struct fr_pack_divisor each; // bytes of each block of the table; 0 where lengths differ
    uint32_t blocks;             // of the table; 0: there is no table
    uint32_t levels;             // at least 1
    uint16_t wide;
    uint16_t unit_shift;
    uint32_t align; // all offsets, strides and lengths are multiples of it; at most 16
    struct fr_pack_level level[FR_PACK_LEVELS]; // from the innermost on
};

// The amounts that a thread's step through a shape adds, and those that the end of a unit and of
// each inner level adds. Entry 0 is for the bytes of a unit, entry i + 1 for level i.
struct fr_pack_walk {
    int64_t place; // to the offset
    int64_t wrap[FR_PACK_LEVELS];
    uint32_t digit[FR_PACK_LEVELS];
    uint32_t limit[FR_PACK_LEVELS];
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
    uint32_t step;        // bytes of all threads of a block together, at one load each
    uint16_t width;       // bytes of a load and store; divides all addresses, offsets and lengths
    uint8_t unpacks;      // from packed memory to the buffer
    uint8_t keeps_gaps;   // the other side is not packed, but has the same gaps
    uint64_t is_inline;
    struct fr_pack_shape shape;
    struct fr_pack_walk walk;
};

// Parameters of the inline kernel, with the table among them.
struct fr_pack_inline {
    struct fr_pack pack;
    uint64_t table[FR_PACK_INLINE_BYTES / sizeof(uint64_t)];
};

// Parameters of the fused kernel, which always unpacks. `packed` of `pack` is the address from
// which the offsets of `far` count. No table is among the parameters.
struct fr_pack_fused {
    struct fr_pack pack;
    uint64_t far_table;
    struct fr_pack_shape far;
    struct fr_pack_walk far_walk;
};

// Parameters of the kernel that makes several copies. Copy i has blocks from number `first[i]` on,
// up to `first[i + 1]`. The words of all copies are the same, one for each block of the launch.
struct fr_pack_many {
    uint32_t count; // at least 1
    uint32_t first[FR_PACK_MANY + 1];
    struct fr_pack_fused copies[FR_PACK_MANY];
};

// Where a thread is in a shape.
struct fr_pack_cursor {
    int64_t place; // offset of the unit; without a table, of the byte
    uint64_t rest; // bytes from the unit's beginning; kept up for blocks of a table that differ
    uint32_t left[FR_PACK_LEVELS]; // bytes left of the unit, and units left of each inner level
};

FR_PUSH_FUNCTION uint32_t fr_pack_small(uint64_t value)
{
    return (uint32_t)(value < FR_PACK_SMALL ? value : FR_PACK_SMALL);
}

// Makes the walk of steps of `step` bytes, fewer than FR_PACK_SMALL.
FR_PUSH_FUNCTION struct fr_pack_walk fr_pack_walk_of(const struct fr_pack_shape *shape,
                                                     uint32_t step)
{
    struct fr_pack_walk walk = {0};
    uint64_t number = step / shape->period, bytes = step % shape->period;
    int64_t inner = shape->blocks ? 0 : (int64_t)shape->period;
    walk.place = shape->blocks ? 0 : (int64_t)bytes;
    walk.digit[0] = (uint32_t)bytes;
    walk.limit[0] = fr_pack_small(shape->period);
    for (uint32_t i = 0; i < shape->levels; i++) {
        const struct fr_pack_level *level = &shape->level[i];
        uint64_t above = i + 1 < shape->levels ? number / level->count : 0;
        uint64_t digit = i + 1 < shape->levels ? number % level->count : number;
        walk.place += (int64_t)digit * level->stride;
        walk.wrap[i] = level->stride - inner;
        if (i + 1 < shape->levels) {
            walk.digit[i + 1] = (uint32_t)digit;
            walk.limit[i + 1] = fr_pack_small(level->count);
            inner = (int64_t)level->count * level->stride;
        }
        number = above;
    }
    return walk;
}

// Writes where packed byte `position` stands.
FR_PUSH_FUNCTION void fr_pack_begin(const struct fr_pack_shape *shape, uint64_t position,
                                    struct fr_pack_cursor *cursor)
{
    uint64_t unit = position / shape->period;
    cursor->rest = position - unit * shape->period;
    cursor->left[0] = fr_pack_small(shape->period - cursor->rest);
    cursor->place = shape->offset + (shape->blocks ? 0 : (int64_t)cursor->rest);
    FR_PACK_UNROLL
    for (uint32_t i = 0; i < FR_PACK_LEVELS; i++) {
        if (i + 1 < shape->levels) {
            uint64_t above = unit / shape->level[i].count;
            uint64_t digit = unit - above * shape->level[i].count;
            cursor->place += (int64_t)digit * shape->level[i].stride;
            if (i + 1 < FR_PACK_LEVELS)
                cursor->left[i + 1] = fr_pack_small(shape->level[i].count - digit);
            unit = above;
        } else if (i < shape->levels) {
            cursor->place += (int64_t)unit * shape->level[i].stride;
        }
    }
}

// Moves on by a step of the walk. All bytes between are within FR_PACK_SMALL of fr_pack_begin.
// `levels` are those of the shape.
FR_PUSH_FUNCTION void fr_pack_advance(const struct fr_pack_walk *walk, uint32_t levels,
                                      struct fr_pack_cursor *cursor)
{
    uint32_t carry = 0;
    cursor->place += walk->place;
    FR_PACK_UNROLL
    for (uint32_t i = 0; i < FR_PACK_LEVELS; i++) {
        if (i < levels) {
            int32_t left = (int32_t)(cursor->left[i] - walk->digit[i] - carry);
            carry = left <= 0;
            if (carry) {
                left += (int32_t)walk->limit[i];
                cursor->place += walk->wrap[i];
            }
            cursor->left[i] = (uint32_t)left;
        }
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

// The functions below write the offsets, from the buffer's address, of the byte at the cursor and
// of those of the next steps, `count` in all. They move the cursor behind them.
FR_PUSH_FUNCTION void fr_pack_places_nest(const struct fr_pack_walk *walk, uint32_t levels,
                                          struct fr_pack_cursor *cursor, uint32_t count,
                                          int64_t place[FR_PACK_LOADS])
{
    FR_PACK_UNROLL
    for (uint32_t j = 0; j < FR_PACK_LOADS; j++) {
        if (j < count) {
            place[j] = cursor->place;
            fr_pack_advance(walk, levels, cursor);
        }
    }
}

// All entries are loaded before the first is used.
FR_PUSH_FUNCTION void fr_pack_places_equal(const struct fr_pack_shape *shape,
                                           const struct fr_pack_walk *walk, const void *table,
                                           uint32_t levels, struct fr_pack_cursor *cursor,
                                           uint32_t count, int64_t place[FR_PACK_LOADS])
{
    uint32_t block[FR_PACK_LOADS];
    int64_t entry[FR_PACK_LOADS];
    FR_PACK_UNROLL
    for (uint32_t j = 0; j < FR_PACK_LOADS; j++) {
        if (j < count) {
            uint32_t rest = walk->limit[0] - cursor->left[0];
            block[j] =
                (uint32_t)((uint64_t)rest * shape->each.multiplier >> 31 >> shape->each.shift);
            place[j] = cursor->place + (rest - block[j] * (uint32_t)shape->each.value);
            fr_pack_advance(walk, levels, cursor);
        }
    }
    if (shape->wide) {
        FR_PACK_UNROLL
        for (uint32_t j = 0; j < FR_PACK_LOADS; j++)
            if (j < count)
                entry[j] = ((const int64_t *)table)[block[j]];
    } else {
        FR_PACK_UNROLL
        for (uint32_t j = 0; j < FR_PACK_LOADS; j++)
            if (j < count)
                entry[j] = ((const int32_t *)table)[block[j]];
    }
    FR_PACK_UNROLL
    for (uint32_t j = 0; j < FR_PACK_LOADS; j++)
        if (j < count)
            place[j] += entry[j] * ((int64_t)1 << shape->unit_shift);
}

FR_PUSH_FUNCTION void fr_pack_places_unequal(const struct fr_pack_shape *shape,
                                             const struct fr_pack_walk *walk, const void *table,
                                             struct fr_pack_cursor *cursor, uint32_t count,
                                             int64_t place[FR_PACK_LOADS])
{
    FR_PACK_UNROLL
    for (uint32_t j = 0; j < FR_PACK_LOADS; j++) {
        if (j < count) {
            place[j] = cursor->place + fr_pack_search(shape, table, cursor->rest);
            cursor->rest += walk->digit[0];
            cursor->rest -= cursor->rest >= shape->period ? shape->period : 0;
            fr_pack_advance(walk, shape->levels, cursor);
        }
    }
}

FR_PUSH_FUNCTION void fr_pack_places(const struct fr_pack_shape *shape,
                                     const struct fr_pack_walk *walk, const void *table,
                                     struct fr_pack_cursor *cursor, uint32_t count,
                                     int64_t place[FR_PACK_LOADS])
{
    // The usual numbers of levels have code of their own.
    if (shape->each.value && shape->levels == 1)
        fr_pack_places_equal(shape, walk, table, 1, cursor, count, place);
    else if (shape->each.value)
        fr_pack_places_equal(shape, walk, table, shape->levels, cursor, count, place);
    else if (shape->blocks)
        fr_pack_places_unequal(shape, walk, table, cursor, count, place);
    else if (shape->levels == 1)
        fr_pack_places_nest(walk, 1, cursor, count, place);
    else if (shape->levels == 2)
        fr_pack_places_nest(walk, 2, cursor, count, place);
    else
        fr_pack_places_nest(walk, shape->levels, cursor, count, place);
}

#endif
