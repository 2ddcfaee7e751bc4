// SPDX-License-Identifier: BSD-3-Clause
// Views of one block whose bytes travel packed, whatever their datatype
// only.
#ifndef FR_FABRAIL_STAGING_PACKED_H
#define FR_FABRAIL_STAGING_PACKED_H

#include "fabrail/staging/path.h"

static inline bool fr_staging_is_staged(const struct fr_staging_view *view)
{
    return view->lease.address != NULL;
}

// Whether the data stand in one piece where MPI has put them.
static inline bool fr_staging_is_packed(const struct fr_staging_view *view)
{
    return view->blocks[0].layout->contiguous ||
           (fr_staging_is_staged(view) && view->shape == FR_SHAPE_PACKED);
}

// Where MPI has put the first element.
static inline uintptr_t fr_staging_given_address(const struct fr_staging_view *view)
{
    if (fr_staging_is_staged(view))
        return view->stage_base + view->blocks[0].stage_offset;
    return view->base + (uintptr_t)view->blocks[0].user_offset;
}

// Returns the address as fr_staging_given does, of memory to be filled with more than an RTS.
static inline uintptr_t fr_staging_given_room(struct fr_staging_view *view)
{
    view->lease.is_clean = false;
    return fr_staging_given_address(view);
}

// Copies `bytes` between packed memory of the host and where MPI has put the view's data, or takes
// them from, on the host as well: to packed memory (`gather`) or from there.
void fr_staging_copy_on_host(const struct fr_staging_view *view, void *packed, size_t bytes,
                             bool gather);

// As a gather of that, from memory that another thread may be writing. What it reads may be torn.
void fr_staging_peek_on_host(const struct fr_staging_view *view, void *packed, size_t bytes);

// Makes `into` a copy of a view that stages in packed memory, which is somebody else's: `block` is
// its storage.
void fr_staging_view_at(const struct fr_staging_view *view, struct fr_staging_lease lease,
                        struct fr_staging_view *into, struct fr_staging_view_block *block);

// Starts the copy of bytes [first, last) of the packed data of a staged view. Unless the datatype
// is contiguous, both are at elements.
void fr_staging_copy_slice(const struct fr_staging_view *view, enum fr_device_direction direction,
                           size_t first, size_t last, struct fr_device_batch *batch);

#endif
