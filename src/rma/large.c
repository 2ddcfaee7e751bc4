// SPDX-License-Identifier: BSD-3-Clause
// Large accesses of an origin to targets that it reaches by messages alone. They are cut into
// slices. The data of each go by rendezvous, as those of messages do: the origin sends what it
// puts or accumulates, and the target what the origin gets. A slice that cannot go that way goes in
// messages.
#include "config.h"

#include "rma/fragment.h"
#include "rma/remote_access.h"
#include "rma/remote_request.h"
#include "rma/window_transfer.h"

#include "fabrail/rndv/progress.h"

#include <stdlib.h>
#include <string.h>

// Bytes that an access sends or receives, by the way that they went. Held by the call and, where
// the target chooses the way, by each slice.
struct tally {
    _Atomic unsigned holders;
    _Atomic uint64_t bytes[FR_SCHEME_COUNT]; // FR_SCHEME_NONE: in messages
    const char *_Atomic reasons[FR_SCHEME_COUNT];
    struct fr_report_buffer report;
    struct fr_policy_access facts;
    bool sends;
};

// Data of this process. Without an element there are none.
struct side {
    struct fr_staging_view view;
    struct fr_staging_view_block block;
};

struct fr_rma_large {
    struct fr_rma_window *window;
    int rank;
    enum fr_rma_kind kind;
    struct fr_rma_request *request;
    struct tally *tally; // of what is received; NULL where nothing is
    struct fr_rma_transfer *sending;
    unsigned parts; // that are not over: the answer, what is sent, what is received
    enum fr_status status;
    bool disarmed;
    struct side origin, result;
    struct fr_rma_target there;
};

static void add(struct tally *tally, enum fr_policy_scheme scheme, size_t bytes, const char *reason)
{
    atomic_store_explicit(&tally->reasons[scheme], reason, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->bytes[scheme], bytes, memory_order_relaxed);
}

static void add_messages(struct tally *tally, size_t bytes)
{
    add(tally, FR_SCHEME_NONE, bytes, fr_policy_choose_access(&tally->facts).choice.reason);
}

// Lets a tally go. The last one to do so reports it. NULL is accepted.
static void let_go(struct tally *tally)
{
    if (!tally || atomic_fetch_sub(&tally->holders, 1) != 1)
        return;
    for (unsigned i = 0; i < FR_SCHEME_COUNT; i++) {
        enum fr_policy_scheme scheme = (enum fr_policy_scheme)i;
        uint64_t bytes = atomic_load(&tally->bytes[i]);
        tally->report.path = fr_policy_scheme_path(scheme);
        tally->report.scheme = scheme == FR_SCHEME_NONE ? "message" : fr_policy_scheme_name(scheme);
        tally->report.reason = atomic_load(&tally->reasons[i]);
        tally->report.in_bytes = tally->sends ? bytes : 0;
        tally->report.out_bytes = tally->sends ? 0 : bytes;
        if (bytes > 0)
            fr_report_buffer(&tally->report);
    }
    free(tally);
}

static void keep(struct side *side, const struct side *from)
{
    *side = *from;
    side->view.blocks = &side->block;
    if (side->block.layout)
        fr_datatype_keep(side->block.layout);
}

void fr_rma_large_free(struct fr_rma_large *large)
{
    if (!large)
        return;
    let_go(large->tally);
    fr_datatype_release(large->origin.block.layout);
    fr_datatype_release(large->result.block.layout);
    fr_datatype_release(large->there.block.layout);
    free(large);
}

void fr_rma_large_disarm(struct fr_rma_large *large)
{
    large->disarmed = true;
}

// Ends a part of an access. A part that was disarmed has failed already.
static void end_part(struct fr_rma_large *large, enum fr_status status)
{
    if (large->status == FR_OK)
        large->status = status;
    if (--large->parts > 0)
        return;
    fr_rma_remote_complete(large->window, large->request, large->disarmed ? FR_OK : large->status);
    fr_rma_large_free(large);
}

static void end_sending(void *owner, enum fr_status status, enum fr_policy_scheme scheme)
{
    struct fr_rma_large *large = owner;
    (void)scheme;
    large->sending = NULL;
    end_part(large, status);
}

