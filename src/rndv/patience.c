// SPDX-License-Identifier: BSD-3-Clause
// Patience of senders: how long they wait for receivers to pull before the bytes leave the buffer,
// how long where there is no room for copies, and how the bytes then leave.
//
// A receiver that works comes to the message sooner than a copy would pay. So the clock stands
// still while it works, as far as that brings the message nearer. Each message taken of those
// before it does. Other work does for one whole sweep at most, as that would have taken this
// message. A device that copies the message does while its host is elsewhere, for as long as most
// copies take. Nothing lasts for more than a second. Messages before this one are finite in number,
// so that patience ends whatever the receiver does.
#include "config.h"

#include "rndv/send.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "rndv/incoming_int.h"
#include "rndv/waiting_sends.h"

enum {
    LONGEST_WORK_NS = 1000000000, // of a receiver that takes no message before this one
    BUSY_NS = 1000000,            // of its device alone
    BLOCKED_PATIENCE_NS = 10000000,
    LEAST_PATIENCE_NS = 1000000000,
    MOST_PATIENCE_DOUBLED = 2,
    SHORT_BYTES = 4096, // no more than a send takes that waits; and only some hundreds are short
    // Fields of what was taken.
    NUMBER_SHIFT = 24,
    RANK_SHIFT = 8,
    RANKS = 1 << (NUMBER_SHIFT - RANK_SHIFT),
    SWEEPS = 1 << RANK_SHIFT,
};

// ---- what receivers tell

// Returns a word for a message that was taken. Words of one sender and sweep are in the order of
// their numbers.
static uint64_t taken_of(int from, uint64_t number, uint32_t sweep)
{
    return number / FR_SLOT_ONE << NUMBER_SHIFT | (uint64_t)((unsigned)from % RANKS) << RANK_SHIFT |
           sweep % SWEEPS;
}

static FR_TLS bool sweeps; // this thread does, and its ledger says so

void fr_rndv_sweep_take(const struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_here();
    if (ledger == NULL)
        return;
    struct fr_rndv_sweeps *own = &ledger->sweeps;
    if (!sweeps)
        atomic_fetch_add_explicit(&own->begun, 1, memory_order_relaxed);
    sweeps = true;
    _Atomic uint64_t *taken = &own->taken[(unsigned)incoming->from % FR_RNDV_SENDERS];
    uint64_t before = atomic_load_explicit(taken, memory_order_relaxed);
    uint64_t word = taken_of(incoming->from, incoming->number,
                             atomic_load_explicit(&own->begun, memory_order_relaxed));
    bool is_later = before < word &&
                    before % ((uint64_t)1 << NUMBER_SHIFT) == word % ((uint64_t)1 << NUMBER_SHIFT);
    if (!is_later)
        atomic_store_explicit(taken, word, memory_order_relaxed);
}

void fr_rndv_sweep_end(void)
{
    struct fr_rndv_ledger *ledger = sweeps ? fr_rndv_ledger_here() : NULL;
    if (ledger != NULL)
        atomic_fetch_add_explicit(&ledger->sweeps.ended, 1, memory_order_release);
    sweeps = false;
}

// ---- what senders see of it

// Facts about each receiver. Two that share an entry only make senders wait longer.
static struct {
    _Atomic int64_t exceeded_ns; // when a message to it last had to leave beyond the bound
    _Atomic unsigned times;      // how often that was so since it has last pulled
    _Atomic uint64_t taken;      // of a receiver on another host: what it has told of last
} receivers[256];

static unsigned index_of(int to)
{
    return (unsigned)to % FR_ARRAY_LENGTH(receivers);
}

void fr_rndv_send_note_taken(int by, uint64_t number)
{
    atomic_store_explicit(&receivers[index_of(by)].taken, taken_of(fr_job_rank(), number, 0),
                          memory_order_relaxed);
}

void fr_rndv_send_note_pulled(int by)
{
    atomic_store_explicit(&receivers[index_of(by)].times, 0, memory_order_relaxed);
}

// A look at how far a receiver is. Those on other hosts have no sweeps.
struct look {
    uint32_t begun, ended;
    uint64_t taken; // of this process; 0: nothing, or not known
};

