// SPDX-License-Identifier: BSD-3-Clause
// Progress of operations that wait: sends that are not over for the application, and receives that
// have come though nobody is completing them.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/posted.h"
#include "fabrail/request/schedule.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/rndv/progress.h"
#include "fabrail/rndv/receive.h"
#include "request/table.h"

enum {
    FREED_LIMIT_S = 10,
    MOST_EARLY = FR_RNDV_AT_ONCE, // receives that are looked at in one go
    LITTLE_BYTES = 1 << 20,       // of copies begun together, fewer than which take no longer than
                                  // their launch
};

// Ends a send that is over. A failure stays with the operation, for the call that completes it.
static void end_send(struct fr_request_op *op)
{
    const bool pulled = fr_rndv_send_is_pulled(op->send); // else MPI may have its RTS still
    enum fr_status failure = fr_rndv_send_end(op->send);
    op->send = NULL;
    op->failure = op->failure == FR_OK ? failure : op->failure;
    if ((pulled || failure != FR_OK) && !op->receive.takes_rts) // what it receives may still come
        atomic_store_explicit(&op->delivered, true, memory_order_release);
}

bool fr_request_poll(struct fr_request_op *op, unsigned *copies)
{
    if (op->schedule)
        return fr_request_schedule_poll(op);
    if (!op->send || !fr_rndv_send_poll(op->send, copies))
        return !op->send;
    end_send(op);
    return true;
}

bool fr_request_is_over(struct fr_request_op *op)
{
    unsigned copies = 1;
    return fr_request_poll(op, &copies);
}

bool fr_request_leave_buffer(struct fr_request_op *op)
{
    if (!op->send)
        return true;
    if (!fr_rndv_send_leave(op->send))
        return false;
    end_send(op);
    return true;
}

// Returns whether a send is lost since its receiver has died in the middle. Warns once of a long
// wait.
static bool is_lost(const struct fr_request_op *op, struct fr_wait *wait)
{
    if (fr_wait_ns(wait) < FR_SECOND_NS)
        return false;
    if (fr_rndv_send_is_lost(op->send)) {
        fr_error("%s: the receiving process is gone", fr_abi_rows[op->fn].name);
        return true;
    }
    if (fr_wait_judge(wait, 0) == FR_WAIT_LONG)
        fr_warn_once("%s: a message has waited for %ld s to be received, and there is no memory to "
                     "copy it to",
                     fr_abi_rows[op->fn].name, (long)(fr_wait_ns(wait) / FR_SECOND_NS));
    return false;
}

// Returns whether MPI may be asked for the status of a receive. MPICH 5 takes a persistent request
// for inactive from then on.
static bool may_ask(const struct fr_request_op *op)
{
    return !op->persistent || fr_abi_is_open_mpi();
}

// Returns whether an RTS has come whole though MPI may not be asked. MPICH copies one as a whole
// while a thread is in it. If other threads may be, only memory will do that is not the message's
// own.
static bool is_whole(const struct fr_request_op *op, const struct fr_rndv_incoming *incoming)
{
    return fr_request_alone ||
           (fr_request_op_is_staged(op) && !fr_rndv_incoming_is_short(incoming));
}

// Returns whether the request of a receive is complete with nothing but an RTS that has come whole.
// MPI is not asked about any other: MPICH calls the error handler each time that it is asked for a
// truncated one.
static bool has_come(struct fr_request_op *op, struct fr_rndv_incoming *incoming)
{
    _Alignas(16) char status[FR_STATUS_BYTES];
    int complete = 0;
    if (!fr_request_holds_rts(op, incoming) ||
        !fr_rndv_incoming_fits(incoming, fr_request_receive_view(op)->out_bytes))
        return false;
    if (!may_ask(op))
        return is_whole(op, incoming);
    return FR_MPI(Request_get_status, op->key, FR_PTR(&complete), FR_PTR(status)) ==
               fr_abi_mpi.SUCCESS &&
           complete && fr_request_still_has_rts(op, status, incoming);
}

static bool may_bring_rts(const struct fr_request_op *op)
{
    return op->receive.takes_rts && !op->delivered && op->key && fr_rndv_incoming_any();
}

