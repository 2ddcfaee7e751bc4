// SPDX-License-Identifier: BSD-3-Clause
// Agreement in device memory, for ranks whose GPUs reach each other across hosts. Each rank has a
// slab of fabric memory. All others map it and have room for their posts in it.
//
// It works in rounds as a segment does (segment.h). A rank stores its post to the slabs of all, and
// then a word that says so. A kernel does that, and looks in its own slab for the words of the
// others for some microseconds. For those that come later the host looks, by copies of the words.
// No MPI message is sent. By its post for a round a rank also says that it no longer needs posts of
// two rounds before and earlier.
//
// Where all ranks have marked their posts alike, the kernel may go on. It moves bytes, posts
// FR_COLL_SLAB_WELL for the next round, and waits for that round. Or it has delivered what the
// others need to their slabs before it posted (round.h), combines what has come, and is done. A
// slab has two *inboxes* for that, for odd and even rounds. When a rank delivers, it must know that
// all have posted for the round before: so they have ended the one before that, and what they got
// in it.
//
// A slab has several parts. Each serves other operations, whose rounds are its own, of all ranks or
// of some of them. The slab that is made is the first part. A part in use has a *position*, the
// same in the slabs of all its ranks: which of the FR_COLL_SLAB_PARTS pieces of a slab it is.
//
// One thread at a time uses one part. All ranks must have mapped the slab before any rank posts.
#ifndef FR_FABRAIL_COLL_SLAB_H
#define FR_FABRAIL_COLL_SLAB_H

#include "fabrail/device/barrier_kernel.h"
#include "fabrail/ipc.h"

struct fr_coll_slab;

// Rounds whose posts a slab holds; and the mark of a post that says that all went well.
enum { FR_COLL_SLAB_DEPTH = 8, FR_COLL_SLAB_WELL = 1 };

// Most parts of a slab.
enum { FR_COLL_SLAB_PARTS = 32 };

// Makes this rank's slab on a device, and writes what the others need to map it. Returns
// FR_ERR_UNSUPPORTED where other hosts cannot reach the device's memory, and FR_ERR_NO_MEMORY also
// where this process has too many. All but its first have few parts. Closed with
// fr_coll_slab_close.
FR_MUST_CHECK enum fr_status fr_coll_slab_make(int device, int rank, int size, size_t post_bytes,
                                               struct fr_coll_slab **slab,
                                               struct fr_ipc_handle *handle);

// Maps the slabs of all ranks; `handles` stand by rank. The outcome is this rank's own, so the
// caller has all ranks agree on it before use.
FR_MUST_CHECK enum fr_status fr_coll_slab_map(struct fr_coll_slab *slab,
                                              const struct fr_ipc_handle *handles);

// Closes a part, for this rank alone. The slab goes with its last part. NULL is accepted. Others
// may still post to a slab, since what they have mapped stays theirs. With `notifies` the others
// hear of it, so that the position can serve other ranks.
void fr_coll_slab_close(struct fr_coll_slab *slab, bool notifies);

// Makes another part of the slab that `other` is a part of, which is mapped. The part is for `size`
// ranks, of which this one is `rank`. `ranks` are their ranks in `other`, NULL for the same ones.
// It has no position yet. Another thread may use `other` meanwhile. Returns NULL where this rank
// has no memory for it. Closed with fr_coll_slab_close.
struct fr_coll_slab *fr_coll_slab_part_new(const struct fr_coll_slab *other, const int *ranks,
                                           int rank, int size);

// Gives a part a position that no other part has. All its ranks give it the same one. Its first
// round is `first` + 1, later than any that was ever posted there.
void fr_coll_slab_part_assign(struct fr_coll_slab *part, unsigned position, uint64_t first);

// Offers the positions that are free for the ranks of a part. Returns them as a word, which the
// ranks combine by fr_coll_slab_offer_add. This process offers them to nobody else until
// fr_coll_slab_offer_take, which gets *held. A rank without a part offers FR_COLL_SLAB_NO_OFFER.
uint64_t fr_coll_slab_offer(struct fr_coll_slab *part, uint32_t *held);
uint64_t fr_coll_slab_offer_add(uint64_t one, uint64_t other);
#define FR_COLL_SLAB_NO_OFFER UINT64_C(0xffffffff)

// Gives a part, and another one of the same ranks unless that is NULL, positions that all ranks
// offer. Returns false where these are too few: a pair leaves some for single parts. All ranks find
// the same.
bool fr_coll_slab_offer_take(struct fr_coll_slab *part, struct fr_coll_slab *other, uint32_t held,
                             uint64_t offers);

// Return the position of a part, and the round before its first.
unsigned fr_coll_slab_position(const struct fr_coll_slab *part);
uint64_t fr_coll_slab_first(const struct fr_coll_slab *part);

