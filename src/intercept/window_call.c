// SPDX-License-Identifier: BSD-3-Clause
// Windows over device memory: their epochs and their end. The real MPI hears of the making
// (window_make.c) and the end alone.
#include "config.h"

#include "fabrail/abi/hook.h"
#include "fabrail/job.h"
#include "fabrail/request/attendant.h"
#include "fabrail/request/errors.h"
#include "intercept/window_call.h"

#include <stdlib.h>
#include <string.h>

// Writes the ranks in the window of the members of a group. The caller frees *ranks.
static enum fr_status ranks_of(fr_word win, fr_word group, int **ranks, int *count)
{
    _Alignas(8) char all[8];
    if (FR_MPI(Group_size, group, FR_PTR(count)) != fr_abi_mpi.SUCCESS ||
        FR_MPI(Win_get_group, win, FR_PTR(all)) != fr_abi_mpi.SUCCESS)
        return FR_ERR_MPI;
    enum fr_status status = FR_ERR_NO_MEMORY;
    int *members = malloc(2 * ((size_t)*count + 1) * sizeof(*members));
    if (members) {
        int *own = members + *count;
        for (int i = 0; i < *count; i++)
            own[i] = i;
        status = FR_MPI(Group_translate_ranks, group, (fr_word)*count, FR_PTR(own),
                        fr_abi_handle_load(all, 0), FR_PTR(members)) == fr_abi_mpi.SUCCESS
                     ? FR_OK
                     : FR_ERR_MPI;
    }
    FR_MPI(Group_free, FR_PTR(all));
    for (int i = 0; i < *count && status == FR_OK; i++)
        status = members[i] == fr_abi_mpi.UNDEFINED ? FR_ERR_INVALID : FR_OK;
    if (status != FR_OK)
        free(members);
    else
        *ranks = members;
    return status;
}

static enum fr_status with_group(struct fr_rma_window *window, fr_word win, fr_word group,
                                 enum fr_status (*call)(struct fr_rma_window *window,
                                                        const int *ranks, size_t count))
{
    int *ranks = NULL, count = 0;
    enum fr_status status = ranks_of(win, fr_abi_handle(group), &ranks, &count);
    if (status == FR_OK)
        status = call(window, ranks, (size_t)count);
    free(ranks);
    return status;
}

static void expect_no_more(enum fr_rma_server server)
{
    switch (server) {
    case FR_RMA_BY_THREAD:
        fr_request_attendant_let_go();
        break;
    case FR_RMA_BY_HOOK:
        fr_abi_unhook();
        break;
    default:
        fr_request_expect(-1);
        break;
    }
}

// Ends a window. Its memory is the program's again when all ranks have come here.
static int free_window(struct fr_rma_window *window, const fr_word *args)
{
    fr_word win = fr_abi_handle_load((const void *)args[0], 0);
    enum fr_status flushed = FR_OK;
    enum fr_status status = fr_rma_window_close(window, &flushed);
    if (status != FR_OK)
        return fr_intercept_window_result(win, FR_FN_MPI_Win_free, status);
    // The error handler goes with the real window, and all others are freeing theirs.
    int raised = fr_intercept_window_result(win, FR_FN_MPI_Win_free, flushed);
    bool has_messages = fr_rma_window_has_messages(window);
    fr_rma_window_unbind(window);
    int rc = fr_abi_call(FR_FN_MPI_Win_free, args);
    if (rc == fr_abi_mpi.SUCCESS) {
        if (has_messages)
            expect_no_more(fr_rma_window_server(window));
        fr_rma_window_free(window);
    } else {
        fr_rma_window_bind(window, win);
    }
    return rc == fr_abi_mpi.SUCCESS ? raised : rc;
}

static enum fr_status test(struct fr_rma_window *window, int *flag)
{
    bool over = false;
    enum fr_status status = fr_rma_test(window, &over);
    *flag = over;
    return status;
}

