// SPDX-License-Identifier: BSD-3-Clause
// One call that completes requests or asks whether they are complete. It knows which requests are
// Fabrail's, what MPI is given, which requests MPI has completed, and what the application gets.
//
// Most calls complete receives that have brought no RTS, in a thread that is alone. The inline
// functions here are all that such calls need. fr_request_complete is made of them. So is the fast
// call of a function, whose class the compiler knows.
#ifndef FR_FABRAIL_REQUEST_SET_H
#define FR_FABRAIL_REQUEST_SET_H

#include "fabrail/request/form.h"
#include "fabrail/request/posted.h"

#include <string.h>

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
    bool lacks_statuses; // the application has given no statuses; those here are for Fabrail alone
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
// value of a request that is over, so fr_request_claim_late has the requests looked up before.
extern FR_OWN struct fr_request_set *fr_request_late_set;

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
// `has_answer`: MPI has written the arguments that tell which requests they are.
typedef bool fr_request_take_done(struct fr_request_set *set, size_t first, size_t count,
                                  char *statuses, int rc);
static inline __attribute__((always_inline)) bool
fr_request_each_done(struct fr_request_set *set, struct fr_request_form form, const fr_word *args,
                     int rc, bool has_answer, fr_request_take_done *take)
{
    if (fr_request_has_flag(form) && has_answer && !*(const int *)args[fr_request_flag_arg(form)])
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

#endif
