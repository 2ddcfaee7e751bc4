// SPDX-License-Identifier: BSD-3-Clause
// Module datatype: which bytes an MPI datatype selects, in the order of its type map, and an
// equivalent datatype without gaps to hand to MPI for a packed copy.
#ifndef FR_FABRAIL_DATATYPE_H
#define FR_FABRAIL_DATATYPE_H

#include "fabrail/abi.h"
#include "fabrail/device/shape.h"

// Regularly repeated runs of bytes: run (i, j) begins at offset + i * stride[0] + j * stride[1],
// for i < n[0] (inner) and j < n[1] (outer), and stands at packed + i * packed_stride[0] + j *
// packed_stride[1] in a packed copy of one element. Offsets are relative to the address of the
// datatype's buffer argument. A stride along which there is one run only is 0. In a packed copy the
// runs of a group stand in the order (0, 0), (1, 0) ... (0, 1), (1, 1) ..., but those of other
// groups may stand between them: an array of structures is one group for each member.
struct fr_datatype_group {
    ptrdiff_t offset;
    size_t packed;
    size_t bytes;
    size_t n[2];
    ptrdiff_t stride[2];
    size_t packed_stride[2];
};

// One datatype. Immutable once returned; counted references.
struct fr_layout {
    size_t size_bytes;     // MPI_Type_size
    ptrdiff_t lower_bound; // MPI_Type_get_extent
    ptrdiff_t extent;
    ptrdiff_t true_lower; // first byte used, MPI_Type_get_true_extent
    size_t true_extent;   // bytes from first to last byte used
    bool contiguous;      // count elements are one run of count * size_bytes bytes from offset 0
    bool packable;        // packed_type may stand in for the datatype
    fr_word packed_type;  // same type signature, no gaps: size == extent, lower bound 0. Equal to
                          // the datatype itself when contiguous or of size 0
    size_t unit_bytes;    // a multiple of it ends no predefined datatype in two, in what a message
                          // of such elements has; at least 1, and very large where that is not
                          // known, as of MPI_PACKED
    bool exact;           // MPI copies all bytes of its predefined datatypes, which it need not do
                          // with a long double, whose last ones say nothing
    size_t group_count;   // groups of one element; together size_bytes
    struct fr_datatype_group *groups;
    struct fr_datatype_private *private; // reference count, cache links
};

// Finds or makes the layout of `type`. The caller owns one reference, given back with
// fr_datatype_release. Returns FR_ERR_INVALID for the null handle; FR_ERR_UNSUPPORTED for a
// datatype whose construction this MPI does not tell, and FR_ERR_LIMIT when it is nested too deep,
// where it is too large to be told by packing it, and when its size overflows; FR_ERR_MPI when a
// call fails, FR_ERR_NO_MEMORY. Leaves *layout alone on failure.
FR_MUST_CHECK enum fr_status fr_datatype_acquire(fr_word type, const struct fr_layout **layout);

// Accepts NULL. Frees the packed type with the last reference, so not from inside a lock.
void fr_datatype_release(const struct fr_layout *layout);

// Forgets a datatype whose handle is about to be freed; pending users keep their reference. The
// packed type is freed with the last reference.
void fr_datatype_forget(fr_word type);

// Forgets all and frees all packed types; called just before the real MPI_Finalize, with no
// transfer under way. References given back later no longer call MPI.
void fr_datatype_forget_all(void);

// Extent and true extent alone, from the cache when it has the type: no decoding. For asking where
// a derived datatype's bytes really are. Returns false when MPI fails.
bool fr_datatype_bounds(fr_word type, ptrdiff_t *extent, ptrdiff_t *true_lower,
                        size_t *true_extent);

// Makes a committed datatype of so many MPI_BYTE, also of more than an int counts, which the caller
// frees. Returns FR_ERR_MPI, FR_ERR_NO_MEMORY, FR_ERR_LIMIT.
FR_MUST_CHECK enum fr_status fr_datatype_bytes_type(size_t bytes, fr_word *type);

// Range of addresses that `count` elements use: `first` relative to the buffer argument, `bytes`
// from there. No bytes gives 0 and 0.
static inline void fr_datatype_span(ptrdiff_t extent, ptrdiff_t true_lower, size_t true_extent,
                                    size_t count, ptrdiff_t *first, size_t *bytes)
{
    bool none = count == 0 || true_extent == 0;
    ptrdiff_t reach = none ? 0 : extent * (ptrdiff_t)(count - 1); // of the last element's start
    *first = none ? 0 : true_lower + (reach < 0 ? reach : 0);
    *bytes = none ? 0 : true_extent + (size_t)(reach < 0 ? -reach : reach);
}

// What kernels take of a layout. Immutable; lives as long as the layout.
struct fr_datatype_compiled {
    struct fr_pack_shape shape;
    void *table; // in host memory; NULL: there is none
    uint64_t id; // of no other one in this process, nor 0
};

// Returns a layout in the form that kernels take, made when first asked for. NULL where it has no
// bytes, is too irregular, or there was no memory.
const struct fr_datatype_compiled *fr_datatype_compiled_get(const struct fr_layout *layout);

// Has `gone` called with the id of a table that is about to be freed, of any thread, under no lock.
void fr_datatype_watch(void (*gone)(uint64_t id));

// A strided copy between an application's buffer and a staging area: n[1] planes of n[0] rows of
// `bytes` contiguous bytes. Offsets and strides in bytes, each side its own.
struct fr_datatype_copy {
    ptrdiff_t user_offset;
    ptrdiff_t stage_offset;
    size_t bytes;
    size_t n[2]; // at least 1 each
    ptrdiff_t user_stride[2];
    ptrdiff_t stage_stride[2];
};
typedef enum fr_status (*fr_datatype_visit_fn)(void *context, const struct fr_datatype_copy *copy);

// Shows `visit` the copies that together are the first `limit_bytes` bytes, in the order of the
// type map, of `count` elements; the limit may cut a run. Staging offsets are those of a packed
// copy, or with `packed` false equal the user's. Copies come in no particular order and as few as
// the layout allows: elements that follow one another become rows or planes. Returns the first
// status that is not FR_OK, after which it visits no more.
FR_MUST_CHECK enum fr_status fr_datatype_visit(const struct fr_layout *layout, size_t count,
                                               bool packed, size_t limit_bytes,
                                               fr_datatype_visit_fn visit, void *context);

#endif
