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

// Messages of one process, under way at once; and those that there is room for from the start.
enum { FR_RNDV_SLOTS = 16384, FR_RNDV_FIRST_SLOTS = 512 };

enum fr_rndv_state {
    FR_RNDV_ADVERTISED,
    FR_RNDV_MOVING,  // the sender is moving the bytes
    FR_RNDV_PULLING, // the receiver is
    FR_RNDV_PULLED,
    FR_RNDV_FAILED,  // the receiver could not have the bytes in any way
    FR_RNDV_REFUSED, // nor by this scheme: the sender is asked for another one
};

// A slot's word: its number, whether the RTS has been received by another function than the one
// that follows it, whether its receiver cannot tell if it was cut off, and its state, one more than
// fr_rndv_state, 0 for none. It changes by compare-and-swap, so that nobody with the number of an
// earlier message can do anything to this one.
#define FR_SLOT_STATE   ((uint64_t)7)
#define FR_SLOT_TAKEN   ((uint64_t)8)
#define FR_SLOT_SPARE   ((uint64_t)0)
#define FR_SLOT_IN(at)  ((uint64_t)(at) + 1)
#define FR_SLOT_DOUBTED ((uint64_t)16)
#define FR_SLOT_ONE     ((uint64_t)32) // the first number
#define FR_SLOT_NUMBERS (~(FR_SLOT_ONE - 1))

#define FR_RNDV_NEVER UINT64_MAX // `ready` of bytes that will never be there

// What anybody may look at while it changes is atomic, and valid when the slot has the same number
// and is waiting before and after. The place is the sender's while it writes or holds the slot, and
// the receiver's while it pulls. The word is the first to be changed and the last to be written.
struct fr_rndv_slot {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t word;
    _Atomic uint64_t sizes; // of the message, and above, the length of its RTS
    _Atomic uint64_t comm;
    _Atomic int32_t to;
    _Atomic int32_t tag;
    _Atomic uint64_t ready; // so many bytes are there, from the first on
    struct fr_rndv_place place;
};

// A slot's sizes.
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

// Of one process. All zero is an empty one.
struct fr_rndv_ledger {
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t expected; // messages for it, not yet pulled
    // Messages of its own, as often as a receiver has refused one: looked at all the time.
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t refused;
    _Atomic uint64_t doubted; // and of which one cannot tell whether they were cut off
    // Of the device that it has used last, if processes take turns there; 0 for others.
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t device;
    _Atomic int64_t awaited_ns; // when a sender last had to wait for this process to receive
    _Atomic uint64_t blocked;   // threads that receive nothing while they wait
    _Atomic uint64_t more;      // slots that are there beyond the first ones
    _Alignas(FR_CONTROL_LINE_BYTES) _Atomic uint64_t in_use[FR_RNDV_SLOTS / 64]; // by it alone
    struct fr_rndv_slot slots[FR_RNDV_SLOTS];
};
_Static_assert(FR_RNDV_SLOTS % 64 == 0 && FR_RNDV_FIRST_SLOTS % 64 == 0, "a bit a slot");

// Bytes of one with so many slots, and how many it has now. Memory beyond these may be missing.
static inline size_t fr_rndv_ledger_bytes(size_t slots)
{
    return offsetof(struct fr_rndv_ledger, slots) + slots * sizeof(struct fr_rndv_slot);
}
static inline unsigned fr_rndv_ledger_slots_of(const struct fr_rndv_ledger *ledger)
{
    uint64_t more = atomic_load_explicit(&ledger->more, memory_order_acquire);
    return more <= FR_RNDV_SLOTS - FR_RNDV_FIRST_SLOTS ? FR_RNDV_FIRST_SLOTS + (unsigned)more
                                                       : FR_RNDV_FIRST_SLOTS;
}
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");

// The ledger of a process of this host that has used it, NULL for others.
static inline struct fr_rndv_ledger *fr_rndv_ledger_of(int rank)
{
    return fr_job_control_area_in_use(rank);
}

// Whether a process of this host looks up what this one enters for it: claims room for that.
bool fr_rndv_ledger_is_shared_with(int rank);

// Says that a sender has to wait now for a process of this host to receive. Returns whether that is
// where it receives nothing.
bool fr_rndv_ledger_await(int rank, int64_t now_ns);

// Says which device this process uses: a load and a compare while that stays.
void fr_rndv_ledger_use_device(int device);

// Whether a process of this host takes turns with this one on a device, as far as is known.
bool fr_rndv_ledger_takes_turns_with(int rank);

