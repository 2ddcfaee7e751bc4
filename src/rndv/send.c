// SPDX-License-Identifier: BSD-3-Clause
// Sends from the choice of their scheme to their end.
//
// The receiver pulls the bytes when the program completes its receive, which can be long after the
// sender wants its buffer back. A send would then depend on progress in the receiver, which nothing
// provides. So a sender waits about as long as a copy of the bytes takes, and then makes that copy.
// That takes at most twice the time of the better choice. Only where there is no room for copies it
// goes on waiting.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/core/wait.h"
#include "fabrail/ipc.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"
#include "fabrail/staging/tables.h"
#include "rndv/rail_put_send.h"
#include "rndv/strides.h"
#include "rndv/waiting_sends.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_LIMIT = 256,
    USUAL_RTS_BYTES = FR_RNDV_RTS_PRIME * 16, // room for an RTS in sends of the pool
};

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_list pool FR_GUARDED_BY(lock) = FR_LIST_INIT(pool);
static size_t pool_count FR_GUARDED_BY(lock);

static struct fr_rndv_send *send_of(struct fr_list *link)
{
    return FR_LIST_ENTRY(link, struct fr_rndv_send, link);
}

static struct fr_rndv_send *take_from_pool(size_t length)
{
    struct fr_rndv_send *send = NULL;
    if (length > USUAL_RTS_BYTES)
        return malloc(sizeof(*send) + length);
    fr_core_lock_in_call(&lock);
    if (!fr_list_is_empty(&pool)) {
        send = send_of(pool.next);
        fr_list_remove(&send->link);
        pool_count--;
    }
    fr_core_unlock(&lock);
    return send != NULL ? send : malloc(sizeof(*send) + USUAL_RTS_BYTES);
}

static void give_to_pool(struct fr_rndv_send *send)
{
    fr_core_lock_in_call(&lock);
    bool keeps = pool_count < POOL_LIMIT && send->length <= USUAL_RTS_BYTES;
    if (keeps) {
        fr_list_push_front(&pool, &send->link);
        pool_count++;
    }
    fr_core_unlock(&lock);
    if (!keeps)
        free(send);
}

// ---- start

static void write_rts(struct fr_rndv_send *send)
{
    const struct fr_rndv_rts rts = {
        .secret = *fr_job_control_job_secret(),
        .from = (uint32_t)fr_job_rank(),
        .index = (uint16_t)send->index,
        .scheme = (uint8_t)send->scheme->id,
        .remote = send->remote,
        .number = send->number,
        .bytes = send->bytes,
    };
    memset(send->rts, 0, send->length);
    memcpy(send->rts, &rts, sizeof(rts));
}

// Sends the entry of a message to its receiver on another host.
static bool tell_receiver(const struct fr_rndv_send *send, const struct fr_rndv_location *location,
                          uint64_t ready, bool must)
{
    if (!send->remote)
        return true;
    const struct fr_rndv_entry entry = {
        .number = send->number,
        .ready = ready,
        .sizes = FR_SLOT_SIZES(send->bytes, send->length),
        .comm = send->address.comm,
        .tag = send->address.tag,
        .index = send->index,
        .location = *location,
    };
    return fr_rndv_entry_send(send->address.to, FR_CONTROL_RTS, &entry, must);
}

static FR_OFTEN enum fr_status enter(struct fr_rndv_send *send,
                                     const struct fr_rndv_location *location, uint64_t ready)
{
    union fr_rndv_extra extra;
    bool has_extra = send->table != NULL || (send->scheme->flags & FR_RNDV_GATED);
    if (has_extra)
        extra = (union fr_rndv_extra){.gate = send->gate};
    enum fr_status status = send->table != NULL ? fr_rndv_table_of(send, &extra.table) : FR_OK;
    if (status == FR_OK)
        status = fr_rndv_ledger_advertise(&send->address, !send->remote,
                                          FR_SLOT_SIZES(send->bytes, send->length), ready, location,
                                          has_extra ? &extra : NULL, &send->index, &send->number);
    if (status != FR_OK)
        return status;
    write_rts(send);
    send->entered = tell_receiver(send, location, ready, false);
    if (send->entered) {
        fr_rndv_registry_add(send);
        return FR_OK;
    }
    fr_rndv_ledger_free(send->index, !send->remote);
    return FR_ERR_NO_MEMORY;
}

static void fill(struct fr_rndv_send *send, const struct fr_rndv_message *message, size_t length)
{
    memset(send, 0, offsetof(struct fr_rndv_send, stage.view));
    send->call = message->call;
    send->address = message->address;
    send->bytes = message->view->in_bytes;
    send->length = length;
    send->view = *message->view;
    send->block = message->view->blocks[0];
    send->stage.view.lease = (struct fr_staging_lease){.address = NULL};
    fr_list_init(&send->link);
    send->view.blocks = &send->block;
    send->view.lease = (struct fr_staging_lease){.address = NULL};
}

