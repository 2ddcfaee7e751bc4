// SPDX-License-Identifier: BSD-3-Clause
// Receiving by rendezvous.
#ifndef FR_FABRAIL_RNDV_RECEIVE_H
#define FR_FABRAIL_RNDV_RECEIVE_H

#include "fabrail/policy/scheme.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/staging/path.h"

// A receive that has brought an RTS, and how it ends. Before it begins there are zeros, but for
// what the caller says: `view`, `incoming`, `before` and `elsewhere`.
struct fr_rndv_recv {
    struct fr_staging_view *view;      // where the bytes go; its staging memory may be used
    struct fr_rndv_incoming *incoming; // the message, as fr_rndv_incoming_read has filled it
    enum fr_status status;             // how the receive has ended
    void *state;                       // the scheme's own
    const struct fr_rndv_recv *before; // the one that has begun before it, while several begin; or
                                       // NULL. They can share what they hold
    int64_t looked_ns;                 // when the sender was last known to live
    int64_t retry_ns;                  // when the sender was asked for another scheme
    size_t arrived;                    // fragments that have come, where there are any
    unsigned seen;                     // fragments of this sender that had come at the last look
    int64_t silent_ns;                 // for how long none has come while this process looked
    unsigned refused;                  // the scheme that the sender was asked to replace
    bool retrying;                     // it has not done so yet
    bool untouched;                    // it has failed before any byte came: another scheme may do
    bool on_device;                    // NICs write the bytes to device memory
    bool ahead;                        // a kernel has waited for the sender's, and not in vain
    bool let_go;                       // its sender may take the bytes elsewhere meanwhile
    bool waits;                        // the caller waits for it, and does nothing else
    bool elsewhere;                    // MPI may be writing to the view's staging memory still
    enum fr_policy_verb verb;          // whether receiver reads or sender writes, of scheme rail
};

// Most messages that are received together. Callers that have found more pass so many at a time.
enum { FR_RNDV_AT_ONCE = 64 };

// Receives all messages to their end. Those that move the same way, in memory of one device and
// context, go by one call of the driver where that is possible. Afterwards the bytes are in the
// program's memory, or `status` of a receive says why not.
void fr_rndv_receive(struct fr_rndv_recv *recvs, size_t count);

// Ends this thread's sweep, if it is in one. A sweep receives all messages that one look has found
// to have come, and the next one begins with another look. Called when all of them are received.
// Senders whose messages were not among them wait no longer for this process.
void fr_rndv_sweep_end(void);

// Begins to receive one message, and does not wait for its bytes. All that `recv` points to must
// stay in place until the receive is over.
void fr_rndv_receive_begin(struct fr_rndv_recv *recv);

// Moves receives on that fr_rndv_receive_begin has begun, at most FR_RNDV_AT_ONCE, and does not
// wait for their bytes. Those that have not moved yet go together as in fr_rndv_receive. Returns
// whether all are over.
bool fr_rndv_receive_poll(struct fr_rndv_recv *recvs, size_t count);

// Moves receives on as fr_rndv_receive_poll does, and waits for copies by devices that are under
// way, though not for their senders. Returns whether all are over.
bool fr_rndv_receive_land(struct fr_rndv_recv *recvs, size_t count);

// Waits until a receive is over that fr_rndv_receive_begin has begun. Makes progress for others
// meanwhile.
void fr_rndv_receive_finish(struct fr_rndv_recv *recv);

// Returns why the bytes of a receive that is over have come the way that they did, for the report.
const char *fr_rndv_receive_reason(const struct fr_rndv_recv *recv);

// Lets go of a receive whose bytes a device is copying, before the caller goes where it may not
// come back from soon: its sender then depends on nobody. The next of these functions takes it up
// again, or from the beginning where the sender has moved the bytes. Returns false if the sender
// waits until the receive is over all the same.
bool fr_rndv_receive_let_go(struct fr_rndv_recv *recv);

// Gives up a receive that fr_rndv_receive_begin has begun, and waits until nothing of it is under
// way, which needs no help of its sender. Its status is then FR_ERR_CANCELLED.
void fr_rndv_receive_cancel(struct fr_rndv_recv *recv);

#endif
