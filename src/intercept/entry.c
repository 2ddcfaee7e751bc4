// SPDX-License-Identifier: BSD-3-Clause
// Fills the entry of each function and the slots of the stubs, when the MPI library is found.
#include "config.h"

#include "fabrail/core/object.h"
#include "fabrail/report.h"
#include "intercept/entry.h"

#include <pthread.h>
#include <string.h>

struct fr_intercept_entry fr_intercept_entries[FR_FN_STUB_COUNT];
void *fr_intercept_reals[2 * FR_FN_STUB_COUNT];

static const struct {
    enum fr_intercept_check check;
    enum fr_intercept_meanwhile meanwhile;
    fr_intercept_handler *handle;
} classes[] = {
#define FR_CLASS(name, check, meanwhile, handler)                                                  \
    [FR_CLASS_##name] = {FR_CHECK_##check, FR_MEANWHILE_##meanwhile, handler},
#include "fabrail/abi/classes.def"
#undef FR_CLASS
};

// Returns whether buffer, count and datatype come first.
static bool begins_with(const struct fr_abi_side *side)
{
    return side->buffer == 0 && side->count == 1 && !side->has_counts && side->type == 2;
}

static enum fr_intercept_plain plain_of(enum fr_fn fn)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    if (entry->real == NULL)
        return FR_PLAIN_NEVER;
    if (entry->check == FR_CHECK_NO_ACCESS || entry->check == FR_CHECK_NO_WINDOWS)
        return FR_PLAIN_WINDOW;
    if (entry->check == FR_CHECK_RMA)
        return entry->buffer_count == 1 && entry->buffers[0] == 0 ? FR_PLAIN_ACCESS
                                                                  : FR_PLAIN_ACCESSES;
    if (entry->large)
        return FR_PLAIN_NEVER;
    if (entry->check == FR_CHECK_NO_REQUESTS)
        return FR_PLAIN_REQUESTS;
    if (entry->check == FR_CHECK_RECEIVE && !entry->sends && begins_with(&row->receive))
        return FR_PLAIN_RECEIVE;
    if (fr_intercept_wants_host_rails())
        return FR_PLAIN_NEVER;
    if (entry->check == FR_CHECK_SEND && begins_with(&row->send))
        return FR_PLAIN_SEND;
    return fn == FR_FN_MPI_Sendrecv ? FR_PLAIN_LATER : FR_PLAIN_NEVER;
}

// Returns whether a class communicates on a communicator, and by buffers that it has handed to MPI
// for that.
static bool communicates(enum fr_class class)
{
    enum fr_intercept_check check = classes[class].check;
    return check == FR_CHECK_SEND || check == FR_CHECK_RECEIVE || check == FR_CHECK_EXCHANGE ||
           class == FR_CLASS_PSEND || class == FR_CLASS_PRECV;
}

// Returns whether a program may wait by calling functions of a class again and again. It may wait
// so for memory of its own, or memory that is mapped, to change.
static bool may_be_polled(enum fr_class class)
{
    enum fr_intercept_check check = classes[class].check;
    return check <= FR_CHECK_PROBE || check == FR_CHECK_NO_REQUESTS || class == FR_CLASS_RMA ||
           class == FR_CLASS_WIN_SYNC || class == FR_CLASS_WIN_SYNC_RANK ||
           class == FR_CLASS_WIN_OPEN || class == FR_CLASS_WIN_LOOK;
}

