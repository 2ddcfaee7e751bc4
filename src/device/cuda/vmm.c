// SPDX-License-Identifier: BSD-3-Clause
// Device memory of Fabrail's own, by the driver's virtual memory management: an allocation, a range
// of addresses, and the mapping between them. No other memory can be exported both as a fabric
// handle, for GPUs of other hosts, and as a file descriptor, for processes of this host.
//
// These calls need no current context, so none is made current. Memory can be given back when no
// context is left.
#include "config.h"

#include "device/cuda/cuda_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// A process must be able to open this before the driver makes fabric memory for it.
#define IMEX_CHANNEL "/dev/nvidia-caps-imex-channels/channel0"

enum { MAX_DEVICES = FR_DEVICE_ROW_DEVICES };

// Says whether each device has fabric memory, an enum fr_device_support. Threads that find out at
// the same time find the same.
static _Atomic int fabric_states[MAX_DEVICES];

// Abilities of a device, in the order in which attributes are asked for.
enum { ABLE_VMM, ABLE_FD, ABLE_FABRIC, ABLE_RDMA, ABLE_COUNT };

static enum fr_device_support get_state(int device)
{
    return (enum fr_device_support)atomic_load_explicit(&fabric_states[device],
                                                        memory_order_acquire);
}

static void set_state(int device, enum fr_device_support support)
{
    if (atomic_exchange_explicit(&fabric_states[device], (int)support, memory_order_release) !=
        (int)support)
        fr_debug("device %d fabric memory %s", device, fr_device_fabric_text(support));
}

bool fr_cuda_has_vmm(void)
{
    return fr_cu.cuMemAddressFree != NULL && fr_cu.cuMemAddressReserve != NULL &&
           fr_cu.cuMemCreate != NULL && fr_cu.cuMemExportToShareableHandle != NULL &&
           fr_cu.cuMemGetAllocationGranularity != NULL && fr_cu.cuMemMap != NULL &&
           fr_cu.cuMemRelease != NULL && fr_cu.cuMemSetAccess != NULL && fr_cu.cuMemUnmap != NULL;
}

// Translates an error and logs it. Memory that is used up is not logged; the caller decides what to
// do then.
static enum fr_status fail(const char *call, CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY ? FR_ERR_NO_MEMORY : fr_cuda_fail(call, result);
}

static void note_undone(const char *call, CUresult result)
{
    if (result != CUDA_SUCCESS)
        fr_cuda_fail(call, result);
}

static enum fr_status ask_abilities(int device, bool able[ABLE_COUNT])
{
    static const CUdevice_attribute asked[ABLE_COUNT] = {
        [ABLE_VMM] = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        [ABLE_FD] = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        [ABLE_FABRIC] = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        [ABLE_RDMA] = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    };
    CUdevice handle;
    CUresult result = fr_cu.cuDeviceGet(&handle, device);
    if (result != CUDA_SUCCESS)
        return fail("cuDeviceGet", result);
    for (unsigned i = 0; i < ABLE_COUNT; i++) {
        int value = 0;
        result = fr_cu.cuDeviceGetAttribute(&value, asked[i], handle);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
            return fail("cuDeviceGetAttribute", result);
        // older drivers do not know newer attributes
        able[i] = result == CUDA_SUCCESS && value != 0;
    }
    return FR_OK;
}

// Allocates at least `bytes` with these properties, rounded up to their granularity. `call` is set
// to the name of the driver call that the result belongs to.
static CUresult create(const CUmemAllocationProp *property, size_t bytes,
                       struct fr_device_memory *memory, const char **call)
{
    size_t granularity = 0;
    *call = "cuMemGetAllocationGranularity";
    CUresult result = fr_cu.cuMemGetAllocationGranularity(&granularity, property,
                                                          CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS)
        return result;
    if (granularity == 0 || bytes > SIZE_MAX - granularity)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t rounded_bytes = (bytes + granularity - 1) / granularity * granularity;
    CUmemGenericAllocationHandle handle;
    *call = "cuMemCreate";
    result = fr_cu.cuMemCreate(&handle, rounded_bytes, property, 0);
    if (result != CUDA_SUCCESS)
        return result;
    memory->bytes = rounded_bytes;
    memory->handle = handle;
    memory->ways = (property->requestedHandleTypes & FR_CUDA_FD ? FR_SHARE_FD : 0) |
                   (property->requestedHandleTypes & FR_CUDA_FABRIC ? FR_SHARE_FABRIC : 0);
    return CUDA_SUCCESS;
}

