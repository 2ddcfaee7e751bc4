// SPDX-License-Identifier: BSD-3-Clause
// Lists of groups. Runs of bytes, pushed in the order of the type map, fold into two-level strided
// groups as they come. Whole lists are repeated in closed form. So the cost follows the
// irregularity of a datatype and not its number of blocks.
#include "config.h"

#include "datatype/datatype_int.h"

#include <stdlib.h>

// Products of strides wrap as addresses do, where MPI itself would have failed.
static ptrdiff_t wrapping_multiple(size_t count, ptrdiff_t stride)
{
    return (ptrdiff_t)(count * (size_t)stride);
}

static bool is_single(const struct fr_datatype_group *group)
{
    return group->n[0] == 1 && group->n[1] == 1;
}

static bool is_flat(const struct fr_datatype_group *group)
{
    return group->n[1] == 1;
}

// Returns the bytes from the group's first to its last in a packed copy, with runs of other groups
// in between.
static size_t packed_reach(const struct fr_datatype_group *group)
{
    return (group->n[0] - 1) * group->packed_stride[0] +
           (group->n[1] - 1) * group->packed_stride[1] + group->bytes;
}

// Returns whether n steps along a level of the group end at the given distance.
static bool continues(const struct fr_datatype_group *group, unsigned level, ptrdiff_t distance,
                      size_t packed_distance)
{
    size_t n = group->n[level];
    return distance == wrapping_multiple(n, group->stride[level]) &&
           packed_distance == n * group->packed_stride[level];
}

static void set_level(struct fr_datatype_group *group, unsigned level, size_t n, ptrdiff_t stride,
                      size_t packed_stride)
{
    group->n[level] = n;
    group->stride[level] = n == 1 ? 0 : stride;
    group->packed_stride[level] = n == 1 ? 0 : packed_stride;
}

// Takes a third level for which a group has no room. The group keeps the two larger levels, so that
// the fewest copies of it are needed.
static void give_up_smallest(struct fr_datatype_group *group, size_t count, ptrdiff_t stride,
                             size_t packed_stride, struct fr_datatype_steps *steps)
{
    if (count <= group->n[0] && count <= group->n[1]) {
        *steps = (struct fr_datatype_steps){count, stride, packed_stride};
        return;
    }
    unsigned level = group->n[0] <= group->n[1] ? 0 : 1;
    *steps = (struct fr_datatype_steps){group->n[level], group->stride[level],
                                        group->packed_stride[level]};
    if (level == 0)
        set_level(group, 0, group->n[1], group->stride[1], group->packed_stride[1]);
    set_level(group, 1, count, stride, packed_stride);
}

void fr_datatype_group_repeat(struct fr_datatype_group *group, size_t count, ptrdiff_t stride,
                              size_t packed_stride, struct fr_datatype_steps *steps)
{
    *steps = (struct fr_datatype_steps){1, 0, 0};
    if (count == 1)
        return;
    if (is_single(group)) {
        if (stride == (ptrdiff_t)group->bytes && packed_stride == group->bytes)
            group->bytes *= count;
        else
            set_level(group, 0, count, stride, packed_stride);
        return;
    }
    unsigned level = is_flat(group) ? 0 : 1;
    if (continues(group, level, stride, packed_stride))
        group->n[level] *= count;
    else if (is_flat(group))
        set_level(group, 1, count, stride, packed_stride);
    else
        give_up_smallest(group, count, stride, packed_stride, steps);
}

static enum fr_status append(struct fr_datatype_list *list, const struct fr_datatype_group *group)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        struct fr_datatype_group *items = reallocarray(list->items, capacity, sizeof(*items));
        if (!items)
            return FR_ERR_NO_MEMORY;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *group;
    return FR_OK;
}

// Makes `next` further repetitions of `group` along one level, where that is exact. Each has one
// entry or more along it, and their shapes are otherwise equal. `reach` is the bytes that `group`
// spans in a packed copy when it has only one entry along the level. Returns false where it is not
// exact.
static bool absorb(struct fr_datatype_group *group, const struct fr_datatype_group *next,
                   unsigned level, size_t reach)
{
    ptrdiff_t distance = next->offset - group->offset;
    size_t packed_distance = next->packed - group->packed;
    bool more = next->n[level] > 1;
    if (next->packed < group->packed)
        return false;
    if (group->n[level] > 1) {
        if (!continues(group, level, distance, packed_distance))
            return false;
        if (more && (next->stride[level] != group->stride[level] ||
                     next->packed_stride[level] != group->packed_stride[level]))
            return false;
        group->n[level] += next->n[level];
        return true;
    }
    if (packed_distance < reach)
        return false;
    if (more && (distance != next->stride[level] || packed_distance != next->packed_stride[level]))
        return false;
    set_level(group, level, 1 + next->n[level], distance, packed_distance);
    return true;
}

static bool absorb_inner(struct fr_datatype_group *group, const struct fr_datatype_group *next)
{
    return group->bytes == next->bytes && is_flat(group) && is_flat(next) &&
           absorb(group, next, 0, group->bytes);
}

static bool absorb_outer(struct fr_datatype_group *group, const struct fr_datatype_group *next)
{
    bool same_rows = group->bytes == next->bytes && group->n[0] == next->n[0] &&
                     group->stride[0] == next->stride[0] &&
                     group->packed_stride[0] == next->packed_stride[0];
    return same_rows && absorb(group, next, 1, packed_reach(group));
}

// Folds the item at `index` into the one before it, as a plane of equal rows, and closes the gap.
static void fold_outer(struct fr_datatype_list *list, size_t index)
{
    if (!absorb_outer(&list->items[index - 1], &list->items[index]))
        return;
    for (size_t i = index; i + 1 < list->count; i++)
        list->items[i] = list->items[i + 1];
    list->count--;
}

