// SPDX-License-Identifier: BSD-3-Clause
// The guard's place in the entries of functions, and calls with buffers.
#include "config.h"

#include "intercept/guard.h"

#include <stdlib.h>

static fr_intercept_handler *handlers[FR_FN_STUB_COUNT]; // those that the entries had

int fr_guard_call(enum fr_fn fn, fr_word *args)
{
    int result;
    return handlers[fn](fn, args, &result) ? result : fr_request_call_real(fn, args);
}

bool fr_guard_measure(struct fr_guard_op *guarded)
{
    struct fr_request_op *op = guarded->op;
    guarded->first = -1;
    fr_staging_views_measure(op->views, op->view_count);
    for (unsigned v = op->view_count; v-- > 0;) {
        if (fr_guard_minds(&op->views[v]))
            guarded->first = (int)v;
    }
    return guarded->first >= 0;
}

// Makes an operation of a call. Returns NULL if it has no buffers of the driver's, or buffers that
// are not understood. The memory of a persistent operation counts at its starts.
static struct fr_guard_op *new_op(enum fr_fn fn, const fr_word *args)
{
    struct fr_guard_op *guarded = calloc(1, sizeof(*guarded));
    struct fr_request_op *op = guarded ? fr_request_op_new(fn, args) : NULL;
    if (op && fr_intercept_views_build(op) == FR_OK) {
        guarded->op = op;
        guarded->site = fr_intercept_call_site();
        guarded->starts = fr_abi_rows[fn].flags & FR_ROW_PERSISTENT;
        guarded->first = -1;
        guarded->request = fr_abi_mpi.REQUEST_NULL;
        if (guarded->starts || fr_guard_measure(guarded))
            return guarded;
    }
    fr_request_op_free(op);
    free(guarded);
    return NULL;
}

void fr_guard_op_free(struct fr_guard_op *guarded)
{
    if (!guarded)
        return;
    fr_request_op_free(guarded->op);
    free(guarded);
}

// Comes before the handler of a function with buffers.
static bool guard_buffers(enum fr_fn fn, fr_word *args, int *result)
{
    int request = fr_abi_rows[fn].request;
    struct fr_guard_op *guarded = fr_intercept_are_host_buffers(fn, args) ? NULL : new_op(fn, args);
    if (!guarded)
        return handlers[fn](fn, args, result);
    if (!guarded->starts)
        fr_guard_begin(guarded);
    if (request < 0) {
        fr_guard_op_free(guarded);
        return handlers[fn](fn, args, result);
    }
    *result = fr_guard_call_with(guarded, fn, args);
    if (*result == fr_abi_mpi.SUCCESS)
        fr_guard_keep(guarded, fr_abi_handle_load((const void *)args[request], 0));
    else
        fr_guard_op_free(guarded);
    return true;
}

// Returns what comes before the handler of a function, NULL for nothing.
static fr_intercept_handler *guard_of(enum fr_fn fn)
{
    const struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    switch (fr_abi_rows[fn].class) {
    case FR_CLASS_START:
    case FR_CLASS_STARTALL:
        return fr_guard_start;
    case FR_CLASS_REQUEST_FREE:
        return fr_guard_free;
    case FR_CLASS_PREADY:
    case FR_CLASS_PREADY_RANGE:
    case FR_CLASS_PREADY_LIST:
        return fr_guard_pready;
    case FR_CLASS_PARRIVED:
        return NULL;
    default:
        return entry->check == FR_CHECK_NO_REQUESTS ? fr_guard_complete
               : entry->buffer_count                ? guard_buffers
                                                    : NULL;
    }
}

void fr_intercept_guard(enum fr_fn fn)
{
    struct fr_intercept_entry *entry = &fr_intercept_entries[fn];
    fr_intercept_handler *guard = guard_of(fn);
    if (!guard || !entry->real)
        return;
    handlers[fn] = entry->handle;
    entry->handle = guard;
    entry->plain = FR_PLAIN_NEVER;
    entry->fast = NULL;
    if (guard != guard_buffers)
        entry->check = FR_CHECK_NONE;
}
