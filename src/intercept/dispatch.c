// SPDX-License-Identifier: BSD-3-Clause
// The dispatch of calls, to which the stubs lead. Calls without device buffers go on to the real
// MPI after a few compares. The others go to the handler of their class.
#include "config.h"

#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "fabrail/report.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "fabrail/request/pending.h"
#include "fabrail/rma.h"
#include "fabrail/rndv/incoming.h"
#include "fabrail/rndv/progress.h"
#include "intercept/entry.h"
#include "intercept/rts.h"

// The outcome of a look at the arguments in registers.
enum check {
    CHECK_FULLY,
    CHECK_PLAIN, // it goes to the real function
    CHECK_FAST,  // it may be one that the entry's fast handler takes
};

// Calls that the MPI library makes itself from a handler, further down the stack, go straight
// through. An application's error handler may leave by longjmp or an exception, and the mark then
// stays. A later call of the application is never taken for the library's, wherever on the stack it
// is.
FR_TLS uintptr_t fr_intercept_handler_frame;

// Returns the address that the call returns to (src/abi/stubs.S).
static uintptr_t caller_of(const fr_word *registers, const fr_word *stack)
{
#if defined(__x86_64__)
    (void)registers;
    return stack[-1];
#else
    (void)stack;
    return registers[-1];
#endif
}

// The registers lie where src/abi/stubs.S puts them: on x86-64 two words below the stack's
// arguments, the second of which is the address.
uintptr_t fr_intercept_call_site(void)
{
    const fr_word *registers = (const fr_word *)fr_intercept_handler_frame;
    return caller_of(registers, registers + FR_REGISTER_ARGS + 2);
}

// Returns whether a buffer is surely host memory. MPI_BOTTOM is not: only the datatype's addresses
// say where the data are.
static bool is_host_buffer(fr_word word)
{
    if (word == fr_abi_mpi.BOTTOM)
        return !fr_device_present();
    return word == fr_abi_mpi.IN_PLACE || fr_device_is_surely_host((const void *)word);
}

FR_OFTEN bool fr_intercept_are_host_buffers(enum fr_fn fn, const fr_word *args)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    for (unsigned i = 0; i < entry->buffer_count; i++) {
        if (!is_host_buffer(args[entry->buffers[i]]))
            return fr_job_any_host_comms && entry->promised &&
                   fr_job_comm_is_host(fr_abi_handle(args[fr_abi_rows[fn].comm]));
    }
    return true;
}

static int64_t count_at(const struct fr_intercept_entry *entry, const fr_word *registers,
                        const fr_word *stack, unsigned arg)
{
    fr_word word = fr_intercept_arg(registers, stack, arg);
    return entry->large ? (int64_t)word : (int)word;
}

// Returns whether a message of host memory from the first buffer is as long as an RTS, or long
// enough for rails.
static bool sends_by_rndv(const struct fr_intercept_entry *entry, const fr_word *registers,
                          const fr_word *stack)
{
    int64_t count = count_at(entry, registers, stack, 1);
    fr_word type = fr_abi_handle(fr_intercept_arg(registers, stack, 2));
    return fr_intercept_may_be_as_rts(count, type) ||
           (fr_intercept_rails_take_host && fr_intercept_may_go_over_rails(count, type));
}

// Returns whether a function that receives by matching may be brought an RTS, or a part of one that
// the application learns of by an error. True also if it sends by rendezvous.
static bool may_bring_rts(const struct fr_intercept_entry *entry, const fr_word *registers,
                          const fr_word *stack)
{
    return fr_request_errors_return() ||
           fr_intercept_may_bring(
               count_at(entry, registers, stack, entry->receive + 1u),
               fr_abi_handle(fr_intercept_arg(registers, stack, entry->receive + 2u))) ||
           (entry->sends && sends_by_rndv(entry, registers, stack));
}

// Returns whether the program has promised host memory alone for the communicator of a call, and
// the promise is about its buffers.
static bool is_host_comm(const struct fr_intercept_entry *entry, const fr_word *registers,
                         const fr_word *stack)
{
    int comm = fr_abi_rows[entry - fr_intercept_entries].comm;
    return entry->promised &&
           fr_job_comm_is_host(fr_abi_handle(fr_intercept_arg(registers, stack, (unsigned)comm)));
}

static __attribute__((noinline)) bool are_host_buffers(const struct fr_intercept_entry *entry,
                                                       const fr_word *registers,
                                                       const fr_word *stack)
{
    for (unsigned i = 0; i < entry->buffer_count; i++) {
        if (!is_host_buffer(fr_intercept_arg(registers, stack, entry->buffers[i])))
            return fr_job_any_host_comms && is_host_comm(entry, registers, stack);
    }
    return true;
}