static inline bool fr_rndv_word_is_waiting(uint64_t word)
{
    uint64_t state = word & FR_SLOT_STATE;
    return state == FR_SLOT_IN(FR_RNDV_ADVERTISED) || state == FR_SLOT_IN(FR_RNDV_MOVING) ||
           state == FR_SLOT_IN(FR_RNDV_REFUSED);
}

// Changes the state of the slot with this number; false, and nothing done, when it is in another.
bool fr_rndv_slot_change(struct fr_rndv_slot *slot, uint64_t number, enum fr_rndv_state from,
                         enum fr_rndv_state to);

// Marks a message that waits as one that may have been cut off; false when it is over. And lifts
// that, since it is being received: returns whether it was marked as taken for it. The rank is that
// of its sender. Nobody begins to pull one that is in doubt.
bool fr_rndv_slot_doubt(int from, struct fr_rndv_slot *slot, uint64_t number, uint64_t marks);
bool fr_rndv_slot_lift_doubt(int from, struct fr_rndv_slot *slot, uint64_t number);

// Marks it as taken; false when it is another one, is being received, or has been taken before.
bool fr_rndv_slot_take(int from, struct fr_rndv_slot *slot, uint64_t number);

// The sender's side. Offering fails with FR_ERR_LIMIT when all slots are in use, and with
// FR_ERR_UNSUPPORTED when a rule of rndv.h forbids it.
FR_MUST_CHECK enum fr_status fr_rndv_ledger_advertise(const struct fr_rndv_address *address,
                                                      bool shared, uint64_t sizes, uint64_t ready,
                                                      const struct fr_rndv_place *place,
                                                      unsigned *index, uint64_t *number);
void fr_rndv_ledger_sent(unsigned index); // another thread may go on with the same address
void fr_rndv_ledger_fail(unsigned index, uint64_t number, bool shared); // what was refused
void fr_rndv_ledger_free(unsigned index, bool shared);    // in any state that nobody is pulling in
struct fr_rndv_slot *fr_rndv_ledger_slot(unsigned index); // NULL while nothing was ever entered
unsigned fr_rndv_ledger_count(void);                      // slots that there are, in use or not

// Whether a plain message may be under way to an address, so that no RTS of this length can be.
bool fr_rndv_ledger_is_closed_to(const struct fr_rndv_address *address, size_t length);
// Whether a receiver cannot tell which of the messages to an address were cut off, and it is to be
// no more of them.
bool fr_rndv_ledger_is_doubted(const struct fr_rndv_address *address);
_Atomic uint64_t *fr_rndv_ledger_doubts(int rank); // NULL for one without a ledger here
enum fr_rndv_state fr_rndv_ledger_state(unsigned index);
// How often messages of this process have been refused; a receiver of another host cannot count.
uint64_t fr_rndv_ledger_refused(void);
void fr_rndv_ledger_count_refused(void);
bool fr_rndv_ledger_open(void);
void fr_rndv_ledger_close(void);

// ---- plain messages of a length that marks RTS (plain.c)

// To whom this process has sent them; and from whom, as far as other hosts have told.
enum fr_rndv_plain_way { FR_PLAIN_TO, FR_PLAIN_FROM, FR_PLAIN_WAYS };

// Notes one that is sent after the message of number `after`; UINT64_MAX where that is not known.
// Says whether its receiver has to be told, of this one, or where it is beyond what is told apart,
// of all.
enum fr_rndv_plain_news { FR_PLAIN_KNOWN, FR_PLAIN_NEW, FR_PLAIN_BEYOND };
enum fr_rndv_plain_news fr_rndv_plain_add(enum fr_rndv_plain_way way,
                                          const struct fr_rndv_address *address, size_t length,
                                          uint64_t after);

// Whether one of this length may be under way. Some loads where there is none at all.
bool fr_rndv_plain_has(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                       size_t length);

// The message of this number has been received: what was sent before it is under way no more.
void fr_rndv_plain_received(enum fr_rndv_plain_way way, const struct fr_rndv_address *address,
                            uint64_t number);
void fr_rndv_plain_forget_all(void);

// ---- what travels

// What MPI carries in place of the bytes; zeros follow.
struct fr_rndv_rts {
    struct fr_job_secret secret;
    uint32_t from; // rank in the world
    uint16_t place;
    uint8_t scheme;
    uint8_t remote; // 1: a control message has brought the entry, and it is not to be looked up
    uint64_t number;
    uint64_t bytes;
};
_Static_assert(sizeof(struct fr_rndv_rts) == 40, "no padding");
_Static_assert(sizeof(struct fr_rndv_rts) == FR_RNDV_RTS_BYTES, "it fits");

