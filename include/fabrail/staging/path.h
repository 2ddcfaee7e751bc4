// SPDX-License-Identifier: BSD-3-Clause
// Module staging: the memory that the real MPI gets in place of the application's, and the copies
// between the two. One row of operations a path; fabric, peer and rail join as further rows.
#ifndef FR_FABRAIL_STAGING_PATH_H
#define FR_FABRAIL_STAGING_PATH_H

#include "fabrail/datatype.h"
#include "fabrail/device/classify.h"
#include "fabrail/policy.h"
#include "fabrail/staging.h"

// `count` elements of one datatype at an offset from the view's base, for example what one rank
// gets in an alltoallv.
struct fr_staging_view_block {
    ptrdiff_t user_offset; // bytes from the view's base to the first element
    size_t count;
    size_t stage_offset; // bytes from the view's stage_base to the first element's origin
    const struct fr_layout *layout;
    bool in;  // the call reads it: copied before
    bool out; // the call writes it: copied back after
};

// How the bytes lie in the staging memory.
enum fr_staging_shape {
    FR_SHAPE_SAME,   // as in the application's memory, so counts, types and displacements stay
    FR_SHAPE_PACKED, // without gaps, so MPI gets each layout's packed type and new displacements
};

// One buffer argument of one call. Blocks belong to the operation that holds the view.
struct fr_staging_view {
    uintptr_t base; // the application's pointer; offsets add to it with wrap-around
    unsigned arg;   // position in the call's arguments
    struct fr_staging_view_block *blocks;
    size_t block_count;
    bool same_shape_only; // a reduction: MPI, or a user's function, must see the true datatype
    bool absolute;        // MPI_BOTTOM: the blocks' addresses need not lie together
    bool as_bytes;        // MPI sees packed bytes, of which any number can come
    bool expects_rts;     // what comes is hardly ever more than that: address space will do

    ptrdiff_t first; // offset of the first byte used
    size_t span;     // bytes from the first to the last byte used; 0 when there is no data
    size_t in_bytes; // data copied in and out
    size_t out_bytes;
    struct fr_device_range range; // what the memory is
    bool mixed; // absolute, and not all of it is device memory of the range's device
    enum fr_policy_path path;

    size_t nudge; // bytes to stand further back in the staging memory; see open
    enum fr_staging_shape shape;
    struct fr_staging_lease lease;
    uintptr_t stage_base; // where MPI finds what the application has at base
};

// The operations of a path. A path that only changes the pointer needs all four.
struct fr_staging_ops {
    // Gets staging memory and sets shape, lease, stage_base and each block's stage_offset. Since
    // offsets count from stage_base, two views can come to the same one though their bytes lie
    // apart, which an MPI may take for a call in place: then one is opened again with a nudge.
    enum fr_status (*open)(struct fr_staging_view *view);
    // Starts the copies before the call, and after it. A packed prefix of limit_bytes is copied
    // back; SIZE_MAX means everything.
    void (*copy_in)(const struct fr_staging_view *view, struct fr_device_batch *batch);
    void (*copy_out)(const struct fr_staging_view *view, size_t limit_bytes,
                     struct fr_device_batch *batch);
    // Copies elements [first, first + count) of the view's only block, for partitioned operations.
    void (*copy_part)(const struct fr_staging_view *view, size_t first, size_t count,
                      enum fr_device_direction direction, struct fr_device_batch *batch);
    // Gives the memory back. Called once for each successful open.
    void (*close)(struct fr_staging_view *view);
};

// Row of a path; NULL for pass and refuse, which need no memory.
const struct fr_staging_ops *fr_staging_ops(enum fr_policy_path path);

// Computes first, span, in_bytes and out_bytes from the blocks, then asks what the memory is: sets
// range. Call once the blocks are complete.
void fr_staging_view_measure(struct fr_staging_view *view);

// Whether all of the view lies in the memory that its kind and device were learnt from: a kernel of
// that device need not reach what lies beyond. And whether its data stand there in one piece, so
// that they can be moved without packing.
bool fr_staging_view_is_in_range(const struct fr_staging_view *view);
bool fr_staging_view_is_in_one_piece(const struct fr_staging_view *view);

#endif
