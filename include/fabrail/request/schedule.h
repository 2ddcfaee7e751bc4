// SPDX-License-Identifier: BSD-3-Clause
// Schedules: one operation of the application that Fabrail does by several messages of its own. The
// application sees one request; the parts are requests like its own, tracked in the same way.
#ifndef FR_FABRAIL_REQUEST_SCHEDULE_H
#define FR_FABRAIL_REQUEST_SCHEDULE_H

#include "fabrail/request.h"

struct fr_request_schedule {
    // Starts the parts, at once or each time that a persistent operation is started. Returns an MPI
    // error code; what has been started by then is waited for all the same.
    int (*start)(struct fr_request_op *op);
    int tag;          // the first of those that its messages have
    bool generalized; // the application's request is a generalized one, else a persistent one
    _Alignas(8) char receive[8]; // persistent too: of what such a request sends; null without one
    bool complete;
    int error;      // MPI code of the first part that failed
    fr_word *types; // datatypes of the application's, which may free its own
    size_t type_count;
    size_t count;
    char parts[]; // requests, in the family's width
};

// Gives an operation a schedule with room for so many parts. The operation owns it.
FR_MUST_CHECK enum fr_status fr_request_schedule_make(struct fr_request_op *op, size_t capacity,
                                                      int (*start)(struct fr_request_op *op));

// Keeps what the arguments of a persistent operation stand for, which the application may free
// before it starts it: puts duplicates of its datatypes and copies of its arrays, which have so
// many elements, in their place. FR_ERR_MPI when MPI fails.
FR_MUST_CHECK enum fr_status fr_request_schedule_keep_args(struct fr_request_op *op, size_t sends,
                                                           size_t receives);

// Where the request of the next part goes, which counts from here on.
void *fr_request_schedule_add(struct fr_request_schedule *schedule);

// Starts the schedule of a nonblocking operation, or makes that of a persistent one: writes the
// application's request and tracks the operation, which it owns from here on. Returns what the call
// returns.
int fr_request_schedule_open(struct fr_request_op *op, void *request);

// Makes a request like no other, which MPI takes for complete. False when MPI fails.
bool fr_request_make_complete(void *request);

// Starts the parts (again). Returns an MPI error code.
int fr_request_schedule_start(struct fr_request_op *op);

// Whether all parts are complete; makes progress.
bool fr_request_schedule_poll(struct fr_request_op *op);

// Runs the parts to their end, for a blocking call. Returns an MPI error code.
int fr_request_schedule_run(struct fr_request_op *op);

#endif
