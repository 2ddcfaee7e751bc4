// SPDX-License-Identifier: BSD-3-Clause
// Shared memory for a set of processes of one host, such as the local ranks of a communicator.
//
// It works in rounds, numbered from 1. In a round each rank posts a few bytes and waits for the
// posts of the others. It reads them and says that it is done with them. A post without bytes is a
// flag. Up to FR_COLL_SEGMENT_DEPTH rounds can be under way at once, so a rank can run ahead of
// late ones. A rank that has seen a post also sees what its sender wrote to memory before.
//
// A segment itself holds posts of a word. Longer posts are in the slots of their processes
// (shm_slots.h), one at a time of each rank.
//
// One thread at a time uses one segment. All ranks must have opened it before any rank posts.
#ifndef FR_FABRAIL_COLL_SEGMENT_H
#define FR_FABRAIL_COLL_SEGMENT_H

#include "fabrail/core/wait.h"
#include "fabrail/job/control.h"

struct fr_coll_segment;

enum {
    FR_COLL_SEGMENT_DEPTH = 6,
    FR_COLL_SEGMENT_SHORT_POST = 4, // bytes
    FR_COLL_SEGMENT_MAX_POST = 1 << 20,
};

// Opens a segment: rank 0 creates it, all others attach. Each has its own rank below `size`. All
// give the same `size` and the same `post_bytes`, the most that one post holds. Rank 0 must have
// opened before the others get the secret. Never waits.
//
// Returns FR_ERR_NOT_FOUND when the memory does not exist here, since ranks do not share /dev/shm.
// Returns FR_ERR_NO_MEMORY when /dev/shm is full, and FR_ERR_INVALID when slots for such posts are
// not open.
// The outcome is this rank's own, so the caller has all ranks agree on it before use. Closed with
// fr_coll_segment_close.
FR_MUST_CHECK enum fr_status fr_coll_segment_open(const struct fr_job_secret *secret, int rank,
                                                  int size, size_t post_bytes,
                                                  struct fr_coll_segment **segment);

// Takes the segment's name away once all ranks have opened it, so that nothing is left behind
// however the processes end. Rank 0 calls it again until it returns true.
bool fr_coll_segment_seal(struct fr_coll_segment *segment);

// Unmaps the segment for this rank alone, and takes its name away if that has not happened. NULL is
// accepted.
void fr_coll_segment_close(struct fr_coll_segment *segment);

// Posts `bytes` (0 to post_bytes) for `round`, which must follow the last. Never waits.
//
// When it cannot post, it posts nothing and returns an error. FR_ERR_LIMIT: some rank is not done
// with round - FR_COLL_SEGMENT_DEPTH, or with what this rank's slot holds. FR_ERR_NO_MEMORY: other
// segments use all slots, and there is room for a short post alone. The ranks of those segments may
// be waiting in the same way. FR_ERR_INVALID: any other round, or too many bytes.
FR_MUST_CHECK enum fr_status fr_coll_segment_post(struct fr_coll_segment *segment, uint64_t round,
                                                  const void *data, size_t bytes);

// Marks this rank's post for `round`, which follows. A mark is a bit in the cache line that others
// wait on, so they can read it without reading the post.
void fr_coll_segment_mark(struct fr_coll_segment *segment, uint64_t round);

// Returns whether a rank has marked its post for `round`. A mark may be gone once the rank has gone
// on to a later round; then the post itself has to tell.
bool fr_coll_segment_is_marked(const struct fr_coll_segment *segment, int rank, uint64_t round);

// Returns whether a rank has posted for `round`. Never waits.
bool fr_coll_segment_has(struct fr_coll_segment *segment, int rank, uint64_t round);

// Returns whether all ranks have posted for `round`. Remembers which of them have from one look at
// a round to the next.
bool fr_coll_segment_has_all(struct fr_coll_segment *segment, uint64_t round);

// Chooses one rank to do the work of all in `round`, or none (-1), unless a rank has chosen
// already. Returns what was chosen first. Ranks choose in one round after the other, and not in
// all.
int fr_coll_segment_choose_mover(struct fr_coll_segment *segment, uint64_t round, int mover);

// Returns whether a rank has chosen in `round`.
bool fr_coll_segment_has_chosen(const struct fr_coll_segment *segment, uint64_t round);

// Says that this rank has failed and posts for no round any more.
void fr_coll_segment_break(struct fr_coll_segment *segment);
bool fr_coll_segment_is_broken(const struct fr_coll_segment *segment, int rank);

// Says whether a call of this rank goes on at once when others have posted. One that stops doing so
// looks at posts once more: others may have taken its word just before.
void fr_coll_segment_await(struct fr_coll_segment *segment, bool is_awaited);

// Returns whether all other ranks have said that a call of theirs goes on.
bool fr_coll_segment_all_await(const struct fr_coll_segment *segment);

// Returns how to wait between two looks: spinning first, then yielding the core. It yields from the
// start where the ranks outnumber the cores that they may use.
struct fr_wait fr_coll_segment_pace(const struct fr_coll_segment *segment);

// Returns what a rank has posted for `round`, which must have been found there. Valid until
// fr_coll_segment_done for that round. A short post may be unaligned; any other is aligned to 64
// bytes. A post without bytes reads as 64 zeros.
const void *fr_coll_segment_read(const struct fr_coll_segment *segment, int rank, uint64_t round);

// Says that this rank needs no posts of `round` or of earlier rounds any more, and will not wait
// for them.
void fr_coll_segment_done(struct fr_coll_segment *segment, uint64_t round);

// Returns whether all ranks, this one included, are done with `round`. May be called by any thread.
bool fr_coll_segment_is_over(const struct fr_coll_segment *segment, uint64_t round);

// Tells the segment that its slot is another segment's now. A closed segment ends with that. For
// shm_slots.c alone.
void fr_coll_segment_lose_slot(struct fr_coll_segment *segment);

// Frees a segment that was closed. For shm_slots.c alone.
void fr_coll_segment_free(struct fr_coll_segment *segment);

#endif
