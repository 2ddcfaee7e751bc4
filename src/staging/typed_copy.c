// SPDX-License-Identifier: BSD-3-Clause
// Packing by kernel, or by the CPU: which copies each serves.
#include "config.h"

#include "fabrail/staging/typed_copy.h"

#include "fabrail/device/pack.h"
#include "fabrail/staging/packed.h"
#include "fabrail/staging/tables.h"
#include "staging/staging_int.h"

#include <stdlib.h>

#define SPAN_MOST ((size_t)256 << 20)

enum { SPAN_PART = 16 }; // a span of more times its data is not read as a whole

// Returns the number of driver calls for a piece. One call copies rows that lie apart in order, or
// planes that are a whole number of rows apart.
static size_t calls_of(const struct fr_datatype_copy *piece)
{
    const ptrdiff_t *stride = piece->user_stride;
    if (piece->n[0] == 1 && piece->n[1] == 1)
        return 1;
    if (piece->n[0] > 1 && stride[0] < (ptrdiff_t)piece->bytes)
        return piece->n[0] * piece->n[1];
    if (piece->n[1] == 1)
        return 1;
    bool is_boxed = piece->n[0] > 1 && stride[1] >= 0 && stride[1] % stride[0] == 0 &&
                    (size_t)(stride[1] / stride[0]) >= piece->n[0];
    return is_boxed ? 1 : piece->n[1];
}

static enum fr_status count_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct fr_policy_pieces *pieces = context;
    pieces->calls += calls_of(piece);
    pieces->blocks += piece->n[0] * piece->n[1];
    pieces->bytes += piece->n[0] * piece->n[1] * piece->bytes;
    return pieces->calls > FR_POLICY_MOST_CALLS ? FR_ERR_LIMIT : FR_OK;
}

static bool is_packed(const struct fr_staging_packing *packing)
{
    return packing->view->shape == FR_SHAPE_PACKED;
}

static bool reaches_stage(const struct fr_staging_view *view)
{
    return view->path != FR_PATH_HOST ||
           (fr_staging_is_pinned(&view->lease) && fr_device_reaches_host(view->lease.address));
}

// Writes the address of the first byte of the program's that the copy touches, and of the byte
// behind the last.
static void span_of(const struct fr_staging_packing *packing, uintptr_t *low, uintptr_t *high)
{
    const struct fr_layout *layout = packing->layout;
    size_t elements = (packing->bytes + layout->size_bytes - 1) / layout->size_bytes, bytes = 0;
    ptrdiff_t first = 0;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, elements, &first,
                     &bytes);
    *low = packing->user + (uintptr_t)first;
    *high = *low + bytes;
}

static void release_lease(void *object)
{
    fr_staging_return(object);
    free(object);
}

// Borrows device memory for the packed bytes, in place of host memory that no kernel reaches.
// Returns NULL where there is none.
static struct fr_staging_lease *borrow_bounce(const struct fr_staging_packing *packing)
{
    struct fr_staging_lease *bounce = is_packed(packing) ? malloc(sizeof(*bounce)) : NULL;
    if (bounce &&
        fr_staging_borrow_device(packing->view->range.device, packing->bytes, bounce) != FR_OK) {
        free(bounce);
        bounce = NULL;
    }
    return bounce;
}

// Starts the copy between that device memory and the host memory, on the stream of the kernel.
static void copy_bounce(const struct fr_staging_packing *packing,
                        const struct fr_staging_lease *bounce, struct fr_device_batch *batch)
{
    bool out = packing->direction == FR_FROM_STAGE;
    const struct fr_device_copy copy = {
        .dst = out ? bounce->address : (void *)packing->stage,
        .src = out ? (const void *)packing->stage : bounce->address,
        .bytes = packing->bytes,
        .n = {1, 1},
        .own = true,
    };
    fr_device_batch_copy(batch, &packing->view->range, packing->direction, &copy);
}

// Launches the kernel, with its bounce copy before or behind it. Returns whether the driver took
// it.
static bool start_kernel(const struct fr_staging_packing *packing, struct fr_device_packing *copy,
                         struct fr_staging_lease *bounce, struct fr_device_batch *batch)
{
    const struct fr_device_range *range = &packing->view->range;
    unsigned max_sms = (unsigned)fr_core_settings()->peer_sms;
    if (bounce)
        copy->packed = (uintptr_t)bounce->address;
    if (bounce && packing->direction == FR_FROM_STAGE)
        copy_bounce(packing, bounce, batch);
    bool launched = fr_device_batch_pack(batch, range, packing->direction, copy, max_sms);
    if (bounce && launched && packing->direction == FR_TO_STAGE)
        copy_bounce(packing, bounce, batch);
    if (bounce)
        fr_device_batch_hold(batch, release_lease, bounce);
    return launched;
}

