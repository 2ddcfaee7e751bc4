// SPDX-License-Identifier: BSD-3-Clause
// Functions that complete operations without a request: window synchronisation and the end of split
// collective file operations.
#include "config.h"

#include "mpi/mpi_int.h"

static int deliver_list(struct fr_request_op *list, void *status, int rc)
{
    while (list) {
        struct fr_request_op *op = list;
        list = op->next;
        enum fr_status delivered = fr_request_deliver(&op, &status, &rc, 1);
        if (delivered != FR_OK)
            rc = fr_request_fail(op, delivered);
        fr_request_op_free(op);
    }
    return rc;
}

static void put_back(struct fr_request_op *list)
{
    while (list) {
        struct fr_request_op *op = list;
        list = op->next;
        fr_request_pend(op, op->key);
    }
}

bool fr_mpi_call_win_sync(enum fr_fn fn, fr_word *args, int *result)
{
    int by_pointer = fr_real_arg(fn, 'W', 0);
    int peer_arg = fr_real_arg(fn, 'P', 0);
    if (by_pointer >= 0 && !args[by_pointer])
        return false;
    fr_word window = by_pointer >= 0 ? fr_real_handle_load((const void *)args[by_pointer], 0)
                                     : fr_real_handle(args[fr_real_arg(fn, 'w', 0)]);
    // Taken before the call: what other threads add meanwhile is not completed by it.
    struct fr_request_op *list = fr_request_take(window, peer_arg >= 0 ? (int)args[peer_arg] : -1);
    if (!list)
        return false;
    *result = fr_real_call(fn, args);
    if (*result == fr_real_mpi.SUCCESS)
        *result = deliver_list(list, NULL, *result);
    else
        put_back(list);
    return true;
}

bool fr_mpi_call_file_end(enum fr_fn fn, fr_word *args, int *result)
{
    _Alignas(16) char own_status[FR_STATUS_BYTES] = {0};
    struct fr_request_op *op = fr_request_take(args[0], -1);
    if (!op)
        return false;
    args[1] = op->args[op->views[0].arg];
    if (args[2] == fr_real_mpi.STATUS_IGNORE)
        args[2] = FR_PTR(own_status);
    *result = fr_real_call(fn, args);
    *result = deliver_list(op, (void *)args[2], *result);
    return true;
}
