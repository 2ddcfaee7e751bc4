// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: messages of scheme rail that their senders write. A receiver asks for it
// by a control message with the key of memory of its workspace, and hears how much has been
// written, and when no more will be. It need not wait for that: it may turn to reading at any time,
// but then the memory that it has given the key of stays out of use until the sender has said so.
#ifndef FR_RNDV_RAIL_PUT_SEND_H
#define FR_RNDV_RAIL_PUT_SEND_H

#include "rndv/own_rails.h"
#include "rndv/send.h"

// ---- the sender (write.c)

// What a send by rails has beside the others.
struct fr_rndv_rail_send {
    struct fr_rail_region *region; // its staging memory, registered; NULL for none
    size_t offset;                 // of the bytes in it
    bool serves;                   // its receiver may be reading there
    bool writes;                   // or is likely to ask for writes
};

// What this process can do as a sender, of FR_RNDV_WRITES and so on; and whether receivers that
// have its settings and NICs ask it to write.
unsigned fr_rndv_rail_put_send_verbs(void);
bool fr_rndv_rail_put_send_is_likely(void);

// Acts on a request.
void fr_rndv_rail_put_send_handle(int from, const struct fr_rndv_entry *entry);

// Whether something has been asked of the messages in a place of the ledger; of any: a load.
bool fr_rndv_rail_put_send_is_asked(unsigned index);
bool fr_rndv_rail_put_send_any(void);

// Writes what is there by now and tells the receiver. The place is held; `send` is what it is of,
// NULL for none.
void fr_rndv_rail_put_send_step(unsigned index, const struct fr_rndv_send *send);

// Ends the writes of a send, which is held: its memory may go. Waits until nothing is on its way.
void fr_rndv_rail_put_send_stop(const struct fr_rndv_send *send);

void fr_rndv_rail_put_send_close(void);

// ---- the receiver (written.c)

struct fr_rndv_asked;

// Asks the sender of a message to write it to `offset` of a region. NULL if it could not be told.
struct fr_rndv_asked *fr_rndv_rail_put_recv_ask(const struct fr_rndv_incoming *incoming,
                                                const struct fr_rail_region *region, size_t offset);

// Whether a sender has not said yet that nothing of an earlier message lands any more, of which the
// memory was left to it.
bool fr_rndv_rail_put_recv_owes(int from);

struct fr_rndv_rail_put_recv {
    size_t bytes; // the first so many have arrived
    bool over;    // no more will be written
    bool silent;  // longer than a sender that has come to it needs
};
struct fr_rndv_rail_put_recv fr_rndv_rail_put_recv_look(const struct fr_rndv_asked *asked);

// Ends with the request. Returns whether nothing lands there any more; else the lease and the
// region are taken over until nothing does, and *lease is an empty one.
bool fr_rndv_rail_put_recv_end(struct fr_rndv_asked *asked, struct fr_staging_lease *lease,
                               struct fr_rail_region *region);

// Acts on what a sender says.
void fr_rndv_rail_put_recv_handle(int from, enum fr_job_control_kind kind,
                                  const struct fr_rndv_entry *entry);

// Gives all memory back. The rails are closed by now.
void fr_rndv_rail_put_recv_close(void);

#endif
