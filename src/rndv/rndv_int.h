// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the ledger, the wire format, and the table of schemes.
#ifndef FR_RNDV_RNDV_INT_H
#define FR_RNDV_RNDV_INT_H

#include "fabrail/core/list.h"
#include "fabrail/ipc.h"
#include "fabrail/job/shm.h"
#include "fabrail/rndv.h"

#include <stddef.h>

// ---- the ledger of a sender: in memory that it shares with its host, if there is any

// The most messages of one process under way at once, and how many there is room for from the
// start.
enum { FR_RNDV_SLOTS = 16384, FR_RNDV_FIRST_SLOTS = 512 };

enum { FR_RNDV_SENDERS = 64 }; // that a process tells apart when it says what it receives

enum fr_rndv_state {
    FR_RNDV_ADVERTISED,
    FR_RNDV_MOVING,  // the sender is moving the bytes
    FR_RNDV_PULLING, // the receiver is moving the bytes
    FR_RNDV_PULLED,  // the receiver has the bytes
    FR_RNDV_FAILED,  // the receiver could not get the bytes in any way
    FR_RNDV_REFUSED, // the receiver cannot get them by this scheme, and asks for another one
};

// A slot's word holds the number of its message and its state: one more than fr_rndv_state, 0 for a
// slot that is not in use. FR_SLOT_TAKEN says that the RTS has been received by another function
// than the one that follows it. FR_SLOT_DOUBTED says that the receiver cannot tell whether the RTS
// was cut off. The word changes by compare-and-swap, so that nobody with the number of an earlier
// message can do anything to this one.
#define FR_SLOT_STATE   ((uint64_t)7)
#define FR_SLOT_TAKEN   ((uint64_t)8)
#define FR_SLOT_SPARE   ((uint64_t)0)
#define FR_SLOT_IN(at)  ((uint64_t)(at) + 1)
#define FR_SLOT_DOUBTED ((uint64_t)16)
#define FR_SLOT_ONE     ((uint64_t)32) // the first number
#define FR_SLOT_NUMBERS (~(FR_SLOT_ONE - 1))

#define FR_RNDV_NEVER UINT64_MAX       // `ready` of bytes that will never be there
#define FR_RNDV_WAITS (UINT64_MAX - 1) // `ready` of a waiting send

// The table of a sender's layout. Kernels of the receiver read it where it is. Plain bytes.
struct fr_rndv_table {
    struct fr_ipc_handle handle;
    uint64_t address; // in the sender's address space
    uint32_t each;    // bytes of each block; 0 where lengths differ
    uint16_t wide;    // as in fr_pack_shape, like `unit_shift`
    uint16_t unit_shift;
};

// One message in the ledger. Anybody may look at the atomic members while they change. What they
// say is valid if the slot has the same number and is waiting before and after. The place belongs
// to the sender while it writes or holds the slot, and to the receiver while it pulls. The word is
// the first to be changed and the last to be written.
struct fr_rndv_slot {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t word;
    _Atomic uint64_t sizes; // low bits: bytes of the message; above them: length of its RTS
    _Atomic uint64_t comm;
    _Atomic int32_t to;
    _Atomic int32_t tag;
    _Atomic uint64_t ready; // bytes that are there, from the first on
    struct fr_rndv_place place;
    struct fr_rndv_table table; // where the place's strides have blocks
};

// Packing of a slot's sizes.
enum { FR_SLOT_SIZE_BITS = 48 };
#define FR_SLOT_SIZES(bytes, length) ((bytes) | (uint64_t)(length) << FR_SLOT_SIZE_BITS)
static inline uint64_t fr_rndv_sizes_bytes(uint64_t sizes)
{
    return sizes & (((uint64_t)1 << FR_SLOT_SIZE_BITS) - 1);
}
static inline unsigned fr_rndv_sizes_length(uint64_t sizes)
{
    return (unsigned)(sizes >> FR_SLOT_SIZE_BITS);
}
_Static_assert(FR_RNDV_RTS_LONGEST < 1 << (64 - FR_SLOT_SIZE_BITS), "the length fits");

// What a process tells of the messages that it receives, for senders that wait for it (patience.c).
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
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t expected; // messages for it, not yet pulled
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

// Returns whether a process of this host looks up what this one enters for it. Claims room for that
// process's ledger.
bool fr_rndv_ledger_is_shared_with(int rank);

// Tells a process of this host that a sender has to wait now for it to receive. Returns whether
// that process is blocked: it receives nothing while it waits.
bool fr_rndv_ledger_await(int rank, int64_t now_ns);

// Counts a send to a process of this host that waits in its buffer, or with `more` -1 one that no
// longer does.
void fr_rndv_ledger_count_waiting(int rank, int more);

