// SPDX-License-Identifier: BSD-3-Clause
// Messages as their receiver sees them: entries in the ledgers of senders on this host, and copies
// of entries from other hosts.
//
// A copy of an RTS may turn up long after its message has gone, in memory that is used again. Its
// number tells, since a sender never uses a number twice.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/rndv/progress.h"
#include "rndv/incoming_int.h"
#include "rndv/replica.h"
#include "rndv/schemes.h"

#include <string.h>

enum {
    STEPS_A_LOOK = 64,   // between looks at whether the sender is alive
    NOTICE_LIMIT_S = 10, // for the notice of a message that has come
    LINE_BYTES = 64,     // of a cache
};

// A look at a slot that may change meanwhile.
struct look {
    uint64_t word;
    uint64_t bytes;
    unsigned length; // of the RTS
    uint64_t comm;
    int to;
    int tag;
};

static uint64_t word_of(struct fr_rndv_slot *slot)
{
    return atomic_load_explicit(&slot->word, memory_order_acquire);
}

static bool is_waiting(struct fr_rndv_slot *slot, uint64_t number)
{
    uint64_t word = word_of(slot);
    return (word & FR_SLOT_NUMBERS) == number && fr_rndv_word_is_waiting(word);
}

// Looks at a slot. Returns false when its message does not wait to be received, or has become
// another one meanwhile. The loads stay in their order. If they see what was written for a later
// message, they see that the word has changed as well.
static bool look_at(struct fr_rndv_slot *slot, struct look *look)
{
    look->word = word_of(slot);
    if (!fr_rndv_word_is_waiting(look->word))
        return false;
    uint64_t sizes = atomic_load_explicit(&slot->sizes, memory_order_acquire);
    look->bytes = fr_rndv_sizes_bytes(sizes);
    look->length = fr_rndv_sizes_length(sizes);
    look->comm = atomic_load_explicit(&slot->comm, memory_order_acquire);
    look->to = atomic_load_explicit(&slot->to, memory_order_acquire);
    look->tag = atomic_load_explicit(&slot->tag, memory_order_acquire);
    return is_waiting(slot, look->word & FR_SLOT_NUMBERS);
}

static bool is_rts(const unsigned char *data, struct fr_rndv_rts *rts)
{
    const struct fr_job_secret *secret = fr_job_control_job_secret();
    if (secret == NULL || memcmp(data, secret, sizeof(*secret)) != 0)
        return false;
    memcpy(rts, data, sizeof(*rts));
    return rts->from < (uint32_t)fr_job_size() && rts->index < FR_RNDV_SLOTS && rts->remote <= 1 &&
           fr_rndv_scheme_of(rts->scheme) != NULL && rts->number != 0 &&
           (rts->number & ~FR_SLOT_NUMBERS) == 0 && rts->bytes >= FR_RNDV_RTS_BYTES;
}

// Has the processor fetch what this process reads of a message when it begins to receive it. It
// reads all of many messages before it begins any.
static void prefetch(const struct fr_rndv_slot *slot)
{
    const char *location = (const char *)&slot->location;
    for (size_t at = 0; at < sizeof(slot->location); at += LINE_BYTES)
        __builtin_prefetch(location + at + LINE_BYTES - 1);
}

// Returns whether the message of an RTS waits in this slot to be received here. The loads stay in
// their order, as in look_at.
static bool is_of(struct fr_rndv_slot *slot, const struct fr_rndv_rts *rts)
{
    if (!is_waiting(slot, rts->number))
        return false;
    uint64_t sizes = atomic_load_explicit(&slot->sizes, memory_order_acquire);
    int to = atomic_load_explicit(&slot->to, memory_order_acquire);
    return fr_rndv_sizes_bytes(sizes) == rts->bytes && to == fr_job_rank() &&
           is_waiting(slot, rts->number);
}

