// SPDX-License-Identifier: BSD-3-Clause
// Collectives by path peer: which functions it serves, and blocking calls.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/request/errors.h"
#include "fabrail/rndv/progress.h"
#include "intercept/coll_exchange.h"

static bool enabled, joins_hosts;

// Other ranks know from the facts of the job when this process takes no part.
void fr_intercept_nvlink_start(void)
{
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    enabled = fr_job_size() > 1 && own && own->exchanges;
    joins_hosts = enabled && fr_job_clique_count() > 0;
    fr_rndv_progress_add(FR_RNDV_SCHEDULES, fr_request_advance_all);
}

bool fr_intercept_nvlink_is_enabled(void)
{
    return enabled;
}

bool fr_intercept_nvlink_joins_hosts(void)
{
    return joins_hosts;
}

void fr_intercept_nvlink_meet(void)
{
    bool all = joins_hosts;
    for (int rank = 0; rank < fr_job_size() && all; rank++)
        all = fr_job_world.facts[rank].uses_device;
    if (all)
        fr_coll_team_meet(fr_abi_mpi.COMM_WORLD);
}

// Data that all ranks get alike shall cross to another host once, so they are no messages.
bool fr_intercept_nvlink_schedules(enum fr_fn fn)
{
    const struct fr_abi_shape *shape = fr_abi_rows[fn].shape;
    return shape && !shape->reduces && !fr_abi_shape_spreads(shape);
}

static bool exchange_slices(struct fr_request_op *op, struct fr_coll_team *team, int *result)
{
    struct fr_intercept_exchange exchange;
    struct fr_coll_task task;
    if (fr_intercept_exchange_describe(&exchange, op, team, team->slots, false) != FR_OK) {
        fr_coll_decline(team, fr_abi_rows[op->fn].name);
        return false;
    }
    if (fr_intercept_exchange_open(&exchange) == FR_OK)
        fr_intercept_exchange_begin(&exchange, &task, team);
    else
        fr_coll_task_begin_declined(&task, team, fr_abi_rows[op->fn].name);
    enum fr_status status = fr_intercept_exchange_end(&exchange, fr_coll_task_run(&task));
    if (status == FR_ERR_UNSUPPORTED)
        return false;
    *result = status == FR_OK ? fr_abi_mpi.SUCCESS : fr_request_tell_failure(op, status);
    return true;
}

bool fr_intercept_nvlink_is_alike(enum fr_fn fn)
{
    const struct fr_abi_row *row = &fr_abi_rows[fn];
    return row->shape->reduces ||
           (!row->shape->is_neighbourly && !row->send.has_counts && !row->receive.has_counts);
}

bool fr_intercept_nvlink_exchange(struct fr_request_op *op, struct fr_coll_team *team, int *result)
{
    return fr_abi_rows[op->fn].shape->reduces ? fr_intercept_nvlink_reduce(op, team, result)
                                              : exchange_slices(op, team, result);
}
