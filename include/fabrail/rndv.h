// SPDX-License-Identifier: BSD-3-Clause
// Module rndv: the rendezvous protocol of messages whose bytes do not travel by MPI's own matching.
//
// In place of the bytes the real MPI carries a small RTS (ready to send), by its own matching, on
// the program's communicator and tag. Before the RTS leaves, the sender enters the message in a
// slot of its ledger: the receiver, the number of bytes, the scheme by which they move, and where
// they wait. Receivers on the same host read the ledger in shared memory; others get a copy of the
// entry by control message. A receive that completes with an RTS moves the bytes by the scheme of
// the entry, straight to where the program wants them. Then it acknowledges the message (ATS).
//
// A sender waits for about as long as a copy takes. Then it copies the bytes to workspace on the
// device or, where that is full, on the host. Where both are full the bytes stay, and the sender
// tells the receiver that it waits. From then on the receiver fetches messages wherever it waits.
// If it takes nothing for a second, it may be where it cannot. The bytes then leave beyond the
// bound, so that no send depends on its receiver for ever. Bytes that the receiver cannot fetch
// stay as well, until it asks for them (src/rndv/waiting_sends.c).
//
// A receiver must be able to tell the size of a message before it receives it (MPI_Probe), so two
// rules hold. First, messages of one communicator to one process with one tag are sent by one
// thread at a time. Messages of other communicators are not under way beside them, unless all
// processes know these communicators apart. Second, a plain message can have a length that marks
// RTS. While it may be under way, no RTS of that length is sent the same way. That ends when a
// message that was sent later is received.
//
// MPI takes an RTS for the first bytes of a message. Where the message is short, the RTS has its
// length. Else the RTS has a length that ends no predefined datatype in two, whatever datatype
// receives it. Where MPICH has to unpack a part of a datatype, it calls the message truncated, or
// stops. Open MPI does not. But it lets threads match the next message while it still copies one
// that it has matched. There lengths take turns, so that a probe is not told of a message that
// nobody can see yet.
//
// All functions may be called by several threads at once.
#ifndef FR_FABRAIL_RNDV_H
#define FR_FABRAIL_RNDV_H

#include "fabrail/device/pack.h"
#include "fabrail/ipc.h"
#include "fabrail/job/control.h"
#include "fabrail/policy/scheme.h"
#include "fabrail/staging/path.h"

// FR_RNDV_RTS_BYTES is the number of bytes of an RTS that mean something; zeros follow. Shorter
// messages have no RTS.
enum { FR_RNDV_RTS_BYTES = 40, FR_RNDV_RTS_PRIME = 43 };

// The length of the longest RTS.
#define FR_RNDV_RTS_LONGEST (FR_RNDV_RTS_PRIME * 96)

// Returns the length of the RTS for a message of `bytes`, 0 if it cannot have one. Each multiple of
// `unit` in the message ends a predefined datatype; if `unit` is 0 any byte does. `turn` picks one
// of several lengths. An RTS that is shorter than its message has a multiple of FR_RNDV_RTS_PRIME
// bytes, which few plain messages have.
size_t fr_rndv_rts_length(uint64_t bytes, size_t unit, unsigned turn);

// Returns whether an RTS may have so many bytes.
static inline bool fr_rndv_is_rts_length(int64_t bytes)
{
    return bytes >= FR_RNDV_RTS_BYTES && bytes <= FR_RNDV_RTS_LONGEST;
}

// Returns whether so many bytes mark an RTS: a message of that length may be one, so its size needs
// a second look.
static inline bool fr_rndv_marks_rts(int64_t bytes)
{
    return fr_rndv_is_rts_length(bytes) && bytes % FR_RNDV_RTS_PRIME == 0;
}

// Returns the bytes of the area of a process (struct fr_job_control_job) that this module needs.
// With `first`, returns how many of these it needs from the start.
size_t fr_rndv_area_bytes(bool first);

// Opens the module on this process. From then on messages may arrive. Called once control messages
// are open, with areas of the size above.
FR_MUST_CHECK enum fr_status fr_rndv_open(void);

// Begins to send and to take messages by rendezvous in a process that has told FR_JOB_TAKES_LATER.
// Until then it only looks at what it receives. Called once at most.
void fr_rndv_take_rts(void);

// Forgets messages that nobody has received. Called once all processes are known to have received
// all they ever will, until it returns false on all of them.
bool fr_rndv_drain(void);

// Closes the module, after fr_rndv_drain.
void fr_rndv_close(void);

// The address of a message.
struct fr_rndv_address {
    int to; // rank in MPI_COMM_WORLD
    int tag;
    uint64_t comm; // tells communicators apart
};

// ---- sending

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

// Does so for a send that is over. Returns why its message is lost, FR_OK if it is not, as far as
// this process knows.
enum fr_status fr_rndv_send_end(struct fr_rndv_send *send);

// Notes that a plain message of a length that marks RTS is about to be sent. `once` says that it is
// sent only once, and before anything that any thread sends there later.
void fr_rndv_mark_plain(const struct fr_rndv_address *address, size_t length, bool once);

// ---- receiving

// Bits for what a sender can do over rails: write; write by messages that the receiver answers.
enum { FR_RNDV_WRITES = 1, FR_RNDV_EMULATES_WRITES = 2 };

