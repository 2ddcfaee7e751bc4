// SPDX-License-Identifier: BSD-3-Clause
// Copies between two buffers of the application on one device. One step makes a copy that has no
// gaps on one of its sides, or the same ones on both. Any other is made by a kernel from one layout
// into the other. Without kernels it is packed first, and then unpacked.
#include "config.h"

#include "fabrail/staging/own_copy.h"

#include "fabrail/staging/fused.h"
#include "fabrail/staging/tables.h"
#include "fabrail/staging/typed_copy.h"

// Returns whether the device that moves the memory can use all of it.
static bool is_open(const struct fr_staging_view *view)
{
    uintptr_t low = view->base + (uintptr_t)view->first;
    return fr_device_owns(&view->range) && !view->mixed && fr_staging_view_is_in_range(view) &&
           fr_device_range_is_open(&view->range, low, low + view->span);
}

bool fr_staging_can_copy_own(const struct fr_staging_view *from, const struct fr_staging_view *to)
{
    const struct fr_device_range *source = &from->range, *target = &to->range;
    bool share_context = source->context == target->context || !source->context || !target->context;
    return source->device == target->device && share_context && is_open(from) && is_open(to);
}

static bool takes_one_step(const struct fr_staging_own_copy *copy)
{
    return copy->from.layout->contiguous || copy->to.layout->contiguous ||
           copy->from.layout == copy->to.layout;
}

// Copies between elements in the memory of `view` and other memory. `path` says where that is.
static void copy_elements(const struct fr_staging_view *view, enum fr_policy_path path,
                          const struct fr_staging_elements *elements, bool has_gaps,
                          struct fr_staging_packing copy, struct fr_device_batch *batch)
{
    struct fr_staging_view shaped = *view;
    shaped.path = path;
    shaped.shape = has_gaps ? FR_SHAPE_SAME : FR_SHAPE_PACKED;
    copy.view = &shaped;
    copy.layout = elements->layout;
    copy.count = elements->count;
    copy.user = elements->address;
    fr_staging_copy_elements(&copy, batch);
}

static void copy_at_once(const struct fr_staging_view *from, const struct fr_staging_view *to,
                         const struct fr_staging_own_copy *copy, struct fr_device_batch *batch)
{
    struct fr_staging_packing packing = {.bytes = copy->bytes};
    if (copy->to.layout->contiguous || !copy->from.layout->contiguous) {
        packing.direction = FR_TO_STAGE;
        packing.stage = copy->to.address;
        copy_elements(from, FR_PATH_PEER, &copy->from, !copy->to.layout->contiguous, packing,
                      batch);
        return;
    }
    packing.direction = FR_FROM_STAGE;
    packing.stage = copy->from.address;
    copy_elements(to, FR_PATH_PEER, &copy->to, false, packing, batch);
}

// Starts a copy from one layout into another by one kernel. Returns whether it was launched.
static bool fuse(const struct fr_staging_view *to, const struct fr_staging_own_copy *copy,
                 struct fr_device_batch *batch)
{
    struct fr_staging_view_block block = {.count = copy->to.count, .layout = copy->to.layout};
    struct fr_staging_view target = *to;
    target.base = copy->to.address;
    target.first = (ptrdiff_t)(to->base + (uintptr_t)to->first - target.base);
    target.blocks = &block;
    target.block_count = 1;
    bool gaps = !copy->from.layout->contiguous;
    const struct fr_datatype_compiled *from =
        gaps ? fr_datatype_compiled_get(copy->from.layout) : NULL;
    if ((gaps && from == NULL) || !fr_staging_fuses(&target))
        return false;
    struct fr_staging_fused fused = {.view = &target,
                                     .far = gaps ? &from->shape : NULL,
                                     .source = copy->from.address,
                                     .last = copy->bytes};
    struct fr_staging_table *table = NULL;
    if (gaps && from->table != NULL) {
        table = fr_staging_table_borrow(from, to->range.device);
        if (table == NULL)
            return false;
        fused.far_table = fr_staging_table_address(table);
    }
    bool launched = fr_staging_fuse(&fused, batch);
    if (table != NULL)
        fr_device_batch_hold(batch, fr_staging_table_return, table);
    return launched;
}

// Memory for the packed bytes of copies that take two steps.
struct packed {
    struct fr_staging_lease lease;
    enum fr_policy_path path;
};

