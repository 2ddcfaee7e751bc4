// SPDX-License-Identifier: BSD-3-Clause
// Large accesses of an origin to targets that it reaches by messages alone. They are cut into
// slices. The data of each go by rendezvous, as those of messages do: the origin sends what it
// puts, and the target what the origin gets. A slice that cannot go that way goes in messages.
#include "config.h"

#include "rma/far.h"
#include "rma/fragment.h"
#include "rma/transfer.h"

#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

// Bytes of an access by the way that they went. Held by the call and, where the target chooses the
// way, by each slice.
struct tally {
    _Atomic unsigned holders;
    _Atomic uint64_t bytes[FR_SCHEME_COUNT]; // FR_SCHEME_NONE: in messages
    const char *_Atomic reasons[FR_SCHEME_COUNT];
    struct fr_report_buffer report;
    bool puts;
};

struct fr_rma_large {
    struct fr_rma_window *window;
    int rank;
    struct fr_rma_request *request;
    struct tally *tally; // NULL for a put
    struct fr_rma_transfer *transfer;
    bool puts, answered, disarmed;
    struct fr_staging_view own;
    struct fr_staging_view_block block;
    struct fr_rma_target there;
};

static void add(struct tally *tally, enum fr_policy_scheme scheme, size_t bytes, const char *reason)
{
    atomic_store_explicit(&tally->reasons[scheme], reason, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->bytes[scheme], bytes, memory_order_relaxed);
}

static void add_messages(struct tally *tally, size_t bytes)
{
    const struct fr_policy_access facts = {.mapped = false};
    add(tally, FR_SCHEME_NONE, bytes, fr_policy_choose_access(&facts).choice.reason);
}

// Lets a tally go. The last one to do so reports it.
static void let_go(struct tally *tally)
{
    if (atomic_fetch_sub(&tally->holders, 1) != 1)
        return;
    for (unsigned i = 0; i < FR_SCHEME_COUNT; i++) {
        enum fr_policy_scheme scheme = (enum fr_policy_scheme)i;
        uint64_t bytes = atomic_load(&tally->bytes[i]);
        tally->report.path = fr_policy_scheme_path(scheme);
        tally->report.scheme = scheme == FR_SCHEME_NONE ? "message" : fr_policy_scheme_name(scheme);
        tally->report.reason = atomic_load(&tally->reasons[i]);
        tally->report.in_bytes = tally->puts ? bytes : 0;
        tally->report.out_bytes = tally->puts ? 0 : bytes;
        if (bytes > 0)
            fr_report_buffer(&tally->report);
    }
    free(tally);
}

static struct fr_rma_large *new_large(struct fr_rma_window *window, int rank,
                                      const struct fr_rma_target *there,
                                      const struct fr_staging_view *own, bool puts)
{
    struct fr_rma_large *large = calloc(1, sizeof(*large));
    if (!large)
        return NULL;
    large->window = window;
    large->rank = rank;
    large->puts = puts;
    large->own = *own;
    large->block = own->blocks[0];
    large->own.blocks = &large->block;
    large->there = *there;
    large->there.view.blocks = &large->there.block;
    fr_datatype_keep(large->block.layout);
    fr_datatype_keep(large->there.block.layout);
    return large;
}

void fr_rma_large_free(struct fr_rma_large *large)
{
    if (!large)
        return;
    if (large->tally)
        let_go(large->tally);
    fr_datatype_release(large->block.layout);
    fr_datatype_release(large->there.block.layout);
    free(large);
}

void fr_rma_large_disarm(struct fr_rma_large *large)
{
    large->disarmed = true;
}

// Ends a transfer of this process. A put that has no answer yet leaves its request to that.
static void end(void *owner, enum fr_status status, enum fr_policy_scheme scheme)
{
    struct fr_rma_large *large = owner;
    large->transfer = NULL;
    if (!large->answered)
        return;
    if (!large->puts && status == FR_OK)
        add(large->tally, scheme, fr_rma_bytes_of(&large->own),
            fr_policy_scheme_received(scheme, FR_VERB_READ, false));
    fr_rma_far_complete(large->window, large->request, status);
    fr_rma_large_free(large);
}

