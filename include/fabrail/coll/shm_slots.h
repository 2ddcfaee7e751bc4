// SPDX-License-Identifier: BSD-3-Clause
// Room for the long posts of all segments of a host (segment.h): memory that its processes share,
// in which each has a few slots. A slot goes from one segment to the next when nobody reads it any
// more, so that what is claimed grows with the exchanges that are under way at a time, not with the
// communicators that have them.
#ifndef FR_FABRAIL_COLL_SHM_SLOTS_H
#define FR_FABRAIL_COLL_SHM_SLOTS_H

#include "fabrail/job/control.h"

struct fr_coll_segment;

enum { FR_COLL_POSTS_SLOTS = 64 }; // of a process

// Attaches for the process at `index` of `sharers`, which all give the same `slot_bytes`, and
// claims its first slot. Idempotent. Returns FR_ERR_NO_MEMORY when there is no room.
FR_MUST_CHECK enum fr_status fr_coll_slots_open(const struct fr_job_secret *secret, int index,
                                                int sharers, size_t slot_bytes);

// Unmaps; after the last segment has been closed.
void fr_coll_slots_release(void);

// Whether posts of so many bytes fit into a slot.
bool fr_coll_slots_hold(size_t bytes);

// Has a slot of this process for one post of a segment, which has none or the one of its last long
// post, in *slot (-1: none; written under a lock of this file's). FR_ERR_LIMIT: others may read
// that one; FR_ERR_NO_MEMORY: it has none, and they may read all. Either may be tried again.
FR_MUST_CHECK enum fr_status fr_coll_slots_reserve(struct fr_coll_segment *segment, uint64_t round,
                                                   int *slot);

// Gives the slot of a segment back. Returns false where some of its ranks have not said that they
// need not read it any more: then the segment is to stay, and ends with the slot's next use.
bool fr_coll_slots_leave(const int *slot);

// What a process writes as its slot, for the others to find it by: from 1 to UINT32_MAX. And the
// slot, of any process; NULL for what none has written.
uint32_t fr_coll_slots_name(int slot);
void *fr_coll_slots_at(uint32_t name);

#endif