static enum fr_status borrow(const struct fr_staging_view *view, size_t bytes,
                             struct packed *packed)
{
    packed->path = FR_PATH_PEER;
    if (fr_staging_borrow_device(view->range.device, bytes, &packed->lease) == FR_OK)
        return FR_OK;
    packed->path = FR_PATH_HOST;
    return fr_staging_borrow(bytes, &packed->lease);
}

// Makes one step of those copies that take two.
static void copy_step(const struct fr_staging_view *view, const struct packed *packed,
                      const struct fr_staging_own_copy *copies, size_t count,
                      enum fr_device_direction direction, struct fr_device_batch *batch)
{
    uintptr_t stage = (uintptr_t)packed->lease.address;
    for (size_t i = 0; i < count; i++) {
        if (takes_one_step(&copies[i]))
            continue;
        const struct fr_staging_packing packing = {
            .bytes = copies[i].bytes, .stage = stage, .direction = direction};
        copy_elements(view, packed->path,
                      direction == FR_TO_STAGE ? &copies[i].from : &copies[i].to, false, packing,
                      batch);
        stage += copies[i].bytes;
    }
}

// Packs the bytes of those copies that take two steps, and unpacks them.
static enum fr_status copy_in_two(const struct fr_staging_view *from,
                                  const struct fr_staging_view *to,
                                  const struct fr_staging_own_copy *copies, size_t count)
{
    struct packed packed = {.lease = {.address = NULL}};
    struct fr_device_batch batch;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += takes_one_step(&copies[i]) ? 0 : copies[i].bytes;
    enum fr_status status = borrow(from, bytes, &packed);
    if (status == FR_OK) {
        fr_device_batch_begin(&batch);
        copy_step(from, &packed, copies, count, FR_TO_STAGE, &batch);
        status = fr_device_batch_finish(&batch);
    }
    if (status == FR_OK) {
        fr_device_batch_begin(&batch);
        copy_step(to, &packed, copies, count, FR_FROM_STAGE, &batch);
        status = fr_device_batch_finish(&batch);
    }
    fr_staging_return(&packed.lease);
    return status;
}

// Waits for what the application has begun with the bytes of either side. A batch does so for one
// side of a copy alone.
static enum fr_status sync_app_work(const struct fr_staging_view *view)
{
    return fr_device_sync_app_work(&view->range, view->base + (uintptr_t)view->first, view->span);
}

// Prepares the views of both sides. Copies run in the context that either side belongs to. Memory
// of pools and VMM belongs to none, and can be used in any.
static enum fr_status begin(const struct fr_staging_view *source,
                            const struct fr_staging_view *target, struct fr_staging_view *from,
                            struct fr_staging_view *to)
{
    *from = *source;
    *to = *target;
    if (from->range.context == NULL)
        from->range.context = to->range.context;
    else
        to->range.context = from->range.context;
    enum fr_status status = sync_app_work(from);
    return status == FR_OK ? sync_app_work(to) : status;
}

enum fr_status fr_staging_copy_own(const struct fr_staging_view *source,
                                   const struct fr_staging_view *target,
                                   const struct fr_staging_own_copy *copies, size_t count)
{
    struct fr_staging_view from, to;
    struct fr_device_batch batch;
    bool are_two = false;
    enum fr_status status = begin(source, target, &from, &to);
    if (status != FR_OK)
        return status;
    fr_device_batch_begin(&batch);
    for (size_t i = 0; i < count; i++) {
        if (takes_one_step(&copies[i]))
            copy_at_once(&from, &to, &copies[i], &batch);
        else
            are_two = !fuse(&to, &copies[i], &batch) || are_two;
    }
    status = fr_device_batch_finish(&batch);
    return status == FR_OK && are_two ? copy_in_two(&from, &to, copies, count) : status;
}

enum fr_status fr_staging_copy_own_fused(const struct fr_staging_view *source,
                                         const struct fr_staging_view *target,
                                         const struct fr_staging_own_copy *copy)
{
    struct fr_staging_view from, to;
    struct fr_device_batch batch;
    enum fr_status status = begin(source, target, &from, &to);
    if (status != FR_OK)
        return status;
    fr_device_batch_begin(&batch);
    bool launched = fuse(&to, copy, &batch);
    status = fr_device_batch_finish(&batch);
    return status == FR_OK && !launched ? FR_ERR_UNSUPPORTED : status;
}
