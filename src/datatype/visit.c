// SPDX-License-Identifier: BSD-3-Clause
// Finds the strided copies for a layout, a count and a limit in bytes.
#include "config.h"

#include "datatype/datatype_int.h"

struct visitor {
    bool packed;
    fr_datatype_visit_fn visit;
    void *context;
};

static enum fr_status show(const struct visitor *visitor, const struct fr_datatype_group *group)
{
    struct fr_datatype_copy copy = {
        .user_offset = group->offset,
        .stage_offset = visitor->packed ? (ptrdiff_t)group->packed : group->offset,
        .bytes = group->bytes,
    };
    for (unsigned level = 0; level < 2; level++) {
        copy.n[level] = group->n[level];
        copy.user_stride[level] = group->stride[level];
        copy.stage_stride[level] =
            visitor->packed ? (ptrdiff_t)group->packed_stride[level] : group->stride[level];
    }
    return visitor->visit(visitor->context, &copy);
}

// Shows the visitor a group for each of the first `count` elements.
static enum fr_status show_elements(const struct visitor *visitor, const struct fr_layout *layout,
                                    const struct fr_datatype_group *original, size_t count)
{
    struct fr_datatype_group group = *original;
    struct fr_datatype_steps steps;
    fr_datatype_group_repeat(&group, count, layout->extent, layout->size_bytes, &steps);
    for (size_t i = 0; i < steps.copies; i++) {
        enum fr_status status = show(visitor, &group);
        if (status != FR_OK)
            return status;
        group.offset += steps.user;
        group.packed += steps.packed;
    }
    return FR_OK;
}

// Returns how many entries of a level lie in full below `bytes` packed bytes from the group's
// first.
static size_t whole_entries(size_t n, size_t entry_bytes, size_t packed_stride, size_t bytes)
{
    if (bytes < entry_bytes)
        return 0;
    if (n == 1)
        return 1;
    size_t whole = (bytes - entry_bytes) / packed_stride + 1;
    return whole < n ? whole : n;
}

// Shows the first `n` entries of a level and moves the group to what comes behind them, of which
// one entry is left. *more becomes false where that lies beyond *bytes, which shrinks with it.
static enum fr_status show_whole(const struct visitor *visitor, struct fr_datatype_group *group,
                                 unsigned level, size_t n, size_t *bytes, bool *more)
{
    struct fr_datatype_group whole = *group;
    enum fr_status status = FR_OK;
    whole.n[level] = n;
    if (n > 0)
        status = show(visitor, &whole);
    size_t passed = n * group->packed_stride[level];
    *more = n < group->n[level] && passed < *bytes;
    if (*more) {
        group->offset += (ptrdiff_t)n * group->stride[level];
        group->packed += passed;
        *bytes -= passed;
    }
    group->n[level] = 1;
    group->stride[level] = 0;
    group->packed_stride[level] = 0;
    return status;
}

// Shows the part of a group below the packed offset `end`: whole planes, whole rows of the plane
// that the end cuts, and the first bytes of the row that it cuts.
static enum fr_status show_head(const struct visitor *visitor,
                                const struct fr_datatype_group *original, size_t end)
{
    struct fr_datatype_group group = *original;
    bool more = false;
    if (group.packed >= end)
        return FR_OK;
    size_t bytes = end - group.packed;
    size_t plane = (group.n[0] - 1) * group.packed_stride[0] + group.bytes;
    size_t planes = whole_entries(group.n[1], plane, group.packed_stride[1], bytes);
    enum fr_status status = show_whole(visitor, &group, 1, planes, &bytes, &more);
    if (status != FR_OK || !more)
        return status;
    size_t rows = whole_entries(group.n[0], group.bytes, group.packed_stride[0], bytes);
    status = show_whole(visitor, &group, 0, rows, &bytes, &more);
    if (status != FR_OK || !more)
        return status;
    if (group.bytes > bytes)
        group.bytes = bytes;
    return show(visitor, &group);
}

enum fr_status fr_datatype_visit(const struct fr_layout *layout, size_t count, bool packed,
                                 size_t limit_bytes, fr_datatype_visit_fn visit, void *context)
{
    struct visitor visitor = {packed, visit, context};
    if (layout->size_bytes == 0)
        return FR_OK;
    size_t fitting = limit_bytes / layout->size_bytes;
    size_t whole = fitting < count ? fitting : count;
    size_t rest = whole < count ? limit_bytes % layout->size_bytes : 0;
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < layout->group_count && whole > 0 && status == FR_OK; i++)
        status = show_elements(&visitor, layout, &layout->groups[i], whole);
    for (size_t i = 0; i < layout->group_count && rest > 0 && status == FR_OK; i++) {
        struct fr_datatype_group group = layout->groups[i];
        group.offset += (ptrdiff_t)whole * layout->extent;
        group.packed += whole * layout->size_bytes;
        status = show_head(&visitor, &group, whole * layout->size_bytes + rest);
    }
    return status;
}
