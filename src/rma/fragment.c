// SPDX-License-Identifier: BSD-3-Clause
// Fragments of an access, as runs of bytes at the target.
#include "config.h"

#include "rma/fragment.h"

#include <stdlib.h>

static enum fr_status grow(struct fr_rma_fragment *fragment)
{
    uint32_t room = fragment->room > 0 ? 4 * fragment->room : 8;
    if (fragment->room == FR_RMA_MOST_RUNS)
        return FR_ERR_LIMIT;
    room = room < FR_RMA_MOST_RUNS ? room : FR_RMA_MOST_RUNS;
    struct fr_rma_run *runs = reallocarray(fragment->runs, room, sizeof(*runs));
    if (!runs)
        return FR_ERR_NO_MEMORY;
    fragment->runs = runs;
    fragment->room = room;
    return FR_OK;
}

void fr_rma_fragment_free(struct fr_rma_fragment *fragment)
{
    free(fragment->runs);
}

static enum fr_status add_run(struct fr_rma_fragment *fragment, const struct fr_rma_run *run)
{
    enum fr_status status = fragment->count == fragment->room ? grow(fragment) : FR_OK;
    if (status != FR_OK)
        return status;
    fragment->runs[fragment->count++] = *run;
    return FR_OK;
}

// Adds what of one row is in the fragment.
static enum fr_status add_row(struct fr_rma_fragment *fragment, ptrdiff_t offset, size_t at,
                              size_t bytes)
{
    size_t first = at > fragment->first ? at : fragment->first;
    size_t last = at + bytes < fragment->last ? at + bytes : fragment->last;
    if (first >= last)
        return FR_OK;
    return add_run(fragment, &(struct fr_rma_run){.offset = offset + (ptrdiff_t)(first - at),
                                                  .at = (uint32_t)(first - fragment->first),
                                                  .bytes = (uint32_t)(last - first),
                                                  .count = 1});
}

// Adds what of `n` rows is in the fragment: those between the first and the last that it cuts go as
// one run.
static enum fr_status add_rows(struct fr_rma_fragment *fragment, ptrdiff_t offset, size_t at,
                               size_t bytes, size_t n, ptrdiff_t stride, size_t step)
{
    enum fr_status status = FR_OK;
    if (n == 1 || at >= fragment->last || at + (n - 1) * step + bytes <= fragment->first)
        return add_row(fragment, offset, at, n == 1 ? bytes : 0);
    size_t low = at >= fragment->first ? 0 : (fragment->first - at + step - 1) / step;
    size_t high = 0; // rows from here on are not in the fragment as a whole
    if (fragment->last >= at + bytes)
        high = (fragment->last - at - bytes) / step + 1;
    high = high < n ? high : n;
    if (low > 0)
        status =
            add_row(fragment, offset + (ptrdiff_t)(low - 1) * stride, at + (low - 1) * step, bytes);
    if (status == FR_OK && low < high)
        status = add_run(fragment,
                         &(struct fr_rma_run){.offset = offset + (ptrdiff_t)low * stride,
                                              .stride = stride,
                                              .at = (uint32_t)(at + low * step - fragment->first),
                                              .step = (uint32_t)step,
                                              .bytes = (uint32_t)bytes,
                                              .count = (uint32_t)(high - low)});
    if (status == FR_OK && high < n && high >= low)
        status = add_row(fragment, offset + (ptrdiff_t)high * stride, at + high * step, bytes);
    return status;
}

// The longer of two levels becomes the rows, so that there are few runs.
static enum fr_status add_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct fr_rma_fragment *fragment = context;
    enum fr_status status = FR_OK;
    const unsigned rows = piece->n[1] > piece->n[0], planes = !rows;
    for (size_t plane = 0; plane < piece->n[planes] && status == FR_OK; plane++)
        status = add_rows(
            fragment,
            fragment->offset + piece->user_offset + (ptrdiff_t)plane * piece->user_stride[planes],
            fragment->packed +
                (size_t)(piece->stage_offset + (ptrdiff_t)plane * piece->stage_stride[planes]),
            piece->bytes, piece->n[rows], piece->user_stride[rows],
            (size_t)piece->stage_stride[rows]);
    return status;
}

enum fr_status fr_rma_fragment_find(const struct fr_rma_target *target,
                                    struct fr_rma_fragment *fragment)
{
    const struct fr_layout *layout = target->block.layout;
    size_t element = fragment->first / layout->size_bytes;
    size_t end = (fragment->last + layout->size_bytes - 1) / layout->size_bytes;
    fragment->count = 0;
    fragment->packed = element * layout->size_bytes;
    fragment->offset = (ptrdiff_t)(target->view.base - target->part->address) +
                       (ptrdiff_t)element * layout->extent;
    return fr_datatype_visit(layout, end - element, true, SIZE_MAX, add_piece, fragment);
}
