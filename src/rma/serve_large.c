// SPDX-License-Identifier: BSD-3-Clause
// Large accesses at their target. It receives what others put, straight into its memory, and sends
// what they get from there. Data in several pieces of attached memory are received on the host
// first; those to be got go in messages. Data of updates are received on the host, too, and wait
// there for their turn.
#include "config.h"

#include "rma/remote_access.h"
#include "rma/target_memory.h"
#include "rma/window_transfer.h"

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
    if (window->is_remote)
        fr_rma_answer(window, putting->message, NULL, status);
    else
        fr_rma_message_free(putting->message);
    free(putting);
}

// Returns the RTS that a request brings. NULL where it brings none, or says too many bytes.
static const unsigned char *rts_of(const struct fr_rma_message *message)
{
    const unsigned char *rts = (const unsigned char *)fr_rma_message_data(message);
    size_t come = message->bytes - (size_t)((const char *)rts - (char *)message->head);
    return come == FR_RNDV_RTS_BYTES && message->head->bytes <= FR_RMA_SLICE_BYTES ? rts : NULL;
}

bool fr_rma_serve_large_put(struct fr_rma_window *window, struct fr_rma_message *message)
{
    const unsigned char *rts = rts_of(message);
    if (!rts) {
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

// Updates whose data have memory here. Used by the thread that makes progress.
static unsigned landed_count;

static void end_landing(void *owner, enum fr_status status, enum fr_policy_scheme scheme)
{
    struct fr_rma_message *message = owner;
    (void)scheme;
    message->landed = status;
    message->landing = FR_RMA_LANDED;
    if (status != FR_OK)
        fr_staging_forsake(&message->data); // it may still be written to
}

// Beyond the bound on memory the data of one update come, so that each has its turn.
bool fr_rma_land(struct fr_rma_window *window, struct fr_rma_message *message)
{
    const unsigned char *rts = rts_of(message);
    struct fr_rma_memory memory = {.view = {.base = 0}};
    if (message->landing != FR_RMA_NOT_BEGUN)
        return message->landing == FR_RMA_LANDED;
    if (landed_count > 0 && !fr_staging_has_room(message->head->bytes))
        return false;
    enum fr_status status = rts ? fr_rma_memory_borrow(message, &memory) : FR_ERR_INVALID;
    if (status == FR_OK &&
        fr_rma_transfer_receive(window, &memory.view, rts, end_landing, message, &status)) {
        message->data = memory.lease;
        message->landing = FR_RMA_LANDING;
        landed_count++;
        fr_datatype_release(memory.block.layout);
        return false;
    }
    fr_rma_memory_close(&memory);
    if (status == FR_ERR_NO_MEMORY)
        return false;
    message->landing = FR_RMA_LANDED;
    message->landed = status;
    return true;
}

void fr_rma_land_end(struct fr_rma_message *message)
{
    if (!message->data.address)
        return;
    fr_staging_return(&message->data);
    landed_count--;
}

// Results of large updates that have memory here. Used by the thread that makes progress.
static unsigned result_count;

bool fr_rma_result_may_wait(const struct fr_rma_message *message)
{
    return message->head->extra & FR_RMA_WITH_RESULT &&
           message->head->extra & FR_RMA_BY_RENDEZVOUS && result_count > 0;
}

void fr_rma_result_begin(struct fr_rma_message *result)
{
    result->is_result = true;
    result_count++;
}

void fr_rma_result_end(const struct fr_rma_message *message)
{
    if (message->is_result)
        result_count--;
}

// Begins to send data, and answers with their RTS. A message that they are in is kept until they
// are sent. Returns false where they cannot be sent so.
static bool send(struct fr_rma_window *window, struct fr_rma_message *message,
                 const struct fr_staging_view *view, struct fr_rma_message *kept)
{
    struct fr_rma_message *result =
        fr_rma_message_new(sizeof(struct fr_rma_head) + FR_RNDV_RTS_BYTES);
    struct fr_policy_scheme_choice choice;
    struct fr_rma_transfer *transfer = NULL;
    if (result)
        transfer =
            fr_rma_transfer_send(window, message->head->from, view, "an access of a window's rank",
                                 NULL, NULL, (unsigned char *)fr_rma_message_data(result), &choice);
    if (!transfer) {
        fr_rma_message_free(result);
        return false;
    }
    if (kept)
        fr_rma_transfer_keep(transfer, kept);
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
                send(window, message, &memory.view, NULL);
    fr_rma_memory_close(&memory);
    if (!sent)
        fr_rma_answer(window, message, NULL, FR_ERR_UNSUPPORTED);
}

bool fr_rma_send_result(struct fr_rma_window *window, struct fr_rma_message *message,
                        struct fr_rma_message *result)
{
    struct fr_rma_memory memory = {.view = {.base = 0}};
    bool sent = result->lease.address &&
                fr_rma_memory_packed(fr_rma_message_data(result), message->head->bytes, false,
                                     &memory) == FR_OK &&
                send(window, message, &memory.view, result);
    fr_rma_memory_close(&memory);
    return sent;
}
