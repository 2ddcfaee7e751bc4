// SPDX-License-Identifier: BSD-3-Clause
// Transfers: much data of an access that go by rendezvous, as messages do, by whichever scheme the
// sender finds. The RTS travels in a message about the window, and is matched by that.
//
// A transfer moves in fr_rma_progress, by the thread that makes progress, and waits for nobody.
// That thread calls `over` when it is over, and frees it then.
#ifndef FR_RMA_WINDOW_TRANSFER_H
#define FR_RMA_WINDOW_TRANSFER_H

#include "fabrail/policy/scheme.h"
#include "fabrail/rndv/receive.h"
#include "rma/rma_int.h"
#include "rma/window_message.h"

struct fr_rma_transfer;

// Called once, with the outcome and the scheme by which the bytes have come. `owner` belongs to who
// has made the transfer.
typedef void fr_rma_transfer_over(void *owner, enum fr_status status, enum fr_policy_scheme scheme);

// Begins to send the data of a measured view of one block to a rank. Writes the RTS, and how the
// data go. With `over`, the transfer is not over before fr_rma_transfer_answered. Returns NULL
// where the data cannot go by rendezvous, or there is no memory.
struct fr_rma_transfer *fr_rma_transfer_send(struct fr_rma_window *window, int rank,
                                             const struct fr_staging_view *view, const char *call,
                                             fr_rma_transfer_over *over, void *owner,
                                             unsigned char rts[FR_RNDV_RTS_BYTES],
                                             struct fr_policy_scheme_choice *choice);

// Has a transfer that sends move once its RTS is on its way. Frees one whose RTS is not, without a
// word.
void fr_rma_transfer_sent(struct fr_rma_transfer *transfer, bool sent);

// Gives a transfer that sends the message that its data are in, which it frees when it is over.
void fr_rma_transfer_keep(struct fr_rma_transfer *transfer, struct fr_rma_message *message);

// Notes that the receiver of a transfer has said how it has ended there. Called by the thread that
// makes progress.
void fr_rma_transfer_answered(struct fr_rma_transfer *transfer, enum fr_status status);

// Begins to receive into a measured view of one block what an RTS announces. Returns NULL where it
// is none, its message has another size, or there is no memory: *status says which.
struct fr_rma_transfer *fr_rma_transfer_receive(struct fr_rma_window *window,
                                                const struct fr_staging_view *view,
                                                const unsigned char rts[FR_RNDV_RTS_BYTES],
                                                fr_rma_transfer_over *over, void *owner,
                                                enum fr_status *status);

// Moves all transfers on. Called by the thread that makes progress.
void fr_rma_transfers_progress(void);

// Ends all transfers of a window, which fail. They use no memory of the application's any more.
// Called while no other thread makes progress (fr_rma_progress_hold).
void fr_rma_transfers_abandon(struct fr_rma_window *window);

#endif
