// SPDX-License-Identifier: BSD-3-Clause
// Allocation of each memory kind and copies to and from it through the CUDA driver.
#include "memory.h"

#include <cuda.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_CALLS(X)                                                                            \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuStreamSynchronize)                                                                         \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemAddressFree)                                                                            \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemMap)                                                                                    \
    X(cuMemUnmap)                                                                                  \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuIpcOpenMemHandle)                                                                          \
    X(cuIpcCloseMemHandle)                                                                         \
    X(cuMemSetAccess)                                                                              \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemcpyDtoH)

// cuda.h renames some calls by macro (cuMemAlloc to cuMemAlloc_v2): members, types and symbol names
// all go through the same expansion, so they agree with the header that was compiled against.
#define TEXT_OF(x)     #x
#define TEXT(x)        TEXT_OF(x)
#define AS_MEMBER(x)   __typeof__(x) *x;
#define AS_SYMBOL(x)   {TEXT(x), (void **)&driver.x},
#define DRIVER(x, ...) driver_demand(driver.x(__VA_ARGS__), #x)

static struct {
    DRIVER_CALLS(AS_MEMBER)
} driver;

static struct {
    CUdevice device;
    CUdevice next;     // the GPU after it, itself where there is no other
    CUcontext context; // NULL: no device memory here, missing says why
    char missing[256];
} chosen = {.missing = "memory_start was not called"};

static const char *const kind_names[MEMORY_KINDS] = {
    [MEMORY_DEVICE] = "device", [MEMORY_HOST] = "host",
    [MEMORY_PINNED] = "pinned", [MEMORY_MANAGED] = "managed",
    [MEMORY_POOL] = "pool",     [MEMORY_VMM] = "vmm",
    [MEMORY_VMM_FD] = "vmm-fd", [MEMORY_VMM_FABRIC] = "vmm-fabric",
    [MEMORY_FAR] = "far",       [MEMORY_FAR_OPEN] = "far-open",
    [MEMORY_MIXED] = "mixed",
};

const char *memory_kind_name(enum memory_kind kind)
{
    return kind_names[kind];
}

enum memory_kind memory_kind_named(const char *name)
{
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        if (strcmp(kind_names[kind], name) == 0)
            return (enum memory_kind)kind;
    return MEMORY_KINDS;
}

enum memory_kind memory_kind_on_rank(enum memory_kind kind, int rank)
{
    if (kind != MEMORY_MIXED)
        return kind;
    return rank % 2 == 0 ? MEMORY_DEVICE : MEMORY_HOST;
}

static const char *driver_error(CUresult result)
{
    const char *name = NULL;
    if (driver.cuGetErrorName == NULL || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS)
        return "an unknown error";
    return name != NULL ? name : "an unknown error";
}

static void driver_demand(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", call, driver_error(result));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static bool driver_load(void)
{
    const struct {
        const char *name;
        void **member;
    } symbols[] = {DRIVER_CALLS(AS_SYMBOL)};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(chosen.missing, sizeof chosen.missing, "no CUDA driver: %s", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        *symbols[i].member = dlsym(library, symbols[i].name);
        if (*symbols[i].member == NULL) {
            snprintf(chosen.missing, sizeof chosen.missing, "the CUDA driver lacks %s",
                     symbols[i].name);
            return false;
        }
    }
    return true;
}

void memory_start(int local_rank)
{
    if (!driver_load())
        return;
    int devices = 0;
    CUresult result = driver.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetCount(&devices);
    if (result != CUDA_SUCCESS || devices == 0) {
        snprintf(chosen.missing, sizeof chosen.missing, "no CUDA device: %s",
                 result == CUDA_SUCCESS ? "none is visible" : driver_error(result));
        return;
    }
    DRIVER(cuDeviceGet, &chosen.device, local_rank % devices);
    DRIVER(cuDeviceGet, &chosen.next, (local_rank + 1) % devices);
    DRIVER(cuDevicePrimaryCtxRetain, &chosen.context, chosen.device);
    memory_thread_attach();
}

void memory_stop(void)
{
    if (chosen.context == NULL)
        return;
    DRIVER(cuDevicePrimaryCtxRelease, chosen.device);
    chosen.context = NULL;
}

void memory_thread_attach(void)
{
    if (chosen.context != NULL)
        DRIVER(cuCtxSetCurrent, chosen.context);
}

bool memory_context_unchanged(void)
{
    CUcontext current = NULL;
    if (chosen.context == NULL)
        return true;
    DRIVER(cuCtxGetCurrent, &current);
    return current == chosen.context;
}

static bool device_has(CUdevice_attribute attribute)
{
    int value = 0;
    DRIVER(cuDeviceGetAttribute, &value, attribute, chosen.device);
    return value != 0;
}

static CUmemAllocationProp vmm_properties(enum memory_kind kind)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id =
        kind == MEMORY_FAR || kind == MEMORY_FAR_OPEN ? chosen.next : chosen.device;
    if (kind == MEMORY_VMM_FD || kind == MEMORY_FAR)
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (kind == MEMORY_VMM_FABRIC)
        properties.requestedHandleTypes = (CUmemAllocationHandleType)0x8;
    return properties;
}

