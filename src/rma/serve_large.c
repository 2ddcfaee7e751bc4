// SPDX-License-Identifier: BSD-3-Clause
// Large accesses at their target. It receives what others put, straight into its memory, and sends
// what they get from there. Data in several pieces of attached memory are received on the host
// first; those to be got go in messages.
#include "config.h"

#include "rma/far.h"
#include "rma/target_memory.h"
#include "rma/transfer.h"

#include <stdlib.h>
#include <string.h>

// A put that is being received.
struct putting {
    struct fr_rma_window *window;
    struct fr_rma_message *message;
    struct fr_rma_memory memory;
};

// Nobody is answered about a window that is being freed.
static void end_put(void *owner, enum fr_status status, enum fr_policy_scheme scheme)
{
    struct putting *putting = owner;
    struct fr_rma_window *window = putting->window;
    (void)scheme;
    if (status == FR_OK && putting->memory.lease.address)
        status = fr_rma_copy_runs(window, putting->message, putting->memory.lease, false);
    fr_rma_memory_close(&putting->memory);
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
    enum fr_status status = fr_rma_memory_find(window, message, true, &putting->memory);
    if (status == FR_ERR_RANGE) // its data have to come, whatever becomes of them
        status = fr_rma_memory_borrow(message, &putting->memory);
    if (status == FR_OK &&
        fr_rma_transfer_receive(window, &putting->memory.view, rts, end_put, putting, &status))
        return true;
    fr_rma_memory_close(&putting->memory);
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
    struct fr_rma_memory memory = {.view = {.base = 0}};
    bool sent = message->head->bytes <= FR_RMA_SLICE_BYTES &&
                fr_rma_memory_find(window, message, false, &memory) == FR_OK &&
                send(window, message, &memory.view);
    fr_rma_memory_close(&memory);
    if (!sent)
        fr_rma_answer(window, message, NULL, FR_ERR_UNSUPPORTED);
}
