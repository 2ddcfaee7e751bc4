// SPDX-License-Identifier: BSD-3-Clause
// Progress of messages, and waits for other ranks, which may be waiting for this process elsewhere
// meanwhile.
#ifndef FR_FABRAIL_RNDV_PROGRESS_H
#define FR_FABRAIL_RNDV_PROGRESS_H

#include "fabrail/core/wait.h"
#include "fabrail/device/range.h"

// Reads control messages, acts on them, and looks after detached sends. Called in calls with device
// buffers and wherever Fabrail waits. `user` is device memory of the call, NULL if there is none.
// Costs some loads when there is nothing to do.
void fr_rndv_progress(const struct fr_device_range *user);

// Makes progress as fr_rndv_progress does, in a call that begins an operation with memory of a
// device: where others have sent something, and else now and then.
void fr_rndv_progress_in_passing(const struct fr_device_range *user);

// Makes progress that others may wait for in this process, on behalf of a call that waits. It moves
// messages of the real MPI, and those by rendezvous, of which a receiver may have refused one.
void fr_rndv_wait_progress(void);

// Progress that modules above add, a function each.
enum fr_rndv_addition {
    // Module rma registers fr_rma_progress with the first window whose ranks send messages. Called
    // in fr_rndv_progress.
    FR_RNDV_WINDOWS,
    // Module intercept registers fr_request_advance_all in MPI_Init. It calls MPI for parts of an
    // operation. Called in fr_rndv_wait_progress.
    FR_RNDV_SCHEDULES,
    FR_RNDV_ADDITIONS
};
void fr_rndv_progress_add(enum fr_rndv_addition which, void (*progress)(void));

// Judges a wait for `whom` in the MPI function `call`, NULL for none in particular. Warns every ten
// seconds that it goes on. Returns false, after an error is logged, when FABRAIL_TIMEOUT has
// passed.
bool fr_rndv_wait_judge(struct fr_wait *wait, const char *call, const char *whom);

// Takes a step of a wait, makes progress and judges the wait. Returns as fr_rndv_wait_judge does.
bool fr_rndv_wait_on(struct fr_wait *wait, const char *call, const char *whom);

// ---- blocked receivers

// Returns whether sends to this process wait in their buffers to be asked for, or a sender without
// room for its bytes has had to wait for it lately. Reads a clock only if one has.
bool fr_rndv_is_awaited(void);

// Notes that a thread of this process goes where it makes no progress while it waits. Its waiting
// sends leave before that. Senders without room do not wait for this process meanwhile.
void fr_rndv_block(void);

// Notes that the thread is back. Does nothing if the same thread has not called fr_rndv_block.
void fr_rndv_unblock(void);

#endif
