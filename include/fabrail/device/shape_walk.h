// SPDX-License-Identifier: BSD-3-Clause
// Where each packed byte stands in the memory of a datatype, by its shape. The host and the kernels
// of pack.cu agree on it. This header is compiled as kernels.h is.
#ifndef FR_FABRAIL_DEVICE_SHAPE_WALK_H
#define FR_FABRAIL_DEVICE_SHAPE_WALK_H

#include "fabrail/device/shape_table.h"

#ifdef __CUDACC__
#define FR_PACK_UNROLL _Pragma("unroll")
#else
#define FR_PACK_UNROLL
#endif

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
