// SPDX-License-Identifier: BSD-3-Clause
// Calls of MPI that wait for another process, made while receivers may still ask something of this
// one for messages that have left their buffers: one that cannot follow a scheme asks for another,
// and may be just who the call waits for. So it is made of nonblocking calls and looks, and what
// receivers ask for is done meanwhile.
//
// MPI has no such form of a blocking collective.
#include "config.h"

#include "request/request.h"

#include <sched.h>

enum { LOOKS_A_PROGRESS = 16, LOOKS_A_YIELD = 64 };

static const struct row {
    enum fr_fn waits, starts;
} rows[] = {
    {FR_FN_MPI_Recv, FR_FN_MPI_Irecv},
    {FR_FN_MPI_Send, FR_FN_MPI_Isend},
    {FR_FN_MPI_Ssend, FR_FN_MPI_Issend},
    {FR_FN_MPI_Rsend, FR_FN_MPI_Irsend},
};
#define A_LARGE_FORM_FOLLOWS(name)                                                                 \
    _Static_assert(FR_FN_MPI_##name##_c == FR_FN_MPI_##name + 1, "a _c form follows")
A_LARGE_FORM_FOLLOWS(Recv);
A_LARGE_FORM_FOLLOWS(Send);
A_LARGE_FORM_FOLLOWS(Ssend);
A_LARGE_FORM_FOLLOWS(Rsend);
A_LARGE_FORM_FOLLOWS(Irecv);
A_LARGE_FORM_FOLLOWS(Isend);
A_LARGE_FORM_FOLLOWS(Issend);
A_LARGE_FORM_FOLLOWS(Irsend);

// What a message begins by; FR_FN_COUNT for functions that are no such.
static enum fr_fn start_of(enum fr_fn fn)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(rows); i++) {
        if (fn - rows[i].waits <= 1)
            return rows[i].starts + (fn - rows[i].waits);
    }
    return FR_FN_COUNT;
}

static bool exchanges(enum fr_fn fn)
{
    return fn == FR_FN_MPI_Sendrecv || fn == FR_FN_MPI_Sendrecv_c;
}

bool fr_request_waits(enum fr_fn fn)
{
    switch (fr_real_rows[fn].class) {
    case FR_CLASS_WAIT:
    case FR_CLASS_WAITALL:
    case FR_CLASS_WAITANY:
    case FR_CLASS_WAITSOME:
        return true;
    default:
        return fn == FR_FN_MPI_Probe || exchanges(fn) || start_of(fn) != FR_FN_COUNT;
    }
}

static void look_after(unsigned looks)
{
    if (looks % LOOKS_A_PROGRESS == 0)
        fr_rndv_progress(NULL);
    if (looks % LOOKS_A_YIELD == 0)
        sched_yield();
}

// Asks until MPI says yes, or receivers need nothing any more: then *ended stays false.
static int ask(enum fr_fn fn, const fr_word *args, const int *flag, bool *ended)
{
    int rc = fr_real_mpi.SUCCESS;
    *ended = false;
    for (unsigned looks = 1; !*ended && fr_rndv_is_needed(); looks++) {
        rc = fr_real_call(fn, args);
        *ended = rc != fr_real_mpi.SUCCESS || *flag != 0;
        if (!*ended)
            look_after(looks);
    }
    return rc;
}

// The functions that complete requests, and MPI_Probe.
static int wait_by_asking(enum fr_fn fn, const fr_word *args)
{
    int flag = 0, rc = fr_real_mpi.SUCCESS;
    const fr_word yes = FR_PTR(&flag);
    bool ended = false;
    switch (fr_real_rows[fn].class) {
    case FR_CLASS_WAIT:
        rc = ask(FR_FN_MPI_Test, (const fr_word[]){args[0], yes, args[1]}, &flag, &ended);
        break;
    case FR_CLASS_WAITALL:
        rc = ask(FR_FN_MPI_Testall, (const fr_word[]){args[0], args[1], yes, args[2]}, &flag,
                 &ended);
        break;
    case FR_CLASS_WAITANY:
        rc = ask(FR_FN_MPI_Testany, (const fr_word[]){args[0], args[1], args[2], yes, args[3]},
                 &flag, &ended);
        break;
    case FR_CLASS_WAITSOME: // how many, or MPI_UNDEFINED, is as good as a flag
        rc = ask(FR_FN_MPI_Testsome, args, (const int *)args[2], &ended);
        break;
    default:
        rc = ask(FR_FN_MPI_Iprobe, (const fr_word[]){args[0], args[1], args[2], yes, args[3]},
                 &flag, &ended);
    }
    return ended ? rc : fr_real_call(fn, args);
}

static int wait_for(char *request, fr_word status)
{
    return wait_by_asking(FR_FN_MPI_Wait, (const fr_word[]){FR_PTR(request), status});
}

// Begins a message by the first `count` arguments of the call that waits.
static int start(enum fr_fn fn, const fr_word *args, unsigned count, char *request)
{
    fr_word started[FR_MAX_ARGS];
    for (unsigned i = 0; i < count; i++)
        started[i] = args[i];
    started[count] = FR_PTR(request);
    return fr_real_call(fn, started);
}

static int wait_for_message(enum fr_fn fn, const fr_word *args)
{
    _Alignas(8) char request[8];
    int status = fr_real_arg(fn, 'u', 0);
    unsigned count = status >= 0 ? (unsigned)status : fr_real_rows[fn].arg_count;
    int rc = start(start_of(fn), args, count, request);
    return rc == fr_real_mpi.SUCCESS
               ? wait_for(request, status >= 0 ? args[status] : fr_real_mpi.STATUS_IGNORE)
               : rc;
}

static int wait_for_exchange(enum fr_fn fn, const fr_word *args)
{
    enum { RECEIVED = 5, COMM = 10, STATUS = 11, HALF = 6 };
    _Alignas(8) char receive[8], send[8];
    bool wide = fn == FR_FN_MPI_Sendrecv_c;
    const fr_word to[HALF] = {args[0], args[1], args[2], args[3], args[4], args[COMM]};
    int rc = start(FR_FN_MPI_Irecv + wide, args + RECEIVED, HALF, receive);
    if (rc != fr_real_mpi.SUCCESS)
        return rc;
    int sent = start(FR_FN_MPI_Isend + wide, to, HALF, send);
    if (sent != fr_real_mpi.SUCCESS) {
        FR_MPI(Cancel, FR_PTR(receive));
        FR_MPI(Wait, FR_PTR(receive), fr_real_mpi.STATUS_IGNORE);
        return sent;
    }
    sent = wait_for(send, fr_real_mpi.STATUS_IGNORE);
    rc = wait_for(receive, args[STATUS]);
    return rc == fr_real_mpi.SUCCESS ? sent : rc;
}

// From nobody a message comes at once: MPICH 4.0 gets the status of a request for that wrong.
static bool is_from_nobody(enum fr_fn fn, const fr_word *args)
{
    bool receives = fr_real_rows[fn].class == FR_CLASS_RECV;
    return (receives && (int)args[3] == fr_real_mpi.PROC_NULL) ||
           (exchanges(fn) && (int)args[8] == fr_real_mpi.PROC_NULL);
}

int fr_request_call_waiting(enum fr_fn fn, const fr_word *args)
{
    if (FR_LIKELY(!fr_rndv_is_needed()) || !fr_request_waits(fn) || is_from_nobody(fn, args))
        return fr_real_call(fn, args);
    if (exchanges(fn))
        return wait_for_exchange(fn, args);
    return start_of(fn) != FR_FN_COUNT ? wait_for_message(fn, args) : wait_by_asking(fn, args);
}
