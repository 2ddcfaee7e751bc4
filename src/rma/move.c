// SPDX-License-Identifier: BSD-3-Clause
// Puts and gets. Data in one piece on both sides go into the queue. Other data move at once: from
// layout to layout on the device, or over packed host memory where no device uses both sides.
#include "config.h"

#include "rma/region.h"
#include "rma/remote_access.h"

#include "fabrail/staging/own_copy.h"
#include "fabrail/staging/packed.h"

enum { SMALL_BYTES = 1 << 14 }; // of host memory, which the CPU copies

static bool has_epoch(struct fr_rma_window *window, const struct fr_rma_part *part)
{
    bool fenced = atomic_load_explicit(&window->fenced, memory_order_relaxed);
    if (fenced)
        atomic_store_explicit(&window->used, true, memory_order_relaxed);
    return fenced || window->all_locked || part->locked != FR_RMA_UNLOCKED || part->started;
}

enum fr_status fr_rma_target_find(struct fr_rma_window *window, const struct fr_rma_access *access,
                                  struct fr_rma_target *target)
{
    struct fr_rma_part *part = &window->parts[access->target];
    const struct fr_layout *layout = access->layout;
    ptrdiff_t first = 0;
    size_t span = 0;
    int64_t low, high, offset;
    if (!has_epoch(window, part))
        return FR_ERR_EPOCH;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, access->count, &first,
                     &span);
    if (__builtin_mul_overflow(access->displacement, (int64_t)part->unit, &offset) ||
        __builtin_add_overflow(offset, (int64_t)first, &low) ||
        __builtin_add_overflow(low, (int64_t)span, &high))
        return FR_ERR_RANGE;
    if (window->words.is_dynamic && span > 0) {
        enum fr_status found =
            fr_rma_region_find(window, access->target, (uint64_t)low, (uint64_t)high, &part);
        if (found != FR_OK)
            return found;
    } else if (span > 0 && (low < 0 || (uint64_t)high > part->bytes)) {
        return FR_ERR_RANGE;
    }
    if (window->words.is_dynamic)
        offset -= (int64_t)part->base;
    target->part = part;
    target->block =
        (struct fr_staging_view_block){.count = access->count, .layout = layout, .out = true};
    target->view = (struct fr_staging_view){
        .base = part->address + (uintptr_t)offset,
        .blocks = &target->block,
        .block_count = 1,
        .first = first,
        .span = span,
        .out_bytes = access->count * layout->size_bytes,
        .range = part->range,
    };
    return FR_OK;
}

bool fr_rma_is_native(const struct fr_rma_target *target, const struct fr_staging_view *view)
{
    const struct fr_device_range *range = &target->part->range;
    bool shares = !range->context || !view->range.context || range->context == view->range.context;
    return target->part->mapping.direct && fr_device_owns(&view->range) && !view->absolute &&
           shares && range->device == view->range.device && fr_staging_view_is_in_range(view);
}

bool fr_rma_is_on_host(const struct fr_staging_view *view)
{
    return !fr_device_owns(&view->range) && !view->mixed;
}

static enum fr_status sync_app_work(const struct fr_staging_view *view)
{
    return fr_device_sync_app_work(&view->range, view->base + (uintptr_t)view->first, view->span);
}

enum fr_status fr_rma_copy_packed(const struct fr_staging_view *view,
                                  struct fr_staging_lease packed,
                                  enum fr_device_direction direction)
{
    const struct fr_staging_view_block *block = &view->blocks[0];
    size_t bytes = fr_rma_bytes_of(view);
    if (fr_rma_is_on_host(view)) {
        fr_staging_copy_shaped(block->layout, block->count, fr_rma_address_of(view), packed.address,
                               bytes, direction == FR_TO_STAGE);
        return FR_OK;
    }
    struct fr_staging_view staged;
    struct fr_staging_view_block of_staged;
    struct fr_device_batch batch;
    fr_staging_view_at(view, packed, &staged, &of_staged);
    staged.path = FR_PATH_HOST;
    fr_device_batch_begin(&batch);
    fr_staging_copy_slice(&staged, direction, 0, bytes, &batch);
    return fr_device_batch_finish(&batch);
}