// Allocates as create does, with a fabric handle. The first allocation is exported to try it, since
// a host whose fabric is not set up can refuse no earlier. `refused` tells a failure that memory
// without a fabric handle would not meet.
static CUresult create_fabric(const CUmemAllocationProp *property, size_t bytes,
                              struct fr_device_memory *memory, const char **call, bool *refused)
{
    CUresult result = create(property, bytes, memory, call);
    *refused = result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS || get_state(memory->device) == FR_SUPPORT_YES)
        return result;
    CUmemFabricHandle exported;
    *call = "cuMemExportToShareableHandle";
    result =
        fr_cu.cuMemExportToShareableHandle(&exported, memory->handle, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    if (result == CUDA_SUCCESS) {
        set_state(memory->device, FR_SUPPORT_YES);
        return CUDA_SUCCESS;
    }
    *refused = !fr_cuda_result_is_down(result) && result != CUDA_ERROR_OUT_OF_MEMORY;
    note_undone("cuMemRelease", fr_cu.cuMemRelease(memory->handle));
    return result;
}

// Writes what can be said of the device node that stands for the permission.
static void describe_channel(char *text, size_t bytes)
{
    int saved_errno = errno;
    int fd = open(IMEX_CHANNEL, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        snprintf(text, bytes, "can be opened, but the driver does not accept it");
    } else if (errno == ENOENT) {
        snprintf(text, bytes, "does not exist");
    } else {
        snprintf(text, bytes, "cannot be opened (%m)");
    }
    errno = saved_errno;
}

// The call that refused fabric memory on each device, written before the state. NULL if the device
// itself says that it has none.
static const char *_Atomic refusing_calls[MAX_DEVICES];
static _Atomic int refusals[MAX_DEVICES];

static void give_up_fabric(int device, const char *call, CUresult result)
{
    refusing_calls[device] = call;
    refusals[device] = (int)result;
    set_state(device, result == CUDA_ERROR_NOT_PERMITTED ? FR_SUPPORT_NOT_PERMITTED
                                                         : FR_SUPPORT_NOT_SUPPORTED);
}

// Returns whether to try for fabric memory. If the device says that it has none, that is final.
static bool may_have_fabric(int device, bool able)
{
    enum fr_device_support state = get_state(device);
    if (state != FR_SUPPORT_UNKNOWN || able)
        return state == FR_SUPPORT_UNKNOWN || state == FR_SUPPORT_YES;
    give_up_fabric(device, NULL, CUDA_ERROR_NOT_SUPPORTED);
    return false;
}

// Warns why there is no fabric memory. Called for those who need it; memory for GPUs of this host
// does without.
static void tell_refusal(int device, enum fr_device_support state)
{
    const char *call = refusing_calls[device];
    char channel[128];
    if (state == FR_SUPPORT_NOT_PERMITTED) {
        describe_channel(channel, sizeof(channel));
        fr_warn_once("device %d makes no fabric memory: %s failed with %s and %s %s; until an "
                     "administrator provides that IMEX channel to this process, GPUs of other "
                     "hosts do not reach Fabrail's memory",
                     device, call, fr_cuda_result_name((CUresult)refusals[device]), IMEX_CHANNEL,
                     channel);
    } else if (call != NULL) {
        fr_warn_once("device %d makes no fabric memory: %s failed with %s; it takes a GPU, a "
                     "driver and an NVLink fabric that support it, and without it GPUs of other "
                     "hosts do not reach Fabrail's memory",
                     device, call, fr_cuda_result_name((CUresult)refusals[device]));
    } else {
        fr_warn_once("device %d makes no fabric memory: its GPU or driver does not support it, so "
                     "GPUs of other hosts do not reach Fabrail's memory",
                     device);
    }
}

// Makes the allocation, as widely exportable as the device and this process may.
static enum fr_status allocate(size_t bytes, struct fr_device_memory *memory)
{
    bool able[ABLE_COUNT];
    enum fr_status status = ask_abilities(memory->device, able);
    if (status != FR_OK)
        return status;
    if (!able[ABLE_VMM]) {
        give_up_fabric(memory->device, NULL, CUDA_ERROR_NOT_SUPPORTED);
        return FR_ERR_UNSUPPORTED;
    }
    unsigned types = able[ABLE_FD] ? FR_CUDA_FD : 0;
    const char *call;
    CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->device},
        .allocFlags.gpuDirectRDMACapable = able[ABLE_RDMA],
    };
    if (may_have_fabric(memory->device, able[ABLE_FABRIC])) {
        bool refused = false;
        property.requestedHandleTypes = (CUmemAllocationHandleType)(types | FR_CUDA_FABRIC);
        CUresult result = create_fabric(&property, bytes, memory, &call, &refused);
        if (result == CUDA_SUCCESS)
            return FR_OK;
        if (!refused)
            return fail(call, result);
        give_up_fabric(memory->device, call, result);
    }
    property.requestedHandleTypes = (CUmemAllocationHandleType)types;
    CUresult result = create(&property, bytes, memory, &call);
    return result == CUDA_SUCCESS ? FR_OK : fail(call, result);
}

