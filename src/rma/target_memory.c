// SPDX-License-Identifier: BSD-3-Clause
// The memory of a target that a message names by runs, as a layout where it is in one piece. Then
// one kernel copies all runs. Otherwise they are copied one by one.
#include "config.h"

#include "rma/target_memory.h"

#include "rma/region.h"
#include "rma/remote_access.h"

#include <stdlib.h>
#include <string.h>

// Returns whether a run has rows, and packed data where its message says.
static bool is_packed(const struct fr_rma_run *run, uint64_t packed_bytes)
{
    return run->count > 0 &&
           (uint64_t)run->at + (uint64_t)run->step * (run->count - 1) + run->bytes <= packed_bytes;
}

static bool find_run(struct fr_rma_window *window, uint64_t bytes, struct fr_rma_run *run,
                     struct fr_rma_part *part)
{
    int64_t reach, last;
    if (!is_packed(run, bytes) ||
        __builtin_mul_overflow(run->stride, (int64_t)(run->count - 1), &reach) ||
        __builtin_add_overflow(run->offset, reach, &last))
        return false;
    int64_t low = last < run->offset ? last : run->offset;
    int64_t high = last > run->offset ? last : run->offset;
    if (__builtin_add_overflow(high, (int64_t)run->bytes, &high) || low < 0)
        return false;
    if (!window->words.is_dynamic) {
        part->address = fr_rma_own_part(window)->address;
        part->range = fr_rma_own_part(window)->range;
        return (uint64_t)high <= fr_rma_own_part(window)->bytes;
    }
    if (!fr_rma_region_of_own(window, (uint64_t)low, (uint64_t)high, part))
        return false;
    run->offset -= (int64_t)part->base;
    return true;
}

// Makes the groups of a layout from the runs of a request, relative to the first. Returns false
// where they lie not all in one piece of memory, or are not all of the packed bytes.
static bool find_groups(struct fr_rma_window *window, const struct fr_rma_message *message,
                        struct fr_datatype_group *groups, struct fr_rma_part *part,
                        int64_t *first_offset)
{
    const struct fr_rma_run *runs = fr_rma_message_runs(message);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < message->head->runs; i++) {
        struct fr_rma_part holder = {.base = 0};
        struct fr_rma_run run = runs[i];
        bool many = run.count > 1;
        if (!find_run(window, message->head->bytes, &run, &holder) || run.bytes == 0)
            return false;
        if (i == 0) {
            *part = holder;
            *first_offset = run.offset;
        }
        if (holder.address != part->address)
            return false;
        groups[i] = (struct fr_datatype_group){
            .offset = run.offset - *first_offset,
            .packed = run.at,
            .bytes = run.bytes,
            .n = {run.count, 1},
            .stride = {many ? run.stride : 0},
            .packed_stride = {many ? run.step : 0},
        };
        bytes += (uint64_t)run.bytes * run.count;
    }
    return bytes > 0 && bytes == message->head->bytes;
}

static void set_view(struct fr_rma_memory *memory, uintptr_t base, const struct fr_layout *layout,
                     const struct fr_device_range *range, bool receives)
{
    memory->block = (struct fr_staging_view_block){
        .count = 1, .layout = layout, .in = !receives, .out = receives};
    memory->view = (struct fr_staging_view){
        .base = base,
        .blocks = &memory->block,
        .block_count = 1,
        .in_bytes = receives ? 0 : layout->size_bytes,
        .out_bytes = receives ? layout->size_bytes : 0,
        .range = *range,
    };
    fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent, 1,
                     &memory->view.first, &memory->view.span);
}

enum fr_status fr_rma_memory_find(struct fr_rma_window *window,
                                  const struct fr_rma_message *message, bool receives,
                                  struct fr_rma_memory *memory)
{
    const uint32_t runs = message->head->runs;
    struct fr_datatype_group *groups = calloc(runs + (size_t)1, sizeof(*groups));
    struct fr_rma_part part = {.base = 0};
    const struct fr_layout *layout = NULL;
    int64_t first = 0;
    enum fr_status status = FR_ERR_NO_MEMORY;
    *memory = (struct fr_rma_memory){.lease = {.address = NULL}};
    if (groups)
        status = find_groups(window, message, groups, &part, &first)
                     ? fr_datatype_make(groups, runs, &layout)
                     : FR_ERR_RANGE;
    free(groups);
    if (status == FR_OK)
        set_view(memory, part.address + (uintptr_t)first, layout, &part.range, receives);
    return status;
}

enum fr_status fr_rma_memory_packed(void *packed, size_t bytes, bool receives,
                                    struct fr_rma_memory *memory)
{
    static const struct fr_device_range host = FR_DEVICE_HOST;
    const struct fr_datatype_group group = {.bytes = bytes, .n = {1, 1}};
    const struct fr_layout *layout = NULL;
    enum fr_status status = fr_datatype_make(&group, 1, &layout);
    if (status == FR_OK)
        set_view(memory, (uintptr_t)packed, layout, &host, receives);
    return status;
}

enum fr_status fr_rma_memory_borrow(const struct fr_rma_message *message,
                                    struct fr_rma_memory *memory)
{
    const size_t bytes = message->head->bytes;
    enum fr_status status = fr_staging_try_borrow(bytes, &memory->lease);
    if (status == FR_OK)
        status = fr_rma_memory_packed(memory->lease.address, bytes, true, memory);
    return status;
}

void fr_rma_memory_close(struct fr_rma_memory *memory)
{
    fr_datatype_release(memory->block.layout);
    fr_staging_return(&memory->lease);
}

