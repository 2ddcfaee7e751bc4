// SPDX-License-Identifier: BSD-3-Clause
// Fast handlers, for most of the calls that have to be looked at. They use the application's own
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
    rc = fr_request_fast_finish(set, fn, args, rc);
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
    if (FR_UNLIKELY(!fr_request_fast_begin(&set, form, registers, &status)))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    fr_intercept_handler_frame = (uintptr_t)registers;
    int rc = call_completion(form, real, registers, status);
    fr_intercept_handler_frame = 0;
    if (FR_UNLIKELY(!fr_request_fast_end(&set, form, registers, rc)))
        rc = finish(&set, fn, registers, status, rc);
    return (struct fr_intercept_verdict){.result = (fr_word)rc};
}

#define FAST_COMPLETION(name, class)                                                               \
    static FR_HOT struct fr_intercept_verdict fast_##name(                                         \
        unsigned slot, void *real, const fr_word *registers, const fr_word *stack)                 \
    {                                                                                              \
        return complete(FR_FN_MPI_##name, class, slot, real, registers, stack);                    \
    }
FAST_COMPLETION(Wait, FR_CLASS_WAIT)
FAST_COMPLETION(Test, FR_CLASS_TEST)
FAST_COMPLETION(Waitall, FR_CLASS_WAITALL)
FAST_COMPLETION(Testall, FR_CLASS_TESTALL)
FAST_COMPLETION(Waitany, FR_CLASS_WAITANY)
FAST_COMPLETION(Testany, FR_CLASS_TESTANY)
FAST_COMPLETION(Waitsome, FR_CLASS_WAITSOME)
FAST_COMPLETION(Testsome, FR_CLASS_TESTSOME)

fr_intercept_fastpath *const fr_intercept_fastpaths[FR_FN_COUNT] = {
    [FR_FN_MPI_Recv] = fr_intercept_fastpath_recv,
    [FR_FN_MPI_Irecv] = fr_intercept_fastpath_irecv,
    [FR_FN_MPI_Sendrecv] = fr_intercept_fastpath_sendrecv,
    [FR_FN_MPI_Wait] = fast_Wait,
    [FR_FN_MPI_Test] = fast_Test,
    [FR_FN_MPI_Waitall] = fast_Waitall,
    [FR_FN_MPI_Testall] = fast_Testall,
    [FR_FN_MPI_Waitany] = fast_Waitany,
    [FR_FN_MPI_Testany] = fast_Testany,
    [FR_FN_MPI_Waitsome] = fast_Waitsome,
    [FR_FN_MPI_Testsome] = fast_Testsome,
};
