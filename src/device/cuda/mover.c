// SPDX-License-Identifier: BSD-3-Clause
// Which device moves memory that belongs to no context. That is VMM and pool memory, which may lie
// on one device and be open to others only.
//
// The driver refuses copies and kernels of a device that the memory is not open to, even if the
// memory lies on it. A context takes some hundred megabytes of its device. So no context is made on
// a device that the program does not use, as long as another device can do the work.
#include "config.h"

#include "device/cuda/cuda_int.h"

bool fr_cuda_is_open_to(int device, uintptr_t address)
{
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 0;
    return device >= 0 && fr_cuda_present() && fr_cu.cuMemGetAccess != NULL &&
           fr_cu.cuMemGetAccess(&flags, &location, address) == CUDA_SUCCESS &&
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// Writes where the mapping ends in which an address lies. Returns false where there is none.
static bool find_end(uintptr_t address, uintptr_t *end)
{
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
                                   CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
    uint64_t answers[] = {0, 0};
    void *slots[] = {&answers[0], &answers[1]};
    bool known = fr_cu.cuPointerGetAttributes(FR_ARRAY_LENGTH(asked), asked, slots,
                                              (CUdeviceptr)address) == CUDA_SUCCESS;
    *end = (uintptr_t)(answers[0] + answers[1]);
    return known && *end > address;
}

bool fr_cuda_are_open_to(int device, uintptr_t low, uintptr_t high)
{
    enum { MOST = 64 }; // mappings; each takes two calls of a few hundred nanoseconds
    bool open = true;
    for (unsigned i = 0; open && low < high; i++)
        open = i < MOST && fr_cuda_is_open_to(device, low) && find_end(low, &low);
    return open;
}

// Returns a device that the memory is open to, -1 for none. With `must_be_active` only devices with
// an active primary context count.
static int find_open(uintptr_t address, bool must_be_active)
{
    CUdevice handle;
    for (int device = 0; fr_cu.cuDeviceGet(&handle, device) == CUDA_SUCCESS; device++) {
        if ((!must_be_active || fr_cuda_primary_is_active(device)) &&
            fr_cuda_is_open_to(device, address))
            return device;
    }
    return -1;
}

static int choose_for_vmm(int home, int current, uintptr_t address)
{
    if (fr_cuda_is_open_to(current, address))
        return current;
    bool open = fr_cuda_is_open_to(home, address);
    if (open && fr_cuda_primary_is_active(home))
        return home;
    int other = find_open(address, true);
    if (other < 0 && !open)
        other = find_open(address, false);
    return other >= 0 ? other : home;
}

// Returns the device that moves pool memory. If the current device can reach the memory, the driver
// tells.
static int choose_for_pool(int home, int current, uintptr_t address)
{
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
    uint64_t place = 0;
    void *slot = &place;
    bool open =
        current >= 0 && current != home &&
        fr_cu.cuPointerGetAttributes(1, &attribute, &slot, (CUdeviceptr)address) == CUDA_SUCCESS &&
        place == address;
    return open ? current : home;
}

int fr_cuda_choose_mover(const struct fr_device_range *range, uintptr_t address)
{
    CUdevice current = -1; // a device's handle is its ordinal
    if (fr_cu.cuCtxGetDevice(&current) != CUDA_SUCCESS)
        current = -1;
    return range->kind == FR_KIND_POOL ? choose_for_pool(range->home, current, address)
                                       : choose_for_vmm(range->home, current, address);
}
