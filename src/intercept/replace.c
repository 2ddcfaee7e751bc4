// SPDX-License-Identifier: BSD-3-Clause
// Exchanges that receive into the buffer that they send from. MPI is given two buffers for them:
// one to send, with an RTS or a copy of the data, and one to receive into.
#include "config.h"

#include "intercept/intercept_int.h"

// Returns the function for the same exchange with a buffer for each direction.
static enum fr_fn apart(enum fr_fn fn)
{
    switch (fn) {
    case FR_FN_MPI_Sendrecv_replace:
        return FR_FN_MPI_Sendrecv;
    case FR_FN_MPI_Sendrecv_replace_c:
        return FR_FN_MPI_Sendrecv_c;
    case FR_FN_MPI_Isendrecv_replace:
        return FR_FN_MPI_Isendrecv;
    default:
        return FR_FN_MPI_Isendrecv_c;
    }
}

// Rearranges the arguments: buffer, count and datatype, receiver and tag, then the same from the
// sender's side.
static void rearrange(struct fr_request_op *op)
{
    fr_word *args = op->args;
    for (int last = 8; last >= 5; last--) // sender, tag, communicator, and status or request
        args[last + 3] = args[last];
    for (int i = 0; i < 3; i++)
        args[5 + i] = args[i];
}

static bool is_worthwhile(struct fr_request_op *op)
{
    struct fr_staging_view *view = op->view_count == 1 ? &op->views[0] : NULL;
    bool sends = (int)op->args[fr_abi_rows[op->fn].peer] != fr_abi_mpi.PROC_NULL;
    if (!view || !sends || view->absolute)
        return false;
    fr_staging_view_measure(view);
    return fr_device_owns(&view->range) && view->in_bytes >= FR_RNDV_RTS_BYTES;
}

enum fr_status fr_intercept_split_replace(struct fr_request_op *op)
{
    if (!fr_intercept_rndv_is_enabled || !fr_abi_has(apart(op->fn)) || !is_worthwhile(op))
        return FR_OK;
    op->fn = apart(op->fn);
    rearrange(op);
    fr_request_op_drop_views(op);
    enum fr_status status = fr_intercept_views_build(op);
    op->replaces = op->view_count > 1; // else it receives from nobody
    return status;
}
