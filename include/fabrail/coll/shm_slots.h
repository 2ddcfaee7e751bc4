// SPDX-License-Identifier: BSD-3-Clause
// Slots for the long posts of all segments of a host (segment.h), in memory that its processes
// share. Each process has a few slots. A slot goes from one segment to the next when nobody reads
// it any more. So the memory in use grows with the exchanges that are under way at a time, not with
// the communicators that have them.
#ifndef FR_FABRAIL_COLL_SHM_SLOTS_H
#define FR_FABRAIL_COLL_SHM_SLOTS_H

#include "fabrail/job/control.h"

struct fr_coll_segment;

enum { FR_COLL_POSTS_SLOTS = 64 }; // slots of a process

// Attaches the process at `index` of `sharers` to the memory, and claims its first slot. All
// processes give the same `slot_bytes`. Idempotent. Returns FR_ERR_NO_MEMORY when there is no room.
FR_MUST_CHECK enum fr_status fr_coll_slots_open(const struct fr_job_secret *secret, int index,
                                                int sharers, size_t slot_bytes);

// Unmaps the memory. Called after the last segment has been closed.
void fr_coll_slots_release(void);

// Returns whether a post of `bytes` fits into a slot.
bool fr_coll_slots_hold(size_t bytes);

// Reserves a slot of this process for the segment's post in `round`. *slot is the slot of the
// segment's last long post, or -1 for none; it is written under this file's lock. Returns
// FR_ERR_LIMIT when others may still read that slot. Returns FR_ERR_NO_MEMORY when the segment has
// none and others may still read all. Either may be tried again.
FR_MUST_CHECK enum fr_status fr_coll_slots_reserve(struct fr_coll_segment *segment, uint64_t round,
                                                   int *slot);

// Gives the slot of a segment back. Returns false while ranks of the segment may still read it.
// Then the caller must keep the segment, which ends with the slot's next use.
bool fr_coll_slots_leave(const int *slot);

// Returns the name by which other processes find this slot, from 1 to UINT32_MAX.
uint32_t fr_coll_slots_name(int slot);

// Returns the slot of any process that has this name, NULL for a name that none has written.
void *fr_coll_slots_at(uint32_t name);

#endif
