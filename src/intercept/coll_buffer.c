// SPDX-License-Identifier: BSD-3-Clause
// Buffers of collectives by path peer.
#include "config.h"

#include "intercept/coll_buffer.h"

#include "fabrail/staging/blocks.h"

bool fr_intercept_coll_buffer_measure(struct fr_request_op *op)
{
    bool any = false, empty = true;
    fr_staging_views_measure(op->views, op->view_count);
    for (unsigned v = 0; v < op->view_count; v++) {
        fr_device_range_fix_context(&op->views[v].range);
        any = any || fr_device_owns(&op->views[v].range);
        empty = empty && !op->views[v].span;
    }
    return any || empty;
}

// Returns whether a view is one run of bytes. A reduction takes elements singly, with what gaps
// they have.
static bool is_contiguous(const struct fr_staging_view *view)
{
    for (size_t i = 0; i < view->block_count && !view->same_shape_only; i++) {
        if (view->blocks[i].count && !view->blocks[i].layout->contiguous)
            return false;
    }
    return true;
}

// Returns whether kernels can use the slices of a view where they are. Gets their layouts ready.
static bool is_usable(struct fr_intercept_coll_buffer *buffer)
{
    return is_contiguous(&buffer->view) ||
           (buffer->shaped_ranks > 0 &&
            fr_intercept_shapes_open(&buffer->shapes, &buffer->view, buffer->shaped_ranks,
                                     buffer->is_written));
}

static bool export(struct fr_intercept_coll_buffer *buffer, unsigned ways)
{
    const struct fr_staging_view *view = &buffer->view;
    const void *low = (const void *)(view->base + (uintptr_t)view->first);
    return fr_ipc_export(&view->range, low, view->span, &buffer->handle) == FR_OK &&
           (buffer->handle.ways & ways);
}

static struct fr_device_range lease_range(const struct fr_staging_view *view)
{
    struct fr_device_range range = fr_staging_lease_range(&view->lease);
    fr_device_range_fix_context(&range);
    return range;
}

// Gives host memory workspace on this rank's device, as if it were memory of that.
static enum fr_status open_host(struct fr_intercept_coll_buffer *buffer)
{
    struct fr_staging_view *view = &buffer->view;
    int device = fr_device_known();
    if (device < 0)
        return FR_ERR_UNSUPPORTED; // each rank would choose the same device
    view->range.device = device;
    enum fr_status status = fr_staging_view_open(view);
    if (status != FR_OK) {
        view->range = (struct fr_device_range)FR_DEVICE_HOST;
        return status;
    }
    buffer->range = lease_range(view);
    view->range = buffer->range;
    view->mixed = view->on_host = true;
    buffer->staged = true;
    return FR_OK;
}

enum fr_status fr_intercept_coll_buffer_open(struct fr_intercept_coll_buffer *buffer,
                                             bool must_stage, unsigned ways)
{
    struct fr_staging_view *view = &buffer->view;
    view->path = FR_PATH_PEER;
    buffer->range = view->range;
    if (!view->span)
        return FR_OK;
    if (buffer->takes_host && !fr_device_owns(&view->range) && !view->absolute &&
        is_contiguous(view))
        return open_host(buffer);
    if (!fr_device_owns(&view->range) || view->absolute || !fr_staging_view_is_in_range(view))
        return FR_ERR_UNSUPPORTED;
    buffer->staged = must_stage || !is_usable(buffer) || (ways && !export(buffer, ways));
    if (!buffer->staged)
        return FR_OK;
    fr_intercept_shapes_close(&buffer->shapes);
    enum fr_status status = fr_staging_view_open(view);
    if (status == FR_OK)
        buffer->range = lease_range(view);
    return status;
}

enum fr_status fr_intercept_coll_buffer_open_on_host(struct fr_intercept_coll_buffer *buffer,
                                                     bool must_stage)
{
    struct fr_staging_view *view = &buffer->view;
    bool is_apart = fr_device_owns(&view->range) && !fr_staging_view_is_in_range(view);
    view->path = FR_PATH_HOST;
    view->as_bytes = true;
    buffer->range = view->range;
    buffer->staged =
        view->span && (must_stage || view->absolute || is_apart || !is_contiguous(view));
    if (!buffer->staged)
        return FR_OK;
    buffer->range = (struct fr_device_range)FR_DEVICE_HOST;
    return fr_staging_view_open(view);
}

void fr_intercept_coll_buffer_close(struct fr_intercept_coll_buffer *buffer)
{
    fr_intercept_shapes_close(&buffer->shapes);
    if (buffer->view.lease.address)
        fr_staging_view_close(&buffer->view);
    if (buffer->view.on_host) {
        buffer->view.range = (struct fr_device_range)FR_DEVICE_HOST;
        buffer->view.mixed = buffer->view.on_host = false;
    }
    buffer->staged = false;
}