// What processes of other hosts get of a slot, by control message: all of it with kind RTS, which
// goes ahead of the RTS or says that the scheme is another one now, and with kind WRITE, which goes
// the other way with where the bytes are to be written to; else the first members.
struct fr_rndv_entry {
    uint64_t number;
    uint64_t ready; // of kind ATS: the state that the message has reached
    uint64_t sizes;
    uint64_t comm;
    int32_t tag; // of kind WRITTEN_ALL: whether something may still land
    uint32_t index;
    struct fr_rndv_place place;
};
_Static_assert(sizeof(struct fr_rndv_entry) <= FR_CONTROL_BYTES, "it fits");

// Sends the first members of an entry, or all of it. Where that fails for want of memory, tries
// again as long as `must` says so.
bool fr_rndv_tell(int to, enum fr_job_control_kind kind, const struct fr_rndv_entry *entry,
                  bool must);

// ---- what a receiver knows of senders on other hosts (replica.c)

bool fr_rndv_replica_open(void);
void fr_rndv_replica_close(void);
void fr_rndv_replica_handle(int from, enum fr_job_control_kind kind,
                            const struct fr_rndv_entry *entry);

// Fills in how many bytes there are and where they wait. FR_ERR_NOT_FOUND while it is not known, or
// not beyond `scheme` (FR_SCHEME_NONE: any) or `ready` bytes; FR_ERR_NO_MEMORY when it may have
// been lost, and beyond a scheme FR_ERR_CANCELLED when it has been withdrawn.
enum fr_status fr_rndv_replica_find(struct fr_rndv_incoming *incoming, unsigned other_than);
// Forgets a message, or marks it as received. False when it is not known yet.
bool fr_rndv_replica_take(int from, uint64_t number, bool over);

// Marks one as in doubt, and where MPI has `received` it, or one after it, which was cut off, as
// taken: the next one is marked once that is received. False when it does not wait.
bool fr_rndv_replica_doubt(int from, uint64_t number, bool received);

// The first message that is still to be received from there, and has an RTS of these lengths.
bool fr_rndv_replica_find_first(const struct fr_rndv_address *from, size_t shortest, size_t longest,
                                bool doubted, struct fr_rndv_incoming *incoming);

enum fr_rndv_answer { FR_RNDV_UNKNOWN, FR_RNDV_PLAIN, FR_RNDV_FOUND };
enum fr_rndv_answer fr_rndv_replica_peek(const struct fr_rndv_address *from, size_t length,
                                         bool take, uint64_t *bytes);

// Tells another host of a plain message that may be under way after that number, or, where `all`
// says so, that any may be one; and whether that was said of an address's process.
void fr_rndv_replica_tell_plain(const struct fr_rndv_address *address, size_t length,
                                uint64_t after, bool all);
bool fr_rndv_replica_has_told_all(int to);

// The fragments of messages in pipelines that nobody has received.
void fr_rndv_replica_visit(void (*visit)(int from, unsigned index));

// ---- messages

// Begins: the bytes stay where the incoming then says until the end. Waits while the sender moves
// them, which it does without waiting for anybody. FR_ERR_NOT_FOUND when it has been given up.
FR_MUST_CHECK enum fr_status fr_rndv_incoming_begin(struct fr_rndv_incoming *incoming);
void fr_rndv_incoming_refresh(struct fr_rndv_incoming *incoming); // `ready`
// Asks the sender for another scheme than this one, and waits for it; then as begin.
FR_MUST_CHECK enum fr_status fr_rndv_incoming_refuse(struct fr_rndv_incoming *incoming);
void fr_rndv_incoming_end(const struct fr_rndv_incoming *incoming, bool pulled);
// The receiver can do nothing with what the sender goes on sending: a failure, and its place stays
// taken as long as that is not discarded.
void fr_rndv_incoming_abandon(const struct fr_rndv_incoming *incoming);

// A message in a ledger of this host is being received: it is not in doubt any more.
void fr_rndv_incoming_lift_doubt(const struct fr_rndv_incoming *incoming);

// Finds the message that an RTS names, waiting for what its sender tells of it; and the first one
// from a sender that is not marked as taken, and has an RTS of these lengths. `doubted` says
// whether one may be in doubt already.
bool fr_rndv_incoming_find(const struct fr_rndv_rts *rts, struct fr_rndv_incoming *incoming);
bool fr_rndv_incoming_find_first(const struct fr_rndv_address *from, size_t shortest,
                                 size_t longest, bool doubted, struct fr_rndv_incoming *incoming);

// Ends a message that nobody else receives. False when it is not there any more.
bool fr_rndv_incoming_drop_one(struct fr_rndv_incoming *incoming);

// ---- schemes