// The description of registered memory for the rails of another process (fr_rail_describe). Plain
// bytes.
struct fr_rndv_key {
    uint16_t bytes;          // of `data`
    uint16_t verbs;          // the sender's bits, FR_RNDV_WRITES and so on
    unsigned char data[172]; // the description
};

// The place where the bytes of a message wait. Plain bytes.
struct fr_rndv_place {
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
    unsigned index;             // in the sender's ledger
    struct fr_rndv_place place; // the scheme as the RTS says; all of it once the receiver has begun
    uint64_t ready;             // bytes that are there; valid once the receiver has begun
};

// The first bytes of every RTS of the job. Written in MPI_Init.
extern uint64_t fr_rndv_rts_begin;

// Returns whether data begin as every RTS of the job does. Cheap, and hardly ever true of other
// data. Reads 8 bytes.
static inline bool fr_rndv_begins_rts(const void *data)
{
    uint64_t begin;
    __builtin_memcpy(&begin, data, sizeof(begin));
    return begin == fr_rndv_rts_begin;
}

// Returns whether `data` are an RTS for this process whose message waits to be received. Fills
// `incoming`; of `place` it sets the scheme alone, and it leaves `ready`.
bool fr_rndv_incoming_read(const unsigned char data[FR_RNDV_RTS_BYTES],
                           struct fr_rndv_incoming *incoming);

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

// A receive that has brought an RTS, and how it ends.
struct fr_rndv_recv {
    struct fr_staging_view *view;      // where the bytes go; its staging memory may be used
    struct fr_rndv_incoming *incoming; // the message, as fr_rndv_incoming_read has filled it
    enum fr_status status;             // how the receive has ended
    const char *scheme;                // by which the bytes have come
    const char *reason;                // the policy's, for the report
    void *state;                       // the scheme's own
    int64_t looked_ns;                 // when the sender was last known to live
    int64_t asked_ns;                  // when the sender was asked for another scheme
    size_t come;                       // fragments that have come, where there are any
    unsigned refused;                  // the scheme that the sender was asked to replace
    bool asked;                        // it has not done so yet
    bool untouched;                    // it has failed before any byte came: another scheme may do
    bool on_device;                    // NICs write the bytes to device memory
    bool elsewhere;                    // MPI may be writing to the view's staging memory still
    enum fr_policy_verb verb;          // whether receiver reads or sender writes, of scheme rail
};

// Most messages that are received together. Callers that have found more do best to hand over so
// many at a time.
enum { FR_RNDV_AT_ONCE = 64 };

// Receives all messages to their end, those of one way by one call of the driver as far as that can
// be: what lies in memory of one device and context, in any allocations. Afterwards the bytes are
// in the program's memory, or `status` of a receive says why not.
void fr_rndv_receive(struct fr_rndv_recv *recvs, size_t count);

// Ends this thread's sweep, if it is in one: what it begins to receive next it has looked for anew.
// Called when all that was found to have come is received. Senders whose messages were not among
// that wait no longer for this process.
void fr_rndv_sweep_end(void);

// Begins to receive one message, and does not wait for its bytes. All that `recv` points to must
// stay in place until the receive is over.
void fr_rndv_receive_begin(struct fr_rndv_recv *recv);

// Moves a receive on that fr_rndv_receive_begin has begun. Returns whether it is over.
bool fr_rndv_receive_poll(struct fr_rndv_recv *recv);

// Waits until such a receive is over. Makes progress for others meanwhile.
void fr_rndv_receive_finish(struct fr_rndv_recv *recv);

// Returns the rails that are open, for the report; NULL for none.
struct fr_rails *fr_rndv_rails(void);

// ---- waiting sends: there is no room for their bytes until their receivers ask for them

// Number of waiting sends. While there are any, each call that waits for others makes progress
// (fr_rndv_progress), or is announced by fr_rndv_block.
extern _Atomic size_t fr_rndv_waiting_count;
static inline bool fr_rndv_any_waiting(void)
{
    return atomic_load_explicit(&fr_rndv_waiting_count, memory_order_relaxed) != 0;
}

// Number of reasons to look at each call of MPI. Each waiting send is one; module request adds its
// own.
extern _Atomic size_t fr_rndv_reasons;

// ---- blocked receivers

// Returns whether sends to this process wait in their buffers to be asked for, or a sender without
// room for its bytes has had to wait for it lately. Reads a clock only if one has.
bool fr_rndv_is_awaited(void);

// Notes that a thread of this process goes where it makes no progress while it waits. Its waiting
// sends leave before that. Senders without room do not wait for this process meanwhile.
void fr_rndv_block(void);

// Notes that the thread is back. Does nothing if the same thread has not called fr_rndv_block.
void fr_rndv_unblock(void);

// ---- progress

// Reads control messages, acts on them, and looks after detached sends. Called in calls with device
// buffers and wherever Fabrail waits. `user` is device memory of the call, NULL if there is none.
// Costs some loads when there is nothing to do.
void fr_rndv_progress(const struct fr_device_range *user);

// Has fr_rndv_progress also call a function of a module above.
void fr_rndv_progress_also(void (*progress)(void));

#endif
