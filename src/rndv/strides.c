// SPDX-License-Identifier: BSD-3-Clause
// The layout of a sender's buffer as it travels with a message: levels of strides in a few words.
#include "config.h"

#include "fabrail/datatype.h"
#include "fabrail/device/pack.h"
#include "rndv/rndv_int.h"

#include <stdlib.h>

static bool is_wide(int64_t units)
{
    return units < INT32_MIN || units > INT32_MAX;
}

bool fr_rndv_strides_of(const struct fr_pack_shape *shape, struct fr_rndv_strides *strides)
{
    struct fr_rndv_strides found = {.unit = shape->align};
    int64_t unit = shape->align;
    uint64_t block = shape->period / shape->align;
    bool fits = shape->blocks == 0 && block <= UINT32_MAX;
    for (uint32_t i = 0; i < shape->levels && fits; i++) {
        uint64_t count = i + 1 < shape->levels ? shape->level[i].count : 0;
        fits = !is_wide(shape->level[i].stride / unit) && count <= UINT32_MAX;
        found.stride[i] = (int32_t)(shape->level[i].stride / unit);
        if (i + 1 < shape->levels)
            found.count[i] = (uint32_t)count;
    }
    found.block = (uint32_t)block;
    if (fits)
        *strides = found;
    return fits;
}

void fr_rndv_strides_shape(const struct fr_rndv_strides *strides, struct fr_pack_shape *shape)
{
    uint64_t unit = strides->unit;
    *shape = (struct fr_pack_shape){
        .period = strides->block * unit,
        .align = strides->unit,
    };
    do {
        shape->level[shape->levels].stride = strides->stride[shape->levels] * (int64_t)unit;
        if (shape->levels < FR_ARRAY_LENGTH(strides->count))
            shape->level[shape->levels].count = strides->count[shape->levels];
    } while (shape->level[shape->levels++].count > 0);
}

// Makes the groups of one element: the two inner levels are one group, the third makes several.
static enum fr_status make_layout(const struct fr_rndv_strides *strides, struct fr_layout *layout)
{
    size_t unit = strides->unit, bytes = strides->block * unit, packed = bytes;
    struct fr_datatype_group group = {.bytes = bytes, .n = {1, 1}};
    unsigned level = 0;
    for (; level < 2 && strides->count[level] > 0; level++) {
        group.n[level] = strides->count[level];
        group.stride[level] = strides->stride[level] * (ptrdiff_t)unit;
        group.packed_stride[level] = packed;
        packed *= group.n[level];
    }
    bool is_third = level == 2 && strides->count[2] > 0;
    size_t count = is_third ? strides->count[2] : 1;
    struct fr_datatype_group *groups = malloc(count * sizeof(*groups));
    if (groups == NULL)
        return FR_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        groups[i] = group;
        groups[i].offset = (ptrdiff_t)i * strides->stride[2] * (ptrdiff_t)unit;
        groups[i].packed = i * packed;
    }
    *layout = (struct fr_layout){
        .size_bytes = packed * count,
        .extent = strides->stride[level + is_third] * (ptrdiff_t)unit,
        .group_count = count,
        .groups = groups,
    };
    return FR_OK;
}

struct strided_copy {
    uintptr_t source, packed;
    const struct fr_device_range *range;
    struct fr_device_batch batch;
};

static enum fr_status copy_piece(void *context, const struct fr_datatype_copy *piece)
{
    struct strided_copy *copy = context;
    const struct fr_device_copy one = {
        .dst = (void *)(copy->packed + (uintptr_t)piece->stage_offset),
        .src = (const void *)(copy->source + (uintptr_t)piece->user_offset),
        .bytes = piece->bytes,
        .n = {piece->n[0], piece->n[1]},
        .dst_stride = {piece->stage_stride[0], piece->stage_stride[1]},
        .src_stride = {piece->user_stride[0], piece->user_stride[1]},
        .own = true,
    };
    fr_device_batch_copy(&copy->batch, copy->range, FR_TO_STAGE, &one);
    return copy->batch.status;
}

enum fr_status fr_rndv_strides_copy(const struct fr_rndv_strides *strides, uintptr_t source,
                                    const struct fr_device_range *range, uintptr_t packed,
                                    size_t bytes)
{
    struct fr_layout layout;
    struct strided_copy copy = {.source = source, .packed = packed, .range = range};
    enum fr_status status = make_layout(strides, &layout);
    if (status != FR_OK)
        return status;
    size_t count = (bytes + layout.size_bytes - 1) / layout.size_bytes;
    fr_device_batch_begin(&copy.batch);
    enum fr_status in_batch = fr_datatype_visit(&layout, count, true, bytes, copy_piece, &copy);
    (void)in_batch;
    free(layout.groups);
    return fr_device_batch_finish(&copy.batch);
}
