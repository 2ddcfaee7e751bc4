// SPDX-License-Identifier: BSD-3-Clause
// Opens the memory in which the ranks of a team agree: a segment where they share a host, else
// slabs. For slabs all ranks are in the same call, and wait for each other.
#ifndef FR_COLL_TEAM_MEMORY_H
#define FR_COLL_TEAM_MEMORY_H

#include "fabrail/coll.h"

// Goes on with opening the segment, without waiting for other ranks. Where any rank cannot have it,
// all ranks do without. Returns whether that is over. The team is broken then if a rank has not
// come within FABRAIL_TIMEOUT.
bool fr_coll_open_segment(struct fr_coll_team *team);

// Makes and maps the slabs, in the meeting of this number. Where any rank cannot have them, all
// ranks do without. If a rank has not used its GPU yet, a later call tries again.
void fr_coll_open_slab(struct fr_coll_team *team, uint64_t meeting);

// Closes a team's part of a slab when the team goes. NULL is accepted.
void fr_coll_team_slab_close(struct fr_coll_slab *slab);

// Returns the secret for one use that the ranks make of shared memory. It comes from that of the
// first process of the job that has one.
struct fr_job_secret fr_coll_secret_of(const char *use, uint64_t name);

// Returns how many of the processes with a rank in MPI_COMM_WORLD below `end` may share memory on
// this host.
int fr_coll_count_sharers(int end);

#endif
