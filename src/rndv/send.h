// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: the sender's side, as the schemes and the files about sends share it.
#ifndef FR_RNDV_SEND_H
#define FR_RNDV_SEND_H

#include "rndv/rndv_int.h"

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

// ---- waiting sends (waiting_sends.c)

// Counts a send as waiting, and gives it its scheme.
void fr_rndv_waiting_add(struct fr_rndv_send *send);

// Ends that, when its bytes have left or all fragments have been taken. Does nothing to others.
void fr_rndv_waiting_remove(struct fr_rndv_send *send);

// Returns whether a further send may be given now.
bool fr_rndv_waiting_has_turn(void);

// Begins to give a held send that its receiver has asked for. Returns false if others come first,
// or there is no memory at all.
bool fr_rndv_waiting_give(struct fr_rndv_send *send);

// Notes that the receiver of such a send has taken some of it.
void fr_rndv_waiting_moved(const struct fr_rndv_send *send);

// Goes on with those that are being given. Costs a load when no send waits.
void fr_rndv_waiting_look_after(void);

// Makes all waiting sends leave, beyond the bounds on memory if they must.
void fr_rndv_waiting_leave_all(void);

// Makes a held waiting send leave, however much memory that takes. If there is none, the message is
// lost, and both sides hear of it.
void fr_rndv_send_leave_now(struct fr_rndv_send *send);

// Begins scheme pipeline for a held waiting send. With `taken` the receiver takes fragments
// already, so there is memory for a few of them alone, where the datatype allows that. On failure
// the send waits on.
FR_MUST_CHECK enum fr_status fr_rndv_pipeline_begin(struct fr_rndv_send *send, bool taken);

// Returns how much memory that takes with `taken`.
size_t fr_rndv_pipeline_room(const struct fr_rndv_send *send);

// Ends a held waiting send whose bytes there is no memory for: its fragments go empty. Returns
// false if there is no memory even for that.
bool fr_rndv_pipeline_lose(struct fr_rndv_send *send);

// ---- all sends

// Moves the bytes of a held send by scheme pipeline from now on, since its receiver has refused its
// scheme.
void fr_rndv_send_follow_refusal(struct fr_rndv_send *send);

// Follows refusals and requests to write, of sends in the registry. Costs a load or two when there
// are none.
void fr_rndv_registry_look_after(void);

// Add a send to the registry once it is in the ledger, and remove it while it is held.
void fr_rndv_registry_add(struct fr_rndv_send *send);
void fr_rndv_registry_remove(unsigned index);

// Returns the facts of a message that are known from the start.
struct fr_policy_message fr_rndv_message_facts(const struct fr_rndv_message *message);

// Adds the facts that take a look: whether the receiver has mapped the buffer, and which rails lead
// to it. Writes the handle of the buffer if it can be exported. Asks the receiver to map the buffer
// and to meet over rails, if they have not yet.
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

// Frees a held send and its slot.
void fr_rndv_send_destroy(struct fr_rndv_send *send);

// Returns whether the receiver has had its time. That counts from the first question whether the
// send is over, and stands still while the receiver works in a way that brings the message nearer.
bool fr_rndv_send_has_waited(struct fr_rndv_send *send, enum fr_rndv_state state);

// Notes that a process of another host has begun to receive a message of this process, or has it.
void fr_rndv_send_note_taken(int by, uint64_t number);

// Returns whether the bytes of a send shall stay in the program's buffer for now. They do if
// neither host nor device has room for them, and the receiver may still come to them. `on_device`
// says that the device has room.
bool fr_rndv_send_stays(struct fr_rndv_send *send, bool on_device);

// Takes over a detached send, which its operation leaves.
void fr_rndv_detached_add(struct fr_rndv_send *send);

// Looks after all detached sends. Costs a load when there are none.
void fr_rndv_detached_look_after(void);

// Forgets detached sends that nobody has received, once all processes have received all they ever
// will. Returns whether fragments are still on their way to receivers that discard them.
bool fr_rndv_detached_end_all(void);

// Opens the send's staging view on a path. Its memory counts against a bound; returns FR_ERR_LIMIT
// beyond it.
FR_MUST_CHECK enum fr_status fr_rndv_stage_open(struct fr_rndv_send *send,
                                                enum fr_policy_path path);
void fr_rndv_stage_close(struct fr_rndv_send *send);

// Opens it on path host with memory for `bytes` of the message, a multiple of the copies' steps.
// The memory is used again once fr_rndv_stage_give_room has said that its bytes are no longer
// needed.
FR_MUST_CHECK enum fr_status fr_rndv_stage_open_ring(struct fr_rndv_send *send, size_t bytes);
void fr_rndv_stage_give_room(struct fr_rndv_send *send, size_t taken_bytes);

// Gives up copies through a ring that have not begun, since the program gets its buffer back before
// the receiver has taken all. What is left of the message goes empty.
void fr_rndv_stage_cut_ring(struct fr_rndv_send *send);

// Returns where byte `first` of the message stands, packed.
uintptr_t fr_rndv_stage_address(const struct fr_rndv_send *send, size_t first);

// Moves bytes from device workspace to host workspace, once all are there. Copies packed bytes,
// since the program's buffer and datatype may be gone by then. On failure the bytes stay where they
// are.
FR_MUST_CHECK enum fr_status fr_rndv_stage_move(struct fr_rndv_send *send);

// Moves the bytes to host workspace, from the program's buffer or from where they have gone since.
// On failure they stay where they are.
FR_MUST_CHECK enum fr_status fr_rndv_stage_to_host(struct fr_rndv_send *send);

// Returns whether `bytes` more would exceed the bound on workspace for sends on this path.
bool fr_rndv_stage_is_full(enum fr_policy_path path, size_t bytes);

// Returns whether a send of `bytes` bytes that stays in the program's buffer can be expected to get
// workspace on the device later.
bool fr_rndv_stage_is_likely(int device, size_t bytes);

// Counts the bytes of a send as device workspace, which it may need later, and no longer.
void fr_rndv_stage_set_aside(struct fr_rndv_send *send);
void fr_rndv_stage_end_aside(struct fr_rndv_send *send);

// Begins to copy the program's bytes to the staging memory. The first step has `step` bytes, each
// later one `growth` times those of the one before.
void fr_rndv_stage_begin(struct fr_rndv_send *send, size_t step, size_t growth);

// Goes on with the copies, and writes how many bytes are there. Returns true when that is all of
// them, or when something has failed; `failure` of the send then says what.
bool fr_rndv_stage_poll(struct fr_rndv_send *send, size_t *ready);

// Begins the copies in steps that suit device memory, and writes how many bytes are there. A
// message to another host that goes in one step is there when this returns.
FR_MUST_CHECK enum fr_status fr_rndv_stage_begin_on_device(struct fr_rndv_send *send,
                                                           uint64_t *ready);

// Goes on with the copies, and tells the receiver how many bytes are there. Returns what
// fr_rndv_stage_poll does.
bool fr_rndv_stage_push(struct fr_rndv_send *send);

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
