// SPDX-License-Identifier: BSD-3-Clause
// Memory shared between processes: by legacy CUDA IPC for cuMemAlloc memory, by file descriptors
// and fabric handles for VMM memory.
//
// A refusal is no error. The bytes take another path, and one warning says why it is slower.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <string.h>

_Static_assert(sizeof(CUipcMemHandle) == FR_SHARE_TOKEN_BYTES, "a legacy handle is a token");
_Static_assert(sizeof(CUuuid) == FR_DEVICE_UUID_BYTES, "a UUID is a UUID");

static enum fr_status refuse(const char *call, CUresult result)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return FR_ERR_NO_MEMORY;
    if (result == CUDA_ERROR_ALREADY_MAPPED)
        return FR_ERR_LIMIT;
    if (fr_cuda_result_is_down(result))
        return FR_ERR_DEVICE;
    fr_warn_once("%s failed with %s, so device memory is not shared with that process and its "
                 "messages take a slower path",
                 call, fr_cuda_result_name(result));
    switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE: // opened by another context of this process
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
        return FR_ERR_UNSUPPORTED;
    default:
        return FR_ERR_DEVICE;
    }
}

static bool has_legacy(void)
{
    return fr_cu.cuIpcGetMemHandle != NULL && fr_cu.cuIpcOpenMemHandle_v2 != NULL &&
           fr_cu.cuIpcCloseMemHandle != NULL && fr_cu.cuMemGetAddressRange_v2 != NULL;
}

static bool has_vmm(void)
{
    return fr_cuda_has_vmm() && fr_cu.cuMemRetainAllocationHandle != NULL &&
           fr_cu.cuMemImportFromShareableHandle != NULL && fr_cu.cuMemGetAddressRange_v2 != NULL;
}

void fr_cuda_uuid(int device, unsigned char uuid[FR_DEVICE_UUID_BYTES])
{
    CUdevice handle;
    CUuuid own;
    memset(uuid, 0, FR_DEVICE_UUID_BYTES);
    if (fr_cuda_present() && fr_cu.cuDeviceGetUuid_v2 != NULL &&
        fr_cu.cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
        fr_cu.cuDeviceGetUuid_v2(&own, handle) == CUDA_SUCCESS)
        memcpy(uuid, &own, FR_DEVICE_UUID_BYTES);
}

bool fr_cuda_takes_turns(int device)
{
    enum { MPS_ENABLED = 133 }; // CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older headers lack
    CUdevice handle;
    int has_mps = 0;
    return !fr_cuda_present() || fr_cu.cuDeviceGetAttribute == NULL ||
           fr_cu.cuDeviceGet(&handle, device) != CUDA_SUCCESS ||
           fr_cu.cuDeviceGetAttribute(&has_mps, (CUdevice_attribute)MPS_ENABLED, handle) !=
               CUDA_SUCCESS ||
           !has_mps;
}

bool fr_cuda_bus_id(int device, char text[FR_DEVICE_BUS_ID])
{
    CUdevice handle;
    return device >= 0 && fr_cuda_present() && fr_cu.cuDeviceGetPCIBusId != NULL &&
           fr_cu.cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
           fr_cu.cuDeviceGetPCIBusId(text, FR_DEVICE_BUS_ID, handle) == CUDA_SUCCESS;
}

// Returns the ordinal here of the GPU with this UUID, -1 when this process does not see it.
static int find_device(const unsigned char uuid[FR_DEVICE_UUID_BYTES])
{
    static const unsigned char unknown[FR_DEVICE_UUID_BYTES];
    int count = 0;
    if (memcmp(uuid, unknown, FR_DEVICE_UUID_BYTES) == 0 || fr_cu.cuDeviceGetCount == NULL ||
        fr_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -1;
    for (int device = 0; device < count; device++) {
        unsigned char other[FR_DEVICE_UUID_BYTES];
        fr_cuda_uuid(device, other);
        if (memcmp(uuid, other, FR_DEVICE_UUID_BYTES) == 0)
            return device;
    }
    return -1;
}

// Returns whether `device` can access memory of the GPU with this UUID. A GPU that this process
// does not see counts as in reach, since only mapping its memory tells.
static bool reaches(int device, const unsigned char uuid[FR_DEVICE_UUID_BYTES])
{
    if (!fr_cuda_present())
        return false;
    CUdevice from, to;
    int can = 0;
    int other = find_device(uuid);
    if (other < 0 || other == device || fr_cu.cuDeviceCanAccessPeer == NULL)
        return true;
    if (fr_cu.cuDeviceGet(&from, device) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGet(&to, other) != CUDA_SUCCESS ||
        fr_cu.cuDeviceCanAccessPeer(&can, from, to) != CUDA_SUCCESS)
        return true;
    return can != 0;
}

static enum fr_status export_legacy(struct fr_device_export *export)
{
    CUresult result = fr_cu.cuIpcGetMemHandle((CUipcMemHandle *)(void *)export->token,
                                              (CUdeviceptr) export->base);
    if (result != CUDA_SUCCESS)
        return refuse("cuIpcGetMemHandle", result);
    export->ways = FR_SHARE_LEGACY;
    return FR_OK;
}

static void release_handle(CUmemGenericAllocationHandle handle)
{
    CUresult result = fr_cu.cuMemRelease(handle);
    if (result != CUDA_SUCCESS)
        fr_cuda_fail("cuMemRelease", result);
}

// Exports the memory behind a mapping as something that another process can import.
static enum fr_status export_mapping(uintptr_t base, CUmemAllocationHandleType type, void *out)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = fr_cu.cuMemRetainAllocationHandle(&handle, (void *)base);
    if (result != CUDA_SUCCESS)
        return refuse("cuMemRetainAllocationHandle", result);
    result = fr_cu.cuMemExportToShareableHandle(out, handle, type, 0);
    release_handle(handle);
    return result == CUDA_SUCCESS ? FR_OK : refuse("cuMemExportToShareableHandle", result);
}