static void copy_on_host(char *memory, char *packed, const struct fr_rma_run *run, bool from_memory)
{
    for (uint32_t i = 0; i < run->count; i++) {
        char *there = memory + run->offset + (ptrdiff_t)i * run->stride;
        char *here = packed + run->at + (size_t)i * run->step;
        memcpy(from_memory ? here : there, from_memory ? there : here, run->bytes);
    }
}

static void copy_by_device(struct fr_device_batch *batch, const struct fr_rma_part *part,
                           char *packed, const struct fr_rma_run *run, bool from_memory)
{
    void *there = (void *)(part->address + (uintptr_t)run->offset), *here = packed + run->at;
    struct fr_device_copy copy = {
        .dst = from_memory ? here : there,
        .src = from_memory ? there : here,
        .bytes = run->bytes,
        .n = {run->count, 1},
        .dst_stride = {from_memory ? (ptrdiff_t)run->step : (ptrdiff_t)run->stride},
        .src_stride = {from_memory ? (ptrdiff_t)run->stride : (ptrdiff_t)run->step},
    };
    fr_device_batch_copy(batch, &part->range, from_memory ? FR_TO_STAGE : FR_FROM_STAGE, &copy);
}

// Packed data that the copies are to and from.
struct packed {
    char *data;
    uint64_t bytes;
    struct fr_device_batch batch;
};

static bool copy_run(struct fr_rma_window *window, struct packed *packed,
                     const struct fr_rma_run *wanted, bool from_memory)
{
    struct fr_rma_part part = {.base = 0};
    struct fr_rma_run run = *wanted;
    if (!find_run(window, packed->bytes, &run, &part))
        return false;
    if (fr_device_owns(&part.range))
        copy_by_device(&packed->batch, &part, packed->data, &run, from_memory);
    else
        copy_on_host((char *)part.address, packed->data, &run, from_memory);
    return true;
}

// Copies bytes in one row, which may go on from one piece of attached memory to the next.
static bool copy_row(struct fr_rma_window *window, struct packed *packed, struct fr_rma_run row,
                     bool from_memory)
{
    bool found = row.offset >= 0;
    for (uint32_t left = row.bytes; left > 0 && found; left -= row.bytes) {
        struct fr_rma_part part = {.base = 0};
        uint64_t low = (uint64_t)row.offset;
        if (!fr_rma_region_of_own(window, low, low + 1, &part))
            return false;
        uint64_t room = part.base + part.bytes - low;
        row.bytes = room < left ? (uint32_t)room : left;
        found = copy_run(window, packed, &row, from_memory);
        row.offset += row.bytes;
        row.at += row.bytes;
    }
    return found;
}

// Copies the rows of a run one by one, which may lie in several pieces of attached memory.
static bool copy_rows(struct fr_rma_window *window, struct packed *packed,
                      const struct fr_rma_run *run, bool from_memory)
{
    bool found = window->words.is_dynamic && is_packed(run, packed->bytes);
    for (uint32_t i = 0; i < run->count && found; i++) {
        struct fr_rma_run row = {.at = run->at + i * run->step, .bytes = run->bytes, .count = 1};
        int64_t offset;
        found = !__builtin_mul_overflow(run->stride, (int64_t)i, &offset) &&
                !__builtin_add_overflow(run->offset, offset, &row.offset) &&
                copy_row(window, packed, row, from_memory);
    }
    return found;
}

// Copies the runs one by one.
static enum fr_status copy_each(struct fr_rma_window *window, const struct fr_rma_message *message,
                                char *data, bool from_memory)
{
    const struct fr_rma_run *runs = fr_rma_message_runs(message);
    struct packed packed = {.data = data, .bytes = message->head->bytes};
    enum fr_status status = FR_OK;
    fr_device_batch_begin(&packed.batch);
    for (uint32_t i = 0; i < message->head->runs && status == FR_OK; i++) {
        if (!copy_run(window, &packed, &runs[i], from_memory) &&
            !copy_rows(window, &packed, &runs[i], from_memory))
            status = FR_ERR_RANGE;
    }
    enum fr_status copied = fr_device_batch_finish(&packed.batch);
    return status == FR_OK ? copied : status;
}

void fr_rma_memory_find_rows(struct fr_rma_window *window, const struct fr_rma_message *message,
                             struct fr_rma_memory *memory)
{
    const uint32_t runs = message->head->runs;
    bool is_plain = runs == 0 || (runs == 1 && fr_rma_message_runs(message)[0].count == 1);
    *memory = (struct fr_rma_memory){.lease = {.address = NULL}};
    if (!is_plain && fr_rma_memory_find(window, message, true, memory) != FR_OK)
        memory->block.layout = NULL;
}

enum fr_status fr_rma_memory_copy(struct fr_rma_window *window,
                                  const struct fr_rma_message *message,
                                  const struct fr_rma_memory *memory,
                                  struct fr_staging_lease packed, bool from_memory)
{
    if (memory->block.layout == NULL || !fr_device_owns(&memory->view.range))
        return copy_each(window, message, packed.address, from_memory);
    return fr_rma_copy_packed(&memory->view, packed, from_memory ? FR_TO_STAGE : FR_FROM_STAGE);
}

enum fr_status fr_rma_copy_runs(struct fr_rma_window *window, const struct fr_rma_message *message,
                                struct fr_staging_lease packed, bool from_memory)
{
    struct fr_rma_memory memory;
    fr_rma_memory_find_rows(window, message, &memory);
    enum fr_status status = fr_rma_memory_copy(window, message, &memory, packed, from_memory);
    fr_rma_memory_close(&memory);
    return status;
}