// Returns the most bytes that a rank delivers to each other one, alike on all ranks.
size_t fr_coll_slab_delivery_bytes(const struct fr_coll_slab *slab);

// Returns whether this rank may deliver bytes by the device of `range` in a round, its next one. If
// not, it must not mark its post for an operation in which ranks deliver.
bool fr_coll_slab_may_deliver(const struct fr_coll_slab *slab, uint64_t round,
                              const struct fr_device_range *range);

// Returns where this rank's device finds what a rank delivers to it in a round. `from` is where
// that rank has these bytes, of which only its place in a unit counts.
uintptr_t fr_coll_slab_delivered(const struct fr_coll_slab *slab, int rank, uint64_t round,
                                 uint64_t from);

// Returns where this rank's device finds its own bytes once more after a delivery in parts, which
// has them at `from`. What the kernel has combined may have been written over them.
uintptr_t fr_coll_slab_kept(const struct fr_coll_slab *slab, uint64_t from);

// Bytes of a rank's chunk, alike on all ranks. A chunk of data that no post has room for waits
// there for the others, who fetch it once they have seen this rank's post for `round`. There are
// two, for odd and even rounds: when it is published, all must have posted for the round before.
size_t fr_coll_slab_chunk_bytes(const struct fr_coll_slab *slab);
FR_MUST_CHECK enum fr_status fr_coll_slab_publish(struct fr_coll_slab *slab, uint64_t round,
                                                  const void *from, size_t bytes);
FR_MUST_CHECK enum fr_status fr_coll_slab_fetch(struct fr_coll_slab *slab, int rank, uint64_t round,
                                                void *to, size_t bytes);

// The post of a rank for a round.
struct fr_coll_post {
    const void *data;
    size_t bytes;
    // Below FR_ROUND_MARKS, 0 for none. Others need not read the post where all ranks have the same
    // mark.
    unsigned mark;
    bool meets; // the kernel that posts looks for the others' posts at once
    // Made if all are marked alike; NULL: none. Stays in place until the round was met. Its
    // delivery is made in any case, if the post has a mark.
    const struct fr_device_move *move;
    bool is_queued; // the kernel that posts is left under way
};

// Writes to *has_room whether there is room to post for `round`: all ranks have posted for a round
// not far before.
FR_MUST_CHECK enum fr_status fr_coll_slab_look_for_room(struct fr_coll_slab *slab, uint64_t round,
                                                        bool *has_room);

// Posts for `round`, which must follow the last and have room. Writes to *posted whether the post
// is over: one that is queued need not be, and the caller posts the same again, until it is. *done
// says whether the move was made; then the next round has been posted, marked. The copy before the
// move has been made in any case. With FR_COLL_SLAB_COPIED the copy after it has been made too,
// which needs the next round to be over. A move with a delivery is followed by no round:
// FR_COLL_SLAB_COMBINED. The copy before it has been made once posts are there.
enum fr_coll_slab_done {
    FR_COLL_SLAB_POSTED,
    FR_COLL_SLAB_MOVED,
    FR_COLL_SLAB_COPIED,
    FR_COLL_SLAB_COMBINED,
};
FR_MUST_CHECK enum fr_status fr_coll_slab_post(struct fr_coll_slab *slab, uint64_t round,
                                               const struct fr_coll_post *post, bool *posted,
                                               enum fr_coll_slab_done *done);

// Waits until a queued post of a round that is given up is no longer under way, which is soon.
void fr_coll_slab_rest(struct fr_coll_slab *slab);

// Writes to *met whether all ranks have posted for `round`, the last that this rank has posted.
// Fetches their posts unless they are marked alike. A look copies some words from the device,
// unless all is known.
FR_MUST_CHECK enum fr_status fr_coll_slab_look(struct fr_coll_slab *slab, uint64_t round,
                                               bool *met);

// How to wait between two looks. A look takes some microseconds, so a wait sleeps after about half
// a millisecond.
#define FR_COLL_SLAB_PACE                                                                          \
    {                                                                                              \
        .eager_yields = 100, .nap_ns = 50000                                                       \
    }

// Returns whether all ranks have marked their posts alike. For a round that all were seen to have
// posted for, until two rounds later.
bool fr_coll_slab_is_alike(const struct fr_coll_slab *slab, uint64_t round);

// Returns whether a rank has marked its post. For a round that all were seen to have posted for,
// until two rounds later.
bool fr_coll_slab_is_marked(const struct fr_coll_slab *slab, int rank, uint64_t round);

// Returns a rank's post, aligned to 64 bytes, which is there unless all are marked alike. For a
// round that all were seen to have posted for, until two rounds later.
const void *fr_coll_slab_read(const struct fr_coll_slab *slab, int rank, uint64_t round);

// Returns whether a rank was seen to have posted for a round when somebody last looked.
bool fr_coll_slab_has(const struct fr_coll_slab *slab, int rank, uint64_t round);

#endif
