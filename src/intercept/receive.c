// SPDX-License-Identifier: BSD-3-Clause
// Functions that receive by matching, mostly into host memory. A receive that may have brought an
// RTS is looked at when it has come. Nothing else costs more than a few compares. Most receives
// have fast handlers. The others, and those that have brought more than data, are looked at in
// full.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/request/posted.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/rndv/progress.h"
#include "intercept/rts.h"

typedef int call7(fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word);
typedef int call12(fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word, fr_word,
                   fr_word, fr_word, fr_word);

static int64_t count_at(enum fr_fn fn, const fr_word *args, int arg)
{
    return fr_abi_rows[fn].flags & FR_ROW_LARGE ? (int64_t)args[arg] : (int)args[arg];
}

static int receiving_buffer(enum fr_fn fn)
{
    return fr_abi_rows[fn].receive.buffer;
}

// Follows the RTS that a blocking receive into host memory may have brought. In an exchange this is
// the second half; the datatype of what it has sent need not be understood.
static int follow_rts(enum fr_fn fn, const fr_word *args, void *status, int rc)
{
    bool large = fr_abi_rows[fn].flags & FR_ROW_LARGE;
    int half = receiving_buffer(fn);
    struct fr_request_op *op = fr_request_op_new(!half   ? fn
                                                 : large ? FR_FN_MPI_Recv_c
                                                         : FR_FN_MPI_Recv,
                                                 args + half);
    if (!op)
        return fr_request_raise(0, 0, fr_abi_mpi.ERR_NO_MEM);
    fr_intercept_find_object(op);
    op->receive.takes_rts = true;
    op->counted_as = fn;
    enum fr_status built = fr_intercept_views_build(op);
    if (built == FR_ERR_INVALID) { // MPI has found that too, but an error handler made it a success
        fr_request_op_free(op);
        return rc;
    }
    fr_staging_views_measure(op->views, op->view_count);
    rc = built == FR_OK ? fr_request_deliver_one(op, status, rc) : fr_request_fail(op, built);
    fr_request_op_free(op);
    return rc;
}

// Returns the position of the status of a function that receives at once, else of the request. Both
// come last.
static int outcome_arg(enum fr_fn fn)
{
    return fr_abi_rows[fn].arg_count - 1;
}

// Returns whether a receive may have brought an RTS, and `status`, if it is not NULL, does not
// speak against it. The cheapest test comes first. For a datatype without gaps it reads a few bytes
// that have just come.
static bool may_have_brought(const fr_word *buffer, bool simple, const void *status, int rc)
{
    if (rc != fr_abi_mpi.SUCCESS)
        return fr_request_has_come(rc) && fr_rndv_incoming_any();
    if (status && !fr_rndv_is_rts_length(fr_abi_status_size(status)))
        return false;
    return (!simple || fr_rndv_begins_rts((const void *)buffer[0])) && fr_rndv_incoming_any();
}

// Returns whether nothing can come, so that the buffer need not be one. `source` is the position of
// the source, in functions that have one.
static inline bool is_from_nobody(enum fr_fn fn, const fr_word *args, int source)
{
    if (fr_abi_rows[fn].message >= 0)
        return !args[3] ||
               fr_abi_handle_load((const void *)args[3], 0) == fr_abi_mpi.MESSAGE_NO_PROC;
    return (int)args[source] == fr_abi_mpi.PROC_NULL;
}

// Asks for the size of a predefined datatype that MPI has taken, so that the next call is fast.
static void learn(fr_word type, int rc)
{
    if (rc == fr_abi_mpi.SUCCESS && fr_abi_type_is_named(type))
        (void)fr_intercept_named_bytes(type);
}

// Looks at what a blocking receive into host memory has brought, for which MPI has returned `rc`.
// Returns what the application's call returns.
static int look_at_received(enum fr_fn fn, const fr_word *args, int rc)
{
    const fr_word *buffer = args + receiving_buffer(fn);
    int outcome = outcome_arg(fn);
    fr_word type = fr_abi_handle(buffer[2]);
    void *status = args[outcome] == fr_abi_mpi.STATUS_IGNORE ? NULL : (void *)args[outcome];
    learn(type, rc);
    if (rc == fr_abi_mpi.SUCCESS && !fr_intercept_may_bring(count_at(fn, buffer, 1), type))
        return rc;
    if (FR_LIKELY(!may_have_brought(buffer, fr_intercept_is_simple(type), status, rc)))
        return rc;
    return follow_rts(fn, args, status, rc);
}

// Receives into host memory at once. MPI gets the application's own arguments, which it names where
// it fails, and no status where the application gives none.
static int receive_now(enum fr_fn fn, const fr_word *args)
{
    int outcome = outcome_arg(fn);
    bool ignored = args[outcome] == fr_abi_mpi.STATUS_IGNORE;
    bool nothing = ignored && is_from_nobody(fn, args, outcome - 3);
    int rc = fr_request_call_real(fn, args);
    return nothing ? rc : look_at_received(fn, args, rc);
}

