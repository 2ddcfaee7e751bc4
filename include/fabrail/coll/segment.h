// SPDX-License-Identifier: BSD-3-Clause
// Shared memory for a set of processes of one host, such as the local ranks of a communicator.
//
// It works in rounds, numbered from 1: each rank posts a few bytes for a round, waits for the posts
// of the others, reads them, and says that it is done with them. A post without bytes is a flag. Up
// to FR_COLL_SEGMENT_DEPTH rounds can be under way at once, so a rank can run ahead of late ones.
// What a rank wrote to memory before its post, others see after they have seen the post.
//
// A segment itself holds posts of a word. Longer ones are in the slots of their processes
// (posts.h), one at a time of each rank.
//
// One thread at a time uses one segment. All ranks must have opened it before any posts.
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

// Rank 0 creates, all others attach; each has its own rank below `size`, and all give the same
// `size` and `post_bytes`, the most that one post holds. Rank 0 must have opened before the others
// get the secret. Never waits. Returns FR_ERR_NOT_FOUND when the memory does not exist here (ranks
// that do not share /dev/shm), FR_ERR_NO_MEMORY when /dev/shm is full, FR_ERR_INVALID when slots
// for such posts are not open. The outcome is this rank's own: the caller has all ranks agree on it
// before use. Closed with fr_coll_segment_close.
FR_MUST_CHECK enum fr_status fr_coll_segment_open(const struct fr_job_secret *secret, int rank,
                                                  int size, size_t post_bytes,
                                                  struct fr_coll_segment **segment);

// Once all ranks have opened the segment, rank 0 takes its name away, so that nothing is left
// behind however the processes end. False before that: to be called again.
bool fr_coll_segment_seal(struct fr_coll_segment *segment);

// Unmaps, for this rank alone; NULL is accepted. Takes the name away if that has not happened.
void fr_coll_segment_close(struct fr_coll_segment *segment);

// Posts `bytes` (0 to post_bytes) for `round`, which must follow the last. Never waits. Posts
// nothing and returns FR_ERR_LIMIT while some rank is not done with round - FR_COLL_SEGMENT_DEPTH,
// or with what this rank's slot holds; FR_ERR_NO_MEMORY while other segments use all slots, whose
// ranks may be waiting just so, and there is room for a short post alone; FR_ERR_INVALID for any
// other round or too many bytes.
FR_MUST_CHECK enum fr_status fr_coll_segment_post(struct fr_coll_segment *segment, uint64_t round,
                                                  const void *data, size_t bytes);

// Marks the post for `round`, which follows: a bit that others can read without reading the post,
// from the cache line that they wait on. A mark may be gone once the rank has gone on to a later
// round; then the post itself has to tell.
void fr_coll_segment_mark(struct fr_coll_segment *segment, uint64_t round);
bool fr_coll_segment_is_marked(const struct fr_coll_segment *segment, int rank, uint64_t round);

// Whether a rank has posted for `round`. Never waits.
bool fr_coll_segment_has(struct fr_coll_segment *segment, int rank, uint64_t round);

// Whether all ranks have. Remembers which of them have from one look at a round to the next.
bool fr_coll_segment_has_all(struct fr_coll_segment *segment, uint64_t round);

// How to wait between two looks: spinning, then yielding the core, from the start where the ranks
// outnumber the cores that they may use.
struct fr_wait fr_coll_segment_pace(const struct fr_coll_segment *segment);

// Returns what a rank has posted for `round`, which must have been waited for or found there. Valid
// until fr_coll_segment_done for that round. Aligned to 64 bytes unless it is short; of no bytes,
// what there is are 64 zeros.
const void *fr_coll_segment_read(const struct fr_coll_segment *segment, int rank, uint64_t round);

// Says that this rank needs no posts of `round` or before any more, its own wait for them included.
void fr_coll_segment_done(struct fr_coll_segment *segment, uint64_t round);

// Whether all ranks have said so of a round, this one too. May be asked by any thread.
bool fr_coll_segment_is_over(const struct fr_coll_segment *segment, uint64_t round);

// For posts.h: the slot is another segment's now; a segment that was closed ends.
void fr_coll_segment_lose_slot(struct fr_coll_segment *segment);
void fr_coll_segment_free(struct fr_coll_segment *segment);

// Returns false when the process of a rank is known to be gone; true also when that cannot be
// known.
bool fr_coll_segment_is_alive(const struct fr_coll_segment *segment, int rank);

#endif