// Returns all that a send holds but its slot.
static void dismantle(struct fr_rndv_send *send)
{
    if (send->scheme != NULL && send->scheme->cancel != NULL)
        send->scheme->cancel(send);
    fr_rndv_stage_close(send);
    fr_rndv_stage_end_aside(send);
    if (send->table != NULL)
        fr_staging_table_return(send->table);
    send->table = NULL;
    send->gate.words = 0;
    send->gate.count = 0;
    free(send->state);
    send->state = NULL;
    fr_rndv_waiting_remove(send);
}

void fr_rndv_send_destroy(struct fr_rndv_send *send)
{
    dismantle(send);
    if (send->entered) {
        fr_rndv_registry_remove(send->index);
        fr_rndv_ledger_free(send->index, !send->remote);
    }
    give_to_pool(send);
}

// Tries to start a send by the scheme of its location.
static FR_OFTEN enum fr_status try(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                                   struct fr_rndv_location *location)
{
    uint64_t ready = 0;
    send->scheme = fr_rndv_schemes[location->scheme];
    send->failure = FR_OK; // an earlier scheme may have failed
    enum fr_status status = send->scheme->start(send, facts, location, &ready);
    if (status == FR_OK)
        status = enter(send, location, ready);
    if (status != FR_OK)
        dismantle(send);
    return status;
}

static enum fr_status try_anew(struct fr_rndv_send *send, enum fr_policy_scheme scheme,
                               const struct fr_policy_message *facts,
                               const struct fr_ipc_handle *handle)
{
    struct fr_rndv_location location = {.scheme = scheme};
    if (facts->exported)
        location.handle = *handle;
    return try(send, facts, &location);
}

FR_OFTEN enum fr_status fr_rndv_send_start(const struct fr_rndv_message *message,
                                           struct fr_rndv_send **out,
                                           struct fr_policy_scheme_choice *choice)
{
    struct fr_policy_message facts;
    struct fr_ipc_handle handle;
    *out = NULL;
    if (fr_rndv_ledger_is_doubted(&message->address)) {
        fr_warn_once(
            "%s: rank %d has received a message with tag %d into too little memory, and its "
            "MPI library does not tell which: what that message holds stays taken, and "
            "others that go the same way are given to MPI",
            message->call, message->address.to, message->address.tag);
        *choice = (struct fr_policy_scheme_choice){
            FR_SCHEME_NONE, "a message that went the same way was cut off, and may wait still"};
        return FR_OK;
    }
    const size_t length = fr_rndv_message_length(message, &choice->reason);
    choice->scheme = FR_SCHEME_NONE;
    if (length == 0)
        return FR_OK;
    struct fr_rndv_location *known = fr_rndv_message_known(message, &facts, choice);
    if (known == NULL) {
        fr_rndv_message_look(message, &facts, &handle);
        *choice = fr_policy_choose_scheme(&facts);
    }
    if (choice->scheme == FR_SCHEME_NONE)
        return FR_OK;
    struct fr_rndv_send *send = take_from_pool(length);
    if (send == NULL)
        return FR_ERR_NO_MEMORY;
    fill(send, message, length);
    send->remote = !facts.here;
    while (choice->scheme != FR_SCHEME_NONE) {
        enum fr_status status = known != NULL ? try(send, &facts, known)
                                              : try_anew(send, choice->scheme, &facts, &handle);
        if (status == FR_OK) {
            *out = send;
            return FR_OK;
        }
        if (known != NULL)
            fr_rndv_message_look(message, &facts, &handle);
        known = NULL;
        fr_policy_note_failed_scheme(&facts, choice->scheme, status);
        *choice = fr_policy_choose_scheme(&facts);
    }
    give_to_pool(send);
    return FR_OK;
}

uint64_t fr_rndv_send_number(const struct fr_rndv_send *send)
{
    return send->number;
}

FR_OFTEN const unsigned char *fr_rndv_send_rts(const struct fr_rndv_send *send, size_t *length)
{
    *length = send->length;
    return send->rts;
}

bool fr_rndv_send_is_pulled(const struct fr_rndv_send *send)
{
    return fr_rndv_ledger_state(send->index) == FR_RNDV_PULLED;
}

FR_OFTEN bool fr_rndv_send_needs_push(const struct fr_rndv_send *send)
{
    return send->scheme->flags & FR_RNDV_NEEDS_PUSH;
}

