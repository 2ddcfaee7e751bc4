// SPDX-License-Identifier: BSD-3-Clause
// Persistent sends of device buffers. Each is a schedule of one message, which takes the path that
// is open when it is started.
#include "config.h"

#include "fabrail/request/errors.h"
#include "fabrail/request/schedule.h"
#include "intercept/message.h"
#include "intercept/views.h"

#include <string.h>

// Starts a persistent send as a nonblocking one, with the application's own arguments.
static int start_message(struct fr_request_op *op)
{
    enum fr_fn fn = FR_FN_MPI_Isend;
    if (op->fn == FR_FN_MPI_Ssend_init || op->fn == FR_FN_MPI_Ssend_init_c)
        fn = FR_FN_MPI_Issend;
    if (op->fn == FR_FN_MPI_Rsend_init || op->fn == FR_FN_MPI_Rsend_init_c)
        fn = FR_FN_MPI_Irsend;
    if (op->fn == FR_FN_MPI_Bsend_init || op->fn == FR_FN_MPI_Bsend_init_c)
        fn = FR_FN_MPI_Ibsend;
    if (fr_abi_rows[op->fn].flags & FR_ROW_LARGE)
        fn++; // a _c form follows
    fr_word args[FR_MAX_ARGS];
    memcpy(args, op->args, sizeof(args));
    args[fr_abi_rows[fn].request] = FR_PTR(fr_request_schedule_add(op->schedule));
    return fr_intercept_call_part(fn, args, op->fn);
}

bool fr_intercept_call_persistent_send(struct fr_request_op *op, int *result)
{
    if (!fr_intercept_rndv_is_enabled)
        return false;
    struct fr_staging_view *view = op->view_count ? &op->views[0] : NULL;
    if (view)
        fr_staging_view_measure(view);
    if (!view || !fr_intercept_may_send_rts(op, view) ||
        fr_request_schedule_make(op, 1, start_message) != FR_OK)
        return false;
    if (fr_request_schedule_keep_args(op, 1, 1) != FR_OK) {
        const fr_word comm = op->object;
        fr_error("%s cannot be done: %s", fr_abi_rows[op->fn].name,
                 fr_core_status_text(FR_ERR_MPI));
        fr_request_op_free(op);
        *result = fr_request_raise('c', comm, fr_request_error_code(FR_ERR_MPI));
        return true;
    }
    *result = fr_request_schedule_open(op, (void *)op->args[fr_abi_rows[op->fn].request]);
    return true;
}
