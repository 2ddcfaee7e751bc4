// SPDX-License-Identifier: BSD-3-Clause
// Transfers by rendezvous. Which of the two processes sends is known from the access, so nobody
// matches the RTS: a receive begins as soon as the sender's notice of the message is there.
#include "config.h"

#include "rma/window_transfer.h"

#include "fabrail/rndv/outgoing.h"

#include <stdlib.h>
#include <string.h>

struct fr_rma_transfer {
    struct fr_rma_transfer *next;
    struct fr_rma_window *window;
    struct fr_staging_view view;
    struct fr_staging_view_block block;
    enum fr_policy_scheme scheme;
    enum fr_status status;
    fr_rma_transfer_over *over;
    void *owner;
    struct fr_rma_message *kept;
    struct fr_rndv_send *send; // NULL: this process receives
    bool awaits_answer;
    bool begun; // the receive
    struct fr_rndv_incoming incoming;
    struct fr_rndv_recv recv;
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_rma_transfer *all FR_GUARDED_BY(lock);
_Atomic unsigned fr_rma_transfer_count;

static struct fr_rma_transfer *new_transfer(struct fr_rma_window *window,
                                            const struct fr_staging_view *view)
{
    struct fr_rma_transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return NULL;
    transfer->window = window;
    transfer->view = *view;
    transfer->block = view->blocks[0];
    transfer->view.blocks = &transfer->block;
    transfer->view.lease = (struct fr_staging_lease){.address = NULL};
    transfer->view.path = FR_PATH_PASS;
    fr_datatype_keep(transfer->block.layout);
    return transfer;
}

static void free_transfer(struct fr_rma_transfer *transfer)
{
    fr_staging_view_close(&transfer->view);
    fr_datatype_release(transfer->block.layout);
    fr_rma_message_free(transfer->kept);
    free(transfer);
}

static void push(struct fr_rma_transfer *transfer)
{
    atomic_fetch_add(&fr_rma_transfer_count, 1);
    fr_core_lock(&lock);
    transfer->next = all;
    all = transfer;
    fr_core_unlock(&lock);
}

struct fr_rma_transfer *fr_rma_transfer_send(struct fr_rma_window *window, int rank,
                                             const struct fr_staging_view *view, const char *call,
                                             fr_rma_transfer_over *over, void *owner,
                                             unsigned char rts[FR_RNDV_RTS_BYTES],
                                             struct fr_policy_scheme_choice *choice)
{
    struct fr_rma_transfer *transfer = new_transfer(window, view);
    size_t length;
    if (!transfer)
        return NULL;
    const struct fr_rndv_message message = {
        .call = call,
        .address = {.to = window->world[rank], .comm = window->name},
        .view = &transfer->view,
        .parts = true,    // MPI gets the RTS as bytes
        .may_wait = true, // as long as the window lives
    };
    if (fr_rndv_send_start(&message, &transfer->send, choice) != FR_OK || !transfer->send) {
        free_transfer(transfer);
        return NULL;
    }
    transfer->scheme = choice->scheme;
    transfer->over = over;
    transfer->owner = owner;
    transfer->awaits_answer = over != NULL;
    memcpy(rts, fr_rndv_send_rts(transfer->send, &length), FR_RNDV_RTS_BYTES);
    return transfer;
}

void fr_rma_transfer_sent(struct fr_rma_transfer *transfer, bool sent)
{
    fr_rndv_send_sent(transfer->send, sent);
    if (sent) {
        push(transfer);
        return;
    }
    fr_rndv_send_free(transfer->send, true);
    free_transfer(transfer);
}

void fr_rma_transfer_keep(struct fr_rma_transfer *transfer, struct fr_rma_message *message)
{
    transfer->kept = message;
}

void fr_rma_transfer_answered(struct fr_rma_transfer *transfer, enum fr_status status)
{
    transfer->awaits_answer = false;
    transfer->status = status;
}

// Gives a receive into device memory what a call of MPI gets: host memory that is not touched
// unless data go that way.
static enum fr_status open_view(struct fr_staging_view *view)
{
    if (!fr_device_owns(&view->range))
        return FR_OK;
    view->path = FR_PATH_HOST;
    view->as_bytes = view->expects_rts = true;
    enum fr_status status = fr_staging_view_open(view);
    if (status != FR_OK)
        view->lease = (struct fr_staging_lease){.address = NULL};
    return status;
}

struct fr_rma_transfer *fr_rma_transfer_receive(struct fr_rma_window *window,
                                                const struct fr_staging_view *view,
                                                const unsigned char rts[FR_RNDV_RTS_BYTES],
                                                fr_rma_transfer_over *over, void *owner,
                                                enum fr_status *status)
{
    struct fr_rma_transfer *transfer = new_transfer(window, view);
    *status = FR_ERR_NO_MEMORY;
    if (!transfer)
        return NULL;
    transfer->view.lease.is_clean = false;
    bool found = fr_rndv_incoming_read(rts, &transfer->incoming) &&
                 transfer->incoming.bytes == transfer->view.out_bytes;
    *status = found ? open_view(&transfer->view) : FR_ERR_INVALID;
    if (*status != FR_OK) {
        free_transfer(transfer);
        return NULL;
    }
    transfer->over = over;
    transfer->owner = owner;
    transfer->recv =
        (struct fr_rndv_recv){.view = &transfer->view, .incoming = &transfer->incoming};
    push(transfer);
    return transfer;
}

// Returns whether a transfer that sends is over.
static bool move_send(struct fr_rma_transfer *transfer)
{
    unsigned copies = 0; // the data stay the window's until they are there
    enum fr_status failure = FR_OK;
    bool left = fr_rndv_send_poll(transfer->send, &copies);
    bool answered = transfer->over != NULL && !transfer->awaits_answer;
    bool is_done = answered && (transfer->status == FR_OK || fr_rndv_send_waits(transfer->send));
    if (transfer->awaits_answer || !(left || is_done) ||
        !fr_rndv_send_try_end(transfer->send, &failure))
        return false;
    if (transfer->status == FR_OK)
        transfer->status = failure;
    return true;
}

// Returns whether a transfer that receives is over. The receive does not begin before the sender's
// notice of the message, which would be waited for.
static bool move_receive(struct fr_rma_transfer *transfer)
{
    if (!transfer->begun && !fr_rndv_incoming_may_begin(&transfer->incoming))
        return false;
    if (!transfer->begun) {
        (void)fr_rndv_incoming_take_known(&transfer->incoming);
        fr_rndv_receive_begin(&transfer->recv);
        fr_rndv_sweep_end();
    }
    transfer->begun = true;
    if (!fr_rndv_receive_poll(&transfer->recv, 1))
        return false;
    transfer->status = transfer->recv.status;
    transfer->scheme = (enum fr_policy_scheme)transfer->incoming.location.scheme;
    return true;
}

static void finish(struct fr_rma_transfer *transfer)
{
    fr_staging_view_close(&transfer->view); // what is told next may be that the memory is free
    transfer->view.lease = (struct fr_staging_lease){.address = NULL};
    if (transfer->over)
        transfer->over(transfer->owner, transfer->status, transfer->scheme);
    atomic_fetch_sub(&fr_rma_transfer_count, 1);
    free_transfer(transfer);
}

static struct fr_rma_transfer *take_all(void)
{
    fr_core_lock(&lock);
    struct fr_rma_transfer *taken = all;
    all = NULL;
    fr_core_unlock(&lock);
    return taken;
}

static void put_back(struct fr_rma_transfer *kept, struct fr_rma_transfer **end)
{
    fr_core_lock(&lock);
    *end = all;
    all = kept;
    fr_core_unlock(&lock);
}

void fr_rma_transfers_progress(void)
{
    if (FR_LIKELY(atomic_load_explicit(&fr_rma_transfer_count, memory_order_relaxed) == 0))
        return;
    struct fr_rma_transfer *taken = take_all(), *kept = NULL, **end = &kept;
    while (taken) {
        struct fr_rma_transfer *transfer = taken;
        taken = transfer->next;
        if (transfer->send ? move_send(transfer) : move_receive(transfer)) {
            finish(transfer);
            continue;
        }
        *end = transfer;
        end = &transfer->next;
    }
    put_back(kept, end);
}

// Ends a transfer, whatever the other process does. Bytes that are to be sent leave the
// application's buffer, unless that takes the receiver's help.
static void abandon(struct fr_rma_transfer *transfer)
{
    if (transfer->send) {
        if (!fr_rndv_send_waits(transfer->send))
            (void)!fr_rndv_send_push(transfer->send);
        fr_rndv_send_free(transfer->send, false);
    } else if (transfer->begun) {
        fr_rndv_receive_cancel(&transfer->recv);
    }
    transfer->status = FR_ERR_CANCELLED;
    finish(transfer);
}

void fr_rma_transfers_abandon(struct fr_rma_window *window)
{
    struct fr_rma_transfer *taken = take_all(), *kept = NULL, **end = &kept;
    while (taken) {
        struct fr_rma_transfer *transfer = taken;
        taken = transfer->next;
        if (transfer->window == window) {
            abandon(transfer);
            continue;
        }
        *end = transfer;
        end = &transfer->next;
    }
    put_back(kept, end);
}