static void end_receiving(void *owner, enum fr_status status, enum fr_policy_scheme scheme)
{
    struct fr_rma_large *large = owner;
    if (status == FR_OK)
        add(large->tally, scheme, fr_rma_bytes_of(&large->result.view),
            fr_policy_scheme_received(scheme, FR_VERB_READ, false));
    end_part(large, status);
}

// Takes the data of an answer, or begins to receive those that it announces.
static enum fr_status take_result(struct fr_rma_large *large, const struct fr_rma_message *answer)
{
    char *data = fr_rma_message_data(answer);
    size_t come = answer->bytes - (size_t)(data - (char *)answer->head);
    bool announced = answer->head->extra & FR_RMA_BY_RENDEZVOUS;
    size_t bytes = fr_rma_bytes_of(&large->result.view);
    enum fr_status status = FR_OK;
    if (come != (announced ? FR_RNDV_RTS_BYTES : bytes))
        return FR_ERR_MPI;
    if (!announced) {
        add_messages(large->tally, bytes);
        return fr_rma_copy_packed(&large->result.view, fr_rma_message_packed(answer),
                                  FR_FROM_STAGE);
    }
    bool begun =
        fr_rma_transfer_receive(large->window, &large->result.view, (const unsigned char *)data,
                                end_receiving, large, &status) != NULL;
    large->parts += begun;
    return status;
}

void fr_rma_large_take_answer(struct fr_rma_large *large, const struct fr_rma_message *answer)
{
    enum fr_status status = (enum fr_status)answer->head->status;
    if (large->sending)
        fr_rma_transfer_answered(large->sending, status);
    if (large->kind == FR_RMA_GET && status == FR_ERR_UNSUPPORTED && !large->disarmed) {
        fr_rma_remote_decline(large->window, large->request);
        return;
    }
    if (status == FR_OK && large->tally && !large->disarmed)
        status = take_result(large, answer);
    end_part(large, status);
}

enum fr_status fr_rma_large_redo(struct fr_rma_large *large)
{
    add_messages(large->tally, fr_rma_bytes_of(&large->result.view));
    enum fr_status status =
        fr_rma_remote_move(large->window, large->rank, &large->there, &large->result.view, false);
    fr_rma_large_free(large);
    return status;
}

// An access. It lacks the data of one side, unless it is an update.
struct call {
    struct fr_rma_window *window;
    struct fr_rma_access *access;
    enum fr_rma_kind kind;
    const struct fr_rma_target *target;
    const struct fr_staging_view *origin, *result;
    const struct fr_rma_update *update;
};

// An access that is being cut, and the next slice of it.
struct slicing {
    struct call call;
    struct fr_rma_head head;       // with what it says of an update
    struct tally *sent, *received; // NULL where nothing is
    struct fr_rma_target there;
    struct side from, to;
    struct fr_rma_fragment runs;
};

static struct fr_rma_large *new_large(const struct slicing *slicing)
{
    struct fr_rma_large *large = calloc(1, sizeof(*large));
    if (!large)
        return NULL;
    large->window = slicing->call.window;
    large->rank = slicing->call.access->target;
    large->kind = slicing->call.kind;
    large->parts = 1;
    keep(&large->origin, &slicing->from);
    keep(&large->result, &slicing->to);
    large->there = slicing->there;
    large->there.view.blocks = &large->there.block;
    fr_datatype_keep(large->there.block.layout);
    if (slicing->received) {
        large->tally = slicing->received;
        atomic_fetch_add(&large->tally->holders, 1);
    }
    return large;
}

// Makes the message of a request. The data that follow the runs are an RTS, if there is one.
static struct fr_rma_message *new_message(const struct slicing *slicing, const unsigned char *rts)
{
    const struct fr_rma_fragment *runs = &slicing->runs;
    struct fr_rma_message *message =
        fr_rma_message_new(sizeof(struct fr_rma_head) + runs->count * sizeof(struct fr_rma_run) +
                           (rts ? FR_RNDV_RTS_BYTES : 0));
    if (!message)
        return NULL;
    *message->head = slicing->head;
    message->head->bytes = runs->last;
    message->head->runs = runs->count;
    message->head->extra |= FR_RMA_BY_RENDEZVOUS;
    memcpy(fr_rma_message_runs(message), runs->runs, runs->count * sizeof(runs->runs[0]));
    if (rts)
        memcpy(fr_rma_message_data(message), rts, FR_RNDV_RTS_BYTES);
    return message;
}