bool fr_rma_large_take_answer(struct fr_rma_large *large, const struct fr_rma_message *answer,
                              enum fr_status *status)
{
    size_t come = answer->bytes - (size_t)(fr_rma_message_data(answer) - (char *)answer->head);
    *status = (enum fr_status)answer->head->status;
    large->answered = true;
    if (large->puts && large->transfer) {
        fr_rma_transfer_answered(large->transfer, *status);
        return true;
    }
    if (!large->puts && !large->disarmed && *status == FR_ERR_UNSUPPORTED) {
        fr_rma_far_decline(large->window, large->request);
        return true;
    }
    if (!large->puts && *status == FR_OK && large->disarmed)
        *status = FR_ERR_CANCELLED;
    if (!large->puts && *status == FR_OK) {
        *status = FR_ERR_MPI;
        if (come == FR_RNDV_RTS_BYTES)
            large->transfer = fr_rma_transfer_receive(
                large->window, &large->own, (const unsigned char *)fr_rma_message_data(answer), end,
                large, status);
    }
    if (large->transfer)
        return true;
    fr_rma_large_free(large);
    return false;
}

enum fr_status fr_rma_large_redo(struct fr_rma_large *large)
{
    add_messages(large->tally, fr_rma_bytes_of(&large->own));
    enum fr_status status =
        fr_rma_far_move(large->window, large->rank, &large->there, &large->own, false);
    fr_rma_large_free(large);
    return status;
}

// Makes the message of a request. The data that follow the runs are an RTS, if there is one.
static struct fr_rma_message *new_message(const struct fr_rma_fragment *runs, size_t bytes,
                                          const unsigned char *rts)
{
    struct fr_rma_message *message =
        fr_rma_message_new(sizeof(struct fr_rma_head) + runs->count * sizeof(struct fr_rma_run) +
                           (rts ? FR_RNDV_RTS_BYTES : 0));
    if (!message)
        return NULL;
    message->head->bytes = bytes;
    message->head->runs = runs->count;
    message->head->extra = FR_RMA_BY_RENDEZVOUS;
    memcpy(fr_rma_message_runs(message), runs->runs, runs->count * sizeof(runs->runs[0]));
    if (rts)
        memcpy(fr_rma_message_data(message), rts, FR_RNDV_RTS_BYTES);
    return message;
}

// Sends the request of a slice, and owns the slice from then on.
static enum fr_status request(struct fr_rma_large *large, const struct fr_rma_fragment *runs,
                              const unsigned char *rts)
{
    struct fr_rma_transfer *transfer = large->transfer;
    struct fr_rma_message *message = new_message(runs, fr_rma_bytes_of(&large->own), rts);
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (message)
        large->request = fr_rma_far_enter_large(large->window, large->rank, large);
    if (large->request)
        status = fr_rma_far_send(large->window, large->request, message,
                                 large->puts ? FR_RMA_PUT : FR_RMA_GET);
    else
        fr_rma_message_free(message);
    if (transfer)
        fr_rma_transfer_sent(transfer, status == FR_OK);
    if (status != FR_OK)
        fr_rma_large_free(large);
    return status;
}

static enum fr_status begin_put(struct fr_rma_large *large, const struct fr_rma_fragment *runs,
                                struct tally *tally)
{
    unsigned char rts[FR_RNDV_RTS_BYTES];
    struct fr_policy_scheme_choice choice = {.scheme = FR_SCHEME_NONE};
    large->transfer =
        fr_rma_transfer_send(large->window, large->rank, &large->own,
                             fr_abi_rows[tally->report.fn].name, end, large, rts, &choice);
    if (!large->transfer) {
        fr_rma_large_free(large);
        return FR_ERR_UNSUPPORTED;
    }
    size_t bytes = fr_rma_bytes_of(&large->own);
    enum fr_status status = request(large, runs, rts);
    if (status == FR_OK)
        add(tally, choice.scheme, bytes, choice.reason);
    return status;
}

static enum fr_status begin_get(struct fr_rma_large *large, const struct fr_rma_fragment *runs,
                                struct tally *tally)
{
    large->tally = tally;
    atomic_fetch_add(&tally->holders, 1);
    return request(large, runs, NULL);
}