// Serves a call that synchronises a window. Its rank and its sort of lock have been checked.
static enum fr_status synchronise(enum fr_fn fn, struct fr_rma_window *window, fr_word win,
                                  const fr_word *args)
{
    switch (fn) {
    case FR_FN_MPI_Win_fence:
        return fr_rma_fence(window, ((int)args[0] & fr_abi_mpi.MODE_NOSUCCEED) != 0);
    case FR_FN_MPI_Win_lock:
        return fr_rma_lock(window, (int)args[1], (int)args[0] == fr_abi_mpi.LOCK_EXCLUSIVE);
    case FR_FN_MPI_Win_lock_all:
        return fr_rma_lock_all(window);
    case FR_FN_MPI_Win_unlock:
        return fr_rma_unlock(window, (int)args[0]);
    case FR_FN_MPI_Win_unlock_all:
        return fr_rma_unlock_all(window);
    case FR_FN_MPI_Win_post:
        return with_group(window, win, args[0], fr_rma_post);
    case FR_FN_MPI_Win_start:
        return with_group(window, win, args[0], fr_rma_start);
    case FR_FN_MPI_Win_complete:
        return fr_rma_complete(window);
    case FR_FN_MPI_Win_wait:
        return fr_rma_wait(window);
    case FR_FN_MPI_Win_test:
        return test(window, (int *)args[1]);
    case FR_FN_MPI_Win_sync:
        return fr_rma_sync(window);
    case FR_FN_MPI_Win_flush:
    case FR_FN_MPI_Win_flush_local:
        return fr_rma_flush_rank(window, (int)args[0]);
    default:
        return fr_rma_flush_all(window);
    }
}

int fr_intercept_window_result(fr_word win, enum fr_fn fn, enum fr_status status)
{
    if (status == FR_OK)
        return fr_abi_mpi.SUCCESS;
    fr_error("%s: %s", fr_abi_rows[fn].name, fr_core_status_text(status));
    return fr_request_raise('w', win, fr_request_error_code(status));
}

bool fr_intercept_window_has_rank(const struct fr_rma_window *window, int rank)
{
    return rank >= 0 && rank < fr_rma_window_size(window);
}

// Returns the assertions of a call, and in *allowed those that it may have.
static int assertions_of(enum fr_fn fn, const fr_word *args, int *allowed)
{
    switch (fn) {
    case FR_FN_MPI_Win_fence:
        *allowed = fr_abi_mpi.MODE_NOSTORE | fr_abi_mpi.MODE_NOPUT | fr_abi_mpi.MODE_NOPRECEDE |
                   fr_abi_mpi.MODE_NOSUCCEED;
        return (int)args[0];
    case FR_FN_MPI_Win_post:
        *allowed = fr_abi_mpi.MODE_NOCHECK | fr_abi_mpi.MODE_NOSTORE | fr_abi_mpi.MODE_NOPUT;
        return (int)args[1];
    case FR_FN_MPI_Win_start:
        *allowed = fr_abi_mpi.MODE_NOCHECK;
        return (int)args[1];
    case FR_FN_MPI_Win_lock_all:
        *allowed = fr_abi_mpi.MODE_NOCHECK;
        return (int)args[0];
    case FR_FN_MPI_Win_lock:
        *allowed = fr_abi_mpi.MODE_NOCHECK;
        return (int)args[2];
    default:
        *allowed = 0;
        return 0;
    }
}

// Returns the class of the error in the arguments of a call that synchronises, MPI_SUCCESS if there
// is none. Families other than Open MPI have one class for all of these.
static int bad_argument(const struct fr_rma_window *window, enum fr_fn fn, const fr_word *args)
{
    bool is_openmpi = fr_abi_is_open_mpi();
    int peer = fr_abi_rows[fn].peer, allowed;
    if (fn == FR_FN_MPI_Win_lock && (int)args[0] != fr_abi_mpi.LOCK_EXCLUSIVE &&
        (int)args[0] != fr_abi_mpi.LOCK_SHARED)
        return is_openmpi ? fr_abi_mpi.ERR_LOCKTYPE : fr_abi_mpi.ERR_ARG;
    if (peer >= 0 && !fr_intercept_window_has_rank(window, (int)args[peer]))
        return fr_abi_mpi.ERR_RANK;
    if (assertions_of(fn, args, &allowed) & ~allowed)
        return is_openmpi ? fr_abi_mpi.ERR_ASSERT : fr_abi_mpi.ERR_ARG;
    return fr_abi_mpi.SUCCESS;
}

// Serves a call that synchronises with no rank. Open MPI refuses to lock that.
static int synchronise_nobody(enum fr_fn fn, fr_word win)
{
    bool locks = fn == FR_FN_MPI_Win_lock || fn == FR_FN_MPI_Win_unlock;
    return locks && fr_abi_is_open_mpi() ? fr_request_raise('w', win, fr_abi_mpi.ERR_RANK)
                                         : fr_abi_mpi.SUCCESS;
}

static int attached(fr_word win, enum fr_fn fn, enum fr_status status)
{
    if (status == FR_ERR_INVALID)
        return fr_request_raise('w', win, fr_abi_mpi.ERR_RMA_ATTACH);
    return fr_intercept_window_result(win, fn, status);
}

