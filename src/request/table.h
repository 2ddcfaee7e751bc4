// SPDX-License-Identifier: BSD-3-Clause
// The side table of operations by request.
//
// A request value is used again as soon as the real MPI has completed the request. So another
// thread may add a new operation with the same value before the first thread has removed the
// finished one. To end this race, a thread that completes requests claims their operations before
// it calls MPI, and later removes just those.
#ifndef FR_REQUEST_TABLE_H
#define FR_REQUEST_TABLE_H

#include "request/request_int.h"

// Claims an operation for this thread's call. The caller holds the lock of the list that the
// operation is in.
static inline void fr_request_claim(struct fr_request_op *op)
{
    op->claim.held = true;
    op->claim.thread = &fr_request_call;
    op->claim.call = fr_request_call;
}

// Adds an operation under a request, which owns it from here on.
void fr_request_table_add(struct fr_request_op *op, fr_word request);

// Removes an operation; the caller owns it again.
void fr_request_table_remove(struct fr_request_op *op);

// Ends operations that are still under the value of a request that MPI has just given out. An error
// handler has left the call that was completing them. Called before anything else is put under that
// value.
void fr_request_table_drop_abandoned(fr_word request);

// Does fr_request_table_drop_abandoned if calls of this thread may have been abandoned.
static inline void fr_request_table_make_way(fr_word request)
{
    if (FR_UNLIKELY(fr_request_any_abandoned))
        fr_request_table_drop_abandoned(request);
}

// Returns the partitioned operation of a request, NULL if there is none. Any thread may make its
// partitions ready or ask for them, even while one is completing it.
struct fr_request_op *fr_request_table_find_partitioned(fr_word request);

// Claims the operations of `count` requests, an array in the family's handle width. Fills ops[i]
// with the operation of request i, or NULL. Returns how many there are.
size_t fr_request_table_claim(const void *requests, size_t count, struct fr_request_op **ops);

// Returns whether operations with requests have fetched data that this synchronisation completes
// and that are not copied back.
bool fr_request_table_awaits(const struct fr_request_sync *sync);

// Returns the least of their targets that is above `after`, INT_MAX if there is none.
int fr_request_table_next_target(const struct fr_request_sync *sync, int after);

// Begins the copy of one such operation for fr_request_fetch, and returns it. Returns NULL if there
// is none to begin.
struct fr_request_op *fr_request_table_begin_fetch(const struct fr_request_sync *sync);

// Claims up to `max` started receives that may bring an RTS and that nobody has claimed, but for
// the first `skip` of them. Returns how many. Threads that want to claim one of them meanwhile
// wait.
size_t fr_request_table_claim_receives(struct fr_request_op **ops, size_t max, size_t skip);

// Gives back claimed operations; NULL entries are accepted.
void fr_request_table_unclaim(struct fr_request_op *const *ops, size_t count);

// Says that a persistent operation is started.
void fr_request_table_begin(struct fr_request_op *op);

// Says that an operation is over. Nobody looks into the application's memory for it from then on.
void fr_request_table_end(struct fr_request_op *op);

// Marks the RTS that stand in the memory of receives that are not over as received, whoever has
// claimed the receives. Writes those that it could not mark, of which nothing is known yet, to
// `incoming`, up to `max` of them. Returns how many these are.
size_t fr_request_table_take_incoming(struct fr_rndv_incoming *incoming, size_t max);

#endif
