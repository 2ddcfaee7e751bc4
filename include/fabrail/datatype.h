// SPDX-License-Identifier: BSD-3-Clause
// Module datatype: the bytes that an MPI datatype selects, in the order of its type map. It also
// makes an equivalent datatype without gaps, which MPI gets for a packed copy.
#ifndef FR_FABRAIL_DATATYPE_H
#define FR_FABRAIL_DATATYPE_H

#include "fabrail/abi.h"
#include "fabrail/device/shape.h"

// Regularly repeated runs of bytes. Run (i, j), for i < n[0] (inner) and j < n[1] (outer), begins
// at offset + i * stride[0] + j * stride[1]. In a packed copy of one element it stands at packed +
// i * packed_stride[0] + j * packed_stride[1]. Offsets are relative to the address of the
// datatype's buffer argument. A stride along which there is only one run is 0.
//
// In a packed copy the runs of a group stand in the order (0, 0), (1, 0) ... (0, 1), (1, 1) ...
// Runs of other groups may stand between them: an array of structures has one group for each
// member.
struct fr_datatype_group {
    ptrdiff_t offset;
    size_t packed;
    size_t bytes;
    size_t n[2];
    ptrdiff_t stride[2];
    size_t packed_stride[2];
};

// The layout of one datatype. Immutable once returned; references are counted.
struct fr_layout {
    size_t size_bytes;     // MPI_Type_size
    ptrdiff_t lower_bound; // MPI_Type_get_extent
    ptrdiff_t extent;
    ptrdiff_t true_lower; // first byte used, MPI_Type_get_true_extent
    size_t true_extent;   // bytes from first to last byte used
    bool contiguous;      // count elements are one run of count * size_bytes bytes from offset 0
    bool packable;        // packed_type may stand in for the datatype in calls of MPI
    fr_word packed_type;  // same type signature without gaps: size == extent, lower bound 0. Equal
                          // to the datatype itself when that is contiguous or of size 0
    size_t unit_bytes; // a message may be cut at each multiple of it, with no predefined datatype
                       // in two; at least 1, very large where that is not known, as for MPI_PACKED
    fr_word basic; // the predefined datatype of all bytes; 0 where there are several, or for pairs
    bool exact; // MPI copies all bytes of its predefined datatypes. It need not with a long double,
                // whose last bytes have no meaning
    size_t group_count; // groups of one element; their bytes add up to size_bytes
    struct fr_datatype_group *groups;
    struct fr_datatype_private *private; // of the cache
    atomic_size_t *references;
};

// Finds or makes the layout of `type`. The caller owns one reference, which it gives back with
// fr_datatype_release. Leaves *layout alone on failure. Returns
//  - FR_ERR_INVALID for the null handle,
//  - FR_ERR_UNSUPPORTED for a datatype whose construction this MPI does not tell,
//  - FR_ERR_LIMIT when it is nested too deep, when it could only be told by packing and is too
//    large for that, and when its size overflows,
//  - FR_ERR_MPI when a call fails, and FR_ERR_NO_MEMORY.
FR_MUST_CHECK enum fr_status fr_datatype_acquire(fr_word type, const struct fr_layout **layout);

// Makes a layout of some groups, one at least, which no datatype of MPI has. Their packed bytes are
// all different, and leave no gap. The caller owns one reference. Returns FR_ERR_NO_MEMORY on
// failure.
FR_MUST_CHECK enum fr_status fr_datatype_make(const struct fr_datatype_group *groups, size_t count,
                                              const struct fr_layout **layout);

// Adds a reference to a layout of which the caller has one.
static inline void fr_datatype_keep(const struct fr_layout *layout)
{
    (void)fr_core_add_in_call(layout->references, 1);
}

// Frees a layout and its packed type. Called by fr_datatype_release alone.
void fr_datatype_destroy(const struct fr_layout *layout);

// Gives a reference back. Accepts NULL. The last one frees the packed type by a call of MPI, so it
// must not be given back under a lock.
static inline void fr_datatype_release(const struct fr_layout *layout)
{
    if (layout && fr_core_add_in_call(layout->references, (size_t)-1) == 1)
        fr_datatype_destroy(layout);
}

// Forgets a datatype whose handle is about to be freed. Users of its layout keep their references;
// the last one frees the packed type.
void fr_datatype_forget(fr_word type);

