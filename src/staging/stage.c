// SPDX-License-Identifier: BSD-3-Clause
// Staging memory of views, and the copies between it and the program's memory.
#include "config.h"

#include "fabrail/staging/typed_copy.h"

#include "staging/staging_int.h"

#include <string.h>

enum {
    STAGE_ALIGNMENT = 64,           // a staging copy keeps the user address modulo this
    LEAST_RESERVED_BYTES = 1 << 18, // shorter views are page-locked, which takes little
    PINNED_A_SURPRISE = 16,
};

// Number of further views that expect an RTS but get page-locked memory, since data have come to
// one that had none.
static _Atomic unsigned surprises;

static size_t data_bytes(const struct fr_staging_view *view)
{
    size_t total = 0;
    for (size_t i = 0; i < view->block_count; i++)
        total += view->blocks[i].count * view->blocks[i].layout->size_bytes;
    return total;
}

// Chooses a shape. Where there are gaps, a packed copy saves memory, and saves MPI its own packing.
static enum fr_staging_shape choose_shape(const struct fr_staging_view *view, size_t total)
{
    bool peer_slices = view->path == FR_PATH_PEER && !view->same_shape_only;
    if (peer_slices || view->as_bytes) // each share in one piece
        return FR_SHAPE_PACKED;
    bool dense = view->span <= total + total / 4 + 4096;
    for (size_t i = 0; i < view->block_count; i++) {
        if (!view->blocks[i].layout->packable)
            return FR_SHAPE_SAME;
        dense = dense && (view->blocks[i].layout->contiguous || !view->blocks[i].count);
    }
    return dense || view->same_shape_only ? FR_SHAPE_SAME : FR_SHAPE_PACKED;
}

static bool take_surprise(void)
{
    unsigned count = atomic_load_explicit(&surprises, memory_order_relaxed);
    if (FR_LIKELY(count == 0))
        return false;
    atomic_store_explicit(&surprises, count - 1, memory_order_relaxed);
    return true;
}

static enum fr_status borrow(struct fr_staging_view *view, size_t bytes)
{
    if (view->path != FR_PATH_HOST)
        return fr_staging_borrow_device(view->range.device, bytes, &view->lease);
    if (view->expects_rts && bytes >= LEAST_RESERVED_BYTES && !take_surprise() &&
        fr_staging_reserve(bytes, &view->lease) == FR_OK)
        return FR_OK;
    return fr_staging_borrow(bytes, &view->lease);
}

FR_OFTEN enum fr_status fr_staging_view_open(struct fr_staging_view *view)
{
    size_t total = data_bytes(view);
    enum fr_staging_shape shape = choose_shape(view, total);
    size_t slack = view->nudge;
    if (shape == FR_SHAPE_SAME && !view->realigns)
        slack += (view->base + (uintptr_t)view->first) % STAGE_ALIGNMENT;
    size_t bytes = slack + (shape == FR_SHAPE_SAME ? view->span : total);
    enum fr_status status = borrow(view, bytes);
    if (status != FR_OK)
        return status;
    view->shape = shape;
    view->stage_base = (uintptr_t)view->lease.address + slack;
    if (shape == FR_SHAPE_SAME)
        view->stage_base -= (uintptr_t)view->first;
    size_t offset = 0;
    for (size_t i = 0; i < view->block_count; i++) {
        struct fr_staging_view_block *block = &view->blocks[i];
        block->stage_offset = shape == FR_SHAPE_SAME ? (size_t)block->user_offset : offset;
        offset += block->count * block->layout->size_bytes;
    }
    return FR_OK;
}

struct copy_context {
    const struct fr_staging_view *view;
    struct fr_device_batch *batch;
    enum fr_device_direction direction;
    uintptr_t user; // address of the block's origin
    uintptr_t stage;
};

static void copy_elements(const struct copy_context *context, const struct fr_layout *layout,
                          size_t count, size_t limit_bytes)
{
    size_t all_bytes = count * layout->size_bytes;
    const struct fr_staging_packing packing = {
        .view = context->view,
        .layout = layout,
        .count = count,
        .bytes = limit_bytes < all_bytes ? limit_bytes : all_bytes,
        .user = context->user,
        .stage = context->stage,
        .direction = context->direction,
    };
    fr_staging_copy_elements(&packing, context->batch);
}

static void copy_run(const struct copy_context *context, uintptr_t user, uintptr_t stage,
                     size_t bytes)
{
    const struct fr_staging_view *view = context->view;
    bool out = context->direction == FR_FROM_STAGE;
    const struct fr_device_copy copy = {
        .dst = (void *)(out ? user : stage),
        .src = (const void *)(out ? stage : user),
        .bytes = bytes,
        .n = {1, 1},
        .on_device = view->path != FR_PATH_HOST,
        .mixed = view->mixed,
        .own = view->on_host,
    };
    fr_device_batch_copy(context->batch, &view->range, context->direction, &copy);
}

// Copies the wanted blocks. Runs that follow one another on both sides become one copy.
static void copy_blocks(struct copy_context *context, size_t limit_bytes)
{
    const struct fr_staging_view *view = context->view;
    uintptr_t run_user = 0, run_stage = 0;
    size_t run = 0;
    for (size_t i = 0; i < view->block_count && limit_bytes; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        if (!(context->direction == FR_TO_STAGE ? block->in : block->out))
            continue;
        size_t bytes = block->count * block->layout->size_bytes;
        bytes = bytes < limit_bytes ? bytes : limit_bytes;
        context->user = view->base + (uintptr_t)block->user_offset;
        context->stage = view->stage_base + block->stage_offset;
        if (!block->layout->contiguous) {
            copy_elements(context, block->layout, block->count, bytes);
        } else if (run_user + run == context->user && run_stage + run == context->stage) {
            run += bytes;
        } else {
            copy_run(context, run_user, run_stage, run);
            run_user = context->user;
            run_stage = context->stage;
            run = bytes;
        }
        limit_bytes -= bytes;
    }
    copy_run(context, run_user, run_stage, run);
}

void fr_staging_view_copy_in(const struct fr_staging_view *view, struct fr_device_batch *batch)
{
    struct copy_context context = {.view = view, .batch = batch, .direction = FR_TO_STAGE};
    copy_blocks(&context, SIZE_MAX);
}

void fr_staging_view_copy_out(const struct fr_staging_view *view, size_t limit_bytes,
                              struct fr_device_batch *batch)
{
    struct copy_context context = {.view = view, .batch = batch, .direction = FR_FROM_STAGE};
    if (view->lease.reservation != NULL && limit_bytes >= LEAST_RESERVED_BYTES)
        atomic_store_explicit(&surprises, PINNED_A_SURPRISE, memory_order_relaxed);
    copy_blocks(&context, limit_bytes);
}

void fr_staging_view_copy_part(const struct fr_staging_view *view, size_t first, size_t count,
                               enum fr_device_direction direction, struct fr_device_batch *batch)
{
    const struct fr_staging_view_block *block = &view->blocks[0];
    const struct fr_layout *layout = block->layout;
    size_t extent = (size_t)layout->extent;
    size_t stage_step = view->shape == FR_SHAPE_PACKED ? layout->size_bytes : extent;
    struct copy_context context = {
        .view = view,
        .batch = batch,
        .direction = direction,
        .user = view->base + (uintptr_t)block->user_offset + first * extent,
        .stage = view->stage_base + block->stage_offset + first * stage_step,
    };
    copy_elements(&context, layout, count, SIZE_MAX);
}

void fr_staging_view_close(struct fr_staging_view *view)
{
    fr_staging_return(&view->lease);
}