// Receives into host memory at once while other threads take messages by matching them. These have
// to see what comes here.
static int receive_noted(enum fr_fn fn, fr_word *args, enum fr_fn counted_as)
{
    const fr_word *buffer = args + receiving_buffer(fn);
    int rc = fr_abi_mpi.SUCCESS;
    if (fr_abi_rows[fn].message >= 0) // this thread has taken it so
        return receive_now(fn, args);
    bool simple = fr_intercept_is_simple(fr_abi_handle(buffer[2]));
    struct fr_request_posted *noted = simple ? fr_request_posted_begin(fn, buffer) : NULL;
    if (!noted && fr_intercept_serve(fn, args, counted_as, &rc))
        return rc;
    rc = receive_now(fn, args);
    if (noted)
        fr_request_posted_forget(noted);
    return rc;
}

// Begins to receive into host memory. Returns false where nothing can come.
static bool receive_later(enum fr_fn fn, const fr_word *args, int *result)
{
    if (is_from_nobody(fn, args, 3))
        return false;
    bool matches = fr_request_posted_notes_at_once();
    if (FR_UNLIKELY(matches))
        fr_intercept_match_begin();
    *result = fr_abi_call(fn, args);
    learn(fr_abi_handle(args[2]), *result);
    if (*result == fr_abi_mpi.SUCCESS)
        *result = fr_request_posted_add(fn, args,
                                        fr_abi_handle_load((const void *)args[outcome_arg(fn)], 0));
    if (FR_UNLIKELY(matches))
        fr_intercept_match_end();
    return true;
}

// Returns whether all buffers are host memory, as far as can be told without decoding datatypes.
static bool are_on_host(enum fr_fn fn, const fr_word *args)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    if (fr_intercept_are_host_buffers(fn, args))
        return true;
    for (unsigned i = 0; i < row->buffer_count; i++) {
        int arg = row->buffers[i];
        if (!fr_intercept_is_host_memory(args[arg], count_at(fn, args, arg + 1),
                                         fr_abi_handle(args[arg + 2])))
            return false;
    }
    return true;
}

// Returns whether what is sent from host memory needs a look. That is a message as long as an RTS,
// or one for rails, which must not be received over while it is copied.
static bool needs_look_for_sending(enum fr_fn fn, const fr_word *args)
{
    int64_t count = count_at(fn, args, 1);
    fr_word type = fr_abi_handle(args[2]);
    bool apart = fr_abi_rows[fn].class == FR_CLASS_SENDRECV;
    return fr_intercept_may_be_as_rts(count, type) ||
           (apart && fr_intercept_may_go_over_rails(count, type));
}

// Serves functions that receive by matching. Calls that need no look at their buffers make no
// operation.
static FR_OFTEN bool receive(enum fr_fn fn, fr_word *args, enum fr_fn counted_as, int *result)
{
    bool receives = fr_abi_rows[fn].class == FR_CLASS_RECV;
    fr_word first_type = fr_abi_handle(args[2]);
    if (receives && !args[0] && fr_intercept_is_simple(first_type) &&
        (!fr_request_errors_return() || fr_intercept_may_bring(count_at(fn, args, 1), first_type)))
        return false; // nothing comes, or MPI refuses it
    bool on_host = !(fr_abi_rows[fn].flags & FR_ROW_PERSISTENT) && are_on_host(fn, args);
    bool sends_more = !receives && needs_look_for_sending(fn, args);
    int in = receiving_buffer(fn);
    if ((!on_host || sends_more) && fr_intercept_serve(fn, args, counted_as, result))
        return true;
    if (!on_host)
        return false;
    int64_t count = count_at(fn, args, in + 1);
    fr_word type = fr_abi_handle(args[in + 2]);
    bool is_short = !fr_intercept_may_bring(count, type);
    if (!fr_intercept_rndv_is_enabled || (is_short && !fr_request_errors_return()))
        return false;
    if (fr_intercept_may_go_over_rails(count, type)) // its sender may wait to know how
        fr_rndv_progress(NULL);
    if (fr_abi_rows[fn].status >= 0) {
        *result = fr_request_posted_notes_at_once() ? receive_noted(fn, args, counted_as)
                                                    : receive_now(fn, args);
        return true;
    }
    bool of_another = counted_as != fn && fr_intercept_rails_take_host; // the report shall name it
    if (!receives || of_another || !fr_intercept_is_simple(type))
        return fr_intercept_serve(fn, args, counted_as, result);
    return receive_later(fn, args, result);
}

bool fr_intercept_call_receive(enum fr_fn fn, fr_word *args, int *result)
{
    return receive(fn, args, fn, result);
}

int fr_intercept_call_part(enum fr_fn fn, fr_word *args, enum fr_fn counted_as)
{
    bool receives = fr_intercept_receives(fn);
    int rc = fr_abi_mpi.SUCCESS;
    bool for_rails =
        !receives && fr_intercept_may_go_over_rails(count_at(fn, args, 1), fr_abi_handle(args[2]));
    bool plain = fr_intercept_are_host_buffers(fn, args) &&
                 !(receives && fr_intercept_rndv_is_enabled) && !for_rails;
    bool done = !plain && (receives ? receive(fn, args, counted_as, &rc)
                                    : fr_intercept_serve(fn, args, counted_as, &rc));
    return done ? rc : fr_abi_call(fn, args);
}