static bool needs_look(const struct fr_intercept_entry *entry, const fr_word *registers,
                       const fr_word *stack)
{
    switch (entry->check) {
    case FR_CHECK_PROBE:
        return fr_intercept_rndv_is_enabled;
    case FR_CHECK_COMM_MAKE:
        return (fr_job_comm() != fr_abi_mpi.COMM_NULL ||
                fr_abi_rows[entry - fr_intercept_entries].info >= 0) &&
               !fr_abi_is_internal(caller_of(registers, stack));
    case FR_CHECK_BARRIER:
        return fr_intercept_nvlink_joins_hosts() &&
               !fr_abi_is_internal(caller_of(registers, stack));
    case FR_CHECK_RECEIVE:
        return (fr_intercept_rndv_is_enabled && may_bring_rts(entry, registers, stack)) ||
               !are_host_buffers(entry, registers, stack);
    case FR_CHECK_SEND:
        return !are_host_buffers(entry, registers, stack) ||
               (fr_intercept_rndv_is_enabled && sends_by_rndv(entry, registers, stack));
    case FR_CHECK_EXCHANGE:
        return (fr_intercept_nvlink_is_enabled() &&
                !fr_abi_is_internal(caller_of(registers, stack))) ||
               !are_host_buffers(entry, registers, stack);
    case FR_CHECK_FILE:
        return fr_intercept_nvlink_is_enabled() || !are_host_buffers(entry, registers, stack);
    case FR_CHECK_RMA:
        return fr_rma_any() || !are_host_buffers(entry, registers, stack);
    case FR_CHECK_HOST_BUFFERS:
        return !are_host_buffers(entry, registers, stack);
    case FR_CHECK_COMM_FREE:
        return fr_request_any_tracked() ||
               (fr_intercept_rndv_is_enabled && fr_rndv_incoming_any_here());
    case FR_CHECK_NO_REQUESTS:
        return fr_request_any_tracked();
    case FR_CHECK_NO_PENDING:
        return atomic_load_explicit(&fr_request_pending_count, memory_order_acquire) != 0;
    case FR_CHECK_NO_ACCESS:
        return fr_rma_any() ||
               atomic_load_explicit(&fr_request_pending_count, memory_order_acquire) != 0;
    case FR_CHECK_NO_WINDOWS:
        return fr_rma_any();
    case FR_CHECK_NO_ATTACHED:
        return fr_intercept_any_attached();
    case FR_CHECK_NOTHING:
        return false;
    default:
        return true;
    }
}

// A program may wait by calls that do not wait themselves, while others wait for what it has to
// fetch or to give. One such call in so many looks.
static void look_after_others(const struct fr_intercept_entry *entry)
{
    enum { CALLS_A_LOOK = 16 };
    static FR_TLS unsigned calls;
    if (!entry->polls || ++calls % CALLS_A_LOOK != 0)
        return;
    if (fr_rndv_any_waiting() || fr_rma_remote_any())
        fr_rndv_progress(NULL);
    if (fr_rndv_is_awaited())
        (void)fr_request_receive_early();
}

// The needs of a call besides the real function.
struct needs {
    bool works; // the thread may call MPI, and Fabrail makes progress
    bool look;  // its handler has to look at it
    bool freed; // there are operations whose request was freed
    bool awaited;
    bool blocks; // others have to know that this process waits in MPI
};

// Finds out what a call needs. `outer` is the frame of a handler that it is made from, or 0.
static inline struct needs needs_of(enum fr_fn fn, const fr_word *registers, const fr_word *stack,
                                    uintptr_t outer)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    bool inside = outer && fr_abi_is_internal(caller_of(registers, stack));
    struct needs needs = {.works = entry->real && !inside && entry->may_call_mpi};
    needs.freed = needs.works && fr_request_any_freed();
    needs.look = !entry->real || (!inside && needs_look(entry, registers, stack));
    if (outer)
        fr_intercept_prove(fn);
    if (FR_UNLIKELY(fr_intercept_handler_frame != 0) && !inside) {
        fr_rndv_unblock(); // a collective may have been abandoned
        fr_request_claim_late(outer != 0);
    }
    if (needs.works && (needs.look || FR_UNLIKELY(fr_request_looks_at_all())))
        fr_request_notice_awaited();
    needs.awaited = needs.works && fr_request_is_awaited();
    needs.blocks = entry->may_block && !inside && fr_intercept_rndv_is_enabled &&
                   (fr_request_any_tracked() || fr_rndv_any_waiting()) &&
                   !fr_request_attendant_wake();
    return needs;
}

