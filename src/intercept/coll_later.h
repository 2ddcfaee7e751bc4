// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent collectives that are tasks of a team. Each begins its task in its
// call, a persistent one each time that it is started. The task goes on in all calls, and ends
// while a call waits or tests.
//
// All ranks decide alike which collectives begin so, by what they have in common: a rank that has
// begun one cannot do it by the real MPI any more.
#ifndef FR_INTERCEPT_COLL_LATER_H
#define FR_INTERCEPT_COLL_LATER_H

#include "fabrail/coll/queue.h"
#include "fabrail/request/schedule.h"
#include "intercept/intercept_int.h"

struct fr_intercept_later;

// The functions of reductions, or of exchanges.
struct fr_intercept_later_kind {
    // Makes this rank's memory ready and begins the queued task, or one that declines.
    void (*begin)(struct fr_intercept_later *later);
    // Ends the operation, whose queued task is over. Returns how all has ended.
    enum fr_status (*end)(struct fr_intercept_later *later);
    void (*release)(struct fr_intercept_later *later); // frees what it has, and itself
};

// A collective that goes on when its call has returned. The first member of a kind's own struct.
struct fr_intercept_later {
    const struct fr_intercept_later_kind *kind;
    struct fr_request_op *op;
    struct fr_coll_team *team; // its tasks do the operation
    struct fr_coll_queued queued;
    bool is_awaited; // counts among the team's operations for which a call waits
};

// Returns the team whose tasks do an operation, NULL on all ranks for none. A persistent operation
// gets a team of its own, for which its ranks wait for each other. fr_intercept_later_make owns it.
struct fr_coll_team *fr_intercept_later_team(const struct fr_request_op *op,
                                             struct fr_coll_team *team);

// Gives an operation a schedule that begins the task, and goes on with it. The operation owns
// `later` then. On failure the caller does, and the team goes.
FR_MUST_CHECK enum fr_status fr_intercept_later_make(struct fr_intercept_later *later,
                                                     struct fr_request_op *op,
                                                     struct fr_coll_team *team,
                                                     const struct fr_intercept_later_kind *kind);

// Opens the schedule of an operation where `status` is FR_OK, else frees the operation. Returns
// what the application's call returns.
int fr_intercept_later_open(struct fr_request_op *op, enum fr_status status);

// Returns whether a nonblocking or persistent collective is worth a task. They look at arguments
// that all ranks have alike, so all find the same.
bool fr_intercept_reduction_pays(enum fr_fn fn, const fr_word *args,
                                 const struct fr_coll_team *team);
bool fr_intercept_exchange_pays(enum fr_fn fn, const fr_word *args,
                                const struct fr_coll_team *team);

// Returns how many bytes the rank with most data has, or is likely to have where ranks need not
// know. All ranks find the same.
size_t fr_intercept_exchange_bytes(const struct fr_request_op *op, const struct fr_coll_team *team);

// Begin a nonblocking collective that pays, or make a persistent one, as a task of the team, and
// own the operation then; *result is what the call returns. Else they free the operation and return
// false, as all ranks do.
bool fr_intercept_reduce_later(struct fr_request_op *op, struct fr_coll_team *team, int *result);
bool fr_intercept_exchange_later(struct fr_request_op *op, struct fr_coll_team *team, int *result);

#endif
