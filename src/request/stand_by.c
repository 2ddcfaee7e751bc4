// SPDX-License-Identifier: BSD-3-Clause
// Calls that wait for one receive, and have a kernel stand by for its message meanwhile.
#include "config.h"

#include "fabrail/rndv/ahead.h"
#include "request/request_int.h"

// Returns whether a receive waits for its message, and MPI has not completed it. The message of an
// MPI_Sendrecv is mostly there when a kernel has started.
static bool awaits_message(const struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    return row->class == FR_CLASS_RECV && op->receive.takes_rts && !op->persistent &&
           !op->delivered && !op->arrival && !op->schedule && row->message < 0 && row->peer >= 0 &&
           (int)op->args[row->peer] != fr_abi_mpi.PROC_NULL;
}

void fr_request_stand_by(struct fr_request_op *op)
{
    if (!fr_request_alone || !awaits_message(op))
        return;
    const struct fr_staging_view *view = fr_request_receive_view(op);
    if (view)
        fr_rndv_standby_begin(view);
}
