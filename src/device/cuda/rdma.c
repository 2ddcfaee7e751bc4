// SPDX-License-Identifier: BSD-3-Clause
// The driver's part in NICs that reach device memory: the order in which their writes are seen, and
// a flush of these. Threads whose libraries use the device get a context here.
#include "config.h"

#include "device/cuda/cuda_int.h"

// Returns an attribute of a device, 0 if the driver does not tell it.
static int ask(int device, CUdevice_attribute attribute)
{
    CUdevice handle;
    int value = 0;
    if (!fr_cuda_present() || fr_cu.cuDeviceGet(&handle, device) != CUDA_SUCCESS ||
        fr_cu.cuDeviceGetAttribute(&value, attribute, handle) != CUDA_SUCCESS)
        return 0;
    return value;
}

bool fr_cuda_orders_rdma(int device)
{
    return ask(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
           CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

bool fr_cuda_can_flush_rdma(int device)
{
    int options = ask(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    return (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0 &&
           fr_cu.cuFlushGPUDirectRDMAWrites != NULL;
}

enum fr_status fr_cuda_flush_rdma(int device)
{
    struct fr_device_scope scope;
    enum fr_status status = fr_cuda_scope_enter_lasting(device, &scope);
    if (status != FR_OK)
        return status;
    CUresult result =
        fr_cu.cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                         CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    fr_cuda_scope_leave(&scope);
    return result == CUDA_SUCCESS ? FR_OK : fr_cuda_fail("cuFlushGPUDirectRDMAWrites", result);
}

enum fr_status fr_cuda_adopt(int device)
{
    struct fr_device_scope scope;
    if (!fr_cuda_present())
        return FR_ERR_NOT_FOUND;
    return fr_cuda_scope_enter_lasting(device, &scope); // and never left
}
