// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: messages of scheme rail that their senders write. A receiver asks for that
// by control message WRITE, with the key of memory in its workspace. The sender tells it how much
// has been written, and when no more will be. The receiver need not wait for that and may turn to
// reading at any time. The memory of the key then stays out of use until the sender has said that
// nothing more lands there.
#ifndef FR_RNDV_RAIL_PUT_SEND_H
#define FR_RNDV_RAIL_PUT_SEND_H

#include "rndv/own_rails.h"
#include "rndv/send.h"

// ---- the sender (rail_put_send.c)

// State of a send by scheme rail.
struct fr_rndv_rail_send {
    struct fr_rail_region *region; // its staging memory, registered; NULL for none
    size_t offset;                 // of the bytes in the region
    bool serves;                   // its receiver may be reading there
    bool writes;                   // its receiver is likely to ask for writes
};

// Returns what this process can do as a sender: bits FR_RNDV_WRITES and so on.
unsigned fr_rndv_rail_put_send_verbs(void);

// Returns whether receivers with the settings and NICs of this process would ask it to write.
bool fr_rndv_rail_put_send_is_likely(void);

// Acts on control message WRITE.
void fr_rndv_rail_put_send_handle(int from, const struct fr_rndv_entry *entry);

// Returns whether a receiver has asked for something of the message in a slot.
bool fr_rndv_rail_put_send_is_requested(unsigned index);

// Returns whether a receiver has asked for something of any message. Costs a load.
bool fr_rndv_rail_put_send_any(void);

// Writes the bytes that are there by now and tells the receiver. The slot is held; `send` is the
// send in it, NULL for none.
void fr_rndv_rail_put_send_step(unsigned index, const struct fr_rndv_send *send);

// Ends the writes of a held send, so that its memory may go. Waits until nothing is on its way.
void fr_rndv_rail_put_send_stop(const struct fr_rndv_send *send);

void fr_rndv_rail_put_send_close(void);

// ---- the receiver (rail_put_recv.c)

// A request to write.
struct fr_rndv_rail_put_request;

// Asks the sender of a message to write it to `offset` of a region. Returns NULL if it could not be
// told.
struct fr_rndv_rail_put_request *fr_rndv_rail_put_recv_ask(const struct fr_rndv_incoming *incoming,
                                                           const struct fr_rail_region *region,
                                                           size_t offset);

// Returns whether memory of an earlier message was left to a sender that has not yet said that
// nothing more lands there.
bool fr_rndv_rail_put_recv_owes(int from);

// State of a request.
struct fr_rndv_rail_put_recv {
    size_t bytes; // how many have arrived, from the first on
    bool over;    // no more will be written
    bool silent;  // the sender has said nothing for longer than one that writes needs
};
struct fr_rndv_rail_put_recv
fr_rndv_rail_put_recv_look(const struct fr_rndv_rail_put_request *request);

// Ends a request. Returns whether nothing lands in its memory any more. Else takes over the lease
// and the region until nothing does, and empties *lease.
bool fr_rndv_rail_put_recv_end(struct fr_rndv_rail_put_request *request,
                               struct fr_staging_lease *lease, struct fr_rail_region *region);

// Acts on control messages WRITTEN and WRITTEN_ALL.
void fr_rndv_rail_put_recv_handle(int from, enum fr_job_control_kind kind,
                                  const struct fr_rndv_entry *entry);

// Returns all memory. Called once the rails are closed.
void fr_rndv_rail_put_recv_close(void);

#endif
