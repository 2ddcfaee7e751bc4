// SPDX-License-Identifier: BSD-3-Clause
// Module rndv: the rendezvous protocol of messages whose bytes do not travel by MPI's own matching.
//
// In place of the bytes the real MPI carries a small RTS (ready to send), by its own matching, on
// the application's communicator and tag. Before it leaves, the sender enters the message in its
// ledger: who it is for, how many bytes it has, by which scheme they move, and where they wait.
// Receivers on the same host read the ledger in shared memory, others get a copy of the entry by
// control message. A receive that completes with an RTS moves the bytes by the scheme of the entry,
// straight to where the application wants them, and acknowledges (ATS).
//
// A sender that has waited for about as long as a copy takes makes that copy, to memory of
// Fabrail's on the device or, where that is full, on the host. Where both are full the bytes stay,
// and the receiver is told that it is waited for: from then on it receives wherever it waits. One
// that takes nothing for a second may be where it cannot. So that no send depends on its receiver
// for ever, its bytes then leave beyond the bound.
//
// So that a receiver can tell the size of a message before it receives it (MPI_Probe), two rules
// hold. Messages of one communicator that are under way to one process with one tag are sent by one
// thread at a time, and those of other communicators are not under way beside them unless all
// processes know these apart. And while a plain message may be under way of a size that marks RTS,
// no RTS of that size is sent the same way: until a message that was sent later is received.
//
// MPI takes an RTS for what it says to be: the first bytes of a message. It is as long as that
// where the message is short; else so long that it ends no predefined datatype in two, whatever
// datatype receives it. MPICH judges what does, where it has to unpack it, as truncated, or stops.
// Open MPI does not, and lets threads match the next message while it still copies one that it has
// matched: there lengths take turns, so that a probe is not told of one that nobody can see yet.
//
// All functions may be called by several threads at once.
#ifndef FR_FABRAIL_RNDV_H
#define FR_FABRAIL_RNDV_H

#include "fabrail/ipc.h"
#include "fabrail/job/control.h"
#include "fabrail/policy/scheme.h"
#include "fabrail/staging/path.h"

// Bytes of an RTS that say something, zeros follow. Shorter messages have none. And the length of
// the longest.
enum { FR_RNDV_RTS_BYTES = 40, FR_RNDV_RTS_PRIME = 43 };
#define FR_RNDV_RTS_LONGEST (FR_RNDV_RTS_PRIME * 96)

// How long the RTS of a message is, in which each multiple of `unit` ends a predefined datatype, or
// any byte if it is 0: one of several lengths in turn. 0 if it cannot have one. Where it is shorter
// than the message it is a multiple of a prime, which few plain messages are.
size_t fr_rndv_rts_length(uint64_t bytes, size_t unit, unsigned turn);

// Whether an RTS may have so many bytes, and whether a message of so many needs a second look to
// tell its size.
static inline bool fr_rndv_is_rts_length(int64_t bytes)
{
    return bytes >= FR_RNDV_RTS_BYTES && bytes <= FR_RNDV_RTS_LONGEST;
}
static inline bool fr_rndv_marks_rts(int64_t bytes)
{
    return fr_rndv_is_rts_length(bytes) && bytes % FR_RNDV_RTS_PRIME == 0;
}

// Begins on this process, on which messages may arrive from now on, once module job is open with
// areas of this size, of which the first ones are there at first.
size_t fr_rndv_area_bytes(bool first);
FR_MUST_CHECK enum fr_status fr_rndv_open(void);

// Forgets what nobody has received, once all processes are known to have received what they ever
// will: to be called until it returns false on all of them. Then ends.
bool fr_rndv_drain(void);
void fr_rndv_close(void);

// Where a message goes.
struct fr_rndv_address {
    int to; // rank in the world
    int tag;
    uint64_t comm; // tells communicators apart
};

// ---- sending

// What a sender has to say of a message. `call` names the function in messages to the user.
struct fr_rndv_message {
    const char *call;
    struct fr_rndv_address address;
    const struct fr_staging_view *view; // measured; of one block
    bool must_leave; // the bytes may change as soon as the call returns (a buffered send)
    bool parts;      // MPI takes a message that ends inside a predefined datatype
};

struct fr_rndv_send;

// Chooses a scheme by policy, prepares it and enters the message in the ledger. `choice` gets the
// scheme and the reason, also where the message cannot go this way: then *send is NULL, nothing has
// changed, and FR_OK is returned all the same. A failure is one of the device.
FR_MUST_CHECK enum fr_status fr_rndv_send_start(const struct fr_rndv_message *message,
                                                struct fr_rndv_send **send,
                                                struct fr_policy_scheme_choice *choice);

