// SPDX-License-Identifier: BSD-3-Clause
// Forms of the functions that complete requests or ask for them: how many requests they look at,
// and where their arguments stand.
#ifndef FR_FABRAIL_REQUEST_FORM_H
#define FR_FABRAIL_REQUEST_FORM_H

#include "fabrail/abi.h"

// The way in which a class of functions deals with its requests.
struct fr_request_form {
    enum { FR_OF_ONE, FR_OF_ALL, FR_OF_ANY, FR_OF_SOME } of;
    bool waits; // waits until something is complete, so that no flag tells whether it is
    bool asks;  // completes nothing
};

// Returns the form of a class of functions that complete requests.
static inline struct fr_request_form fr_request_form_of(enum fr_class class)
{
    static const struct fr_request_form forms[] = {
        [FR_CLASS_WAIT] = {.of = FR_OF_ONE, .waits = true},
        [FR_CLASS_TEST] = {.of = FR_OF_ONE},
        [FR_CLASS_GET_STATUS] = {.of = FR_OF_ONE, .asks = true},
        [FR_CLASS_WAITALL] = {.of = FR_OF_ALL, .waits = true},
        [FR_CLASS_TESTALL] = {.of = FR_OF_ALL},
        [FR_CLASS_GET_STATUS_ALL] = {.of = FR_OF_ALL, .asks = true},
        [FR_CLASS_WAITANY] = {.of = FR_OF_ANY, .waits = true},
        [FR_CLASS_TESTANY] = {.of = FR_OF_ANY},
        [FR_CLASS_GET_STATUS_ANY] = {.of = FR_OF_ANY, .asks = true},
        [FR_CLASS_WAITSOME] = {.of = FR_OF_SOME, .waits = true},
        [FR_CLASS_TESTSOME] = {.of = FR_OF_SOME},
        [FR_CLASS_GET_STATUS_SOME] = {.of = FR_OF_SOME, .asks = true},
    };
    return forms[class];
}

// Positions of arguments. The requests, or their count and list, come first. The status or all
// statuses come last.
enum { FR_SET_NUMBER = 2, FR_SET_INDICES = 3 }; // an index (any), or a count (some)

// Returns whether a flag says whether requests are complete.
static inline bool fr_request_has_flag(struct fr_request_form form)
{
    return !form.waits && form.of != FR_OF_SOME;
}

// Returns whether all requests of the call are complete when it returns.
static inline bool fr_request_waits_for_all(struct fr_request_form form)
{
    return form.waits && (form.of == FR_OF_ONE || form.of == FR_OF_ALL);
}

// Returns the position of the status or of all statuses.
static inline unsigned fr_request_status_arg(struct fr_request_form form)
{
    switch (form.of) {
    case FR_OF_ONE:
        return form.waits ? 1 : 2;
    case FR_OF_ALL:
        return form.waits ? 2 : 3;
    case FR_OF_ANY:
        return form.waits ? 3 : 4;
    default:
        return 4;
    }
}

// Returns the position of the flag, for a form that has one.
static inline unsigned fr_request_flag_arg(struct fr_request_form form)
{
    return fr_request_status_arg(form) - 1;
}

// Returns whether the call has a list of statuses.
static inline bool fr_request_has_status_list(struct fr_request_form form)
{
    return form.of == FR_OF_ALL || form.of == FR_OF_SOME;
}

// Returns the error field of a status.
static inline int *fr_request_status_error(void *status)
{
    return (int *)((char *)status + fr_abi_mpi.status_error_offset);
}

#endif
