// SPDX-License-Identifier: BSD-3-Clause
// Facts on multi-node NVLink: which processes of the job it reaches, and whether this process can
// allocate the memory that it takes.
#include "config.h"

#include "fabrail/job.h"
#include "fabrail/job/shm.h"
#include "fabrail/report.h"
#include "intercept/intercept_int.h"

#include <string.h>

static _Atomic int memory_support = FR_SUPPORT_UNKNOWN;

// Describes the host's clique. Which GPU the application will use is seldom known this early, so
// the facts are the host's.
static void describe_clique(struct fr_job_facts *own)
{
    struct fr_device_clique clique = {.valid = 0};
    fr_device_clique_of_host(&clique);
    own->clique = clique.clique;
    own->has_fabric = clique.valid;
    memcpy(own->cluster, clique.cluster, sizeof(own->cluster));
}

// Describes exchanges. Ranks agree on them in memory that they find by a secret of the job.
static void describe_exchanges(struct fr_job_facts *own)
{
    struct fr_job_secret secret;
    own->exchanges =
        fr_device_is_installed() || (own->takes_rts && fr_intercept_wants_host_rails());
    if (!own->exchanges || own->takes_rts)
        return;
    own->exchanges = fr_job_secret_draw(&secret) == FR_OK;
    if (own->exchanges)
        memcpy(own->secret, secret.bytes, sizeof(own->secret));
}

// An MPI library that takes device memory makes windows over it itself.
static void describe_windows(struct fr_job_facts *own)
{
    own->windows = own->exchanges && !fr_intercept_passes_device_memory(FR_FN_MPI_Win_create);
}

bool fr_intercept_gather_facts(void)
{
    const struct fr_settings *settings = fr_core_settings();
    bool for_fabric = settings->fabric == FR_FABRIC_AUTO &&
                      (settings->paths & FR_PATH_BIT_FABRIC) && fr_intercept_is_gpu_aware();
    bool for_peers = settings->paths & FR_PATH_BIT_PEER;
    struct fr_job_facts own = {.host = fr_job_host(), .reports = fr_report_gathers()};
    own.uses_device = fr_device_in_use();
    own.has_threads = !fr_request_serial;
    bool may = for_fabric || for_peers;
    bool needs = fr_device_is_installed() || (for_peers && fr_intercept_wants_host_rails());
    bool alone = fr_job_size() < 2; // it has messages to itself
    if (alone ? !may || !needs : !fr_job_census_end(may, (may && needs) || own.reports))
        return true; // a job without GPUs or report has nothing to tell
    if (for_fabric)
        describe_clique(&own);
    if (for_peers) {
        fr_intercept_messages_describe(&own);
        describe_exchanges(&own);
        describe_windows(&own);
    }
    if (!fr_job_gather(&own))
        return false;
    // NVML takes its time. Jobs on one host need not spend it.
    if (!fr_intercept_messages_span_hosts())
        return true;
    if (settings->fabric != FR_FABRIC_OFF && own.takes_rts)
        describe_clique(&own);
    return fr_job_gather(&own);
}

static bool is_in_clique(int device)
{
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    struct fr_device_clique clique;
    fr_device_clique_of(device, &clique);
    return own && clique.valid && clique.clique == own->clique &&
           memcmp(clique.cluster, own->cluster, sizeof(own->cluster)) == 0;
}

bool fr_intercept_has_fabric(const struct fr_request_op *op, int device)
{
    if (fr_core_settings()->fabric != FR_FABRIC_AUTO)
        return false; // not asked for
    bool has_partner = op->object_kind == 'w'   ? fr_job_win_has_fabric(op->object)
                       : op->object_kind == 'c' ? fr_job_comm_has_fabric(op->object)
                                                : fr_job_comm_has_fabric(fr_abi_mpi.COMM_WORLD);
    return has_partner && is_in_clique(device);
}

bool fr_intercept_has_fabric_memory(int device)
{
    enum fr_device_support support = fr_device_fabric_support(device);
    atomic_store_explicit(&memory_support, (int)support, memory_order_relaxed);
    if (support == FR_SUPPORT_FAILED) // other reasons have been logged
        fr_warn_once("device %d could not be asked for fabric memory, perhaps since none of its "
                     "memory is left; until it can, messages are given to the MPI library as they "
                     "are",
                     device);
    return support == FR_SUPPORT_YES;
}

const char *fr_intercept_fabric_memory_text(void)
{
    int support = atomic_load_explicit(&memory_support, memory_order_relaxed);
    return fr_device_fabric_text((enum fr_device_support)support);
}
