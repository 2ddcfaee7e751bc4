// SPDX-License-Identifier: BSD-3-Clause
// Reasons why device memory is staged through host memory instead of going a better way.
#include "config.h"

#include "fabrail/coll.h"
#include "intercept/intercept_int.h"

static const char *collective_obstacle(const struct fr_request_op *op)
{
    bool waits = fr_abi_rows[op->fn].request < 0;
    if (!fr_intercept_nvlink_is_enabled())
        return fr_core_settings()->paths & FR_PATH_BIT_PEER
                   ? "not all ranks of the job take part in exchanges over NVLink"
                   : "FABRAIL_PATHS excludes peer";
    fr_word comm = fr_abi_comm(op->fn, op->args);
    const bool reduces = fr_abi_rows[op->fn].shape->reduces;
    const char *obstacle = fr_coll_team_obstacle(comm, waits || reduces);
    if (obstacle)
        return obstacle;
    if (!waits && reduces)
        return "kernels are not for this datatype, operation or size";
    return waits ? "not all ranks could take part in this exchange over NVLink"
                 : "the exchange is not worth messages of its own";
}

const char *fr_intercept_staged_because(const struct fr_request_op *op,
                                        const struct fr_staging_view *view, const char *reason)
{
    if (fr_intercept_is_gpu_aware())
        return reason;
    const enum fr_class class = fr_abi_rows[op->fn].class;
    if (fr_abi_is_message(op->fn) || class == FR_CLASS_PSEND || class == FR_CLASS_PRECV)
        return fr_intercept_message_obstacle(op, view);
    return fr_abi_rows[op->fn].shape ? collective_obstacle(op) : reason;
}