// Whether a message of this view to that process could ever go this way: for persistent requests,
// which choose anew at each start.
bool fr_rndv_send_is_possible(const struct fr_rndv_message *message);

// What the real MPI is to be given: `length` bytes that live as long as the send.
const unsigned char *fr_rndv_send_rts(const struct fr_rndv_send *send, size_t *length);

// Whether a blocking call of MPI that sends the RTS could keep this process from the rest of its
// part (fr_rndv_send_push): it is then to be made of nonblocking ones.
bool fr_rndv_send_needs_push(const struct fr_rndv_send *send);

// The call of MPI that sends the RTS has returned. When it has failed nothing was sent, and the
// send is to be freed.
void fr_rndv_send_sent(struct fr_rndv_send *send, bool sent);

// Does what the sender owes before it may wait for anybody: copies end, fragments are given to MPI.
// A failure, which the receiver hears of, is returned: the message is lost.
FR_MUST_CHECK enum fr_status fr_rndv_send_push(struct fr_rndv_send *send);

// Whether the application may have its buffer back: the receiver has the bytes, or they have left.
// Makes them leave once somebody has asked for about as long as a copy takes, if there is room for
// them within the bounds on memory. Counts `copies` down for that, and makes none where it is 0.
bool fr_rndv_send_poll(struct fr_rndv_send *send, unsigned *copies);

// Makes the bytes leave the application's buffer now. False when there is no memory for them, or
// the receiver is just fetching them.
bool fr_rndv_send_leave(struct fr_rndv_send *send);

// Whether the receiver is known to be gone.
bool fr_rndv_send_is_lost(const struct fr_rndv_send *send);

// The operation is over: what is still to be fetched is looked after by fr_rndv_progress.
// `cancelled` says that the RTS will never be received. NULL is accepted.
void fr_rndv_send_free(struct fr_rndv_send *send, bool cancelled);

// Notes that a plain message of a length that marks RTS is about to be sent. `once` says that it is
// sent before anything that is sent there later, by this thread or another one, and not again.
void fr_rndv_mark_plain(const struct fr_rndv_address *address, size_t length, bool once);

// ---- receiving

// What a sender can do itself: write over rails; but by messages that this process answers.
enum { FR_RNDV_WRITES = 1, FR_RNDV_EMULATES_WRITES = 2 };

// What names registered memory to the rails of another process (fr_rail_describe). Plain bytes.
struct fr_rndv_key {
    uint16_t bytes;
    uint16_t verbs; // of the sender, FR_RNDV_WRITES and so on
    unsigned char data[172];
};

// Where the bytes wait. Plain bytes.
struct fr_rndv_place {
    uint64_t address; // in the sender's address space
    uint32_t scheme;
    uint32_t shift; // fragments but the last have two to the power of that bytes
    union {         // as the scheme has it
        struct fr_ipc_handle handle;
        struct fr_rndv_key key; // of memory that rails reach
    };
};

// A message as its receiver sees it.
struct fr_rndv_incoming {
    struct fr_rndv_slot *slot; // the entry itself, in memory of this host; else NULL
    uint64_t number;           // tells the message from all others of the sender
    int from;                  // rank in the world
    uint64_t bytes;
    unsigned index;             // in the sender's ledger
    struct fr_rndv_place place; // the scheme as the RTS says; all of it once the receiver has begun
    uint64_t ready;             // so many bytes are there, known then as well
};

// Whether data begin as every RTS of the job does: cheap, and hardly ever true of others.
extern uint64_t fr_rndv_rts_begin; // written in MPI_Init
static inline bool fr_rndv_begins_rts(const void *data)
{
    uint64_t begin;
    __builtin_memcpy(&begin, data, sizeof(begin));
    return begin == fr_rndv_rts_begin;
}

// Whether `data` are an RTS for this process whose message waits to be received. Fills all but the
// last members.
bool fr_rndv_incoming_read(const unsigned char data[FR_RNDV_RTS_BYTES],
                           struct fr_rndv_incoming *incoming);

// Facts about a message that a receive was too short for. MPI may have put the first bytes of its
// RTS there, or none, and may tell how long the RTS is, or not.
struct fr_rndv_cut {
    const unsigned char *data;   // what stands in the receive's memory
    size_t data_bytes;           // of that, at most FR_RNDV_RTS_BYTES
    uint64_t room;               // of the receive
    int64_t length;              // of what was cut off; -1 if MPI does not tell
    struct fr_rndv_address from; // `to` is the sender, -1 if it is not known
    bool in_order; // no RTS that was received before waits for a look without being marked as taken
    bool at_once;  // MPI has received it within the call that asks
};