static struct look look_at_receiver(const struct fr_rndv_send *send)
{
    struct fr_rndv_ledger *ledger = send->remote ? NULL : fr_rndv_ledger_of(send->address.to);
    struct look look = {0};
    if (ledger == NULL) {
        look.taken = atomic_load_explicit(&receivers[index_of(send->address.to)].taken,
                                          memory_order_relaxed);
        return look;
    }
    const struct fr_rndv_sweeps *its = &ledger->sweeps;
    unsigned rank = (unsigned)fr_job_rank();
    look.ended = atomic_load_explicit(&its->ended, memory_order_acquire);
    look.begun = atomic_load_explicit(&its->begun, memory_order_relaxed);
    look.taken = atomic_load_explicit(&its->taken[rank % FR_RNDV_SENDERS], memory_order_relaxed);
    if ((look.taken >> RANK_SHIFT) % RANKS != rank % RANKS)
        look.taken = 0;
    return look;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void begin_patience(struct fr_rndv_send *send, const struct look *look, int64_t now)
{
    send->since_ns = send->working_ns = now;
    send->seen_begun = look->begun;
}

// Notes what the receiver has taken since the last look. Each earlier message that it takes begins
// patience anew.
static void note_taken(struct fr_rndv_send *send, const struct look *look, int64_t now)
{
    if (look->taken == send->seen_taken)
        return;
    send->seen_taken = look->taken;
    if (look->taken == 0)
        return;
    fr_rndv_send_note_pulled(send->address.to);
    if (look->taken < taken_of(fr_job_rank(), send->number, 0))
        begin_patience(send, look, now);
}

// Returns whether the receiver has let go of the message while its device copies it.
static bool is_busy(const struct fr_rndv_send *send)
{
    const struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    return atomic_load_explicit(&slot->word, memory_order_relaxed) & FR_SLOT_BUSY;
}

bool fr_rndv_send_has_waited(struct fr_rndv_send *send, enum fr_rndv_state state)
{
    int64_t now = fr_time_ns();
    struct look look = look_at_receiver(send);
    if (send->since_ns == 0) {
        send->seen_taken = look.taken;
        begin_patience(send, &look, now);
    }
    note_taken(send, &look, now);
    // No sweep has ended that has begun since.
    bool sweeps_on = look.begun != look.ended && (int32_t)(look.ended - send->seen_begun) <= 0;
    bool takes_this = state != FR_RNDV_ADVERTISED;
    if (takes_this)
        fr_rndv_send_note_pulled(send->address.to);
    int64_t works_ns = takes_this || sweeps_on ? LONGEST_WORK_NS : is_busy(send) ? BUSY_NS : 0;
    if (now - send->since_ns < works_ns) {
        send->working_ns = now;
        return false;
    }
    int64_t wait_ns =
        send->scheme->wait_ns != NULL ? send->scheme->wait_ns(send) : FR_RNDV_LEAST_WAIT_NS;
    return now - later(send->working_ns, send->tried_ns) >= wait_ns;
}

// ---- without room

// Returns whether the message may have been cut off, so that nobody may ever come to it.
static bool is_in_doubt(const struct fr_rndv_send *send)
{
    const struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    return atomic_load_explicit(&slot->word, memory_order_relaxed) & FR_SLOT_DOUBTED;
}

// Returns whether the bytes of a send shall stay in the program's buffer for now. They do if
// neither host nor device has room for them, and the receiver may still come to them. `on_device`
// says that the device has room, `must` that they leave beyond the bounds on memory.
//
// A receiver that pulls will come to the message, unless it pulls other messages for long. A
// receiver that does not pull may be where it pulls nothing while it waits for this process, and
// not all such calls can be told of. It may also be in no call at all. So each time that a message
// had to leave beyond the bound, the receiver gets more time.
static bool stays(struct fr_rndv_send *send, bool on_device, bool must)
{
    if (must || on_device || send->bytes < SHORT_BYTES || fr_staging_has_room(send->bytes) ||
        is_in_doubt(send))
        return false;
    unsigned index = index_of(send->address.to);
    int64_t now = fr_time_ns();
    if (send->stays_since_ns == 0)
        send->stays_since_ns = now;
    unsigned times = atomic_load_explicit(&receivers[index].times, memory_order_relaxed);
    bool blocked =
        fr_rndv_ledger_await(send->address.to, now) || fr_job_control_is_blocked(send->address.to);
    int64_t since = later(send->stays_since_ns, atomic_load_explicit(&receivers[index].exceeded_ns,
                                                                     memory_order_relaxed));
    since = later(since, send->working_ns);
    if (now - since < (blocked ? BLOCKED_PATIENCE_NS : (int64_t)LEAST_PATIENCE_NS << times))
        return true;
    if (!blocked && times < MOST_PATIENCE_DOUBLED)
        atomic_store_explicit(&receivers[index].times, times + 1, memory_order_relaxed);
    atomic_store_explicit(&receivers[index].exceeded_ns, now, memory_order_relaxed);
    fr_warn_once("%s: a message has left its buffer beyond FABRAIL_STAGING_MAX, since rank %d has "
                 "received nothing for a while",
                 send->call, send->address.to);
    return false;
}

// ---- out of the buffer

void fr_rndv_send_leave_now(struct fr_rndv_send *send)
{
    bool begun = send->scheme != &fr_rndv_waiting;
    enum fr_rndv_state state = fr_rndv_ledger_state(send->index);
    if (fr_rndv_state_is_over(state))
        return;
    if (!begun && fr_rndv_pipeline_begin(send, false) != FR_OK &&
        (state != FR_RNDV_PULLING || fr_rndv_pipeline_begin(send, true) != FR_OK) &&
        !fr_rndv_pipeline_lose(send))
        return;
    send->over = fr_rndv_send_push_held(send) == FR_OK || send->pushed;
    if (!begun)
        fr_rndv_waiting_remove(send);
}

// Moves the bytes of a send that holds its slot to device workspace, or else to host memory.
static bool move_out(struct fr_rndv_send *send, bool on_device, bool must)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    if (fr_rndv_staged_take_over(send) == FR_OK)
        send->pushed = send->over = true;
    else if (send->scheme != &fr_rndv_waiting && !(on_device && stays(send, false, must)))
        send->over = fr_rndv_pipeline_take_over(send);
    (void)fr_rndv_slot_change(slot, send->number, FR_RNDV_MOVING, FR_RNDV_ADVERTISED);
    return send->over;
}

