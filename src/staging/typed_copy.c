// SPDX-License-Identifier: BSD-3-Clause
// Copies of datatypes by kernel, by the CPU, and by many calls of the driver or few: which copies
// each serves.
#include "config.h"

#include "fabrail/staging/typed_copy.h"

#include "fabrail/device/pack.h"
#include "fabrail/device/runs.h"
#include "fabrail/staging/tables.h"
#include "staging/staging_int.h"

#include <stdlib.h>

struct counting {
    struct fr_policy_pieces pieces;
    size_t most_calls;
};

static enum fr_status count_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct counting *counting = context;
    struct fr_policy_pieces *pieces = &counting->pieces;
    const struct fr_device_copy copy = {
        .bytes = piece->bytes,
        .n = {piece->n[0], piece->n[1]},
        .dst_stride = {piece->stage_stride[0], piece->stage_stride[1]},
        .src_stride = {piece->user_stride[0], piece->user_stride[1]},
    };
    pieces->calls += fr_device_copy_calls(&copy);
    pieces->blocks += piece->n[0] * piece->n[1];
    pieces->bytes += piece->n[0] * piece->n[1] * piece->bytes;
    return pieces->calls > counting->most_calls ? FR_ERR_LIMIT : FR_OK;
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

// Returns what a kernel takes of the layout, and writes the bounds of the bytes. Returns NULL where
// no kernel can make the copy.
static const struct fr_datatype_compiled *
compiled_for_kernel(const struct fr_staging_packing *packing, uintptr_t *low, uintptr_t *high)
{
    const struct fr_device_range *range = &packing->view->range;
    if (!fr_device_has_kernels(range, FR_IMAGE_PACK))
        return NULL;
    fr_staging_packing_span(packing, low, high);
    return fr_device_range_is_open(range, *low, *high) ? fr_datatype_compiled_get(packing->layout)
                                                       : NULL;
}

static bool pack_by_kernel(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    uintptr_t low, high;
    const struct fr_datatype_compiled *compiled = compiled_for_kernel(packing, &low, &high);
    if (!compiled)
        return false;
    struct fr_device_packing copy = {
        .shape = &compiled->shape,
        .user = packing->user,
        .packed = packing->stage,
        .last = packing->bytes,
        .keeps_gaps = !is_packed(packing),
        .low = low,
        .high = high,
    };
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

struct fr_policy_pieces fr_staging_count_pieces(const struct fr_layout *layout, size_t count,
                                                bool packed, size_t bytes, size_t most_calls)
{
    struct counting counting = {.most_calls = most_calls};
    enum fr_status is_whole =
        fr_datatype_visit(layout, count, packed, bytes, count_piece, &counting);
    (void)is_whole;
    return counting.pieces;
}

static struct fr_policy_pieces count_pieces(const struct fr_staging_packing *packing,
                                            size_t most_calls)
{
    return fr_staging_count_pieces(packing->layout, packing->count, is_packed(packing),
                                   packing->bytes, most_calls);
}

// Returns whether a kernel is the fastest, if one can be launched. The first pieces tell: there
// can be very many, and each message would count them.
static bool wants_kernel(const struct fr_staging_packing *packing)
{
    const struct fr_staging_view *view = packing->view;
    bool is_plain = fr_device_owns(&view->range) && !view->mixed && packing->bytes > 0 &&
                    fr_staging_view_is_in_range(view);
    if (!is_plain)
        return false;
    struct fr_policy_pieces pieces = count_pieces(packing, FR_POLICY_FEW_CALLS);
    return fr_policy_choose_packing(&pieces).by_kernel;
}

// Starts one copy of all that the blocks span to host memory of the same shape, which is Fabrail's
// own, gaps and all. Without a kernel that is done where the CPU would pack.
static bool copy_with_gaps(const struct fr_staging_packing *packing, bool has_kernel,
                           struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = packing->view;
    uintptr_t low, high;
    if (packing->direction != FR_TO_STAGE || is_packed(packing) || view->path != FR_PATH_HOST)
        return false;
    struct fr_policy_pieces pieces = count_pieces(packing, FR_POLICY_MOST_CALLS);
    fr_staging_packing_span(packing, &low, &high);
    bool pays = has_kernel ? fr_policy_copies_gaps(&pieces, high - low)
                           : fr_policy_packs_on_host(&pieces, high - low, packing->bytes);
    if (!pays || !fr_device_range_is_open(&view->range, low, high))
        return false;
    const struct fr_device_copy copy = {
        .dst = (void *)(packing->stage + (low - packing->user)),
        .src = (const void *)low,
        .bytes = high - low,
        .n = {1, 1},
    };
    fr_device_batch_copy(batch, &view->range, packing->direction, &copy);
    return true;
}

// A copy by the driver, piece by piece.
struct piecewise {
    const struct fr_staging_packing *packing;
    struct fr_device_runs runs;
};

static enum fr_status add_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct piecewise *piecewise = context;
    const struct fr_staging_packing *packing = piecewise->packing;
    bool out = packing->direction == FR_FROM_STAGE;
    uintptr_t stage = packing->stage + (uintptr_t)piece->stage_offset;
    uintptr_t user = packing->user + (uintptr_t)piece->user_offset;
    const ptrdiff_t *dst_stride = out ? piece->user_stride : piece->stage_stride;
    const ptrdiff_t *src_stride = out ? piece->stage_stride : piece->user_stride;
    const struct fr_device_copy copy = {
        .dst = (void *)(out ? user : stage),
        .src = (const void *)(out ? stage : user),
        .bytes = piece->bytes,
        .n = {piece->n[0], piece->n[1]},
        .dst_stride = {dst_stride[0], dst_stride[1]},
        .src_stride = {src_stride[0], src_stride[1]},
        .on_device = packing->view->path != FR_PATH_HOST,
        .mixed = packing->view->mixed,
        .own = packing->view->on_host,
    };
    fr_device_runs_add(&piecewise->runs, &copy);
    return FR_OK; // the batch keeps the first failure
}

