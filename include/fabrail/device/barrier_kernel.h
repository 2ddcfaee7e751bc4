// SPDX-License-Identifier: BSD-3-Clause
// A round of posts in device memory (round.h), done by one kernel. Between the meeting of all ranks
// and the next, the kernel can also move bytes by a push or a reduction.
#ifndef FR_FABRAIL_DEVICE_BARRIER_KERNEL_H
#define FR_FABRAIL_DEVICE_BARRIER_KERNEL_H

#include "fabrail/device/reduce.h"
#include "fabrail/device/round.h"

// The bytes that a kernel delivers to the slabs of other ranks before it posts (round.h). It then
// combines what has come to its own slab, or nothing, and needs no other rank for that.
struct fr_device_delivery {
    bool is_made;
    uintptr_t from; // of the bytes for rank 0
    size_t stride;  // from the bytes for one rank to those for the next
    size_t bytes;   // for each rank
    unsigned first; // ranks from this one to the one before `end` get some
    unsigned end;
    // Alike on all ranks: parts, and units of each but the last. One part, or as many as cover the
    // units of a reduction that has a few single elements besides. Pieces are for one part.
    unsigned parts;
    unsigned part_units;
};

// Spans of the memory of one move.
enum { FR_DEVICE_SPANS = 4 };

// Waits for the program's work on all spans, as fr_device_sync_app_work does for one. Returns the
// first failure.
FR_MUST_CHECK enum fr_status
fr_device_spans_sync_app_work(const struct fr_device_span spans[FR_DEVICE_SPANS]);

// The bytes that a kernel moves once all ranks have come with words that have the same mark.
struct fr_device_move {
    const struct fr_device_range *range; // names the device and context that move; NULL: none
    const struct fr_device_push_piece *pieces;
    size_t count;
    const struct fr_device_reduction *reduction; // in place of pieces, else NULL
    unsigned max_sms;                            // as in fr_device_push
    bool is_synced; // the program's work on its side of the pieces is over, else it is waited for

    // Other memory of the program that the kernel or other ranks use. The program's work on it is
    // waited for before they do.
    struct fr_device_span unsynced[FR_DEVICE_SPANS];

    struct fr_device_delivery delivery;

    // Copies within the device: `before` prepares what is to be moved, and `after` takes what all
    // ranks have moved. Both sides are memory of the context of `range` that nothing else uses
    // meanwhile. 0 bytes: none. `before` is made in any case, but with a delivery only where words
    // differ, before the post is there.
    struct fr_device_push_piece before[FR_ROUND_COPIES], after[FR_ROUND_COPIES];
};

// Returns whether a kernel can make this copy: both sides must be alike aligned to
// FR_ROUND_UNIT_BYTES.
static inline bool fr_device_barrier_kernel_copies(const struct fr_device_push_piece *copy)
{
    return (copy->dst ^ copy->src) % FR_ROUND_UNIT_BYTES == 0;
}

// A round that a kernel does. The caller owns the storage. `stream` is NULL while none is under
// way; all other fields are this module's.
struct fr_device_barrier {
    struct fr_device_range range; // names the context of the kernel
    struct fr_device_kernels *kernels;
    struct fr_device_stream *stream;
    struct fr_round round;
    int slot;         // of the words by which the kernel answers
    unsigned answers; // of blocks
    unsigned looks;   // that found no answer
};

// Launches the kernel of a round. It ends soon, whatever other ranks do.
//
// The caller fills all of `round` but `answer` and `value`. `next_word` and `delivers` count only
// where there is a move. `slabs` are addresses by rank, as seen from `range`, which is the slab's
// own, and from the range of the move.
//
// Returns FR_ERR_UNSUPPORTED where there are no kernels or the round is more than they take;
// nothing has been posted then. After any other failure the round may have been posted.
FR_MUST_CHECK enum fr_status fr_device_barrier_begin(const struct fr_device_range *range,
                                                     const struct fr_round *round,
                                                     const uint64_t *slabs,
                                                     const struct fr_device_move *move,
                                                     struct fr_device_barrier *barrier);

// Writes to *over whether the kernel has ended; with `waits` the call waits until it has. Once it
// has ended, *how gets FR_ROUND_* bits, and nothing is under way any more. A failure ends the
// round, too. With FR_ROUND_UNDONE the caller begins the round again. Any thread may call it, one
// at a time.
FR_MUST_CHECK enum fr_status fr_device_barrier_look(struct fr_device_barrier *barrier, bool waits,
                                                    bool *over, unsigned *how);

#endif
