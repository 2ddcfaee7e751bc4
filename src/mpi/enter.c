// SPDX-License-Identifier: BSD-3-Clause
// Where the stubs arrive: fills their slots, sends calls without device buffers on to the real MPI
// after a few compares, and the others to the handler of their class.
#include "config.h"

#include "core/object.h"
#include "core/time.h"
#include "mpi/rts.h"
#include "report/report.h"
#include "world/world.h"

#include <string.h>

// What decides that a call needs no look.
enum check {
    CHECK_RECEIVE,      // all buffers are host memory, and no RTS is so short
    CHECK_SEND,         // all buffers are host memory, and the message is not as long as an RTS
    CHECK_RAIL_RECEIVE, // the same, and what it sends is too short for rails
    CHECK_RAIL_SEND,    // the same
    CHECK_PROBE,        // there can be no RTS
    CHECK_EXCHANGE,     // all buffers are host memory, and other ranks need not know
    CHECK_HOST_BUFFERS, // all buffers are host memory
    CHECK_COMM_FREE,    // no request is tracked, and no message waits to be received
    CHECK_COMM_MAKE,    // communicators have no names, or the MPI library makes one for itself
    CHECK_NO_REQUESTS,  // no request is tracked
    CHECK_NO_PENDING,   // no operation waits for a window or file
    CHECK_NO_ATTACHED,  // no memory is attached in place of the application's
    CHECK_NOTHING,      // no call does
    CHECK_NONE,
};
typedef bool handler(enum fr_fn fn, fr_word *args, int *result);

// Functions of which most calls are told to need no look, or little more, by even less.
enum plain {
    PLAIN_NEVER,
    PLAIN_SEND,     // (buffer, int count, datatype, ...)
    PLAIN_RECEIVE,  // the same
    PLAIN_REQUESTS, // as CHECK_NO_REQUESTS
    PLAIN_LATER,    // its quick handler finds out
};

// What is found of a call from what is in registers alone.
enum glance {
    GLANCE_NOTHING,
    GLANCE_PLAIN, // it goes to the real function
    GLANCE_QUICK, // it may be one that the entry's quick handler takes
};

struct entry {
    void *real;
    handler *handle;
    fr_mpi_quick *quick; // of some of those that are not plain; NULL for none
    enum check check;
    enum plain plain;
    bool nests;            // the MPI library may call from there what the path peer serves
    bool meets;            // it waits for other processes in a way that cannot be another one
    bool large;            // counts are MPI_Count
    bool sends;            // besides receiving, from the first argument on
    bool polls;            // a program may wait by calling nothing else
    bool errands;          // the thread may call MPI: not so in MPI_T, which has a level of its own
    unsigned char receive; // the buffer that is received into, of functions that do so by matching
    unsigned char arg_count;
    unsigned char buffer_count;
    unsigned char buffers[FR_MAX_BUFFERS];
};
static struct entry entries[FR_FN_STUB_COUNT];

// What the MPI library calls itself from a handler, further down the stack, goes straight through.
// An application's error handler may leave by longjmp or an exception, and the mark then stays: so
// what the application calls is never taken for the library's, wherever on the stack it is.
FR_TLS uintptr_t fr_mpi_handler_frame;

static bool handle_type_free(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)result;
    if (args[0])
        fr_layout_forget(fr_real_handle_load((const void *)args[0], 0));
    return false;
}

static bool handle_request_free(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    bool handled = fr_request_free(args, result);
    if (handled)
        fr_mpi_comms_free_later();
    return handled;
}

static bool handle_parrived(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    return fr_request_parrived(args, result);
}

// A session may have threads that MPI_Query_thread says nothing of. And the first one starts MPI,
// which makes records known once: MPI_Init may follow.
static bool handle_session_init(enum fr_fn fn, fr_word *args, int *result)
{
    fr_request_set_serial(false);
    bool starts = fr_world_census_begin();
    *result = fr_real_call(fn, args);
    if (starts)
        fr_world_census_note();
    return true;
}

static bool handle_handler_make(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    fr_request_handler_made();
    return false;
}

