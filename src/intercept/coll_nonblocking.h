// SPDX-License-Identifier: BSD-3-Clause
// Nonblocking and persistent collectives that are tasks of a team. Each begins its task in its
// call, a persistent one each time that it is started. The task goes on in all calls, and ends
// while a call waits or tests.
//
// All ranks decide alike which collectives begin so, by what they have in common: a rank that has
// begun one cannot do it by the real MPI any more.
#ifndef FR_INTERCEPT_COLL_NONBLOCKING_H
#define FR_INTERCEPT_COLL_NONBLOCKING_H

#include "fabrail/coll/host.h"
#include "fabrail/coll/queue.h"
#include "fabrail/request/schedule.h"
#include "intercept/intercept_int.h"

struct fr_intercept_nonblocking;

// The functions that differ between reductions and exchanges.
struct fr_intercept_nonblocking_kind {
    // Prepares an operation once, and sets `host`. `viewed` says how its views could be built.
    // Returns FR_ERR_UNSUPPORTED where this rank begins nothing, as no other one does.
    enum fr_status (*prepare)(struct fr_intercept_nonblocking *coll, enum fr_status viewed);
    // Makes this rank's memory ready at each start, and prepares `host`, whose call and number are
    // written later. A task that declines begins where it does not return FR_OK.
    enum fr_status (*open)(struct fr_intercept_nonblocking *coll);
    void (*begin)(struct fr_intercept_nonblocking *coll); // begins the queued task
    // Waits for the application's work on the memory, which `open` does where it is not deferred.
    void (*sync)(struct fr_intercept_nonblocking *coll);
    // Ends the operation, whose queued task is over. Returns how all has ended.
    enum fr_status (*end)(struct fr_intercept_nonblocking *coll);
    bool reads_args; // `open` reads arrays and datatypes among the arguments
};

// A collective that goes on when its call has returned. The first member of a kind's own struct.
struct fr_intercept_nonblocking {
    const struct fr_intercept_nonblocking_kind *kind;
    struct fr_request_op *op;
    struct fr_coll_team *team; // its tasks do the operation; a persistent one has its own
    struct fr_coll_queued queued;
    struct fr_coll_host *host; // does it where some rank cannot take part in a task
    bool is_short;             // `host` then does it by posts; alike on all ranks
    // The task may be launched in this call, before the application's work on the memory is over.
    bool defers;
};

// Begins an operation as a task of the team, or makes a persistent one, whose ranks wait for each
// other. Owns the operation then. `bytes` has the size of the kind's struct. *result is what the
// application's call returns; an error is yet to be raised. Else it frees the operation and returns
// false, as all ranks do.
bool fr_intercept_nonblocking_begin(struct fr_request_op *op, struct fr_coll_team *team,
                                    const struct fr_intercept_nonblocking_kind *kind, size_t bytes,
                                    int *result);

// Returns whether CPUs have done an operation that is over.
static inline bool fr_intercept_nonblocking_is_by_cpus(const struct fr_intercept_nonblocking *coll)
{
    return coll->queued.is_fallback || coll->queued.task.is_by_posts;
}

// Finds out whether the MPI library refuses equal send and receive buffers. Called in MPI_Init.
void fr_intercept_aliases_start(void);

// Returns whether the MPI library surely refuses a call whose send buffer is where it receives. It
// would not see that of memory that is staged.
bool fr_intercept_refuses_alias(enum fr_fn fn, const fr_word *args);

// Returns whether a nonblocking or persistent collective is worth a task. They look at arguments
// that all ranks have alike, so all find the same.
bool fr_intercept_reduction_pays(enum fr_fn fn, const fr_word *args,
                                 const struct fr_coll_team *team);
bool fr_intercept_exchange_pays(enum fr_fn fn, const fr_word *args,
                                const struct fr_coll_team *team);

// Says that this rank has no memory to begin an operation that is no persistent one. The others may
// have begun it, and it fails on them as well.
void fr_intercept_nonblocking_fail(enum fr_fn fn, const fr_word *args, struct fr_coll_team *team);

// Returns how many bytes a rank's vector has. All ranks find the same.
size_t fr_intercept_reduction_bytes(const struct fr_request_op *op,
                                    const struct fr_coll_team *team);

// Returns how many bytes the rank with most data has, or is likely to have where ranks need not
// know. All ranks find the same.
size_t fr_intercept_exchange_bytes(const struct fr_request_op *op, const struct fr_coll_team *team);

// Begin a collective that pays, as fr_intercept_nonblocking_begin does.
bool fr_intercept_reduction_begin_nonblocking(struct fr_request_op *op, struct fr_coll_team *team,
                                              int *result);
bool fr_intercept_exchange_begin_nonblocking(struct fr_request_op *op, struct fr_coll_team *team,
                                             int *result);

#endif
