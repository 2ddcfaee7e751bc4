// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a communicator, all on one host, find out from which of their calls on they are
// a team. They do so without waiting for each other, in a table that the processes of the host
// share. Each communicator has a slot in it.
//
// A rank joins in the first call in which it uses a GPU. From then on it says in each call how far
// it has come. Once all ranks have joined, the first that comes into a call makes it the team's
// first call. The others see that when they come to this call or a later one. All earlier calls
// were done without a team by all. A rank that has never used a GPU knows nothing of this.
#ifndef FR_FABRAIL_COLL_TEAM_DISCOVERY_H
#define FR_FABRAIL_COLL_TEAM_DISCOVERY_H

#include "fabrail/job/control.h"

struct fr_coll_discovery;

// Joins the slot of a communicator in call number `call` (from 1), which is not yet done as a team.
// `name` and `size` are the communicator's. `secret` is the table's, which up to `sharers`
// processes of this host use. Returns NULL when there is no room; then there will be no team.
struct fr_coll_discovery *fr_coll_discovery_join(const struct fr_job_secret *secret, int sharers,
                                                 uint64_t name, int size, uint64_t call);

// Leaves the slot, once. The caller must not use it afterwards; NULL is accepted.
void fr_coll_discovery_leave(struct fr_coll_discovery *discovery);

// Returns whether a later call is done as a team, which all ranks find alike. `number` is what this
// rank would give the team, *given the number that it has been given.
bool fr_coll_discovery_enter(struct fr_coll_discovery *discovery, uint64_t call, uint32_t number,
                             uint32_t *given);

// Says whether rank 0 has made the team's memory. Called by rank 0, once in the life of a team.
void fr_coll_discovery_made(struct fr_coll_discovery *discovery, bool made);

// Returns 1 when rank 0 has made the memory, -1 when it has not, 0 while that is not known.
int fr_coll_discovery_is_made(const struct fr_coll_discovery *discovery);

// Says whether this rank could use the memory that rank 0 has made. Once in the life of a team.
void fr_coll_discovery_tried(struct fr_coll_discovery *discovery, bool could);

// Returns 1 when all ranks could use the memory, -1 when some could not, 0 while some have not
// said.
int fr_coll_discovery_all_tried(const struct fr_coll_discovery *discovery);

// Says whether a rank has left all agreements.
enum fr_coll_quit {
    FR_COLL_STAYS,        // it has not
    FR_COLL_QUIT_UNTRIED, // before it said whether it could use the team's memory
    FR_COLL_QUIT,         // after that
};

// Says that this rank takes part in no agreement any more. There will be no team then, unless there
// is one already.
void fr_coll_discovery_quit(struct fr_coll_discovery *discovery, enum fr_coll_quit quit);

// Returns how the first rank that has quit has done so, FR_COLL_STAYS while none has.
enum fr_coll_quit fr_coll_discovery_was_quit(const struct fr_coll_discovery *discovery);

// Unmaps the table. Called after MPI_Finalize, which ends the last communicators.
void fr_coll_discovery_release(void);

#endif