// Fortran bindings may make an error handler by functions of their own.
static bool handle_handler_set(enum fr_fn fn, fr_word *args, int *result)
{
    (void)result;
    fr_word set = fr_real_handle(args[1]);
    bool of_window = fr_real_rows[fn].window >= 0, of_file = fr_real_rows[fn].file >= 0;
    if (set != fr_real_mpi.ERRORS_ARE_FATAL && !of_window && !of_file)
        fr_request_errors_return = true;
    if (set != fr_real_mpi.ERRORS_ARE_FATAL && set != fr_real_mpi.ERRORS_RETURN)
        fr_request_handler_made();
    return false;
}

static bool handle_abort(enum fr_fn fn, fr_word *args, int *result)
{
    (void)fn;
    (void)args;
    (void)result;
    fr_report_write_abort();
    return false;
}

// Classes of which nearly all calls are looked at, which are rare.
static bool set_rare_handler(struct entry *entry, enum fr_class class)
{
    entry->check = CHECK_NONE;
    switch (class) {
    case FR_CLASS_BUFFER_RETURN:
        entry->check = CHECK_NO_ATTACHED;
        entry->handle = fr_mpi_call_buffer_return;
        return true;
    case FR_CLASS_COMM_MAKE:
    case FR_CLASS_KEYVAL_MAKE:
        entry->check = CHECK_COMM_MAKE;
        entry->handle =
            class == FR_CLASS_COMM_MAKE ? fr_mpi_call_comm_make : fr_mpi_call_keyval_make;
        return true;
    case FR_CLASS_TYPE_FREE:
        entry->handle = handle_type_free;
        return true;
    case FR_CLASS_MEET:
        entry->check = CHECK_NOTHING;
        return true;
    case FR_CLASS_SESSION_INIT:
        entry->handle = handle_session_init;
        return true;
    case FR_CLASS_HANDLER_MAKE:
        entry->handle = handle_handler_make;
        return true;
    case FR_CLASS_HANDLER_SET:
        entry->handle = handle_handler_set;
        return true;
    case FR_CLASS_INIT:
        entry->handle = fr_mpi_call_init;
        return true;
    case FR_CLASS_FINALIZE:
        entry->handle = fr_mpi_call_finalize;
        return true;
    case FR_CLASS_SPAWN:
        entry->handle = fr_mpi_call_spawn;
        return true;
    case FR_CLASS_ABORT:
        entry->handle = handle_abort;
        return true;
    case FR_CLASS_QUERY_CUDA:
    case FR_CLASS_QUERY_GPU:
        entry->handle = fr_mpi_call_query;
        return true;
    default:
        return false;
    }
}

static void set_handler(struct entry *entry, enum fr_class class)
{
    entry->check = CHECK_NO_REQUESTS;
    switch (class) {
    case FR_CLASS_WAIT ... FR_CLASS_GET_STATUS_SOME:
        entry->handle = fr_request_complete;
        return;
    case FR_CLASS_REQUEST_FREE:
        entry->handle = handle_request_free;
        return;
    case FR_CLASS_COMM_FREE:
        entry->check = CHECK_COMM_FREE;
        entry->handle = fr_mpi_call_comm_free;
        return;
    case FR_CLASS_START:
    case FR_CLASS_STARTALL:
        entry->handle = fr_request_start;
        return;
    case FR_CLASS_PREADY ... FR_CLASS_PREADY_LIST:
        entry->handle = fr_request_pready;
        return;
    case FR_CLASS_PARRIVED:
        entry->handle = handle_parrived;
        return;
    default:
        break;
    }
    entry->check = CHECK_NO_PENDING;
    switch (class) {
    case FR_CLASS_WIN_SYNC:
    case FR_CLASS_WIN_SYNC_RANK:
        entry->handle = fr_mpi_call_win_sync;
        return;
    case FR_CLASS_FILE_END:
        entry->handle = fr_mpi_call_file_end;
        return;
    default:
        break;
    }
    if (set_rare_handler(entry, class))
        return;
    entry->check = class == FR_CLASS_PROBE ? CHECK_PROBE : CHECK_HOST_BUFFERS;
    entry->handle = class == FR_CLASS_PROBE           ? fr_mpi_call_probe
                    : class == FR_CLASS_REFUSE        ? fr_mpi_call_refusable
                    : class == FR_CLASS_BUFFER_ATTACH ? fr_mpi_call_buffer_attach
                                                      : fr_mpi_call_buffers;
}