// Returns whether this look leaves out a receive that shows nothing yet. MPI makes progress each
// time that it is asked about one that is under way, so it is asked about a few of them, in turn.
static bool is_left_out(struct fr_request_op *op, struct fr_request_looks *looks)
{
    enum { ASKED_AT_ONCE = 8 };
    const size_t period = (looks->receives - 1) / ASKED_AT_ONCE + 1;
    if (op->receive.turn == 0)
        op->receive.turn = 1 + looks->unasked++ % period;
    bool asks = op->receive.turn >= period;
    op->receive.turn = asks ? 1 : op->receive.turn + 1;
    return !asks;
}

// Returns whether a receive is under way still. Its RTS may come while MPI tests the request, which
// MPI then ends, so that the message would be waited for. So MPI tests none that is not complete
// before. MPICH's error handler is called for truncated ones each time, unless the program has
// none.
static bool is_under_way(struct fr_request_op *op, struct fr_request_looks *looks)
{
    int complete = 0;
    bool tells = may_ask(op) && (fr_abi_is_open_mpi() || !fr_request_may_be_abandoned());
    if (!tells) { // what has reached this process is seen from now on
        if (!looks->has_progressed)
            fr_job_progress();
        looks->has_progressed = true;
        return false;
    }
    op->receive.has_ended = FR_MPI(Request_get_status, op->key, FR_PTR(&complete),
                                   fr_abi_mpi.STATUS_IGNORE) != fr_abi_mpi.SUCCESS ||
                            complete;
    return !op->receive.has_ended;
}

bool fr_request_is_arriving(struct fr_request_op *op, struct fr_request_looks *looks)
{
    struct fr_rndv_incoming incoming;
    if (op->arrival)
        return !fr_request_arrival_poll(op);
    if (!may_bring_rts(op))
        return false;
    if (!op->receive.has_ended && !fr_request_holds_rts(op, &incoming) && is_left_out(op, looks))
        return true;
    if (!op->receive.has_ended && is_under_way(op, looks))
        return true;
    if (!fr_request_holds_rts(op, &incoming) || fr_rndv_incoming_is_short(&incoming) ||
        !has_come(op, &incoming))
        return false;
    return !fr_request_arrivals_begin(&op, &incoming, 1) || !fr_request_arrival_poll(op);
}

// Receives for an operation that also sends. The sender of that message may be waiting in the same
// way.
static void look_at_own(struct fr_request_op *op)
{
    struct fr_rndv_incoming incoming;
    void *no_status = NULL;
    int error = fr_abi_mpi.SUCCESS;
    struct fr_request_looks looks = {.receives = 1};
    if (!may_bring_rts(op) || fr_request_is_arriving(op, &looks) || op->delivered)
        return;
    // Only an operation that is complete but for its send can have been received.
    if (has_come(op, &incoming))
        (void)!fr_request_deliver(&op, &no_status, &error, 1); // a failure stays with it
}

// Returns whether an operation that is waited for is the only one under way.
static bool is_alone(void)
{
    return atomic_load_explicit(&fr_request_active_count, memory_order_relaxed) == 1 &&
           atomic_load_explicit(&fr_request_posted_count, memory_order_relaxed) == 0;
}

// Begins to wait for a schedule. One that is alone is looked at for about as long as a blocking
// call looks at it. A look takes twice the time.
static struct fr_wait begin_schedule(const struct fr_request_schedule *schedule, bool alone)
{
    struct fr_wait wait = {.steps_a_yield = FR_WAIT_POLLS};
    if (alone && schedule->spins)
        wait.spins = atomic_load_explicit(schedule->spins, memory_order_relaxed) / 2;
    wait.pauses = wait.spins > 0;
    return wait;
}

// Begins to wait for an operation. Most receivers pull within ten microseconds, and then wait for
// what this process sends next. A send does not keep it by looking at others so early. But Open MPI
// holds RTS back where a few dozen of them wait for one process, until this one calls it again.
static struct fr_wait begin_wait(const struct fr_request_op *op, size_t requests, bool alone)
{
    if (requests > FR_REQUEST_FEW)
        return (struct fr_wait){.steps_a_yield = FR_WAIT_POLLS / 4};
    if (op->schedule)
        return begin_schedule(op->schedule, alone);
    return (struct fr_wait){.spins = op->send ? 3 * FR_WAIT_POLLS : 0,
                            .steps_a_yield = FR_WAIT_POLLS};
}

