// SPDX-License-Identifier: BSD-3-Clause
// In place of NVML before GPUs that have no NVLink fabric, or one of a single host: it says that
// each GPU is in the clique that the environment asks for, as simulated devices are. All else is
// NVML's own, which this library needs under the name libfrsim-nvml.so.
#include "config.h"

#include "sim.h"

#include "sim_nvml.h"

#include <string.h>

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    const struct sim_fabric *fabric = &sim_knobs()->fabrics[0];
    (void)device;
    memset(info, 0, sizeof(*info));
    memcpy(info->clusterUuid, fabric->cluster_uuid, sizeof(info->clusterUuid));
    info->status = (nvmlReturn_t)fabric->status;
    info->cliqueId = fabric->clique;
    info->state = (nvmlGpuFabricState_t)fabric->state;
    return NVML_SUCCESS;
}

// Leaves the fields of versions after the second as they are.
SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    nvmlGpuFabricInfo_t plain;
    nvmlReturn_t result = nvmlDeviceGetGpuFabricInfo(device, &plain);
    memcpy(info->clusterUuid, plain.clusterUuid, sizeof(info->clusterUuid));
    info->status = plain.status;
    info->cliqueId = plain.cliqueId;
    info->state = plain.state;
    info->healthMask = 0;
    return result;
}
