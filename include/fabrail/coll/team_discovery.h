// SPDX-License-Identifier: BSD-3-Clause
// Where the ranks of a communicator, all on one host, find out without waiting for each other from
// which of their calls on they are a group: a slot in a table that the processes of the host share.
//
// A rank joins in the first call in which it uses a GPU, and from then on says in each call how far
// it has come. Once all have joined, whoever is first in a call makes it the one: those that come
// to it, or to a later one, see that; all earlier calls were done otherwise, by all. Who has never
// used a GPU knows nothing of all this.
#ifndef FR_FABRAIL_COLL_TEAM_DISCOVERY_H
#define FR_FABRAIL_COLL_TEAM_DISCOVERY_H

#include "fabrail/job/control.h"

struct fr_coll_discovery;

// Joins in call number `call` (from 1), which is not among those done as a group. `sharers`
// processes of this host may use the table, which `secret` is the secret of. NULL when there is no
// room; then there will be no group. The place is left once.
struct fr_coll_discovery *fr_coll_discovery_join(const struct fr_job_secret *secret, int sharers,
                                                 uint64_t name, int size, uint64_t call);
void fr_coll_discovery_leave(struct fr_coll_discovery *place);

// Whether a later call is done as a group, as all ranks find alike. `number` is what this rank
// would give the group; *given is what was given.
bool fr_coll_discovery_enter(struct fr_coll_discovery *place, uint64_t call, uint32_t number,
                             uint32_t *given);

// Rank 0 says whether it has made something; the others ask: 0 while that is not known, 1 made, -1
// not. Then each says whether it could use it, and all ask: 0 while some have not said, 1 all
// could, -1 not. Once in the life of a group.
void fr_coll_discovery_made(struct fr_coll_discovery *place, bool made);
int fr_coll_discovery_is_made(const struct fr_coll_discovery *place);
void fr_coll_discovery_tried(struct fr_coll_discovery *place, bool could);
int fr_coll_discovery_all_tried(const struct fr_coll_discovery *place);

// A rank says that it takes part in no agreement any more, before or after it has said whether it
// could use what rank 0 has made, and the others ask. There will be no group then, unless there is
// one already.
enum fr_coll_quit { FR_COLL_STAYS, FR_COLL_QUIT_UNTRIED, FR_COLL_QUIT };
void fr_coll_discovery_quit(struct fr_coll_discovery *place, enum fr_coll_quit quit);
enum fr_coll_quit fr_coll_discovery_was_quit(const struct fr_coll_discovery *place);

// Unmaps the table; after MPI_Finalize, which ends the last communicators.
void fr_coll_discovery_release(void);

#endif
