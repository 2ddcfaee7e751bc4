// SPDX-License-Identifier: BSD-3-Clause
// fabrail info: the GPUs, what joins them, and which handles of their memory can be made. Where one
// cannot, the device node or the permission that is missing is named.
#include "config.h"

#include "info.h"

#include "fabrail/device/aperture.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMEX_CHANNEL "/dev/nvidia-caps-imex-channels/channel0"

// Needed, and those that older drivers lack.
#define CU_FUNCTIONS(X)                                                                            \
    X(cuInit, true)                                                                                \
    X(cuDriverGetVersion, true)                                                                    \
    X(cuDeviceGetCount, true)                                                                      \
    X(cuDeviceGet, true)                                                                           \
    X(cuDeviceGetName, true)                                                                       \
    X(cuDeviceGetAttribute, true)                                                                  \
    X(cuDeviceTotalMem_v2, true)                                                                   \
    X(cuDeviceGetPCIBusId, true)                                                                   \
    X(cuDeviceCanAccessPeer, true)                                                                 \
    X(cuGetErrorName, true)                                                                        \
    X(cuDevicePrimaryCtxRetain, true)                                                              \
    X(cuDevicePrimaryCtxRelease_v2, true)                                                          \
    X(cuCtxSetCurrent, true)                                                                       \
    X(cuMemAlloc_v2, true)                                                                         \
    X(cuMemFree_v2, true)                                                                          \
    X(cuIpcGetMemHandle, true)                                                                     \
    X(cuDeviceGetUuid_v2, false)                                                                   \
    X(cuMemCreate, false)                                                                          \
    X(cuMemRelease, false)                                                                         \
    X(cuMemGetAllocationGranularity, false)                                                        \
    X(cuMemExportToShareableHandle, false)

static struct {
#define MEMBER(name, needed) __typeof__(name) *name;
    CU_FUNCTIONS(MEMBER)
#undef MEMBER
} cu;

// The part of NVML that says what NVLink joins; types and values as in NVIDIA's API Reference.
enum { NVML_OK = 0, NVML_P2P_NVLINK = 2, NVML_MOST_LINKS = 36 };
static struct {
    int (*nvmlInit_v2)(void);
    int (*nvmlSystemGetDriverVersion)(char *version, unsigned room);
    int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **gpu);
    int (*nvmlDeviceGetNvLinkState)(void *gpu, unsigned link, int *active);
    int (*nvmlDeviceGetP2PStatus)(void *a, void *b, int index, int *status);
} nvml;

static const char *error_name(CUresult result)
{
    const char *name = NULL;
    if (cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        return "an error without a name";
    return name;
}

const char *fr_info_handle_name(enum fr_info_handle handle)
{
    static const char *const names[FR_INFO_HANDLES] = {
        [FR_INFO_IPC] = "cudaMalloc memory, CUDA IPC",
        [FR_INFO_FD] = "VMM memory, file descriptor",
        [FR_INFO_FABRIC] = "VMM memory, fabric handle",
    };
    return names[handle];
}

// Names the first file of the driver that is not there or not for this process.
static void describe_nodes(char *text, size_t room)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(nodes); i++) {
        if (access(nodes[i], R_OK | W_OK) == 0)
            continue;
        snprintf(text, room, "%s: %s", nodes[i], strerror(errno));
        return;
    }
    snprintf(text, room, "its device nodes are there");
}

static bool load_driver(struct fr_info_gpus *gpus)
{
    char nodes[FR_INFO_WORDS / 2];
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        describe_nodes(nodes, sizeof(nodes));
        snprintf(gpus->problem, sizeof(gpus->problem),
                 "no CUDA driver: libcuda.so.1 is not here (%s)", nodes);
        return false;
    }
    const char *missing = NULL;
#define BIND(function, needed)                                                                     \
    cu.function = (__typeof__(function) *)dlsym(handle, #function);                                \
    missing = cu.function == NULL && (needed) ? #function : missing;
    CU_FUNCTIONS(BIND)
#undef BIND
    if (missing != NULL)
        snprintf(gpus->problem, sizeof(gpus->problem), "the CUDA driver lacks %s", missing);
    return missing == NULL;
}