// Tells where a rank's memory is for kernels of this process. MPI_PROC_NULL stands for the first
// rank that gives any.
static int query(enum fr_fn fn, struct fr_rma_window *window, fr_word win, const fr_word *args)
{
    int rank = (int)args[1], unit = 1;
    uintptr_t address = 0;
    size_t bytes = 0;
    bool is_shown = true, any = rank == fr_abi_mpi.PROC_NULL;
    for (int i = 0; any && bytes == 0 && i < fr_rma_window_size(window); i++)
        is_shown = fr_rma_window_query(window, i, &address, &bytes, &unit);
    if (!any && !fr_intercept_window_has_rank(window, rank))
        return fr_request_raise('w', win, fr_abi_mpi.ERR_RANK);
    if (!any)
        is_shown = fr_rma_window_query(window, rank, &address, &bytes, &unit);
    if (!is_shown)
        return fr_request_raise('w', win, fr_abi_mpi.ERR_RMA_FLAVOR);
    *(intptr_t *)args[2] = (intptr_t)bytes;
    if (fr_abi_rows[fn].flags & FR_ROW_LARGE)
        *(intptr_t *)args[3] = unit;
    else
        *(int *)args[3] = unit;
    *(void **)args[4] = (void *)address;
    return fr_abi_mpi.SUCCESS;
}

// Waits in a window of the real MPI, within which MPICH acts on no message of other windows. MPI
// has a test for the end of an exposure epoch alone. Returns false for other calls.
static bool wait_in_real(enum fr_fn fn, const fr_word *args, int *result)
{
    if (fn != FR_FN_MPI_Win_wait || !fr_rma_remote_any())
        return false;
    *result = fr_request_wait_for_epoch(args);
    return true;
}

bool fr_intercept_call_window(enum fr_fn fn, fr_word *args, int *result)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    bool frees = row->window_freed >= 0;
    if (!fr_rma_any() || (frees && !args[0]))
        return false;
    fr_word win =
        frees ? fr_abi_handle_load((const void *)args[0], 0) : fr_abi_handle(args[row->window]);
    struct fr_rma_window *window = fr_rma_window_find(win);
    if (!window)
        return wait_in_real(fn, args, result);
    int bad = fr_abi_mpi.SUCCESS;
    if (frees) {
        *result = free_window(window, args);
    } else if (fn == FR_FN_MPI_Win_get_attr) {
        if (!fr_rma_window_attribute(window, (int)args[1], (void **)args[2]))
            return false;
        *(int *)args[3] = 1;
        *result = fr_abi_mpi.SUCCESS;
    } else if (fn == FR_FN_MPI_Win_detach) {
        *result = attached(win, fn, fr_rma_detach(window, (uintptr_t)args[1]));
    } else if (fn == FR_FN_MPI_Win_shared_query || fn == FR_FN_MPI_Win_shared_query_c) {
        *result = query(fn, window, win, args);
    } else if (row->peer >= 0 && (int)args[row->peer] == fr_abi_mpi.PROC_NULL) {
        *result = synchronise_nobody(fn, win);
    } else if ((bad = bad_argument(window, fn, args)) != fr_abi_mpi.SUCCESS) {
        *result = fr_request_raise('w', win, bad);
    } else {
        *result = fr_intercept_window_result(win, fn, synchronise(fn, window, win, args));
    }
    return true;
}

// Returns whether all ranks of the communicator that a waiting function names call it.
static bool is_collective(enum fr_fn fn)
{
    enum fr_class class = fr_abi_rows[fn].class;
    return fr_abi_rows[fn].comm >= 0 && class != FR_CLASS_STREAM &&
           class != FR_CLASS_BUFFER_RETURN && fn != FR_FN_MPI_Comm_create_group;
}

void fr_intercept_gate(enum fr_fn fn, const fr_word *args)
{
    int arg = fr_abi_rows[fn].comm;
    struct fr_intercept_shape shape;
    if (!is_collective(fn) || fr_abi_handle(args[arg]) == fr_abi_mpi.COMM_NULL ||
        fr_intercept_shape_of(fr_abi_handle(args[arg]), &shape) != FR_OK || shape.inter)
        return;
    fr_rma_gate(fr_abi_handle(args[arg]), shape.size);
}

bool fr_intercept_call_window_sync(enum fr_fn fn, fr_word *args, int *result)
{
    return fr_intercept_call_window(fn, args, result) ||
           fr_intercept_call_win_sync(fn, args, result);
}

bool fr_intercept_call_win_attach(enum fr_fn fn, fr_word *args, int *result)
{
    fr_word win = fr_abi_handle(args[0]);
    struct fr_rma_window *window = fr_rma_any() ? fr_rma_window_find(win) : NULL;
    if (!window)
        return fr_intercept_call_refusable(fn, args, result);
    *result = attached(win, fn, fr_rma_attach(window, (uintptr_t)args[1], (size_t)args[2]));
    return true;
}
