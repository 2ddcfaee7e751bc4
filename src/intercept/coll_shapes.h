// SPDX-License-Identifier: BSD-3-Clause
// The layouts of a buffer of an exchange whose slices have gaps. Kernels move the slices from one
// rank's layout straight into the other's.
#ifndef FR_INTERCEPT_COLL_SHAPES_H
#define FR_INTERCEPT_COLL_SHAPES_H

#include "fabrail/coll/agree.h"
#include "fabrail/staging/path.h"
#include "fabrail/staging/tables.h"

// The layout of one block of a view. Without a shape the block has no gaps. The shape begins where
// the block's first byte is, so that others need not know its offset.
struct fr_intercept_block_shape {
    struct fr_pack_shape shape;
    ptrdiff_t offset;               // of that byte from the block
    struct fr_device_shaped side;   // but for the address
    struct fr_staging_table *table; // that is borrowed for it, or NULL
    unsigned layout;                // its number among those that others get
};

// The layouts of one buffer. Zeros: kernels see no gaps in it.
struct fr_intercept_shapes {
    size_t block_count;
    struct fr_intercept_block_shape *blocks; // of the view
    struct fr_device_shaped *by_rank;        // of each rank's slice
    struct fr_device_strides layouts[FR_COLL_LAYOUTS];
    unsigned layout_count;
};

// Gets the layouts of a measured view ready, whose slices are for `ranks` ranks. `is_written`:
// other ranks write to the view, so they get its layouts, which must be levels of strides alone.
// Returns false where the slices must be packed, and there is nothing to close then.
bool fr_intercept_shapes_open(struct fr_intercept_shapes *shapes,
                              const struct fr_staging_view *view, int ranks, bool is_written);

// Gives tables and memory back. Layouts that were never opened are accepted.
void fr_intercept_shapes_close(struct fr_intercept_shapes *shapes);

// Gives a rank's slot, which begins with an element of this block, the layout of the block.
void fr_intercept_shapes_place(struct fr_intercept_shapes *shapes, int rank, size_t block,
                               struct fr_coll_slot *slot);

#endif
