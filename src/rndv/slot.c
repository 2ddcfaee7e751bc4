// SPDX-License-Identifier: BSD-3-Clause
// Changes of a slot's word: the state of its message, its mark as taken, and doubt in it.
#include "config.h"

#include "rndv/ledger.h"

bool fr_rndv_slot_change(struct fr_rndv_slot *slot, uint64_t number, enum fr_rndv_state from,
                         enum fr_rndv_state to)
{
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    while ((word & ~(FR_SLOT_TAKEN | FR_SLOT_DOUBTED | FR_SLOT_BUSY)) ==
           (number | FR_SLOT_IN(from))) {
        if (to == FR_RNDV_PULLING && (word & FR_SLOT_DOUBTED) != 0)
            return false; // nobody pulls before the doubt is lifted
        uint64_t changed = (word & ~(FR_SLOT_STATE | FR_SLOT_BUSY)) | FR_SLOT_IN(to);
        changed |= to == FR_RNDV_PULLING ? FR_SLOT_TAKEN : 0;
        if (atomic_compare_exchange_weak_explicit(&slot->word, &word, changed, memory_order_acq_rel,
                                                  memory_order_acquire))
            return true;
    }
    return false;
}

bool fr_rndv_slot_let_go(struct fr_rndv_slot *slot, uint64_t number)
{
    uint64_t word = number | FR_SLOT_IN(FR_RNDV_PULLING) | FR_SLOT_TAKEN; // never in doubt
    uint64_t waiting = number | FR_SLOT_IN(FR_RNDV_ADVERTISED) | FR_SLOT_TAKEN | FR_SLOT_BUSY;
    return atomic_compare_exchange_strong_explicit(&slot->word, &word, waiting,
                                                   memory_order_acq_rel, memory_order_acquire);
}

bool fr_rndv_slot_doubt(int from, struct fr_rndv_slot *slot, uint64_t number, uint64_t marks)
{
    _Atomic uint64_t *doubts = fr_rndv_ledger_doubts(from);
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    while ((word & FR_SLOT_NUMBERS) == number && fr_rndv_word_is_waiting(word) && doubts != NULL) {
        if (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word | marks,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        if ((word & FR_SLOT_DOUBTED) == 0)
            atomic_fetch_add_explicit(doubts, 1, memory_order_release);
        return true;
    }
    return false;
}

bool fr_rndv_slot_lift_doubt(int from, struct fr_rndv_slot *slot, uint64_t number)
{
    _Atomic uint64_t *doubts = fr_rndv_ledger_doubts(from);
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    while ((word & FR_SLOT_NUMBERS) == number && fr_rndv_word_is_waiting(word) &&
           (word & FR_SLOT_DOUBTED) != 0 && doubts != NULL) {
        if (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word & ~FR_SLOT_DOUBTED,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        atomic_fetch_sub_explicit(doubts, 1, memory_order_relaxed);
        return (word & FR_SLOT_TAKEN) != 0;
    }
    return false;
}

bool fr_rndv_slot_take(int from, struct fr_rndv_slot *slot, uint64_t number)
{
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    while ((word & FR_SLOT_NUMBERS) == number && fr_rndv_word_is_waiting(word) &&
           (word & FR_SLOT_TAKEN) == 0) {
        uint64_t taken = (word | FR_SLOT_TAKEN) & ~FR_SLOT_DOUBTED;
        if (!atomic_compare_exchange_weak_explicit(&slot->word, &word, taken, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        if ((word & FR_SLOT_DOUBTED) != 0 && fr_rndv_ledger_doubts(from) != NULL)
            atomic_fetch_sub_explicit(fr_rndv_ledger_doubts(from), 1, memory_order_relaxed);
        return true;
    }
    return false;
}
