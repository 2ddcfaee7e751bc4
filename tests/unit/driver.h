// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver as an application uses it, for unit tests: loaded at run time, real or simulated,
// and one function that allocates memory of every kind.
#ifndef FR_TESTS_UNIT_DRIVER_H
#define FR_TESTS_UNIT_DRIVER_H

#include "fabrail/device.h"

#include "check.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>

// Newer headers no longer have this one; every driver does.
extern CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuCtxCreate_v2)                                                                              \
    X(cuCtxDestroy_v2)                                                                             \
    X(cuCtxDisablePeerAccess)                                                                      \
    X(cuCtxEnablePeerAccess)                                                                       \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuDevicePrimaryCtxReset_v2)                                                                  \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuInit)                                                                                      \
    X(cuMemAddressFree)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemAllocAsync)                                                                             \
    X(cuMemAllocFromPoolAsync)                                                                     \
    X(cuMemAllocManaged)                                                                           \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemCreate)                                                                                 \
    X(cuMemExportToShareableHandle)                                                                \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemMap)                                                                                    \
    X(cuMemPoolCreate)                                                                             \
    X(cuMemPoolDestroy)                                                                            \
    X(cuMemPoolSetAccess)                                                                          \
    X(cuMemRelease)                                                                                \
    X(cuMemSetAccess)                                                                              \
    X(cuMemUnmap)                                                                                  \
    X(cuMemcpyDtoD_v2)                                                                             \
    X(cuMemcpyDtoHAsync_v2)                                                                        \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemsetD8_v2)                                                                               \
    X(cuPointerGetAttribute)                                                                       \
    X(cuStreamBeginCapture_v2)                                                                     \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy_v2)                                                                          \
    X(cuStreamEndCapture)                                                                          \
    X(cuStreamQuery)                                                                               \
    X(cuStreamSynchronize)

static struct {
#define DRIVER_MEMBER(name) __typeof__(name) *name;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
} cu;

#define CU(call)                                                                                   \
    do {                                                                                           \
        CUresult driver_result = cu.call;                                                          \
        CHECK(driver_result == CUDA_SUCCESS, #call " gave %d", (int)driver_result);                \
    } while (0)

// Loads the driver as an application would. `make check` takes the simulated one that it has built;
// by hand, without top_builddir in the environment, it is whatever the system has. Returns whether
// there is one.
static inline bool driver_load(void)
{
    const char *folder = getenv("top_builddir");
    void *handle = NULL;
    if (folder != NULL) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/tests/sim/libcuda.so.1", folder);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL)
        handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "skipped: no CUDA driver, real or simulated: %s\n", dlerror());
        return false;
    }
    const char *missing = NULL;
#define DRIVER_BIND(name)                                                                          \
    cu.name = (__typeof__(name) *)dlsym(handle, #name);                                            \
    missing = cu.name != NULL ? missing : #name;
    DRIVER_FUNCTIONS(DRIVER_BIND)
#undef DRIVER_BIND
    if (missing != NULL)
        fprintf(stderr, "skipped: the CUDA driver has no %s\n", missing);
    return missing == NULL;
}

// Initialises the driver and makes device 0's primary context current. Returns whether there is a
// device.
static inline bool driver_start(CUcontext *context)
{
    int count = 0;
    if (cu.cuInit(0) != CUDA_SUCCESS || cu.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        fprintf(stderr, "skipped: no CUDA device\n");
        return false;
    }
    CU(cuDevicePrimaryCtxRetain(context, 0));
    CU(cuCtxSetCurrent(*context));
    return true;
}

// Returns whether failures can be asked for by environment variables.
static inline bool driver_is_simulated(void)
{
    char name[256] = "";
    return cu.cuDeviceGetName(name, (int)sizeof(name), 0) == CUDA_SUCCESS &&
           strstr(name, "simulated") != NULL;
}

// Returns a function or variable by which the simulated driver is asked and told things, NULL where
// the driver is a real one. Called after driver_load.
static inline void *driver_symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver != NULL ? dlsym(driver, name) : NULL;
}

