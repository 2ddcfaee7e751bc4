// SPDX-License-Identifier: BSD-3-Clause
// Quick calls: most of the calls that have to be looked at. They use the application's own
// arguments, and take a few dozen instructions besides MPI's own. Calls that complete requests are
// here, and those that receive in receive.c.
#include "config.h"

#include "fabrail/request/set.h"
#include "intercept/intercept_int.h"

typedef int call2(fr_word, fr_word);
typedef int call3(fr_word, fr_word, fr_word);
typedef int call4(fr_word, fr_word, fr_word, fr_word);
typedef int call5(fr_word, fr_word, fr_word, fr_word, fr_word);

// Does the rest of a call that completes requests and has failed, or has brought an RTS.
static __attribute__((noinline, cold)) int finish(struct fr_request_set *set, enum fr_fn fn,
                                                  const fr_word *registers, fr_word status, int rc)
{
    fr_word args[FR_MAX_ARGS];
    memcpy(args, registers, FR_REGISTER_ARGS * sizeof(fr_word));
    args[fr_abi_rows[fn].arg_count - 1] = status;
    fr_intercept_dispatch_late(registers);
    rc = fr_request_finish_quick(set, fn, args, rc);
    fr_intercept_exit_late();
    return rc;
}

// The arguments of a function that completes requests are all in registers.
static inline int call_completion(struct fr_request_form form, void *real, const fr_word *a,
                                  fr_word status)
{
    switch (fr_request_status_arg(form)) {
    case 1:
        return ((call2 *)real)(a[0], status);
    case 2:
        return ((call3 *)real)(a[0], a[1], status);
    case 3:
        return ((call4 *)real)(a[0], a[1], a[2], status);
    default:
        return ((call5 *)real)(a[0], a[1], a[2], a[3], status);
    }
}

static inline __attribute__((always_inline)) struct fr_intercept_verdict
complete(enum fr_fn fn, enum fr_class class, unsigned slot, void *real, const fr_word *registers,
         const fr_word *stack)
{
    const struct fr_request_form form = fr_request_form_of(class);
    struct fr_request_set set;
    fr_word status;
    if (FR_UNLIKELY(!fr_request_begin_quick(&set, form, registers, &status)))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    fr_intercept_handler_frame = (uintptr_t)registers;
    int rc = call_completion(form, real, registers, status);
    fr_intercept_handler_frame = 0;
    if (FR_UNLIKELY(!fr_request_end_quick(&set, form, registers, rc)))
        rc = finish(&set, fn, registers, status, rc);
    return (struct fr_intercept_verdict){.result = (fr_word)rc};
}

#define QUICK_COMPLETION(name, function, class)                                                    \
    static FR_HOT struct fr_intercept_verdict name(unsigned slot, void *real,                      \
                                                   const fr_word *registers, const fr_word *stack) \
    {                                                                                              \
        return complete(function, class, slot, real, registers, stack);                            \
    }
QUICK_COMPLETION(quick_wait, FR_FN_MPI_Wait, FR_CLASS_WAIT)
QUICK_COMPLETION(quick_test, FR_FN_MPI_Test, FR_CLASS_TEST)
QUICK_COMPLETION(quick_waitall, FR_FN_MPI_Waitall, FR_CLASS_WAITALL)
QUICK_COMPLETION(quick_testall, FR_FN_MPI_Testall, FR_CLASS_TESTALL)
QUICK_COMPLETION(quick_waitany, FR_FN_MPI_Waitany, FR_CLASS_WAITANY)
QUICK_COMPLETION(quick_testany, FR_FN_MPI_Testany, FR_CLASS_TESTANY)
QUICK_COMPLETION(quick_waitsome, FR_FN_MPI_Waitsome, FR_CLASS_WAITSOME)
QUICK_COMPLETION(quick_testsome, FR_FN_MPI_Testsome, FR_CLASS_TESTSOME)

fr_intercept_fastpath *fr_intercept_fastpath_of(enum fr_fn fn)
{
    switch (fn) {
    case FR_FN_MPI_Recv:
        return fr_intercept_fastpath_recv;
    case FR_FN_MPI_Irecv:
        return fr_intercept_fastpath_irecv;
    case FR_FN_MPI_Sendrecv:
        return fr_intercept_fastpath_sendrecv;
    case FR_FN_MPI_Wait:
        return quick_wait;
    case FR_FN_MPI_Test:
        return quick_test;
    case FR_FN_MPI_Waitall:
        return quick_waitall;
    case FR_FN_MPI_Testall:
        return quick_testall;
    case FR_FN_MPI_Waitany:
        return quick_waitany;
    case FR_FN_MPI_Testany:
        return quick_testany;
    case FR_FN_MPI_Waitsome:
        return quick_waitsome;
    case FR_FN_MPI_Testsome:
        return quick_testsome;
    default:
        return NULL;
    }
}
