// SPDX-License-Identifier: BSD-3-Clause
// Staging of a call's buffers: the memory that the real MPI gets in place of the program's, and the
// copies between the two. With path host the real MPI works on page-locked host memory, with path
// fabric on fabric-allocated device memory. With path peer other processes work on device memory
// that they can map.
#ifndef FR_FABRAIL_STAGING_PATH_H
#define FR_FABRAIL_STAGING_PATH_H

#include "fabrail/datatype.h"
#include "fabrail/device/classify.h"
#include "fabrail/policy.h"
#include "fabrail/staging.h"

// One block of a view: `count` elements of one datatype at an offset from the view's base, for
// example what one rank gets in an alltoallv.
struct fr_staging_view_block {
    ptrdiff_t user_offset; // bytes from the view's base to the first element
    size_t count;
    size_t stage_offset; // bytes from the view's stage_base to the first element's origin
    const struct fr_layout *layout;
    bool in;  // the call reads it: copied before
    bool out; // the call writes it: copied back after
};

// Shape of the bytes in the staging memory.
enum fr_staging_shape {
    FR_SHAPE_SAME,   // as in the program's memory: counts, types and displacements stay
    FR_SHAPE_PACKED, // without gaps: MPI gets each layout's packed type and new displacements
};

// A view: one buffer argument of one call, with its datatype and its range. Its blocks belong to
// the operation that holds the view.
struct fr_staging_view {
    // Looks for messages read these of each receive, in one line of the cache.
    uintptr_t base; // the program's pointer; offsets add to it with wrap-around
    struct fr_staging_view_block *blocks;
    ptrdiff_t first; // offset of the first byte used
    size_t out_bytes;
    enum fr_policy_path path;
    enum fr_staging_shape shape;
    uintptr_t stage_base; // where MPI finds what the program has at base
    struct fr_staging_lease lease;

    size_t span;     // bytes from the first to the last byte used; 0 when there is no data
    size_t in_bytes; // data copied in and out, of which out_bytes is the rest
    size_t block_count;
    unsigned arg;  // position in the call's arguments
    bool realigns; // in the same shape, the first byte is aligned whatever the program's address
    bool same_shape_only; // a reduction: MPI, or a user's function, must see the true datatype
    // MPI_BOTTOM: the blocks' addresses need not lie together. Once the view is measured they do
    // not lie in one allocation of device memory.
    bool absolute;
    bool as_bytes;    // MPI sees packed bytes, and any number of them can arrive
    bool expects_rts; // mostly an RTS arrives and no data, so address space suffices
    bool mixed;       // absolute, and not all of it is device memory of the range's device
    bool on_host;     // none of it is device memory, though its staging memory is
    size_t nudge;     // bytes by which the data stand further back in the staging memory; see open
    struct fr_device_range range; // what the driver says of the memory
};

// Gets staging memory by the view's path, which is host, fabric or peer, and sets shape, lease,
// stage_base and each block's stage_offset. Offsets count from stage_base, so two views can get the
// same one though their bytes lie apart. An MPI may take that for a call in place; the caller then
// opens one of them again with a nudge.
FR_MUST_CHECK enum fr_status fr_staging_view_open(struct fr_staging_view *view);

// Starts the copies of an open view to the staging memory, before the call.
void fr_staging_view_copy_in(const struct fr_staging_view *view, struct fr_device_batch *batch);

// Starts the copies back to the program's memory, after the call. Copies a packed prefix of
// limit_bytes; SIZE_MAX means everything.
void fr_staging_view_copy_out(const struct fr_staging_view *view, size_t limit_bytes,
                              struct fr_device_batch *batch);

// Copies elements [first, first + count) of the view's only block, for partitioned operations.
void fr_staging_view_copy_part(const struct fr_staging_view *view, size_t first, size_t count,
                               enum fr_device_direction direction, struct fr_device_batch *batch);

// Returns the staging memory. Called once for each successful open.
void fr_staging_view_close(struct fr_staging_view *view);

// Computes first, span, in_bytes and out_bytes from the blocks, then asks the driver for the range.
// Called once the blocks are complete.
void fr_staging_view_measure(struct fr_staging_view *view);

// Measures all views of a call.
void fr_staging_views_measure(struct fr_staging_view *views, size_t count);

// Returns whether all of the view lies in the memory that its range describes. A kernel of that
// device need not reach what lies beyond.
static inline bool fr_staging_view_is_in_range(const struct fr_staging_view *view)
{
    uintptr_t offset = view->base + (uintptr_t)view->first - view->range.base;
    return offset <= view->range.bytes && view->span <= view->range.bytes - offset;
}

// Returns whether the view's data stand in one piece inside of its range, so that they can be moved
// without packing.
bool fr_staging_view_is_in_one_piece(const struct fr_staging_view *view);

#endif
