// SPDX-License-Identifier: BSD-3-Clause
// Copies between two buffers of the application on one device, for data that a process sends to
// itself. Each side has a datatype of its own.
#ifndef FR_FABRAIL_STAGING_OWN_COPY_H
#define FR_FABRAIL_STAGING_OWN_COPY_H

#include "fabrail/staging/path.h"

// Elements of a datatype in the application's memory.
struct fr_staging_elements {
    const struct fr_layout *layout;
    size_t count;
    uintptr_t address; // of the first element
};

// One copy of `bytes` bytes, which are whole elements or fewer on either side.
struct fr_staging_own_copy {
    struct fr_staging_elements from, to;
    size_t bytes;
};

// Returns whether one device can copy from the memory of one measured view to that of another.
bool fr_staging_can_copy_own(const struct fr_staging_view *from, const struct fr_staging_view *to);

// Makes all copies from the memory of one view to that of another, and waits. The two views pass
// fr_staging_can_copy_own, and the bytes that are written overlap with no others. Without kernels,
// data with gaps on both sides go through workspace of the device, or through host memory where
// that is full.
FR_MUST_CHECK enum fr_status fr_staging_copy_own(const struct fr_staging_view *source,
                                                 const struct fr_staging_view *target,
                                                 const struct fr_staging_own_copy *copies,
                                                 size_t count);

// Makes a copy as fr_staging_copy_own does, but by a kernel or not at all. At least one side has a
// datatype that is not contiguous. Returns FR_ERR_UNSUPPORTED, with nothing done, where no kernel
// can be launched.
FR_MUST_CHECK enum fr_status fr_staging_copy_own_fused(const struct fr_staging_view *source,
                                                       const struct fr_staging_view *target,
                                                       const struct fr_staging_own_copy *copy);

#endif