// ROMIO exchanges by MPI_Alltoall, on all ranks alike. Were only the ranks with device buffers
// inside of a handler then, the others would ask for a group alone.
static bool is_file_access(enum fr_class class)
{
    return class == FR_CLASS_FILE_READ || class == FR_CLASS_FILE_WRITE ||
           class == FR_CLASS_FILE_READ_BEGIN || class == FR_CLASS_FILE_WRITE_BEGIN;
}

// Collectives that block, whatever they are for.
static bool meets(enum fr_fn fn)
{
    enum fr_class class = fr_real_rows[fn].class;
    bool collective = (class >= FR_CLASS_BCAST && class <= FR_CLASS_NEIGHBOR_ALLTOALL) ||
                      class == FR_CLASS_COMM_MAKE || class == FR_CLASS_MEET ||
                      class == FR_CLASS_WIN_SYNC || class == FR_CLASS_WIN_SYNC_RANK ||
                      is_file_access(class);
    return collective && fr_real_rows[fn].request < 0;
}

// Whether buffer, count and datatype come first.
static bool begins_with(const struct fr_real_side *side)
{
    return side->buffer == 0 && side->count == 1 && !side->has_counts && side->type == 2;
}

static enum plain plain_of(enum fr_fn fn)
{
    const struct entry *entry = &entries[fn];
    const struct fr_real_row *row = &fr_real_rows[fn];
    if (entry->real == NULL || entry->large)
        return PLAIN_NEVER;
    if (entry->check == CHECK_NO_REQUESTS)
        return PLAIN_REQUESTS;
    if (entry->check == CHECK_SEND && begins_with(&row->send))
        return PLAIN_SEND;
    if (entry->check == CHECK_RECEIVE && fn == FR_FN_MPI_Sendrecv)
        return PLAIN_LATER;
    bool receives = entry->check == CHECK_RECEIVE && !entry->sends;
    return receives && begins_with(&row->receive) ? PLAIN_RECEIVE : PLAIN_NEVER;
}

static void set_entry(enum fr_fn fn)
{
    struct entry *entry = &entries[fn];
    const struct fr_real_row *row = &fr_real_rows[fn];
    entry->real = fr_real_address(fn);
    entry->arg_count = row->arg_count;
    set_handler(entry, row->class);
    entry->nests = is_file_access(row->class);
    entry->errands = row->class != FR_CLASS_REFUSE;
    entry->meets = meets(fn);
    entry->large = row->flags & FR_ROW_LARGE;
    entry->buffer_count = entry->check == CHECK_HOST_BUFFERS ? row->buffer_count : 0;
    memcpy(entry->buffers, row->buffers, sizeof(entry->buffers));
    if (fr_mpi_peer_serves(fn)) {
        entry->check = CHECK_EXCHANGE;
        entry->handle = row->request < 0 ? fr_mpi_call_exchange : fr_mpi_call_schedule;
    } else if (fr_mpi_receives(fn)) {
        bool both = row->class == FR_CLASS_SENDRECV;
        entry->check = both && fr_mpi_wants_host_rails() ? CHECK_RAIL_RECEIVE : CHECK_RECEIVE;
        entry->sends = row->class != FR_CLASS_RECV;
        entry->receive = (unsigned char)row->receive.buffer;
        entry->handle = fr_mpi_call_receive;
    } else if (row->class == FR_CLASS_SEND) {
        entry->check = fr_mpi_wants_host_rails() ? CHECK_RAIL_SEND : CHECK_SEND;
    }
    entry->polls = entry->check <= CHECK_PROBE || entry->check == CHECK_NO_REQUESTS;
    entry->plain = plain_of(fn);
    // A report counts all that is looked at, and senders over rails may wait for a word.
    bool never = entry->plain == PLAIN_NEVER || fr_report_on || fr_mpi_wants_host_rails();
    entry->quick = never ? NULL : fr_mpi_quick_of(fn);
}

static bool is_query(enum fr_fn fn)
{
    return fr_real_rows[fn].class == FR_CLASS_QUERY_CUDA ||
           fr_real_rows[fn].class == FR_CLASS_QUERY_GPU;
}

static void *target_of(enum fr_fn fn, bool serving)
{
    void *real = fr_real_address(fn);
    if (is_query(fn))
        return (void *)fr_stub_enter;
    if (!real)
        return (void *)fr_stub_unresolved;
    return serving ? (void *)fr_stub_enter : real;
}

