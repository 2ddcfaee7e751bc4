// SPDX-License-Identifier: BSD-3-Clause
// Steps of a completion call that takes more than a fast handler.
#ifndef FR_REQUEST_SET_INT_H
#define FR_REQUEST_SET_INT_H

#include "fabrail/core/wait.h"
#include "fabrail/request/set.h"
#include "request/request_int.h"

// Points the set's arrays at its own storage, or at one allocation for a long list of requests.
// Returns false when there is no memory for that.
bool fr_request_set_make_arrays(struct fr_request_set *set);

// Returns whether Fabrail has anything under a list of requests that there is no memory for. Looks
// at as many at a time as the set has room for.
bool fr_request_set_is_any_ours(struct fr_request_set *set);

// Claims all that a late set has not ended, by the values that its requests had. The set is late no
// more.
void fr_request_set_claim_late(struct fr_request_set *set);

// Claims what belongs to one request of a late set, which MPI has completed.
void fr_request_set_look_up(struct fr_request_set *set, size_t request);

// Takes the call from what the real MPI has returned to what the application gets. Copies back and
// receives, and forgets the operations that are complete. Returns what the call returns.
int fr_request_set_finish(struct fr_request_set *set, int rc);

// Makes errors of completed operations, which the real MPI knows nothing of, errors of the call.
// Returns what the call then returns.
int fr_request_set_report(struct fr_request_set *set, int rc);

// Notes an error that the real MPI has told no error handler of, on a communicator, window or file.
// The call ends with it. The handler is called once the call has nothing in hand.
void fr_request_set_raise(struct fr_request_set *set, char kind, fr_word object, int code);

// Calls the real function for what is claimed. Where senders have had to wait for this process, a
// call that waits does so as a row of tests.
int fr_request_set_call(struct fr_request_set *set);

// Gives back what the set has claimed and not completed.
void fr_request_set_unclaim(struct fr_request_set *set);

// Claims what belongs to the requests of the set. Returns false when there is nothing.
bool fr_request_set_claim(struct fr_request_set *set);

// Lists in `deferred` the operations that are not complete though MPI may say so. Returns false
// when there are none.
bool fr_request_set_find_deferred(struct fr_request_set *set);

// Begins a wait for some requests. For some tens of microseconds, in which most waits end, it does
// not look at others. A test makes progress of the MPI library, so between two looks there are
// fewer tests than other polls. A test of many requests takes longer, and mostly only some of them
// have come: these are received while the others are on their way.
static inline struct fr_wait fr_request_begin_wait(size_t requests)
{
    enum { SPINS = 240 };
    return (struct fr_wait){.spins = SPINS / (unsigned)(1 + requests / FR_REQUEST_FEW),
                            .steps_a_yield = 16};
}

// Begins a look at the operations of the set.
static inline struct fr_request_looks fr_request_set_begin_looks(const struct fr_request_set *set)
{
    return (struct fr_request_looks){.copies = 1, .receives = set->tracked};
}

// Returns whether the operation of one request is not complete though MPI may say so. Makes
// progress.
bool fr_request_set_is_deferred(const struct fr_request_set *set, size_t index,
                                struct fr_request_looks *looks);

// Returns the status at `index`, NULL where MPI was given none.
void *fr_request_set_status(const struct fr_request_set *set, size_t index);

// Does the call when some of its operations are sends whose bytes are still in the application's
// buffer, or receives whose bytes are still on their way. MPI takes them for complete; the
// application must not.
int fr_request_set_defer(struct fr_request_set *set);

#endif
