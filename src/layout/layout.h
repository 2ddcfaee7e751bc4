// SPDX-License-Identifier: BSD-3-Clause
// Room layout: which bytes an MPI datatype selects, in the order of its type map, and an equivalent
// datatype without gaps to hand to MPI for a packed copy.
#ifndef FR_LAYOUT_LAYOUT_H
#define FR_LAYOUT_LAYOUT_H

#include "real/real.h"

// Regularly repeated runs of bytes: run (i, j) begins at offset + i * stride[0] + j * stride[1], for
// i < n[0] (inner) and j < n[1] (outer), and stands at packed + (j * n[0] + i) * bytes in a packed
// copy. Offsets are relative to the address of the datatype's buffer argument.
struct fr_layout_group {
    ptrdiff_t offset;
    size_t bytes;
    size_t packed;
    size_t n[2];
    ptrdiff_t stride[2];
};

// One datatype. Immutable once returned; counted references.
struct fr_layout {
    size_t size_bytes;       // MPI_Type_size
    ptrdiff_t lower_bound;   // MPI_Type_get_extent
    ptrdiff_t extent;
    ptrdiff_t true_lower;    // first byte used, MPI_Type_get_true_extent
    size_t true_extent;      // bytes from first to last byte used
    bool contiguous;         // count elements are one run of count * size_bytes bytes from offset 0
    bool packable;           // packed_type may stand in for the datatype
    fr_word packed_type;     // same type signature, no gaps: size == extent, lower bound 0. Equal to
                             // the datatype itself when contiguous
    size_t group_count;      // groups of one element, in type-map order; together size_bytes
    struct fr_layout_group *groups;
    struct fr_layout_private *private; // reference count, cache links
};

// Finds or makes the layout of `type`. The caller owns one reference, given back with
// fr_layout_release. Returns FR_ERR_UNSUPPORTED for a datatype whose construction this MPI does not
// tell, FR_ERR_MPI when a call fails, FR_ERR_NO_MEMORY.
FR_MUST_CHECK enum fr_status fr_layout_acquire(fr_word type, const struct fr_layout **layout);
void fr_layout_release(const struct fr_layout *layout);

// Forgets a datatype whose handle is about to be freed; pending users keep their reference. The
// packed type is freed with the last reference.
void fr_layout_forget(fr_word type);

// Forgets all; called just before the real MPI_Finalize, while types can still be freed.
void fr_layout_forget_all(void);

// Extent and true extent alone, from the cache when it has the type: no decoding. For asking where a
// derived datatype's bytes really are. Returns false when MPI fails.
bool fr_layout_bounds(fr_word type, ptrdiff_t *extent, ptrdiff_t *true_lower, size_t *true_extent);

#endif
