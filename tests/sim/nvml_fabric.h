// SPDX-License-Identifier: BSD-3-Clause
// NVML's fabric information of a device, by physical index, as the environment asks for it.
#ifndef FR_TESTS_SIM_NVML_FABRIC_H
#define FR_TESTS_SIM_NVML_FABRIC_H

#include "sim.h"

#include "sim_nvml.h"

#include <string.h>

static inline nvmlGpuFabricInfo_t sim_fabric_info(int index)
{
    const struct sim_fabric *fabric = &sim_knobs()->fabrics[index];
    nvmlGpuFabricInfo_t info = {
        .status = (nvmlReturn_t)fabric->status,
        .cliqueId = fabric->clique,
        .state = (nvmlGpuFabricState_t)fabric->state,
    };
    memcpy(info.clusterUuid, fabric->cluster_uuid, sizeof(info.clusterUuid));
    return info;
}

// Leaves the fields of versions after the second as they are.
static inline void sim_fabric_info_v2(int index, nvmlGpuFabricInfoV_t *info)
{
    const nvmlGpuFabricInfo_t plain = sim_fabric_info(index);
    memcpy(info->clusterUuid, plain.clusterUuid, sizeof(info->clusterUuid));
    info->status = plain.status;
    info->cliqueId = plain.cliqueId;
    info->state = plain.state;
    info->healthMask = 0;
}

#endif
