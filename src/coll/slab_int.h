// SPDX-License-Identifier: BSD-3-Clause
// Layout of a part of a slab. First come words, [round % depth][rank]: the round that the rank has
// posted for last of those, and the mark of the post (fabrail/device/round.h). Then come the same
// words again for posts that are there, and then the posts in the same order. Behind them is what
// the blocks of a kernel tell each other, and then the rank's own chunks, which the others read.
//
// Page-locked host memory mirrors what was read of the rank's own part, but for the chunks. It also
// holds what this rank posts until the device has it.
//
// A rank overwrites what it posted FR_COLL_SLAB_DEPTH rounds before, so all ranks must have read
// that. A rank that has posted for the round after it has read it.
#ifndef FR_COLL_SLAB_INT_H
#define FR_COLL_SLAB_INT_H

#include "fabrail/coll/slab.h"

// One part of this rank's slab. The first part owns the memory, and the mappings of the others'.
struct fr_coll_slab {
    struct fr_coll_slab *whole; // the first part; NULL in that itself
    int rank;
    int size;
    size_t slot_bytes;               // of one post
    size_t given_offset;             // of the second row of words
    size_t posts_offset;             // behind these
    size_t control_offset;           // behind the posts
    size_t bytes;                    // of all these
    size_t chunk_bytes;              // of each of the chunks, which follow
    size_t part_bytes;               // from one part to the next
    unsigned parts;                  // of the slab
    struct fr_device_memory own;     // the slab that others post to; in the first part alone
    uint64_t at;                     // address of this part
    struct fr_device_range range;    // the slab's memory, as a driver describes it
    struct fr_ipc_mapping *mappings; // by rank; in the first part alone, as the next ones
    struct fr_ipc_handle *handles;
    uint64_t *addresses;                 // of this part of all slabs, where this device sees them
    struct fr_device_push_piece *pieces; // scratch, one a rank
    unsigned char *mirror;               // laid out as the part
    unsigned char *posting;              // this rank's posts, [round % depth], then their words
    size_t host_bytes;                   // of mirror and posting
    bool page_locked;
    bool has_kernels;                 // as far as is known
    bool shares;                      // some ranks use the same device
    struct fr_device_barrier barrier; // of the round after `posted`, while it is under way
    uint64_t first;                   // the rounds of this use of the part follow this one
    uint64_t posted;                  // last round of this rank
    size_t posted_bytes;              // of its post
    uint64_t given;                   // last round for which all ranks have this rank's post
    uint64_t complete;                // all ranks are known to have posted up to here
    uint64_t wanted;                  // last round whose posts were asked for
    uint64_t taken;                   // last round whose posts are all in the mirror
};

enum { FR_COLL_SLAB_CHUNKS = 2 }; // of a rank, which it publishes in turn

// Copies some bytes of this rank's part to the mirror.
FR_MUST_CHECK enum fr_status fr_coll_slab_copy_in(struct fr_coll_slab *slab, size_t offset,
                                                  size_t bytes);

// Stores the same bytes to all slabs. Each rank begins with another one.
FR_MUST_CHECK enum fr_status fr_coll_slab_store(struct fr_coll_slab *slab, const void *from,
                                                size_t offset, size_t bytes);

#endif