// An access that is being cut, and the next slice of it.
struct slicing {
    struct fr_rma_window *window;
    int rank;
    bool puts;
    struct tally *tally;
    struct fr_rma_target there;
    struct fr_staging_view here;
    struct fr_staging_view_block block;
    struct fr_rma_fragment runs;
};

// Makes the slice of a target and of the origin's data that begins at `done`: as long as its runs
// at the target fit into a message. Returns its bytes, and in *fits whether they do.
static size_t next_slice(struct slicing *slicing, const struct fr_rma_target *target,
                         const struct fr_staging_view *own, size_t done, bool *fits)
{
    size_t left = fr_rma_bytes_of(own) - done, bytes = left;
    *fits = false;
    for (size_t most = FR_RMA_SLICE_BYTES; !*fits && most > FR_RMA_MOST_BYTES; most /= 2) {
        size_t step = fr_rma_slice_bytes(target, own, most);
        bytes = left < step ? left : step;
        slicing->there = (struct fr_rma_target){.part = target->part};
        fr_rma_view_cut(&target->view, done, bytes, &slicing->there.view, &slicing->there.block);
        fr_rma_view_cut(own, done, bytes, &slicing->here, &slicing->block);
        slicing->runs.first = 0;
        slicing->runs.last = bytes;
        *fits = bytes <= FR_RMA_SLICE_BYTES && bytes > FR_RMA_MOST_BYTES &&
                fr_rma_fragment_find(&slicing->there, &slicing->runs) == FR_OK;
    }
    return bytes;
}

static enum fr_status move_slice(struct slicing *slicing, bool fits)
{
    enum fr_status status = FR_ERR_UNSUPPORTED;
    struct fr_rma_large *large = NULL;
    if (fits) {
        status = fr_rma_far_await_turn(slicing->window, slicing->rank);
        if (status != FR_OK)
            return status;
        large = new_large(slicing->window, slicing->rank, &slicing->there, &slicing->here,
                          slicing->puts);
        status = !large          ? FR_ERR_NO_MEMORY
                 : slicing->puts ? begin_put(large, &slicing->runs, slicing->tally)
                                 : begin_get(large, &slicing->runs, slicing->tally);
    }
    if (status != FR_ERR_UNSUPPORTED)
        return status;
    add_messages(slicing->tally, fr_rma_bytes_of(&slicing->here));
    return fr_rma_far_move(slicing->window, slicing->rank, &slicing->there, &slicing->here,
                           slicing->puts);
}

static struct tally *new_tally(const struct fr_rma_place *place, bool puts)
{
    struct tally *tally = calloc(1, sizeof(*tally));
    if (!tally)
        return NULL;
    atomic_init(&tally->holders, 1);
    tally->report = place->report;
    tally->puts = puts;
    if (!puts) { // it may be reported when the call is over
        tally->report.args = NULL;
        tally->report.posted = true;
    }
    return tally;
}

enum fr_status fr_rma_large_move(struct fr_rma_window *window, struct fr_rma_place *place,
                                 const struct fr_rma_target *target,
                                 const struct fr_staging_view *own, bool puts)
{
    size_t all = fr_rma_bytes_of(own);
    if (all <= FR_RMA_MOST_BYTES || place->target == window->rank || own->absolute || own->mixed)
        return fr_rma_far_move(window, place->target, target, own, puts);
    fr_rndv_progress(fr_device_owns(&own->range) ? &own->range : NULL);
    struct slicing *slicing = calloc(1, sizeof(*slicing));
    struct tally *tally = slicing ? new_tally(place, puts) : NULL;
    if (!tally) {
        free(slicing);
        return FR_ERR_NO_MEMORY;
    }
    slicing->window = window;
    slicing->rank = place->target;
    slicing->puts = puts;
    slicing->tally = tally;
    place->is_counted = true;
    enum fr_status status = FR_OK;
    for (size_t done = 0, bytes; done < all && status == FR_OK; done += bytes) {
        bool fits;
        bytes = next_slice(slicing, target, own, done, &fits);
        status = move_slice(slicing, fits);
    }
    let_go(tally);
    fr_rma_fragment_free(&slicing->runs);
    free(slicing);
    return status;
}
