// SPDX-License-Identifier: BSD-3-Clause
// Messages in module intercept: which go by rendezvous, how MPI is called for them, and how they
// are counted.
#ifndef FR_INTERCEPT_MESSAGE_H
#define FR_INTERCEPT_MESSAGE_H

#include "fabrail/report.h"
#include "fabrail/request.h"

// Messages by rendezvous. Enabled from the end of MPI_Init to MPI_Finalize where other processes
// may send this one an RTS.
struct fr_job_facts;
extern FR_OWN bool fr_intercept_rndv_is_enabled;
void fr_intercept_messages_describe(struct fr_job_facts *own); // writes the facts of this process
bool fr_intercept_messages_span_hosts(void);                   // asked before cliques are known
void fr_intercept_messages_start(void);                        // on all processes of the job
void fr_intercept_messages_sync(void); // waits in MPI_Finalize for all processes
// Ends control messages after all have met, reports the rails, disables rendezvous and closes
// module rndv. Attributes' functions may use MPI later, in the real MPI_Finalize.
void fr_intercept_messages_end(void);

// Begins what one thread at a time may do: take a message by matching it, or begin a receive until
// others can see it. The thread must wait for nobody before fr_intercept_match_end.
void fr_intercept_match_begin(void);
void fr_intercept_match_end(void);

// Returns whether the user would have host memory go over rails (FABRAIL_RAIL_HOST).
bool fr_intercept_wants_host_rails(void);

// Says whether there are hosts to send host memory to. Set as long as fr_intercept_rndv_is_enabled.
extern FR_OWN bool fr_intercept_rails_take_host;

// Returns whether a message of host memory of so many elements may be long enough for rails.
bool fr_intercept_may_go_over_rails(int64_t count, fr_word type);

// Returns whether the view of an operation is host memory that may be sent over rails.
bool fr_intercept_sends_host(const struct fr_request_op *op, const struct fr_staging_view *view);

// Returns why a buffer of an operation is staged, for the report. That is what keeps Fabrail from
// moving it otherwise, or `reason` where there is no other way. Static text.
const char *fr_intercept_staged_because(const struct fr_request_op *op,
                                        const struct fr_staging_view *view, const char *reason);

// Returns what keeps a message from rendezvous if nobody has chosen a scheme for it. Static text.
const char *fr_intercept_message_obstacle(const struct fr_request_op *op,
                                          const struct fr_staging_view *view);

// Describes a call's buffer for the report, but for path, scheme and bytes. Called while the
// arguments are the application's.
struct fr_report_buffer fr_intercept_report_of(const struct fr_request_op *op,
                                               const struct fr_staging_view *view);

// Counts a call's buffer in the report. Called while the arguments are the application's.
void fr_intercept_count_view(const struct fr_request_op *op, const struct fr_staging_view *view,
                             struct fr_policy_choice choice, const char *scheme);

// Has a receive buffer counted when the receive is complete, since only then it is known how much
// has come and by which path. The buffer may be copied in as well; that is not counted as sending.
void fr_intercept_count_later(struct fr_request_op *op, const struct fr_staging_view *view,
                              struct fr_policy_choice choice, const char *scheme);

// Returns whether the function receives by matching, so that an RTS may come.
bool fr_intercept_receives(enum fr_fn fn);

// Returns whether so many elements are surely host memory. May ask the driver.
bool fr_intercept_is_host_memory(fr_word buffer, int64_t count, fr_word type);

// Returns whether the MPI library takes a message that ends within an element of the receiving
// datatype. MPICH calls that an error where it has to unpack the element, or stops. So what is
// received into memory of Fabrail's is received as bytes there.
static inline bool fr_intercept_takes_parts(void)
{
    return fr_abi_is_open_mpi();
}

// Finds where a message to or from a rank of a communicator goes. Returns false for processes
// outside of MPI_COMM_WORLD, and for communicators that have no name.
bool fr_intercept_address_of(fr_word comm, int rank, int tag, struct fr_rndv_address *address);

// Begins to send the message of an operation by rendezvous; `view` is its buffer. Returns true if
// both ends can. MPI is then to be given the RTS, by fr_intercept_send_rewrite and
// fr_intercept_call_real. Else returns false, and the message is left to MPI. Writes the scheme and
// the reason to *chosen, which it leaves alone where there is nothing to choose.
bool fr_intercept_send_start(struct fr_request_op *op, struct fr_staging_view *view,
                             struct fr_policy_scheme_choice *chosen);

// Puts the RTS in place of the buffer in the operation's arguments.
void fr_intercept_send_rewrite(struct fr_request_op *op);

// Makes the real call of an operation, and what follows an RTS if it sends one. Returns MPI's code.
int fr_intercept_call_real(struct fr_request_op *op);

// Notes a message that goes to MPI as it is, without an RTS, though it may be as long as one.
void fr_intercept_mark_plain(const struct fr_request_op *op);

// Returns whether a persistent send of this view could ever go by rendezvous.
bool fr_intercept_may_send_rts(const struct fr_request_op *op, const struct fr_staging_view *view);

// Turns MPI_Sendrecv_replace of a device buffer into an exchange with a buffer for each direction,
// where it may go by rendezvous. MPI then sends the RTS, or a copy, and receives apart from it.
FR_MUST_CHECK enum fr_status fr_intercept_split_replace(struct fr_request_op *op);

#endif
