// SPDX-License-Identifier: BSD-3-Clause
// Inside of module datatype: lists of groups, type signatures, and the decoder that makes both.
#ifndef FR_DATATYPE_DATATYPE_INT_H
#define FR_DATATYPE_DATATYPE_INT_H

#include "fabrail/datatype.h"

// A list of groups under construction. All zero is an empty list. Between push and finish the last
// two items are open: the last may grow by an adjacent run, the one before by a further repetition.
struct fr_datatype_list {
    struct fr_datatype_group *items;
    size_t count;
    size_t capacity;
    size_t bytes; // bytes of a packed copy of the whole list
};

// Repetitions that do not fit in a group's two levels: the group stands `copies` times, this far
// apart in the user's buffer and in the packed copy.
struct fr_datatype_steps {
    size_t copies;
    ptrdiff_t user;
    size_t packed;
};

// Repeats a group `count` times (at least once), `stride` bytes apart and `packed_stride` apart in
// the packed copy. `packed_stride` must be no less than the group's reach in the packed copy.
// Writes to *steps the repetitions that do not fit in the group.
void fr_datatype_group_repeat(struct fr_datatype_group *group, size_t count, ptrdiff_t stride,
                              size_t packed_stride, struct fr_datatype_steps *steps);

// Adds a run of bytes behind all that the list holds. Returns FR_ERR_NO_MEMORY or FR_ERR_LIMIT on
// failure.
FR_MUST_CHECK enum fr_status fr_datatype_list_push_run(struct fr_datatype_list *list,
                                                       ptrdiff_t offset, size_t bytes);

// Blocks of an indexed constructor. Block b holds lengths[b] elements (lengths[0] when `uniform`),
// from offset displacements[b] * unit.
struct fr_datatype_blocks {
    size_t count;
    const int64_t *lengths;
    bool uniform;
    const int64_t *displacements;
    int64_t unit;
};

// Adds a finished list, `element`, for each element of each block. Elements are `extent` bytes
// apart.
FR_MUST_CHECK enum fr_status fr_datatype_list_push_blocks(struct fr_datatype_list *list,
                                                          const struct fr_datatype_list *element,
                                                          ptrdiff_t extent,
                                                          const struct fr_datatype_blocks *blocks);
// Closes the items that pushes have left open.
void fr_datatype_list_finish(struct fr_datatype_list *list);

// Changes a finished list into `count` copies of it, `stride` bytes apart. A count of 0 empties it.
FR_MUST_CHECK enum fr_status fr_datatype_list_repeat(struct fr_datatype_list *list, size_t count,
                                                     ptrdiff_t stride);
// Moves all groups of a finished list by `offset` bytes.
void fr_datatype_list_shift(struct fr_datatype_list *list, ptrdiff_t offset);
void fr_datatype_list_free(struct fr_datatype_list *list);

// A type signature: datatypes without gaps, each with a count, of which the packed copy consists.
// Where the sequence would be long, a datatype made for the purpose stands for part of it.
struct fr_datatype_term {
    fr_word type;
    size_t count;
    size_t bytes; // bytes of one such datatype
    bool basic;   // predefined, so that it is not freed
};
struct fr_datatype_signature {
    struct fr_datatype_term *terms;
    size_t count;
    size_t capacity;
    size_t bytes;
    bool broken; // it holds a predefined datatype with gaps, so no packed datatype has this
                 // signature
};

// Datatypes made on the way. They are freed together when the last datatype that needs them exists.
struct fr_datatype_scratch {
    fr_word *types;
    size_t count;
    size_t capacity;
};
// Frees the datatypes of a scratch list, and empties the list.
void fr_datatype_scratch_free(struct fr_datatype_scratch *scratch);

// Adds a term behind a signature.
FR_MUST_CHECK enum fr_status fr_datatype_signature_add(struct fr_datatype_signature *signature,
                                                       const struct fr_datatype_term *term);
// Adds the terms of `tail` behind a signature. A broken tail breaks it.
FR_MUST_CHECK enum fr_status fr_datatype_signature_append(struct fr_datatype_signature *signature,
                                                          const struct fr_datatype_signature *tail);
// Copies a signature. The caller frees the copy; on failure nothing is left to free.
FR_MUST_CHECK enum fr_status
fr_datatype_signature_copy(struct fr_datatype_signature *copy,
                           const struct fr_datatype_signature *original);
// Changes a signature into `count` repetitions of it; 0 empties it. A datatype that this makes goes
// to `scratch`.
FR_MUST_CHECK enum fr_status fr_datatype_signature_repeat(struct fr_datatype_signature *signature,
                                                          size_t count,
                                                          struct fr_datatype_scratch *scratch);
