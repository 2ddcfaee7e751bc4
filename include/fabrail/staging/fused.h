// SPDX-License-Identifier: BSD-3-Clause
// Copies by kernel from memory that a device reaches, such as a peer's, straight into the memory of
// a view: from one layout into another, in one launch.
#ifndef FR_FABRAIL_STAGING_FUSED_H
#define FR_FABRAIL_STAGING_FUSED_H

#include "fabrail/staging/path.h"

// One copy. The view has one block, and the device of its range reaches the source.
struct fr_staging_fused {
    const struct fr_staging_view *view;
    const struct fr_pack_shape *far; // of the source; NULL: the source is packed
    uintptr_t far_table; // that of `far`, in memory that the device reaches; 0: there is none
    bool are_alike;      // `far` is the shape of the view's own layout
    uintptr_t source;    // from which offsets of `far` count; else the address of byte `first`
    size_t first, last;  // packed bytes [first, last) are copied
    const struct fr_pack_gate *gate; // what a copy from a packed source waits for; NULL: nothing
};

// Returns whether kernels can write a view's memory, whatever its datatype.
bool fr_staging_fuses(const struct fr_staging_view *view);

// Starts a copy to a view that kernels can write. Either the view's datatype has gaps, or the
// source has. Returns false, with nothing started, if the kernel could not be launched. Other
// failures are kept in the batch.
bool fr_staging_fuse(const struct fr_staging_fused *fused, struct fr_device_batch *batch);

#endif
