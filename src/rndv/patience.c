// SPDX-License-Identifier: BSD-3-Clause
// Patience of senders: how long they wait for receivers to pull before the bytes leave the buffer,
// and how long where there is no room for copies.
#include "config.h"

#include "rndv/send.h"

#include "fabrail/core/time.h"

enum {
    LONGEST_WAIT_NS = 1000000000, // even if the receiver pulls other messages meanwhile
    BLOCKED_PATIENCE_NS = 10000000,
    LEAST_PATIENCE_NS = 1000000000,
    MOST_PATIENCE_DOUBLED = 2,
    SHORT_BYTES = 4096, // no more than a send takes that waits; and only some hundreds are short
};

// Facts about each receiver. Two that share a place only make senders wait longer.
static struct {
    _Atomic int64_t
        pulled_ns; // when it was last seen to pull: if it pulls it comes to the rest, too
    _Atomic int64_t exceeded_ns; // when a message to it last had to leave beyond the bound
    _Atomic unsigned times;      // how often that was so since it has last pulled
} receivers[256];

static unsigned place_of(const struct fr_rndv_send *send)
{
    return (unsigned)send->address.to % FR_ARRAY_LENGTH(receivers);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

bool fr_rndv_send_has_waited(struct fr_rndv_send *send, enum fr_rndv_state state)
{
    int64_t now = fr_time_ns();
    unsigned place = place_of(send);
    if (state != FR_RNDV_ADVERTISED) {
        atomic_store_explicit(&receivers[place].pulled_ns, now, memory_order_relaxed);
        atomic_store_explicit(&receivers[place].times, 0, memory_order_relaxed);
    }
    if (send->since_ns == 0)
        send->since_ns = now;
    int64_t since = atomic_load_explicit(&receivers[place].pulled_ns, memory_order_relaxed);
    if (since < send->since_ns || now - send->since_ns > LONGEST_WAIT_NS)
        since = send->since_ns;
    int64_t wait_ns =
        send->scheme->wait_ns != NULL ? send->scheme->wait_ns(send) : FR_RNDV_LEAST_WAIT_NS;
    return now - since >= wait_ns;
}

// Returns whether the message may have been cut off, so that nobody may ever come to it.
static bool is_in_doubt(const struct fr_rndv_send *send)
{
    const struct fr_rndv_slot *slot = fr_rndv_ledger_slot(send->index);
    return atomic_load_explicit(&slot->word, memory_order_relaxed) & FR_SLOT_DOUBTED;
}

// A receiver that pulls will come to the message, unless it pulls other messages for long. A
// receiver that does not pull may be where it pulls nothing while it waits for this process, and
// not all such calls can be told of. It may also be in no call at all. So each time that a message
// had to leave beyond the bound, the receiver gets more time.
bool fr_rndv_send_stays(struct fr_rndv_send *send, bool on_device)
{
    if (on_device || send->bytes < SHORT_BYTES || fr_staging_has_room(send->bytes) ||
        is_in_doubt(send))
        return false;
    unsigned place = place_of(send);
    int64_t now = fr_time_ns();
    if (send->stays_since_ns == 0)
        send->stays_since_ns = now;
    unsigned times = atomic_load_explicit(&receivers[place].times, memory_order_relaxed);
    bool blocked = fr_rndv_ledger_await(send->address.to, now) || // those elsewhere do not tell
                   (send->remote && send->waits && times > 0);
    int64_t since = later(send->stays_since_ns, atomic_load_explicit(&receivers[place].exceeded_ns,
                                                                     memory_order_relaxed));
    if (now - send->stays_since_ns <= LONGEST_WAIT_NS)
        since =
            later(since, atomic_load_explicit(&receivers[place].pulled_ns, memory_order_relaxed));
    if (now - since < (blocked ? BLOCKED_PATIENCE_NS : (int64_t)LEAST_PATIENCE_NS << times))
        return true;
    if (!blocked && times < MOST_PATIENCE_DOUBLED)
        atomic_store_explicit(&receivers[place].times, times + 1, memory_order_relaxed);
    atomic_store_explicit(&receivers[place].exceeded_ns, now, memory_order_relaxed);
    fr_warn_once("%s: a message has left its buffer beyond FABRAIL_STAGING_MAX, since rank %d has "
                 "received nothing for a while",
                 send->call, send->address.to);
    return false;
}
