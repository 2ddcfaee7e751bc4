// SPDX-License-Identifier: BSD-3-Clause
// Every combination of facts: what the policy chooses is what the rules below allow.
#include "config.h"

#include "fabrail/policy.h"

#include "check.h"

enum { BITS = 7, PATH_SETS = 8, FABRIC_USES = 3 };

static struct fr_policy_facts facts_of(unsigned bits, unsigned paths, unsigned use)
{
    return (struct fr_policy_facts){
        .device_memory = bits & 1,
        .stageable = bits & 2,
        .mpi_gpu_aware = bits & 4,
        .function_gpu_safe = bits & 8,
        .paths = paths,
        .fabric_allocated = bits & 16,
        .fabric_use = (enum fr_fabric_use)use,
        .multi_node_nvlink = bits & 32,
        .fabric_workspace = bits & 64,
    };
}

static void check_pass(const struct fr_policy_facts *facts)
{
    if (!facts->device_memory)
        return;
    CHECK(facts->mpi_gpu_aware && (facts->paths & FR_PATH_BIT_PASS));
    CHECK(facts->function_gpu_safe || !facts->stageable);
    bool wanted = facts->stageable && (facts->paths & FR_PATH_BIT_FABRIC) &&
                  (facts->fabric_use == FR_FABRIC_FORCE ||
                   (facts->fabric_use == FR_FABRIC_AUTO && facts->multi_node_nvlink));
    CHECK(!wanted || facts->fabric_allocated || !facts->fabric_workspace);
}

static void check_fabric(const struct fr_policy_facts *facts)
{
    CHECK(facts->device_memory && facts->stageable && facts->mpi_gpu_aware &&
          facts->function_gpu_safe);
    CHECK(facts->paths & FR_PATH_BIT_FABRIC);
    CHECK(facts->fabric_workspace && !facts->fabric_allocated);
    CHECK(facts->fabric_use != FR_FABRIC_OFF);
    CHECK(facts->multi_node_nvlink || facts->fabric_use == FR_FABRIC_FORCE);
}

static void check_host(const struct fr_policy_facts *facts)
{
    CHECK(facts->device_memory && facts->stageable && (facts->paths & FR_PATH_BIT_HOST));
    CHECK(!facts->mpi_gpu_aware || !facts->function_gpu_safe || !(facts->paths & FR_PATH_BIT_PASS));
}

static void check_refuse(const struct fr_policy_facts *facts)
{
    CHECK(facts->device_memory);
    CHECK(!facts->stageable || !(facts->paths & FR_PATH_BIT_HOST));
}

// A block of 8 bytes takes the bus as long as 32. Long blocks do not take their gaps along.
static void check_gaps(void)
{
    const struct fr_policy_pieces few = {1, 1000, 8000}, longer = {1, 10, 40960};
    CHECK(fr_policy_copies_gaps(&few, 32000) && !fr_policy_copies_gaps(&few, 32001));
    CHECK(fr_policy_copies_gaps(&longer, 41200) && !fr_policy_copies_gaps(&longer, 81920));
}

int main(void)
{
    static void (*const checks[FR_PATH_COUNT])(const struct fr_policy_facts *facts) = {
        [FR_PATH_PASS] = check_pass,
        [FR_PATH_HOST] = check_host,
        [FR_PATH_FABRIC] = check_fabric,
        [FR_PATH_REFUSE] = check_refuse,
    };
    unsigned chosen[FR_PATH_COUNT] = {0};
    for (unsigned bits = 0; bits < 1u << BITS; bits++) {
        for (unsigned paths = 0; paths < PATH_SETS; paths++) {
            for (unsigned use = 0; use < FABRIC_USES; use++) {
                struct fr_policy_facts facts = facts_of(bits, paths, use);
                struct fr_policy_choice choice = fr_policy_choose(&facts);
                if (choice.path >= FR_PATH_COUNT || checks[choice.path] == NULL) {
                    CHECK(false, "path %d", (int)choice.path);
                    continue;
                }
                CHECK(choice.reason != NULL);
                CHECK(fr_policy_path_name(choice.path) != NULL);
                checks[choice.path](&facts);
                chosen[choice.path]++;
            }
        }
    }
    for (int path = 0; path < FR_PATH_COUNT; path++) // by which all ranks go is not one's choice
        CHECK(path == FR_PATH_PEER || path == FR_PATH_RAIL || chosen[path] > 0,
              "%s is never chosen", fr_policy_path_name(path));
    check_gaps();
    return check_result();
}
