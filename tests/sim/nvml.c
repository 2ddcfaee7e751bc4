// SPDX-License-Identifier: BSD-3-Clause
// Simulated NVML: the devices of the simulated driver, all joined by NVLink, and the fabric
// information that the environment asks for. Like the real NVML it ignores CUDA_VISIBLE_DEVICES.
#include "config.h"

#include "nvml_fabric.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LINKS 18

struct nvmlDevice_st {
    char unused;
};
static struct nvmlDevice_st devices[SIM_MAX_DEVICES];
static atomic_int users;

// Returns the physical index of a handle, or -1.
static int index_of(nvmlDevice_t device)
{
    for (int i = 0; i < sim_knobs()->devices; i++)
        if (device == &devices[i])
            return i;
    return -1;
}

static nvmlReturn_t check(const void *out, nvmlDevice_t device)
{
    if (atomic_load(&users) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    return out && index_of(device) >= 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t put_text(char *out, unsigned bytes, const char *text)
{
    if (strlen(text) >= bytes)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

// The macros of nvml.h turn the plain names into the versioned ones; both are exported.
#undef nvmlInit
#undef nvmlDeviceGetCount
#undef nvmlDeviceGetHandleByIndex
#undef nvmlDeviceGetHandleByPciBusId
#undef nvmlDeviceGetPciInfo

SIM_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (sim_knobs()->nvml == SIM_NVML_NONE)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

SIM_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    int before = atomic_load(&users);
    while (before > 0)
        if (atomic_compare_exchange_weak(&users, &before, before - 1))
            return NVML_SUCCESS;
    return NVML_ERROR_UNINITIALIZED;
}

SIM_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned bytes)
{
    if (atomic_load(&users) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    return version ? put_text(version, bytes, "580.0.simulated") : NVML_ERROR_INVALID_ARGUMENT;
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = SIM_VERSION;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    if (atomic_load(&users) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned)sim_knobs()->devices;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (atomic_load(&users) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= (unsigned)sim_knobs()->devices)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (atomic_load(&users) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_knobs()->devices; i++) {
        char text[48];
        sim_device_uuid_text(i, text);
        if (strcasecmp(text, uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    unsigned domain = 0, bus, slot;
    if (atomic_load(&users) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!text || !device ||
        (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
         sscanf(text, "%x:%x", &bus, &slot) != 2))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < sim_knobs()->devices; i++)
        if (domain == 0 && bus == SIM_FIRST_BUS + (unsigned)i && slot == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    nvmlReturn_t result = check(index, device);
    if (result == NVML_SUCCESS)
        *index = (unsigned)index_of(device);
    return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned bytes)
{
    nvmlReturn_t result = check(name, device);
    return result == NVML_SUCCESS ? put_text(name, bytes, SIM_DEVICE_NAME) : result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned bytes)
{
    nvmlReturn_t result = check(uuid, device);
    if (result != NVML_SUCCESS)
        return result;
    char text[48];
    sim_device_uuid_text(index_of(device), text);
    return put_text(uuid, bytes, text);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = check(pci, device);
    if (result != NVML_SUCCESS)
        return result;
    memset(pci, 0, sizeof(*pci));
    pci->bus = SIM_FIRST_BUS + (unsigned)index_of(device);
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xff);
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link,
                                                 nvmlEnableState_t *active)
{
    nvmlReturn_t result = check(active, device);
    if (result != NVML_SUCCESS)
        return result;
    if (link >= LINKS)
        return NVML_ERROR_INVALID_ARGUMENT;
    *active = sim_knobs()->devices > 1 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second,
                                               nvmlGpuP2PCapsIndex_t index,
                                               nvmlGpuP2PStatus_t *status)
{
    nvmlReturn_t result = check(status, first);
    if (result == NVML_SUCCESS)
        result = check(status, second);
    if (result != NVML_SUCCESS || (unsigned)index >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *status = NVML_P2P_STATUS_OK;
    return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    nvmlReturn_t result = check(info, device);
    if (result == NVML_SUCCESS && sim_knobs()->nvml == SIM_NVML_NO_FABRIC)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS)
        return result;
    *info = sim_fabric_info(index_of(device));
    return NVML_SUCCESS;
}

// Version 3 is version 2 and one more field, which stays zero here.
SIM_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
    nvmlReturn_t result = check(info, device);
    if (result == NVML_SUCCESS && sim_knobs()->nvml == SIM_NVML_NO_FABRIC)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS)
        return result;
    bool known = info->version == nvmlGpuFabricInfo_v2;
#ifdef nvmlGpuFabricInfo_v3
    known = known || info->version == nvmlGpuFabricInfo_v3;
#endif
    if (!known || sim_knobs()->nvml == SIM_NVML_OLD)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    sim_fabric_info_v2(index_of(device), info);
#ifdef nvmlGpuFabricInfo_v3
    if (info->version == nvmlGpuFabricInfo_v3)
        info->healthSummary = 0;
#endif
    return NVML_SUCCESS;
}

// Programs built long ago ask for the plain names.
nvmlReturn_t nvmlInit(void);
nvmlReturn_t nvmlDeviceGetCount(unsigned *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device);

SIM_EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}