static enum fr_status move_slice(const struct fr_rma_target *target,
                                 const struct fr_staging_view *own, bool puts,
                                 struct fr_staging_lease packed)
{
    enum fr_status status = puts ? fr_rma_copy_packed(own, packed, FR_TO_STAGE)
                                 : fr_rma_copy_target(target, packed, FR_TO_STAGE);
    if (status == FR_OK)
        status = puts ? fr_rma_copy_target(target, packed, FR_FROM_STAGE)
                      : fr_rma_copy_packed(own, packed, FR_FROM_STAGE);
    return status;
}

// Returns the fewest bytes that are whole elements of so many bytes and of a view, SIZE_MAX if they
// are too many to be told.
static size_t whole_bytes(size_t bytes, const struct fr_staging_view *view)
{
    size_t step = bytes, rest;
    if (!view || bytes == SIZE_MAX)
        return bytes;
    const size_t other = view->blocks[0].layout->size_bytes;
    for (size_t divisor = other; divisor != 0; divisor = rest) { // step becomes what divides both
        rest = step % divisor;
        step = divisor;
    }
    return __builtin_mul_overflow(bytes / step, other, &step) ? SIZE_MAX : step;
}

size_t fr_rma_slice_bytes(const struct fr_rma_target *target, const struct fr_staging_view *origin,
                          const struct fr_staging_view *result, size_t most)
{
    size_t all = fr_rma_bytes_of(&target->view);
    size_t step = whole_bytes(whole_bytes(target->block.layout->size_bytes, origin), result);
    if (step >= all)
        return all;
    return step < most ? most / step * step : step;
}

void fr_rma_view_cut(const struct fr_staging_view *view, size_t done, size_t bytes,
                     struct fr_staging_view *slice, struct fr_staging_view_block *block)
{
    const struct fr_layout *layout = view->blocks[0].layout;
    *slice = *view;
    *block = view->blocks[0];
    slice->blocks = block;
    slice->base += (uintptr_t)((ptrdiff_t)(done / layout->size_bytes) * layout->extent);
    slice->in_bytes = view->in_bytes ? bytes : 0;
    slice->out_bytes = view->out_bytes ? bytes : 0;
    block->count = bytes / layout->size_bytes;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, block->count,
                     &slice->first, &slice->span);
    slice->first += block->user_offset;
}

static enum fr_status move_over_host(const struct fr_rma_target *target,
                                     const struct fr_staging_view *own, bool puts)
{
    struct fr_staging_lease packed;
    size_t all = fr_rma_bytes_of(own),
           step = fr_rma_slice_bytes(target, own, NULL, FR_RMA_SLICE_BYTES);
    enum fr_status status = fr_staging_borrow(step < all ? step : all, &packed);
    if (status != FR_OK)
        return status;
    for (size_t done = 0; done < all && status == FR_OK; done += step) {
        size_t bytes = all - done < step ? all - done : step;
        struct fr_rma_target there = {.part = target->part};
        struct fr_staging_view_block block;
        struct fr_staging_view here;
        fr_rma_view_cut(&target->view, done, bytes, &there.view, &there.block);
        fr_rma_view_cut(own, done, bytes, &here, &block);
        status = move_slice(&there, &here, puts, packed);
    }
    fr_staging_return(&packed);
    return status;
}

static enum fr_status move_on_device(const struct fr_staging_view *from,
                                     const struct fr_staging_view *to)
{
    const struct fr_staging_view_block *source = &from->blocks[0], *into = &to->blocks[0];
    const struct fr_staging_own_copy copy = {
        .from = {source->layout, source->count, fr_rma_address_of(from)},
        .to = {into->layout, into->count, fr_rma_address_of(to)},
        .bytes = fr_rma_bytes_of(from),
    };
    return fr_staging_copy_own(from, to, &copy, 1);
}

static struct fr_device_push_piece piece_of(uintptr_t there, uintptr_t here, size_t bytes,
                                            bool puts)
{
    return (struct fr_device_push_piece){
        .dst = puts ? there : here, .src = puts ? here : there, .bytes = bytes};
}