static bool pack_by_kernel(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    if (!fr_device_pack_is_possible(&view->range))
        return false;
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(packing->layout);
    if (!compiled)
        return false;
    struct fr_device_packing copy = {
        .shape = &compiled->shape,
        .user = packing->user,
        .packed = packing->stage,
        .last = packing->bytes,
        .keeps_gaps = !is_packed(packing),
    };
    span_of(packing, &copy.low, &copy.high);
    if (!fr_device_range_is_open(&view->range, copy.low, copy.high))
        return false;
    struct fr_staging_table *table = NULL;
    if (compiled->table && fr_pack_table_bytes(&compiled->shape) <= FR_PACK_INLINE_BYTES) {
        copy.small_table = compiled->table;
    } else if (compiled->table) {
        table = fr_staging_table_borrow(compiled, view->range.device);
        if (!table)
            return false;
        copy.table = fr_staging_table_address(table);
    }
    bool reaches = reaches_stage(view), launched = false;
    struct fr_staging_lease *bounce = reaches ? NULL : borrow_bounce(packing);
    if (reaches || bounce)
        launched = start_kernel(packing, &copy, bounce, batch);
    if (table)
        fr_device_batch_hold(batch, fr_staging_table_return, table);
    return launched;
}

static enum fr_status fetch(const struct fr_staging_view *view, uintptr_t dst, uintptr_t src,
                            size_t bytes)
{
    struct fr_device_batch batch;
    const struct fr_device_copy copy = {
        .dst = (void *)dst, .src = (const void *)src, .bytes = bytes, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &view->range, FR_TO_STAGE, &copy);
    return fr_device_batch_finish(&batch);
}

// Copies the span to host memory, gaps and all, and packs there. Unpacking cannot be done like
// that, since what stands in the gaps may change meanwhile.
static bool pack_by_cpu(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    uintptr_t low, high;
    span_of(packing, &low, &high);
    size_t span = high - low;
    if (packing->direction != FR_TO_STAGE || !is_packed(packing) || view->path != FR_PATH_HOST ||
        span > SPAN_MOST || span / SPAN_PART > packing->bytes)
        return false;
    struct fr_staging_lease lease;
    if (fr_staging_borrow(span, &lease) != FR_OK)
        return false;
    enum fr_status status = fetch(view, (uintptr_t)lease.address, low, span);
    if (status == FR_OK)
        fr_staging_copy_shaped(packing->layout, packing->count,
                               (uintptr_t)lease.address + (packing->user - low),
                               (void *)packing->stage, packing->bytes, true);
    fr_staging_return(&lease);
    if (batch->status == FR_OK)
        batch->status = status;
    return true;
}

struct fr_policy_pieces fr_staging_count_pieces(const struct fr_layout *layout, size_t count,
                                                bool packed, size_t bytes)
{
    struct fr_policy_pieces pieces = {0};
    enum fr_status is_whole = fr_datatype_visit(layout, count, packed, bytes, count_piece, &pieces);
    (void)is_whole;
    return pieces;
}

enum fr_staging_way fr_staging_pack(const struct fr_staging_packing *packing,
                                    struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    if (!fr_device_owns(&view->range) || view->mixed || packing->bytes == 0 ||
        !fr_staging_view_is_in_range(view))
        return FR_TYPED_BY_DRIVER;
    struct fr_policy_pieces pieces = fr_staging_count_pieces(packing->layout, packing->count,
                                                             is_packed(packing), packing->bytes);
    if (!fr_policy_choose_packing(&pieces).by_kernel)
        return FR_TYPED_BY_DRIVER;
    if (pack_by_kernel(packing, batch))
        return FR_TYPED_BY_KERNEL;
    bool is_too_many = pieces.calls > FR_POLICY_MOST_CALLS;
    return is_too_many && pack_by_cpu(packing, batch) ? FR_TYPED_BY_CPU : FR_TYPED_BY_DRIVER;
}