void fr_request_wait_over(struct fr_request_op *op, size_t requests)
{
    const bool alone = op->schedule && is_alone();
    struct fr_wait wait = begin_wait(op, requests, alone);
    if (op->schedule)
        fr_request_schedule_await(op->schedule, true);
    for (;;) {
        if (alone && op->schedule->wait_for_device)
            op->schedule->wait_for_device(op);
        if (fr_request_is_over(op))
            return;
        if (!fr_wait_step(&wait))
            continue;
        fr_request_progress();
        look_at_own(op);
        if (op->send && is_lost(op, &wait))
            return;
    }
}

// Receives that are complete and have brought an RTS, claimed among others.
struct early {
    bool in_passing; // what is on its way is left alone
    struct fr_request_op *claimed[MOST_EARLY];
    size_t claimed_count;
    struct fr_request_op *ops[MOST_EARLY];
    struct fr_rndv_incoming incoming[MOST_EARLY];
    size_t count;
    size_t ended; // receives whose message was on its way, and is there now
};

// Returns whether a message goes to one piece of memory, so that nothing need wait for its copy.
static bool is_plain(struct fr_request_op *op)
{
    const struct fr_staging_view *view = fr_request_receive_view(op);
    return view && fr_staging_view_is_in_one_piece(view);
}

// Looks at claimed receives. Moves on those that are being received, unless in passing, and begins
// what comes over the network.
static void find_early(struct early *early, bool waits)
{
    early->count = 0;
    early->ended = 0;
    if (!early->in_passing)
        early->ended = fr_request_arrivals_move(early->claimed, early->claimed_count, waits);
    for (size_t i = 0; i < early->claimed_count; i++) {
        struct fr_request_op *op = early->claimed[i];
        const struct fr_rndv_incoming *incoming = &early->incoming[early->count];
        if (op->arrival || op->delivered || (early->in_passing && !is_plain(op)) ||
            !has_come(op, &early->incoming[early->count]))
            continue;
        if (fr_rndv_incoming_is_short(incoming))
            early->ops[early->count++] = op;
        else
            early->ended +=
                fr_request_arrivals_begin(&op, incoming, 1) && fr_request_arrival_poll(op);
    }
}

// Returns whether what has come is so short that its launch takes longer, while copies are under
// way. It then goes together with what comes until these have ended.
static bool is_held_back(const struct early *early)
{
    if (early->count >= FR_REQUEST_WORTH_A_LAUNCH ||
        atomic_load_explicit(&fr_request_flying, memory_order_relaxed) == 0)
        return false;
    uint64_t bytes = 0;
    for (size_t i = 0; i < early->count; i++)
        bytes += early->incoming[i].bytes;
    return bytes < LITTLE_BYTES;
}

// Receives what has come, or begins to. Returns the number of messages. A failure stays with its
// operation, for the call that completes it.
static size_t receive_found(struct early *early, bool waits)
{
    if (early->count == 0 || (!waits && is_held_back(early)) ||
        !fr_request_arrivals_begin(early->ops, early->incoming, early->count))
        return 0;
    if (waits)
        early->ended += fr_request_arrivals_move(early->ops, early->count, true);
    return early->count;
}

// Looks at claimed receives, and receives what has come to them, or begins to. Returns the number
// of messages.
static size_t look_at_claimed(struct early *early, bool waits)
{
    find_early(early, waits);
    const size_t moved = early->ended;
    return moved + receive_found(early, waits);
}

static size_t claim_early(struct early *early, size_t skip)
{
    early->claimed_count = fr_request_table_claim_receives(early->claimed, MOST_EARLY, skip);
    return early->claimed_count;
}

static size_t look_at_all(bool waits)
{
    struct early early;
    size_t received = 0;
    early.in_passing = false;
    if (!fr_rndv_incoming_any())
        return 0;
    fr_request_posted_look();
    for (size_t skip = 0; claim_early(&early, skip) > 0;
         skip += early.claimed_count - early.ended) {
        received += look_at_claimed(&early, waits);
        fr_request_table_unclaim(early.claimed, early.claimed_count);
    }
    return received;
}