static void resolve_once(void)
{
    enum fr_status found = fr_real_start();
    bool serving = found == FR_OK && !fr_core_settings()->disable && !fr_core_is_second_copy();
    if (serving)
        fr_report_start();
    if (serving)
        (void)fr_mpi_redirect();
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++)
        set_entry(fn);
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
        void *target = target_of(fn, serving);
        void *profiler = fr_real_profiler(fn);
        __atomic_store_n(&fr_mpi_slots[2 * fn], profiler ? profiler : target, __ATOMIC_RELEASE);
        __atomic_store_n(&fr_mpi_slots[2 * fn + 1], target, __ATOMIC_RELEASE);
    }
}

// Where the call returns to; see real/stubs.S.
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

// MPI_BOTTOM says nothing of where the data are: the datatype's addresses do.
static bool is_host_buffer(fr_word word)
{
    if (word == fr_real_mpi.BOTTOM)
        return !fr_device_present();
    return word == fr_real_mpi.IN_PLACE || fr_device_is_surely_host((const void *)word);
}

bool fr_mpi_are_host_buffers(enum fr_fn fn, const fr_word *args)
{
    const struct entry *entry = &entries[fn];
    for (unsigned i = 0; i < entry->buffer_count; i++) {
        if (!is_host_buffer(args[entry->buffers[i]]))
            return false;
    }
    return true;
}

static int64_t count_at(const struct entry *entry, const fr_word *registers, const fr_word *stack,
                        unsigned arg)
{
    fr_word word = fr_mpi_arg(registers, stack, arg);
    return entry->large ? (int64_t)word : (int)word;
}

static bool sends_as_rts(const struct entry *entry, const fr_word *registers, const fr_word *stack)
{
    return fr_mpi_may_be_as_rts(count_at(entry, registers, stack, 1),
                                fr_real_handle(fr_mpi_arg(registers, stack, 2)));
}

// Whether a function that receives by matching may be brought an RTS, or a part of one that the
// application learns of by an error; or sends what is as long as one.
static bool may_bring_rts(const struct entry *entry, const fr_word *registers, const fr_word *stack)
{
    return fr_request_errors_return ||
           fr_mpi_may_bring(count_at(entry, registers, stack, entry->receive + 1u),
                            fr_real_handle(fr_mpi_arg(registers, stack, entry->receive + 2u))) ||
           (entry->sends && sends_as_rts(entry, registers, stack));
}

// Whether a buffer is so large that it might go over rails, though it is host memory.
static bool is_for_rails(const struct entry *entry, unsigned buffer, const fr_word *registers,
                         const fr_word *stack)
{
    return fr_mpi_may_go_over_rails(count_at(entry, registers, stack, buffer + 1u),
                                    fr_real_handle(fr_mpi_arg(registers, stack, buffer + 2u)));
}

static bool needs_look(const struct entry *entry, const fr_word *registers, const fr_word *stack)
{
    switch (entry->check) {
    case CHECK_PROBE:
        return fr_mpi_takes_rts;
    case CHECK_COMM_MAKE:
        return fr_world_comm() != fr_real_mpi.COMM_NULL &&
               !fr_real_is_internal(caller_of(registers, stack));
    case CHECK_RAIL_RECEIVE:
        if (fr_mpi_rails_take_host && is_for_rails(entry, 0, registers, stack))
            return true;
        __attribute__((fallthrough));
    case CHECK_RECEIVE:
        if (fr_mpi_takes_rts && may_bring_rts(entry, registers, stack))
            return true;
        goto host_buffers;
    case CHECK_RAIL_SEND:
        if (fr_mpi_rails_take_host && is_for_rails(entry, 0, registers, stack))
            return true;
        __attribute__((fallthrough));
    case CHECK_SEND:
        if (fr_mpi_takes_rts && sends_as_rts(entry, registers, stack))
            return true;
        goto host_buffers;
    case CHECK_EXCHANGE:
        if (fr_mpi_peer_is_enabled() && !fr_real_is_internal(caller_of(registers, stack)))
            return true;
        __attribute__((fallthrough));
    case CHECK_HOST_BUFFERS:
    host_buffers:
        if (entry->nests && fr_mpi_peer_is_enabled())
            return true;
        for (unsigned i = 0; i < entry->buffer_count; i++) {
            if (!is_host_buffer(fr_mpi_arg(registers, stack, entry->buffers[i])))
                return true;
        }
        return false;
    case CHECK_COMM_FREE:
        return fr_request_any_tracked() || (fr_mpi_takes_rts && fr_rndv_incoming_any_here());
    case CHECK_NO_REQUESTS:
        return fr_request_any_tracked();
    case CHECK_NO_PENDING:
        return atomic_load_explicit(&fr_request_pending_count, memory_order_acquire) != 0;
    case CHECK_NO_ATTACHED:
        return fr_mpi_any_attached();
    case CHECK_NOTHING:
        return false;
    default:
        return true;
    }
}

