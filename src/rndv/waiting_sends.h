// SPDX-License-Identifier: BSD-3-Clause
// Inside of module rndv: sends that wait in their buffers, to be asked for.
#ifndef FR_RNDV_WAITING_SENDS_H
#define FR_RNDV_WAITING_SENDS_H

#include "rndv/send.h"

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

#endif
