// SPDX-License-Identifier: BSD-3-Clause
// Messages by rendezvous that are for this process, before it receives them.
#ifndef FR_FABRAIL_RNDV_INCOMING_H
#define FR_FABRAIL_RNDV_INCOMING_H

#include "fabrail/device/pack.h"
#include "fabrail/ipc.h"
#include "fabrail/rndv.h"

// Bits for what a sender can do over rails: write; write by messages that the receiver answers.
enum { FR_RNDV_WRITES = 1, FR_RNDV_EMULATES_WRITES = 2 };

// The description of registered memory for the rails of another process (fr_rail_describe). Plain
// bytes.
struct fr_rndv_key {
    uint16_t bytes;          // of `data`
    uint16_t verbs;          // the sender's bits, FR_RNDV_WRITES and so on
    unsigned char data[172]; // the description
};

// Where the bytes of a message wait, and the scheme by which they move. Plain bytes.
struct fr_rndv_location {
    uint64_t address; // in the sender's address space
    uint32_t scheme;  // enum fr_policy_scheme
    uint32_t shift;   // fragments but the last have two to the power of that bytes
    union {
        struct {
            struct fr_ipc_handle handle;      // of memory that the receiver maps
            struct fr_device_strides strides; // of a layout with gaps; unit 0: it has none
        };
        struct fr_rndv_key key; // of memory that rails reach
    };
};

// A message as its receiver sees it.
struct fr_rndv_incoming {
    struct fr_rndv_slot *slot; // the entry itself, in memory of this host; else NULL
    uint64_t number;           // tells the message from all others of the sender
    int from;                  // rank in MPI_COMM_WORLD
    uint64_t bytes;
    unsigned index; // in the sender's ledger
    uint64_t ready; // bytes that are there; valid once the receiver has begun
    struct fr_rndv_location
        location; // the scheme as the RTS says; all of it once the receiver has begun
};

// The first bytes of every RTS of the job. Written in MPI_Init.
extern FR_OWN uint64_t fr_rndv_rts_begin;

// Returns whether data begin as every RTS of the job does. Cheap, and hardly ever true of other
// data. Reads 8 bytes.
static inline bool fr_rndv_begins_rts(const void *data)
{
    uint64_t begin;
    __builtin_memcpy(&begin, data, sizeof(begin));
    return begin == fr_rndv_rts_begin;
}

// Returns whether `data` are an RTS for this process whose message waits to be received. Fills
// `incoming`; of `location` it sets the scheme alone, and it leaves `ready`.
bool fr_rndv_incoming_read(const unsigned char data[FR_RNDV_RTS_BYTES],
                           struct fr_rndv_incoming *incoming);

// Copies what fr_rndv_incoming_read has filled, which is a quarter of it.
static inline void fr_rndv_incoming_copy(struct fr_rndv_incoming *to,
                                         const struct fr_rndv_incoming *incoming)
{
    to->slot = incoming->slot;
    to->number = incoming->number;
    to->from = incoming->from;
    to->bytes = incoming->bytes;
    to->index = incoming->index;
    to->location.scheme = incoming->location.scheme;
}

// Returns whether `data` are the RTS from which `incoming` was read.
bool fr_rndv_incoming_is_of(const unsigned char data[FR_RNDV_RTS_BYTES],
                            const struct fr_rndv_incoming *incoming);

// Facts about a receive that was too short for an RTS, which MPI has cut off. MPI may have put the
// first bytes of the RTS there, or none. It may tell the length of the RTS, or not.
struct fr_rndv_cut {
    const unsigned char *data;   // what stands in the receive's memory
    size_t data_bytes;           // of `data`, at most FR_RNDV_RTS_BYTES
    uint64_t room;               // bytes that the receive has room for
    int64_t length;              // of what was cut off; -1 if MPI does not tell
    struct fr_rndv_address from; // `to` is the sender, -1 if it is not known
    bool in_order; // no RTS that was received before waits for a look without being marked as taken
    bool at_once;  // MPI has received it within the call that asks
};

// Finds the message whose RTS was cut off. Returns false if it is not certain which message that
// is, or that there is one. The first one that it may be is then in doubt until it is received.
// While several are in doubt, no more messages are sent the same way.
bool fr_rndv_incoming_find_cut(const struct fr_rndv_cut *cut, struct fr_rndv_incoming *incoming);

// Returns whether a message that was sent the same way before this one may be in doubt, and writes
// that way to `from`. Once this message has been received, MPI has received those as well.
bool fr_rndv_incoming_is_after_doubt(const struct fr_rndv_incoming *incoming,
                                     struct fr_rndv_address *from);

// Ends messages in doubt that were sent this way before the one of `number`, except those marked as
// taken. Called when that one has been received and no receive is under way: nobody else receives
// them then.
void fr_rndv_incoming_end_doubted(const struct fr_rndv_address *from, uint64_t number);

// Returns whether the RTS of a message surely fits a receive with room for so many bytes.
static inline bool fr_rndv_incoming_fits(const struct fr_rndv_incoming *incoming, uint64_t room)
{
    return room >= incoming->bytes || room >= FR_RNDV_RTS_LONGEST;
}

// Ends messages that were sent to this process on a communicator that it has freed, and that it has
// not received. Called when no operation that it has begun can receive them any more. Costs some
// loads if nothing waits.
void fr_rndv_incoming_drop(uint64_t comm);

// Returns whether receiving a message takes no longer than this host's own links do: its scheme
// does not use the network.
bool fr_rndv_incoming_is_short(const struct fr_rndv_incoming *incoming);

// Return whether an RTS may be under way to this process, or has come and has not been followed.
// The second form asks about processes of this host alone. Cost some loads.
bool fr_rndv_incoming_any(void);
bool fr_rndv_incoming_any_here(void);

// Returns a number that grows with each message with an RTS that a process of this host sends to
// this one. It falls with one that MPI has not sent after all.
uint64_t fr_rndv_incoming_entered(void);

// Returns how many of them this process has not ended.
uint64_t fr_rndv_incoming_left(void);

// Returns whether a receive of a message would begin, or fail, without waiting for the sender's
// notice of it.
bool fr_rndv_incoming_may_begin(const struct fr_rndv_incoming *incoming);

// Marks a message as taken, for the sake of probes: its RTS has been received, though nobody has
// followed it yet. Returns false if the sender's notice of it is still to come. Calls no MPI and
// waits for nothing.
bool fr_rndv_incoming_take_known(const struct fr_rndv_incoming *incoming);

// Marks a message as taken. Waits for the sender's notice of it if need be, and returns false if
// that does not come.
bool fr_rndv_incoming_take(const struct fr_rndv_incoming *incoming);

// Finds the first message from a process with this tag and communicator that has an RTS of this
// length and is still to be received. Returns whether there is one, and writes its size to *bytes.
// Called when MPI has a message of `length` bytes and that length marks RTS. So the notice of a
// message with an RTS, or of a plain one, is known here or must come; this waits for it. `take`
// marks the message as taken: the caller is not the function that will follow its RTS (MPI_Mprobe).
bool fr_rndv_incoming_peek(const struct fr_rndv_address *from, size_t length, bool take,
                           uint64_t *bytes);

// Returns false if fr_rndv_incoming_peek would find nothing, whatever has been received. That holds
// for most messages that only are as long as an RTS. Waits for nobody.
bool fr_rndv_incoming_may_wait(const struct fr_rndv_address *from, size_t length);

#endif
