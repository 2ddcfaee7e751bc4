// SPDX-License-Identifier: BSD-3-Clause
// Probes: a message that has an RTS shows its own size, not that of the RTS.
#include "config.h"

#include "mpi/mpi_int.h"
#include "world/world.h"

#include <sched.h>

static int at(const void *status, unsigned offset)
{
    return *(const int *)((const char *)status + offset);
}

// Puts the size of what has an RTS into the status of a probe that has found something.
static void correct(enum fr_fn fn, const fr_word *args, void *status)
{
    int count = 0;
    struct fr_rndv_address from;
    uint64_t bytes = 0;
    bool takes = fr_real_arg(fn, 'm', 0) >= 0;
    FR_MPI(Get_count, FR_PTR(status), fr_real_mpi.BYTE, FR_PTR(&count));
    if (!fr_rndv_marks_rts(count)) // then it is the size of the message
        return;
    // What has been received already must not be taken for what waits.
    fr_request_mark_received();
    fr_word comm = fr_real_handle(args[fr_real_arg(fn, 'c', 0)]);
    int source = at(status, fr_real_mpi.status_source_offset);
    int tag = at(status, fr_real_mpi.status_tag_offset);
    if (fr_mpi_address_of(comm, source, tag, &from) &&
        fr_rndv_incoming_peek(&from, (size_t)count, takes, &bytes))
        fr_request_set_size(status, bytes);
}

// Two threads that take messages must not get each other's sizes: what MPI gives a thread and what
// is told of it belong together. Hence one thread at a time, and no waiting for messages meanwhile.
static atomic_flag matching = ATOMIC_FLAG_INIT;

static void match_begin(void)
{
    while (atomic_flag_test_and_set_explicit(&matching, memory_order_acquire))
        sched_yield();
}

static void match_end(void)
{
    atomic_flag_clear_explicit(&matching, memory_order_release);
}

// MPI_Mprobe as a row of MPI_Improbe. Whatever else waits for this process goes on meanwhile.
static int match(enum fr_fn fn, const fr_word *args, void *status, bool waits)
{
    int own_flag = 0;
    int *flag = waits ? &own_flag : (int *)args[fr_real_arg(fn, 'F', 0)];
    const fr_word given[] = {args[0],       args[1], args[2], FR_PTR(flag), args[waits ? 3 : 4],
                             FR_PTR(status)};
    for (;;) {
        match_begin();
        int rc = fr_real_call(FR_FN_MPI_Improbe, given);
        bool found = rc == fr_real_mpi.SUCCESS && *flag;
        if (found && at(status, fr_real_mpi.status_source_offset) != fr_real_mpi.PROC_NULL)
            correct(fn, args, status);
        match_end();
        if (found || rc != fr_real_mpi.SUCCESS || !waits)
            return rc;
        fr_request_receive_early(false);
        sched_yield();
    }
}

// Whether a message can be taken that has an RTS. Wrong arguments are for the function itself,
// which MPI names then; an error handler may make a success of that.
static bool may_take_rts(enum fr_fn fn, const fr_word *args)
{
    struct fr_rndv_address address;
    int source = (int)args[0], tag = (int)args[1];
    fr_word comm = fr_real_handle(args[fr_real_arg(fn, 'c', 0)]);
    bool any_source = source == fr_real_mpi.ANY_SOURCE, any_tag = tag == fr_real_mpi.ANY_TAG;
    return (any_tag || (tag >= 0 && tag <= fr_world_tag_limit())) &&
           fr_mpi_address_of(comm, any_source ? 0 : source, tag, &address);
}

bool fr_mpi_call_probe(enum fr_fn fn, fr_word *args, int *result)
{
    _Alignas(16) char own_status[FR_STATUS_BYTES] = {0};
    int status_arg = fr_real_arg(fn, 'u', 0);
    int flag_arg = fr_real_arg(fn, 'F', 0);
    bool takes = fr_real_arg(fn, 'm', 0) >= 0, waits = flag_arg < 0;
    bool ignored = args[status_arg] == fr_real_mpi.STATUS_IGNORE;
    bool differs = takes && (waits || ignored); // what MPI is called with
    if (flag_arg >= 0 && !args[flag_arg])
        return false;
    if (!fr_mpi_takes_rts || (ignored && !takes) || (differs && !may_take_rts(fn, args)))
        return false;
    if (takes) {
        if (ignored)
            args[status_arg] = FR_PTR(own_status);
        *result = match(fn, args, (void *)args[status_arg], waits);
        return true;
    }
    *result = fr_real_call(fn, args);
    bool found = flag_arg < 0 || *(const int *)args[flag_arg];
    if (*result == fr_real_mpi.SUCCESS && found &&
        at((void *)args[status_arg], fr_real_mpi.status_source_offset) != fr_real_mpi.PROC_NULL)
        correct(fn, args, (void *)args[status_arg]);
    return true;
}
