// SPDX-License-Identifier: BSD-3-Clause
// Compiles the groups of a layout into the form that kernels take (fabrail/device/shape.h).
//
// There is no table where all groups together are one nest of levels. Else the outermost levels
// that all groups have in common become levels of the shape. The rest within them becomes a table
// of blocks, in the order of their packed bytes.
#include "config.h"

#include "datatype/datatype_int.h"
#include "fabrail/device/pack.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 1 << 23, INNER_LEVELS = FR_PACK_LEVELS - 1 };

struct level {
    size_t n;
    ptrdiff_t stride;
    size_t packed_stride;
};

struct block {
    size_t packed;
    ptrdiff_t offset;
    size_t bytes;
};

// Inserts a level by its packed stride; a level of one entry is none.
static void add_level(struct level *levels, unsigned *count, struct level level)
{
    if (level.n == 1)
        return;
    unsigned at = (*count)++;
    for (; at > 0 && levels[at - 1].packed_stride > level.packed_stride; at--)
        levels[at] = levels[at - 1];
    levels[at] = level;
}

static unsigned levels_of(const struct fr_datatype_group *group, struct level levels[3])
{
    unsigned count = 0;
    for (unsigned i = 0; i < 2; i++)
        add_level(levels, &count,
                  (struct level){group->n[i], group->stride[i], group->packed_stride[i]});
    return count;
}

static bool are_alike(const struct fr_datatype_group *a, const struct fr_datatype_group *b)
{
    return a->bytes == b->bytes && memcmp(a->n, b->n, sizeof(a->n)) == 0 &&
           memcmp(a->stride, b->stride, sizeof(a->stride)) == 0 &&
           memcmp(a->packed_stride, b->packed_stride, sizeof(a->packed_stride)) == 0;
}

// Returns whether the groups are copies of the first one, equally far apart. *level is then the
// level that they form.
static bool are_steps(const struct fr_layout *layout, struct level *level)
{
    const struct fr_datatype_group *groups = layout->groups;
    *level = (struct level){.n = layout->group_count};
    if (layout->group_count == 1)
        return true;
    level->stride = groups[1].offset - groups[0].offset;
    level->packed_stride = groups[1].packed - groups[0].packed;
    for (size_t i = 1; i < layout->group_count; i++) {
        if (!are_alike(&groups[0], &groups[i]) ||
            groups[i].offset - groups[i - 1].offset != level->stride ||
            groups[i].packed - groups[i - 1].packed != level->packed_stride)
            return false;
    }
    return true;
}

static void set_level(struct fr_pack_level *into, const struct level *level)
{
    into->count = level->n;
    into->stride = level->stride;
}

// Returns whether all bytes are one nest of levels, and then writes it to the shape.
static bool make_nest(const struct fr_layout *layout, struct fr_pack_shape *shape)
{
    struct level levels[3], own;
    if (!are_steps(layout, &own))
        return false;
    unsigned count = levels_of(&layout->groups[0], levels);
    add_level(levels, &count, own);
    size_t bytes = layout->groups[0].bytes;
    for (unsigned i = 0; i < count; i++) {
        if (levels[i].packed_stride != bytes)
            return false;
        bytes *= levels[i].n;
        set_level(&shape->level[i], &levels[i]);
    }
    shape->offset = layout->groups[0].offset;
    shape->period = layout->groups[0].bytes;
    shape->levels = count;
    return bytes == layout->size_bytes && layout->groups[0].packed == 0;
}

// Takes the outermost level off a group. Returns false where it has none.
static bool peel(struct fr_datatype_group *group, struct level *level)
{
    unsigned outer = group->packed_stride[1] > group->packed_stride[0] ? 1 : 0;
    if (group->n[outer] == 1)
        return false;
    *level = (struct level){group->n[outer], group->stride[outer], group->packed_stride[outer]};
    group->n[outer] = 1;
    group->stride[outer] = 0;
    group->packed_stride[outer] = 0;
    return true;
}

// Takes the outermost level off all groups, if it is the same one and the rest of them fits its
// packed stride. Otherwise returns false and leaves the groups as they were.
static bool peel_all(struct fr_datatype_group *groups, size_t count, size_t *bytes,
                     struct level *level)
{
    struct fr_datatype_group first = groups[0];
    if (!peel(&first, level) || level->packed_stride * level->n != *bytes)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct fr_datatype_group group = groups[i];
        struct level own;
        if (!peel(&group, &own) || own.n != level->n || own.stride != level->stride ||
            own.packed_stride != level->packed_stride)
            return false;
        size_t reach = group.packed + group.bytes + (group.n[0] - 1) * group.packed_stride[0] +
                       (group.n[1] - 1) * group.packed_stride[1];
        if (reach > level->packed_stride)
            return false;
    }
    for (size_t i = 0; i < count; i++)
        (void)peel(&groups[i], level);
    *bytes = level->packed_stride;
    return true;
}