bool fr_rndv_send_waits(const struct fr_rndv_send *send)
{
    return send->waits;
}

FR_OFTEN void fr_rndv_send_sent(struct fr_rndv_send *send, bool sent)
{
    fr_rndv_ledger_sent(send->index);
    atomic_store_explicit(&send->sent, sent, memory_order_release);
}

enum fr_status fr_rndv_send_push_held(struct fr_rndv_send *send)
{
    if (!send->sent || send->pushed || !fr_rndv_send_needs_push(send))
        return FR_OK;
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
    bool answers = (send->scheme->flags & FR_RNDV_ANSWERS) || send->waits;
    while (!send->scheme->progress(send)) {
        if (!fr_wait_step(&wait) || !answers)
            continue;
        fr_rndv_progress(NULL);
        if ((send->stage.ring_bytes > 0 && fr_rndv_ledger_state(send->index) == FR_RNDV_FAILED) ||
            (fr_wait_ns(&wait) > FR_SECOND_NS && fr_rndv_send_is_lost(send)))
            return FR_ERR_CANCELLED;
    }
    send->pushed = true;
    return send->failure;
}

enum fr_status fr_rndv_send_push(struct fr_rndv_send *send)
{
    fr_rndv_send_hold(send->index);
    enum fr_status status = fr_rndv_send_push_held(send);
    fr_rndv_send_release(send->index);
    return status;
}

// ---- the end

static void note_failure(const struct fr_rndv_send *send)
{
    if (send->scheme->note_failure != NULL)
        send->scheme->note_failure(send);
}

void fr_rndv_send_follow_refusal(struct fr_rndv_send *send)
{
    const struct fr_rndv_entry entry = {.number = send->number, .index = send->index};
    note_failure(send);
    if (fr_rndv_pipeline_take_over(send))
        return;
    fr_warn_once("%s: the receiver cannot map the memory of a message, and there is no other way "
                 "for it",
                 send->call);
    send->failure = FR_ERR_NO_MEMORY;
    fr_rndv_ledger_fail(send->index, send->number, !send->remote);
    if (send->remote) // the receiver there waits for another scheme
        (void)fr_rndv_entry_send(send->address.to, FR_CONTROL_WITHDRAWN, &entry, true);
}

static bool may_leave(const struct fr_rndv_send *send, enum fr_rndv_state state, bool waited)
{
    return send->scheme->may_leave == NULL || send->scheme->may_leave(send, state, waited);
}

// Ends a send whose receiver has died while it pulled, which is looked at each second.
static void end_if_lost(struct fr_rndv_send *send)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    if (send->since_ns == 0 || fr_time_ns() - send->since_ns < FR_SECOND_NS)
        return;
    send->since_ns = 0;
    if (!fr_rndv_send_is_lost(send) ||
        !fr_rndv_slot_change(slot, send->number, FR_RNDV_PULLING, FR_RNDV_FAILED))
        return;
    fr_error("%s: the receiving process is gone", send->call);
    send->over = true;
}

static bool is_over(struct fr_rndv_send *send, unsigned *copies)
{
    enum fr_rndv_state state = fr_rndv_ledger_state(send->index);
    if (send->over)
        return true;
    if (state == FR_RNDV_REFUSED) {
        fr_rndv_send_follow_refusal(send);
        return false;
    }
    if (FR_LIKELY(state == FR_RNDV_PULLED)) {
        fr_rndv_send_note_pulled(send->address.to);
        send->over = true;
        return true;
    }
    bool gone = send->scheme->progress(send);
    if (state == FR_RNDV_FAILED && send->failure == FR_OK) {
        note_failure(send);
        fr_warn_once("%s: the receiver could not fetch a message", send->call);
    }
    if (state == FR_RNDV_PULLING)
        end_if_lost(send);
    bool waited = fr_rndv_send_has_waited(send, state);
    send->over =
        send->over || fr_rndv_state_is_over(state) || (gone && may_leave(send, state, waited));
    if (send->over || gone || !waited || state != FR_RNDV_ADVERTISED)
        return send->over;
    if (*copies == 0)
        return false;
    if (!fr_rndv_send_leave_held(send, false)) {
        send->tried_ns = fr_time_ns();
        return false;
    }
    --*copies;
    return true;
}

// A list may be so long that receivers of the first sends ask for them meanwhile.
bool fr_rndv_send_poll(struct fr_rndv_send *send, unsigned *copies)
{
    enum { POLLS_A_LOOK = 256 };
    static FR_TLS unsigned polls;
    if (FR_UNLIKELY(fr_rndv_any_waiting()) && ++polls % POLLS_A_LOOK == 0)
        fr_rndv_progress(NULL);
    if (!fr_rndv_send_try_hold(send->index))
        return false; // who holds it goes on with it
    bool over = is_over(send, copies);
    fr_rndv_send_release(send->index);
    return over;
}

