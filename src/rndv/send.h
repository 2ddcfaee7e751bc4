// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the sender's side, as the schemes and the files about sends share it.
#ifndef FR_RNDV_SEND_H
#define FR_RNDV_SEND_H

#include "fabrail/core/list.h"
#include "fabrail/rndv/outgoing.h"
#include "rndv/protocol.h"
#include "rndv/schemes.h"
#include "rndv/send_stage.h"

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

    struct fr_staging_table *table; // the receiver's kernel may read it; or NULL
    struct fr_rndv_gate gate; // beside the bytes in workspace; without words where there is none
    void *state; // the scheme's own, made with malloc: freed with the send, after cancel
    struct fr_rndv_stage stage;
    struct fr_staging_view view; // of the program's buffer
    struct fr_staging_view_block block;

    unsigned char rts[]; // as long as `length`
};

// Acts on a control message about a message that this process has sent.
void fr_rndv_send_handle(int from, enum fr_job_control_kind kind,
                         const struct fr_rndv_entry *entry);

// Hold a send that is in the ledger, and release it. Other threads keep off a held send. Callers
// that look at a send or free it hold it.
void fr_rndv_send_hold(unsigned index);
void fr_rndv_send_release(unsigned index);

// Holds a send unless another thread does. Returns whether it is held now.
bool fr_rndv_send_try_hold(unsigned index);

// Returns the send in a slot, which stays there while it is held; NULL for none.
struct fr_rndv_send *fr_rndv_registry_at(unsigned index);

// Moves the bytes of a held send by scheme pipeline from now on, since its receiver has refused its
// scheme.
void fr_rndv_send_follow_refusal(struct fr_rndv_send *send);

// Follows refusals and requests to write, of sends in the registry. Costs a load or two when there
// are none.
void fr_rndv_registry_look_after(void);

// Add a send to the registry once it is in the ledger, and remove it while it is held.
void fr_rndv_registry_add(struct fr_rndv_send *send);
void fr_rndv_registry_remove(unsigned index);

// Returns the location of a message of which nothing need be asked, since it is like one before it;
// else NULL. The location lasts until the thread asks again; only its address is still to be
// written. Writes the facts that decide, and the choice of the scheme.
struct fr_rndv_location *fr_rndv_message_known(const struct fr_rndv_message *message,
                                               struct fr_policy_message *facts,
                                               struct fr_policy_scheme_choice *choice);

// Writes all facts of a message, and the handle of its buffer if it can be exported. Asks the
// receiver to map the buffer and to connect over rails, if they have not yet.
void fr_rndv_message_look(const struct fr_rndv_message *message, struct fr_policy_message *facts,
                          struct fr_ipc_handle *handle);

// Returns the length of the RTS of a message; 0, with the reason, if there can be none. MPI may not
// copy all bytes of the datatype, so that an RTS would not arrive as it was sent. Or plain messages
// of all such lengths may be under way.
size_t fr_rndv_message_length(const struct fr_rndv_message *message, const char **reason);

// Returns whether a process has mapped memory, as fr_ipc_is_mapped_by does. This process reaches
// its own memory without a mapping.
bool fr_rndv_is_mapped_by(int to, const struct fr_ipc_handle *handle, bool at_once);

// Returns whether nothing of a held send is under way any more.
bool fr_rndv_send_is_done(struct fr_rndv_send *send);

// Does for a held send what fr_rndv_send_push does.
FR_MUST_CHECK enum fr_status fr_rndv_send_push_held(struct fr_rndv_send *send);

// Makes the bytes of a held send leave the program's buffer, with `must` beyond the bounds on
// memory. Returns whether they have.
bool fr_rndv_send_leave_held(struct fr_rndv_send *send, bool must);

// Frees a held send and its slot.
void fr_rndv_send_destroy(struct fr_rndv_send *send);

// Returns whether the receiver has had its time. That counts from the first question whether the
// send is over, and stands still while the receiver works in a way that brings the message nearer.
bool fr_rndv_send_has_waited(struct fr_rndv_send *send, enum fr_rndv_state state);

// Notes that a process of another host has begun to receive a message of this process, or has it.
void fr_rndv_send_note_taken(int by, uint64_t number);

// Notes that a process receives a message of this process, or has it: it has not been idle.
void fr_rndv_send_note_pulled(int by);

// Takes over a detached send, which its operation leaves.
void fr_rndv_detached_add(struct fr_rndv_send *send);

// Looks after all detached sends. Costs a load when there are none.
void fr_rndv_detached_look_after(void);

// Forgets detached sends that nobody has received, once all processes have received all they ever
// will. Returns whether fragments are still on their way to receivers that discard them.
bool fr_rndv_detached_end_all(void);

// Copies the bytes of the program's buffer to device workspace, and advertises them there by scheme
// staged get. The slot is held. On failure nothing has changed.
FR_MUST_CHECK enum fr_status fr_rndv_staged_take_over(struct fr_rndv_send *send);

// Moves the bytes to host memory, from wherever they are, and has them go by scheme pipeline from
// now on. The slot is held or refused. Returns false when there is no memory for them, or no way to
// send them.
bool fr_rndv_pipeline_take_over(struct fr_rndv_send *send);

// Receives and forgets a fragment that nobody wants.
void fr_rndv_pipeline_discard(int from, unsigned index);

#endif
