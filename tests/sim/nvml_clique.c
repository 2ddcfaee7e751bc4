// SPDX-License-Identifier: BSD-3-Clause
// In place of NVML before GPUs that have no NVLink fabric, or one of a single host: it says that
// each GPU is in the clique that the environment asks for, as simulated devices are. All else is
// NVML's own, which this library needs under the name libfrsim-nvml.so.
#include "config.h"

#include "nvml_fabric.h"

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    (void)device;
    *info = sim_fabric_info(0);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    (void)device;
    sim_fabric_info_v2(0, info);
    return NVML_SUCCESS;
}
