// SPDX-License-Identifier: BSD-3-Clause
// The layout of a sender's buffer as it travels with a message: levels of strides, and where its
// table is, if it has one.
#include "config.h"

#include "rndv/strides.h"

#include "fabrail/datatype.h"
#include "fabrail/device/pack.h"
#include "fabrail/device/runs.h"
#include "fabrail/ipc.h"
#include "fabrail/staging/tables.h"
#include "rndv/send.h"

#include <stdlib.h>
#include <string.h>

// The table that this thread has last found to be mapped by a receiver.
static FR_TLS struct {
    struct fr_rndv_table table;
    int to;
    uint64_t changes; // fr_ipc_importers_changes, as of before it was found
} last = {.to = -1};

enum fr_status fr_rndv_table_of(const struct fr_rndv_send *send, struct fr_rndv_table *table)
{
    const struct fr_datatype_compiled *compiled = fr_datatype_compiled_get(send->block.layout);
    struct fr_device_range range;
    *table = (struct fr_rndv_table){
        .address = fr_staging_table_address(send->table),
        .hash = compiled->table_hash,
    };
    uint64_t changes = fr_ipc_importers_changes();
    if (last.to == send->address.to && last.changes == changes &&
        last.table.address == table->address && last.table.hash == table->hash &&
        last.table.handle.buffer_id == fr_staging_table_buffer(send->table)) {
        *table = last.table;
        return FR_OK;
    }
    const void *address = (const void *)(uintptr_t)table->address;
    fr_device_classify(address, 1, &range);
    enum fr_status status =
        fr_ipc_export(&range, address, fr_pack_table_bytes(&compiled->shape), &table->handle);
    if (status == FR_OK && !fr_rndv_is_mapped_by(send->address.to, &table->handle, true))
        status = FR_ERR_UNSUPPORTED;
    if (status == FR_OK) {
        last.table = *table;
        last.to = send->address.to;
        last.changes = changes;
    }
    return status;
}

bool fr_rndv_strides_are(const struct fr_device_strides *strides, const struct fr_rndv_table *table,
                         const struct fr_datatype_compiled *compiled)
{
    struct fr_device_strides own;
    return compiled != NULL && fr_device_strides_of(&compiled->shape, &own) &&
           memcmp(&own, strides, sizeof(own)) == 0 &&
           (own.blocks == 0 || table->hash == compiled->table_hash);
}

// Returns the length of block `i` of a unit, which begins with packed byte `at`. Writes its offset.
static size_t block_at(const struct fr_pack_shape *shape, const void *table, uint32_t i, size_t at,
                       ptrdiff_t *offset)
{
    *offset = shape->blocks > 0 ? fr_pack_entry(shape, table, i) : 0;
    if (i + 1 >= shape->blocks)
        return shape->period - at;
    return shape->each.value > 0
               ? shape->each.value
               : (size_t)fr_pack_entry(shape, table, (uint64_t)shape->blocks + i + 1) - at;
}

// Makes the groups of one element. Two inner levels are part of a group; the third, and the blocks
// of a table, make several.
static enum fr_status make_layout(const struct fr_pack_shape *shape, const void *table,
                                  struct fr_layout *layout)
{
    unsigned inner = shape->levels - 1, in_group = inner < 2 ? inner : 2;
    size_t blocks = shape->blocks > 0 ? shape->blocks : 1, packed = shape->period;
    size_t third = inner > 2 ? shape->level[2].count : 1;
    struct fr_datatype_group group = {.n = {1, 1}};
    for (unsigned i = 0; i < in_group; i++) {
        group.n[i] = shape->level[i].count;
        group.stride[i] = shape->level[i].stride;
        group.packed_stride[i] = packed;
        packed *= group.n[i];
    }
    struct fr_datatype_group *groups = reallocarray(NULL, third * blocks, sizeof(*groups));
    if (groups == NULL)
        return FR_ERR_NO_MEMORY;
    for (size_t i = 0; i < third; i++) {
        size_t at = 0;
        for (size_t b = 0; b < blocks; at += group.bytes, b++) {
            group.bytes = block_at(shape, table, (uint32_t)b, at, &group.offset);
            group.offset += inner > 2 ? (ptrdiff_t)i * shape->level[2].stride : 0;
            group.packed = i * packed + at;
            groups[i * blocks + b] = group;
        }
    }
    *layout = (struct fr_layout){
        .size_bytes = packed * third,
        .extent = shape->level[inner].stride,
        .group_count = third * blocks,
        .groups = groups,
    };
    return FR_OK;
}

struct strided_copy {
    uintptr_t source, packed;
    struct fr_device_batch batch;
    struct fr_device_runs runs;
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
    fr_device_runs_add(&copy->runs, &one);
    return copy->batch.status;
}

enum fr_status fr_rndv_shape_copy(const struct fr_pack_shape *shape, const void *table,
                                  uintptr_t source, const struct fr_device_range *range,
                                  uintptr_t packed, size_t bytes)
{
    struct fr_layout layout;
    struct strided_copy copy;
    enum fr_status status = make_layout(shape, table, &layout);
    if (status != FR_OK)
        return status;
    size_t count = (bytes + layout.size_bytes - 1) / layout.size_bytes;
    copy.source = source;
    copy.packed = packed;
    fr_device_batch_begin(&copy.batch);
    fr_device_runs_begin(&copy.runs, &copy.batch, range, FR_TO_STAGE);
    enum fr_status in_batch = fr_datatype_visit(&layout, count, true, bytes, copy_piece, &copy);
    (void)in_batch;
    fr_device_runs_end(&copy.runs);
    free(layout.groups);
    return fr_device_batch_finish(&copy.batch);
}