static int compare_blocks(const void *a, const void *b)
{
    size_t x = ((const struct block *)a)->packed, y = ((const struct block *)b)->packed;
    return x < y ? -1 : x > y;
}

static void expand(const struct fr_datatype_group *group, struct block *blocks)
{
    for (size_t j = 0; j < group->n[1]; j++) {
        for (size_t i = 0; i < group->n[0]; i++)
            *blocks++ = (struct block){
                .packed = group->packed + i * group->packed_stride[0] + j * group->packed_stride[1],
                .offset = group->offset + (ptrdiff_t)i * group->stride[0] +
                          (ptrdiff_t)j * group->stride[1],
                .bytes = group->bytes,
            };
    }
}

// Lists the blocks of all groups in the order of their packed bytes, with neighbours merged. The
// caller frees the list. Returns NULL for too many blocks, for gaps in the packed bytes, or without
// memory.
static struct block *list_blocks(const struct fr_datatype_group *groups, size_t group_count,
                                 size_t *count)
{
    size_t all = 0;
    for (size_t i = 0; i < group_count; i++) {
        if (groups[i].n[1] > MOST_BLOCKS || groups[i].n[0] > MOST_BLOCKS / groups[i].n[1])
            return NULL;
        all += groups[i].n[0] * groups[i].n[1];
        if (all > MOST_BLOCKS)
            return NULL;
    }
    struct block *blocks = malloc(all * sizeof(*blocks));
    if (!blocks)
        return NULL;
    for (size_t i = 0, at = 0; i < group_count; at += groups[i].n[0] * groups[i].n[1], i++)
        expand(&groups[i], blocks + at);
    bool in_order = true;
    for (size_t i = 1; i < all && in_order; i++)
        in_order = blocks[i - 1].packed < blocks[i].packed;
    if (!in_order)
        qsort(blocks, all, sizeof(*blocks), compare_blocks);
    size_t kept = 0;
    for (size_t i = 1; i < all; i++) {
        struct block *last = &blocks[kept];
        if (last->packed + last->bytes != blocks[i].packed) {
            free(blocks);
            return NULL;
        }
        if (last->offset + (ptrdiff_t)last->bytes == blocks[i].offset) // one run
            last->bytes += blocks[i].bytes;
        else
            blocks[++kept] = blocks[i];
    }
    *count = kept + 1;
    return blocks;
}