// Decides about the last item before another comes. It becomes a further row of the group before
// it, or begins a new group, which closes the one before.
static void finish(struct fr_datatype_list *list)
{
    if (list->count < 2)
        return;
    if (absorb_inner(&list->items[list->count - 2], &list->items[list->count - 1]))
        list->count--;
    else if (list->count > 2)
        fold_outer(list, list->count - 2);
}

static enum fr_status push(struct fr_datatype_list *list, const struct fr_datatype_group *group)
{
    if (list->count > 0 && is_single(group)) {
        struct fr_datatype_group *last = &list->items[list->count - 1];
        if (is_single(last) && group->offset == last->offset + (ptrdiff_t)last->bytes &&
            group->packed == last->packed + last->bytes) {
            last->bytes += group->bytes;
            return FR_OK;
        }
    }
    finish(list);
    return append(list, group);
}

void fr_datatype_list_finish(struct fr_datatype_list *list)
{
    finish(list);
    if (list->count > 1)
        fold_outer(list, list->count - 1);
}

enum fr_status fr_datatype_list_push_run(struct fr_datatype_list *list, ptrdiff_t offset,
                                         size_t bytes)
{
    struct fr_datatype_group run = {
        .offset = offset, .packed = list->bytes, .bytes = bytes, .n = {1, 1}};
    if (bytes == 0)
        return FR_OK;
    if (__builtin_add_overflow(list->bytes, bytes, &list->bytes) || list->bytes > PTRDIFF_MAX)
        return FR_ERR_LIMIT;
    return push(list, &run);
}

// Pushes a group, repeated for the elements of one block.
static enum fr_status push_block(struct fr_datatype_list *list,
                                 const struct fr_datatype_group *item, size_t count,
                                 ptrdiff_t extent, size_t packed_extent)
{
    struct fr_datatype_group group = *item;
    struct fr_datatype_steps steps;
    fr_datatype_group_repeat(&group, count, extent, packed_extent, &steps);
    for (size_t i = 0; i < steps.copies; i++) {
        enum fr_status status = push(list, &group);
        if (status != FR_OK)
            return status;
        group.offset += steps.user;
        group.packed += steps.packed;
    }
    return FR_OK;
}

static size_t block_length(const struct fr_datatype_blocks *blocks, size_t block)
{
    return (size_t)blocks->lengths[blocks->uniform ? 0 : block];
}

// Writes the bytes of all blocks in a packed copy. Returns FR_ERR_LIMIT where they overflow.
static enum fr_status blocks_bytes(const struct fr_datatype_blocks *blocks, size_t element_bytes,
                                   size_t *bytes)
{
    size_t elements = 0;
    for (size_t b = 0; b < blocks->count; b++) {
        if (__builtin_add_overflow(elements, block_length(blocks, b), &elements))
            return FR_ERR_LIMIT;
    }
    return __builtin_mul_overflow(elements, element_bytes, bytes) ? FR_ERR_LIMIT : FR_OK;
}

// Takes one item of the element at a time through all blocks. With several items in the element,
// their runs would otherwise alternate and never fold.
enum fr_status fr_datatype_list_push_blocks(struct fr_datatype_list *list,
                                            const struct fr_datatype_list *element,
                                            ptrdiff_t extent,
                                            const struct fr_datatype_blocks *blocks)
{
    size_t bytes = 0;
    size_t end = 0;
    enum fr_status status = blocks_bytes(blocks, element->bytes, &bytes);
    if (status != FR_OK)
        return status;
    if (__builtin_add_overflow(list->bytes, bytes, &end) || end > PTRDIFF_MAX)
        return FR_ERR_LIMIT;
    for (size_t i = 0; i < element->count; i++) {
        size_t packed = list->bytes;
        for (size_t b = 0; b < blocks->count; b++) {
            struct fr_datatype_group item = element->items[i];
            size_t length = block_length(blocks, b);
            if (length == 0)
                continue;
            item.offset += wrapping_multiple((size_t)blocks->displacements[b], blocks->unit);
            item.packed += packed;
            status = push_block(list, &item, length, extent, element->bytes);
            if (status != FR_OK)
                return status;
            packed += length * element->bytes;
        }
    }
    list->bytes = end;
    return FR_OK;
}

enum fr_status fr_datatype_list_repeat(struct fr_datatype_list *list, size_t count,
                                       ptrdiff_t stride)
{
    struct fr_datatype_list repeated = {0};
    if (__builtin_mul_overflow(list->bytes, count, &repeated.bytes) || repeated.bytes > PTRDIFF_MAX)
        return FR_ERR_LIMIT;
    for (size_t i = 0; i < list->count && count > 0; i++) {
        struct fr_datatype_group group = list->items[i];
        struct fr_datatype_steps steps;
        fr_datatype_group_repeat(&group, count, stride, list->bytes, &steps);
        for (size_t copy = 0; copy < steps.copies; copy++) {
            enum fr_status status = append(&repeated, &group);
            if (status != FR_OK) {
                fr_datatype_list_free(&repeated);
                return status;
            }
            group.offset += steps.user;
            group.packed += steps.packed;
        }
    }
    fr_datatype_list_free(list);
    *list = repeated;
    return FR_OK;
}

void fr_datatype_list_shift(struct fr_datatype_list *list, ptrdiff_t offset)
{
    for (size_t i = 0; i < list->count; i++)
        list->items[i].offset += offset;
}

void fr_datatype_list_free(struct fr_datatype_list *list)
{
    free(list->items);
    *list = (struct fr_datatype_list){0};
}
