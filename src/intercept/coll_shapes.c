// SPDX-License-Identifier: BSD-3-Clause
// Layouts of buffers of exchanges.
#include "config.h"

#include "intercept/coll_shapes.h"

#include "fabrail/policy/scheme.h"

#include <stdlib.h>
#include <string.h>

// Writes the number of a layout that others get. Returns false where there are too many.
static bool number(struct fr_intercept_shapes *shapes, const struct fr_device_strides *strides,
                   unsigned *layout)
{
    unsigned i = 0;
    while (i < shapes->layout_count && memcmp(&shapes->layouts[i], strides, sizeof(*strides)) != 0)
        i++;
    if (i == FR_COLL_LAYOUTS)
        return false;
    shapes->layouts[i] = *strides;
    shapes->layout_count = i < shapes->layout_count ? shapes->layout_count : i + 1;
    *layout = i + 1;
    return true;
}

static bool open_written(struct fr_intercept_shapes *shapes, const struct fr_staging_view *view,
                         const struct fr_datatype_compiled *compiled,
                         struct fr_intercept_block_shape *block)
{
    struct fr_device_strides strides;
    return !compiled->table && fr_policy_suits_layout(compiled->block_bytes, view->out_bytes) &&
           fr_device_strides_of(&compiled->shape, &strides) &&
           number(shapes, &strides, &block->layout);
}

static bool open_read(const struct fr_staging_view *view,
                      const struct fr_datatype_compiled *compiled,
                      struct fr_intercept_block_shape *block)
{
    if (!compiled->table)
        return true;
    block->table = fr_staging_table_borrow_used(compiled, view->range.device);
    if (!block->table)
        return false;
    block->side.table = fr_staging_table_address(block->table);
    block->side.host_table = compiled->table;
    return true;
}

static bool open_block(struct fr_intercept_shapes *shapes, const struct fr_staging_view *view,
                       size_t index, bool is_written)
{
    const struct fr_layout *layout = view->blocks[index].layout;
    struct fr_intercept_block_shape *block = &shapes->blocks[index];
    if (view->blocks[index].count == 0 || layout->size_bytes == 0 || layout->contiguous)
        return true;
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(layout);
    if (!compiled)
        return false;
    block->shape = compiled->shape;
    block->shape.offset = 0;
    block->offset = (ptrdiff_t)compiled->shape.offset;
    block->side.shape = &block->shape;
    return is_written ? open_written(shapes, view, compiled, block)
                      : open_read(view, compiled, block);
}

bool fr_intercept_shapes_open(struct fr_intercept_shapes *shapes,
                              const struct fr_staging_view *view, int ranks, bool is_written)
{
    uintptr_t low = view->base + (uintptr_t)view->first;
    *shapes = (struct fr_intercept_shapes){.block_count = view->block_count};
    if (!fr_device_has_kernels(&view->range, FR_IMAGE_PACK) ||
        !fr_device_range_is_open(&view->range, low, low + view->span))
        return false;
    shapes->blocks = calloc(view->block_count, sizeof(*shapes->blocks));
    shapes->by_rank = calloc((size_t)ranks, sizeof(*shapes->by_rank));
    bool opened = shapes->blocks && shapes->by_rank;
    for (size_t i = 0; i < view->block_count && opened; i++)
        opened = open_block(shapes, view, i, is_written);
    if (!opened)
        fr_intercept_shapes_close(shapes);
    return opened;
}

void fr_intercept_shapes_close(struct fr_intercept_shapes *shapes)
{
    for (size_t i = 0; i < shapes->block_count && shapes->blocks; i++) {
        if (shapes->blocks[i].table)
            fr_staging_table_return(shapes->blocks[i].table);
    }
    free(shapes->blocks);
    free(shapes->by_rank);
    *shapes = (struct fr_intercept_shapes){.blocks = NULL};
}

void fr_intercept_shapes_place(struct fr_intercept_shapes *shapes, int rank, size_t block,
                               struct fr_coll_slot *slot)
{
    if (!shapes->blocks)
        return;
    const struct fr_intercept_block_shape *shape = &shapes->blocks[block];
    shapes->by_rank[rank] = shape->side;
    if (!shape->side.shape)
        return;
    slot->address += (uint64_t)shape->offset;
    slot->layout = shape->layout;
}