// Memory of one kind. For VMM kinds `handle` is what is mapped.
struct driver_memory {
    enum fr_device_kind kind;
    char *address;
    size_t bytes;
    int device;
    CUmemGenericAllocationHandle handle;
};

static inline bool driver_owns(const struct driver_memory *memory)
{
    return (fr_device_kind_caps(memory->kind) & FR_DEVICE_OWNED) != 0;
}

static inline CUdeviceptr driver_pointer(const void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

// Creates a VMM allocation with these handle types and maps it at `address`, in reserved space.
static inline CUresult driver_map(int device, unsigned handle_types, CUdeviceptr address,
                                  size_t bytes, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)handle_types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemAccessDesc access = {
        .location = property.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUresult result = cu.cuMemCreate(handle, bytes, &property, 0);
    if (result == CUDA_SUCCESS)
        CU(cuMemMap(address, bytes, 0, *handle, 0));
    if (result == CUDA_SUCCESS)
        CU(cuMemSetAccess(address, bytes, &access, 1));
    return result;
}

// Allocates at least `bytes` of `kind` on `device`, whose context must be current except for VMM.
// Returns false where this machine cannot make the kind (fabric handles without an IMEX channel).
static inline bool driver_allocate(enum fr_device_kind kind, int device, size_t bytes,
                                   struct driver_memory *memory)
{
    static const unsigned handle_types[FR_KIND_COUNT] = {
        [FR_KIND_VMM_FD] = 1,
        [FR_KIND_VMM_FABRIC] = 8,
    };
    enum { GRANULARITY = 2 << 20 };
    CUdeviceptr address = 0;
    void *host = NULL;
    *memory = (struct driver_memory){.kind = kind, .bytes = bytes, .device = device};
    switch (kind) {
    case FR_KIND_HOST:
        host = malloc(bytes);
        break;
    case FR_KIND_PINNED:
        CU(cuMemHostAlloc(&host, bytes, 0));
        break;
    case FR_KIND_MANAGED:
        CU(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
        break;
    case FR_KIND_MALLOC:
        CU(cuMemAlloc_v2(&address, bytes));
        break;
    case FR_KIND_POOL:
        CU(cuMemAllocAsync(&address, bytes, NULL));
        CU(cuStreamSynchronize(NULL));
        break;
    default:
        memory->bytes = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
        CU(cuMemAddressReserve(&address, memory->bytes, 0, 0, 0));
        if (driver_map(device, handle_types[kind], address, memory->bytes, &memory->handle) !=
            CUDA_SUCCESS) {
            CU(cuMemAddressFree(address, memory->bytes));
            return false;
        }
    }
    memory->address = host != NULL ? host : (char *)(uintptr_t)address;
    CHECK(memory->address != NULL, "no %s memory", fr_device_kind_name(kind));
    return memory->address != NULL;
}

static inline void driver_free(struct driver_memory *memory)
{
    CUdeviceptr address = driver_pointer(memory->address);
    switch (memory->kind) {
    case FR_KIND_HOST:
        free(memory->address);
        break;
    case FR_KIND_PINNED:
        CU(cuMemFreeHost(memory->address));
        break;
    case FR_KIND_MANAGED:
    case FR_KIND_MALLOC:
        CU(cuMemFree_v2(address));
        break;
    case FR_KIND_POOL:
        CU(cuMemFreeAsync(address, NULL));
        CU(cuStreamSynchronize(NULL));
        break;
    default:
        CU(cuMemUnmap(address, memory->bytes));
        CU(cuMemRelease(memory->handle));
        CU(cuMemAddressFree(address, memory->bytes));
    }
}

// Reads and writes memory of any kind the way the application would.
static inline void driver_read(void *to, const struct driver_memory *from, size_t bytes)
{
    if (driver_owns(from))
        CU(cuMemcpyDtoH_v2(to, driver_pointer(from->address), bytes));
    else
        memcpy(to, from->address, bytes);
}

static inline void driver_write(const struct driver_memory *to, const void *from, size_t bytes)
{
    if (driver_owns(to))
        CU(cuMemcpyHtoD_v2(driver_pointer(to->address), from, bytes));
    else
        memcpy(to->address, from, bytes);
    CU(cuCtxSynchronize());
}

#endif
