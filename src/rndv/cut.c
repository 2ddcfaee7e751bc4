// SPDX-License-Identifier: BSD-3-Clause
// Receives that were too short for an RTS, which MPI has cut off: which message that is.
#include "config.h"

#include "rndv/rndv_int.h"
#include "world/world.h"

#include <stddef.h>
#include <string.h>

enum { NAMED_BYTES = offsetof(struct fr_rndv_rts, bytes) }; // those that tell which message it is

static bool begins_rts(const struct fr_rndv_cut *cut)
{
    const struct fr_control_secret *secret = fr_control_job_secret();
    size_t bytes = cut->data_bytes < sizeof(*secret) ? cut->data_bytes : sizeof(*secret);
    return secret != NULL && bytes >= sizeof(fr_rndv_rts_begin) &&
           memcmp(cut->data, secret, bytes) == 0;
}

// By the number that its bytes tell.
static bool find_named(const struct fr_rndv_cut *cut, struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_rts rts = {.bytes = 0};
    memcpy(&rts, cut->data, NAMED_BYTES);
    if (rts.from >= (uint32_t)fr_world_size() || rts.place >= FR_RNDV_SLOTS || rts.number == 0 ||
        (rts.number & ~FR_SLOT_NUMBERS) != 0 || rts.remote > 1)
        return false;
    bool is_own = rts.remote && (int)rts.from == fr_world_rank();
    return !is_own && fr_rndv_incoming_find(&rts, incoming);
}

// Lets its sender know that it may have been cut off.
static void doubt(const struct fr_rndv_incoming *incoming)
{
    struct fr_rndv_ledger *ledger = fr_rndv_ledger_of(incoming->from);
    if (incoming->slot == NULL || ledger == NULL)
        return;
    uint64_t word = atomic_load_explicit(&incoming->slot->word, memory_order_acquire);
    while ((word & FR_SLOT_NUMBERS) == incoming->number && fr_rndv_word_is_waiting(word) &&
           (word & FR_SLOT_DOUBTED) == 0) {
        if (!atomic_compare_exchange_weak_explicit(&incoming->slot->word, &word,
                                                   word | FR_SLOT_DOUBTED, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        atomic_fetch_add_explicit(&ledger->doubted, 1, memory_order_release);
        return;
    }
}

// MPI receives in order what was sent the same way: what is not marked as taken, and is received
// all the same, was cut off.
bool fr_rndv_incoming_find_cut(const struct fr_rndv_cut *cut, struct fr_rndv_incoming *incoming)
{
    bool begins = begins_rts(cut), tells = cut->length > (int64_t)cut->room;
    size_t shortest = tells ? (size_t)cut->length : (size_t)cut->room + 1;
    size_t longest = tells ? (size_t)cut->length : FR_RNDV_RTS_LONGEST;
    if (begins && cut->data_bytes >= NAMED_BYTES)
        return find_named(cut, incoming);
    // An MPI that tells the length has put there what there was room for.
    if (cut->from.to < 0 || (!begins && tells && cut->data_bytes >= sizeof(fr_rndv_rts_begin)))
        return false;
    if (!fr_rndv_incoming_find_first(&cut->from, shortest, longest, incoming))
        return false;
    bool surely = begins || (tells && cut->at_once && fr_rndv_marks_rts(cut->length));
    if (surely && cut->in_order)
        return true;
    doubt(incoming);
    fr_debug("a message of rank %d with tag %d was cut off by a receive of %lu bytes, which one is "
             "not known",
             cut->from.to, cut->from.tag, (unsigned long)cut->room);
    return false;
}