static enum fr_status export_vmm(unsigned caps, struct fr_device_export *export)
{
    enum fr_status status = FR_ERR_UNSUPPORTED;
    unsigned ways = caps & FR_SHARE_FD;
    if (caps & FR_SHARE_FABRIC) {
        status = export_mapping(export->base, FR_CUDA_FABRIC, export->token);
        if (status == FR_OK)
            ways |= FR_SHARE_FABRIC;
        else
            memset(export->token, 0, sizeof(export->token));
    }
    if (ways == 0)
        return status;
    export->ways = ways;
    return FR_OK;
}

static enum fr_status export_inside(const struct fr_device_range *range, const void *address,
                                    struct fr_device_export *export)
{
    CUdeviceptr base = 0;
    CUresult result =
        fr_cu.cuMemGetAddressRange_v2(&base, &export->bytes, (CUdeviceptr)(uintptr_t)address);
    if (result != CUDA_SUCCESS)
        return refuse("cuMemGetAddressRange", result);
    export->base = (uintptr_t)base;
    fr_cuda_uuid(range->home, export->uuid);
    return range->caps & FR_SHARE_LEGACY ? export_legacy(export) : export_vmm(range->caps, export);
}

enum fr_status fr_cuda_export(const struct fr_device_range *range, const void *address,
                              struct fr_device_export *export)
{
    bool legacy = (range->caps & FR_SHARE_LEGACY) != 0;
    if (!fr_cuda_present() || !(legacy ? has_legacy() : has_vmm()))
        return FR_ERR_UNSUPPORTED;
    struct fr_device_scope scope;
    enum fr_status status = fr_cuda_scope_enter(range, &scope);
    if (status != FR_OK)
        return status;
    status = export_inside(range, address, export);
    fr_cuda_scope_leave(&scope);
    return status;
}

enum fr_status fr_cuda_export_descriptor(uintptr_t base, int *descriptor)
{
    if (!fr_cuda_present() || !has_vmm())
        return FR_ERR_UNSUPPORTED;
    int made = -1;
    enum fr_status status = export_mapping(base, FR_CUDA_FD, &made);
    if (status == FR_OK)
        *descriptor = made;
    return status;
}

// Says whether this process could open any memory that others offered, and how often it could not.
// There is one for each of the two ways.
struct offers {
    atomic_bool ever_opened;
    _Atomic unsigned failures;
};
static struct offers legacy_offers, object_offers;

// Handles memory that cannot be opened. Its owner may have freed it meanwhile, which is not worth a
// line. A process that can open none at all gets one.
static enum fr_status refuse_offer(struct offers *offers, bool may_be_freed, const char *call,
                                   CUresult result)
{
    enum { FEW = 3 };
    unsigned before = atomic_fetch_add_explicit(&offers->failures, 1, memory_order_relaxed);
    if (may_be_freed &&
        (before < FEW || atomic_load_explicit(&offers->ever_opened, memory_order_relaxed)))
        return FR_ERR_UNSUPPORTED;
    return refuse(call, result);
}

static enum fr_status refuse_legacy(CUresult result)
{
    bool may_be_freed = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_PERMITTED ||
                        result == CUDA_ERROR_MAP_FAILED;
    return refuse_offer(&legacy_offers, may_be_freed, "cuIpcOpenMemHandle", result);
}