enum fr_status fr_intercept_coll_buffer_copy_in(const struct fr_intercept_coll_buffer *buffer)
{
    return buffer->staged ? fr_staging_view_copy_blocks(&buffer->view, FR_TO_STAGE) : FR_OK;
}

enum fr_status fr_intercept_coll_buffer_copy_out(const struct fr_intercept_coll_buffer *buffer)
{
    enum fr_status status =
        buffer->staged ? fr_staging_view_copy_blocks(&buffer->view, FR_FROM_STAGE) : FR_OK;
    return status == FR_ERR_UNSUPPORTED ? FR_ERR_DEVICE : status;
}

// Returns whether the copy is one run of bytes on both sides, to or from workspace on the device.
static bool is_plain(const struct fr_intercept_coll_buffer *buffer, const struct fr_coll_team *team)
{
    const struct fr_staging_view *view = &buffer->view;
    return team->slab && buffer->staged && view->path == FR_PATH_PEER && view->block_count == 1 &&
           !view->mixed && view->blocks[0].layout->contiguous && fr_device_owns(&view->range);
}

static struct fr_coll_copy describe_copy(const struct fr_intercept_coll_buffer *buffer, bool out)
{
    const struct fr_staging_view_block *block = &buffer->view.blocks[0];
    uintptr_t user = buffer->view.base + (uintptr_t)block->user_offset;
    uintptr_t stage = buffer->view.stage_base + block->stage_offset;
    return (struct fr_coll_copy){
        .range = buffer->view.range,
        .piece = {.dst = out ? user : stage,
                  .src = out ? stage : user,
                  .bytes = block->count * block->layout->size_bytes},
    };
}

bool fr_intercept_coll_buffer_plain_in(const struct fr_intercept_coll_buffer *buffer,
                                       const struct fr_coll_team *team, struct fr_coll_copy *copy)
{
    bool plain = is_plain(buffer, team) && buffer->view.blocks[0].in;
    if (plain)
        *copy = describe_copy(buffer, false);
    return plain;
}

bool fr_intercept_coll_buffer_plain_out(const struct fr_intercept_coll_buffer *buffer,
                                        const struct fr_coll_team *team, struct fr_coll_copy *copy)
{
    bool plain = is_plain(buffer, team) && buffer->view.blocks[0].out;
    if (plain)
        *copy = describe_copy(buffer, true);
    return plain;
}

uintptr_t fr_intercept_coll_buffer_base(const struct fr_intercept_coll_buffer *buffer)
{
    return buffer->staged ? buffer->view.stage_base : buffer->view.base;
}

uintptr_t fr_intercept_coll_buffer_block(const struct fr_intercept_coll_buffer *buffer,
                                         const struct fr_staging_view_block *block)
{
    return fr_intercept_coll_buffer_base(buffer) +
           (buffer->staged ? block->stage_offset : (uintptr_t)block->user_offset);
}

void fr_intercept_coll_buffer_describe(const struct fr_intercept_coll_buffer *buffer,
                                       struct fr_coll_buffer *memory)
{
    const struct fr_staging_view *view = &buffer->view;
    memory->range = buffer->range;
    memory->bytes = buffer->staged ? view->lease.bytes : view->span;
    memory->is_workspace = buffer->staged;
    memory->low =
        buffer->staged ? (uintptr_t)view->lease.address : view->base + (uintptr_t)view->first;
    memory->handle = buffer->staged ? (struct fr_ipc_handle){0} : buffer->handle;
}

void fr_intercept_coll_buffer_count(const struct fr_request_op *op, const char *reason)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        const struct fr_staging_view *view = &op->views[v];
        if (fr_device_owns(&view->range))
            fr_intercept_count_view(op, view, (struct fr_policy_choice){FR_PATH_PEER, reason},
                                    NULL);
    }
}

enum fr_status fr_intercept_coll_buffer_await_app(const struct fr_intercept_coll_buffer *buffer)
{
    const struct fr_staging_view *view = &buffer->view;
    return view->span && fr_device_owns(&view->range) && !view->on_host
               ? fr_device_sync_app_work(&view->range, view->base + (uintptr_t)view->first,
                                         view->span)
               : FR_OK;
}

void fr_intercept_coll_buffer_count_staged(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        const struct fr_policy_choice choice = {
            FR_PATH_HOST, "a rank of the communicator cannot let others reach its memory"};
        if (fr_device_owns(&op->views[v].range))
            fr_intercept_count_view(op, &op->views[v], choice, NULL);
    }
}
