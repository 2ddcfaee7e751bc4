// SPDX-License-Identifier: BSD-3-Clause
// Layout of a part of a slab. First come words, [round % depth][rank]: the round that the rank has
// posted for last of those, and the mark of the post (fabrail/device/round.h). Then come the same
// words again for posts that are there, and then the posts in the same order. Behind them is what
// the blocks of a kernel tell each other, a word of each rank that has left the part, and for even
// and odd rounds the words of each rank for the parts of a delivery. Then come the rank's own
// chunks, which the others read, and its inboxes, to which the others deliver. A part of few ranks
// has room as for all of the slab, so that words of one use never stand where another use has
// posts.
//
// Some of the positions have longer inboxes, which are behind all parts.
//
// Host memory mirrors what was read of the rank's own part, but for chunks and inboxes. It also
// holds what this rank posts until the device has it. Each position has its own, which is
// page-locked when a part first posts there, and stays so for later parts. So parts that are never
// used cost none. Where it cannot be page-locked, copy engines do what kernels would.
//
// A rank overwrites what it posted FR_COLL_SLAB_DEPTH rounds before, so all ranks must have read
// that. A rank that has posted for the round after it has read it.
#ifndef FR_COLL_SLAB_INT_H
#define FR_COLL_SLAB_INT_H

#include "fabrail/coll/slab.h"

// A slab's memory, which its parts share. The last part that is closed frees it.
struct fr_coll_slab_memory {
    _Atomic unsigned open;           // parts
    int size;                        // of the ranks that have mapped each other's slabs
    unsigned parts;                  // of the slab
    bool all_have_long;              // the slabs of all ranks have long inboxes, at the same places
    struct fr_device_memory own;     // the slab that others post to
    uint64_t context_id;             // of the context in which it and the mappings are
    struct fr_ipc_mapping *mappings; // by rank of those, as the next ones
    struct fr_ipc_handle *handles;
    uint64_t *addresses;     // of all slabs, where this device sees them
    unsigned char *host;     // host memory of all positions; NULL: none yet
    size_t host_bytes;       // of one position, whole pages
    _Atomic uint32_t locked; // a bit for each position whose host memory is page-locked
    struct fr_lock lock;     // guards the next two
    uint32_t busy;           // a bit for each position that this rank uses or offers
    uint32_t uses;           // at least the number of each use of a position
    // The last use of each position, once this rank has left it. The others may store there until
    // they have left it too. Belongs to the thread that has made the position busy.
    struct fr_coll_slab_use {
        uint64_t word; // by which a rank says that it has left; 0: all have
        int *members;
        int size;
    } last[FR_COLL_SLAB_PARTS];
};

// One part of this rank's slab.
struct fr_coll_slab {
    struct fr_coll_slab_memory *memory;
    int rank;
    int size;
    int *members;          // ranks of the slab, by rank of the part
    size_t slot_bytes;     // of one post
    size_t row_bytes;      // of a row of words
    size_t given_offset;   // of the second row of words
    size_t posts_offset;   // behind these
    size_t control_offset; // behind the posts
    size_t left_offset;    // of the words of ranks that have left
    size_t parts_offset;   // of the words for parts of a delivery
    size_t bytes;          // of all these
    size_t chunk_bytes;    // of each of the chunks, which follow
    size_t inbox_offset;   // behind these, or behind all parts
    size_t inbox_bytes;    // of each inbox
    size_t delivery_bytes; // most that a rank delivers to another one
    size_t part_bytes;     // from one part to the next
    unsigned position;     // of the part in the slab
    bool has_position;
    uint64_t at;                         // address of this part
    struct fr_device_range range;        // the slab's memory, as a driver describes it
    uint64_t *addresses;                 // of this part of the members' slabs
    struct fr_device_push_piece *pieces; // scratch, one a rank
    unsigned char *mirror;               // laid out as the part
    // This rank's posts, [round % depth], then their words, then those for parts of a delivery.
    unsigned char *posting;
    bool is_ready;                     // it was tried to page-lock these
    bool has_kernels;                  // as far as is known
    bool shares;                       // some ranks use the same device
    struct fr_device_barrier barrier;  // of the round after `posted`, while it is under way
    bool is_forsaken;                  // the device may still write for a wait that has failed
    uint64_t first;                    // the rounds of this use of the part follow this one
    uint64_t posted;                   // last round of this rank
    unsigned delivered_parts;          // in that round, while they are to be combined
    const struct fr_device_move *kept; // whose copies come before the post is given; or NULL
    size_t posted_bytes;               // of its post
    uint64_t given;                    // last round for which all ranks have this rank's post
    uint64_t complete;                 // all ranks are known to have posted up to here
    uint64_t wanted;                   // last round whose posts were asked for
    uint64_t taken;                    // last round whose posts are all in the mirror
};

enum { FR_COLL_SLAB_CHUNKS = 2 }; // of a rank, which it publishes in turn

enum { FR_COLL_SLAB_INBOXES = 2 }; // for even and odd rounds

enum { FR_COLL_SLAB_PART_WORDS_BYTES = FR_ROUND_PARTS * sizeof(uint64_t) }; // of each rank

// Finds the inboxes of a part's position, and divides them among its ranks.
void fr_coll_slab_inbox_place(struct fr_coll_slab *slab);

// Copies some bytes of this rank's part to the mirror.
FR_MUST_CHECK enum fr_status fr_coll_slab_copy_in(struct fr_coll_slab *slab, size_t offset,
                                                  size_t bytes);

// Returns whether the slab is there still. A device that is reset loses it, and what is mapped: a
// kernel that went on would spoil the program's new context.
static inline bool fr_coll_slab_is_there(const struct fr_coll_slab *slab)
{
    return fr_device_context_id(&slab->range) == slab->memory->context_id;
}

// Waits for work. If that fails, the device may be at it still.
FR_MUST_CHECK enum fr_status fr_coll_slab_end_work(struct fr_coll_slab *slab,
                                                   struct fr_device_work *work);

// Stores the same bytes to all slabs. Each rank begins with another one.
FR_MUST_CHECK enum fr_status fr_coll_slab_store(struct fr_coll_slab *slab, const void *from,
                                                size_t offset, size_t bytes);

// Copies by a copy engine, to or from host memory that need not be page-locked.
FR_MUST_CHECK enum fr_status fr_coll_slab_copy(struct fr_coll_slab *slab, uint64_t to,
                                               uint64_t from, size_t bytes);

// Allocates what each part has of its own.
FR_MUST_CHECK enum fr_status fr_coll_slab_part_allocate(struct fr_coll_slab *slab);

// Allocates host memory for all positions. It takes room once it is used.
FR_MUST_CHECK enum fr_status fr_coll_slab_host_allocate(struct fr_coll_slab *slab);
void fr_coll_slab_host_free(struct fr_coll_slab_memory *memory);

// Page-locks the host memory of a part, unless this was tried before.
void fr_coll_slab_host_lock(struct fr_coll_slab *slab);

static inline bool fr_coll_slab_host_is_locked(const struct fr_coll_slab *slab, unsigned position)
{
    const _Atomic uint32_t *locked = &slab->memory->locked;
    return atomic_load_explicit(locked, memory_order_relaxed) & UINT32_C(1) << position;
}

// Notes whether some ranks of a part use the same device.
void fr_coll_slab_part_compare(struct fr_coll_slab *slab);

// Leaves the position of a part, if it has one. With `notifies` the other ranks hear of that.
void fr_coll_slab_part_leave(struct fr_coll_slab *slab, bool notifies);

#endif