static void copy_by_driver(const struct fr_staging_packing *packing, struct fr_device_batch *batch)
{
    struct piecewise piecewise;
    piecewise.packing = packing;
    fr_device_runs_begin(&piecewise.runs, batch, &packing->view->range, packing->direction);
    enum fr_status in_batch = fr_datatype_visit(packing->layout, packing->count, is_packed(packing),
                                                packing->bytes, add_piece, &piecewise);
    (void)in_batch;
    fr_device_runs_end(&piecewise.runs);
}

bool fr_staging_packs_by_kernel(const struct fr_staging_view *view, size_t index)
{
    const struct fr_staging_view_block *block = &view->blocks[index];
    uintptr_t low, high;
    const struct fr_staging_packing packing = {
        .view = view,
        .layout = block->layout,
        .count = block->count,
        .bytes = block->count * block->layout->size_bytes,
        .user = view->base + (uintptr_t)block->user_offset,
        .direction = FR_TO_STAGE,
    };
    return !block->layout->contiguous && wants_kernel(&packing) &&
           compiled_for_kernel(&packing, &low, &high);
}

// Starts the copy in whatever way is the fastest, and returns which it was.
static enum fr_staging_way start(const struct fr_staging_packing *packing,
                                 struct fr_device_batch *batch)
{
    if (wants_kernel(packing)) {
        if (copy_with_gaps(packing, true, batch))
            return FR_TYPED_BY_DRIVER;
        if (pack_by_kernel(packing, batch))
            return FR_TYPED_BY_KERNEL;
        if (copy_with_gaps(packing, false, batch))
            return FR_TYPED_BY_DRIVER;
        struct fr_policy_pieces pieces = count_pieces(packing, FR_POLICY_MOST_CALLS);
        if (fr_staging_pack_on_host(packing, &pieces, batch))
            return FR_TYPED_BY_CPU;
    }
    copy_by_driver(packing, batch);
    return FR_TYPED_BY_DRIVER;
}

static struct {
    _Atomic uint64_t copies, bytes;
} typed_by[FR_TYPED_WAYS];

void fr_staging_count_typed(enum fr_staging_way way, size_t bytes)
{
    atomic_fetch_add_explicit(&typed_by[way].copies, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&typed_by[way].bytes, bytes, memory_order_relaxed);
}

void fr_staging_get_typed(struct fr_staging_typed typed[FR_TYPED_WAYS])
{
    for (int way = 0; way < FR_TYPED_WAYS; way++) {
        typed[way].copies = atomic_load_explicit(&typed_by[way].copies, memory_order_relaxed);
        typed[way].bytes = atomic_load_explicit(&typed_by[way].bytes, memory_order_relaxed);
    }
}

void fr_staging_copy_elements(const struct fr_staging_packing *packing,
                              struct fr_device_batch *batch)
{
    enum fr_staging_way way = start(packing, batch);
    if (!packing->layout->contiguous && packing->bytes > 0 && fr_device_owns(&packing->view->range))
        fr_staging_count_typed(way, packing->bytes);
}
