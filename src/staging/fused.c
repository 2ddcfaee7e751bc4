// SPDX-License-Identifier: BSD-3-Clause
// Copies from a peer's memory into the layout of a view.
#include "config.h"

#include "fabrail/staging/fused.h"

#include "fabrail/device/pack.h"
#include "fabrail/staging/tables.h"

bool fr_staging_fuses(const struct fr_staging_view *view)
{
    uintptr_t low = view->base + (uintptr_t)view->first;
    return fr_device_owns(&view->range) && !view->absolute && view->block_count == 1 &&
           view->span > 0 && fr_staging_view_is_in_range(view) &&
           fr_device_has_kernels(&view->range, FR_IMAGE_PACK) &&
           fr_device_range_is_open(&view->range, low, low + view->span) &&
           (view->blocks[0].layout->contiguous ||
            fr_datatype_compiled_get(view->blocks[0].layout) != NULL);
}

static bool launch(const struct fr_staging_fused *fused, struct fr_device_packing *packing,
                   enum fr_device_direction direction, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = fused->view;
    packing->low = view->base + (uintptr_t)view->first;
    packing->high = packing->low + view->span;
    packing->first = fused->first;
    packing->last = fused->last;
    return fr_device_batch_pack(batch, &view->range, direction, packing,
                                (unsigned)fr_core_settings()->peer_sms);
}

bool fr_staging_fuse(const struct fr_staging_fused *fused, struct fr_device_batch *batch)
{
    const struct fr_staging_view *view = fused->view;
    const struct fr_layout *layout = view->blocks[0].layout;
    uintptr_t user = view->base + (uintptr_t)view->blocks[0].user_offset;
    struct fr_device_packing packing = {.user = user,
                                        .packed = fused->source,
                                        .far = fused->far,
                                        .far_table = fused->far_table,
                                        .gate = fused->gate};
    if (layout->contiguous) {
        packing = (struct fr_device_packing){.shape = fused->far,
                                             .table = fused->far_table,
                                             .user = fused->source,
                                             .packed = user + fused->first};
        return launch(fused, &packing, FR_TO_STAGE, batch);
    }
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(layout);
    struct fr_staging_table *table = NULL;
    if (compiled == NULL)
        return false;
    packing.shape = &compiled->shape;
    if (fused->are_alike) { // one side is told of, and the other one has the same gaps
        packing.far = NULL;
        packing.keeps_gaps = true;
        packing.packed = fused->source - (uintptr_t)compiled->shape.offset;
    }
    if (compiled->table != NULL && packing.far == NULL &&
        fr_pack_table_bytes(&compiled->shape) <= FR_PACK_INLINE_BYTES) {
        packing.small_table = compiled->table;
    } else if (compiled->table != NULL) {
        table = fr_staging_table_borrow(compiled, view->range.device);
        if (table == NULL)
            return false;
        packing.table = fr_staging_table_address(table);
    }
    bool launched = launch(fused, &packing, FR_FROM_STAGE, batch);
    if (table != NULL)
        fr_device_batch_hold(batch, fr_staging_table_return, table);
    return launched;
}
