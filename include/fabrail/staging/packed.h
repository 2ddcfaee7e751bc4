// SPDX-License-Identifier: BSD-3-Clause
// Views of one block whose bytes travel packed, whatever their datatype: where MPI puts the bytes,
// and copies between there and packed memory.
#ifndef FR_FABRAIL_STAGING_PACKED_H
#define FR_FABRAIL_STAGING_PACKED_H

#include "fabrail/staging/path.h"

// Returns whether the view has staging memory, which MPI gets in place of the program's.
static inline bool fr_staging_is_staged(const struct fr_staging_view *view)
{
    return view->lease.address != NULL;
}

// Returns whether the data stand in one piece where MPI has put them.
static inline bool fr_staging_is_packed(const struct fr_staging_view *view)
{
    return view->blocks[0].layout->contiguous ||
           (fr_staging_is_staged(view) && view->shape == FR_SHAPE_PACKED);
}

// Returns the address where MPI has put the first element.
static inline uintptr_t fr_staging_given_address(const struct fr_staging_view *view)
{
    if (fr_staging_is_staged(view))
        return view->stage_base + view->blocks[0].stage_offset;
    return view->base + (uintptr_t)view->blocks[0].user_offset;
}

// Returns the address of the first element, for a caller that writes more there than an RTS. The
// lease is not clean from then on.
static inline uintptr_t fr_staging_given_room(struct fr_staging_view *view)
{
    view->lease.is_clean = false;
    return fr_staging_given_address(view);
}

// Copies `bytes` between packed host memory and the host memory where MPI puts the view's data or
// takes them from. With `gather` it copies to packed memory, else from there.
void fr_staging_copy_on_host(const struct fr_staging_view *view, void *packed, size_t bytes,
                             bool gather);

// Copies `bytes` between packed host memory and `count` elements of a datatype in host memory,
// whose buffer argument is `shaped`. With `gather` it copies to packed memory, else from there.
void fr_staging_copy_shaped(const struct fr_layout *layout, size_t count, uintptr_t shaped,
                            void *packed, size_t bytes, bool gather);

// Gathers `bytes` into packed host memory from where MPI puts the view's data. Another thread may
// be writing there, so what this reads may be torn.
void fr_staging_peek_on_host(const struct fr_staging_view *view, void *packed, size_t bytes);

// Makes `into` a copy of a view that stages in the packed memory of `lease`, which stays the
// caller's. `block` is storage for its block and lives as long as `into`.
void fr_staging_view_at(const struct fr_staging_view *view, struct fr_staging_lease lease,
                        struct fr_staging_view *into, struct fr_staging_view_block *block);

// Starts the copy of bytes [first, last) of the packed data of a staged view. Unless the datatype
// is contiguous, both are multiples of an element's size.
void fr_staging_copy_slice(const struct fr_staging_view *view, enum fr_device_direction direction,
                           size_t first, size_t last, struct fr_device_batch *batch);

#endif
