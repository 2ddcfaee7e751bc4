// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a group come by the memory that they agree in: a segment where they share a
// host, else slabs. All of them are in the same call meanwhile, and wait for each other.
#ifndef FR_COLL_OPEN_H
#define FR_COLL_OPEN_H

#include "fabrail/coll.h"

// Opens the segment. Where any rank cannot have it the group has none, on all ranks alike. False
// when a rank has not come within FABRAIL_TIMEOUT.
bool fr_coll_open_segment(struct fr_coll_team *group);

// Makes and maps the slabs, in the meeting of this number. Where any rank cannot have them the
// group has none, on all ranks alike: until a later call if a rank has not used its GPU yet.
void fr_coll_open_slab(struct fr_coll_team *group, uint64_t meeting);

// The secret of one use that the ranks make of shared memory: that of the first process of the job
// which has one. And how many of the ranks before `end` of the world may share memory on this host.
struct fr_job_secret fr_coll_secret_of(const char *use, uint64_t name);
int fr_coll_count_sharers(int end);

#endif
