// SPDX-License-Identifier: BSD-3-Clause
// Building blocks of views, for the files of module intercept that know a class of functions.
#ifndef FR_INTERCEPT_VIEWS_H
#define FR_INTERCEPT_VIEWS_H

#include "intercept/intercept_int.h"

// What a call does with a buffer.
struct fr_intercept_use {
    bool in;
    bool out;
    int own;    // only this entry is read (an in-place gather), -1 when `in` holds for all
    bool apart; // a block for each entry, though they follow one another
};
#define FR_USE_IN     ((struct fr_intercept_use){.in = true, .own = -1})
#define FR_USE_OUT    ((struct fr_intercept_use){.out = true, .own = -1})
#define FR_USE_IN_OUT ((struct fr_intercept_use){.in = true, .out = true, .own = -1})

// Counts, displacements and datatypes of a side, in the width of the function's form. Where the
// side has one of them for all, `index` does not matter.
int64_t fr_intercept_count_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                              int index);
int64_t fr_intercept_displacement_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                                     int index);
fr_word fr_intercept_type_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                             int index);

// Bytes of that many elements of a type, which may be more than an int holds. False when MPI fails.
bool fr_intercept_measure_bytes(fr_word type, int64_t count, int64_t *bytes);

// Begins the view of the buffer at position `buffer`; then adds elements [first, first + count) to
// it.
FR_MUST_CHECK enum fr_status fr_intercept_view_begin(struct fr_request_op *op, int buffer);
FR_MUST_CHECK enum fr_status fr_intercept_view_elements(struct fr_request_op *op, int64_t first,
                                                        int64_t count, fr_word type,
                                                        struct fr_intercept_use use);

// Views the whole buffer of a side: `copies` times its count, or as many elements as its `copies`
// counts say, at their displacements.
FR_MUST_CHECK enum fr_status fr_intercept_view_side(struct fr_request_op *op,
                                                    const struct fr_abi_side *side, int copies,
                                                    struct fr_intercept_use use);

// Views of the collective classes.
FR_MUST_CHECK enum fr_status fr_intercept_views_collective(struct fr_request_op *op);

#endif
