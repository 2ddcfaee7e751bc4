// SPDX-License-Identifier: BSD-3-Clause
// The choice of a buffer's path, and of a kernel for packing.
#include "config.h"

#include "fabrail/policy.h"

static struct fr_policy_choice choice(enum fr_policy_path path, const char *reason)
{
    return (struct fr_policy_choice){path, reason};
}

// Returns whether a copy in fabric memory is wanted. The MPI library moves it faster than most
// buffers.
static bool wants_fabric(const struct fr_policy_facts *facts)
{
    if (!facts->stageable || !(facts->paths & FR_PATH_BIT_FABRIC))
        return false;
    return facts->fabric_use == FR_FABRIC_FORCE ||
           (facts->fabric_use == FR_FABRIC_AUTO && facts->multi_node_nvlink);
}

static const char *reason_to_pass(const struct fr_policy_facts *facts)
{
    if (!wants_fabric(facts))
        return "the MPI library is GPU-aware";
    if (facts->fabric_allocated)
        return "the buffer is fabric-allocated";
    return "there is no fabric workspace for the message";
}

static const char *reason_for_fabric(const struct fr_policy_facts *facts)
{
    return facts->fabric_use == FR_FABRIC_FORCE ? "FABRAIL_FABRIC=force"
                                                : "the communicator has multi-node NVLink";
}

FR_OFTEN struct fr_policy_choice fr_policy_choose(const struct fr_policy_facts *facts)
{
    bool may_pass = facts->paths & FR_PATH_BIT_PASS;
    bool may_stage = facts->paths & FR_PATH_BIT_HOST;
    if (!facts->device_memory)
        return choice(FR_PATH_PASS, "host memory");
    bool may_be_given = facts->mpi_gpu_aware && (facts->function_gpu_safe || !facts->stageable);
    if (may_be_given && wants_fabric(facts) && !facts->fabric_allocated && facts->fabric_workspace)
        return choice(FR_PATH_FABRIC, reason_for_fabric(facts));
    if (may_be_given && may_pass)
        return choice(FR_PATH_PASS, reason_to_pass(facts));
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
        [FR_PATH_PASS] = "pass", [FR_PATH_HOST] = "host", [FR_PATH_FABRIC] = "fabric",
        [FR_PATH_PEER] = "peer", [FR_PATH_RAIL] = "rail", [FR_PATH_REFUSE] = "refuse",
    };
    return names[path];
}

// A pitched copy of the driver moves blocks of 8 bytes at a quarter of a kernel's rate, and blocks
// of 2 KiB as fast. Each further call costs a microsecond or more.
struct fr_policy_packing fr_policy_choose_packing(const struct fr_policy_pieces *pieces)
{
    enum { SHORT_BLOCK = 2048 };
    if (pieces->calls > FR_POLICY_FEW_CALLS)
        return (struct fr_policy_packing){true, "it takes more than 8 calls of the driver"};
    if (pieces->bytes / SHORT_BLOCK < pieces->blocks)
        return (struct fr_policy_packing){true, "its blocks are shorter than 2 KiB"};
    return (struct fr_policy_packing){false, "its blocks are long, and few calls copy them"};
}

bool fr_policy_copies_gaps(const struct fr_policy_pieces *pieces, size_t span_bytes)
{
    const size_t packet_bytes = 24; // of PCIe, about each block
    return span_bytes <= pieces->bytes + pieces->blocks * packet_bytes;
}

// In the time of a run in a batch of the driver's, about a microsecond, 16 KiB come to the host and
// are packed there.
bool fr_policy_packs_on_host(const struct fr_policy_pieces *pieces, size_t span_bytes, size_t bytes)
{
    const size_t run_bytes = (size_t)16 << 10;
    if (pieces->calls <= FR_POLICY_MOST_CALLS || bytes == 0)
        return false;
    return pieces->bytes / pieces->blocks * (span_bytes / bytes) <= run_bytes;
}