bool fr_rndv_send_is_lost(const struct fr_rndv_send *send)
{
    return !fr_job_control_is_alive(send->address.to);
}

// Withdraws a message that nobody will receive, or that never left.
static void withdraw(struct fr_rndv_send *send)
{
    const struct fr_rndv_entry entry = {.number = send->number, .index = send->index};
    if (send->entered && send->remote)
        (void)fr_rndv_entry_send(send->address.to, FR_CONTROL_WITHDRAWN, &entry, false);
    fr_rndv_send_destroy(send);
}

bool fr_rndv_send_is_done(struct fr_rndv_send *send)
{
    enum fr_rndv_state state = fr_rndv_ledger_state(send->index);
    if (state == FR_RNDV_REFUSED)
        fr_rndv_send_follow_refusal(send);
    if (state == FR_RNDV_FAILED && send->failure == FR_OK)
        note_failure(send);
    (void)send->scheme->progress(send);
    return fr_rndv_state_is_over(state) && !send->stage.copying &&
           (send->scheme->is_quiet == NULL || send->scheme->is_quiet(send));
}

// Has the processor fetch the word of a slot that is likely to be freed soon. Sends of one call
// mostly stand in a row, and a receiver has written each word.
static void prefetch_after(unsigned index)
{
    enum { AHEAD = 2 };
    __builtin_prefetch(&fr_rndv_ledger_slot((index + AHEAD) % FR_RNDV_SLOTS)->word, 1);
}

// Ends the operation of a send that is held, and releases it. Returns why its message is lost, as
// far as is known.
static enum fr_status end_held(struct fr_rndv_send *send, bool cancelled)
{
    unsigned index = send->index;
    enum fr_status failure = send->failure;
    bool in_buffer = !fr_rndv_send_needs_push(send) && (!send->over || send->waits);
    if (cancelled || !send->sent || in_buffer)
        withdraw(send);
    else if (fr_rndv_send_is_done(send))
        fr_rndv_send_destroy(send);
    else {
        fr_rndv_stage_cut_ring(send);
        fr_rndv_detached_add(send);
    }
    fr_rndv_send_release(index);
    return failure;
}

static enum fr_status end(struct fr_rndv_send *send, bool cancelled)
{
    prefetch_after(send->index);
    fr_rndv_send_hold(send->index);
    return end_held(send, cancelled);
}

enum fr_status fr_rndv_send_end(struct fr_rndv_send *send)
{
    return end(send, false);
}

bool fr_rndv_send_try_end(struct fr_rndv_send *send, enum fr_status *failure)
{
    if (!fr_rndv_send_try_hold(send->index))
        return false;
    *failure = end_held(send, false);
    return true;
}

void fr_rndv_send_free(struct fr_rndv_send *send, bool cancelled)
{
    if (send != NULL)
        (void)end(send, cancelled);
}

void fr_rndv_send_handle(int from, enum fr_job_control_kind kind, const struct fr_rndv_entry *entry)
{
    if (entry->index >= fr_rndv_ledger_count())
        return;
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(entry->index);
    if (slot == NULL || atomic_load_explicit(&slot->to, memory_order_relaxed) != from)
        return;
    enum fr_rndv_state state = FR_RNDV_PULLING;
    if (kind == FR_CONTROL_DOUBTED) {
        (void)fr_rndv_slot_doubt(fr_job_rank(), slot, entry->number, FR_SLOT_DOUBTED);
        return;
    }
    fr_rndv_send_note_taken(from, entry->number);
    (void)fr_rndv_slot_lift_doubt(fr_job_rank(), slot, entry->number);
    if (kind == FR_CONTROL_RETRY)
        state = FR_RNDV_REFUSED;
    else if (kind == FR_CONTROL_ATS)
        state = entry->ready == FR_RNDV_PULLED ? FR_RNDV_PULLED : FR_RNDV_FAILED;
    if (!fr_rndv_slot_change(slot, entry->number, FR_RNDV_ADVERTISED, state) &&
        state != FR_RNDV_PULLING &&
        !fr_rndv_slot_change(slot, entry->number, FR_RNDV_PULLING, state) &&
        state != FR_RNDV_REFUSED) // given up, before this process has seen the refusal
        (void)fr_rndv_slot_change(slot, entry->number, FR_RNDV_REFUSED, state);
    if (state == FR_RNDV_REFUSED || (kind == FR_CONTROL_BEGUN && fr_rndv_any_waiting()))
        fr_rndv_ledger_count_refused();
}
