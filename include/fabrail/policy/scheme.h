// SPDX-License-Identifier: BSD-3-Clause
// The scheme by which a message with an RTS moves, and whether its receiver reads or the sender
// writes, as pure functions of facts.
#ifndef FR_FABRAIL_POLICY_SCHEME_H
#define FR_FABRAIL_POLICY_SCHEME_H

#include "fabrail/policy.h"

enum fr_policy_scheme {
    FR_SCHEME_NONE, // no RTS: MPI alone carries the message
#define FR_SCHEME(id, row, name, path, received) FR_SCHEME_##id,
#include "fabrail/policy/schemes.def"
    FR_SCHEME_COUNT,
};

// Facts about one message, as its sender knows them.
struct fr_policy_message {
    size_t bytes;
    bool no_rts;               // sender or receiver takes no RTS, or none yet
    bool here;                 // the receiver is on this host, and shares memory with this process
    bool takes_turns;          // receiver and sender take turns on one GPU
    bool in_clique;            // the receiver is on another host, in reach of multi-node NVLink
    bool by_fragments;         // the receiver takes messages in fragments
    bool one_piece;            // the bytes lie together in one allocation
    bool travels;              // the receiver can be told where all blocks are
    size_t wasted_bytes;       // that NVLink would carry between short blocks
    bool must_leave;           // the bytes may change as soon as the call returns
    bool absolute;             // addresses stand in the datatype (MPI_BOTTOM)
    bool host_memory;          // the bytes are in host memory: MPI or rails move them
    bool exported;             // other processes can map the allocation
    bool mapped;               // the receiver has mapped the allocation
    bool workspace_full;       // no device workspace for so many bytes
    bool host_full;            // too much host memory waits for receivers
    bool may_wait;             // the sender answers receivers wherever it waits
    bool by_cpu;               // the CPU reads the bytes out of device memory itself
    bool crowded;              // so many messages wait that short ones shall not join them
    unsigned failed;           // a bit, 1 << scheme, for each scheme that could not be begun
    bool staged_unmapped;      // staged get failed since the receiver has not mapped the workspace
    size_t pack_first_bytes;   // wasted bytes from which on the sender packs
    size_t clique_min_bytes;   // FABRAIL_CLIQUE_MIN
    size_t shared_min_bytes;   // FABRAIL_SHARED_GPU_MIN
    size_t pipeline_min_bytes; // FABRAIL_PIPELINE_MIN, 0: never
    unsigned rails;            // rails to the receiver, over which it has read
    bool rails_reach_device;   // their NICs read the memory of this process's device
    enum fr_rail_use rail_use; // FABRAIL_RAIL
    size_t rail_min_bytes;     // FABRAIL_RAIL_MIN
};

// Facts about a receive into device memory, for which a call waits alone.
struct fr_policy_receive {
    size_t room;
    size_t rts_bytes; // of the shortest RTS
    bool one_piece;   // the bytes lie together in one allocation
    bool takes_turns; // another process takes turns with this one on the GPU
    bool by_cpu;      // the CPU writes the bytes to device memory itself
};

// Returns whether a kernel stands by for the message of a receive. Depends on the facts alone.
bool fr_policy_stands_by(const struct fr_policy_receive *receive);

struct fr_policy_scheme_choice {
    enum fr_policy_scheme scheme;
    const char *reason; // for the report and the log, static text
};

// Returns the scheme of a message. Depends on the facts alone.
struct fr_policy_scheme_choice fr_policy_choose_scheme(const struct fr_policy_message *message);

// Records in `message` that a scheme could not be begun, and with which status, for the next
// choice.
void fr_policy_note_failed_scheme(struct fr_policy_message *message, enum fr_policy_scheme scheme,
                                  enum fr_status status);

// Returns whether a message of this size could go over rails if there were any. Rails have to be
// opened to find out.
static inline bool fr_policy_wants_rails(const struct fr_policy_message *message)
{
    return message->rail_use != FR_RAIL_OFF && !message->here && !message->absolute &&
           message->bytes >= message->rail_min_bytes;
}

// Returns whether a message by rails waits in device memory, where NICs read it, and not in
// page-locked memory.
static inline bool fr_policy_rails_read_device(const struct fr_policy_message *message)
{
    return message->rails_reach_device && !message->host_memory && !message->workspace_full;
}

// Returns whether a message by scheme pipeline waits in the program's buffer until its receiver
// asks for it.
static inline bool fr_policy_waits_to_be_asked(const struct fr_policy_message *message)
{
    return message->host_full && message->may_wait;
}

// Operations that move a message over rails: the receiver reads it, or asks the sender to write it.
enum fr_policy_verb { FR_VERB_READ, FR_VERB_WRITE };

// Facts about the rails of a message, as its receiver knows them.
struct fr_policy_rails {
    enum fr_rail_verb use; // FABRAIL_RAIL_VERB
    bool emulates_reads;   // the provider says: other CPUs answer this process's reads
    bool sender_writes;    // the sender can write, and knows when a write has arrived
    bool sender_emulates;  // its provider says: this process's CPU answers its writes
    bool sender_owes;      // the sender has not answered an earlier request yet
};

struct fr_policy_verb_choice {
    enum fr_policy_verb verb;
    const char *reason; // for the log, static text
};

// Returns the verb by which a message over rails moves. Depends on the facts alone.
struct fr_policy_verb_choice fr_policy_choose_verb(const struct fr_policy_rails *rails);

// Returns the path as which a scheme counts in the report. FR_SCHEME_NONE counts as what is done
// with device memory then, the path host.
enum fr_policy_path fr_policy_scheme_path(enum fr_policy_scheme scheme);
// Returns the name of a scheme for the report and the log, static text.
const char *fr_policy_scheme_name(enum fr_policy_scheme scheme);

// Returns why a receive of a message by `scheme` went as it did, as static text. `on_device` says
// that NICs wrote to device memory; `verb` says whether this process's NICs read or the sender's
// wrote.
const char *fr_policy_scheme_received(enum fr_policy_scheme scheme, enum fr_policy_verb verb,
                                      bool on_device);

// Returns whether a kernel should move `bytes` bytes over NVLink straight between a layout of
// blocks of `block_bytes`, on average, and the other GPU. Otherwise they are packed on the layout's
// side.
bool fr_policy_suits_layout(size_t block_bytes, size_t bytes);

#endif
