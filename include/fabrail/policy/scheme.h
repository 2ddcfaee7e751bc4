// SPDX-License-Identifier: BSD-3-Clause
// By which scheme of the rendezvous protocol a message goes, as a pure function of facts.
#ifndef FR_FABRAIL_POLICY_SCHEME_H
#define FR_FABRAIL_POLICY_SCHEME_H

#include "fabrail/policy.h"

// In the order in which they are preferred.
enum fr_policy_scheme {
    FR_SCHEME_NONE,       // by MPI alone
    FR_SCHEME_GET,        // the receiver pulls out of the sender's buffer
    FR_SCHEME_STAGED_GET, // out of the sender's device workspace
    FR_SCHEME_RAIL,       // over all rails out of the sender's workspace, read or written
    FR_SCHEME_PIPELINE,   // fragments through page-locked memory over MPI
    FR_SCHEME_COUNT,
};

struct fr_policy_message {
    size_t bytes;
    bool here;                 // the receiver is on this host, and shares memory with it
    bool takes_turns;          // with this process on one GPU
    bool in_clique;            // it is on another host, in reach of multi-node NVLink
    bool by_fragments;         // it knows messages in fragments
    bool one_piece;            // the bytes lie together in one allocation
    bool must_leave;           // they may change as soon as the call returns
    bool absolute;             // their addresses stand in the datatype (MPI_BOTTOM)
    bool host_memory;          // MPI moves them as they are, unless rails do
    bool exported;             // the allocation can be mapped by others
    bool mapped;               // and the receiver has
    bool workspace_full;       // no device workspace for so many bytes
    bool host_full;            // too much page-locked memory waits for receivers
    unsigned failed;           // a bit for each scheme that could not be begun
    bool staged_unmapped;      // of staged get: since the receiver has not mapped the workspace
    size_t clique_min_bytes;   // FABRAIL_CLIQUE_MIN
    size_t shared_min_bytes;   // FABRAIL_SHARED_GPU_MIN
    size_t pipeline_min_bytes; // FABRAIL_PIPELINE_MIN, 0: never
    unsigned rails;            // in common with the receiver, which has read over them
    bool rails_reach_device;   // whose NICs read the memory of this process's device
    enum fr_rail_use rail_use; // FABRAIL_RAIL
    size_t rail_min_bytes;     // FABRAIL_RAIL_MIN
};

struct fr_policy_scheme_choice {
    enum fr_policy_scheme scheme;
    const char *reason; // for the report and the log, static text
};

struct fr_policy_scheme_choice fr_policy_choose_scheme(const struct fr_policy_message *message);

// Makes a fact of it that a scheme could not be begun, for the next choice.
void fr_policy_note_failed_scheme(struct fr_policy_message *message, enum fr_policy_scheme scheme,
                                  enum fr_status status);

// Whether a message of this size could go over rails, had it any: whoever would like to know first
// has to open them.
static inline bool fr_policy_wants_rails(const struct fr_policy_message *message)
{
    return message->rail_use != FR_RAIL_OFF && !message->here && !message->absolute &&
           message->bytes >= message->rail_min_bytes;
}

// Whether a message by rails waits in device memory, where their NICs read it, and not in
// page-locked memory.
static inline bool fr_policy_rails_read_device(const struct fr_policy_message *message)
{
    return message->rails_reach_device && !message->host_memory && !message->workspace_full;
}

// Whether the receiver of a message by rails reads it, or asks the sender to write it.
enum fr_policy_verb { FR_VERB_READ, FR_VERB_WRITE };

struct fr_policy_rails {
    enum fr_rail_verb use; // FABRAIL_RAIL_VERB
    bool emulates_reads;   // the provider says of this process's NICs that others' CPUs answer
    bool sender_writes;    // the sender can, and knows when a write has arrived
    bool sender_emulates;  // but its provider says that this process's CPU has to answer
    bool sender_owes;      // it has not answered an earlier request yet
};

struct fr_policy_verb_choice {
    enum fr_policy_verb verb;
    const char *reason; // for the log, static text
};

struct fr_policy_verb_choice fr_policy_choose_verb(const struct fr_policy_rails *rails);

// As which path a scheme counts; none does so as what is done with device memory then.
enum fr_policy_path fr_policy_scheme_path(enum fr_policy_scheme scheme);
const char *fr_policy_scheme_name(enum fr_policy_scheme scheme);

// Why a receive of such a message went as it did; `on_device` says that NICs wrote to device
// memory, the verb whose.
const char *fr_policy_scheme_received(enum fr_policy_scheme scheme, enum fr_policy_verb verb,
                                      bool on_device);

#endif
