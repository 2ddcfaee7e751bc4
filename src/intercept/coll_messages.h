// SPDX-License-Identifier: BSD-3-Clause
// The messages that a collective is made of. Its operation has a schedule, which gets them.
#ifndef FR_INTERCEPT_COLL_MESSAGES_H
#define FR_INTERCEPT_COLL_MESSAGES_H

#include "fabrail/coll.h"
#include "intercept/intercept_int.h"

// Begin all messages of a collective on this rank, among all ranks or among neighbours. Return an
// MPI error code. Functions of schedules (fabrail/request/schedule.h).
int fr_intercept_coll_messages_start(struct fr_request_op *op);
int fr_intercept_coll_messages_start_neighbours(struct fr_request_op *op);

// Makes room for a copy of an in-place call's data, on the device where there is room. An operation
// without views needs none.
FR_MUST_CHECK enum fr_status fr_intercept_coll_messages_open_copy(struct fr_request_op *op);

// Drops the sides that this rank's call does not look at. Their arrays and datatypes may be
// anything.
void fr_intercept_coll_messages_drop_sides(struct fr_request_op *op,
                                           const struct fr_coll_team *team);

#endif
