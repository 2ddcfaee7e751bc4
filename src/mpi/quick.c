// SPDX-License-Identifier: BSD-3-Clause
// Receives into host memory where others may send an RTS: what most of them are, by the
// application's own arguments and in a few dozen instructions besides MPI's own.
#include "config.h"

#include "mpi/rts.h"
#include "request/posted.h"

typedef int call7(fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word);
typedef int call12(fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word,
                   fr_word, fr_word, fr_word);

// A blocking receive that has failed, or perhaps brought an RTS.
struct received {
    enum fr_fn fn;
    const fr_word *args;
    int rc;
};

static int take_received(void *context)
{
    const struct received *call = context;
    return fr_mpi_received(call->fn, call->args, call->rc);
}

static __attribute__((noinline, cold)) int received(enum fr_fn fn, const fr_word *registers,
                                                    const fr_word *stack, int rc)
{
    fr_word args[FR_MAX_ARGS];
    for (unsigned arg = 0; arg < fr_real_rows[fn].arg_count; arg++)
        args[arg] = fr_mpi_arg(registers, stack, arg);
    struct received call = {.fn = fn, .args = args, .rc = rc};
    return fr_mpi_enter_late(registers, take_received, &call);
}

static inline bool has_brought_data(fr_word buffer, int rc)
{
    return FR_LIKELY(rc == fr_real_mpi.SUCCESS) &&
           FR_LIKELY(!fr_rndv_begins_rts((const void *)buffer));
}

static inline int call_receive(void *real, const fr_word *a, fr_word last)
{
    fr_mpi_handler_frame = (uintptr_t)a;
    int rc = ((call7 *)real)(a[0], a[1], a[2], a[3], a[4], a[5], last);
    fr_mpi_handler_frame = 0;
    return rc;
}

static FR_HOT struct fr_mpi_verdict quick_recv(unsigned slot, void *real, const fr_word *registers,
                                               const fr_word *stack)
{
    if (FR_UNLIKELY(fr_request_posted_notes_at_once()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (FR_UNLIKELY((int)registers[3] == fr_real_mpi.PROC_NULL))
        return (struct fr_mpi_verdict){.jump = real};
    int rc = call_receive(real, registers, fr_mpi_arg(registers, stack, 6));
    if (!has_brought_data(registers[0], rc))
        rc = received(FR_FN_MPI_Recv, registers, stack, rc);
    return (struct fr_mpi_verdict){.result = (fr_word)rc};
}

static FR_HOT struct fr_mpi_verdict quick_irecv(unsigned slot, void *real, const fr_word *registers,
                                                const fr_word *stack)
{
    if (FR_UNLIKELY(!fr_request_alone))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (FR_UNLIKELY((int)registers[3] == fr_real_mpi.PROC_NULL))
        return (struct fr_mpi_verdict){.jump = real};
    fr_word request = fr_mpi_arg(registers, stack, 6);
    int rc = call_receive(real, registers, request);
    if (FR_LIKELY(rc == fr_real_mpi.SUCCESS))
        rc = fr_request_posted_add_alone(registers, fr_real_handle_load((const void *)request, 0));
    return (struct fr_mpi_verdict){.result = (fr_word)rc};
}

// The arguments that the stub has not put on its stack, since the caller has.
static int call_sendrecv(void *real, const fr_word *registers, const fr_word *stack)
{
    const fr_word *a = registers;
    fr_mpi_handler_frame = (uintptr_t)registers;
    int rc =
        ((call12 *)real)(a[0], a[1], a[2], a[3], a[4], a[5], fr_mpi_arg(a, stack, 6),
                         fr_mpi_arg(a, stack, 7), fr_mpi_arg(a, stack, 8), fr_mpi_arg(a, stack, 9),
                         fr_mpi_arg(a, stack, 10), fr_mpi_arg(a, stack, 11));
    fr_mpi_handler_frame = 0;
    return rc;
}

// Finds out by itself whether it is plain.
static FR_HOT struct fr_mpi_verdict quick_sendrecv(unsigned slot, void *real,
                                                   const fr_word *registers, const fr_word *stack)
{
    const fr_word sent = registers[0], buffer = registers[5];
    if (FR_UNLIKELY(!fr_device_is_ordinary((const void *)sent) ||
                    !fr_device_is_ordinary((const void *)buffer)))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (!fr_mpi_takes_rts)
        return (struct fr_mpi_verdict){.jump = real};
    enum fr_mpi_room room = fr_mpi_room_of((int)fr_mpi_arg(registers, stack, 6),
                                           fr_real_handle(fr_mpi_arg(registers, stack, 7)));
    int source = (int)fr_mpi_arg(registers, stack, 8);
    if (FR_UNLIKELY(!fr_mpi_is_unmarked((int)registers[1], fr_real_handle(registers[2])) ||
                    room == FR_MPI_ROOM_UNKNOWN || fr_request_posted_notes_at_once()))
        return fr_mpi_enter_fully(slot, registers, stack);
    if (room == FR_MPI_ROOM_NONE || source == fr_real_mpi.PROC_NULL)
        return fr_request_errors_return ? fr_mpi_enter_fully(slot, registers, stack)
                                        : (struct fr_mpi_verdict){.jump = real};
    int rc = call_sendrecv(real, registers, stack);
    if (!has_brought_data(buffer, rc))
        rc = received(FR_FN_MPI_Sendrecv, registers, stack, rc);
    return (struct fr_mpi_verdict){.result = (fr_word)rc};
}

fr_mpi_quick *fr_mpi_quick_of(enum fr_fn fn)
{
    switch (fn) {
    case FR_FN_MPI_Recv:
        return quick_recv;
    case FR_FN_MPI_Irecv:
        return quick_irecv;
    case FR_FN_MPI_Sendrecv:
        return quick_sendrecv;
    default:
        return fr_mpi_quick_completion(fn);
    }
}