static size_t vmm_rounded(const CUmemAllocationProp *properties, size_t bytes)
{
    size_t unit = 0;
    DRIVER(cuMemGetAllocationGranularity, &unit, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return (bytes + unit - 1) / unit * unit;
}

// A device can say that it supports fabric handles and still refuse to make one for want of an IMEX
// channel, so only trying tells.
static const char *fabric_missing(void)
{
    static char reason[128];
    CUmemAllocationProp properties = vmm_properties(MEMORY_VMM_FABRIC);
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = driver.cuMemCreate(&handle, vmm_rounded(&properties, 1), &properties, 0);
    if (result == CUDA_SUCCESS) {
        DRIVER(cuMemRelease, handle);
        return NULL;
    }
    snprintf(reason, sizeof reason, "cuMemCreate with a fabric handle: %s", driver_error(result));
    return reason;
}

static const char *far_missing(void)
{
    int reaches = 0;
    if (chosen.next == chosen.device)
        return "there is one GPU only";
    DRIVER(cuDeviceCanAccessPeer, &reaches, chosen.device, chosen.next);
    return reaches ? NULL : "the GPU does not reach the next one";
}

static bool is_vmm(enum memory_kind kind)
{
    return kind >= MEMORY_VMM && kind <= MEMORY_FAR_OPEN;
}

const char *memory_missing(enum memory_kind kind)
{
    if (kind == MEMORY_HOST)
        return NULL;
    if (chosen.context == NULL)
        return chosen.missing;
    if (kind == MEMORY_MANAGED && !device_has(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
        return "the device has no managed memory";
    if (kind == MEMORY_POOL && !device_has(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        return "the device has no memory pools";
    if (!is_vmm(kind))
        return NULL;
    if (!device_has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return "the device has no virtual memory management";
    if (kind == MEMORY_FAR || kind == MEMORY_FAR_OPEN)
        return far_missing();
    return kind == MEMORY_VMM_FABRIC ? fabric_missing() : NULL;
}

static CUdeviceptr device_pointer(const struct memory *memory)
{
    return (CUdeviceptr)(uintptr_t)memory->address;
}

static CUdeviceptr vmm_new(struct memory *memory)
{
    CUmemAllocationProp properties = vmm_properties(memory->kind);
    CUmemAccessDesc access[2];
    CUdeviceptr address = 0;
    memset(access, 0, sizeof access);
    access[0].location = access[1].location = properties.location;
    access[0].location.id = chosen.device;
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    memory->mapped_bytes = vmm_rounded(&properties, memory->bytes);
    DRIVER(cuMemCreate, &memory->handle, memory->mapped_bytes, &properties, 0);
    DRIVER(cuMemAddressReserve, &address, memory->mapped_bytes, 0, 0, 0);
    DRIVER(cuMemMap, address, memory->mapped_bytes, 0, memory->handle, 0);
    DRIVER(cuMemSetAccess, address, memory->mapped_bytes, access,
           memory->kind == MEMORY_FAR_OPEN ? 2 : 1);
    return address;
}

static void vmm_free(const struct memory *memory)
{
    CUdeviceptr address = device_pointer(memory);
    DRIVER(cuMemUnmap, address, memory->mapped_bytes);
    DRIVER(cuMemAddressFree, address, memory->mapped_bytes);
    DRIVER(cuMemRelease, memory->handle);
}

static void *host_new(size_t bytes)
{
    void *address = malloc(bytes);
    if (address == NULL) {
        fprintf(stderr, "malloc of %zu bytes failed\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return address;
}

struct memory memory_new(enum memory_kind kind, size_t bytes)
{
    struct memory memory = {.bytes = bytes, .kind = kind};
    CUdeviceptr address = 0;
    void *host = NULL;
    switch (kind) {
    case MEMORY_HOST:
        host = host_new(bytes);
        break;
    case MEMORY_PINNED:
        DRIVER(cuMemHostAlloc, &host, bytes, CU_MEMHOSTALLOC_PORTABLE);
        break;
    case MEMORY_MANAGED:
        DRIVER(cuMemAllocManaged, &address, bytes, CU_MEM_ATTACH_GLOBAL);
        break;
    case MEMORY_POOL:
        DRIVER(cuMemAllocAsync, &address, bytes, NULL);
        DRIVER(cuStreamSynchronize, NULL);
        break;
    case MEMORY_VMM:
    case MEMORY_VMM_FD:
    case MEMORY_VMM_FABRIC:
    case MEMORY_FAR:
    case MEMORY_FAR_OPEN:
        address = vmm_new(&memory);
        break;
    default:
        DRIVER(cuMemAlloc, &address, bytes);
    }
    memory.address = host != NULL ? host : (unsigned char *)(uintptr_t)address;
    return memory;
}

void memory_free(struct memory *memory)
{
    switch (memory->kind) {
    case MEMORY_HOST:
        free(memory->address);
        break;
    case MEMORY_PINNED:
        DRIVER(cuMemFreeHost, memory->address);
        break;
    case MEMORY_POOL:
        DRIVER(cuMemFreeAsync, device_pointer(memory), NULL);
        DRIVER(cuStreamSynchronize, NULL);
        break;
    case MEMORY_VMM:
    case MEMORY_VMM_FD:
    case MEMORY_VMM_FABRIC:
    case MEMORY_FAR:
    case MEMORY_FAR_OPEN:
        vmm_free(memory);
        break;
    default:
        DRIVER(cuMemFree, device_pointer(memory));
    }
    memory->address = NULL;
}

// The kernel answers without a signal when asked to read the memory on the program's behalf.
bool memory_cpu_reaches(const struct memory *memory)
{
    int ends[2];
    if (pipe(ends) != 0)
        return true;
    bool reaches = write(ends[1], memory->address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return reaches;
}

int memory_foreign_context(void)
{
    int devices = 0;
    if (chosen.context == NULL)
        return -1;
    DRIVER(cuDeviceGetCount, &devices);
    for (int i = 0; i < devices; i++) {
        CUdevice device = 0;
        unsigned flags = 0;
        int active = 0;
        DRIVER(cuDeviceGet, &device, i);
        DRIVER(cuDevicePrimaryCtxGetState, device, &flags, &active);
        if (active && device != chosen.device)
            return i;
    }
    return -1;
}

static bool host_accessible(const struct memory *memory)
{
    return memory->kind == MEMORY_HOST || memory->kind == MEMORY_PINNED;
}

void memory_write(const struct memory *memory, size_t offset, const void *from, size_t bytes)
{
    if (host_accessible(memory)) {
        memcpy(memory->address + offset, from, bytes);
        return;
    }
    DRIVER(cuMemcpyHtoD, device_pointer(memory) + offset, from, bytes);
    // A copy from pageable memory may return before it has reached the device, and MPI does not
    // look at the stream: what a program owes MPI is a buffer that is ready.
    DRIVER(cuCtxSynchronize, );
}

void memory_read(const struct memory *memory, size_t offset, void *to, size_t bytes)
{
    if (host_accessible(memory))
        memcpy(to, memory->address + offset, bytes);
    else
        DRIVER(cuMemcpyDtoH, to, device_pointer(memory) + offset, bytes);
}

_Static_assert(sizeof(CUipcMemHandle) == sizeof(struct memory_token), "a token is a handle");

void memory_offer(const struct memory *memory, struct memory_token *token)
{
    CUipcMemHandle handle;
    DRIVER(cuIpcGetMemHandle, &handle, device_pointer(memory));
    memcpy(token, &handle, sizeof handle);
}

struct memory memory_open(const struct memory_token *token, size_t bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    memcpy(&handle, token, sizeof handle);
    DRIVER(cuIpcOpenMemHandle, &address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return (struct memory){
        .address = (unsigned char *)(uintptr_t)address, .bytes = bytes, .kind = MEMORY_DEVICE};
}

void memory_close(const struct memory *memory)
{
    DRIVER(cuIpcCloseMemHandle, device_pointer(memory));
}
