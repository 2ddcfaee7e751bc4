// SPDX-License-Identifier: BSD-3-Clause
// All the ways that MPI has to complete a list of requests.
#ifndef PROGRAMS_COMPLETION_H
#define PROGRAMS_COMPLETION_H

#include "harness.h"

enum completion {
    COMPLETE_WAIT,
    COMPLETE_TEST,
    COMPLETE_WAITALL,
    COMPLETE_TESTALL,
    COMPLETE_WAITANY,
    COMPLETE_TESTANY,
    COMPLETE_WAITSOME,
    COMPLETE_TESTSOME,
    COMPLETIONS
};

const char *completion_name(enum completion how);

// Completes all requests that way. done, unless NULL, is called for each request as soon as MPI has
// said that it is complete: what it received must be there by then.
void complete(enum completion how, int count, MPI_Request *requests,
              void (*done)(void *context, int index, const MPI_Status *status), void *context);

#endif