size_t fr_request_receive_early(void)
{
    return look_at_all(true);
}

// Another thread, or one that an error handler has sent elsewhere, may never come back to what was
// begun.
void fr_request_begin_early(void)
{
    (void)look_at_all(!fr_request_alone);
}

// Begins to receive what has come, and lets go of it, so that its senders need not wait for this
// process to make its next call. Where that cannot be done, ends it. Returns whether any has come.
static bool begin_and_let_go(void)
{
    struct early early;
    bool all = true, any = false;
    early.in_passing = true;
    fr_request_posted_look();
    for (size_t skip = 0; claim_early(&early, skip) > 0;
         skip += early.claimed_count - early.ended) {
        any = look_at_claimed(&early, false) > 0 || any;
        all = fr_request_arrivals_let_go(early.claimed, early.claimed_count) && all;
        fr_request_table_unclaim(early.claimed, early.claimed_count);
    }
    if (!all)
        fr_request_end_early();
    return any;
}

// Messages may lie about that no receive matches. Each look in vain has the next one wait for twice
// as many requests.
void fr_request_look_in_passing(size_t bytes)
{
    enum { FEWEST = 8, MOST = 32, LEAST_BYTES = 4 << 20, VAIN_MOST = 6 };
    static FR_TLS size_t made, made_bytes; // since the last look, or the first of many requests
    static FR_TLS unsigned vain;
    made++;
    made_bytes += bytes;
    bool is_worth_a_look =
        made >= (size_t)FEWEST << vain && made_bytes >= LEAST_BYTES && fr_request_alone &&
        fr_rndv_incoming_left() >=
            FEWEST + atomic_load_explicit(&fr_request_flying, memory_order_relaxed);
    if (FR_UNLIKELY(is_worth_a_look)) {
        fr_job_progress();
        vain = begin_and_let_go() ? 0 : vain < VAIN_MOST ? vain + 1 : vain;
    }
    if (is_worth_a_look || made >= (size_t)MOST << vain)
        made = made_bytes = 0;
}

void fr_request_begin_claimed(struct fr_request_op *const *ops, size_t count)
{
    struct early early;
    early.in_passing = false;
    early.claimed_count = 0;
    for (size_t i = 0; i < count && fr_rndv_incoming_any(); i++) {
        if (ops[i] && ops[i]->receive.takes_rts && ops[i]->active && !ops[i]->delivered)
            early.claimed[early.claimed_count++] = ops[i];
        if (early.claimed_count < MOST_EARLY && i + 1 < count)
            continue;
        (void)look_at_claimed(&early, !fr_request_alone);
        early.claimed_count = 0;
    }
}

// Waits until it is known what becomes of RTS that could not be marked. These are marked when the
// receives are looked at again, since they may have others then. Returns whether to look again.
static bool await_news(const struct fr_rndv_incoming *incoming, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all = fr_rndv_incoming_take(&incoming[i]) && all;
    return all && count == MOST_EARLY;
}

// Looks at operations whose request was freed. One that another thread has in hand is looked at
// when that lets go. That takes no longer than to receive a message, unless an error handler has
// left that call.
static void look_at_freed(void)
{
    if (FR_LIKELY(!fr_request_any_freed()))
        return;
    uint64_t since = fr_request_freed_looks();
    struct fr_wait wait = {0};
    fr_request_poll_freed();
    while (fr_request_look_at_unseen(since) &&
           fr_wait_judge(&wait, FREED_LIMIT_S) != FR_WAIT_OVER) {
        fr_rndv_progress(NULL);
        (void)fr_wait_step(&wait);
    }
}

void fr_request_mark_received(void)
{
    struct fr_rndv_incoming incoming[MOST_EARLY];
    look_at_freed();
    while (await_news(incoming, fr_request_posted_take_incoming(incoming, MOST_EARLY)))
        ;
    while (await_news(incoming, fr_request_table_take_incoming(incoming, MOST_EARLY)))
        ;
    while (await_news(incoming, fr_request_take_freed(incoming, MOST_EARLY)))
        ;
}