// Queues a move between device memory in one piece here and there.
static enum fr_status queue_native(struct fr_rma_window *window, struct fr_rma_target *target,
                                   const struct fr_staging_view *own, bool puts)
{
    size_t bytes = fr_rma_bytes_of(own);
    enum fr_status status = sync_app_work(own);
    if (status != FR_OK)
        return status;
    fr_rma_queue_add(
        window->queue, &target->part->range,
        piece_of(fr_rma_address_of(&target->view), fr_rma_address_of(own), bytes, puts), false);
    return FR_OK;
}

// Queues a move between host memory in one piece and the target. Copy engines reach any host
// memory.
static void queue_host(struct fr_rma_window *window, struct fr_rma_target *target,
                       const struct fr_staging_view *own, bool puts)
{
    size_t bytes = fr_rma_bytes_of(own);
    uintptr_t here = fr_rma_address_of(own), there = fr_rma_address_of(&target->view);
    void *room = NULL;
    if (bytes <= SMALL_BYTES && target->part->mapping.direct)
        room = fr_rma_queue_room(window->queue, bytes);
    if (room) {
        if (puts)
            memcpy(room, (const void *)here, bytes);
        else
            fr_rma_queue_copy_back(window->queue, (void *)here, room, bytes);
        here = (uintptr_t)room;
    }
    fr_rma_queue_add(window->queue, &target->part->range, piece_of(there, here, bytes, puts),
                     room == NULL);
}

static enum fr_status move(struct fr_rma_window *window, struct fr_rma_target *target,
                           const struct fr_staging_view *own, bool puts, bool *by_device)
{
    const struct fr_staging_view *there = &target->view;
    bool native = fr_rma_is_native(target, own);
    if (fr_device_owns(&there->range) && fr_staging_view_is_in_one_piece(there)) {
        if (native && fr_staging_view_is_in_one_piece(own))
            return queue_native(window, target, own, puts);
        if (fr_rma_is_on_host(own) && own->blocks[0].layout->contiguous) {
            queue_host(window, target, own, puts);
            return FR_OK;
        }
    }
    const struct fr_staging_view *from = puts ? own : there, *to = puts ? there : own;
    if (native && fr_staging_can_copy_own(from, to))
        return move_on_device(from, to);
    *by_device = false;
    return move_over_host(target, own, puts);
}

static enum fr_status begin_access(struct fr_rma_window *window, struct fr_rma_access *access,
                                   const struct fr_staging_view *own, bool puts)
{
    struct fr_rma_target target;
    enum fr_status status = fr_rma_target_find(window, access, &target);
    if (status != FR_OK)
        return status;
    if (fr_rma_bytes_of(own) != fr_rma_bytes_of(&target.view))
        return FR_ERR_TRUNCATE;
    if (fr_rma_bytes_of(own) == 0)
        return FR_OK;
    access->facts = fr_rma_facts(target.part, false);
    if (fr_policy_choose_access(&access->facts).way == FR_WAY_MESSAGE)
        return fr_rma_large_move(window, access, &target, own, puts);
    fr_rma_enter(window);
    status = move(window, &target, own, puts, &access->facts.by_device);
    fr_rma_leave(window);
    return status;
}

enum fr_status fr_rma_put(struct fr_rma_window *window, struct fr_rma_access *access,
                          const struct fr_staging_view *origin)
{
    return begin_access(window, access, origin, true);
}

enum fr_status fr_rma_get(struct fr_rma_window *window, struct fr_rma_access *access,
                          const struct fr_staging_view *result)
{
    return begin_access(window, access, result, false);
}

enum fr_status fr_rma_flush(struct fr_rma_window *window)
{
    fr_rma_enter(window);
    enum fr_status status = fr_rma_queue_finish(window->queue);
    if (window->words.is_dynamic)
        fr_rma_regions_trim(window);
    fr_rma_leave(window);
    enum fr_status remote = window->is_remote ? fr_rma_remote_flush(window) : FR_OK;
    return status == FR_OK ? remote : status;
}