void fr_datatype_signature_free(struct fr_datatype_signature *signature);

// Makes the committed datatype of a signature that is neither broken nor empty. `owned` tells
// whether the caller must free it; a single predefined datatype is returned as it is.
FR_MUST_CHECK enum fr_status
fr_datatype_signature_type(const struct fr_datatype_signature *signature, fr_word *type,
                           bool *owned);
// Frees a datatype by the real MPI. Logs a failure.
void fr_datatype_type_free(fr_word type);

// Extent and true extent of a datatype. fr_datatype_ask_extents asks MPI for them, except for a
// predefined datatype without gaps, where they follow from the size. MPI might not survive the
// question about a handle that looks like such a datatype but is none.
struct fr_datatype_extents {
    ptrdiff_t lower;
    ptrdiff_t extent;
    ptrdiff_t true_lower;
    ptrdiff_t true_extent;
};
FR_MUST_CHECK enum fr_status fr_datatype_ask_extents(fr_word type,
                                                     struct fr_datatype_extents *extents);

// The construction of a datatype, as MPI tells it. `values` holds the integers, then the addresses,
// then the large counts. Where each integer of a constructor is a count or a place, that is the
// sequence of its large-count form, too.
struct fr_datatype_contents {
    int combiner;
    bool large;
    size_t value_count;
    int64_t *values;
    size_t type_count;
    void *types; // handles in the family's width
};

// Asks MPI how `type` was made. A predefined datatype has no values and no types. The caller frees
// the contents.
FR_MUST_CHECK enum fr_status fr_datatype_contents_load(fr_word type,
                                                       struct fr_datatype_contents *contents);
// Frees the contents, and the derived datatypes among `types`.
void fr_datatype_contents_free(struct fr_datatype_contents *contents);

// Returns whether the combiner is that of a predefined datatype, with a name or without.
bool fr_datatype_combiner_is_basic(int combiner);

// The decoder's findings about one datatype.
struct fr_datatype_decoded {
    struct fr_datatype_list list;
    struct fr_datatype_signature signature;
    size_t unit_bytes; // unit of the packed bytes so far (unit.c); 0 before the first
    fr_word basic;     // the predefined datatype of all bytes so far; 0 before the first
    bool several;      // they are of more than one
    bool inexact;
};

// fr_datatype_unit_add takes into the unit what stands behind the first `offset` packed bytes and
// has the unit `unit_bytes`. fr_datatype_unit_close makes the unit one of a whole structure, which
// may be repeated.
void fr_datatype_unit_add(struct fr_datatype_decoded *decoded, size_t offset, size_t unit_bytes);
void fr_datatype_unit_close(struct fr_datatype_decoded *decoded);
void fr_datatype_decoded_free(struct fr_datatype_decoded *decoded);

// Decodes `type`. On failure nothing is left to free. On success the caller owns the list and the
// signature, and uses the signature before it frees the scratch types.
FR_MUST_CHECK enum fr_status fr_datatype_decode(fr_word type, struct fr_datatype_scratch *scratch,
                                                struct fr_datatype_decoded *decoded);

// Decodes `type` by having MPI pack an element; the signature stays unknown. Returns FR_ERR_LIMIT
// where the element is too large for that, and FR_ERR_UNSUPPORTED where packing does not tell its
// layout either.
FR_MUST_CHECK enum fr_status fr_datatype_decode_packed(fr_word type,
                                                       struct fr_datatype_decoded *decoded);

// Writes the form of a layout that kernels take, except for the id. The caller owns the table.
// Returns false where fr_datatype_compiled_get returns NULL.
bool fr_datatype_compile(const struct fr_layout *layout, struct fr_datatype_compiled *compiled);

// Makes the list of fr_datatype_external_get, which the caller frees. Returns false, with nothing
// to free, where that returns NULL.
bool fr_datatype_external_list(const struct fr_layout *layout, struct fr_datatype_list *list);

// Apply an array constructor to its decoded element, in `list`. *elements becomes the number of
// elements that the array holds.
FR_MUST_CHECK enum fr_status fr_datatype_array_subarray(const struct fr_datatype_contents *contents,
                                                        ptrdiff_t extent,
                                                        struct fr_datatype_list *list,
                                                        size_t *elements);
FR_MUST_CHECK enum fr_status fr_datatype_array_darray(const struct fr_datatype_contents *contents,
                                                      ptrdiff_t extent,
                                                      struct fr_datatype_list *list,
                                                      size_t *elements);

#endif
