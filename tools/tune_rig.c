// SPDX-License-Identifier: BSD-3-Clause
// The GPUs that are measured: which, their memory, and that they reach each other's.
#include "config.h"

#include "tune_rig.h"

#include "command.h"
#include "device/reduce.h"

#include <dlfcn.h>
#include <string.h>

struct fr_tune_driver fr_tune_cu;

bool fr_tune_ok(const char *call, CUresult result)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return true;
    if (fr_tune_cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "an error without a name";
    return fr_tool_complain("%s failed with %s (%d)", call, name, (int)result);
}

static bool load_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fr_tool_complain("there is no CUDA driver: %s", dlerror());
    const char *missing = NULL;
#define BIND(name)                                                                                 \
    fr_tune_cu.name = (__typeof__(name) *)dlsym(handle, #name);                                    \
    missing = fr_tune_cu.name != NULL ? missing : #name;
    FR_TUNE_FUNCTIONS(BIND)
#undef BIND
    return missing == NULL || fr_tool_complain("the CUDA driver lacks %s", missing);
}

static bool reach_each_other(int a, int b)
{
    int there = 0, back = 0;
    return fr_tune_cu.cuDeviceCanAccessPeer(&there, a, b) == CUDA_SUCCESS && there &&
           fr_tune_cu.cuDeviceCanAccessPeer(&back, b, a) == CUDA_SUCCESS && back;
}

// Takes the GPU from `first` on that all taken ones reach. Returns how many.
static int take_from(int first, int visible, int devices[FR_TUNE_MAX_GPUS])
{
    int taken = 0;
    for (int device = first; device < visible && taken < FR_TUNE_MAX_GPUS; device++) {
        bool fits = true;
        for (int i = 0; i < taken && fits; i++)
            fits = reach_each_other(devices[i], device);
        if (fits)
            devices[taken++] = device;
    }
    return taken;
}

bool fr_tune_rig_find(struct fr_tune_rig *rig)
{
    int devices[FR_TUNE_MAX_GPUS];
    CUdevice first;
    if (!load_driver() || !fr_tune_ok("cuInit", fr_tune_cu.cuInit(0)) ||
        !fr_tune_ok("cuDeviceGetCount", fr_tune_cu.cuDeviceGetCount(&rig->visible)))
        return false;
    if (rig->visible < 2)
        return fr_tool_complain("this process sees %d GPU%s, and it takes two to measure",
                                rig->visible, rig->visible == 1 ? "" : "s");
    for (int start = 0; start < rig->visible; start++) {
        int taken = take_from(start, rig->visible, devices);
        for (int i = 0; i < taken && taken > rig->count; i++)
            rig->gpus[i].device = devices[i];
        rig->count = taken > rig->count ? taken : rig->count;
    }
    if (rig->count < 2) {
        rig->count = 0;
        return fr_tool_complain("none of the %d GPUs can reach another one's memory", rig->visible);
    }
    char name[256] = "";
    if (fr_tune_cu.cuDeviceGet(&first, rig->gpus[0].device) == CUDA_SUCCESS)
        (void)fr_tune_cu.cuDeviceGetName(name, (int)sizeof(name), first);
    rig->is_simulated = strstr(name, "simulated") != NULL;
    return fr_device_present() || fr_tool_complain("the CUDA driver is not to be found again");
}

static bool open_gpu(struct fr_tune_gpu *gpu, size_t bytes)
{
    CUdevice device;
    CUcontext context = NULL;
    CUdeviceptr send = 0, receive = 0;
    if (!fr_tune_ok("cuDeviceGet", fr_tune_cu.cuDeviceGet(&device, gpu->device)) ||
        !fr_tune_ok("cuDevicePrimaryCtxRetain",
                    fr_tune_cu.cuDevicePrimaryCtxRetain(&context, device)))
        return false;
    gpu->context = context;
    if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(context)) ||
        !fr_tune_ok("cuMemAlloc", fr_tune_cu.cuMemAlloc_v2(&send, bytes)))
        return false;
    gpu->send = (uintptr_t)send;
    if (!fr_tune_ok("cuMemAlloc", fr_tune_cu.cuMemAlloc_v2(&receive, bytes)))
        return false;
    gpu->receive = (uintptr_t)receive;
    return (fr_device_query((void *)gpu->send, &gpu->send_range) == FR_OK &&
            fr_device_query((void *)gpu->receive, &gpu->receive_range) == FR_OK) ||
           fr_tool_complain("the driver does not know its own memory");
}

static bool enable_access(const struct fr_tune_rig *rig, const struct fr_tune_gpu *gpu)
{
    if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(gpu->context)))
        return false;
    for (int peer = 0; peer < rig->count; peer++) {
        if (&rig->gpus[peer] == gpu)
            continue;
        CUresult result = fr_tune_cu.cuCtxEnablePeerAccess(rig->gpus[peer].context, 0);
        if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
            !fr_tune_ok("cuCtxEnablePeerAccess", result))
            return false;
    }
    return true;
}

static bool fill(const struct fr_tune_rig *rig, int from)
{
    const struct fr_tune_gpu *gpu = &rig->gpus[from];
    if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(gpu->context)))
        return false;
    for (int to = 0; to < rig->count; to++) {
        uintptr_t piece = gpu->send + (size_t)to * rig->piece_bytes;
        if (!fr_tune_ok("cuMemsetD32", fr_tune_cu.cuMemsetD32_v2(piece, fr_tune_word(from, to),
                                                                 rig->piece_bytes / 4)))
            return false;
    }
    return fr_device_quiesce(&gpu->send_range, gpu->send, (size_t)rig->count * rig->piece_bytes) ==
           FR_OK;
}

bool fr_tune_rig_open(struct fr_tune_rig *rig, size_t piece_bytes)
{
    rig->piece_bytes = piece_bytes;
    rig->has_kernels = rig->can_reduce = true;
    for (int i = 0; i < rig->count; i++) {
        if (!open_gpu(&rig->gpus[i], piece_bytes * (size_t)rig->count))
            return false;
    }
    for (int i = 0; i < rig->count; i++) {
        if (!enable_access(rig, &rig->gpus[i]) || !fill(rig, i))
            return false;
        const struct fr_device_range *range = &rig->gpus[i].send_range;
        rig->has_kernels = rig->has_kernels && fr_device_push_has_kernels(range);
        rig->can_reduce = rig->can_reduce && fr_device_reduce_is_possible(range);
    }
    return true;
}

void fr_tune_rig_release(struct fr_tune_rig *rig)
{
    fr_device_release();
    for (int i = 0; i < rig->count; i++) {
        struct fr_tune_gpu *gpu = &rig->gpus[i];
        if (gpu->context == NULL || fr_tune_cu.cuCtxSetCurrent(gpu->context) != CUDA_SUCCESS)
            continue;
        if (gpu->send != 0)
            (void)fr_tune_ok("cuMemFree", fr_tune_cu.cuMemFree_v2(gpu->send));
        if (gpu->receive != 0)
            (void)fr_tune_ok("cuMemFree", fr_tune_cu.cuMemFree_v2(gpu->receive));
    }
}
