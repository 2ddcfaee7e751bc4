// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the ledger of a sender, in memory that it shares with its host, if there
// is any.
#ifndef FR_RNDV_LEDGER_H
#define FR_RNDV_LEDGER_H

#include "fabrail/job/control.h"
#include "fabrail/job/shm.h"
#include "rndv/slot.h"

#include <stddef.h>

// The most messages of one process under way at once, and how many there is room for from the
// start.
enum { FR_RNDV_SLOTS = 16384, FR_RNDV_FIRST_SLOTS = 512 };

enum { FR_RNDV_SENDERS = 64 }; // that a process tells apart when it says what it receives

// The messages that a process receives, as it tells senders that wait for it (patience.c).
// It receives in sweeps: one takes all that has been found to have come.
struct fr_rndv_sweeps {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint32_t begun;
    _Atomic uint32_t ended;
    // The earliest message of the latest sweep with any of a sender, by the sender's rank modulo
    // FR_RNDV_SENDERS: from the top number, rank and sweep (fr_rndv_taken).
    _Atomic uint64_t taken[FR_RNDV_SENDERS];
};

// The ledger of one process. An empty one is all zero.
struct fr_rndv_ledger {
    // Messages for it that senders have entered, and those of them that it has ended. They differ
    // while it expects any. Each is in a line of its own, so that its writers keep that.
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t entered;
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t ended;
    // How often a receiver has refused one of its messages, or asked for one. Looked at all the
    // time.
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t refused;
    _Atomic uint64_t doubted; // its messages of which a receiver cannot tell if they were cut off
    // Names the device that it has used last, if processes take turns there; else 0.
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t device;
    _Atomic int64_t awaited_ns; // when a sender last had to wait for this process to receive
    _Atomic uint64_t waiting;   // sends to this process that wait in their buffers
    _Atomic uint64_t blocked;   // threads that receive nothing while they wait
    _Atomic uint64_t more;      // slots that are there beyond the first ones
    struct fr_rndv_sweeps sweeps;
    // A bit for each slot in use. Written by this process alone.
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t in_use[FR_RNDV_SLOTS / 64];
    struct fr_rndv_slot slots[FR_RNDV_SLOTS];
};
_Static_assert(FR_RNDV_SLOTS % 64 == 0 && FR_RNDV_FIRST_SLOTS % 64 == 0, "a bit a slot");

// Returns the bytes of a ledger with so many slots.
static inline size_t fr_rndv_ledger_bytes(size_t slots)
{
    return offsetof(struct fr_rndv_ledger, slots) + slots * sizeof(struct fr_rndv_slot);
}

// Returns how many slots a ledger has now. Memory beyond these may be missing.
static inline unsigned fr_rndv_ledger_slots_of(const struct fr_rndv_ledger *ledger)
{
    uint64_t more = atomic_load_explicit(&ledger->more, memory_order_acquire);
    return more <= FR_RNDV_SLOTS - FR_RNDV_FIRST_SLOTS ? FR_RNDV_FIRST_SLOTS + (unsigned)more
                                                       : FR_RNDV_FIRST_SLOTS;
}
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");

// Returns the ledger of a process of this host that has used it, NULL for others.
static inline struct fr_rndv_ledger *fr_rndv_ledger_of(int rank)
{
    return fr_job_control_area_in_use(rank);
}

// The ledger of this process once others of this host may write to it; NULL before. Read by
// fr_rndv_ledger_here alone.
extern _Atomic(struct fr_rndv_ledger *) fr_rndv_ledger_used;
struct fr_rndv_ledger *fr_rndv_ledger_find_used(void);

// Returns the ledger of this process if others of this host may have written to it, else NULL.
static inline struct fr_rndv_ledger *fr_rndv_ledger_here(void)
{
    struct fr_rndv_ledger *used = atomic_load_explicit(&fr_rndv_ledger_used, memory_order_acquire);
    return FR_LIKELY(used != NULL) ? used : fr_rndv_ledger_find_used();
}

// Returns whether a process of this host looks up what this one enters for it. Claims room for that
// process's ledger.
bool fr_rndv_ledger_is_shared_with(int rank);

// Returns the ledger of this process, and makes it first. Returns NULL when there is no memory for
// it, or none yet: a ledger stays where it was first made.
struct fr_rndv_ledger *fr_rndv_ledger_own(void);

// Returns the ledger of this process, NULL if it has not been made yet.
struct fr_rndv_ledger *fr_rndv_ledger_made(void);

// Tells others which device this process uses. Costs a load and a compare while that stays.
void fr_rndv_ledger_use_device(int device);

// Forgets what others were told. Called when the ledger is closed.
void fr_rndv_ledger_forget_device(void);

// Returns whether a process of this host takes turns with this one on a device, as far as is known.
bool fr_rndv_ledger_takes_turns_with(int rank);

// Enters a message in a slot of this process's ledger. Returns FR_ERR_LIMIT when all slots are in
// use, FR_ERR_UNSUPPORTED when a rule of rndv.h forbids an RTS. `extra` may be NULL.
FR_MUST_CHECK enum fr_status fr_rndv_ledger_advertise(const struct fr_rndv_address *address,
                                                      bool shared, uint64_t sizes, uint64_t ready,
                                                      const struct fr_rndv_location *location,
                                                      const union fr_rndv_extra *extra,
                                                      unsigned *index, uint64_t *number);

// Notes that MPI has the RTS. Another thread may then send to the same address.
void fr_rndv_ledger_sent(unsigned index);

// Ends a refused message as failed.
void fr_rndv_ledger_fail(unsigned index, uint64_t number, bool shared);

// Frees a slot, in any state in which nobody is pulling.
void fr_rndv_ledger_free(unsigned index, bool shared);

// Returns a slot, NULL while nothing was ever entered.
struct fr_rndv_slot *fr_rndv_ledger_slot(unsigned index);

// Returns the number of slots that there are, in use or not.
unsigned fr_rndv_ledger_count(void);

// Returns whether so many messages are in the ledger that short ones shall not join them.
bool fr_rndv_ledger_is_crowded(void);

// Returns whether a plain message of this length may be under way to an address, so that no RTS of
// this length may be sent there.
bool fr_rndv_ledger_is_closed_to(const struct fr_rndv_address *address, size_t length);

// Returns whether no more messages with an RTS may be sent to an address: its receiver cannot tell
// which of those under way were cut off.
bool fr_rndv_ledger_is_doubted(const struct fr_rndv_address *address);

// Returns the count of doubted messages of a process, NULL for one without a ledger here.
_Atomic uint64_t *fr_rndv_ledger_doubts(int rank);
enum fr_rndv_state fr_rndv_ledger_state(unsigned index);

// Returns how often messages of this process have been refused or asked for. Receivers of other
// hosts cannot count; fr_rndv_ledger_count_refused does it for them.
uint64_t fr_rndv_ledger_refused(void);
void fr_rndv_ledger_count_refused(void);
bool fr_rndv_ledger_open(void);
void fr_rndv_ledger_close(void);

// ---- awaited.c

// Tells a process of this host that a sender has to wait now for it to receive. Returns whether
// that process is blocked: it receives nothing while it waits.
bool fr_rndv_ledger_await(int rank, int64_t now_ns);

// Counts a send to a process of this host that waits in its buffer, or with `more` -1 one that no
// longer does.
void fr_rndv_ledger_count_waiting(int rank, int more);

#endif