// Finds the message. Returns false where it is not certain which one that is, or that there is any:
// then the first one that it may be is in doubt until it is received, and where several are, no
// other is sent the same way.
bool fr_rndv_incoming_find_cut(const struct fr_rndv_cut *cut, struct fr_rndv_incoming *incoming);

// Whether a message may have been sent the same way before this one and is in doubt, and which way
// that is. Once this one has been received those were as well: where no receive is under way nobody
// else receives them, and they are ended, but for what is marked as taken.
bool fr_rndv_incoming_is_after_doubt(const struct fr_rndv_incoming *incoming,
                                     struct fr_rndv_address *from);
void fr_rndv_incoming_end_doubted(const struct fr_rndv_address *from, uint64_t number);

// Whether its RTS surely fits a receive with room for so many bytes.
static inline bool fr_rndv_incoming_fits(const struct fr_rndv_incoming *incoming, uint64_t room)
{
    return room >= incoming->bytes || room >= FR_RNDV_RTS_LONGEST;
}

// Ends what has been sent to this process on a communicator that it has freed, and was not
// received, when nothing that it has begun can receive it any more. Some loads where nothing waits.
void fr_rndv_incoming_drop(uint64_t comm);

// Whether receiving it takes no longer than this host's own links do.
bool fr_rndv_incoming_is_short(const struct fr_rndv_incoming *incoming);

// Whether an RTS may be under way to this process, or has come and not been followed. Some loads.
bool fr_rndv_incoming_any(void);
bool fr_rndv_incoming_any_here(void); // from processes of this host

// Says for the sake of probes that the RTS has been received, though nobody has followed it yet.
// The first form returns false, with no MPI called and nothing waited for, when what its sender has
// told of it is still to come; the second one waits for that, and returns false if it does not.
bool fr_rndv_incoming_take_known(const struct fr_rndv_incoming *incoming);
bool fr_rndv_incoming_take(const struct fr_rndv_incoming *incoming);

// The size of the first message from a process with this tag and communicator, and an RTS of this
// length, that is still to be received. To be called when a message of such a size waits that marks
// RTS: then either that or the news of plain messages is known here, or must come, and is waited
// for. `take` says that it has been received by another function than the one that will follow it
// (MPI_Mprobe).
bool fr_rndv_incoming_peek(const struct fr_rndv_address *from, size_t length, bool take,
                           uint64_t *bytes);

// False when that finds nothing whatever has been received, as of most messages that only are as
// long as an RTS. Waits for nobody.
bool fr_rndv_incoming_may_wait(const struct fr_rndv_address *from, size_t length);

// A receive that has brought an RTS, from the incoming to its outcome.
struct fr_rndv_recv {
    struct fr_staging_view *view;      // where the bytes go; staging memory of the view may be used
    struct fr_rndv_incoming *incoming; // who has read it
    enum fr_status status;
    const char *scheme;       // by which the bytes have come
    const char *reason;       // the policy's, for the report
    void *state;              // the scheme's own
    bool untouched;           // it has failed before a byte has come: another scheme may do
    bool on_device;           // NICs write the bytes to device memory
    enum fr_policy_verb verb; // whose NICs, of scheme rail
};

// Receives all of them to their end: the bytes are in the application's memory then, or `status`
// says why not.
void fr_rndv_receive(struct fr_rndv_recv *recvs, size_t count);

// The rails that are open, for the report; NULL for none.
struct fr_rails *fr_rndv_rails(void);

// ---- blocked receivers

// Whether a sender has had to wait for this process lately, since there was no room for its bytes.
// Reads a clock only when that is so, or has just ceased to be.
bool fr_rndv_is_awaited(void);

// Says that a thread of this process goes where it receives nothing while it waits, and that it is
// back: senders without room do not wait for it. The second form does nothing where the first has
// not been called, by the same thread.
void fr_rndv_block(void);
void fr_rndv_unblock(void);

// ---- progress

// Reads control messages, acts on them, and looks after sends that their operations have left. In
// calls with device buffers and wherever Fabrail waits; `user` is device memory of the call, NULL
// if there is none. Some loads when there is nothing to do.
void fr_rndv_progress(const struct fr_device_range *user);

#endif