// Forgets all datatypes and frees all packed types. Called just before the real MPI_Finalize, with
// no transfer under way. References that are given back later no longer call MPI.
void fr_datatype_forget_all(void);

// Writes extent and true extent of a datatype, without decoding it: from the cache when that has
// the type, else as MPI says. They tell where a derived datatype's bytes really are. Returns false
// when MPI fails.
bool fr_datatype_bounds(fr_word type, ptrdiff_t *extent, ptrdiff_t *true_lower,
                        size_t *true_extent);

// Finds the predefined datatype that comes first in a datatype, which is itself if it is one.
FR_MUST_CHECK enum fr_status fr_datatype_element_of(fr_word type, fr_word *element);

// Makes a committed datatype of `bytes` MPI_BYTE, which may be more than an int counts. The caller
// frees it. Returns FR_ERR_MPI, FR_ERR_NO_MEMORY or FR_ERR_LIMIT on failure.
FR_MUST_CHECK enum fr_status fr_datatype_bytes_type(size_t bytes, fr_word *type);

// Computes the range of addresses that `count` elements use: `bytes` bytes from `first`, which is
// relative to the buffer argument. Both are 0 where there are no bytes.
static inline void fr_datatype_span(ptrdiff_t extent, ptrdiff_t true_lower, size_t true_extent,
                                    size_t count, ptrdiff_t *first, size_t *bytes)
{
    bool none = count == 0 || true_extent == 0;
    ptrdiff_t reach = none ? 0 : extent * (ptrdiff_t)(count - 1); // start of the last element
    *first = none ? 0 : true_lower + (reach < 0 ? reach : 0);
    *bytes = none ? 0 : true_extent + (size_t)(reach < 0 ? -reach : reach);
}

// Returns where MPI_Pack_external puts the bytes that MPI_Pack puts one behind the other: a layout
// of `external32` data, of a length that divides the datatype's size, which repeats. The first call
// asks MPI. The layout owns it. Returns NULL where MPI does more than to turn bytes around, or
// there was no memory. Called with the datatype alive.
const struct fr_layout *fr_datatype_external_get(const struct fr_layout *layout);

// A layout in the form that kernels take. Immutable; lives as long as the layout.
struct fr_datatype_compiled {
    struct fr_pack_shape shape;
    void *table;         // table of blocks, in host memory; NULL where the shape needs none
    uint64_t table_hash; // of its bytes
    size_t block_bytes;  // bytes that stand together, on average
    size_t wasted_bytes; // that NVLink would carry between the blocks of an element
    uint64_t id;         // unique in this process, and not 0
};

// Returns a layout in the form that kernels take, which the first call makes. The layout owns it.
// Returns NULL where the layout has no bytes or is too irregular, or there was no memory.
const struct fr_datatype_compiled *fr_datatype_compiled_get(const struct fr_layout *layout);

// Sets the function that is called with the id of a table that is about to be freed. Any thread may
// call it, under no lock.
void fr_datatype_watch(void (*gone)(uint64_t id));

// A strided copy between an application's buffer and a staging area: n[1] planes of n[0] rows of
// `bytes` contiguous bytes. Offsets and strides are in bytes, and each side has its own.
struct fr_datatype_copy {
    ptrdiff_t user_offset;
    ptrdiff_t stage_offset;
    size_t bytes;
    size_t n[2]; // at least 1 each
    ptrdiff_t user_stride[2];
    ptrdiff_t stage_stride[2];
};
typedef enum fr_status (*fr_datatype_visit_fn)(void *context, const struct fr_datatype_copy *copy);

// Calls `visit` with the copies that together are the first `limit_bytes` bytes, in the order of
// the type map, of `count` elements. The limit may cut a run. Staging offsets are those of a packed
// copy or, where `packed` is false, equal to the user's. Copies come in no particular order. They
// are as few as the layout allows: elements that follow one another become rows or planes. Returns
// the first status that is not FR_OK, after which it makes no more calls.
FR_MUST_CHECK enum fr_status fr_datatype_visit(const struct fr_layout *layout, size_t count,
                                               bool packed, size_t limit_bytes,
                                               fr_datatype_visit_fn visit, void *context);

#endif