bool fr_rndv_incoming_read(const unsigned char data[FR_RNDV_RTS_BYTES],
                           struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_rts rts;
    if (FR_LIKELY(!is_rts(data, &rts)))
        return false;
    struct fr_rndv_ledger *ledger = rts.remote ? NULL : fr_rndv_ledger_of((int)rts.from);
    if (ledger != NULL && rts.index >= fr_rndv_ledger_slots_of(ledger))
        return false;
    struct fr_rndv_slot *slot = ledger != NULL ? &ledger->slots[rts.index] : NULL;
    // An RTS of a process to itself always goes by the ledger. Other such bytes have been sent back
    // by a program that got them from a receive too short for a whole RTS.
    bool is_own = rts.remote && (int)rts.from == fr_job_rank();
    if (is_own || (slot == NULL && !rts.remote))
        return false;
    if (slot != NULL)
        __builtin_prefetch(&slot->word, 1); // whose state will change
    if (slot != NULL && !is_of(slot, &rts))
        return false;
    if (slot != NULL)
        prefetch(slot);
    incoming->slot = slot;
    incoming->number = rts.number;
    incoming->from = (int)rts.from;
    incoming->bytes = rts.bytes;
    incoming->index = rts.index;
    incoming->location.scheme = rts.scheme;
    return true;
}

bool fr_rndv_incoming_is_of(const unsigned char data[FR_RNDV_RTS_BYTES],
                            const struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_rts rts;
    memcpy(&rts, data, sizeof(rts));
    return fr_rndv_begins_rts(data) && rts.number == incoming->number &&
           rts.from == (uint32_t)incoming->from && rts.index == incoming->index;
}

uint64_t fr_rndv_incoming_left(void)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_here();
    return ledger == NULL ? 0
                          : atomic_load_explicit(&ledger->entered, memory_order_relaxed) -
                                atomic_load_explicit(&ledger->ended, memory_order_relaxed);
}

bool fr_rndv_incoming_any_here(void)
{
    return fr_rndv_incoming_left() != 0;
}

uint64_t fr_rndv_incoming_entered(void)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_here();
    return ledger != NULL ? atomic_load_explicit(&ledger->entered, memory_order_relaxed) : 0;
}

bool fr_rndv_incoming_any(void)
{
    return fr_rndv_incoming_any_here() || fr_job_control_has_remote();
}

bool fr_rndv_incoming_is_short(const struct fr_rndv_incoming *incoming)
{
    return !fr_rndv_scheme_has(incoming->location.scheme, FR_RNDV_BY_NETWORK);
}

// ---- waiting for a sender

// Takes a step of a wait, and makes progress for others.
static void wait_on(struct fr_wait *wait)
{
    if (!fr_wait_step(wait))
        return;
    fr_rndv_progress(NULL);
    if (wait->steps % STEPS_A_LOOK == 0)
        fr_job_progress();
}

static bool is_time_to_look(const struct fr_wait *wait)
{
    return wait->steps % STEPS_A_LOOK == 0;
}

// Waits for the notice of a message that has come. Returns false when it has not come for long.
static bool wait_for_notice(struct fr_wait *wait)
{
    wait_on(wait);
    return fr_wait_judge(wait, NOTICE_LIMIT_S) != FR_WAIT_OVER;
}

// Begins to receive a message of this host unless its sender holds it now: FR_ERR_NOT_FOUND.
// Returns FR_ERR_CANCELLED when the sender has given the message up.
static enum fr_status try_here(struct fr_rndv_incoming *incoming)
{
    if (!fr_rndv_slot_change(incoming->slot, incoming->number, FR_RNDV_ADVERTISED,
                             FR_RNDV_PULLING)) {
        fr_rndv_incoming_lift_doubt(incoming);
        return is_waiting(incoming->slot, incoming->number) ? FR_ERR_NOT_FOUND : FR_ERR_CANCELLED;
    }
    incoming->location = incoming->slot->location;
    fr_rndv_incoming_refresh(incoming);
    return FR_OK;
}

// The sender holds the slot only while it copies.
static enum fr_status begin_here(struct fr_rndv_incoming *incoming)
{
    struct fr_wait wait = {.spins = FR_WAIT_SPINS, .pauses = true};
    enum fr_status status;
    while ((status = try_here(incoming)) == FR_ERR_NOT_FOUND) {
        wait_on(&wait);
        if (is_time_to_look(&wait) && !fr_job_control_is_alive(incoming->from))
            return FR_ERR_NOT_FOUND;
    }
    return status == FR_OK ? FR_OK : FR_ERR_NOT_FOUND;
}

