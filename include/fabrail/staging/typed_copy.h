// SPDX-License-Identifier: BSD-3-Clause
// Copies by kernel between a datatype of many blocks in device memory and the staging memory of a
// view.
#ifndef FR_FABRAIL_STAGING_TYPED_COPY_H
#define FR_FABRAIL_STAGING_TYPED_COPY_H

#include "fabrail/staging/path.h"

// One copy: the first `bytes` bytes of `count` elements.
struct fr_staging_packing {
    const struct fr_staging_view *view;
    const struct fr_layout *layout;
    size_t count;
    size_t bytes;
    uintptr_t user;  // the first element in the program's memory
    uintptr_t stage; // the first element in the staging memory
    enum fr_device_direction direction;
};

// Counts the pieces of a copy of `bytes` bytes between `count` elements of a layout and packed
// memory, or memory with the same gaps. Stops beyond `most_calls` calls of the driver.
struct fr_policy_pieces fr_staging_count_pieces(const struct fr_layout *layout, size_t count,
                                                bool packed, size_t bytes, size_t most_calls);

// Ways of copying data with gaps.
enum fr_staging_way { FR_TYPED_BY_KERNEL, FR_TYPED_BY_DRIVER, FR_TYPED_BY_CPU, FR_TYPED_WAYS };

// Starts the copy in whatever way is the fastest: by a kernel, by few copies of the driver if the
// blocks are long, and without kernels by the CPU or by batches of copies. The number of driver
// calls is then a small part of the number of blocks. Failures stay in the batch.
void fr_staging_copy_elements(const struct fr_staging_packing *packing,
                              struct fr_device_batch *batch);

// Returns whether one kernel is going to copy block `index` of a view to its staging memory. It is
// not if the launch then fails.
bool fr_staging_packs_by_kernel(const struct fr_staging_view *view, size_t index);

// Counts of data with gaps that this process has copied so far, by each way. The values are not of
// one moment.
struct fr_staging_typed {
    uint64_t copies, bytes;
};
void fr_staging_get_typed(struct fr_staging_typed typed[FR_TYPED_WAYS]);
// Counts one such copy.
void fr_staging_count_typed(enum fr_staging_way way, size_t bytes);

#endif
