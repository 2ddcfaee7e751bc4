// SPDX-License-Identifier: BSD-3-Clause
// Measuring of views: the bytes that a view spans, and the range of its memory.
#include "config.h"

#include "fabrail/staging/path.h"

static size_t block_bytes(const struct fr_staging_view_block *block)
{
    return block->count * block->layout->size_bytes;
}

// Widens [*first, *last) by the bytes that one block uses.
static void widen(const struct fr_staging_view_block *block, ptrdiff_t *first, ptrdiff_t *last)
{
    const struct fr_layout *layout = block->layout;
    ptrdiff_t low = 0;
    size_t bytes = 0;
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, block->count, &low,
                     &bytes);
    low += block->user_offset;
    ptrdiff_t high = low + (ptrdiff_t)bytes;
    *first = low < *first ? low : *first;
    *last = high > *last ? high : *last;
}

struct classify_context {
    uintptr_t base;
    struct fr_staging_view *view;
    bool started; // a first run has been classified
};

static void take_in(struct classify_context *context, const struct fr_device_range *run)
{
    struct fr_staging_view *view = context->view;
    if (context->started && run->device != view->range.device) // -1 on the host
        view->mixed = true;
    context->started = true;
    if (!fr_device_range_is_final(&view->range) &&
        (!fr_device_owns(&view->range) || fr_device_owns(run)))
        view->range = *run;
}

static bool is_inside(const struct fr_device_range *range, uintptr_t low, size_t bytes)
{
    uintptr_t offset = low - range->base;
    return fr_device_owns(range) && offset <= range->bytes && bytes <= range->bytes - offset;
}

// Up to so many rows can be separate memory that happens to stand equally far apart. More rows
// belong to one array.
enum { MOST_APART = 64 };

// Classifies the bytes of the first `levels` levels of a piece, from `first` on. Looks at both
// ends, or at each row where rows need not be of one allocation.
static void classify_rows(struct classify_context *context, const struct fr_datatype_copy *piece,
                          uintptr_t first, int levels)
{
    uintptr_t low = first, high = first + piece->bytes;
    while (levels > 0 && piece->n[levels - 1] == 1)
        levels--;
    for (int i = 0; i < levels; i++) {
        ptrdiff_t reach = (ptrdiff_t)(piece->n[i] - 1) * piece->user_stride[i];
        if (reach < 0)
            low += (uintptr_t)reach;
        else
            high += (uintptr_t)reach;
    }
    struct fr_device_range run;
    fr_device_classify((const void *)low, high - low, &run);
    if (levels == 0 || piece->n[levels - 1] > MOST_APART || is_inside(&run, low, high - low)) {
        take_in(context, &run);
        return;
    }
    for (size_t i = 0; i < piece->n[levels - 1]; i++) {
        classify_rows(context, piece, first, levels - 1);
        first += (uintptr_t)piece->user_stride[levels - 1];
    }
}

static enum fr_status classify_run(void *data, const struct fr_datatype_copy *piece)
{
    struct classify_context *context = data;
    const struct fr_staging_view *view = context->view;
    if (!fr_device_range_is_final(&view->range) || !view->mixed)
        classify_rows(context, piece, context->base + (uintptr_t)piece->user_offset, 2);
    return FR_OK;
}

// Classifies a view of absolute addresses. They can mix host and device memory, so every run is
// classified. Addresses that lie together in one allocation are like any others from then on.
static void classify_absolute(struct fr_staging_view *view)
{
    struct classify_context context = {.view = view};
    for (size_t i = 0; i < view->block_count; i++) {
        context.base = view->base + (uintptr_t)view->blocks[i].user_offset;
        enum fr_status never_fails = fr_datatype_visit(
            view->blocks[i].layout, view->blocks[i].count, false, SIZE_MAX, classify_run, &context);
        (void)never_fails;
    }
    view->absolute =
        view->mixed || !fr_device_owns(&view->range) || !fr_staging_view_is_in_range(view);
}

FR_OFTEN void fr_staging_view_measure(struct fr_staging_view *view)
{
    ptrdiff_t first = PTRDIFF_MAX, last = PTRDIFF_MIN;
    view->in_bytes = 0;
    view->out_bytes = 0;
    for (size_t i = 0; i < view->block_count; i++) {
        const struct fr_staging_view_block *block = &view->blocks[i];
        if (!block_bytes(block))
            continue;
        widen(block, &first, &last);
        view->in_bytes += block->in ? block_bytes(block) : 0;
        view->out_bytes += block->out ? block_bytes(block) : 0;
    }
    view->range = (struct fr_device_range)FR_DEVICE_HOST;
    view->mixed = false;
    view->first = last > first ? first : 0;
    view->span = last > first ? (size_t)(last - first) : 0;
    if (!view->span)
        return;
    if (view->absolute)
        classify_absolute(view);
    else
        fr_device_classify_argument((const void *)(view->base + (uintptr_t)view->first), view->span,
                                    &view->range);
}

void fr_staging_views_measure(struct fr_staging_view *views, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fr_staging_view_measure(&views[i]);
}

FR_OFTEN bool fr_staging_view_is_in_one_piece(const struct fr_staging_view *view)
{
    return view->block_count == 1 && view->blocks[0].layout->contiguous && !view->absolute &&
           fr_staging_view_is_in_range(view);
}
