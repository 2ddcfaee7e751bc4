// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: messages on the way to this process.
#ifndef FR_RNDV_INCOMING_INT_H
#define FR_RNDV_INCOMING_INT_H

#include "rndv/protocol.h"

// Begins to receive a message. Until the end, the bytes stay where `incoming` says afterwards.
// Waits while the sender moves them, which it does without waiting for anybody. Returns
// FR_ERR_NOT_FOUND or FR_ERR_CANCELLED when the sender has given the message up.
FR_MUST_CHECK enum fr_status fr_rndv_incoming_begin(struct fr_rndv_incoming *incoming);

// Has a message of this host that was begun wait again, so that its sender depends on nobody while
// this process is elsewhere. The sender knows that a device may be reading the bytes. Returns
// false, with nothing done, if that is not possible.
bool fr_rndv_incoming_let_go(const struct fr_rndv_incoming *incoming);

// Tells senders that wait that this thread has begun to receive a message of this host. Begins a
// sweep unless it is in one, which fr_rndv_sweep_end ends.
void fr_rndv_sweep_take(const struct fr_rndv_incoming *incoming);

// Reads anew how many bytes are `ready`.
void fr_rndv_incoming_refresh(struct fr_rndv_incoming *incoming);

// Refuses the scheme of a message that this process has begun to receive: asks the sender for
// another one, and does not wait for it. Returns FR_ERR_NOT_FOUND when the message is gone.
FR_MUST_CHECK enum fr_status fr_rndv_incoming_refuse(const struct fr_rndv_incoming *incoming);

// Begins to receive a message by another scheme than the one that was refused. Returns
// FR_ERR_NOT_FOUND while the sender has not followed, and FR_ERR_CANCELLED when it never will.
FR_MUST_CHECK enum fr_status fr_rndv_incoming_begin_again(struct fr_rndv_incoming *incoming,
                                                          unsigned refused);

// Has the sender of a message of this host look whether it is waiting to be asked for it.
void fr_rndv_incoming_ask(const struct fr_rndv_incoming *incoming);

// Ends a message: acknowledges it, or fails it unless `pulled`.
void fr_rndv_incoming_end(const struct fr_rndv_incoming *incoming, bool pulled);

// Fails a message while its sender goes on sending fragments, which this process can no longer
// receive. Its slot stays in use until they are discarded.
void fr_rndv_incoming_abandon(const struct fr_rndv_incoming *incoming);

// Lifts the doubt from a message in a ledger of this host, since it is being received.
void fr_rndv_incoming_lift_doubt(const struct fr_rndv_incoming *incoming);

// Finds the message that an RTS names. Waits for its sender's notice of it.
bool fr_rndv_incoming_find(const struct fr_rndv_rts *rts, struct fr_rndv_incoming *incoming);

// Finds the first message from an address that is not marked as taken, and has an RTS of these
// lengths. `doubted` says whether it may be in doubt already.
bool fr_rndv_incoming_find_first(const struct fr_rndv_address *from, size_t shortest,
                                 size_t longest, bool doubted, struct fr_rndv_incoming *incoming);

// Ends a message that nobody else receives. Returns false when it is no longer there.
bool fr_rndv_incoming_drop_one(struct fr_rndv_incoming *incoming);

#endif
