// SPDX-License-Identifier: BSD-3-Clause
// A buffer of a collective by path peer, and where peers reach its bytes. A buffer is used where it
// is if it can be exported, and its slices are contiguous or kernels know their layouts. Others go
// through device workspace, as do data that must not be overwritten before they are sent.
#ifndef FR_INTERCEPT_COLL_BUFFER_H
#define FR_INTERCEPT_COLL_BUFFER_H

#include "fabrail/coll/agree.h"
#include "intercept/coll_shapes.h"
#include "intercept/intercept_int.h"

struct fr_intercept_coll_buffer {
    struct fr_staging_view view; // copy of the operation's, with a lease of its own
    struct fr_device_range range;
    struct fr_coll_slot *slots;
    struct fr_ipc_handle handle; // of memory that is used where it is, once it is exported
    bool staged;
    bool takes_host; // host memory in one piece goes through device workspace as well
    // Slices with gaps are used where they are, if kernels can: those for so many ranks. 0: they go
    // through workspace.
    int shaped_ranks;
    bool is_written;                   // by other ranks
    struct fr_intercept_shapes shapes; // of slices with gaps that are used where they are
};

// Decides where peers reach the bytes of a view, which may be the operation's only one.
// `must_stage`: use workspace in any case. `ways`: how peers can reach it (fr_coll_team_ways), 0
// where none does. Returns FR_ERR_UNSUPPORTED where it is no device memory.
FR_MUST_CHECK enum fr_status fr_intercept_coll_buffer_open(struct fr_intercept_coll_buffer *buffer,
                                                           bool must_stage, unsigned ways);

// Decides where this rank's CPU reaches the bytes of a view, for operations by CPUs: where they are
// if they are in one piece, else in host memory. `must_stage`: use host memory in any case.
FR_MUST_CHECK enum fr_status
fr_intercept_coll_buffer_open_on_host(struct fr_intercept_coll_buffer *buffer, bool must_stage);

// Gives workspace back. A buffer that was never opened is accepted.
void fr_intercept_coll_buffer_close(struct fr_intercept_coll_buffer *buffer);

// Copies from the application's memory to the workspace, if there is one, and waits.
FR_MUST_CHECK enum fr_status
fr_intercept_coll_buffer_copy_in(const struct fr_intercept_coll_buffer *buffer);

// Copies from the workspace, if there is one, to the application's memory, and waits. The ranks
// have agreed by then, so a failure is never FR_ERR_UNSUPPORTED, by which this one alone would do
// the operation otherwise.
FR_MUST_CHECK enum fr_status
fr_intercept_coll_buffer_copy_out(const struct fr_intercept_coll_buffer *buffer);

// Describes the copy to workspace as one plain piece, so that the team's task can make it when it
// suits. Returns false where there is no workspace or the copy is no plain piece;
// fr_intercept_coll_buffer_copy_in then makes it.
bool fr_intercept_coll_buffer_plain_in(const struct fr_intercept_coll_buffer *buffer,
                                       const struct fr_coll_team *team, struct fr_coll_copy *copy);

// Describes the copy out of workspace as one plain piece, so that the team's task can make it when
// it suits. Returns false where there is no workspace or the copy is no plain piece;
// fr_intercept_coll_buffer_copy_out then makes it.
bool fr_intercept_coll_buffer_plain_out(const struct fr_intercept_coll_buffer *buffer,
                                        const struct fr_coll_team *team, struct fr_coll_copy *copy);

// Returns where peers reach the address that the buffer argument has.
uintptr_t fr_intercept_coll_buffer_base(const struct fr_intercept_coll_buffer *buffer);

// Returns where peers reach a block of the view.
uintptr_t fr_intercept_coll_buffer_block(const struct fr_intercept_coll_buffer *buffer,
                                         const struct fr_staging_view_block *block);

// Writes to `memory` the memory that peers reach.
void fr_intercept_coll_buffer_describe(const struct fr_intercept_coll_buffer *buffer,
                                       struct fr_coll_buffer *memory);

// Waits for work that the application has under way on the memory, as far as its calls only pretend
// to have finished it. No host memory has such work.
FR_MUST_CHECK enum fr_status
fr_intercept_coll_buffer_await_app(const struct fr_intercept_coll_buffer *buffer);

// Measures the views of an operation. Returns whether this rank can take part: one of its buffers
// is device memory, or it has no data at all.
bool fr_intercept_coll_buffer_measure(struct fr_request_op *op);

// Counts the operation in the report as carried by path peer, for `reason` (static text).
void fr_intercept_coll_buffer_count(const struct fr_request_op *op, const char *reason);

// Counts the operation in the report as done by the CPUs of the ranks.
void fr_intercept_coll_buffer_count_staged(const struct fr_request_op *op);

#endif