// Copies the arguments one by one. Compilers would make one instruction of each loop otherwise,
// which is slow for so few.
static inline void copy_args(fr_word *args, const fr_word *registers, const fr_word *stack,
                             unsigned count)
{
#pragma GCC unroll 8
    for (unsigned i = 0; i < FR_REGISTER_ARGS; i++) { // whether there are so many or not
        args[i] = registers[i];
        __asm__("");
    }
    for (unsigned i = FR_REGISTER_ARGS; i < count; i++) {
        args[i] = stack[i - FR_REGISTER_ARGS];
        __asm__("");
    }
}

// Does what others need before a call.
static inline void prepare(enum fr_fn fn, const fr_word *args, struct needs needs,
                           bool is_outermost)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    if (FR_UNLIKELY(needs.awaited || fr_rma_remote_any()))
        look_after_others(entry);
    if (FR_UNLIKELY(needs.awaited))
        fr_request_advance_all();
    // A window that needs calls has them awaited as well.
    if (entry->may_block && is_outermost && needs.works && fr_rma_needs_calls())
        fr_intercept_gate(fn, args);
    if (needs.blocks) {
        fr_request_receive_coming();
        fr_rndv_block();
    }
}

// Does the call, and what others need after it. Returns false where the real function is yet to be
// called.
static inline bool call(enum fr_fn fn, fr_word *args, struct needs needs, int *result)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    bool handled = needs.look && entry->handle(fn, args, result);
    if (!handled &&
        (entry->check == FR_CHECK_FILE || needs.freed || needs.awaited || needs.blocks)) {
        *result = fr_request_call_real(fn, args);
        handled = true;
    }
    if (needs.blocks)
        fr_rndv_unblock();
    if (needs.freed)
        fr_request_poll_freed();
    if (FR_UNLIKELY(!fr_request_serial) && fr_rndv_any_detached())
        (void)fr_request_attendant_wake();
    return handled;
}

FR_OFTEN struct fr_intercept_verdict
fr_intercept_dispatch_fully(unsigned slot, const fr_word *registers, const fr_word *stack)
{
    const enum fr_fn fn = slot / 2;
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    uintptr_t frame = (uintptr_t)registers; // as in fast calls
    uintptr_t outer = frame < fr_intercept_handler_frame ? fr_intercept_handler_frame : 0;
    struct needs needs = needs_of(fn, registers, stack, outer);
    if (FR_LIKELY(!needs.look && !needs.freed && !needs.awaited && !needs.blocks))
        return (struct fr_intercept_verdict){.jump = entry->real};
    fr_word args[FR_MAX_ARGS];
    copy_args(args, registers, stack, entry->arg_count);
    fr_request_call++;
    if (!outer)
        fr_request_outermost = fr_request_call;
    if (FR_UNLIKELY(fr_intercept_handler_frame != 0))
        fr_request_any_abandoned = true;
    fr_intercept_handler_frame = frame;
    fr_device_begin_call();
    fr_report_call_begin(fn, caller_of(registers, stack), args);
    prepare(fn, args, needs, !outer);
    int result = 0;
    bool handled = call(fn, args, needs, &result);
    fr_report_call_end();
    fr_intercept_handler_frame = outer;
    return handled ? (struct fr_intercept_verdict){.result = (fr_word)result}
                   : (struct fr_intercept_verdict){.jump = entry->real};
}

// Returns whether an access has host memory alone: ordinary, or any while no driver is there.
static bool is_access_plain(const struct fr_intercept_entry *entry, const fr_word *registers)
{
    unsigned i = 0;
    while (i < entry->buffer_count &&
           fr_device_is_ordinary((const void *)registers[entry->buffers[i]]))
        i++;
    return i == entry->buffer_count || !fr_device_present();
}

// A call on a window is plain if there are no windows over device memory, nobody depends on this
// process, and its buffers are host memory.
struct fr_intercept_verdict fr_intercept_fastpath_window(unsigned slot, void *real,
                                                         const fr_word *registers,
                                                         const fr_word *stack)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[slot / 2];
    if (!fr_rma_any() && !fr_request_any_tracked() &&
        atomic_load_explicit(&fr_request_pending_count, memory_order_acquire) == 0 &&
        (entry->plain == FR_PLAIN_WINDOW || is_access_plain(entry, registers)))
        return (struct fr_intercept_verdict){.jump = real};
    return fr_intercept_dispatch_fully(slot, registers, stack);
}

