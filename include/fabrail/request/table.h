// SPDX-License-Identifier: BSD-3-Clause
// The side table of operations by request; inside the module request only.
//
// Claiming ends a race: a request value is reused as soon as the real MPI has completed it, so
// another thread may add a new operation with the same value before the first thread has removed
// the finished one. Whoever completes requests therefore claims the operations before calling MPI,
// and later removes just those.
#ifndef FR_FABRAIL_REQUEST_TABLE_H
#define FR_FABRAIL_REQUEST_TABLE_H

#include "fabrail/request.h"

// Claims an operation for this thread's call, under the lock of the list that it is in.
static inline void fr_request_claim(struct fr_request_op *op)
{
    op->claim.held = true;
    op->claim.thread = &fr_request_call;
    op->claim.call = fr_request_call;
}

void fr_request_table_add(struct fr_request_op *op, fr_word request);
void fr_request_table_remove(struct fr_request_op *op);

// MPI has just given out this request: operations that are still under its value, since an error
// handler has left the call that was completing them, are over. To be called before anything else
// is under that value.
void fr_request_table_drop_left(fr_word request);
static inline void fr_request_table_make_way(fr_word request)
{
    if (FR_UNLIKELY(fr_request_any_left))
        fr_request_table_drop_left(request);
}

// The partitioned operation of a request, NULL if there is none: its partitions are made ready and
// asked for by any thread, while one is completing it, too.
struct fr_request_op *fr_request_table_find_partitioned(fr_word request);

// Fills ops[i] with the claimed operation of request i of an array in the family's handle width, or
// NULL. Returns how many there are.
size_t fr_request_table_claim(const void *requests, size_t count, struct fr_request_op **ops);

// Whether operations with requests have fetched something that a window's synchronisation completes
// and that is not copied back; and begins the copy of one of them, NULL if there is none to begin.
bool fr_request_table_awaits(const struct fr_request_sync *sync);
struct fr_request_op *fr_request_table_begin_fetch(const struct fr_request_sync *sync);

// Claims up to `max` started receives that may bring an RTS and that nobody has claimed,
// but for the first `skip` of them. Who wants to claim one meanwhile waits.
size_t fr_request_table_claim_receives(struct fr_request_op **ops, size_t max, size_t skip);
void fr_request_table_unclaim(struct fr_request_op *const *ops, size_t count);

// Says that an operation is over: nobody looks into the application's memory for it from then on.
void fr_request_table_end(struct fr_request_op *op);

// Marks the RTS that stand in the memory of receives that are not over, whoever has claimed them,
// as received. Returns how many it could not mark, of which nothing is known yet, up to `max` of
// them.
size_t fr_request_table_take_incoming(struct fr_rndv_incoming *incoming, size_t max);

#endif