// Tells others which device this process uses. Costs a load and a compare while that stays.
void fr_rndv_ledger_use_device(int device);

// Returns whether a process of this host takes turns with this one on a device, as far as is known.
bool fr_rndv_ledger_takes_turns_with(int rank);

// Returns whether a slot's word says that its message waits to be received.
static inline bool fr_rndv_word_is_waiting(uint64_t word)
{
    uint64_t state = word & FR_SLOT_STATE;
    return state == FR_SLOT_IN(FR_RNDV_ADVERTISED) || state == FR_SLOT_IN(FR_RNDV_MOVING) ||
           state == FR_SLOT_IN(FR_RNDV_REFUSED);
}

// Changes the state of the message with this number. Returns false, with nothing done, if the slot
// has another number or state.
bool fr_rndv_slot_change(struct fr_rndv_slot *slot, uint64_t number, enum fr_rndv_state from,
                         enum fr_rndv_state to);

// Puts a waiting message in doubt: it may have been cut off. `marks` is FR_SLOT_DOUBTED, with
// FR_SLOT_TAKEN or without; `from` is the rank of the sender. Returns false if the message no
// longer waits. Nobody begins to pull a message in doubt.
bool fr_rndv_slot_doubt(int from, struct fr_rndv_slot *slot, uint64_t number, uint64_t marks);

// Lifts the doubt from a message, since it is being received. Returns whether the message was in
// doubt and marked as taken.
bool fr_rndv_slot_lift_doubt(int from, struct fr_rndv_slot *slot, uint64_t number);

// Marks a waiting message as taken, and lifts its doubt. Returns false if the slot has another
// message, or this one is being received or has been taken before.
bool fr_rndv_slot_take(int from, struct fr_rndv_slot *slot, uint64_t number);