static void set_entry(enum fr_fn fn)
{
    struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    *entry = (struct fr_intercept_entry){
        .real = fr_abi_address(fn),
        .handle = classes[row->class].handle,
        .check = classes[row->class].check,
        .may_block = classes[row->class].meanwhile == FR_MEANWHILE_LEAVES &&
                     (row->request < 0 || row->class == FR_CLASS_RMA),
        .large = row->flags & FR_ROW_LARGE,
        .sends = row->send.buffer >= 0,
        .promised = row->comm >= 0 && communicates(row->class),
        .may_call_mpi = row->class != FR_CLASS_REFUSE,
        .arg_count = row->arg_count,
        .receive = (unsigned char)row->receive.buffer,
    };
    if (entry->check == FR_CHECK_EXCHANGE && row->request >= 0)
        entry->handle = fr_intercept_call_schedule;
    bool looks_at_buffers = entry->check <= FR_CHECK_HOST_BUFFERS || entry->check == FR_CHECK_NONE;
    if (looks_at_buffers && entry->check != FR_CHECK_PROBE)
        entry->buffer_count = row->buffer_count;
    memcpy(entry->buffers, row->buffers, sizeof(entry->buffers));
    entry->polls = may_be_polled(row->class);
    entry->plain = plain_of(fn);
    // A report counts every call that is looked at. Senders over rails may wait for a word.
    bool never = entry->plain == FR_PLAIN_NEVER || fr_report_on || fr_intercept_wants_host_rails();
    entry->fast = entry->plain >= FR_PLAIN_WINDOW ? fr_intercept_fastpath_window
                  : never                         ? NULL
                                                  : fr_intercept_fastpaths[fn];
    if (FR_UNLIKELY(fr_core_settings()->sync != FR_SYNC_OFF))
        fr_intercept_guard(fn);
}

static void *target_of(enum fr_fn fn, bool serving)
{
    void *real = fr_abi_address(fn);
    if (classes[fr_abi_rows[fn].class].handle == fr_intercept_call_query)
        return (void *)fr_stub_enter;
    if (!real)
        return (void *)fr_stub_unresolved;
    if (!serving)
        return real;
    enum fr_intercept_plain plain = fr_intercept_entries[fn].plain;
    return plain == FR_PLAIN_WINDOW   ? (void *)fr_intercept_enter_window
           : plain == FR_PLAIN_ACCESS ? (void *)fr_intercept_enter_access
                                      : (void *)fr_stub_enter;
}

static void resolve_once(void)
{
    enum fr_status found = fr_abi_start();
    bool serving = found == FR_OK && !fr_core_settings()->disable && !fr_core_is_second_copy();
    if (serving)
        fr_report_start();
    if (serving)
        (void)fr_intercept_redirect();
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++)
        set_entry(fn);
    for (enum fr_fn fn = 0; fn < FR_FN_STUB_COUNT; fn++) {
        void *target = target_of(fn, serving);
        void *profiler = fr_abi_profiler(fn);
        fr_intercept_reals[2 * fn] = fr_intercept_reals[2 * fn + 1] = fr_abi_address(fn);
        __atomic_store_n(&fr_intercept_slots[2 * fn], profiler ? profiler : target,
                         __ATOMIC_RELEASE);
        __atomic_store_n(&fr_intercept_slots[2 * fn + 1], target, __ATOMIC_RELEASE);
    }
}

static int report_missing(enum fr_fn fn)
{
    bool known = fr_abi_mpi.family != NULL;
    fr_error("%s was called, but %s", fr_abi_rows[fn].name,
             known ? "this MPI library does not have it" : "no MPI library is in this process");
    return known ? fr_abi_mpi.ERR_UNSUPPORTED_OPERATION : 1;
}

struct fr_intercept_verdict
fr_intercept_dispatch_unresolved(unsigned slot, const fr_word *registers, const fr_word *stack)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)!fr_abi_start(); // it may wait for the loader, so others must not wait for it
    pthread_once(&once, resolve_once);
    void *target = fr_intercept_slots[slot];
    if (target == (void *)fr_stub_enter)
        return fr_intercept_dispatch(slot, registers, stack);
    if (target != (void *)fr_stub_unresolved)
        return (struct fr_intercept_verdict){.jump = target};
    return (struct fr_intercept_verdict){.result = (fr_word)report_missing(slot / 2)};
}
