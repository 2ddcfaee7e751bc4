// SPDX-License-Identifier: BSD-3-Clause
// A buffer of a collective by path peer: where peers find its bytes. A buffer whose slices are
// contiguous is used where it is. What is not, what cannot be exported, and data that must not be
// overwritten before they are sent, go through device workspace.
#ifndef FR_INTERCEPT_COLL_BUFFER_H
#define FR_INTERCEPT_COLL_BUFFER_H

#include "fabrail/coll/agree.h"
#include "intercept/intercept_int.h"

struct fr_intercept_coll_buffer {
    struct fr_staging_view view; // a copy of the operation's, with a lease of its own
    struct fr_device_range range;
    struct fr_coll_slot *slots;
    struct fr_ipc_handle handle; // of memory that is used where it is, once exported
    bool staged;
};

// Decides where the bytes of a view are reached, which may be the operation's only one. `ways`: how
// peers can reach it (fr_coll_team_ways), 0 where none does. FR_ERR_UNSUPPORTED: it is no device
// memory.
FR_MUST_CHECK enum fr_status fr_intercept_coll_buffer_open(struct fr_intercept_coll_buffer *side,
                                                           bool must_stage, unsigned ways);

// Gives workspace back; a side that was never opened is accepted.
void fr_intercept_coll_buffer_close(struct fr_intercept_coll_buffer *side);

// Copies between the application's memory and the workspace, if there is one, and waits.
FR_MUST_CHECK enum fr_status
fr_intercept_coll_buffer_copy_in(const struct fr_intercept_coll_buffer *side);
FR_MUST_CHECK enum fr_status
fr_intercept_coll_buffer_copy_out(const struct fr_intercept_coll_buffer *side);

// The same copies as one plain piece, for the ranks of a group to make them when it suits. Returns
// false where there is none, or where it is none such: then it is one of the above.
bool fr_intercept_coll_buffer_plain_in(const struct fr_intercept_coll_buffer *side,
                                       const struct fr_coll_team *group, struct fr_coll_copy *copy);
bool fr_intercept_coll_buffer_plain_out(const struct fr_intercept_coll_buffer *side,
                                        const struct fr_coll_team *group,
                                        struct fr_coll_copy *copy);

// Where the buffer argument's address is reached, and a block of the view's.
uintptr_t fr_intercept_coll_buffer_base(const struct fr_intercept_coll_buffer *side);
uintptr_t fr_intercept_coll_buffer_block(const struct fr_intercept_coll_buffer *side,
                                         const struct fr_staging_view_block *block);

// Describes the memory for those who reach it.
void fr_intercept_coll_buffer_describe(const struct fr_intercept_coll_buffer *side,
                                       struct fr_coll_buffer *buffer);

// Measures the views. Whether this rank takes part: one of its buffers is device memory, or it has
// no data at all, which keeps nobody from it.
bool fr_intercept_coll_buffer_measure(struct fr_request_op *op);

// Tells the report that path peer has carried the operation, and why (static text).
void fr_intercept_coll_buffer_count(const struct fr_request_op *op, const char *reason);

#endif