// Begins to receive a message of another host. Its entry was sent ahead of its RTS, but the sender
// may have been stopped for a while. Where there was no memory for the entry, the sender is told
// that the message has failed. It is told so of one that it has withdrawn as well, and ignores it.
static enum fr_status begin_remote(struct fr_rndv_incoming *incoming)
{
    struct fr_wait wait = {0};
    for (;;) {
        fr_rndv_progress(NULL);
        enum fr_status status = fr_rndv_replica_find(incoming, FR_SCHEME_NONE);
        if (status == FR_OK) // taken before the bytes take the place of the RTS
            (void)fr_rndv_replica_take(incoming->from, incoming->number, false);
        else if (status != FR_ERR_NOT_FOUND)
            fr_rndv_incoming_end(incoming, false);
        if (status != FR_ERR_NOT_FOUND)
            return status;
        wait_on(&wait);
        if (is_time_to_look(&wait) && !fr_job_control_is_alive(incoming->from))
            return FR_ERR_NOT_FOUND;
        if (fr_wait_judge(&wait, 0) == FR_WAIT_LONG)
            fr_warn_once("waiting for %ld s for rank %d to say where a message is",
                         (long)(fr_wait_ns(&wait) / FR_SECOND_NS), incoming->from);
    }
}

enum fr_status fr_rndv_incoming_begin(struct fr_rndv_incoming *incoming)
{
    return incoming->slot != NULL ? begin_here(incoming) : begin_remote(incoming);
}

bool fr_rndv_incoming_let_go(const struct fr_rndv_incoming *incoming)
{
    return incoming->slot != NULL && fr_rndv_slot_let_go(incoming->slot, incoming->number);
}

void fr_rndv_incoming_refresh(struct fr_rndv_incoming *incoming)
{
    if (incoming->slot != NULL)
        incoming->ready = atomic_load_explicit(&incoming->slot->ready, memory_order_acquire);
    else
        (void)fr_rndv_replica_find(incoming, FR_SCHEME_NONE);
}

static void tell_sender(const struct fr_rndv_incoming *incoming, enum fr_job_control_kind kind,
                        enum fr_rndv_state state)
{
    const struct fr_rndv_entry entry = {
        .number = incoming->number, .ready = state, .index = incoming->index};
    (void)fr_rndv_entry_send(incoming->from, kind, &entry, true);
}

// The sender may be anywhere, but follows the refusal wherever it makes progress.
enum fr_status fr_rndv_incoming_refuse(const struct fr_rndv_incoming *incoming)
{
    if (incoming->slot == NULL) {
        tell_sender(incoming, FR_CONTROL_RETRY, FR_RNDV_REFUSED);
        return FR_OK;
    }
    if (!fr_rndv_slot_change(incoming->slot, incoming->number, FR_RNDV_PULLING, FR_RNDV_REFUSED))
        return FR_ERR_NOT_FOUND;
    fr_rndv_incoming_ask(incoming);
    return FR_OK;
}

enum fr_status fr_rndv_incoming_begin_again(struct fr_rndv_incoming *incoming, unsigned refused)
{
    return incoming->slot != NULL ? try_here(incoming) : fr_rndv_replica_find(incoming, refused);
}

void fr_rndv_incoming_ask(const struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(incoming->from);
    if (ledger != NULL)
        atomic_fetch_add_explicit(&ledger->refused, 1, memory_order_release);
}

static void count_ended(void)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_here();
    if (ledger != NULL)
        atomic_fetch_add_explicit(&ledger->ended, 1, memory_order_relaxed);
}

// Ends a message of this host, from whichever state the receiver has left it in.
static void end_here(const struct fr_rndv_incoming *incoming, enum fr_rndv_state state)
{
    if (fr_rndv_slot_change(incoming->slot, incoming->number, FR_RNDV_PULLING, state) ||
        fr_rndv_slot_change(incoming->slot, incoming->number, FR_RNDV_REFUSED, state))
        count_ended();
}

void fr_rndv_incoming_end(const struct fr_rndv_incoming *incoming, bool pulled)
{
    enum fr_rndv_state state = pulled ? FR_RNDV_PULLED : FR_RNDV_FAILED;
    if (incoming->slot != NULL) {
        end_here(incoming, state);
        return;
    }
    (void)fr_rndv_replica_take(incoming->from, incoming->number, true);
    tell_sender(incoming, FR_CONTROL_ATS, state);
}