// The bytes of a send in memory of Fabrail's, and copies on their way there (stage.c).
struct fr_rndv_stage {
    struct fr_staging_view view; // of the application's buffer, staged; lease, if there is any
    struct fr_staging_view_block block;
    size_t counted_bytes; // against the bound
    struct fr_device_batch batch;
    bool copying;
    size_t step;                  // bytes that are copied next, between two marks
    size_t growth;                // of the steps
    size_t begun;                 // bytes whose copies have begun
    size_t copied_bytes;          // of them, those that are there
    size_t ends[FR_DEVICE_MARKS]; // of bytes at each mark
    unsigned set;                 // marks that were set
    unsigned reached;             // and reached
};

struct fr_rndv_send {
    struct fr_list link; // in the list of those that their operations have left
    const char *call;
    struct fr_rndv_address address;
    const struct fr_rndv_scheme *scheme;
    unsigned index; // in the ledger
    uint64_t number;
    size_t bytes;
    size_t length; // of the RTS
    bool entered;  // in the ledger
    bool remote;   // the receiver does not look there, but hears of it by control messages
    bool sent;     // the RTS
    bool pushed;
    bool over; // the application may have its buffer back
    enum fr_status failure;
    int64_t since_ns;       // when somebody first asked whether it is over
    int64_t stays_since_ns; // when there was first no room to leave to, 0 before

    struct fr_staging_view view; // of the application's buffer
    struct fr_staging_view_block block;
    struct fr_rndv_stage stage;
    void *state; // the scheme's own, made with malloc: freed with the send, after cancel

    unsigned char rts[]; // as long as `length`
};

enum fr_rndv_scheme_flag {
    FR_RNDV_NEEDS_PUSH = 1, // the sender copies the bytes out of the application's buffer
    FR_RNDV_FRAGMENTED = 2, // MPI carries them, and somebody has to receive what was sent
    FR_RNDV_REFUSABLE = 4,  // a receiver may ask for another scheme
    FR_RNDV_BY_NETWORK = 8, // slower than links of this host, and by way of host memory
    FR_RNDV_ASKED = 16,     // a receiver may ask something of a sender that is still copying
};

// A scheme is one file and one row.
struct fr_rndv_scheme {
    enum fr_policy_scheme id;
    unsigned flags; // of fr_rndv_scheme_flag
    // The sender. Start prepares what the slot will say: the place has the scheme already, and the
    // handle of the application's memory where policy knows that as exported. Progress does what
    // comes after the RTS (sent), and returns whether the bytes have left the application's buffer.
    enum fr_status (*start)(struct fr_rndv_send *send, const struct fr_policy_message *facts,
                            struct fr_rndv_place *place, uint64_t *ready);
    bool (*progress)(struct fr_rndv_send *send);
    // How long the sender waits for its receiver before its bytes leave the buffer (NULL:
    // FR_RNDV_LEAST_WAIT_NS); and whether then, or as the message stands, the application may have
    // it back once they have (NULL: it may).
    int64_t (*wait_ns)(const struct fr_rndv_send *send);
    bool (*may_leave)(const struct fr_rndv_send *send, enum fr_rndv_state state, bool waited);
    // Whether nothing of it is under way beside its copies. NULL: nothing ever is.
    bool (*is_quiet)(const struct fr_rndv_send *send);
    // Ends what start has begun but the copies. NULL: nothing.
    void (*cancel)(struct fr_rndv_send *send);
    // The receiver could not have the bytes by it. NULL: that says nothing of other messages.
    void (*note_failure)(const struct fr_rndv_send *send);
    // The receiver: begin one, make progress with all that go by this scheme (returns whether all
    // are over), end one.
    enum fr_status (*begin)(struct fr_rndv_recv *recv);
    bool (*pull)(struct fr_rndv_recv **recvs, size_t count);
    void (*end)(struct fr_rndv_recv *recv);
    // Has the thread sleep where nothing needs it for a moment, and returns whether it did. NULL:
    // never.
    bool (*rest)(void);
};
extern const struct fr_rndv_scheme fr_rndv_get, fr_rndv_staged_get, fr_rndv_rail, fr_rndv_pipeline;
enum { FR_RNDV_LEAST_WAIT_NS = 100000 }; // a launch here and there

// The receiving side of get and staged get.
enum fr_status fr_rndv_get_begin(struct fr_rndv_recv *recv);
bool fr_rndv_get_pull(struct fr_rndv_recv **recvs, size_t count);
void fr_rndv_get_end(struct fr_rndv_recv *recv);
const struct fr_rndv_scheme *fr_rndv_scheme_of(unsigned id); // NULL for none

static inline bool fr_rndv_scheme_has(unsigned id, enum fr_rndv_scheme_flag flag)
{
    const struct fr_rndv_scheme *scheme = fr_rndv_scheme_of(id);
    return scheme != NULL && (scheme->flags & flag) != 0;
}

#endif