// A program may wait by calls that do not, while a sender waits for what it has to fetch. One such
// call in so many looks.
static bool is_time_to_receive(const struct entry *entry)
{
    enum { CALLS_A_LOOK = 16 };
    static FR_TLS unsigned calls;
    return entry->polls && fr_rndv_is_awaited() && ++calls % CALLS_A_LOOK == 0;
}

struct fr_mpi_verdict fr_mpi_enter_fully(unsigned slot, const fr_word *registers,
                                         const fr_word *stack)
{
    const enum fr_fn fn = slot / 2;
    const struct entry *entry = &entries[fn];
    struct fr_mpi_verdict verdict = {.jump = entry->real};
    uintptr_t frame = (uintptr_t)registers; // as in quick calls
    uintptr_t outer = frame < fr_mpi_handler_frame ? fr_mpi_handler_frame : 0;
    bool inside = outer && fr_real_is_internal(caller_of(registers, stack));
    bool works = entry->real && !inside && entry->errands;
    bool freed = works && fr_request_any_freed();
    bool look = !entry->real || (!inside && needs_look(entry, registers, stack));
    if (outer)
        fr_mpi_prove(fn);
    if (FR_UNLIKELY(fr_mpi_handler_frame != 0) && !inside) {
        fr_rndv_unblock(); // a collective may have been left
        fr_request_settle();
    }
    if (works && FR_UNLIKELY(fr_request_looks_at_all()))
        fr_request_notice_awaited();
    bool awaited = works && fr_request_is_awaited();
    bool blocks = entry->meets && !inside && fr_mpi_takes_rts && fr_request_any_tracked();
    if (FR_LIKELY(!look && !freed && !awaited && !blocks))
        return verdict;
    fr_word args[FR_MAX_ARGS];
    int result = 0;
    // One by one, or compilers make one instruction of each loop, which is slow for so few.
    for (unsigned i = 0; i < FR_REGISTER_ARGS; i++) { // whether there are so many or not
        args[i] = registers[i];
        __asm__("");
    }
    for (unsigned i = FR_REGISTER_ARGS; i < entry->arg_count; i++) {
        args[i] = stack[i - FR_REGISTER_ARGS];
        __asm__("");
    }
    fr_request_call++;
    if (!outer)
        fr_request_outermost = fr_request_call;
    if (FR_UNLIKELY(fr_mpi_handler_frame != 0))
        fr_request_any_left = true;
    fr_mpi_handler_frame = frame;
    fr_device_begin_call();
    fr_report_call_begin(fn);
    if (FR_UNLIKELY(awaited) && is_time_to_receive(entry))
        (void)fr_request_receive_early(false);
    if (blocks) {
        fr_request_receive_coming();
        fr_rndv_block();
    }
    bool handled = look && entry->handle(fn, args, &result);
    if (!handled && (entry->nests || freed || awaited || blocks)) {
        result = fr_request_call_real(fn, args);
        handled = true;
    }
    if (blocks)
        fr_rndv_unblock();
    if (freed)
        fr_request_poll_freed();
    fr_report_call_end();
    fr_mpi_handler_frame = outer;
    if (handled) {
        verdict.jump = NULL;
        verdict.result = (fr_word)result;
    }
    return verdict;
}