void fr_rndv_incoming_abandon(const struct fr_rndv_incoming *incoming)
{
    if (incoming->slot != NULL) { // the slot is not free before all fragments are discarded
        end_here(incoming, FR_RNDV_FAILED);
        return;
    }
    (void)fr_rndv_replica_take(incoming->from, incoming->number, false);
    tell_sender(incoming, FR_CONTROL_ATS, FR_RNDV_FAILED); // which may not have begun to send any
}

// ---- probes

bool fr_rndv_incoming_may_begin(const struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_incoming found = *incoming;
    return incoming->slot != NULL ||
           fr_rndv_replica_find(&found, FR_SCHEME_NONE) != FR_ERR_NOT_FOUND;
}

bool fr_rndv_incoming_take_known(const struct fr_rndv_incoming *incoming)
{
    if (incoming->slot == NULL)
        return fr_rndv_replica_take(incoming->from, incoming->number, false);
    fr_rndv_incoming_lift_doubt(incoming);
    (void)fr_rndv_slot_take(incoming->from, incoming->slot, incoming->number);
    return true;
}

bool fr_rndv_incoming_take(const struct fr_rndv_incoming *incoming)
{
    struct fr_wait wait = {0};
    while (!fr_rndv_incoming_take_known(incoming)) {
        if (!wait_for_notice(&wait))
            return false;
        fr_rndv_progress(NULL);
    }
    return true;
}

static bool is_from(const struct look *look, const struct fr_rndv_address *from)
{
    return look->to == fr_job_rank() && look->tag == from->tag && look->comm == from->comm;
}

// Finds the message with the lowest number that is still to be received here, has none of these
// bits in its word, and an RTS of these lengths. Returns NULL if there is none.
static struct fr_rndv_slot *find_first(struct fr_rndv_ledger *ledger,
                                       const struct fr_rndv_address *from, size_t shortest,
                                       size_t longest, uint64_t bits, struct look *first)
{
    struct fr_rndv_slot *found = NULL;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(ledger->in_use); i++) {
        uint64_t rest = atomic_load_explicit(&ledger->in_use[i], memory_order_acquire);
        for (; rest != 0; rest &= rest - 1) {
            struct fr_rndv_slot *slot = &ledger->slots[i * 64 + (size_t)__builtin_ctzll(rest)];
            struct look look;
            if (!look_at(slot, &look) || !is_from(&look, from) || (look.word & bits) != 0 ||
                look.length < shortest || look.length > longest ||
                (found != NULL && look.word >= first->word))
                continue;
            found = slot;
            *first = look;
        }
    }
    return found;
}

static bool peek_here(struct fr_rndv_ledger *ledger, const struct fr_rndv_address *from,
                      size_t length, bool take, uint64_t *bytes)
{
    struct fr_rndv_slot *slot;
    struct look first = {.word = 0};
    do {
        slot = find_first(ledger, from, length, length, FR_SLOT_TAKEN, &first);
        if (slot == NULL)
            return false;
    } while (take &&
             !fr_rndv_slot_take(from->to, slot, first.word & FR_SLOT_NUMBERS)); // gone meanwhile
    *bytes = first.bytes;
    return true;
}

bool fr_rndv_incoming_may_wait(const struct fr_rndv_address *from, size_t length)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(from->to);
    uint64_t bytes = 0;
    if (!fr_rndv_incoming_any())
        return false;
    if (ledger != NULL && peek_here(ledger, from, length, false, &bytes))
        return true;
    if (!fr_job_control_reaches(from->to))
        return false;
    enum fr_rndv_answer answer = fr_rndv_replica_peek(from, length, false, &bytes);
    if (answer == FR_RNDV_UNKNOWN) { // after a known plain message no RTS can follow
        fr_rndv_progress(NULL);
        answer = fr_rndv_replica_peek(from, length, false, &bytes);
    }
    return answer == FR_RNDV_FOUND ||
           (answer == FR_RNDV_UNKNOWN && !fr_job_control_is_here(from->to));
}

