// SPDX-License-Identifier: BSD-3-Clause
// Packing by the CPU, without kernels: the memory that a datatype spans is copied to the host, gaps
// and all. Unpacking cannot be done like that, since what stands in the gaps may change meanwhile.
#include "config.h"

#include "fabrail/staging/packed.h"
#include "fabrail/staging/typed_copy.h"
#include "staging/staging_int.h"

#define SPAN_MOST ((size_t)256 << 20)

void fr_staging_packing_span(const struct fr_staging_packing *packing, uintptr_t *low,
                             uintptr_t *high)
{
    const struct fr_layout *layout = packing->layout;
    size_t elements = (packing->bytes + layout->size_bytes - 1) / layout->size_bytes, bytes = 0;
    ptrdiff_t first = 0;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, elements, &first,
                     &bytes);
    *low = packing->user + (uintptr_t)first;
    *high = *low + bytes;
}

// Copies between device memory and the host, and waits.
static enum fr_status copy_now(const struct fr_staging_view *view,
                               enum fr_device_direction direction, uintptr_t dst, uintptr_t src,
                               size_t bytes)
{
    struct fr_device_batch batch;
    const struct fr_device_copy copy = {
        .dst = (void *)dst, .src = (const void *)src, .bytes = bytes, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &view->range, direction, &copy);
    return fr_device_batch_finish(&batch);
}

// Packs into staging memory on the device, by way of the host.
static enum fr_status pack_through(const struct fr_staging_packing *slice, uintptr_t shaped)
{
    struct fr_staging_lease packed;
    enum fr_status status = fr_staging_try_borrow(slice->bytes, &packed);
    if (status != FR_OK)
        return status;
    fr_staging_copy_shaped(slice->layout, slice->count, shaped, packed.address, slice->bytes, true);
    status =
        copy_now(slice->view, FR_FROM_STAGE, slice->stage, (uintptr_t)packed.address, slice->bytes);
    fr_staging_return(&packed);
    return status;
}

static enum fr_status pack_slice(const struct fr_staging_packing *slice)
{
    struct fr_staging_lease lease;
    uintptr_t low, high;
    fr_staging_packing_span(slice, &low, &high);
    enum fr_status status = fr_staging_try_borrow(high - low, &lease);
    if (status != FR_OK)
        return status;
    uintptr_t shaped = (uintptr_t)lease.address + (slice->user - low);
    status = copy_now(slice->view, FR_TO_STAGE, (uintptr_t)lease.address, low, high - low);
    if (status == FR_OK && slice->view->path != FR_PATH_HOST)
        status = pack_through(slice, shaped);
    else if (status == FR_OK)
        fr_staging_copy_shaped(slice->layout, slice->count, shaped, (void *)slice->stage,
                               slice->bytes, true);
    fr_staging_return(&lease);
    return status;
}

// Packs some elements at a time, as many as span no more than the bound.
static enum fr_status pack_slices(const struct fr_staging_packing *packing)
{
    const struct fr_layout *layout = packing->layout;
    size_t extent = (size_t)(layout->extent < 0 ? -layout->extent : layout->extent);
    size_t room = SPAN_MOST - layout->true_extent;
    size_t most = extent == 0 ? packing->count : 1 + room / extent;
    enum fr_status status = FR_OK;
    for (size_t first = 0, done = 0; done < packing->bytes && status == FR_OK;) {
        struct fr_staging_packing slice = *packing;
        slice.count = packing->count - first < most ? packing->count - first : most;
        size_t whole = slice.count * layout->size_bytes;
        slice.bytes = packing->bytes - done < whole ? packing->bytes - done : whole;
        slice.user += (uintptr_t)((ptrdiff_t)first * layout->extent);
        slice.stage += done;
        status = pack_slice(&slice);
        first += slice.count;
        done += slice.bytes;
    }
    return status;
}

bool fr_staging_pack_on_host(const struct fr_staging_packing *packing,
                             const struct fr_policy_pieces *pieces, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    uintptr_t low, high;
    fr_staging_packing_span(packing, &low, &high);
    if (packing->direction != FR_TO_STAGE || view->shape != FR_SHAPE_PACKED ||
        packing->layout->true_extent > SPAN_MOST || batch->status != FR_OK ||
        !fr_policy_packs_on_host(pieces, high - low, packing->bytes) ||
        !fr_device_range_is_open(&view->range, low, high))
        return false;
    enum fr_status status = pack_slices(packing);
    if (status == FR_ERR_NO_MEMORY)
        return false; // for the spanned bytes
    batch->status = status;
    return true;
}
