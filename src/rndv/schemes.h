// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the table of schemes.
#ifndef FR_RNDV_SCHEMES_H
#define FR_RNDV_SCHEMES_H

#include "fabrail/policy/scheme.h"
#include "fabrail/rndv/receive.h"
#include "rndv/ledger.h"

struct fr_rndv_send;

enum fr_rndv_scheme_flag {
    FR_RNDV_NEEDS_PUSH = 1, // the sender copies the bytes out of the program's buffer
    FR_RNDV_FRAGMENTED = 2, // MPI carries the bytes, and somebody has to receive what was sent
    FR_RNDV_REFUSABLE = 4,  // a receiver may ask for another scheme
    FR_RNDV_BY_NETWORK = 8, // slower than links of this host, and by way of host memory
    FR_RNDV_ANSWERS = 16,   // a receiver may ask something of a sender that is still copying
    FR_RNDV_GATED = 32,     // the slot may name a gate at which kernels wait for the bytes
};

// A scheme is one file and one row.
struct fr_rndv_scheme {
    enum fr_policy_scheme id;
    unsigned flags; // of fr_rndv_scheme_flag
    // Sender: prepares what the slot will say. The location has the scheme already, and the handle
    // of the program's memory where policy knows that as exported.
    enum fr_status (*start)(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_location *location, uint64_t *ready);
    // Sender: does what comes after the RTS. Returns whether the bytes have left the program's
    // buffer.
    bool (*progress)(struct fr_rndv_send *send);
    // Sender: returns how long it waits for its receiver before its bytes leave the buffer. NULL:
    // FR_RNDV_LEAST_WAIT_NS.
    int64_t (*wait_ns)(const struct fr_rndv_send *send);
    // Sender: returns whether the program may have its buffer back once the bytes have left it.
    // `waited` says that the receiver has had its time. NULL: always.
    bool (*may_leave)(const struct fr_rndv_send *send, enum fr_rndv_state state, bool waited);
    // Sender: returns whether nothing of the message is under way beside its copies. NULL: nothing
    // ever is.
    bool (*is_quiet)(const struct fr_rndv_send *send);
    // Sender: ends what start has begun, except the copies. NULL: there is nothing to end.
    void (*cancel)(struct fr_rndv_send *send);
    // Sender: notes that the receiver could not get the bytes by this scheme. NULL: that says
    // nothing of other messages.
    void (*note_failure)(const struct fr_rndv_send *send);
    // Receiver: begins one message.
    enum fr_status (*begin)(struct fr_rndv_recv *recv);
    // Receiver: moves all messages of this scheme on. Returns whether all are over. One with a
    // status other than FR_OK has failed, and is over once nothing of it is under way.
    // FR_ERR_CANCELLED says that its sender has died.
    bool (*pull)(struct fr_rndv_recv **recvs, size_t count);
    // Receiver: ends one message.
    void (*end)(struct fr_rndv_recv *recv);
    // Receiver: lets the thread sleep where nothing needs it for a moment, and returns whether it
    // did. NULL: never.
    bool (*rest)(void);
};
#define FR_SCHEME(id, row, name, path, received) extern const struct fr_rndv_scheme fr_rndv_##row;
#include "fabrail/policy/schemes.def"
extern FR_OWN const struct fr_rndv_scheme
    fr_rndv_waiting;                     // of senders alone: pipeline, not begun yet
enum { FR_RNDV_LEAST_WAIT_NS = 100000 }; // a launch on either side

// The receiving side of schemes get and staged get: the operations of a row of the same names.
enum fr_status fr_rndv_get_begin(struct fr_rndv_recv *recv);
bool fr_rndv_get_pull(struct fr_rndv_recv **recvs, size_t count);
void fr_rndv_get_end(struct fr_rndv_recv *recv);

// Returns whether the sender of a pull knows its outcome.
bool fr_rndv_get_is_told(const struct fr_rndv_recv *recv);

// Returns whether all bytes of a pull are being copied, which needs nothing of the sender.
bool fr_rndv_get_is_flying(const struct fr_rndv_recv *recv);

// Ends a pull whose bytes may be wrong, when its copies are over. The sender is told nothing.
void fr_rndv_get_drop(struct fr_rndv_recv *recv);

// The rows of all schemes, for callers that have checked the number.
extern FR_OWN const struct fr_rndv_scheme *const fr_rndv_schemes[FR_SCHEME_COUNT];

// Returns the row of a scheme, NULL for none.
static inline const struct fr_rndv_scheme *fr_rndv_scheme_of(unsigned id)
{
    return id < FR_SCHEME_COUNT ? fr_rndv_schemes[id] : NULL;
}

static inline bool fr_rndv_scheme_has(unsigned id, enum fr_rndv_scheme_flag flag)
{
    const struct fr_rndv_scheme *scheme = fr_rndv_scheme_of(id);
    return scheme != NULL && (scheme->flags & flag) != 0;
}

#endif
