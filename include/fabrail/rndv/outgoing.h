// SPDX-License-Identifier: BSD-3-Clause
// Sending by rendezvous.
#ifndef FR_FABRAIL_RNDV_OUTGOING_H
#define FR_FABRAIL_RNDV_OUTGOING_H

#include "fabrail/policy/scheme.h"
#include "fabrail/rndv.h"
#include "fabrail/staging/path.h"

// A message as its sender knows it.
struct fr_rndv_message {
    const char *call; // the MPI function, for messages to the user
    struct fr_rndv_address address;
    const struct fr_staging_view *view; // measured; of one block
    bool must_leave; // the bytes may change as soon as the call returns (a buffered send)
    bool parts;      // MPI takes a message that ends inside a predefined datatype
    bool may_wait;   // this process makes progress wherever it waits in MPI, as long as sends wait
};

struct fr_rndv_send;

// Chooses a scheme by policy, prepares it and enters the message in the ledger. *send belongs to
// the caller, who frees it with fr_rndv_send_free. `choice` gets the scheme and the reason. If the
// message cannot go by rendezvous, *send is NULL, nothing has changed, and FR_OK is returned. A
// failure is one of the device.
FR_MUST_CHECK enum fr_status fr_rndv_send_start(const struct fr_rndv_message *message,
                                                struct fr_rndv_send **send,
                                                struct fr_policy_scheme_choice *choice);

// Returns whether the receiver has the bytes of a send, and has said so. Costs a load.
bool fr_rndv_send_is_pulled(const struct fr_rndv_send *send);

// Returns whether a message of this view to that process could ever go by rendezvous. For
// persistent requests, which choose anew at each start.
bool fr_rndv_send_is_possible(const struct fr_rndv_message *message);

// Returns the number of the message, which is `number` of its struct fr_rndv_incoming.
uint64_t fr_rndv_send_number(const struct fr_rndv_send *send);

// Returns the RTS for the real MPI: *length bytes, which live as long as the send.
const unsigned char *fr_rndv_send_rts(const struct fr_rndv_send *send, size_t *length);

// Returns whether a blocking call of MPI that sends the RTS could keep this process from the rest
// of its part (fr_rndv_send_push). The caller then uses nonblocking calls.
bool fr_rndv_send_needs_push(const struct fr_rndv_send *send);

// Returns whether a send waits in its buffer to be asked for its bytes.
bool fr_rndv_send_waits(const struct fr_rndv_send *send);

// Notes that the call of MPI that sends the RTS has returned. If it has failed, `sent` is false and
// the caller frees the send.
void fr_rndv_send_sent(struct fr_rndv_send *send, bool sent);

// Does what the sender owes before it may wait for anybody: finishes copies, gives fragments to
// MPI. A failure means that the message is lost; the receiver is told of it.
FR_MUST_CHECK enum fr_status fr_rndv_send_push(struct fr_rndv_send *send);

// Returns whether the program may have its buffer back: the receiver has the bytes, or they have
// left the buffer. Makes them leave once callers have asked for about as long as a copy takes, if
// there is room within the bounds on memory. Each such copy counts *copies down; at 0 none is made.
// Waits for no other thread: a send that one holds is not over.
bool fr_rndv_send_poll(struct fr_rndv_send *send, unsigned *copies);

// Makes the bytes leave the program's buffer now, without waiting for the receiver. Returns false
// where they stay: there is no room for them, or the receiver is just fetching them.
bool fr_rndv_send_leave(struct fr_rndv_send *send);

// Returns whether the receiver is known to be gone.
bool fr_rndv_send_is_lost(const struct fr_rndv_send *send);

// Ends the operation of a send. A send that is still to be fetched becomes a detached send, which
// fr_rndv_progress looks after. `cancelled` says that the RTS will never be received. NULL is
// accepted.
void fr_rndv_send_free(struct fr_rndv_send *send, bool cancelled);

// Ends the operation of a send that is over, as fr_rndv_send_free does. Returns why its message is
// lost, FR_OK if it is not, as far as this process knows.
enum fr_status fr_rndv_send_end(struct fr_rndv_send *send);

// Does what fr_rndv_send_end does, unless another thread holds the send, or the caller runs beneath
// a function that does. Returns false then, and the send is still there.
FR_MUST_CHECK bool fr_rndv_send_try_end(struct fr_rndv_send *send, enum fr_status *failure);

// Notes that a plain message of a length that marks RTS is about to be sent. `once` says that it is
// sent only once, and before anything that any thread sends there later.
void fr_rndv_mark_plain(const struct fr_rndv_address *address, size_t length, bool once);

// Number of waiting sends. While there are any, each call that waits for others makes progress
// (fr_rndv_progress), or is announced by fr_rndv_block.
extern FR_OWN _Atomic size_t fr_rndv_waiting_count;
static inline bool fr_rndv_any_waiting(void)
{
    return atomic_load_explicit(&fr_rndv_waiting_count, memory_order_relaxed) != 0;
}

// Number of detached sends. Their receivers may still ask for another way.
extern FR_OWN _Atomic size_t fr_rndv_detached_count;
static inline bool fr_rndv_any_detached(void)
{
    return atomic_load_explicit(&fr_rndv_detached_count, memory_order_relaxed) != 0;
}

// Number of reasons to look at each call of MPI. Each waiting send is one; module request adds its
// own.
extern FR_OWN _Atomic size_t fr_rndv_reasons;

#endif