// What is found of most calls.
static inline enum glance glance_at(enum plain plain, const fr_word *registers)
{
    if (plain == PLAIN_REQUESTS)
        return fr_request_any_tracked() ? GLANCE_QUICK : GLANCE_PLAIN;
    if (plain == PLAIN_LATER)
        return GLANCE_QUICK;
    if (FR_UNLIKELY(plain == PLAIN_NEVER || !fr_device_is_ordinary((const void *)registers[0])))
        return GLANCE_NOTHING;
    if (!fr_mpi_takes_rts)
        return GLANCE_PLAIN;
    int64_t count = (int)registers[1];
    fr_word type = fr_real_handle(registers[2]);
    if (plain == PLAIN_SEND)
        return fr_mpi_is_unmarked(count, type) ? GLANCE_PLAIN : GLANCE_NOTHING;
    enum fr_mpi_room room = fr_mpi_room_of(count, type);
    return room == FR_MPI_ROOM_NONE     ? fr_request_errors_return ? GLANCE_NOTHING : GLANCE_PLAIN
           : room == FR_MPI_ROOM_ENOUGH ? GLANCE_QUICK
                                        : GLANCE_NOTHING;
}

void fr_mpi_enter_late(const fr_word *registers)
{
    fr_request_outermost = ++fr_request_call;
    fr_mpi_handler_frame = (uintptr_t)registers;
    fr_device_begin_call();
}

void fr_mpi_exit_late(void)
{
    fr_mpi_handler_frame = 0;
}

// Memory that is held for others goes back also in a phase of calls that need no look.
static void run_errands(const fr_word *registers)
{
    fr_mpi_enter_late(registers);
    if (fr_mpi_takes_rts)
        fr_rndv_progress(NULL);
    fr_workspace_trim();
    fr_mpi_exit_late();
}

// Not from within the MPI library, which may be in the middle of something.
static __attribute__((noinline, cold)) void look_for_errands(const fr_word *registers,
                                                             const fr_word *stack)
{
    enum { LOOK_NS = 100000000 };
    static _Atomic int64_t looked_ns;
    int64_t now = fr_time_coarse_ns();
    int64_t last = atomic_load_explicit(&looked_ns, memory_order_relaxed);
    if (fr_mpi_handler_frame == 0 && now - last >= LOOK_NS &&
        !fr_real_is_internal(caller_of(registers, stack)) &&
        atomic_compare_exchange_strong(&looked_ns, &last, now))
        run_errands(registers);
}

// One call in so many reads the clock.
static inline bool may_run_errands(const struct entry *entry)
{
    enum { CALLS_A_LOOK = 64 };
    static FR_TLS unsigned calls;
    return FR_UNLIKELY(fr_core_has_errands()) && entry->errands &&
           FR_UNLIKELY(++calls % CALLS_A_LOOK == 0);
}

FR_HOT struct fr_mpi_verdict fr_mpi_enter(unsigned slot, const fr_word *registers,
                                          const fr_word *stack)
{
    const struct entry *entry = &entries[slot / 2];
    if (may_run_errands(entry))
        look_for_errands(registers, stack);
    if (FR_UNLIKELY(fr_mpi_handler_frame != 0 || fr_request_looks_at_all()))
        return fr_mpi_enter_fully(slot, registers, stack);
    enum glance glance = glance_at(entry->plain, registers);
    if (glance == GLANCE_PLAIN)
        return (struct fr_mpi_verdict){.jump = entry->real};
    if (glance == GLANCE_QUICK && entry->quick)
        return entry->quick(slot, entry->real, registers, stack);
    return fr_mpi_enter_fully(slot, registers, stack);
}

static int report_missing(enum fr_fn fn)
{
    bool known = fr_real_mpi.family != NULL;
    fr_error("%s was called, but %s", fr_real_rows[fn].name,
             known ? "this MPI library does not have it" : "no MPI library is in this process");
    return known ? fr_real_mpi.ERR_UNSUPPORTED_OPERATION : 1;
}

struct fr_mpi_verdict fr_mpi_enter_unresolved(unsigned slot, const fr_word *registers,
                                              const fr_word *stack)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)!fr_real_start(); // it may wait for the loader, so others must not wait for it
    pthread_once(&once, resolve_once);
    void *target = fr_mpi_slots[slot];
    if (target == (void *)fr_stub_enter)
        return fr_mpi_enter(slot, registers, stack);
    if (target != (void *)fr_stub_unresolved)
        return (struct fr_mpi_verdict){.jump = target};
    return (struct fr_mpi_verdict){.result = (fr_word)report_missing(slot / 2)};
}
