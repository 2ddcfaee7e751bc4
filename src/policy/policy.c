// SPDX-License-Identifier: BSD-3-Clause
// Which path a buffer takes.
#include "config.h"

#include "policy/policy.h"

static struct fr_policy_choice choice(enum fr_policy_path path, const char *reason)
{
    return (struct fr_policy_choice){path, reason};
}

// The real MPI may be given the buffer, and gets it or a copy that it can move faster.
static struct fr_policy_choice choose_device(const struct fr_policy_facts *facts)
{
    bool wanted = facts->stageable && (facts->paths & FR_PATH_BIT_FABRIC) &&
                  (facts->fabric_use == FR_FABRIC_FORCE ||
                   (facts->fabric_use == FR_FABRIC_AUTO && facts->multi_node_nvlink));
    if (!wanted)
        return choice(FR_PATH_PASS, "the MPI library is GPU-aware");
    if (facts->fabric_allocated)
        return choice(FR_PATH_PASS, "the buffer is fabric-allocated");
    if (!facts->fabric_workspace)
        return choice(FR_PATH_PASS, "there is no fabric workspace for the message");
    if (facts->fabric_use == FR_FABRIC_FORCE)
        return choice(FR_PATH_FABRIC, "FABRAIL_FABRIC=force");
    return choice(FR_PATH_FABRIC, "the communicator has multi-node NVLink");
}

struct fr_policy_choice fr_policy_choose(const struct fr_policy_facts *facts)
{
    bool may_pass = facts->paths & FR_PATH_BIT_PASS;
    bool may_stage = facts->paths & FR_PATH_BIT_HOST;
    if (!facts->device_memory)
        return choice(FR_PATH_PASS, "host memory");
    if (facts->mpi_gpu_aware && may_pass && (facts->function_gpu_safe || !facts->stageable))
        return choose_device(facts);
    if (!facts->stageable)
        return choice(FR_PATH_REFUSE, "the function keeps the memory, so it cannot be staged");
    if (!may_stage)
        return choice(FR_PATH_REFUSE, "FABRAIL_PATHS allows no path for device memory");
    if (!facts->mpi_gpu_aware)
        return choice(FR_PATH_HOST, "the MPI library is not GPU-aware");
    if (!may_pass)
        return choice(FR_PATH_HOST, "FABRAIL_PATHS excludes pass");
    return choice(FR_PATH_HOST, "the MPI library's GPU support excludes this function");
}

const char *fr_policy_path_name(enum fr_policy_path path)
{
    static const char *const names[FR_PATH_COUNT] = {
        [FR_PATH_PASS] = "pass",
        [FR_PATH_HOST] = "host",
        [FR_PATH_FABRIC] = "fabric",
        [FR_PATH_REFUSE] = "refuse",
    };
    return names[path];
}