static size_t greatest_divisor(size_t a, size_t b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// Returns the length of equal blocks into which all blocks shall be cut, since a kernel finds equal
// blocks at once. Returns 0 if they would be too many.
static size_t cut_length(const struct block *blocks, size_t count, size_t bytes)
{
    enum { MOST_TIMES = 8, LEAST = sizeof(int32_t) };
    size_t each = 0;
    for (size_t i = 0; i < count; i++)
        each = greatest_divisor(each, blocks[i].bytes);
    size_t cut = bytes / each;
    bool is_few = cut * sizeof(int32_t) <= FR_PACK_INLINE_BYTES;
    bool is_fit = cut == count || is_few ||
                  (each >= LEAST && cut <= MOST_BLOCKS && cut <= MOST_TIMES * count);
    return is_fit && bytes <= FR_PACK_SMALL ? each : 0;
}

// Chooses the form of the table's entries: unit_shift, wide, each and blocks.
static void choose_entries(const struct block *blocks, size_t count, size_t bytes,
                           struct fr_pack_shape *shape)
{
    size_t all = FR_PACK_MAX_WIDTH, each = cut_length(blocks, count, bytes);
    ptrdiff_t low = 0, high = 0;
    for (size_t i = 0; i < count; i++) {
        ptrdiff_t last = blocks[i].offset + (ptrdiff_t)blocks[i].bytes;
        all |= (size_t)blocks[i].offset | blocks[i].bytes;
        low = blocks[i].offset < low ? blocks[i].offset : low;
        high = last > high ? last : high;
    }
    shape->unit_shift = (uint16_t)__builtin_ctzll(all);
    shape->wide = (low >> shape->unit_shift) < INT32_MIN ||
                  (high >> shape->unit_shift) > INT32_MAX ||
                  (bytes >> shape->unit_shift) > INT32_MAX;
    shape->blocks = (uint32_t)(each ? bytes / each : count);
    if (each)
        shape->each = fr_device_pack_divisor(each);
}

// Returns what NVLink would carry between blocks that are read one behind the other, before those
// that stand `stride` bytes further.
static size_t wasted_by(const struct block *blocks, size_t count, ptrdiff_t stride)
{
    size_t wasted = 0;
    for (size_t i = 0; i < count; i++) {
        ptrdiff_t next = i + 1 < count ? blocks[i + 1].offset : blocks[0].offset + stride;
        wasted += fr_device_wasted_bytes(blocks[i].bytes, next - blocks[i].offset);
    }
    return wasted;
}

static void write_entry(const struct fr_pack_shape *shape, void *table, size_t i, ptrdiff_t value)
{
    if (shape->wide)
        ((int64_t *)table)[i] = value >> shape->unit_shift;
    else
        ((int32_t *)table)[i] = (int32_t)(value >> shape->unit_shift);
}

static void write_equal(const struct block *blocks, const struct fr_pack_shape *shape, void *table)
{
    size_t each = shape->each.value, block = 0, done = 0;
    for (uint32_t i = 0; i < shape->blocks; i++) {
        write_entry(shape, table, i, blocks[block].offset + (ptrdiff_t)done);
        done += each;
        if (done == blocks[block].bytes) {
            block++;
            done = 0;
        }
    }
}

static void write_unequal(const struct block *blocks, const struct fr_pack_shape *shape,
                          void *table)
{
    uint32_t *index = (uint32_t *)(void *)((char *)table + fr_pack_entries_bytes(shape));
    size_t marked = 0; // packed bytes that the index covers
    for (uint32_t i = 0; i < shape->blocks; i++) {
        write_entry(shape, table, i, blocks[i].offset);
        write_entry(shape, table, (size_t)shape->blocks + i, (ptrdiff_t)blocks[i].packed);
        for (; marked < blocks[i].packed + blocks[i].bytes; marked += FR_PACK_INDEX_BYTES)
            *index++ = i;
    }
    *index = shape->blocks - 1;
}

// Returns a hash of a table, by which processes tell that theirs are alike.
static uint64_t hash_of(const void *table, size_t bytes)
{
    const uint64_t prime = 0x9e3779b97f4a7c15u;
    const uint32_t *words = table;
    uint64_t hash = bytes * prime;
    for (size_t i = 0; i < bytes / sizeof(*words); i++) {
        hash = (hash ^ words[i]) * prime;
        hash ^= hash >> 29;
    }
    return hash;
}

static void *write_table(const struct block *blocks, const struct fr_pack_shape *shape)
{
    void *table = malloc(fr_pack_table_bytes(shape));
    if (table && shape->each.value)
        write_equal(blocks, shape, table);
    else if (table)
        write_unequal(blocks, shape, table);
    return table;
}

static bool make_table(const struct fr_layout *layout, struct fr_datatype_compiled *compiled)
{
    struct fr_pack_shape *shape = &compiled->shape;
    size_t count = layout->group_count, block_count = 0, bytes = layout->size_bytes;
    struct fr_datatype_group *groups = malloc(count * sizeof(*groups));
    if (!groups)
        return false;
    memcpy(groups, layout->groups, count * sizeof(*groups));
    struct level levels[INNER_LEVELS];
    unsigned peeled = 0;
    while (peeled < INNER_LEVELS && peel_all(groups, count, &bytes, &levels[peeled]))
        peeled++;
    for (unsigned i = 0; i < peeled; i++)
        set_level(&shape->level[i], &levels[peeled - 1 - i]);
    shape->levels = peeled;
    shape->offset = 0;
    shape->period = bytes;
    struct block *blocks = list_blocks(groups, count, &block_count);
    free(groups);
    if (!blocks)
        return false;
    choose_entries(blocks, block_count, bytes, shape);
    compiled->table = write_table(blocks, shape);
    if (compiled->table)
        compiled->table_hash = hash_of(compiled->table, fr_pack_table_bytes(shape));
    compiled->block_bytes = bytes / block_count;
    ptrdiff_t stride = peeled > 0 ? (ptrdiff_t)shape->level[0].stride : layout->extent;
    compiled->wasted_bytes = wasted_by(blocks, block_count, stride) * (layout->size_bytes / bytes);
    free(blocks);
    return compiled->table != NULL;
}

static uint32_t alignment_of(const struct fr_pack_shape *shape)
{
    uint64_t all = FR_PACK_MAX_WIDTH | (uint64_t)shape->offset | shape->period;
    for (uint32_t i = 0; i < shape->levels; i++)
        all |= (uint64_t)shape->level[i].stride;
    if (shape->blocks)
        all |= (uint64_t)1 << shape->unit_shift;
    return (uint32_t)(all & (0 - all));
}

bool fr_datatype_compile(const struct fr_layout *layout, struct fr_datatype_compiled *compiled)
{
    *compiled = (struct fr_datatype_compiled){.table = NULL};
    struct fr_pack_shape *shape = &compiled->shape;
    if (layout->size_bytes == 0)
        return false;
    bool is_nest = make_nest(layout, shape);
    if (!is_nest) {
        *shape = (struct fr_pack_shape){0};
        if (!make_table(layout, compiled))
            return false;
    }
    shape->level[shape->levels++].stride = layout->extent; // the level of elements, of any number
    if (is_nest) {
        compiled->block_bytes = shape->period;
        compiled->wasted_bytes = layout->size_bytes / shape->period *
                                 fr_device_wasted_bytes(shape->period, shape->level[0].stride);
    }
    shape->align = alignment_of(shape);
    return true;
}
