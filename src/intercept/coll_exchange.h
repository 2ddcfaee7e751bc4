// SPDX-License-Identifier: BSD-3-Clause
// An exchange by path peer on this rank, from a call's arguments to what its task is given. In all
// forms of Alltoall every rank has a slice for every other. In a broadcast, gather, scatter or
// allgather some ranks have none, or the same one for all.
#ifndef FR_INTERCEPT_COLL_EXCHANGE_H
#define FR_INTERCEPT_COLL_EXCHANGE_H

#include "fabrail/coll/alltoall.h"
#include "fabrail/coll/bcast.h"
#include "intercept/coll_buffer.h"

struct fr_intercept_exchange {
    struct fr_request_op *op;
    const struct fr_coll_team *team;
    const struct fr_abi_shape *shape;
    int root; // -1 without
    struct fr_intercept_coll_buffer send, receive;
    struct fr_intercept_neighbours neighbours;
    bool knows_neighbours;             // they were asked for
    bool in_place;                     // what it sends is in the receive buffer
    struct fr_coll_copy before, after; // of staged buffers, where the task makes them
    bool is_queued;                    // on all ranks: the calls do not wait for it
    bool defers;     // fr_intercept_exchange_open leaves the next to its caller; written by that
    bool is_synced;  // the application's work on the memory is over
    bool is_by_cpus; // once the task has found that a rank cannot take part; written by the caller
    enum fr_status failure; // why this rank cannot even take part by its CPU, or FR_OK
    union {
        struct fr_coll_alltoall all;
        struct fr_coll_bcast one; // of the only buffer
    } part;
};

// Describes the exchange of an operation, whose views are built. `slots` has room for two slots a
// rank of the team, and must stay in place. `is_queued`: the calls of all ranks do not wait for it,
// and this rank takes part with host memory, too. Returns FR_ERR_UNSUPPORTED where this rank cannot
// take part: its buffers are host memory, or their slices cannot be told. It need not be ended.
FR_MUST_CHECK enum fr_status fr_intercept_exchange_describe(struct fr_intercept_exchange *exchange,
                                                            struct fr_request_op *op,
                                                            const struct fr_coll_team *team,
                                                            struct fr_coll_slot *slots,
                                                            bool is_queued);

// Makes the memory of an exchange ready for its task. Returns FR_ERR_UNSUPPORTED, or why it has
// failed, where this rank cannot take part. The memory of a queued exchange is then ready for its
// CPU, unless `failure` says otherwise. fr_intercept_exchange_end is to be called in any case.
FR_MUST_CHECK enum fr_status fr_intercept_exchange_open(struct fr_intercept_exchange *exchange);

// Waits for what the application has under way on the memory of an exchange that is open, whose
// task may have begun. It may have other work there when the task's turn comes.
enum fr_status fr_intercept_exchange_sync(struct fr_intercept_exchange *exchange);

// Returns what the slices that this rank sends lie in.
struct fr_device_range
fr_intercept_exchange_send_range(const struct fr_intercept_exchange *exchange);

// Has an exchange that is open go on by this rank's CPU, since its task cannot do it: slices with
// gaps are packed in host memory. Calls no function of MPI. Returns why this rank cannot take part.
FR_MUST_CHECK enum fr_status
fr_intercept_exchange_leave_device(struct fr_intercept_exchange *exchange);

// Begins the task of an exchange that is open. Both must stay in place until the task is over.
void fr_intercept_exchange_begin(struct fr_intercept_exchange *exchange, struct fr_coll_task *task,
                                 struct fr_coll_team *team);

// Ends an exchange whose task has ended with `status`: copies out, counts it in the report, and
// gives workspace back. Returns `status`, or why the copy has failed.
FR_MUST_CHECK enum fr_status fr_intercept_exchange_end(struct fr_intercept_exchange *exchange,
                                                       enum fr_status status);

#endif
