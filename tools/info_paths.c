// SPDX-License-Identifier: BSD-3-Clause
// fabrail info: which paths messages of device memory will take on this machine, and why not the
// others. Decisions of a single process come from the policy that the library itself goes by.
#include "config.h"

#include "fabrail/policy.h"
#include "info.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void FR_PRINTF(4, 5)
    add(struct fr_info_path *paths, int *count, bool used, const char *format, ...)
{
    static const char *const names[] = {"pass", "host", "fabric", "peer", "rail"};
    struct fr_info_path *path = &paths[*count];
    va_list arguments;
    path->name = names[(*count)++];
    path->used = used;
    va_start(arguments, format);
    vsnprintf(path->why, sizeof(path->why), format, arguments);
    va_end(arguments);
}

// The GPUs that have one to share with, and among them one without a handle of its memory.
static int count_joined(const struct fr_info_gpus *gpus, bool *by_nvlink)
{
    int joined = 0;
    *by_nvlink = true;
    for (int a = 0; a < gpus->count; a++) {
        bool reaches = false;
        for (int b = 0; b < gpus->count; b++) {
            reaches = reaches || gpus->gpus[a].reaches[b];
            *by_nvlink = *by_nvlink && (!gpus->gpus[a].reaches[b] || gpus->gpus[a].by_nvlink[b]);
        }
        joined += reaches;
    }
    return joined;
}

static void add_peer(const struct fr_info *info, bool aware, struct fr_info_path *paths, int *count)
{
    const struct fr_info_gpu *gpu = &info->gpus.gpus[0];
    bool by_nvlink;
    bool tried = *gpu->handles[FR_INFO_IPC].why_not && *gpu->handles[FR_INFO_FD].why_not;
    int joined = count_joined(&info->gpus, &by_nvlink);
    if (!(fr_core_settings()->paths & FR_PATH_BIT_PEER))
        add(paths, count, false, "FABRAIL_PATHS excludes it");
    else if (info->gpus.count == 0)
        add(paths, count, false, "there is no GPU");
    else if (access("/dev/shm", W_OK) != 0)
        add(paths, count, false, "no shared memory: /dev/shm cannot be written");
    else if (tried) // and neither works
        add(paths, count, false, "no handle of GPU memory can be made: %.180s",
            gpu->handles[FR_INFO_FD].why_not);
    else if (joined == 0 && info->gpus.count > 1)
        add(paths, count, false, "no two of the %d GPUs can map each other's memory",
            info->gpus.count);
    else if (joined == 0)
        add(paths, count, true, "between ranks that share the one GPU: %s",
            aware ? "blocking collectives" : "messages and collectives");
    else
        add(paths, count, true, "among %d GPUs of this host%s: %s", joined,
            by_nvlink ? ", by NVLink" : ", by PCIe where there is no NVLink",
            aware ? "blocking collectives; the MPI moves messages" : "messages and collectives");
}

static void add_fabric(const struct fr_info *info, bool aware,
                       const struct fr_policy_choice *choice, struct fr_info_path *paths,
                       int *count)
{
    const struct fr_settings *settings = fr_core_settings();
    const struct fr_info_gpu *gpu = &info->gpus.gpus[0];
    if (!(settings->paths & FR_PATH_BIT_FABRIC))
        add(paths, count, false, "FABRAIL_PATHS excludes it");
    else if (settings->fabric == FR_FABRIC_OFF)
        add(paths, count, false, "FABRAIL_FABRIC=off");
    else if (info->gpus.count == 0)
        add(paths, count, false, "there is no GPU");
    else if (!gpu->clique.valid && settings->fabric != FR_FABRIC_FORCE)
        add(paths, count, false, "these GPUs are in no NVLink clique that spans hosts");
    else if (*gpu->handles[FR_INFO_FABRIC].why_not)
        add(paths, count, false, "no fabric handle can be made: %.200s",
            gpu->handles[FR_INFO_FABRIC].why_not);
    else if (!aware)
        add(paths, count, false,
            "the MPI library is not GPU-aware; path peer uses fabric memory between hosts itself");
    else
        add(paths, count, choice->path == FR_PATH_FABRIC,
            "where the communicator has ranks of other hosts in the clique: %s", choice->reason);
}

static void add_rail(const struct fr_info *info, bool aware, struct fr_info_path *paths, int *count)
{
    int most = 0;
    for (int gpu = 0; gpu < info->gpus.count; gpu++) {
        int rails = 0;
        for (int i = 0; i < info->rails.rail_count; i++)
            rails += info->rails.rails[i].gpu == gpu;
        most = rails > most ? rails : most;
    }
    bool forced = fr_core_settings()->rail == FR_RAIL_FORCE;
    if (info->gpus.count == 0)
        add(paths, count, false, "there is no GPU");
    else if (fr_core_settings()->rail == FR_RAIL_OFF)
        add(paths, count, false, "FABRAIL_RAIL=off");
    else if (!(fr_core_settings()->paths & FR_PATH_BIT_PEER))
        add(paths, count, false, "FABRAIL_PATHS excludes peer, which it takes");
    else if (most == 0)
        add(paths, count, false, "libfabric has no NIC that will do");
    else if (most == 1 && !forced)
        add(paths, count, false, "a GPU has a single NIC, which the MPI library drives as well");
    else if (aware && !forced)
        add(paths, count, false, "the MPI library is GPU-aware, and moves what goes between hosts");
    else
        add(paths, count, true, "between hosts, over %d NIC%s of a GPU", most, most > 1 ? "s" : "");
}

int fr_info_paths(const struct fr_info *info, const struct fr_info_mpi *mpi,
                  struct fr_info_path paths[FR_INFO_MOST_PATHS])
{
    const struct fr_settings *settings = fr_core_settings();
    bool aware = settings->mpi_gpu_aware == FR_AUTO ? mpi != NULL && mpi->gpu_aware == FR_INFO_YES
                                                    : settings->mpi_gpu_aware == FR_YES;
    const struct fr_info_gpu *gpu = &info->gpus.gpus[0];
    struct fr_policy_facts facts = {
        .device_memory = true,
        .stageable = true,
        .mpi_gpu_aware = aware,
        .function_gpu_safe = true,
        .paths = settings->paths,
        .fabric_use = settings->fabric,
    };
    struct fr_policy_choice local = fr_policy_choose(&facts);
    facts.multi_node_nvlink = info->gpus.count > 0 && gpu->clique.valid;
    // A way that was not tried is taken to work.
    facts.fabric_workspace = info->gpus.count > 0 && !*gpu->handles[FR_INFO_FABRIC].why_not;
    struct fr_policy_choice wide = fr_policy_choose(&facts);
    int count = 0;
    if (local.path == FR_PATH_PASS)
        add(paths, &count, true, "%s", local.reason);
    else
        add(paths, &count, true, "host memory alone, since %s", local.reason);
    if (local.path == FR_PATH_HOST)
        add(paths, &count, true, "what no better path takes, since %s", local.reason);
    else if (local.path == FR_PATH_REFUSE)
        add(paths, &count, false, "%s", local.reason);
    else
        add(paths, &count, true, "functions that the MPI library's GPU support excludes");
    add_fabric(info, aware, &wide, paths, &count);
    add_peer(info, aware, paths, &count);
    if (info->rails.built)
        add_rail(info, aware, paths, &count);
    else
        add(paths, &count, false, "this build has no rails; the MPI moves what goes between hosts");
    return count;
}
