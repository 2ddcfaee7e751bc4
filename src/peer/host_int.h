// SPDX-License-Identifier: BSD-3-Clause
// Inside of room peer: what lies in the memory that the processes of a host share (host.h), which
// host.c has and parcel.c and arrival.c work in.
#ifndef FR_PEER_HOST_INT_H
#define FR_PEER_HOST_INT_H

#include "control/shm.h"
#include "peer/parcel.h"

// A parcel's word: its number, whether its announcement has been received by another function than
// the one that fetches, and its state, one more than fr_peer_parcel_state, 0 for none. It changes
// by compare-and-swap, so that nobody with the number of an earlier parcel can do anything to this
// one.
#define FR_PARCEL_STATE   ((uint64_t)7)
#define FR_PARCEL_TAKEN   ((uint64_t)8)
#define FR_PARCEL_SPARE   ((uint64_t)0)
#define FR_PARCEL_IN(at)  ((uint64_t)(at) + 1)
#define FR_PARCEL_ONE     ((uint64_t)16) // the first number
#define FR_PARCEL_NUMBERS (~(FR_PARCEL_ONE - 1))

// What anybody may look at while it changes is atomic, and valid when the parcel has the same
// number and is waiting to be fetched before and after. Address and handle are the sender's while
// it writes or holds the parcel, and the receiver's while it fetches. The word is the first to be
// changed and the last to be written.
struct fr_peer_parcel {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t word;
    _Atomic uint64_t bytes;
    _Atomic int32_t to;
    _Atomic int32_t tag;
    uint64_t address;
    struct fr_memory_handle handle;
};

// A place for every FR_PEER_HOST_NOTES-th note. `turn` is twice the number of notes that have been
// taken from it, and one more while there is a note in it.
struct fr_peer_note_place {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t turn;
    struct fr_peer_note note;
};

// Of one process. All zero is an empty one.
struct fr_peer_box {
    _Alignas(FR_CONTROL_LINE_BYTES) struct fr_control_shm_user user; // constant once attached
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t notes_put;      // by all others
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t expected; // parcels for it, not yet fetched
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t in_use[FR_PEER_PARCELS / 64]; // by it alone
    struct fr_peer_note_place notes[FR_PEER_HOST_NOTES];
    struct fr_peer_parcel parcels[FR_PEER_PARCELS];
};
_Static_assert(FR_PEER_PARCELS % 64 == 0, "a bit a parcel");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");

// What MPI carries in place of the bytes; zeros follow.
struct fr_peer_announcement {
    struct fr_control_secret secret;
    uint32_t from;
    uint32_t place;
    uint64_t number;
};
_Static_assert(sizeof(struct fr_peer_announcement) == 32, "no padding");
_Static_assert(sizeof(struct fr_peer_announcement) <= FR_PEER_ANNOUNCEMENT_BYTES, "it fits");

// The box of a process; NULL when there is none, or while not all have attached.
struct fr_peer_box *fr_peer_host_box(int index);

// Valid while there are boxes.
const struct fr_control_secret *fr_peer_host_secret(void);

// The sender's own part, begun and ended with the shared memory.
void fr_peer_parcels_open(void);
void fr_peer_parcels_close(void);

static inline bool fr_peer_word_is_waiting(uint64_t word)
{
    uint64_t state = word & FR_PARCEL_STATE;
    return state == FR_PARCEL_IN(FR_PARCEL_OFFERED) || state == FR_PARCEL_IN(FR_PARCEL_HELD);
}

// Changes the state of the parcel with this number; false, and nothing done, when it is in another.
static inline bool fr_peer_parcel_change(struct fr_peer_parcel *parcel, uint64_t number,
                                         enum fr_peer_parcel_state from,
                                         enum fr_peer_parcel_state to)
{
    uint64_t word = atomic_load_explicit(&parcel->word, memory_order_acquire);
    while ((word & ~FR_PARCEL_TAKEN) == (number | FR_PARCEL_IN(from))) {
        uint64_t changed = (word & ~FR_PARCEL_STATE) | FR_PARCEL_IN(to);
        if (atomic_compare_exchange_weak_explicit(&parcel->word, &word, changed,
                                                  memory_order_acq_rel, memory_order_acquire))
            return true;
    }
    return false;
}

#endif
