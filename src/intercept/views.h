// SPDX-License-Identifier: BSD-3-Clause
// Building blocks of views, for the files of module intercept that know a class of functions.
#ifndef FR_INTERCEPT_VIEWS_H
#define FR_INTERCEPT_VIEWS_H

#include "intercept/intercept_int.h"

// The use that a call makes of a buffer.
struct fr_intercept_use {
    bool in;
    bool out;
    int own;    // only this entry is read (an in-place gather); -1: `in` holds for all
    bool apart; // each entry gets a block, even if entries follow one another
};
#define FR_USE_IN     ((struct fr_intercept_use){.in = true, .own = -1})
#define FR_USE_OUT    ((struct fr_intercept_use){.out = true, .own = -1})
#define FR_USE_IN_OUT ((struct fr_intercept_use){.in = true, .out = true, .own = -1})

// Returns count `index` of a side, in whichever width the function has. Where the side has one for
// all, `index` does not matter.
int64_t fr_intercept_count_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                              int index);

// Returns displacement `index` of a side, in whichever width the function has.
int64_t fr_intercept_displacement_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                                     int index);

// Returns datatype `index` of a side. Where the side has one for all, `index` does not matter.
fr_word fr_intercept_type_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                             int index);

// Writes the bytes of `count` elements of a type, which may be more than an int holds. Returns
// false when MPI fails.
bool fr_intercept_measure_bytes(fr_word type, int64_t count, int64_t *bytes);

// Adds elements [first, first + count) to the view that was added last, as one block.
FR_MUST_CHECK enum fr_status fr_intercept_view_elements(struct fr_request_op *op, int64_t first,
                                                        int64_t count, fr_word type,
                                                        struct fr_intercept_use use);

// Views the whole buffer of a side. That is `copies` times its count, or the elements that its
// `copies` counts say, at their displacements.
FR_MUST_CHECK enum fr_status fr_intercept_view_side(struct fr_request_op *op,
                                                    const struct fr_abi_side *side, int copies,
                                                    struct fr_intercept_use use);

// Adds the views of a collective's buffers.
FR_MUST_CHECK enum fr_status fr_intercept_views_collective(struct fr_request_op *op);

#endif
