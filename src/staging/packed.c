// SPDX-License-Identifier: BSD-3-Clause
// Views whose bytes travel packed: copies between packed memory and the memory of a view.
#include "config.h"

#include "fabrail/staging/packed.h"

#include <string.h>

// A copy between packed memory and host memory in the shape of a datatype.
struct host_copy {
    unsigned char *packed;
    uintptr_t shaped;
    bool gather;
};

static enum fr_status copy_rows(void *context, const struct fr_datatype_copy *piece)
{
    const struct host_copy *copy = context;
    for (size_t plane = 0; plane < piece->n[1]; plane++) {
        for (size_t row = 0; row < piece->n[0]; row++) {
            ptrdiff_t at = piece->user_offset + (ptrdiff_t)row * piece->user_stride[0] +
                           (ptrdiff_t)plane * piece->user_stride[1];
            ptrdiff_t from = piece->stage_offset + (ptrdiff_t)row * piece->stage_stride[0] +
                             (ptrdiff_t)plane * piece->stage_stride[1];
            void *shaped = (void *)(copy->shaped + (uintptr_t)at);
            memcpy(copy->gather ? copy->packed + from : shaped,
                   copy->gather ? shaped : copy->packed + from, piece->bytes);
        }
    }
    return FR_OK;
}

void fr_staging_copy_shaped(const struct fr_layout *layout, size_t count, uintptr_t shaped,
                            void *packed, size_t bytes, bool gather)
{
    struct host_copy copy = {.packed = packed, .shaped = shaped, .gather = gather};
    enum fr_status never_fails = fr_datatype_visit(layout, count, true, bytes, copy_rows, &copy);
    (void)never_fails;
}

void fr_staging_copy_on_host(const struct fr_staging_view *view, void *packed, size_t bytes,
                             bool gather)
{
    const struct fr_staging_view_block *block = &view->blocks[0];
    fr_staging_copy_shaped(block->layout, block->count, fr_staging_given_address(view), packed,
                           bytes, gather);
}

__attribute__((no_sanitize("thread"))) static enum fr_status
peek_rows(void *context, const struct fr_datatype_copy *piece)
{
    const struct host_copy *copy = context;
    for (size_t plane = 0; plane < piece->n[1]; plane++) {
        for (size_t row = 0; row < piece->n[0]; row++) {
            ptrdiff_t at = piece->user_offset + (ptrdiff_t)row * piece->user_stride[0] +
                           (ptrdiff_t)plane * piece->user_stride[1];
            ptrdiff_t to = piece->stage_offset + (ptrdiff_t)row * piece->stage_stride[0] +
                           (ptrdiff_t)plane * piece->stage_stride[1];
            const volatile unsigned char *bytes =
                (const unsigned char *)(copy->shaped + (uintptr_t)at);
            for (size_t i = 0; i < piece->bytes; i++)
                copy->packed[(size_t)to + i] = bytes[i];
        }
    }
    return FR_OK;
}

void fr_staging_peek_on_host(const struct fr_staging_view *view, void *packed, size_t bytes)
{
    struct host_copy copy = {.packed = packed, .shaped = fr_staging_given_address(view)};
    enum fr_status never_fails = fr_datatype_visit(view->blocks[0].layout, view->blocks[0].count,
                                                   true, bytes, peek_rows, &copy);
    (void)never_fails;
}

void fr_staging_view_at(const struct fr_staging_view *view, struct fr_staging_lease lease,
                        struct fr_staging_view *into, struct fr_staging_view_block *block)
{
    *block = view->blocks[0];
    block->stage_offset = 0;
    *into = *view;
    into->blocks = block;
    into->lease = lease;
    into->stage_base = (uintptr_t)lease.address;
    into->shape = FR_SHAPE_PACKED;
}

void fr_staging_copy_slice(const struct fr_staging_view *view, enum fr_device_direction direction,
                           size_t first, size_t last, struct fr_device_batch *batch)
{
    const struct fr_staging_view_block *block = &view->blocks[0];
    uintptr_t user = view->base + (uintptr_t)block->user_offset + first;
    uintptr_t stage = view->stage_base + block->stage_offset + first;
    bool out = direction == FR_FROM_STAGE;
    size_t size = block->layout->size_bytes;
    if (!block->layout->contiguous) {
        fr_staging_view_copy_part(view, first / size, (last - first) / size, direction, batch);
        return;
    }
    const struct fr_device_copy copy = {
        .dst = (void *)(out ? user : stage),
        .src = (const void *)(out ? stage : user),
        .bytes = last - first,
        .n = {1, 1},
        .on_device = view->path != FR_PATH_HOST,
        .mixed = view->mixed,
    };
    fr_device_batch_copy(batch, &view->range, direction, &copy);
}
