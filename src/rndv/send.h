// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: what the schemes share on the sender's side.
#ifndef FR_RNDV_SEND_H
#define FR_RNDV_SEND_H

#include "rndv/rndv_int.h"

// Acts on a control message about a message of this process's.
void fr_rndv_send_handle(int from, enum fr_job_control_kind kind,
                         const struct fr_rndv_entry *entry);

// Keeps others from a send, which is in the ledger: for those who look at it or free it.
void fr_rndv_send_hold(unsigned index);
void fr_rndv_send_release(unsigned index);

// Has the bytes of a send that is held go by fragments, since its receiver has refused it.
void fr_rndv_send_follow_refusal(struct fr_rndv_send *send);

// Looks for sends that were refused. A load or two when there are none. Those that are in the
// ledger are added, and removed while they are held.
void fr_rndv_registry_look_after(void);
void fr_rndv_registry_add(struct fr_rndv_send *send);
void fr_rndv_registry_remove(unsigned index);

// Whether other processes of this host take part.
bool fr_rndv_has_neighbours(void);

// What is known of a message from the start; then whether the receiver has mapped its memory, whose
// handle is written where that can be exported, and what rails there are. Both ask for it, too.
struct fr_policy_message fr_rndv_message_facts(const struct fr_rndv_message *message);
void fr_rndv_message_look(const struct fr_rndv_message *message, struct fr_policy_message *facts,
                          struct fr_ipc_handle *handle);

// The bytes of its RTS. 0, with the reason, where MPI does not copy all bytes, so that it may not
// arrive as it was sent, or plain messages of all such lengths may be under way.
size_t fr_rndv_message_length(const struct fr_rndv_message *message, const char **reason);

// What is this process's own is in its reach without any mapping.
bool fr_rndv_is_mapped_by(int to, const struct fr_ipc_handle *handle, bool at_once);

// Whether nothing of a send that is held is under way any more; and its end.
bool fr_rndv_send_is_done(struct fr_rndv_send *send);
void fr_rndv_send_destroy(struct fr_rndv_send *send);

// Whether the receiver has had its time: since it was asked first, or has pulled something.
bool fr_rndv_send_has_waited(struct fr_rndv_send *send, enum fr_rndv_state state);

// Whether a send is to stay in the application's buffer, since there is no room for its bytes, on
// the device as the caller says or on the host, and its receiver may still come to it.
bool fr_rndv_send_stays(struct fr_rndv_send *send, bool on_device);

// Takes over a send that its operation leaves. Looks after all of those: a load when there are
// none.
void fr_rndv_detached_add(struct fr_rndv_send *send);
void fr_rndv_detached_look_after(void);

// Forgets what nobody has received, once all processes have received what they ever will. Returns
// whether something is still on its way to those who discard it.
bool fr_rndv_detached_end_all(void);

// Opens the send's staging view on a path, with memory that is a bound's: FR_ERR_LIMIT beyond it.
FR_MUST_CHECK enum fr_status fr_rndv_stage_open(struct fr_rndv_send *send,
                                                enum fr_policy_path path);
void fr_rndv_stage_close(struct fr_rndv_send *send);

// Moves what stands in device workspace to host memory, once it is all there. The application's
// buffer and datatype may be gone by then, so only the bytes are looked at. On failure they stay
// where they are.
FR_MUST_CHECK enum fr_status fr_rndv_stage_move(struct fr_rndv_send *send);

// Has the bytes stand in host memory of the workspace, from the application's buffer or where they
// have gone since. On failure they stay where they are.
FR_MUST_CHECK enum fr_status fr_rndv_stage_to_host(struct fr_rndv_send *send);
bool fr_rndv_stage_is_full(enum fr_policy_path path, size_t bytes);

// Begins to copy the application's bytes to the staging memory: a step at first, then each `growth`
// times as large as the one before. Poll goes on and writes how many bytes are there; it returns
// whether that is all of them, or something has failed, which stands in `failure` then.
void fr_rndv_stage_begin(struct fr_rndv_send *send, size_t step, size_t growth);
bool fr_rndv_stage_poll(struct fr_rndv_send *send, size_t *ready);
// The same in steps that suit device memory, told of as they are there; a message in one step to
// another host is there when this returns.
FR_MUST_CHECK enum fr_status fr_rndv_stage_begin_on_device(struct fr_rndv_send *send,
                                                           uint64_t *ready);
// The same, and tells the receiver of what is there.
bool fr_rndv_stage_push(struct fr_rndv_send *send);

// Copies the bytes of the application's buffer to device memory of Fabrail's, and advertises that.
// The slot is held. On failure nothing has changed.
FR_MUST_CHECK enum fr_status fr_rndv_staged_take_over(struct fr_rndv_send *send);

// Moves the bytes to host memory, from wherever they are, and has them go in fragments from now on.
// The slot is held or refused. False when there is no memory for them, or no way to send them.
bool fr_rndv_pipeline_take_over(struct fr_rndv_send *send);

// Receives and forgets a fragment that nobody wants.
void fr_rndv_pipeline_discard(int from, unsigned index);

#endif
