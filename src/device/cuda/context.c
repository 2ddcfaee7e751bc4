// SPDX-License-Identifier: BSD-3-Clause
// Which context a call needs, and scopes that make it current for as long as the call lasts.
#include "config.h"

#include "device/cuda/cuda_int.h"

enum { MAX_DEVICES = FR_DEVICE_ROW_DEVICES };

// Guards the primary contexts that Fabrail holds a reference to, by ordinal; NULL where it holds
// none.
static struct fr_lock primaries_lock = FR_LOCK_INIT;
static CUcontext primaries[MAX_DEVICES] FR_GUARDED_BY(primaries_lock);

static CUcontext held_primary(int device)
{
    fr_core_lock(&primaries_lock);
    CUcontext context = primaries[device];
    fr_core_unlock(&primaries_lock);
    return context;
}

bool fr_cuda_primary_is_active(int device)
{
    CUdevice handle;
    unsigned flags = 0;
    int active = 0;
    return fr_cu.cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
           fr_cu.cuDevicePrimaryCtxGetState(handle, &flags, &active) == CUDA_SUCCESS && active;
}

// Retains the device's primary context once for the process. It retains it again after a reset of
// the device, which ends the context but keeps the references: only another reference brings it
// back to life.
static enum fr_status get_primary(int device, CUcontext *context)
{
    if (device < 0 || device >= MAX_DEVICES) {
        fr_warn_once("device %d is beyond the %d devices that are handled", device, MAX_DEVICES);
        return FR_ERR_LIMIT;
    }
    *context = held_primary(device);
    if (*context != NULL && fr_cuda_primary_is_active(device))
        return FR_OK;

    CUdevice handle;
    CUresult result = fr_cu.cuDeviceGet(&handle, device);
    if (result != CUDA_SUCCESS)
        return fr_cuda_fail("cuDeviceGet", result);
    result = fr_cu.cuDevicePrimaryCtxRetain(context, handle); // slow, so not under the lock
    if (result != CUDA_SUCCESS)
        return fr_cuda_fail("cuDevicePrimaryCtxRetain", result);

    fr_core_lock(&primaries_lock);
    bool raced = primaries[device] != NULL;
    primaries[device] = *context;
    fr_core_unlock(&primaries_lock);
    if (raced) // another thread's reference is kept, or the one from before a reset
        (void)fr_cu.cuDevicePrimaryCtxRelease_v2(handle);
    return FR_OK;
}

void fr_cuda_contexts_release(void)
{
    for (int device = 0; device < MAX_DEVICES; device++) {
        fr_core_lock(&primaries_lock);
        bool held = primaries[device] != NULL;
        primaries[device] = NULL;
        fr_core_unlock(&primaries_lock);
        CUdevice handle;
        if (!held || fr_cu.cuDeviceGet(&handle, device) != CUDA_SUCCESS)
            continue;
        CUresult result = fr_cu.cuDevicePrimaryCtxRelease_v2(handle);
        if (result != CUDA_SUCCESS)
            fr_cuda_fail("cuDevicePrimaryCtxRelease", result);
    }
}

bool fr_cuda_in_use(void)
{
    CUcontext current = NULL;
    CUdevice handle;
    if (fr_cu.cuCtxGetCurrent(&current) != CUDA_SUCCESS)
        return false;
    bool in_use = current != NULL;
    for (int device = 0; device < MAX_DEVICES && !in_use; device++) {
        if (fr_cu.cuDeviceGet(&handle, device) != CUDA_SUCCESS)
            break;
        in_use = fr_cuda_primary_is_active(device);
    }
    return in_use;
}

void fr_cuda_exchange_capture_mode(int *mode)
{
    CUstreamCaptureMode before = (CUstreamCaptureMode)*mode;
    if (fr_cu.cuThreadExchangeStreamCaptureMode != NULL)
        (void)fr_cu.cuThreadExchangeStreamCaptureMode(&before);
    *mode = (int)before;
}

// The thread's current context outside of all scopes that it is in. NULL where it has none, or a
// scope has made the same one current.
static FR_TLS CUcontext outer_context;
static FR_TLS unsigned scope_depth;

CUcontext fr_cuda_scope_outer(void)
{
    return outer_context;
}

// Enters a context. `current` is the thread's current context.
static enum fr_status enter(CUcontext context, CUcontext current, struct fr_device_scope *scope)
{
    if (context != current) {
        CUresult result = fr_cu.cuCtxPushCurrent_v2(context);
        if (result != CUDA_SUCCESS)
            return fr_cuda_fail("cuCtxPushCurrent", result);
    }
    scope->ops = &fr_cuda_ops;
    scope->context = context;
    scope->pushed = context != current;
    if (scope_depth++ == 0)
        outer_context = scope->pushed ? current : NULL;
    scope->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    fr_cuda_exchange_capture_mode(&scope->capture_mode);
    return FR_OK;
}

static enum fr_status get_current(CUcontext *current)
{
    CUresult result = fr_cu.cuCtxGetCurrent(current);
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuCtxGetCurrent", result);
}

static bool current_is_on(int device)
{
    CUdevice handle; // the device's ordinal
    return fr_cu.cuCtxGetDevice(&handle) == CUDA_SUCCESS && handle == device;
}

enum fr_status fr_cuda_scope_enter(const struct fr_device_range *range,
                                   struct fr_device_scope *scope)
{
    CUcontext current = NULL;
    CUcontext context = range->context;
    enum fr_status status = get_current(&current);
    if (status == FR_OK && context == NULL) {
        if (current != NULL && current_is_on(range->device))
            context = current;
        else
            status = get_primary(range->device, &context);
    }
    return status == FR_OK ? enter(context, current, scope) : status;
}

enum fr_status fr_cuda_scope_enter_context(CUcontext context, struct fr_device_scope *scope)
{
    CUcontext current = NULL;
    enum fr_status status = get_current(&current);
    return status == FR_OK ? enter(context, current, scope) : status;
}

enum fr_status fr_cuda_scope_enter_lasting(int device, struct fr_device_scope *scope)
{
    CUcontext current = NULL;
    CUcontext context = NULL;
    enum fr_status status = get_current(&current);
    if (status == FR_OK) {
        if (current != NULL && !fr_cuda_primary_is_active(device))
            context = current;
        else
            status = get_primary(device, &context);
    }
    return status == FR_OK ? enter(context, current, scope) : status;
}

void fr_cuda_scope_leave(struct fr_device_scope *scope)
{
    fr_cuda_exchange_capture_mode(&scope->capture_mode);
    if (--scope_depth == 0)
        outer_context = NULL;
    if (!scope->pushed)
        return;
    CUcontext popped = NULL;
    CUresult result = fr_cu.cuCtxPopCurrent_v2(&popped);
    if (result != CUDA_SUCCESS)
        fr_cuda_fail("cuCtxPopCurrent", result);
}

int fr_cuda_current(void)
{
    CUcontext current = NULL;
    CUdevice device = 0;
    if (get_current(&current) == FR_OK && current != NULL &&
        fr_cu.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return (int)device; // a handle is the device's ordinal
    return -1;
}