bool fr_rndv_send_leave_held(struct fr_rndv_send *send, bool must)
{
    struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    if (send->over)
        return true;
    if (fr_rndv_send_needs_push(send)) {
        send->over = fr_rndv_send_push_held(send) == FR_OK || send->pushed;
        return true;
    }
    bool on_device = !send->remote && fr_staging_may_lend(send->view.range.device, send->bytes);
    if (stays(send, on_device, must))
        return false;
    if (send->waits && !on_device) {
        fr_rndv_send_leave_now(send);
        return send->over;
    }
    if (!fr_rndv_slot_change(slot, send->number, FR_RNDV_ADVERTISED, FR_RNDV_MOVING))
        return false; // it is just being pulled
    if (move_out(send, on_device, must))
        fr_rndv_waiting_remove(send);
    else if (send->scheme == &fr_rndv_waiting && !stays(send, false, must))
        fr_rndv_send_leave_now(send);
    return send->over;
}

// Returns whether the bytes find room, and the sender needs nothing of the receiver for that.
static bool finds_room(const struct fr_rndv_send *send)
{
    if (fr_rndv_send_needs_push(send))
        return send->stage.ring_bytes == 0;
    return send->over || fr_staging_has_room(send->bytes) ||
           (!send->remote && fr_staging_may_lend(send->view.range.device, send->bytes));
}

bool fr_rndv_send_leave(struct fr_rndv_send *send)
{
    fr_rndv_send_hold(send->index);
    bool has_left = finds_room(send) && fr_rndv_send_leave_held(send, true);
    fr_rndv_send_release(send->index);
    return has_left;
}
