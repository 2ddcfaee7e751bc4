// SPDX-License-Identifier: BSD-3-Clause
// Copies of views with several blocks, each of a datatype of its own: one kernel makes many of
// them.
#include "config.h"

#include "fabrail/staging/blocks.h"

#include "fabrail/device/pack.h"
#include "fabrail/staging/tables.h"
#include "fabrail/staging/typed_copy.h"

#include <stdlib.h>

struct copies {
    struct fr_device_reshape *copies;
    struct fr_staging_table **tables;
    size_t count, table_count;
};

// Returns whether one kernel can make all copies, and pays. Its launch is saved for all blocks with
// gaps but one.
static bool suits_kernel(const struct fr_staging_view *view)
{
    uintptr_t low = view->base + (uintptr_t)view->first;
    size_t shaped = 0;
    if (view->block_count < 2 || view->path == FR_PATH_HOST || view->shape != FR_SHAPE_PACKED ||
        !fr_device_owns(&view->range) || view->mixed || !fr_staging_view_is_in_range(view) ||
        !fr_device_has_kernels(&view->range, FR_IMAGE_PACK) ||
        !fr_device_range_is_open(&view->range, low, low + view->span))
        return false;
    for (size_t i = 0; i < view->block_count; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        bool is_plain = block->layout->contiguous || block->count * block->layout->size_bytes == 0;
        if (!is_plain && !fr_staging_packs_by_kernel(view, i))
            return false;
        shaped += !is_plain;
    }
    return shaped > 1;
}

// Writes the program's side of a block. Returns false where its table finds no room.
static bool find_side(struct copies *copies, const struct fr_staging_view *view, size_t index,
                      struct fr_device_shaped *side)
{
    const struct fr_staging_view_block *block = &view->blocks[index];
    side->address = view->base + (uintptr_t)block->user_offset;
    if (block->layout->contiguous)
        return true;
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(block->layout);
    if (!compiled)
        return false;
    side->shape = &compiled->shape;
    if (!compiled->table)
        return true;
    struct fr_staging_table *table = fr_staging_table_borrow(compiled, view->range.device);
    if (!table)
        return false;
    copies->tables[copies->table_count++] = table;
    side->table = fr_staging_table_address(table);
    side->host_table = compiled->table;
    return true;
}

static bool list(struct copies *copies, const struct fr_staging_view *view,
                 enum fr_device_direction direction)
{
    for (size_t i = 0; i < view->block_count; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        size_t bytes = block->count * block->layout->size_bytes;
        const struct fr_device_shaped packed = {.address = view->stage_base + block->stage_offset};
        struct fr_device_shaped user = {.shape = NULL};
        if (bytes == 0 || !(direction == FR_TO_STAGE ? block->in : block->out))
            continue;
        if (!find_side(copies, view, i, &user))
            return false;
        copies->copies[copies->count++] = (struct fr_device_reshape){
            .dst = direction == FR_TO_STAGE ? packed : user,
            .src = direction == FR_TO_STAGE ? user : packed,
            .bytes = bytes,
        };
    }
    return true;
}

static enum fr_status copy_now(const struct fr_staging_view *view, const struct copies *copies)
{
    struct fr_device_work work;
    enum fr_status status =
        fr_device_sync_app_work(&view->range, view->base + (uintptr_t)view->first, view->span);
    if (status != FR_OK)
        return status;
    fr_device_reshape_begin(&view->range, copies->copies, copies->count,
                            (unsigned)fr_core_settings()->peer_sms, &work);
    for (size_t i = 0; i < copies->count; i++) {
        if (copies->copies[i].dst.shape || copies->copies[i].src.shape)
            fr_staging_count_typed(FR_TYPED_BY_KERNEL, copies->copies[i].bytes);
    }
    return fr_device_work_end(&work);
}

// Returns FR_ERR_UNSUPPORTED, with nothing done, where a batch has to make the copies.
static enum fr_status copy_by_kernels(const struct fr_staging_view *view,
                                      enum fr_device_direction direction)
{
    if (!suits_kernel(view))
        return FR_ERR_UNSUPPORTED;
    struct copies copies = {
        .copies = calloc(view->block_count, sizeof(*copies.copies)),
        .tables = calloc(view->block_count, sizeof(struct fr_staging_table *)),
    };
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (copies.copies && copies.tables && list(&copies, view, direction))
        status = copy_now(view, &copies);
    for (size_t i = 0; i < copies.table_count; i++)
        fr_staging_table_return(copies.tables[i]);
    free(copies.copies);
    free(copies.tables);
    return status;
}

enum fr_status fr_staging_view_copy_blocks(const struct fr_staging_view *view,
                                           enum fr_device_direction direction)
{
    struct fr_device_batch batch;
    enum fr_status status = copy_by_kernels(view, direction);
    if (status != FR_ERR_UNSUPPORTED)
        return status;
    fr_device_batch_begin(&batch);
    if (direction == FR_TO_STAGE)
        fr_staging_view_copy_in(view, &batch);
    else
        fr_staging_view_copy_out(view, SIZE_MAX, &batch);
    return fr_device_batch_finish(&batch);
}
