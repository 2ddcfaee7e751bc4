// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: one message in a ledger.
#ifndef FR_RNDV_SLOT_H
#define FR_RNDV_SLOT_H

#include "fabrail/job/shm.h"
#include "fabrail/rndv/incoming.h"

enum fr_rndv_state {
    FR_RNDV_ADVERTISED,
    FR_RNDV_MOVING,  // the sender is moving the bytes
    FR_RNDV_PULLING, // the receiver is moving the bytes
    FR_RNDV_PULLED,  // the receiver has the bytes
    FR_RNDV_FAILED,  // the receiver could not get the bytes in any way
    FR_RNDV_REFUSED, // the receiver cannot get them by this scheme, and asks for another one
};

// Returns whether a message in this state is over for its receiver.
static inline bool fr_rndv_state_is_over(enum fr_rndv_state state)
{
    return state == FR_RNDV_PULLED || state == FR_RNDV_FAILED;
}

// A slot's word holds the number of its message and its state: one more than fr_rndv_state, 0 for a
// slot that is not in use. FR_SLOT_TAKEN says that the RTS has been received by another function
// than the one that follows it. FR_SLOT_DOUBTED says that the receiver cannot tell whether the RTS
// was cut off. FR_SLOT_BUSY says that the receiver's device may still read the bytes of a message
// that its receiver has let go of. The word changes by compare-and-swap, so that nobody with the
// number of an earlier message can do anything to this one.
#define FR_SLOT_STATE   ((uint64_t)7)
#define FR_SLOT_TAKEN   ((uint64_t)8)
#define FR_SLOT_SPARE   ((uint64_t)0)
#define FR_SLOT_IN(at)  ((uint64_t)(at) + 1)
#define FR_SLOT_DOUBTED ((uint64_t)16)
#define FR_SLOT_BUSY    ((uint64_t)32)
#define FR_SLOT_ONE     ((uint64_t)64) // the first number
#define FR_SLOT_NUMBERS (~(FR_SLOT_ONE - 1))

#define FR_RNDV_NEVER UINT64_MAX       // `ready` of bytes that will never be there
#define FR_RNDV_WAITS (UINT64_MAX - 1) // `ready` of a waiting send

// The table of a sender's layout. Kernels of the receiver read it where it is. Plain bytes.
struct fr_rndv_table {
    struct fr_ipc_handle handle;
    uint64_t address; // in the sender's address space
    uint64_t hash;    // of its bytes
};

// How a receiver's kernel learns that bytes in the sender's workspace are there: words that the
// sender's kernel stores beside them (fabrail/device/batch.h). Plain bytes.
struct fr_rndv_gate {
    uint64_t words; // in the sender's address space
    uint64_t value;
    uint32_t count; // 0: there is no gate
};

// One message in the ledger. Anybody may look at the atomic members while they change. Their values
// are valid if the slot has the same number and is waiting before and after. The location belongs
// to the sender while it writes or holds the slot, and to the receiver while it pulls. The word is
// the first to be changed and the last to be written.
struct fr_rndv_slot {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t word;
    _Atomic uint64_t sizes; // low bits: bytes of the message; above them: length of its RTS
    _Atomic uint64_t comm;
    _Atomic int32_t to;
    _Atomic int32_t tag;
    _Atomic uint64_t ready; // bytes that are there, from the first on
    struct fr_rndv_location location;
    // The part that the location leaves out. Its scheme and strides say which member is valid, if
    // any.
    union fr_rndv_extra {
        struct fr_rndv_table table; // where the location's strides have blocks
        struct fr_rndv_gate gate;   // with scheme staged get
    } extra;
};

// Packing of a slot's sizes.
enum { FR_SLOT_SIZE_BITS = 48 };
#define FR_SLOT_SIZES(bytes, length) ((bytes) | (uint64_t)(length) << FR_SLOT_SIZE_BITS)
static inline uint64_t fr_rndv_sizes_bytes(uint64_t sizes)
{
    return sizes & (((uint64_t)1 << FR_SLOT_SIZE_BITS) - 1);
}
static inline unsigned fr_rndv_sizes_length(uint64_t sizes)
{
    return (unsigned)(sizes >> FR_SLOT_SIZE_BITS);
}
_Static_assert(FR_RNDV_RTS_LONGEST < 1 << (64 - FR_SLOT_SIZE_BITS), "the length fits");

// Returns whether a slot's word says that its message waits to be received.
static inline bool fr_rndv_word_is_waiting(uint64_t word)
{
    uint64_t state = word & FR_SLOT_STATE;
    return state == FR_SLOT_IN(FR_RNDV_ADVERTISED) || state == FR_SLOT_IN(FR_RNDV_MOVING) ||
           state == FR_SLOT_IN(FR_RNDV_REFUSED);
}

// Changes the state of the message with this number. Returns false, with nothing done, if the slot
// has another number or state.
bool fr_rndv_slot_change(struct fr_rndv_slot *slot, uint64_t number, enum fr_rndv_state from,
                         enum fr_rndv_state to);

// Has a message that is being pulled wait again, busy. Returns false, with nothing done, if the
// slot has another number or state.
bool fr_rndv_slot_let_go(struct fr_rndv_slot *slot, uint64_t number);

// Puts a waiting message in doubt: it may have been cut off. `marks` is FR_SLOT_DOUBTED, with
// FR_SLOT_TAKEN or without; `from` is the rank of the sender. Returns false if the message no
// longer waits. Nobody begins to pull a message in doubt.
bool fr_rndv_slot_doubt(int from, struct fr_rndv_slot *slot, uint64_t number, uint64_t marks);

// Lifts the doubt from a message, since it is being received. Returns whether the message was in
// doubt and marked as taken.
bool fr_rndv_slot_lift_doubt(int from, struct fr_rndv_slot *slot, uint64_t number);

// Marks a waiting message as taken, and lifts its doubt. Returns false if the slot has another
// message, or this one is being received or has been taken before.
bool fr_rndv_slot_take(int from, struct fr_rndv_slot *slot, uint64_t number);

#endif
