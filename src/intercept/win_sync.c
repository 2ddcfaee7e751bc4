// SPDX-License-Identifier: BSD-3-Clause
// Functions that complete operations without a request: window synchronisation and the end of split
// collective file operations.
#include "config.h"

#include "fabrail/request/pending.h"
#include "intercept/intercept_int.h"

// Returns the function that completes data before they are copied out. MPICH 4.0 returns from a
// local flush before they have come, where several threads are in MPI.
static enum fr_fn completed_by(enum fr_fn fn)
{
    return fn == FR_FN_MPI_Win_flush_local       ? FR_FN_MPI_Win_flush
           : fn == FR_FN_MPI_Win_flush_local_all ? FR_FN_MPI_Win_flush_all
                                                 : fn;
}

// Calls the real function. Open MPI 5 (osc/rdma) flushes nothing for all ranks under locks of each
// one, and later calls would complete data that have been copied out. So each rank is flushed.
static int synchronise(enum fr_fn fn, const fr_word *args, const struct fr_request_sync *sync)
{
    bool flushes_all = completed_by(fn) == FR_FN_MPI_Win_flush_all;
    int rc = fr_abi_call(completed_by(fn), args), target = -1;
    while (flushes_all && rc == fr_abi_mpi.SUCCESS && fr_request_sync_next(sync, &target))
        rc = FR_MPI(Win_flush, (fr_word)target, sync->window);
    return rc;
}

bool fr_intercept_call_win_sync(enum fr_fn fn, fr_word *args, int *result)
{
    int by_pointer = fr_abi_rows[fn].window_freed;
    int peer_arg = fr_abi_rows[fn].peer;
    if (by_pointer >= 0 && !args[by_pointer])
        return false;
    struct fr_request_sync sync = {
        .window = by_pointer >= 0 ? fr_abi_handle_load((const void *)args[by_pointer], 0)
                                  : fr_abi_handle(args[fr_abi_rows[fn].window]),
        .all = peer_arg < 0,
        .peer = peer_arg < 0 ? 0 : (int)args[peer_arg],
    };
    if (!fr_request_sync_begin(&sync))
        return false;
    *result = synchronise(fn, args, &sync);
    if (*result == fr_abi_mpi.SUCCESS)
        *result = fr_request_sync_end(&sync);
    return true;
}

bool fr_intercept_call_file_end(enum fr_fn fn, fr_word *args, int *result)
{
    _Alignas(16) char own_status[FR_STATUS_BYTES] = {0};
    struct fr_request_op *op = fr_request_take(args[0]);
    if (!op)
        return false;
    args[1] = op->args[op->views[0].arg];
    if (args[2] == fr_abi_mpi.STATUS_IGNORE)
        args[2] = FR_PTR(own_status);
    *result = fr_abi_call(fn, args);
    *result = fr_request_deliver_one(op, (void *)args[2], *result);
    fr_request_op_free(op);
    return true;
}