bool fr_rndv_incoming_peek(const struct fr_rndv_address *from, size_t length, bool take,
                           uint64_t *bytes)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(from->to);
    struct fr_wait wait = {0};
    if (ledger != NULL && peek_here(ledger, from, length, take, bytes))
        return true;
    if (!fr_job_control_reaches(from->to))
        return false;
    if (fr_job_control_is_here(from->to)) { // notices of this host come before their RTS
        fr_rndv_progress(NULL);
        return fr_rndv_replica_peek(from, length, take, bytes) == FR_RNDV_FOUND;
    }
    do {
        fr_rndv_progress(NULL);
        enum fr_rndv_answer answer = fr_rndv_replica_peek(from, length, take, bytes);
        if (answer != FR_RNDV_UNKNOWN)
            return answer == FR_RNDV_FOUND;
    } while (wait_for_notice(&wait));
    fr_warn_once("a message of rank %d with tag %d came without notice, so that its size may not "
                 "be what a probe says",
                 from->to, from->tag);
    return false;
}

// ---- receives that are too short for an RTS (cut.c), and messages without any

static struct fr_rndv_incoming incoming_of(struct fr_rndv_slot *slot, const struct look *look,
                                           int from, size_t index)
{
    return (struct fr_rndv_incoming){.slot = slot,
                                     .number = look->word & FR_SLOT_NUMBERS,
                                     .from = from,
                                     .bytes = look->bytes,
                                     .index = (unsigned)index};
}

bool fr_rndv_incoming_find(const struct fr_rndv_rts *rts, struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of((int)rts->from);
    struct fr_wait wait = {0};
    struct look look;
    if (!rts->remote) {
        if (ledger == NULL || rts->index >= fr_rndv_ledger_slots_of(ledger) ||
            !look_at(&ledger->slots[rts->index], &look) || look.to != fr_job_rank() ||
            (look.word & FR_SLOT_NUMBERS) != rts->number)
            return false;
        *incoming = incoming_of(&ledger->slots[rts->index], &look, (int)rts->from, rts->index);
        return true;
    }
    *incoming = (struct fr_rndv_incoming){.number = rts->number, .from = (int)rts->from};
    enum fr_status status = fr_rndv_replica_find(incoming, FR_SCHEME_NONE);
    while (status == FR_ERR_NOT_FOUND && wait_for_notice(&wait)) {
        fr_rndv_progress(NULL);
        status = fr_rndv_replica_find(incoming, FR_SCHEME_NONE);
    }
    return status == FR_OK;
}

bool fr_rndv_incoming_find_first(const struct fr_rndv_address *from, size_t shortest,
                                 size_t longest, bool doubted, struct fr_rndv_incoming *incoming)
{
    uint64_t bits = FR_SLOT_TAKEN | (doubted ? 0 : FR_SLOT_DOUBTED);
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(from->to);
    struct look first = {.word = 0};
    struct fr_rndv_slot *slot =
        ledger != NULL ? find_first(ledger, from, shortest, longest, bits, &first) : NULL;
    if (slot == NULL)
        return fr_rndv_replica_find_first(from, shortest, longest, doubted, incoming);
    *incoming = incoming_of(slot, &first, from->to, (size_t)(slot - ledger->slots));
    return true;
}

// Ends a message. Its fragments on their way are discarded at the end of the job.
bool fr_rndv_incoming_drop_one(struct fr_rndv_incoming *incoming)
{
    if (fr_rndv_incoming_begin(incoming) != FR_OK)
        return false;
    if (fr_rndv_scheme_has(incoming->location.scheme, FR_RNDV_FRAGMENTED))
        fr_rndv_incoming_abandon(incoming);
    else
        fr_rndv_incoming_end(incoming, true);
    return true;
}

static void drop_of(struct fr_rndv_ledger *ledger, int from, size_t index, uint64_t comm)
{
    struct fr_rndv_slot *slot = &ledger->slots[index];
    struct look look;
    if (!look_at(slot, &look) || look.to != fr_job_rank() || look.comm != comm ||
        (look.word & FR_SLOT_TAKEN) != 0)
        return;
    struct fr_rndv_incoming incoming = incoming_of(slot, &look, from, index);
    (void)fr_rndv_incoming_drop_one(&incoming);
}

void fr_rndv_incoming_drop(uint64_t comm)
{
    for (int from = 0; from < fr_job_size() && fr_rndv_incoming_any_here(); from++) {
        struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(from);
        for (size_t i = 0; ledger != NULL && i < FR_ARRAY_LENGTH(ledger->in_use); i++) {
            uint64_t bits = atomic_load_explicit(&ledger->in_use[i], memory_order_acquire);
            for (; bits != 0; bits &= bits - 1)
                drop_of(ledger, from, i * 64 + (size_t)__builtin_ctzll(bits), comm);
        }
    }
}