void fr_cuda_unmap(uintptr_t address, size_t bytes)
{
    CUresult result = fr_cu.cuMemUnmap(address, bytes);
    note_undone("cuMemUnmap", result);
    if (result == CUDA_SUCCESS) // else the range cannot be given back
        note_undone("cuMemAddressFree", fr_cu.cuMemAddressFree(address, bytes));
}

CUresult fr_cuda_map(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                     uintptr_t *address, const char **call)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUdeviceptr place = 0;
    *call = "cuMemAddressReserve";
    CUresult result = fr_cu.cuMemAddressReserve(&place, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    *call = "cuMemMap";
    result = fr_cu.cuMemMap(place, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        note_undone("cuMemAddressFree", fr_cu.cuMemAddressFree(place, bytes));
        return result;
    }
    *call = "cuMemSetAccess";
    result = fr_cu.cuMemSetAccess(place, bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        *address = (uintptr_t)place;
    else
        fr_cuda_unmap(place, bytes);
    return result;
}

// Gives the allocation addresses and its device access to them; releases it if that fails.
static enum fr_status map(struct fr_device_memory *memory)
{
    const char *call;
    CUresult result =
        fr_cuda_map(memory->handle, memory->bytes, memory->device, &memory->address, &call);
    if (result == CUDA_SUCCESS)
        return FR_OK;
    note_undone("cuMemRelease", fr_cu.cuMemRelease(memory->handle));
    return fail(call, result);
}

enum fr_status fr_cuda_memory_create(int device, size_t bytes, struct fr_device_memory *memory)
{
    if (bytes == 0 || device < 0 || device >= MAX_DEVICES)
        return FR_ERR_INVALID;
    if (!fr_cuda_present())
        return FR_ERR_NOT_FOUND;
    if (!fr_cuda_has_vmm()) {
        set_state(device, FR_SUPPORT_NOT_SUPPORTED);
        return FR_ERR_UNSUPPORTED;
    }
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    fr_cuda_exchange_capture_mode(&mode);
    struct fr_device_memory made = {.device = device};
    enum fr_status status = allocate(bytes, &made);
    if (status == FR_OK)
        status = map(&made);
    fr_cuda_exchange_capture_mode(&mode);
    if (status == FR_OK)
        *memory = made;
    return status;
}

void fr_cuda_memory_destroy(struct fr_device_memory *memory)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    fr_cuda_exchange_capture_mode(&mode);
    fr_cuda_unmap(memory->address, memory->bytes);
    note_undone("cuMemRelease", fr_cu.cuMemRelease(memory->handle));
    fr_cuda_exchange_capture_mode(&mode);
}

enum fr_device_support fr_cuda_fabric_support(int device)
{
    if (device < 0 || device >= MAX_DEVICES)
        return FR_SUPPORT_FAILED;
    struct fr_device_memory memory;
    if (get_state(device) == FR_SUPPORT_UNKNOWN &&
        fr_cuda_memory_create(device, 1, &memory) == FR_OK)
        fr_cuda_memory_destroy(&memory);
    enum fr_device_support state = get_state(device);
    if (FR_UNLIKELY(state == FR_SUPPORT_NOT_PERMITTED || state == FR_SUPPORT_NOT_SUPPORTED)) {
        static _Atomic bool has_warned;
        if (!atomic_load_explicit(&has_warned, memory_order_relaxed) &&
            !atomic_exchange_explicit(&has_warned, true, memory_order_relaxed))
            tell_refusal(device, state);
    }
    return state != FR_SUPPORT_UNKNOWN ? state : FR_SUPPORT_FAILED;
}

void fr_cuda_memory_left(int device, size_t *free_bytes, size_t *total_bytes)
{
    size_t left = 0, total = 0;
    const struct fr_device_range range = {.device = device}; // this one call needs a context
    struct fr_device_scope scope;
    if (!fr_cuda_present() || fr_cu.cuMemGetInfo_v2 == NULL ||
        fr_cuda_scope_enter(&range, &scope) != FR_OK)
        return;
    CUresult result = fr_cu.cuMemGetInfo_v2(&left, &total);
    fr_cuda_scope_leave(&scope);
    if (result != CUDA_SUCCESS) {
        if (!fr_cuda_result_is_down(result))
            fr_warn_once("cuMemGetInfo failed with %s, so Fabrail does not see when device memory "
                         "runs short",
                         fr_cuda_result_name(result));
        return;
    }
    *free_bytes = left;
    *total_bytes = total;
}