// Sends the request of a slice, and owns the slice from then on.
static enum fr_status request(const struct slicing *slicing, struct fr_rma_large *large,
                              const unsigned char *rts)
{
    struct fr_rma_transfer *sending = large->sending;
    struct fr_rma_message *message = new_message(slicing, rts);
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (message)
        large->request =
            fr_rma_remote_enter_large(slicing->call.window, slicing->call.access->target, large);
    if (large->request)
        status =
            fr_rma_remote_send(slicing->call.window, large->request, message, slicing->call.kind);
    else
        fr_rma_message_free(message);
    if (sending)
        fr_rma_transfer_sent(sending, status == FR_OK);
    if (status != FR_OK)
        fr_rma_large_free(large);
    return status;
}

// Begins a slice. Returns FR_ERR_UNSUPPORTED where its data do not go by rendezvous.
static enum fr_status begin(const struct slicing *slicing)
{
    unsigned char rts[FR_RNDV_RTS_BYTES];
    struct fr_policy_scheme_choice choice = {.scheme = FR_SCHEME_NONE};
    struct fr_rma_large *large = new_large(slicing);
    if (!large)
        return FR_ERR_NO_MEMORY;
    if (!slicing->call.origin)
        return request(slicing, large, NULL);
    large->sending = fr_rma_transfer_send(
        slicing->call.window, slicing->call.access->target, &large->origin.view,
        fr_abi_rows[slicing->sent->report.fn].name, end_sending, large, rts, &choice);
    if (!large->sending) {
        fr_rma_large_free(large);
        return FR_ERR_UNSUPPORTED;
    }
    large->parts++;
    enum fr_status status = request(slicing, large, rts);
    if (status == FR_OK)
        add(slicing->sent, choice.scheme, slicing->runs.last, choice.reason);
    return status;
}

static void cut(struct side *side, const struct fr_staging_view *view, size_t done, size_t bytes)
{
    if (view)
        fr_rma_view_cut(view, done, bytes, &side->view, &side->block);
}

// Makes the slice of an access that begins at `done`: as long as its runs at the target fit into a
// message. Returns its bytes, and in *fits whether they do.
static size_t next_slice(struct slicing *slicing, size_t done, bool *fits)
{
    size_t left = fr_rma_bytes_of(&slicing->call.target->view) - done, bytes = left;
    *fits = false;
    for (size_t most = FR_RMA_SLICE_BYTES; !*fits && most > FR_RMA_MOST_BYTES; most /= 2) {
        size_t step = fr_rma_slice_bytes(slicing->call.target, slicing->call.origin,
                                         slicing->call.result, most);
        bytes = left < step ? left : step;
        slicing->there = (struct fr_rma_target){.part = slicing->call.target->part};
        fr_rma_view_cut(&slicing->call.target->view, done, bytes, &slicing->there.view,
                        &slicing->there.block);
        cut(&slicing->from, slicing->call.origin, done, bytes);
        cut(&slicing->to, slicing->call.result, done, bytes);
        slicing->runs.first = 0;
        slicing->runs.last = bytes;
        *fits = bytes <= FR_RMA_SLICE_BYTES && bytes > FR_RMA_MOST_BYTES &&
                fr_rma_fragment_find(&slicing->there, &slicing->runs) == FR_OK;
    }
    return bytes;
}

static enum fr_status send_in_messages(const struct slicing *slicing)
{
    size_t bytes = fr_rma_bytes_of(&slicing->there.view);
    bool sends = slicing->call.origin != NULL;
    if (sends)
        add_messages(slicing->sent, bytes);
    if (slicing->call.result)
        add_messages(slicing->received, bytes);
    if (!slicing->call.update)
        return fr_rma_remote_move(slicing->call.window, slicing->call.access->target,
                                  &slicing->there, sends ? &slicing->from.view : &slicing->to.view,
                                  sends);
    struct fr_rma_update update = *slicing->call.update;
    update.origin = sends ? &slicing->from.view : NULL;
    update.result = slicing->call.result ? &slicing->to.view : NULL;
    return fr_rma_remote_update(slicing->call.window, slicing->call.access->target, &slicing->there,
                                &update);
}

