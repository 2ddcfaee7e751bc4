// SPDX-License-Identifier: BSD-3-Clause
// Which device moves memory that belongs to no context: VMM and pool memory, which may lie on one
// device and be open to others only.
//
// The driver refuses copies and kernels of a device that the memory is not open to, even if the
// memory lies on it. And a context takes some hundred megabytes of its device, so none is made on
// a device that the program does not use, as long as another one can do the work.
#include "config.h"

#include "device/device_int.h"

enum access { ACCESS_UNKNOWN, ACCESS_NONE, ACCESS_FULL };

static enum access access_of(int device, uintptr_t address)
{
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 0;
    if (fr_cu.cuMemGetAccess == NULL || device < 0 ||
        fr_cu.cuMemGetAccess(&flags, &location, address) != CUDA_SUCCESS)
        return ACCESS_UNKNOWN;
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? ACCESS_FULL : ACCESS_NONE;
}

bool fr_device_vmm_is_open_to(int device, uintptr_t address)
{
    return fr_device_present() && access_of(device, address) == ACCESS_FULL;
}

// Returns a device that the memory is open to, among those with an active primary context or all;
// -1 for none.
static int find_open(uintptr_t address, bool must_be_active)
{
    CUdevice handle;
    for (int device = 0; fr_cu.cuDeviceGet(&handle, device) == CUDA_SUCCESS; device++) {
        if ((!must_be_active || fr_device_primary_is_active(device)) &&
            access_of(device, address) == ACCESS_FULL)
            return device;
    }
    return -1;
}

int fr_device_choose_mover(int home, uintptr_t address)
{
    CUdevice current = -1; // a device's handle is its ordinal
    if (fr_cu.cuCtxGetDevice(&current) != CUDA_SUCCESS)
        current = -1;
    enum access access = access_of(current, address);
    if (access == ACCESS_FULL)
        return current;
    access = home < 0 ? ACCESS_NONE : access_of(home, address); // one that the process does not see
    if (access == ACCESS_UNKNOWN || (access == ACCESS_FULL && fr_device_primary_is_active(home)))
        return home;
    int open = find_open(address, true);
    if (open < 0 && access == ACCESS_NONE)
        open = find_open(address, false);
    return open >= 0 ? open : home >= 0 ? home : current;
}
