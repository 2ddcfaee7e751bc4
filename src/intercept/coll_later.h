// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent collectives that are tasks of a team. Each begins its task in its
// call, a persistent one each time that it is started. The task goes on in all calls, and ends
// while a call waits or tests.
//
// Which collectives begin so is decided by what all ranks have alike, since a rank that has begun
// cannot do the same by the real MPI any more.
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
    // Ends the operation, whose queued task is over. Returns false, once at most, where messages
    // have been begun that do it now. *status says how all has ended, or FR_OK.
    bool (*end)(struct fr_intercept_later *later, enum fr_status *status);
    void (*release)(struct fr_intercept_later *later); // frees what it has, and itself
    bool ends_alone; // without a function of MPI, if the program's memory is host memory
};

// A collective that goes on when its call has returned. The first member of a kind's own struct.
struct fr_intercept_later {
    const struct fr_intercept_later_kind *kind;
    struct fr_request_op *op;
    struct fr_coll_team *team; // its tasks do the operation
    struct fr_coll_queued queued;
    bool is_awaited; // counts among the team's operations for which a call waits
    bool is_over;
};

// Returns the team whose tasks do an operation, NULL on all ranks for none. A persistent operation
// gets a team of its own, for which its ranks wait for each other. fr_intercept_later_attach owns
// that.
struct fr_coll_team *fr_intercept_later_team(const struct fr_request_op *op,
                                             struct fr_coll_team *team);

// Has the schedule of an operation begin the task, and go on with it. The operation owns `later`.
void fr_intercept_later_attach(struct fr_intercept_later *later, struct fr_request_op *op,
                               struct fr_coll_team *team,
                               const struct fr_intercept_later_kind *kind);

// Has an exchange, which has a schedule of messages, be a task of the team. Its messages are sent
// only if the ranks cannot agree. `is_viewed`: the views of its buffers could be built. Returns
// FR_ERR_NO_MEMORY, and has not taken the team then.
FR_MUST_CHECK enum fr_status fr_intercept_exchange_later(struct fr_request_op *op,
                                                         struct fr_coll_team *team, bool is_viewed);

#endif