static enum fr_status move_slice(const struct slicing *slicing, bool fits)
{
    enum fr_status status = FR_ERR_UNSUPPORTED;
    if (fits) {
        status = fr_rma_remote_await_turn(slicing->call.window, slicing->call.access->target);
        if (status == FR_OK)
            status = begin(slicing);
    }
    return status == FR_ERR_UNSUPPORTED ? send_in_messages(slicing) : status;
}

static struct tally *new_tally(const struct fr_rma_access *access,
                               const struct fr_staging_view *view, bool sends)
{
    struct tally *tally = view ? calloc(1, sizeof(*tally)) : NULL;
    if (!tally)
        return NULL;
    atomic_init(&tally->holders, 1);
    tally->report = access->report;
    tally->facts = access->facts;
    tally->report.kind = view->range.kind;
    tally->report.arg = view->arg;
    tally->sends = sends;
    if (!sends) { // it may be reported when the call is over
        tally->report.args = NULL;
        tally->report.posted = true;
    }
    return tally;
}

static enum fr_status move_all(struct slicing *slicing)
{
    const struct call *call = &slicing->call;
    size_t all = fr_rma_bytes_of(&call->target->view);
    enum fr_status status = FR_OK;
    for (size_t done = 0, bytes; done < all && status == FR_OK; done += bytes) {
        bool fits;
        bytes = next_slice(slicing, done, &fits);
        status = move_slice(slicing, fits);
    }
    return status;
}

static enum fr_status run(const struct call *call)
{
    const struct fr_staging_view *own = call->origin ? call->origin : call->result;
    struct slicing *slicing = calloc(1, sizeof(*slicing));
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (!slicing)
        return status;
    fr_rndv_progress(fr_device_owns(&own->range) ? &own->range : NULL);
    slicing->call = *call;
    slicing->sent = new_tally(call->access, call->origin, true);
    slicing->received = new_tally(call->access, call->result, false);
    if (call->update)
        fr_rma_remote_describe(call->update, &slicing->head);
    if ((slicing->sent || !call->origin) && (slicing->received || !call->result)) {
        call->access->is_counted = true;
        status = move_all(slicing);
    }
    let_go(slicing->sent);
    let_go(slicing->received);
    fr_rma_fragment_free(&slicing->runs);
    free(slicing);
    return status;
}

// Returns whether data of an access can be cut.
static bool is_plain(const struct fr_staging_view *view)
{
    return !view || (!view->absolute && !view->mixed);
}

static bool is_large(const struct call *call)
{
    return fr_rma_bytes_of(&call->target->view) > FR_RMA_MOST_BYTES &&
           call->access->target != call->window->rank && is_plain(call->origin) &&
           is_plain(call->result);
}

enum fr_status fr_rma_large_move(struct fr_rma_window *window, struct fr_rma_access *access,
                                 const struct fr_rma_target *target,
                                 const struct fr_staging_view *own, bool puts)
{
    const struct call call = {.window = window,
                              .access = access,
                              .kind = puts ? FR_RMA_PUT : FR_RMA_GET,
                              .target = target,
                              .origin = puts ? own : NULL,
                              .result = puts ? NULL : own};
    return is_large(&call) ? run(&call)
                           : fr_rma_remote_move(window, access->target, target, own, puts);
}

enum fr_status fr_rma_large_update(struct fr_rma_window *window, struct fr_rma_access *access,
                                   const struct fr_rma_target *target,
                                   const struct fr_rma_update *update)
{
    const struct call call = {.window = window,
                              .access = access,
                              .kind = FR_RMA_ACCUMULATE,
                              .target = target,
                              .origin = update->origin,
                              .result = update->result,
                              .update = update};
    return is_large(&call) && !update->compare
               ? run(&call)
               : fr_rma_remote_update(window, access->target, target, update);
}