// Enters a message in a slot of this process's ledger. Returns FR_ERR_LIMIT when all slots are in
// use, FR_ERR_UNSUPPORTED when a rule of rndv.h forbids an RTS. `table` may be NULL.
FR_MUST_CHECK enum fr_status fr_rndv_ledger_advertise(const struct fr_rndv_address *address,
                                                      bool shared, uint64_t sizes, uint64_t ready,
                                                      const struct fr_rndv_place *place,
                                                      const struct fr_rndv_table *table,
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

// ---- plain messages of a length that marks RTS (plain.c)

// Two tables: plain messages that this process has sent, and those that other hosts have told it
// of.
enum fr_rndv_plain_way { FR_PLAIN_TO, FR_PLAIN_FROM, FR_PLAIN_WAYS };

// Notes a plain message that is sent after the message of number `after`; UINT64_MAX where that is
// not known. Returns whether the receiver has to be told of it (FR_PLAIN_NEW). FR_PLAIN_BEYOND
// means that its address is not told apart, so that any message to that process may be plain.
enum fr_rndv_plain_news { FR_PLAIN_KNOWN, FR_PLAIN_NEW, FR_PLAIN_BEYOND };
enum fr_rndv_plain_news fr_rndv_plain_add(enum fr_rndv_plain_way way,
                                          const struct fr_rndv_address *address, size_t length,
                                          uint64_t after);

// Returns whether a plain message of this length may be under way. Costs some loads where there is
// none at all.
bool fr_rndv_plain_has(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                       size_t length);

// Notes that the message of this number has been received. Plain messages that were sent before it
// are no longer under way.
void fr_rndv_plain_received(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                            uint64_t number);
void fr_rndv_plain_forget_all(void);

// ---- what travels

// An RTS: what MPI carries in place of the bytes; zeros follow.
struct fr_rndv_rts {
    struct fr_job_secret secret;
    uint32_t from;  // rank in MPI_COMM_WORLD
    uint16_t place; // index of the slot
    uint8_t scheme; // enum fr_policy_scheme
    uint8_t remote; // 1: the entry came by control message, and is not looked up in the ledger
    uint64_t number;
    uint64_t bytes;
};
_Static_assert(sizeof(struct fr_rndv_rts) == 40, "no padding");
_Static_assert(sizeof(struct fr_rndv_rts) == FR_RNDV_RTS_BYTES, "it fits");

// A slot's contents for processes of other hosts, in a control message. Kind RTS carries all of it,
// ahead of the RTS, or when the scheme has changed. Kind WRITE carries all of it from the receiver
// to the sender, and its place is where the bytes shall be written. Other kinds carry the members
// before `place`.
struct fr_rndv_entry {
    uint64_t number;
    uint64_t ready; // with kind ATS: the state that the message has reached
    uint64_t sizes;
    uint64_t comm;
    int32_t tag;    // with kind WRITTEN_ALL: whether something may still land
    uint32_t index; // of the slot
    struct fr_rndv_place place;
};
_Static_assert(sizeof(struct fr_rndv_entry) <= FR_CONTROL_BYTES, "it fits");

// Sends an entry, or its first members, by control message, as the kind demands. With `must`, tries
// again for lack of room until the process is out of reach. Returns false if it was not sent.
bool fr_rndv_tell(int to, enum fr_job_control_kind kind, const struct fr_rndv_entry *entry,
                  bool must);

// ---- processes that take RTS later than from the start (takers.c)

// Open and close the list of them, with the module.
void fr_rndv_takers_open(void);
void fr_rndv_takers_close(void);

// Returns whether a process, and this one itself, takes RTS now. Asks it the first time.
bool fr_rndv_is_taken_by(int rank);

// Acts on FR_CONTROL_ASK or FR_CONTROL_TAKES of a process.
void fr_rndv_takers_handle(int from, enum fr_job_control_kind kind);

// Answers those that have asked, once this process takes RTS. Costs a load if there are none.
void fr_rndv_takers_answer(void);

// ---- what a receiver knows of senders on other hosts (replica.c)

bool fr_rndv_replica_open(void);
void fr_rndv_replica_close(void);
void fr_rndv_replica_handle(int from, enum fr_job_control_kind kind,
                            const struct fr_rndv_entry *entry);

// Fills in how many bytes there are and where they wait. Returns FR_ERR_NOT_FOUND while the message
// is not known, or its scheme is still `other_than` (FR_SCHEME_NONE: any scheme will do). Returns
// FR_ERR_NO_MEMORY when it may have been lost, and FR_ERR_CANCELLED when it was known with scheme
// `other_than` and has been withdrawn.
enum fr_status fr_rndv_replica_find(struct fr_rndv_incoming *incoming, unsigned other_than);

// Marks a message as taken, or forgets it if it is `over`. Returns false when it is not known yet.
bool fr_rndv_replica_take(int from, uint64_t number, bool over);

// Puts a message in doubt. `received` says that MPI has received it, or a later one that was cut
// off; it is then marked as taken as well. Once it turns out to be received by another receive, the
// mark passes to the next one. Returns false when it does not wait.
bool fr_rndv_replica_doubt(int from, uint64_t number, bool received);

// Returns whether a process of another host has told of a waiting send that is still expected.
bool fr_rndv_replica_any_waits(void);

// Finds the first message that is still to be received from an address, and has an RTS of these
// lengths. `doubted` says whether it may be in doubt.
bool fr_rndv_replica_find_first(const struct fr_rndv_address *from, size_t shortest, size_t longest,
                                bool doubted, struct fr_rndv_incoming *incoming);

enum fr_rndv_answer { FR_RNDV_UNKNOWN, FR_RNDV_PLAIN, FR_RNDV_FOUND };

// Tells what the first message from an address with this length is: one with an RTS, whose size it
// writes, or a plain one. Returns FR_RNDV_UNKNOWN while the notice of it is still to come.
enum fr_rndv_answer fr_rndv_replica_peek(const struct fr_rndv_address *from, size_t length,
                                         bool take, uint64_t *bytes);

// Tells a process of another host of a plain message that may be under way after the message of
// number `after`. With `all`, tells it that any message may be a plain one.
void fr_rndv_replica_tell_plain(const struct fr_rndv_address *address, size_t length,
                                uint64_t after, bool all);

// Returns whether a process was told that any message may be a plain one.
bool fr_rndv_replica_has_told_all(int to);

// Calls `visit` for each message by scheme pipeline that nobody has received, since its fragments
// have to be discarded.
void fr_rndv_replica_visit(void (*visit)(int from, unsigned index));

// ---- messages

// Begins to receive a message. Until the end, the bytes stay where `incoming` says afterwards.
// Waits while the sender moves them, which it does without waiting for anybody. Returns
// FR_ERR_NOT_FOUND when the sender has given the message up.
FR_MUST_CHECK enum fr_status fr_rndv_incoming_begin(struct fr_rndv_incoming *incoming);

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

// ---- layouts of senders (strides.c)

// Writes what travels of the table that a send has. Returns FR_ERR_UNSUPPORTED if the receiver
// cannot read the table where it is, or not yet.
FR_MUST_CHECK enum fr_status fr_rndv_table_of(const struct fr_rndv_send *send,
                                              struct fr_rndv_table *table);

// Makes the shape again. `strides` have gaps. `table` is not read if they have no blocks.
void fr_rndv_strides_shape(const struct fr_device_strides *strides,
                           const struct fr_rndv_table *table, struct fr_pack_shape *shape);

// Copies `bytes` from memory with this shape at `source` to packed memory of the host, by the
// device of `range`. Takes a call of the driver for each two levels and each block of the table,
// and waits for them. `table` is in host memory.
FR_MUST_CHECK enum fr_status fr_rndv_shape_copy(const struct fr_pack_shape *shape,
                                                const void *table, uintptr_t source,
                                                const struct fr_device_range *range,
                                                uintptr_t packed, size_t bytes);

// ---- schemes

// The bytes of a send in workspace, and the copies on their way there (send_stage.c).
struct fr_rndv_stage {
    size_t counted_bytes; // counted against the bound
    size_t aside_bytes;   // counted against the bound on device workspace, and not taken
    size_t ring_bytes;    // memory for a part of the bytes, used in turn; 0: for all of them
    size_t room_bytes;    // with a ring: bytes, from the first on, that there has been room for
    bool copying;
    size_t step;                  // bytes to copy next, between two marks
    size_t growth;                // factor from one step to the next
    size_t begun;                 // bytes whose copies have begun
    size_t copied_bytes;          // bytes that are there
    size_t ends[FR_DEVICE_MARKS]; // bytes that are there at each mark
    unsigned set;                 // marks that were set
    unsigned reached;             // marks that were reached
    // Most sends never write what follows. Before it is opened, the view has no lease.
    struct fr_staging_view view; // of the program's buffer, staged; it has the lease, if any
    struct fr_staging_view_block block;
    struct fr_device_batch batch; // while `copying`
};

struct fr_rndv_send {
    struct fr_list link; // in the list of detached sends
    const char *call;
    struct fr_rndv_address address;
    const struct fr_rndv_scheme *scheme;
    unsigned index; // in the ledger
    uint64_t number;
    size_t bytes;
    size_t length;     // of the RTS
    bool entered;      // it is in the ledger
    bool remote;       // the receiver does not read the ledger, but gets control messages
    _Atomic bool sent; // MPI has the RTS
    bool pushed;
    bool waits; // it is counted as a waiting send (waiting_sends.c)
    bool over;  // the program may have its buffer back
    enum fr_status failure;
    // Patience (patience.c). The clock is 0 before somebody asks whether the send is over.
    int64_t since_ns;       // when its receiver was first asked for, or last took one before it
    int64_t working_ns;     // when its receiver was last seen to work
    int64_t tried_ns;       // when its bytes last found no room to leave to
    int64_t stays_since_ns; // when they first found none, 0 before
    uint64_t seen_taken;    // what the receiver had taken last of this process
    uint32_t seen_begun;    // sweeps that the receiver had begun at since_ns

    struct fr_staging_view view; // of the program's buffer
    struct fr_staging_view_block block;
    struct fr_staging_table *table; // the receiver's kernel may read it; or NULL
    void *state; // the scheme's own, made with malloc: freed with the send, after cancel
    struct fr_rndv_stage stage;

    unsigned char rts[]; // as long as `length`
};

enum fr_rndv_scheme_flag {
    FR_RNDV_NEEDS_PUSH = 1, // the sender copies the bytes out of the program's buffer
    FR_RNDV_FRAGMENTED = 2, // MPI carries the bytes, and somebody has to receive what was sent
    FR_RNDV_REFUSABLE = 4,  // a receiver may ask for another scheme
    FR_RNDV_BY_NETWORK = 8, // slower than links of this host, and by way of host memory
    FR_RNDV_ASKED = 16,     // a receiver may ask something of a sender that is still copying
};

// A scheme is one file and one row.
struct fr_rndv_scheme {
    enum fr_policy_scheme id;
    unsigned flags; // of fr_rndv_scheme_flag
    // Sender: prepares what the slot will say. The place has the scheme already, and the handle of
    // the program's memory where policy knows that as exported.
    enum fr_status (*start)(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_place *place, uint64_t *ready);
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
#define FR_SCHEME(id, row, name) extern const struct fr_rndv_scheme fr_rndv_##row;
#include "fabrail/policy/schemes.def"
#undef FR_SCHEME
extern const struct fr_rndv_scheme fr_rndv_waiting; // of senders alone: pipeline, not begun yet
enum { FR_RNDV_LEAST_WAIT_NS = 100000 };            // a launch on either side

// The receiving side of schemes get and staged get: the operations of a row of the same names.
enum fr_status fr_rndv_get_begin(struct fr_rndv_recv *recv);
bool fr_rndv_get_pull(struct fr_rndv_recv **recvs, size_t count);
void fr_rndv_get_end(struct fr_rndv_recv *recv);

// Returns the row of a scheme, NULL for none.
const struct fr_rndv_scheme *fr_rndv_scheme_of(unsigned id);

static inline bool fr_rndv_scheme_has(unsigned id, enum fr_rndv_scheme_flag flag)
{
    const struct fr_rndv_scheme *scheme = fr_rndv_scheme_of(id);
    return scheme != NULL && (scheme->flags & flag) != 0;
}

#endif
