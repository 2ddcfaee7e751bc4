// SPDX-License-Identifier: BSD-3-Clause
// Rounds of posts in device memory (round.h), by one kernel each, which can move bytes as well: a
// push or a reduction between the meeting of all ranks and the next.
#ifndef FR_FABRAIL_DEVICE_BARRIER_KERNEL_H
#define FR_FABRAIL_DEVICE_BARRIER_KERNEL_H

#include "fabrail/device/reduce.h"
#include "fabrail/device/round.h"

// What is moved where all ranks have come with marked words.
struct fr_device_move {
    const struct fr_device_range *range; // of the device and context that move it; NULL for nothing
    const struct fr_device_push_piece *pieces;
    size_t count;
    const struct fr_device_reduction *reduction; // in place of pieces, else NULL
    unsigned max_sms;                            // as in fr_device_push

    // Copies within the device: of what is to be moved, which is made in any case, and of what has
    // been moved by all. Both sides are memory of the context of `range`, and quiet. 0 bytes: none.
    struct fr_device_push_piece before[FR_ROUND_COPIES], after[FR_ROUND_COPIES];
};

// Whether a kernel makes such a copy.
static inline bool fr_device_barrier_kernel_copies(const struct fr_device_push_piece *copy)
{
    return (copy->dst ^ copy->src) % FR_ROUND_UNIT_BYTES == 0;
}

// Runs a round, and waits for the kernel, which ends soon. `round` says all but `answer` and
// `value`; its next_word counts where there is a move. `slabs` are addresses by rank, where
// `range`, the slab's own, and that of the move see them. Writes FR_ROUND_* bits to *how.
// FR_ERR_UNSUPPORTED: there are no kernels, or it is more than they take, and nothing has been
// posted. After another failure it may have been.
FR_MUST_CHECK enum fr_status fr_device_barrier_kernel_run(const struct fr_device_range *range,
                                                          const struct fr_round *round,
                                                          const uint64_t *slabs,
                                                          const struct fr_device_move *move,
                                                          unsigned *how);

#endif
