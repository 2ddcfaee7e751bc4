// SPDX-License-Identifier: BSD-3-Clause
// Module rma: accesses to the memory of windows.
#ifndef FR_FABRAIL_RMA_ACCESS_H
#define FR_FABRAIL_RMA_ACCESS_H

#include "fabrail/device/reduce.h"
#include "fabrail/policy/access_way.h"
#include "fabrail/report.h"
#include "fabrail/rma.h"
#include "fabrail/staging/path.h"

// An access: the elements in the memory of its target, and what the report says of it.
struct fr_rma_access {
    int target; // rank in the window
    int64_t displacement;
    const struct fr_layout *layout; // of one element
    size_t count;                   // of elements
    struct fr_policy_access facts;  // set by an access: how it went
    struct fr_report_buffer report; // of the access, but for path, scheme and bytes
    bool is_counted;                // set by an access that is in the report, or will be
};

// Begin to move the data of a measured view of one block to a target, or from there. The move is
// complete when the target has been synchronised, or fr_rma_flush has returned. Return FR_ERR_RANGE
// and FR_ERR_EPOCH as their names say.
FR_MUST_CHECK enum fr_status fr_rma_put(struct fr_rma_window *window, struct fr_rma_access *access,
                                        const struct fr_staging_view *origin);
FR_MUST_CHECK enum fr_status fr_rma_get(struct fr_rma_window *window, struct fr_rma_access *access,
                                        const struct fr_staging_view *result);

// An access that no other such access to the same target can come between. Views are measured and
// have one block.
struct fr_rma_update {
    const struct fr_staging_view *origin;  // NULL: nothing is done with the target
    const struct fr_staging_view *compare; // the target is replaced if it equals this; else NULL
    const struct fr_staging_view *result;  // what was there before; NULL: not wanted
    fr_word element;                       // the predefined datatype that all data consist of
    fr_word operation;
    enum fr_reduce_row row; // by which a kernel combines; FR_REDUCE_ROWS: none, or no operation
};

// Updates memory of a target, as fr_rma_put puts. Updates of one origin are done in their order.
FR_MUST_CHECK enum fr_status fr_rma_update(struct fr_rma_window *window,
                                           struct fr_rma_access *access,
                                           const struct fr_rma_update *update);

// Completes all accesses that this process has begun, at their targets too.
FR_MUST_CHECK enum fr_status fr_rma_flush(struct fr_rma_window *window);

#endif