// Does the rest of a blocking receive that has failed, or perhaps brought an RTS.
static __attribute__((noinline, cold)) int received(enum fr_fn fn, const fr_word *registers,
                                                    const fr_word *stack, int rc)
{
    fr_word args[FR_MAX_ARGS];
    for (unsigned arg = 0; arg < fr_abi_rows[fn].arg_count; arg++)
        args[arg] = fr_intercept_arg(registers, stack, arg);
    fr_intercept_dispatch_late(registers);
    rc = look_at_received(fn, args, rc);
    fr_intercept_exit_late();
    return rc;
}

static inline bool has_brought_data(fr_word buffer, int rc)
{
    return FR_LIKELY(rc == fr_abi_mpi.SUCCESS) &&
           FR_LIKELY(!fr_rndv_begins_rts((const void *)buffer));
}

static inline int call_receive(void *real, const fr_word *a, fr_word last)
{
    fr_intercept_handler_frame = (uintptr_t)a;
    int rc = ((call7 *)real)(a[0], a[1], a[2], a[3], a[4], a[5], last);
    fr_intercept_handler_frame = 0;
    return rc;
}

FR_HOT struct fr_intercept_verdict fr_intercept_fastpath_recv(unsigned slot, void *real,
                                                              const fr_word *registers,
                                                              const fr_word *stack)
{
    if (FR_UNLIKELY(fr_request_posted_notes_at_once()))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    if (FR_UNLIKELY((int)registers[3] == fr_abi_mpi.PROC_NULL))
        return (struct fr_intercept_verdict){.jump = real};
    int rc = call_receive(real, registers, fr_intercept_arg(registers, stack, 6));
    if (!has_brought_data(registers[0], rc))
        rc = received(FR_FN_MPI_Recv, registers, stack, rc);
    return (struct fr_intercept_verdict){.result = (fr_word)rc};
}

FR_HOT struct fr_intercept_verdict fr_intercept_fastpath_irecv(unsigned slot, void *real,
                                                               const fr_word *registers,
                                                               const fr_word *stack)
{
    if (FR_UNLIKELY(!fr_request_alone))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    if (FR_UNLIKELY((int)registers[3] == fr_abi_mpi.PROC_NULL))
        return (struct fr_intercept_verdict){.jump = real};
    fr_word request = fr_intercept_arg(registers, stack, 6);
    int rc = call_receive(real, registers, request);
    if (FR_LIKELY(rc == fr_abi_mpi.SUCCESS))
        rc = fr_request_posted_add_alone(registers, fr_abi_handle_load((const void *)request, 0));
    return (struct fr_intercept_verdict){.result = (fr_word)rc};
}

// Calls MPI_Sendrecv. The stub has not put the last arguments on its own stack, since they are on
// the caller's.
static int call_sendrecv(void *real, const fr_word *registers, const fr_word *stack)
{
    const fr_word *a = registers;
    fr_intercept_handler_frame = (uintptr_t)registers;
    int rc = ((call12 *)real)(a[0], a[1], a[2], a[3], a[4], a[5], fr_intercept_arg(a, stack, 6),
                              fr_intercept_arg(a, stack, 7), fr_intercept_arg(a, stack, 8),
                              fr_intercept_arg(a, stack, 9), fr_intercept_arg(a, stack, 10),
                              fr_intercept_arg(a, stack, 11));
    fr_intercept_handler_frame = 0;
    return rc;
}

// Its entry does not tell whether a call is plain, so it finds out itself.
FR_HOT struct fr_intercept_verdict fr_intercept_fastpath_sendrecv(unsigned slot, void *real,
                                                                  const fr_word *registers,
                                                                  const fr_word *stack)
{
    const fr_word sent = registers[0], buffer = registers[5];
    if (FR_UNLIKELY(!fr_device_is_ordinary((const void *)sent) ||
                    !fr_device_is_ordinary((const void *)buffer)))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    if (!fr_intercept_rndv_is_enabled)
        return (struct fr_intercept_verdict){.jump = real};
    enum fr_intercept_room room =
        fr_intercept_room_of((int)fr_intercept_arg(registers, stack, 6),
                             fr_abi_handle(fr_intercept_arg(registers, stack, 7)));
    int source = (int)fr_intercept_arg(registers, stack, 8);
    if (FR_UNLIKELY(!fr_intercept_is_unmarked((int)registers[1], fr_abi_handle(registers[2])) ||
                    room == FR_INTERCEPT_ROOM_UNKNOWN || fr_request_posted_notes_at_once()))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    if (room == FR_INTERCEPT_ROOM_NONE || source == fr_abi_mpi.PROC_NULL)
        return fr_request_errors_return() ? fr_intercept_dispatch_fully(slot, registers, stack)
                                          : (struct fr_intercept_verdict){.jump = real};
    int rc = call_sendrecv(real, registers, stack);
    if (!has_brought_data(buffer, rc))
        rc = received(FR_FN_MPI_Sendrecv, registers, stack, rc);
    return (struct fr_intercept_verdict){.result = (fr_word)rc};
}
