// SPDX-License-Identifier: BSD-3-Clause
// Large accesses at their target. It receives what others put, straight into its memory, and sends
// what they get from there. Data in several pieces of attached memory are received on the host
// first; those to be got go in messages.
#include "config.h"

#include "rma/far.h"
#include "rma/transfer.h"

#include <stdlib.h>
#include <string.h>

// The memory of a request as one element of a layout of its own.
struct memory {
    struct fr_staging_view view;
    struct fr_staging_view_block block;
    struct fr_staging_lease lease; // where it is packed memory of the host
};

// A put that is being received.
struct putting {
    struct fr_rma_window *window;
    struct fr_rma_message *message;
    struct memory memory;
};

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
        if (!fr_rma_find_run(window, message->head->bytes, &run, &holder) || run.bytes == 0)
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

static void set_view(struct memory *memory, uintptr_t base, const struct fr_layout *layout,
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

// Returns FR_ERR_RANGE where the memory is not all in one piece.
static enum fr_status find_memory(struct fr_rma_window *window,
                                  const struct fr_rma_message *message, bool receives,
                                  struct memory *memory)
{
    const uint32_t runs = message->head->runs;
    struct fr_datatype_group *groups = calloc(runs + (size_t)1, sizeof(*groups));
    struct fr_rma_part part = {.base = 0};
    const struct fr_layout *layout = NULL;
    int64_t first = 0;
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (groups)
        status = find_groups(window, message, groups, &part, &first)
                     ? fr_datatype_make(groups, runs, &layout)
                     : FR_ERR_RANGE;
    free(groups);
    if (status == FR_OK)
        set_view(memory, part.address + (uintptr_t)first, layout, &part.range, receives);
    return status;
}

// Borrows packed memory of the host in place of what is not all in one piece.
static enum fr_status borrow(const struct fr_rma_message *message, struct memory *memory)
{
    static const struct fr_device_range host = FR_DEVICE_HOST;
    const struct fr_datatype_group group = {.bytes = message->head->bytes, .n = {1, 1}};
    const struct fr_layout *layout = NULL;
    enum fr_status status = fr_datatype_make(&group, 1, &layout);
    if (status != FR_OK)
        return status;
    status = fr_staging_borrow(message->head->bytes, &memory->lease);
    if (status != FR_OK) {
        fr_datatype_release(layout);
        return status;
    }
    set_view(memory, (uintptr_t)memory->lease.address, layout, &host, true);
    return FR_OK;
}

static void close(struct memory *memory)
{
    fr_datatype_release(memory->block.layout);
    fr_staging_return(&memory->lease);
}

// Nobody is answered about a window that is being freed.
static void end_put(void *owner, enum fr_status status, enum fr_policy_scheme scheme)
{
    struct putting *putting = owner;
    struct fr_rma_window *window = putting->window;
    (void)scheme;
    if (status == FR_OK && putting->memory.lease.address)
        status = fr_rma_copy_runs(window, putting->message, putting->memory.lease.address, false);
    close(&putting->memory);
    if (window->is_far)
        fr_rma_answer(window, putting->message, NULL, status);
    else
        fr_rma_message_free(putting->message);
    free(putting);
}

bool fr_rma_serve_large_put(struct fr_rma_window *window, struct fr_rma_message *message)
{
    const unsigned char *rts = (const unsigned char *)fr_rma_message_data(message);
    if (message->head->bytes > FR_RMA_SLICE_BYTES ||
        message->bytes - (size_t)((const char *)rts - (char *)message->head) != FR_RNDV_RTS_BYTES) {
        fr_rma_answer(window, message, NULL, FR_ERR_INVALID);
        return true;
    }
    struct putting *putting = calloc(1, sizeof(*putting));
    if (!putting)
        return false;
    putting->window = window;
    putting->message = message;
    enum fr_status status = find_memory(window, message, true, &putting->memory);
    if (status == FR_ERR_RANGE) // its data have to come, whatever becomes of them
        status = borrow(message, &putting->memory);
    if (status == FR_OK &&
        fr_rma_transfer_receive(window, &putting->memory.view, rts, end_put, putting, &status))
        return true;
    close(&putting->memory);
    free(putting);
    if (status == FR_ERR_NO_MEMORY)
        return false;
    fr_rma_answer(window, message, NULL, status);
    return true;
}

// Begins to send data, and answers with their RTS. Returns false where they cannot be sent so.
static bool send(struct fr_rma_window *window, struct fr_rma_message *message,
                 const struct fr_staging_view *view)
{
    struct fr_rma_message *result =
        fr_rma_message_new(sizeof(struct fr_rma_head) + FR_RNDV_RTS_BYTES);
    struct fr_policy_scheme_choice choice;
    struct fr_rma_transfer *transfer = NULL;
    if (result)
        transfer =
            fr_rma_transfer_send(window, message->head->from, view, "a get of a window's rank",
                                 NULL, NULL, (unsigned char *)fr_rma_message_data(result), &choice);
    if (!transfer) {
        fr_rma_message_free(result);
        return false;
    }
    result->head->extra = FR_RMA_BY_RENDEZVOUS;
    fr_rma_answer(window, message, result, FR_OK);
    fr_rma_transfer_sent(transfer, true);
    return true;
}

void fr_rma_serve_large_get(struct fr_rma_window *window, struct fr_rma_message *message)
{
    struct memory memory = {.view = {.base = 0}};
    bool sent = message->head->bytes <= FR_RMA_SLICE_BYTES &&
                find_memory(window, message, false, &memory) == FR_OK &&
                send(window, message, &memory.view);
    close(&memory);
    if (!sent)
        fr_rma_answer(window, message, NULL, FR_ERR_UNSUPPORTED);
}
