// SPDX-License-Identifier: BSD-3-Clause
// Ranks of a window that an origin reaches by messages alone: on another host, so that words are
// not shared, or with memory that is not mapped here.
#ifndef FR_RMA_REMOTE_ACCESS_H
#define FR_RMA_REMOTE_ACCESS_H

#include "rma/rma_int.h"
#include "rma/window_message.h"

// ---- windows whose ranks exchange messages

// Enters a window among those for which messages come, and takes it away.
void fr_rma_remote_enter(struct fr_rma_window *window);
void fr_rma_remote_leave(struct fr_rma_window *window);

// Returns the window after one, or the first of all; NULL for none.
struct fr_rma_window *fr_rma_remote_after(const struct fr_rma_window *window);

// ---- origin

// Begin what their names say at a target, by messages. Views are measured and have one block.
FR_MUST_CHECK enum fr_status fr_rma_remote_move(struct fr_rma_window *window, int rank,
                                                const struct fr_rma_target *target,
                                                const struct fr_staging_view *own, bool puts);
FR_MUST_CHECK enum fr_status fr_rma_remote_update(struct fr_rma_window *window, int rank,
                                                  const struct fr_rma_target *target,
                                                  const struct fr_rma_update *update);

// Writes what a request says of an update.
void fr_rma_remote_describe(const struct fr_rma_update *update, struct fr_rma_head *head);

// Begin what their names say as fr_rma_remote_move and fr_rma_remote_update do. Where data are more
// than a message has, they go by rendezvous if they can. Those that do are counted for the report,
// under what `access` describes.
FR_MUST_CHECK enum fr_status fr_rma_large_move(struct fr_rma_window *window,
                                               struct fr_rma_access *access,
                                               const struct fr_rma_target *target,
                                               const struct fr_staging_view *own, bool puts);
FR_MUST_CHECK enum fr_status fr_rma_large_update(struct fr_rma_window *window,
                                                 struct fr_rma_access *access,
                                                 const struct fr_rma_target *target,
                                                 const struct fr_rma_update *update);

// A part of such an access under way, beside its request.
struct fr_rma_large;

// Takes the answer to the request of a large access, and completes the request when all of it is
// over.
void fr_rma_large_take_answer(struct fr_rma_large *large, const struct fr_rma_message *answer);

// Moves in messages what a target has declined to send by rendezvous, and frees it.
FR_MUST_CHECK enum fr_status fr_rma_large_redo(struct fr_rma_large *large);

// Has the answer to a request end it, and write to no memory of the application's.
void fr_rma_large_disarm(struct fr_rma_large *large);
void fr_rma_large_free(struct fr_rma_large *large);

// Tells a rank of an epoch. Waits for nobody; fr_rma_remote_flush waits for the answer.
FR_MUST_CHECK enum fr_status fr_rma_remote_notify(struct fr_rma_window *window, int rank,
                                                  enum fr_rma_kind kind, unsigned extra);

// Waits until a rank has given its lock to this one.
FR_MUST_CHECK enum fr_status fr_rma_remote_lock(struct fr_rma_window *window, int rank,
                                                bool exclusive);

// Waits until all requests to a rank have been answered.
FR_MUST_CHECK enum fr_status fr_rma_remote_flush_rank(struct fr_rma_window *window, int rank);

// Waits until all requests have been answered. Returns the first failure since the last time.
FR_MUST_CHECK enum fr_status fr_rma_remote_flush(struct fr_rma_window *window);

// Forgets requests that have no answer.
void fr_rma_remote_forget(struct fr_rma_window *window);

// Takes the answer to a request of this process.
void fr_rma_remote_take_answer(struct fr_rma_window *window, const struct fr_rma_message *answer);

// ---- target

// Acts on a message, and owns it from then on. Returns false if it has to be tried again later, and
// is still the caller's.
bool fr_rma_act(struct fr_rma_message *message);

// Begins to receive the data of an update whose turn to be acted on comes later.
void fr_rma_act_early(struct fr_rma_message *message);

// Functions that the files of the target share. Bytes of a message are checked.

// Answers a message, by `with` if it is given and all went well, else by the message itself. So an
// answer without data needs no memory. Neither is the caller's any more.
void fr_rma_answer(struct fr_rma_window *window, struct fr_rma_message *message,
                   struct fr_rma_message *with, enum fr_status status);

// Serve puts and gets whose data go by rendezvous. The first returns false if it has to be tried
// again later.
bool fr_rma_serve_large_put(struct fr_rma_window *window, struct fr_rma_message *message);
void fr_rma_serve_large_get(struct fr_rma_window *window, struct fr_rma_message *message);

// Receives the origin's data of an update by rendezvous, on the host. Returns whether that is over,
// with the outcome in the message. Called again until then, by the thread that makes progress.
bool fr_rma_land(struct fr_rma_window *window, struct fr_rma_message *message);

// Gives back the memory of such data, if there is any.
void fr_rma_land_end(struct fr_rma_message *message);

// Count the result of a large update until it is freed. Such an update may wait for memory if
// another result has some.
bool fr_rma_result_may_wait(const struct fr_rma_message *message);
void fr_rma_result_begin(struct fr_rma_message *result);
void fr_rma_result_end(const struct fr_rma_message *message);

// Answers such an update by rendezvous, with data that stand in a message's own workspace, and owns
// both messages. Returns false where the data cannot go that way, and both are still the caller's.
bool fr_rma_send_result(struct fr_rma_window *window, struct fr_rma_message *message,
                        struct fr_rma_message *result);

// Gives locks to other ranks whose turn has come.
void fr_rma_grant_locks(void);

void fr_rma_waiters_free(struct fr_rma_window *window);

// ---- elements and operations of updates, as all processes know them

// Returns the number of a predefined datatype or operation. Others, which only copying updates
// have, get one of their own.
uint32_t fr_rma_element_index(fr_word type);
uint32_t fr_rma_operation_index(fr_word operation);

// Finds the handle of a number. Returns false where there is none.
bool fr_rma_element_from(uint32_t index, fr_word *type);
bool fr_rma_operation_from(uint32_t index, fr_word *operation);

// ---- barriers

// Waits until all ranks of a window have come here.
FR_MUST_CHECK enum fr_status fr_rma_barrier_all(struct fr_rma_window *window);

// Notes that another rank has come.
void fr_rma_barrier_note(struct fr_rma_window *window, const struct fr_rma_head *head);
void fr_rma_barriers_free(struct fr_rma_window *window);

#endif