static bool start_driver(struct fr_info_gpus *gpus)
{
    char nodes[FR_INFO_WORDS / 2];
    CUresult result = cu.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cu.cuDeviceGetCount(&gpus->count);
    if (result == CUDA_SUCCESS && gpus->count > FR_INFO_MOST_GPUS)
        gpus->count = FR_INFO_MOST_GPUS;
    if (result == CUDA_SUCCESS && gpus->count > 0)
        return true;
    describe_nodes(nodes, sizeof(nodes));
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    snprintf(gpus->problem, sizeof(gpus->problem), "the CUDA driver %s%s (%s%s%.40s)",
             result != CUDA_SUCCESS ? "says " : "shows no GPU",
             result != CUDA_SUCCESS ? error_name(result) : "", nodes,
             visible ? "; CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    gpus->count = 0;
    return false;
}

static bool load_nvml(void)
{
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return false;
    bool complete = true;
#define BIND(function)                                                                             \
    do {                                                                                           \
        void *found = dlsym(handle, #function);                                                    \
        memcpy(&nvml.function, &found, sizeof(found));                                             \
        complete = complete && found != NULL;                                                      \
    } while (0)
    BIND(nvmlInit_v2);
    BIND(nvmlSystemGetDriverVersion);
    BIND(nvmlDeviceGetHandleByUUID);
    BIND(nvmlDeviceGetNvLinkState);
    BIND(nvmlDeviceGetP2PStatus);
#undef BIND
    return complete && nvml.nvmlInit_v2() == NVML_OK;
}

static bool attribute(int gpu, CUdevice_attribute wanted)
{
    CUdevice device;
    int value = 0;
    return cu.cuDeviceGet(&device, gpu) == CUDA_SUCCESS &&
           cu.cuDeviceGetAttribute(&value, wanted, device) == CUDA_SUCCESS && value != 0;
}

static int number(int gpu, CUdevice_attribute wanted)
{
    CUdevice device;
    int value = 0;
    if (cu.cuDeviceGet(&device, gpu) == CUDA_SUCCESS)
        (void)cu.cuDeviceGetAttribute(&value, wanted, device);
    return value;
}

static void format_uuid(const unsigned char *bytes, char text[48])
{
    size_t at = (size_t)snprintf(text, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(text + at, 48 - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

static void describe(int index, struct fr_info_gpu *gpu)
{
    CUdevice device;
    CUuuid uuid;
    if (cu.cuDeviceGet(&device, index) != CUDA_SUCCESS)
        return;
    (void)cu.cuDeviceGetName(gpu->name, (int)sizeof(gpu->name), device);
    (void)cu.cuDeviceTotalMem_v2(&gpu->bytes, device);
    (void)cu.cuDeviceGetPCIBusId(gpu->pci, (int)sizeof(gpu->pci), device);
    if (cu.cuDeviceGetUuid_v2 != NULL && cu.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS)
        format_uuid((const unsigned char *)uuid.bytes, gpu->uuid);
    gpu->major = number(index, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    gpu->minor = number(index, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    gpu->rdma = attribute(index, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
    gpu->dma_buf = attribute(index, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
    fr_device_clique_of(index, &gpu->clique);
}

static void *nvml_gpu(const struct fr_info_gpu *gpu)
{
    void *handle = NULL;
    return nvml.nvmlDeviceGetHandleByUUID(gpu->uuid, &handle) == NVML_OK ? handle : NULL;
}

static int count_links(const struct fr_info_gpu *gpu)
{
    void *handle = nvml_gpu(gpu);
    int links = 0;
    if (handle == NULL)
        return -1;
    for (unsigned link = 0; link < NVML_MOST_LINKS; link++) {
        int active = 0;
        links += nvml.nvmlDeviceGetNvLinkState(handle, link, &active) == NVML_OK && active == 1;
    }
    return links;
}

static bool is_by_nvlink(const struct fr_info_gpu *a, const struct fr_info_gpu *b)
{
    void *one = nvml_gpu(a), *other = nvml_gpu(b);
    int status = -1;
    return one != NULL && other != NULL &&
           nvml.nvmlDeviceGetP2PStatus(one, other, NVML_P2P_NVLINK, &status) == NVML_OK &&
           status == 0;
}

static void join(struct fr_info_gpus *gpus, bool has_nvml)
{
    for (int a = 0; a < gpus->count; a++) {
        gpus->gpus[a].nvlinks = has_nvml ? count_links(&gpus->gpus[a]) : -1;
        for (int b = 0; b < gpus->count; b++) {
            int reaches = 0;
            if (a == b || cu.cuDeviceCanAccessPeer(&reaches, a, b) != CUDA_SUCCESS || !reaches)
                continue;
            gpus->gpus[a].reaches[b] = true;
            gpus->gpus[a].by_nvlink[b] = has_nvml && is_by_nvlink(&gpus->gpus[a], &gpus->gpus[b]);
        }
    }
}

static bool note(struct fr_info_try *one, const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return true;
    snprintf(one->why_not, sizeof(one->why_not), "%s says %s", call, error_name(result));
    return false;
}

static void try_ipc(int gpu, struct fr_info_try *one)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory = 0;
    CUipcMemHandle handle;
    if (!note(one, "cuDeviceGet", cu.cuDeviceGet(&device, gpu)) ||
        !note(one, "cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&context, device)))
        return;
    if (note(one, "cuCtxSetCurrent", cu.cuCtxSetCurrent(context)) &&
        note(one, "cuMemAlloc", cu.cuMemAlloc_v2(&memory, 1 << 21))) {
        one->works = note(one, "cuIpcGetMemHandle", cu.cuIpcGetMemHandle(&handle, memory));
        (void)cu.cuMemFree_v2(memory);
    }
    (void)cu.cuCtxSetCurrent(NULL);
    (void)cu.cuDevicePrimaryCtxRelease_v2(device);
}

// The driver makes fabric memory for processes that can open an IMEX channel.
static void describe_channel(char *text, size_t room)
{
    char line[128];
    unsigned major = 0;
    FILE *devices = fopen("/proc/devices", "r");
    while (devices != NULL && fgets(line, sizeof(line), devices) != NULL) {
        if (strstr(line, "nvidia-caps-imex-channels") != NULL)
            (void)sscanf(line, "%u", &major);
    }
    if (devices != NULL)
        fclose(devices);
    if (access(IMEX_CHANNEL, F_OK) != 0 && major != 0)
        snprintf(text, room,
                 "not permitted: an administrator has to make the IMEX channel %s "
                 "(character device, major %u, minor 0)",
                 IMEX_CHANNEL, major);
    else if (access(IMEX_CHANNEL, F_OK) != 0)
        snprintf(text, room, "not permitted: there is no IMEX channel %s, nor a driver for it",
                 IMEX_CHANNEL);
    else if (access(IMEX_CHANNEL, R_OK | W_OK) != 0)
        snprintf(text, room, "not permitted: this user may not open the IMEX channel %s",
                 IMEX_CHANNEL);
    else
        snprintf(text, room, "not permitted, though %s can be opened: is the IMEX service running?",
                 IMEX_CHANNEL);
}

static void try_vmm(int gpu, CUmemAllocationHandleType type, CUdevice_attribute able,
                    struct fr_info_try *one)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = type,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu}};
    CUmemGenericAllocationHandle handle;
    unsigned char exported[64] = {0}; // a descriptor or a fabric handle
    size_t granularity = 0;
    if (cu.cuMemCreate == NULL || cu.cuMemRelease == NULL ||
        cu.cuMemExportToShareableHandle == NULL || cu.cuMemGetAllocationGranularity == NULL ||
        !attribute(gpu, able)) {
        snprintf(one->why_not, sizeof(one->why_not), "not supported by the GPU or its driver");
        return;
    }
    CUresult result =
        cu.cuMemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS)
        result = cu.cuMemCreate(&handle, granularity, &property, 0);
    if (result == CUDA_ERROR_NOT_PERMITTED && type == CU_MEM_HANDLE_TYPE_FABRIC)
        describe_channel(one->why_not, sizeof(one->why_not));
    else if (note(one, "cuMemCreate", result)) {
        result = cu.cuMemExportToShareableHandle(exported, handle, type, 0);
        one->works = note(one, "cuMemExportToShareableHandle", result);
        if (one->works && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
            int descriptor;
            memcpy(&descriptor, exported, sizeof(descriptor));
            close(descriptor);
        }
        (void)cu.cuMemRelease(handle);
    }
}

static void try_all(int index, struct fr_info_gpu *gpu)
{
    try_ipc(index, &gpu->handles[FR_INFO_IPC]);
    try_vmm(index, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            &gpu->handles[FR_INFO_FD]);
    try_vmm(index, CU_MEM_HANDLE_TYPE_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
            &gpu->handles[FR_INFO_FABRIC]);
}

void fr_info_clique_text(const struct fr_device_clique *clique, char *text, size_t room)
{
    size_t at = 0;
    for (int i = 0; i < 16 && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, "%02x", clique->cluster[i]);
    if (at < room)
        snprintf(text + at, room - at, "/%u", clique->clique);
}

void fr_info_gpus_find(struct fr_info_gpus *gpus, bool try_handles)
{
    memset(gpus, 0, sizeof(*gpus));
    if (!load_driver(gpus) || !start_driver(gpus))
        return;
    bool has_nvml = load_nvml();
    (void)cu.cuDriverGetVersion(&gpus->cuda_version);
    if (has_nvml)
        (void)nvml.nvmlSystemGetDriverVersion(gpus->driver, sizeof(gpus->driver));
    for (int i = 0; i < gpus->count; i++)
        describe(i, &gpus->gpus[i]);
    gpus->simulated = strstr(gpus->gpus[0].name, "simulated") != NULL;
    join(gpus, has_nvml);
    if (fr_device_present())
        gpus->cpu_way = fr_device_aperture_way(0, &gpus->cpu_why_not);
    for (int i = 0; i < gpus->count && try_handles; i++)
        try_all(i, &gpus->gpus[i]);
}
