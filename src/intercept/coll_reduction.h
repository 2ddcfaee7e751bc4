// SPDX-License-Identifier: BSD-3-Clause
// A reduction by path peer on this rank, from a call's arguments to what its kernel is given.
#ifndef FR_INTERCEPT_COLL_REDUCTION_H
#define FR_INTERCEPT_COLL_REDUCTION_H

#include "fabrail/coll/reduction.h"
#include "intercept/coll_buffer.h"

// Returns the row of the kernels for a predefined operation on a predefined datatype, whose layout
// is given; FR_REDUCE_ROWS where they have none.
enum fr_reduce_row fr_intercept_reduction_row(const struct fr_layout *layout, fr_word type,
                                              fr_word operation);

// Returns whether MPI defines an operation on a datatype; true for a datatype that is not known.
bool fr_intercept_reduction_is_defined(fr_word type, fr_word operation);

struct fr_intercept_reduction {
    struct fr_request_op *op;
    const struct fr_coll_team *team;
    struct fr_coll_reduce part;
    struct fr_intercept_coll_buffer send, receive;
    bool takes_part; // a buffer is device memory
    bool in_place;
    // In place, but the vector lies where other parts of the result go. It is read from a copy.
    bool sends_apart;
};

// Describes the reduction of an operation, whose views are built. Returns FR_ERR_UNSUPPORTED where
// kernels do not know it: not a predefined operation on a predefined datatype, or no elements. All
// ranks find the same where their calls are right. It need not be ended. `takes_host`: this rank
// takes part with host memory, too.
FR_MUST_CHECK enum fr_status
fr_intercept_reduction_describe(struct fr_intercept_reduction *reduction, struct fr_request_op *op,
                                const struct fr_coll_team *team, bool takes_host);

// Makes the memory of a reduction ready for fr_coll_reduce_begin. Returns FR_ERR_UNSUPPORTED where
// this rank cannot take part. fr_intercept_reduction_end is to be called in any case.
FR_MUST_CHECK enum fr_status fr_intercept_reduction_open(struct fr_intercept_reduction *reduction);

// Returns whether this rank gets a result.
bool fr_intercept_reduction_receives(const struct fr_intercept_reduction *reduction);

// Ends a reduction whose task has ended with `status`: copies out, counts it in the report, and
// gives workspace back. Returns `status`, or why the copy has failed.
FR_MUST_CHECK enum fr_status fr_intercept_reduction_end(struct fr_intercept_reduction *reduction,
                                                        enum fr_status status);

// Returns whether ranks do a reduction by exchanging slices, which each combines on its host: its
// operation is the program's own, and sharing pays. `reduction` was described, and kernels do not
// know it. All ranks find the same where their calls and settings are alike.
bool fr_intercept_reduction_combines(const struct fr_intercept_reduction *reduction);

// Does such a reduction, whose views it changes. Nothing is to be ended. Returns FR_ERR_UNSUPPORTED
// on all ranks where some rank cannot take part; the result is written nowhere then, though the
// program's function may have been called. Calls the program's function, so a call of MPI waits.
FR_MUST_CHECK enum fr_status
fr_intercept_reduction_combine(struct fr_intercept_reduction *reduction, struct fr_coll_team *team);

#endif
