// SPDX-License-Identifier: BSD-3-Clause
// Page-locking of host memory.
//
// Memory is registered as portable, which makes it pinned for every context. But the registration
// belongs to the context that is current at the time, and dies with it. So the context that will
// live longest is taken. That is the primary context of the device last seen if the application
// uses it, as all users of the CUDA runtime do. Only an application that has no other contexts than
// its own gets the registration into one of those.
#include "config.h"

#include "device/cuda/cuda_int.h"

enum fr_status fr_cuda_host_register(int device, void *address, size_t bytes)
{
    if (!fr_cuda_present())
        return FR_ERR_NOT_FOUND;
    struct fr_device_scope scope;
    enum fr_status status = fr_cuda_scope_enter_lasting(device, &scope);
    if (status != FR_OK)
        return status;
    CUresult result = fr_cu.cuMemHostRegister_v2(address, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    fr_cuda_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return FR_OK;
    // The caller goes on with pageable memory, which is slower but not wrong. So this is no error.
    if (!fr_cuda_result_is_down(result))
        fr_warn_once("cuMemHostRegister of %zu bytes failed with %s, so staging memory stays "
                     "pageable and copies are slower",
                     bytes, fr_cuda_result_name(result));
    return result == CUDA_ERROR_OUT_OF_MEMORY ? FR_ERR_NO_MEMORY : FR_ERR_DEVICE;
}

void fr_cuda_host_unregister(int device, void *address)
{
    if (address == NULL || !fr_cuda_present())
        return;
    struct fr_device_scope scope;
    if (fr_cuda_scope_enter_lasting(device, &scope) != FR_OK)
        return;
    CUresult result = fr_cu.cuMemHostUnregister(address);
    fr_cuda_scope_leave(&scope);
    // The context of the registration may be gone, and the registration with it.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED &&
        result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
        fr_cuda_fail("cuMemHostUnregister", result);
}