// Tells what most calls need.
static inline enum check check_fast(enum fr_intercept_plain plain, const fr_word *registers)
{
    if (plain == FR_PLAIN_REQUESTS)
        return fr_request_any_tracked() ? CHECK_FAST : CHECK_PLAIN;
    if (plain >= FR_PLAIN_LATER)
        return CHECK_FAST;
    if (FR_UNLIKELY(plain == FR_PLAIN_NEVER || !fr_device_is_ordinary((const void *)registers[0])))
        return CHECK_FULLY;
    if (!fr_intercept_rndv_is_enabled)
        return CHECK_PLAIN;
    int64_t count = (int)registers[1];
    fr_word type = fr_abi_handle(registers[2]);
    if (plain == FR_PLAIN_SEND)
        return fr_intercept_is_unmarked(count, type) ? CHECK_PLAIN : CHECK_FULLY;
    enum fr_intercept_room room = fr_intercept_room_of(count, type);
    return room == FR_INTERCEPT_ROOM_NONE ? fr_request_errors_return() ? CHECK_FULLY : CHECK_PLAIN
           : room == FR_INTERCEPT_ROOM_ENOUGH ? CHECK_FAST
                                              : CHECK_FULLY;
}

void fr_intercept_dispatch_late(const fr_word *registers)
{
    fr_request_outermost = ++fr_request_call;
    fr_intercept_handler_frame = (uintptr_t)registers;
    fr_device_begin_call();
}

void fr_intercept_exit_late(void)
{
    fr_intercept_handler_frame = 0;
}

// Makes progress for others. Memory that is held for them goes back even in a phase of calls that
// need no look.
static void keep_house(const fr_word *registers)
{
    fr_intercept_dispatch_late(registers);
    if (fr_intercept_rndv_is_enabled)
        fr_rndv_progress(NULL);
    fr_staging_trim();
    fr_intercept_exit_late();
}

// The attendant's look. It counts as one call of the program's.
bool fr_intercept_attend(void)
{
    uint64_t taken = fr_rma_messages_taken();
    fr_intercept_dispatch_late(__builtin_frame_address(0));
    if (fr_intercept_rndv_is_enabled)
        fr_request_attend(); // and what belongs to windows
    else
        fr_rma_progress();
    fr_intercept_exit_late();
    return taken != fr_rma_messages_taken() || atomic_load(&fr_rma_transfer_count) > 0;
}

// Keeps house where that is due, but not from within the MPI library, which may be in the middle of
// something.
static void keep_house_if_due(const fr_word *registers, const fr_word *stack)
{
    enum { LOOK_NS = 100000000 };
    static _Atomic int64_t looked_ns;
    int64_t now = fr_time_coarse_ns();
    bool proves = atomic_load_explicit(&fr_intercept_is_to_prove, memory_order_relaxed);
    bool is_due = now - atomic_load_explicit(&looked_ns, memory_order_relaxed) >= LOOK_NS;
    if ((!proves && !is_due) || fr_intercept_handler_frame != 0 ||
        fr_abi_is_internal(caller_of(registers, stack)))
        return;
    if (proves && fr_intercept_may_prove()) {
        fr_intercept_dispatch_late(registers);
        fr_intercept_prove_late();
        fr_intercept_exit_late();
    }
    if (fr_time_is_due(&looked_ns, now, LOOK_NS))
        keep_house(registers);
}

static __attribute__((noinline, cold)) struct fr_intercept_verdict
dispatch_after_housekeeping(unsigned slot, const fr_word *registers, const fr_word *stack)
{
    keep_house_if_due(registers, stack);
    return fr_intercept_dispatch_fully(slot, registers, stack);
}

// Returns whether housekeeping may be due. One call in so many reads the clock.
static inline bool may_be_due(const struct fr_intercept_entry *entry)
{
    enum { CALLS_A_LOOK = 64 };
    static FR_TLS unsigned calls;
    return FR_UNLIKELY(fr_core_needs_housekeeping()) && entry->may_call_mpi &&
           (FR_UNLIKELY(++calls % CALLS_A_LOOK == 0) ||
            FR_UNLIKELY(atomic_load_explicit(&fr_intercept_is_to_prove, memory_order_relaxed)));
}

// Makes no call but as its last step, so it saves no registers.
FR_HOT struct fr_intercept_verdict fr_intercept_dispatch(unsigned slot, const fr_word *registers,
                                                         const fr_word *stack)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[slot / 2];
    if (may_be_due(entry))
        return dispatch_after_housekeeping(slot, registers, stack);
    if (FR_UNLIKELY(fr_intercept_handler_frame != 0 || fr_request_looks_at_all()))
        return fr_intercept_dispatch_fully(slot, registers, stack);
    enum check check = check_fast(entry->plain, registers);
    if (check == CHECK_PLAIN)
        return (struct fr_intercept_verdict){.jump = entry->real};
    if (check == CHECK_FAST && entry->fast)
        return entry->fast(slot, entry->real, registers, stack);
    return fr_intercept_dispatch_fully(slot, registers, stack);
}
