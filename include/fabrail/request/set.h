// SPDX-License-Identifier: BSD-3-Clause
// One call that completes requests or asks whether they are complete. It knows which requests are
// Fabrail's, what MPI is given, which requests MPI has completed, and what the application gets.
//
// Most calls complete receives that have brought no RTS, in a thread that is alone. The inline
// functions here are all that such calls need. fr_request_complete is made of them. So is the fast
// call of a function, whose class the compiler knows.
#ifndef FR_FABRAIL_REQUEST_SET_H
#define FR_FABRAIL_REQUEST_SET_H

#include "fabrail/request/posted.h"
#include "fabrail/request/table.h"

#include <string.h>

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

// One completion call.
struct fr_request_set {
    enum fr_fn fn;
    struct fr_request_form form;
    fr_word *args;
    size_t count;   // requests in the call
    size_t tracked; // requests with an operation
    bool looked_up; // operations were looked up; else there are none, and `ops` is undefined
    bool late;      // requests are looked up once MPI has completed them, by `hidden`
    const void *requests;
    fr_word by_value;                  // storage for a request that was passed by value
    struct fr_request_op **ops;        // by request, once looked up
    struct fr_request_posted **posted; // by request, where there is no operation; NULL: none
    bool out_of_memory;                // no memory for what one of the receives has brought
    struct fr_request_op **deferred;   // by request: the application must not see it complete yet
    char *hidden; // copy of the requests, for calls that must not see all of them
    // By request, or by position among the completed ones (some). NULL: ignored.
    char *statuses;
    size_t done_count;
    struct fr_request_op **done; // operations that this call completes
    void **done_statuses;
    int *done_errors;
    size_t *done_requests; // index of the request of each
    // The old values of the arguments by which a call of any says which request is complete. An MPI
    // that refuses the call writes nothing there, so they are put back.
    int index_before, flag_before;
    // The first error that the call has to tell an error handler, which may not return.
    bool raises;
    char error_kind;
    fr_word error_object;
    int error;

    struct fr_request_op *inline_ops[FR_REQUEST_SHORT_LIST];
    struct fr_request_posted *inline_posted[FR_REQUEST_SHORT_LIST];
    struct fr_request_op *inline_deferred[FR_REQUEST_SHORT_LIST];
    struct fr_request_op *inline_done[FR_REQUEST_SHORT_LIST];
    void *inline_done_statuses[FR_REQUEST_SHORT_LIST];
    int inline_done_errors[FR_REQUEST_SHORT_LIST];
    size_t inline_done_requests[FR_REQUEST_SHORT_LIST];
    _Alignas(8) char inline_hidden[FR_REQUEST_SHORT_LIST * sizeof(fr_word)];
    _Alignas(16) char inline_statuses[FR_REQUEST_SHORT_LIST * FR_STATUS_BYTES];
    void *heap;
};

// The call of this process that is in the real MPI and looks its requests up afterwards; NULL for
// none. MPI may call functions of the application's meanwhile. These may receive anew under the
// value of a request that is over, so fr_request_settle has the requests looked up before.
extern struct fr_request_set *fr_request_late_set;

// Returns whether an argument is NULL that says which requests are complete. Reporting that is
// MPI's business.
static inline bool fr_request_lacks_outputs(struct fr_request_form form, const fr_word *args)
{
    for (unsigned arg = form.of == FR_OF_ONE ? 1 : 2; arg < fr_request_status_arg(form); arg++) {
        if (!args[arg])
            return true;
    }
    return false;
}