static enum fr_status open_legacy(const struct fr_device_export *export, uintptr_t *address)
{
    CUipcMemHandle handle;
    CUdeviceptr opened = 0;
    memcpy(&handle, export->token, sizeof(handle));
    CUresult result =
        fr_cu.cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS)
        return refuse_legacy(result);
    atomic_store_explicit(&legacy_offers.ever_opened, true, memory_order_relaxed);
    *address = (uintptr_t)opened;
    return FR_OK;
}

// Handles a handle that cannot be imported. Driver 580 says NOT_SUPPORTED of some memory that was
// freed meanwhile, so that counts as freed once other memory could be opened.
static enum fr_status refuse_object(CUresult result)
{
    bool may_be_freed = result == CUDA_ERROR_INVALID_VALUE ||
                        (result == CUDA_ERROR_NOT_SUPPORTED &&
                         atomic_load_explicit(&object_offers.ever_opened, memory_order_relaxed));
    return refuse_offer(&object_offers, may_be_freed, "cuMemImportFromShareableHandle", result);
}

static enum fr_status map_vmm(const struct fr_device_export *export, unsigned way, int descriptor,
                              int device, uintptr_t *address)
{
    unsigned char token[FR_SHARE_TOKEN_BYTES];
    CUmemGenericAllocationHandle handle;
    memcpy(token, export->token, sizeof(token)); // the driver's parameter is not const
    bool by_fd = way == FR_SHARE_FD;
    CUresult result =
        fr_cu.cuMemImportFromShareableHandle(&handle, by_fd ? (void *)(uintptr_t)descriptor : token,
                                             by_fd ? FR_CUDA_FD : FR_CUDA_FABRIC);
    if (result != CUDA_SUCCESS)
        return refuse_object(result);
    atomic_store_explicit(&object_offers.ever_opened, true, memory_order_relaxed);
    const char *call;
    result = fr_cuda_map(handle, export->bytes, device, address, &call);
    release_handle(handle); // the mapping keeps the memory alive
    return result == CUDA_SUCCESS ? FR_OK : refuse(call, result);
}

uint64_t fr_cuda_context_id(void *context)
{
    unsigned long long id = 0;
    if (fr_cu.cuCtxGetId == NULL || fr_cu.cuCtxGetId(context, &id) != CUDA_SUCCESS)
        return 0;
    return id;
}

static uint64_t id_of_mapping(uintptr_t address)
{
    struct fr_device_range range;
    bool known = fr_cuda_query_id((const void *)address, &range) == FR_OK;
    return known ? range.buffer_id : 0;
}

enum fr_status fr_cuda_import(const struct fr_device_range *user, unsigned way,
                              const struct fr_device_export *export, int descriptor,
                              struct fr_device_import *import)
{
    bool legacy = way == FR_SHARE_LEGACY;
    if (!fr_cuda_present() || !(legacy ? has_legacy() : has_vmm()) ||
        !reaches(user->device, export->uuid))
        return FR_ERR_UNSUPPORTED;
    struct fr_device_scope scope;
    enum fr_status status = fr_cuda_scope_enter(user, &scope);
    if (status != FR_OK)
        return status;
    uintptr_t address = 0;
    status = legacy ? open_legacy(export, &address)
                    : map_vmm(export, way, descriptor, user->device, &address);
    fr_cuda_scope_leave(&scope);
    if (status != FR_OK)
        return status;
    *import = (struct fr_device_import){
        .address = address,
        .bytes = export->bytes,
        .device = user->device,
        .legacy = legacy,
        .context = scope.context,
        .context_id = fr_cuda_context_id(scope.context),
        .buffer_id = id_of_mapping(address),
    };
    return FR_OK;
}

static void close_inside(const struct fr_device_import *import)
{
    if (!import->legacy) {
        fr_cuda_unmap(import->address, import->bytes);
        return;
    }
    CUresult result = fr_cu.cuIpcCloseMemHandle(import->address);
    if (result != CUDA_SUCCESS)
        fr_cuda_fail("cuIpcCloseMemHandle", result);
}

// Returns whether the context of the import still exists. A context that is gone took its legacy
// mappings along.
static bool context_exists(const struct fr_device_import *import)
{
    if (import->context_id != 0)
        return fr_cuda_context_id(import->context) == import->context_id;
    return import->legacy && import->buffer_id != 0 && fr_device_import_is_alive(import);
}

void fr_cuda_import_close(struct fr_device_import *import)
{
    if (!fr_cuda_present())
        return;
    // VMM mappings belong to no context. A scope is entered only for what it does about graphs that
    // are being captured.
    struct fr_device_scope scope;
    if (context_exists(import) && fr_cuda_scope_enter_context(import->context, &scope) == FR_OK) {
        close_inside(import);
        fr_cuda_scope_leave(&scope);
    } else if (!import->legacy) {
        close_inside(import);
    }
}
