// SPDX-License-Identifier: BSD-3-Clause
// Why device memory is staged through host memory, and does not go a better way.
#include "config.h"

#include "coll/group.h"
#include "mpi/mpi_int.h"

static const char *collective_obstacle(const struct fr_request_op *op)
{
    bool waits = fr_real_rows[op->fn].request < 0;
    if (!fr_mpi_peer_is_enabled())
        return fr_core_settings()->paths & FR_PATH_BIT_PEER
                   ? "not all ranks of the job take part in exchanges over NVLink"
                   : "FABRAIL_PATHS excludes peer";
    fr_word comm = fr_real_comm(op->fn, op->args);
    const char *obstacle = fr_coll_group_obstacle(comm, waits);
    if (obstacle)
        return obstacle;
    return waits ? "not all ranks could take part in this exchange over NVLink"
                 : "the exchange is not worth messages of its own";
}

const char *fr_mpi_staged_because(const struct fr_request_op *op, const struct fr_path_view *view,
                                  const char *reason)
{
    if (fr_mpi_is_gpu_aware())
        return reason;
    switch (fr_real_rows[op->fn].class) {
    case FR_CLASS_SEND:
    case FR_CLASS_PSEND:
    case FR_CLASS_RECV:
    case FR_CLASS_PRECV:
    case FR_CLASS_SENDRECV:
    case FR_CLASS_REPLACE:
        return fr_mpi_message_obstacle(op, view);
    default:
        if (fr_mpi_peer_serves(op->fn))
            return collective_obstacle(op);
        return fr_real_shape_of(op->fn) ? "reductions go over NVLink in blocking calls alone"
                                        : reason;
    }
}
