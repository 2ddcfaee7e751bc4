// SPDX-License-Identifier: BSD-3-Clause
// Copies between the application's memory and workspace, for buffers of which peers reach a copy in
// workspace.
#ifndef FR_FABRAIL_COLL_COPIES_H
#define FR_FABRAIL_COLL_COPIES_H

#include "fabrail/device/barrier_kernel.h"

// Bytes at an address of a rank.
struct fr_coll_slot {
    uint64_t address;
    uint64_t bytes : 56;
    uint64_t layout : 8; // in which they lie, among those that the rank advertises; 0: without gaps
};
_Static_assert(sizeof(struct fr_coll_slot) == 16, "ranks post these");

// A copy between the application's memory and workspace on the same device.
struct fr_coll_copy {
    struct fr_device_range range;      // the application's memory
    struct fr_device_push_piece piece; // 0 bytes: there is none
    // Part of the workspace that is left out of the copy. This rank alone reads or writes it, and
    // does so in the application's memory.
    struct fr_coll_slot own;
};

// Returns whether the device that moves bytes can use the application's memory itself, so that
// bytes need not be copied.
static inline bool fr_coll_can_spare(const struct fr_coll_copy *copy,
                                     const struct fr_device_range *mover)
{
    const struct fr_device_range *range = &copy->range;
    return copy->piece.bytes > 0 && range->device == mover->device &&
           (range->context == mover->context || !range->context || !mover->context);
}

// Returns where the application has the byte that is copied to this address of workspace.
static inline uintptr_t fr_coll_source(const struct fr_coll_copy *in, uintptr_t address)
{
    return address - in->piece.dst + in->piece.src;
}

// Returns where the application gets the byte that is copied from this address of workspace.
static inline uintptr_t fr_coll_target(const struct fr_coll_copy *out, uintptr_t address)
{
    return address - out->piece.src + out->piece.dst;
}

// Begins a copy to workspace, or with `out` from workspace. Returns false where there is none, else
// the caller waits for `work`. `is_synced`: the program's work on its memory is over.
FR_MUST_CHECK bool fr_coll_copy_begin(const struct fr_coll_copy *copy, bool out, bool is_synced,
                                      struct fr_device_work *work);

// Has the kernel that makes a move make the copy as well. Returns false where it cannot.
bool fr_coll_copy_plan(const struct fr_coll_copy *copy, bool out, struct fr_device_move *move);

#endif
