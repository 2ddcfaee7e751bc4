// SPDX-License-Identifier: BSD-3-Clause
// Probes. A message that has an RTS shows its own size, not that of the RTS.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "fabrail/request/posted.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/rndv/progress.h"
#include "intercept/intercept_int.h"

static int at(const void *status, unsigned offset)
{
    return *(const int *)((const char *)status + offset);
}

// Puts the size of a message that has an RTS into the status of a probe. A message that is taken
// cannot be marked if a status does not tell its bytes from an RTS.
static void correct(enum fr_fn fn, const fr_word *args, void *status)
{
    int count = 0;
    struct fr_rndv_address from;
    uint64_t bytes = 0;
    bool takes = fr_abi_rows[fn].message >= 0;
    FR_MPI(Get_count, FR_PTR(status), fr_abi_mpi.BYTE, FR_PTR(&count));
    if (takes && !fr_rndv_marks_rts(count) && fr_rndv_is_rts_length(count) &&
        fr_rndv_incoming_any())
        fr_request_any_unmarked = true;
    if (!fr_rndv_marks_rts(count)) // then it is the size of the message
        return;
    fr_word comm = fr_abi_comm(fn, args);
    int source = at(status, fr_abi_mpi.status_source_offset);
    int tag = at(status, fr_abi_mpi.status_tag_offset);
    if (!fr_intercept_address_of(comm, source, tag, &from) ||
        !fr_rndv_incoming_may_wait(&from, (size_t)count))
        return;
    // A message that has been received already, by any receive, must not be taken for one that
    // waits.
    fr_request_mark_received();
    if (fr_rndv_incoming_peek(&from, (size_t)count, takes, &bytes))
        fr_request_set_size(status, bytes);
}

// Two threads that take messages must not get each other's sizes: what MPI gives a thread and what
// is told of it belong together. So one thread at a time takes messages, and waits for none
// meanwhile. An error handler may leave a call by longjmp, or make calls itself. An earlier call of
// the same thread is therefore in nobody's way.
static _Atomic(const void *) matching; // the thread, by its fr_request_call, or NULL
static uint64_t matching_in;           // which of its calls

void fr_intercept_match_begin(void)
{
    const void *thread = NULL;
    while (!atomic_compare_exchange_strong_explicit(&matching, &thread, &fr_request_call,
                                                    memory_order_acquire, memory_order_relaxed) &&
           !(thread == &fr_request_call && matching_in != fr_request_call)) {
        thread = NULL;
        fr_wait_yield();
    }
    matching_in = fr_request_call;
}

void fr_intercept_match_end(void)
{
    const void *thread = &fr_request_call;
    atomic_compare_exchange_strong_explicit(&matching, &thread, NULL, memory_order_release,
                                            memory_order_relaxed);
}

// Does MPI_Mprobe as a row of MPI_Improbe. Whatever else waits for this process goes on meanwhile.
static int match(enum fr_fn fn, const fr_word *args, void *status, bool waits)
{
    int own_flag = 0;
    int *flag = waits ? &own_flag : (int *)args[fr_abi_rows[fn].flag];
    const fr_word given[] = {args[0],       args[1], args[2], FR_PTR(flag), args[waits ? 3 : 4],
                             FR_PTR(status)};
    fr_request_posted_note_at_once();
    for (;;) {
        fr_intercept_match_begin();
        int rc = fr_abi_call(FR_FN_MPI_Improbe, given);
        bool found = rc == fr_abi_mpi.SUCCESS && *flag;
        if (found && at(status, fr_abi_mpi.status_source_offset) != fr_abi_mpi.PROC_NULL)
            correct(fn, args, status);
        fr_intercept_match_end();
        if (found || rc != fr_abi_mpi.SUCCESS || !waits)
            return rc;
        fr_rndv_progress(NULL);
        fr_request_advance_all();
        fr_request_receive_early();
        fr_wait_yield();
    }
}

// Returns whether a message can be taken that has an RTS. Wrong arguments are for the function
// itself, which MPI names then. An error handler may make a success of the error, or leave the
// call. It must not do so while others wait for this thread to match.
static bool may_take_rts(enum fr_fn fn, const fr_word *args)
{
    struct fr_rndv_address address;
    int source = (int)args[0], tag = (int)args[1];
    fr_word comm = fr_abi_comm(fn, args);
    bool any_source = source == fr_abi_mpi.ANY_SOURCE, any_tag = tag == fr_abi_mpi.ANY_TAG;
    return (any_tag || (tag >= 0 && tag <= fr_job_tag_limit())) &&
           fr_intercept_address_of(comm, any_source ? 0 : source, tag, &address);
}

// Returns whether an argument is NULL that says what has been found. Reporting that is MPI's
// business.
static bool lacks_outputs(enum fr_fn fn, const fr_word *args)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    bool may_be_null = fr_abi_mpi.STATUS_IGNORE == 0;
    return (row->flag >= 0 && !args[row->flag]) || (row->message >= 0 && !args[row->message]) ||
           (!may_be_null && !args[row->status]);
}

bool fr_intercept_call_probe(enum fr_fn fn, fr_word *args, int *result)
{
    _Alignas(16) char own_status[FR_STATUS_BYTES] = {0};
    int status_arg = fr_abi_rows[fn].status;
    int flag_arg = fr_abi_rows[fn].flag;
    bool takes = fr_abi_rows[fn].message >= 0, waits = flag_arg < 0;
    bool ignored = args[status_arg] == fr_abi_mpi.STATUS_IGNORE;
    if (!fr_intercept_rndv_is_enabled || lacks_outputs(fn, args) || (ignored && !takes) ||
        (takes && !may_take_rts(fn, args)))
        return false;
    if (takes) {
        if (ignored)
            args[status_arg] = FR_PTR(own_status);
        *result = match(fn, args, (void *)args[status_arg], waits);
        return true;
    }
    *result = fr_request_call_real(fn, args);
    bool found = flag_arg < 0 || *(const int *)args[flag_arg];
    if (*result == fr_abi_mpi.SUCCESS && found &&
        at((void *)args[status_arg], fr_abi_mpi.status_source_offset) != fr_abi_mpi.PROC_NULL)
        correct(fn, args, (void *)args[status_arg]);
    return true;
}
