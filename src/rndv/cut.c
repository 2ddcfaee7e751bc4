// SPDX-License-Identifier: BSD-3-Clause
// Receives that were too short for an RTS, which MPI has cut off: finds the message of that RTS, or
// puts messages in doubt.
#include "config.h"

#include "fabrail/job.h"
#include "rndv/incoming_int.h"
#include "rndv/ledger.h"
#include "rndv/replica.h"

#include <stddef.h>
#include <string.h>

enum { NAMED_BYTES = offsetof(struct fr_rndv_rts, bytes) }; // so many bytes name the message

static bool begins_rts(const struct fr_rndv_cut *cut)
{
    const struct fr_job_secret *secret = fr_job_control_job_secret();
    size_t bytes = cut->data_bytes < sizeof(*secret) ? cut->data_bytes : sizeof(*secret);
    return secret != NULL && bytes >= sizeof(fr_rndv_rts_begin) &&
           memcmp(cut->data, secret, bytes) == 0;
}

// Finds the message by the number in the bytes that MPI has put there.
static bool find_named(const struct fr_rndv_cut *cut, struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_rts rts = {.bytes = 0};
    memcpy(&rts, cut->data, NAMED_BYTES);
    if (rts.from >= (uint32_t)fr_job_size() || rts.index >= FR_RNDV_SLOTS || rts.number == 0 ||
        (rts.number & ~FR_SLOT_NUMBERS) != 0 || rts.remote > 1)
        return false;
    bool is_own = rts.remote && (int)rts.from == fr_job_rank();
    return !is_own && fr_rndv_incoming_find(&rts, incoming);
}

// Puts a message in doubt and lets its sender know. `received` says that MPI has received it, or a
// later one that was cut off; it is then marked as taken as well. Returns false when the message no
// longer waits.
static bool doubt(const struct fr_rndv_incoming *incoming, bool received)
{
    const struct fr_rndv_entry entry = {.number = incoming->number, .index = incoming->index};
    if (incoming->slot != NULL)
        return fr_rndv_slot_doubt(incoming->from, incoming->slot, incoming->number,
                                  FR_SLOT_DOUBTED | (received ? FR_SLOT_TAKEN : 0));
    if (!fr_rndv_replica_doubt(incoming->from, incoming->number, received))
        return false;
    (void)fr_rndv_entry_send(incoming->from, FR_CONTROL_DOUBTED, &entry, false);
    return true;
}

// As many messages are marked as taken as MPI has received. A message may be marked because of a
// receive that was cut off, and then turn out to belong to another receive. The next message then
// takes the mark.
void fr_rndv_incoming_lift_doubt(const struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_slot *slot = incoming->slot;
    struct fr_rndv_incoming next;
    const struct fr_rndv_address from = {
        .to = incoming->from,
        .tag = atomic_load_explicit(&slot->tag, memory_order_acquire),
        .comm = atomic_load_explicit(&slot->comm, memory_order_acquire)};
    if (!fr_rndv_slot_lift_doubt(incoming->from, slot, incoming->number))
        return;
    while (fr_rndv_incoming_find_first(&from, 0, FR_RNDV_RTS_LONGEST, true, &next) &&
           !doubt(&next, true))
        continue;
}

// MPI receives in order what was sent the same way. So the first message that is not marked as
// taken is the one that was cut off, if all received ones are marked.
bool fr_rndv_incoming_find_cut(const struct fr_rndv_cut *cut, struct fr_rndv_incoming *incoming)
{
    bool begins = begins_rts(cut), tells = cut->length > (int64_t)cut->room;
    size_t shortest = tells ? (size_t)cut->length : (size_t)cut->room + 1;
    size_t longest = tells ? (size_t)cut->length : FR_RNDV_RTS_LONGEST;
    if (begins && cut->data_bytes >= NAMED_BYTES)
        return find_named(cut, incoming);
    // An MPI that tells the length has put the first bytes there, as far as there was room.
    if (cut->from.to < 0 || (!begins && tells && cut->data_bytes >= sizeof(fr_rndv_rts_begin)))
        return false;
    bool surely = begins || (tells && cut->at_once && fr_rndv_marks_rts(cut->length)), found;
    do {
        found = fr_rndv_incoming_find_first(&cut->from, shortest, longest, surely, incoming);
        if (!found || (surely && cut->in_order))
            return found;
    } while (!doubt(incoming, surely)); // it has gone meanwhile
    fr_debug("a message of rank %d with tag %d was cut off by a receive of %lu bytes, which one is "
             "not known",
             cut->from.to, cut->from.tag, (unsigned long)cut->room);
    return false;
}

bool fr_rndv_incoming_is_after_doubt(const struct fr_rndv_incoming *incoming,
                                     struct fr_rndv_address *from)
{
    const struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(incoming->from);
    if (incoming->slot == NULL || ledger == NULL ||
        FR_LIKELY(atomic_load_explicit(&ledger->doubted, memory_order_relaxed) == 0))
        return false;
    *from = (struct fr_rndv_address){
        .to = incoming->from,
        .tag = atomic_load_explicit(&incoming->slot->tag, memory_order_acquire),
        .comm = atomic_load_explicit(&incoming->slot->comm, memory_order_acquire)};
    return true;
}

void fr_rndv_incoming_end_doubted(const struct fr_rndv_address *from, uint64_t number)
{
    struct fr_rndv_incoming incoming;
    while (fr_rndv_incoming_find_first(from, 0, FR_RNDV_RTS_LONGEST, true, &incoming) &&
           incoming.slot != NULL && incoming.number < number &&
           (atomic_load_explicit(&incoming.slot->word, memory_order_acquire) & FR_SLOT_DOUBTED) !=
               0 &&
           fr_rndv_incoming_drop_one(&incoming))
        continue;
}
