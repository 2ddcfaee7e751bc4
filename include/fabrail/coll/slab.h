// SPDX-License-Identifier: BSD-3-Clause
// Agreement in device memory, for ranks whose GPUs reach each other across hosts: each has a slab
// of fabric memory, which all others map and in which each has room for its posts.
//
// It works in rounds as a segment does (segment.h). A rank's post is stored to the slabs of all,
// and after it a word that says so. A kernel does that, and looks for the words of the others in
// the own slab for some microseconds; for whoever comes later the host looks, by copies of these
// words. No MPI message is sent. A rank's post for a round says that
// it has no need of those of two rounds before and earlier, so that nobody has to be told.
//
// Where all ranks are found to have marked their posts alike, the kernel may go on: it moves bytes,
// posts for the next round, with FR_COLL_SLAB_WELL, and waits for that.
//
// One thread at a time uses one slab. All ranks must have mapped before any posts.
#ifndef FR_FABRAIL_COLL_SLAB_H
#define FR_FABRAIL_COLL_SLAB_H

#include "fabrail/device/barrier_kernel.h"
#include "fabrail/ipc.h"

struct fr_coll_slab;

enum { FR_COLL_SLAB_DEPTH = 8, FR_COLL_SLAB_WELL = 1 };

// Makes this rank's slab on a device, and writes what the others need to map it. FR_ERR_UNSUPPORTED
// where memory of the device cannot be had for other hosts. Closed with fr_coll_slab_close.
FR_MUST_CHECK enum fr_status fr_coll_slab_make(int device, int rank, int size, size_t post_bytes,
                                               struct fr_coll_slab **slab,
                                               struct fr_ipc_handle *handle);

// Maps the slabs of all ranks. The outcome is this rank's own: the caller has all ranks agree on it
// before use.
FR_MUST_CHECK enum fr_status fr_coll_slab_map(struct fr_coll_slab *slab,
                                              const struct fr_ipc_handle *handles);

// For this rank alone; NULL is accepted. Others may still post: what they have mapped stays theirs.
void fr_coll_slab_close(struct fr_coll_slab *slab);

// What a rank posts for a round.
struct fr_coll_post {
    const void *data;
    size_t bytes;
    unsigned mark; // below FR_ROUND_MARKS; not 0: where all have the same, others need not read it
    bool meets;    // the kernel that posts looks for the others at once
    const struct fr_device_move *move; // which it makes if it finds all marked alike; NULL: none
};

// Whether there is room to post for `round`: whether all ranks have posted for a round not far
// before.
FR_MUST_CHECK enum fr_status fr_coll_slab_look_for_room(struct fr_coll_slab *slab, uint64_t round,
                                                        bool *has_room);

// Posts for `round`, which must follow the last and have room. *done says whether the move was
// made; then the next round has been posted, marked. The copy before the move has been made in any
// case; that after it not until the next round is over as well.
enum fr_coll_slab_done { FR_COLL_SLAB_POSTED, FR_COLL_SLAB_MOVED, FR_COLL_SLAB_COPIED };
FR_MUST_CHECK enum fr_status fr_coll_slab_post(struct fr_coll_slab *slab, uint64_t round,
                                               const struct fr_coll_post *post,
                                               enum fr_coll_slab_done *done);

// Looks whether all ranks have posted for `round`, the last that this one has posted, and gets
// their posts where they are not alike. A look takes a copy of some words, unless all is known.
FR_MUST_CHECK enum fr_status fr_coll_slab_look(struct fr_coll_slab *slab, uint64_t round,
                                               bool *met);

// How to wait between two looks: a look takes some microseconds, so a wait sleeps after half a
// millisecond or so.
#define FR_COLL_SLAB_PACE                                                                          \
    {                                                                                              \
        .eager_yields = 100, .nap_ns = 50000                                                       \
    }

// Of a round that all have been seen to have posted for, and until two rounds later: whether a rank
// has marked its post, whether all have, alike, and the post, aligned to 64 bytes, which is there
// unless they have.
bool fr_coll_slab_is_alike(const struct fr_coll_slab *slab, uint64_t round);
bool fr_coll_slab_is_marked(const struct fr_coll_slab *slab, int rank, uint64_t round);
const void *fr_coll_slab_read(const struct fr_coll_slab *slab, int rank, uint64_t round);

// Whether a rank was seen to have posted for a round when somebody last looked.
bool fr_coll_slab_has(const struct fr_coll_slab *slab, int rank, uint64_t round);

#endif