// Chooses what MPI is given for statuses, and returns it. Ignored statuses are replaced by
// set->statuses where they are `needed`, and where they alone tell which request of many has
// failed. Else MPI gets what the application gives, which MPI's error texts name.
static inline __attribute__((always_inline)) fr_word
fr_request_choose_statuses(struct fr_request_set *set, struct fr_request_form form, fr_word given,
                           bool needed)
{
    bool list = fr_request_has_status_list(form);
    if (given != (list ? fr_abi_mpi.STATUSES_IGNORE : fr_abi_mpi.STATUS_IGNORE)) {
        set->statuses = (char *)given;
    } else if (needed || (list && !(form.of == FR_OF_ALL && form.waits))) {
        memset(set->statuses, 0, set->count * fr_abi_mpi.status_bytes);
        return FR_PTR(set->statuses);
    } else {
        set->statuses = NULL;
    }
    return given;
}

// Keeps what the application has where a call of any says which request is complete, and writes
// there that none is.
static inline void fr_request_begin_answer(struct fr_request_set *set, struct fr_request_form form,
                                           const fr_word *args)
{
    if (form.of != FR_OF_ANY)
        return;
    set->index_before = *(int *)args[FR_SET_NUMBER];
    *(int *)args[FR_SET_NUMBER] = fr_abi_mpi.UNDEFINED;
    if (form.waits)
        return;
    set->flag_before = *(int *)args[fr_request_flag_arg(form)];
    *(int *)args[fr_request_flag_arg(form)] = 0;
}

// Calls `take` for the requests that a call has completed, a run of neighbours at a time, in the
// order of their statuses. Goes on as long as that returns true, and returns whether it always has.
// `is_told`: MPI has written the arguments that tell which requests they are.
typedef bool fr_request_take_done(struct fr_request_set *set, size_t first, size_t count,
                                  char *statuses, int rc);
static inline __attribute__((always_inline)) bool
fr_request_each_done(struct fr_request_set *set, struct fr_request_form form, const fr_word *args,
                     int rc, bool is_told, fr_request_take_done *take)
{
    if (fr_request_has_flag(form) && is_told && !*(const int *)args[fr_request_flag_arg(form)])
        return true;
    if (form.of == FR_OF_ONE || form.of == FR_OF_ALL)
        return take(set, 0, form.of == FR_OF_ONE ? 1 : set->count, set->statuses, rc);
    int number = *(const int *)args[FR_SET_NUMBER];
    if (number == fr_abi_mpi.UNDEFINED)
        return true;
    if (form.of == FR_OF_ANY)
        return take(set, (size_t)number, 1, set->statuses, rc);
    const int *indices = (const int *)args[FR_SET_INDICES];
    for (size_t i = 0; i < (size_t)number; i++) {
        if (!take(set, (size_t)indices[i], 1, set->statuses + i * fr_abi_mpi.status_bytes, rc))
            return false;
    }
    return true;
}

// Ends receives that MPI has completed without an error, for a thread that is alone. Returns false
// at a receive that has brought an RTS. That one and those after it are left to
// fr_request_set_finish.
static inline __attribute__((always_inline)) bool
fr_request_end_late(struct fr_request_set *set, size_t first, size_t count, char *statuses, int rc)
{
    (void)rc;
    const char *requests = set->hidden + first * fr_abi_mpi.handle_bytes;
    return count == 1 ? fr_request_posted_end_one_late(fr_abi_handle_load(requests, 0), statuses)
                      : fr_request_posted_end_late(requests, count, statuses);
}

// Begins a completion call with a short list and with nothing but receives under way, for a thread
// that is alone. Returns false where that is not so. Otherwise MPI is to be given `*status` in
// place of the last argument, and the set is to be ended by fr_request_fast_end.
static inline __attribute__((always_inline)) bool fr_request_fast_begin(struct fr_request_set *set,
                                                                        struct fr_request_form form,
                                                                        const fr_word *args,
                                                                        fr_word *status)
{
    bool one = form.of == FR_OF_ONE;
    const void *requests = (const void *)args[one ? 0 : 1];
    size_t count = one ? 1 : (unsigned)args[0];
    if (FR_UNLIKELY(count > FR_REQUEST_SHORT_LIST || !requests || !fr_request_alone ||
                    fr_request_lacks_outputs(form, args) ||
                    atomic_load_explicit(&fr_request_tracked_count, memory_order_acquire) != 0))
        return false;
    set->count = count;
    set->hidden = set->inline_hidden;
    set->statuses = set->inline_statuses;
    if (one)
        fr_abi_handle_store(set->hidden, 0, fr_abi_handle_load(requests, 0));
    else
        memcpy(set->hidden, requests, count * fr_abi_mpi.handle_bytes);
    *status = fr_request_choose_statuses(set, form, args[fr_request_status_arg(form)], false);
    fr_request_begin_answer(set, form, args);
    set->late = true;
    fr_request_late_set = set;
    return true;
}

// Ends a call that fr_request_fast_begin has begun and for which MPI has returned `rc`. Returns
// false where more is to be done, by fr_request_fast_finish.
static inline __attribute__((always_inline)) bool fr_request_fast_end(struct fr_request_set *set,
                                                                      struct fr_request_form form,
                                                                      const fr_word *args, int rc)
{
    fr_request_late_set = NULL;
    return FR_LIKELY(rc == fr_abi_mpi.SUCCESS) && FR_LIKELY(set->late) &&
           fr_request_each_done(set, form, args, rc, true, fr_request_end_late);
}

// Does what fr_request_fast_end has left. `args` are those that MPI was given. Returns what the
// application's call returns.
int fr_request_fast_finish(struct fr_request_set *set, enum fr_fn fn, fr_word *args, int rc);

// Points the set's arrays at its own storage, or at one allocation for a long list of requests.
// Returns false when there is no memory for that.
bool fr_request_set_make_arrays(struct fr_request_set *set);

// Returns whether Fabrail has anything under a list of requests that there is no memory for. Looks
// at as many at a time as the set has room for.
bool fr_request_set_is_any_ours(struct fr_request_set *set);

// Claims all that a late set has not ended, by the values that its requests had. The set is late no
// more.
void fr_request_set_claim_late(struct fr_request_set *set);

// Claims what belongs to one request of a late set, which MPI has completed.
void fr_request_set_look_up(struct fr_request_set *set, size_t request);

// Takes the call from what the real MPI has returned to what the application gets. Copies back and
// receives, and forgets the operations that are complete. Returns what the call returns.
int fr_request_set_finish(struct fr_request_set *set, int rc);

// Makes errors of completed operations, which the real MPI knows nothing of, errors of the call.
// Returns what the call then returns.
int fr_request_set_report(struct fr_request_set *set, int rc);

// Notes an error that the real MPI has told no error handler of, on a communicator, window or file.
// The call ends with it. The handler is called once the call has nothing in hand.
void fr_request_set_raise(struct fr_request_set *set, char kind, fr_word object, int code);

// Calls the real function for what is claimed. Where senders have had to wait for this process, a
// call that waits does so as a row of tests. It gives its claims up in between.
int fr_request_set_call(struct fr_request_set *set);

// Gives back what the set has claimed and not completed.
void fr_request_set_unclaim(struct fr_request_set *set);

// Claims what belongs to the requests of the set. Returns false when there is nothing.
bool fr_request_set_claim(struct fr_request_set *set);

// Lists in `deferred` the operations that are not complete though MPI may say so. Returns false
// when there are none.
bool fr_request_set_find_deferred(struct fr_request_set *set);

// Returns whether the operation of one request is not complete though MPI may say so. Makes
// progress. `copies` counts down the copies that it may wait for.
bool fr_request_set_is_deferred(const struct fr_request_set *set, size_t index, unsigned *copies);

// Returns the status at `index`, NULL where MPI was given none.
void *fr_request_set_status(const struct fr_request_set *set, size_t index);

// Does the call when some of its operations are sends whose bytes are still in the application's
// buffer, or receives whose bytes are still on their way. MPI takes them for complete; the
// application must not.
int fr_request_set_defer(struct fr_request_set *set);

#endif
