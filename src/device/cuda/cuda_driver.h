// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver's functions, found at run time, and its errors. Private to src/device/cuda.
#ifndef FR_DEVICE_CUDA_CUDA_DRIVER_H
#define FR_DEVICE_CUDA_CUDA_DRIVER_H

#include "fabrail/core.h"

#include <cuda.h>

// Every driver function that Fabrail calls, by the name that libcuda.so.1 exports, and whether it
// is needed. A driver that lacks a needed function is not used at all.
#define FR_CU_FUNCTIONS(X)                                                                         \
    X(cuCtxGetCurrent, true)                                                                       \
    X(cuCtxGetDevice, true)                                                                        \
    X(cuCtxGetId, false) /* CUDA 12.0 */                                                           \
    X(cuCtxPopCurrent_v2, true)                                                                    \
    X(cuCtxPushCurrent_v2, true)                                                                   \
    X(cuDeviceCanAccessPeer, false)                                                                \
    X(cuDeviceGet, true)                                                                           \
    X(cuDeviceGetAttribute, true)                                                                  \
    X(cuDeviceGetCount, false)                                                                     \
    X(cuDeviceGetName, false)                                                                      \
    X(cuDeviceGetPCIBusId, false)                                                                  \
    X(cuDeviceGetUuid_v2, false) /* CUDA 11.4 */                                                   \
    X(cuDevicePrimaryCtxGetState, true)                                                            \
    X(cuDevicePrimaryCtxRelease_v2, true)                                                          \
    X(cuDevicePrimaryCtxRetain, true)                                                              \
    X(cuDriverGetVersion, true)                                                                    \
    X(cuEventCreate, true)                                                                         \
    X(cuEventDestroy_v2, true)                                                                     \
    X(cuEventQuery, true)                                                                          \
    X(cuEventRecord, true)                                                                         \
    X(cuFlushGPUDirectRDMAWrites, false) /* CUDA 11.3 */                                           \
    X(cuGetErrorName, true)                                                                        \
    X(cuGraphAddKernelNode_v2, false) /* CUDA 12.0 */                                              \
    X(cuGraphCreate, false)           /* CUDA 10.0 */                                              \
    X(cuGraphDestroy, false)                                                                       \
    X(cuGraphExecDestroy, false)                                                                   \
    X(cuGraphExecKernelNodeSetParams_v2, false) /* CUDA 12.0 */                                    \
    X(cuGraphInstantiateWithFlags, false)       /* CUDA 11.4 */                                    \
    X(cuGraphLaunch, false)                                                                        \
    X(cuIpcCloseMemHandle, false)                                                                  \
    X(cuIpcGetMemHandle, false)                                                                    \
    X(cuIpcOpenMemHandle_v2, false) /* CUDA 11.0 */                                                \
    X(cuLaunchKernel, false)                                                                       \
    X(cuMemAddressFree, false) /* CUDA 10.2 */                                                     \
    X(cuMemAddressReserve, false)                                                                  \
    X(cuMemCreate, false)                                                                          \
    X(cuMemExportToShareableHandle, false)                                                         \
    X(cuMemFreeHost, false)                                                                        \
    X(cuMemGetAccess, false)                                                                       \
    X(cuMemGetAddressRange_v2, false)                                                              \
    X(cuMemGetAllocationGranularity, false)                                                        \
    X(cuMemGetHandleForAddressRange, false) /* CUDA 11.7 */                                        \
    X(cuMemGetInfo_v2, false)                                                                      \
    X(cuMemHostAlloc, false)                                                                       \
    X(cuMemHostRegister_v2, true)                                                                  \
    X(cuMemHostUnregister, true)                                                                   \
    X(cuMemImportFromShareableHandle, false)                                                       \
    X(cuMemMap, false)                                                                             \
    X(cuMemRelease, false)                                                                         \
    X(cuMemRetainAllocationHandle, false) /* CUDA 11.0 */                                          \
    X(cuMemSetAccess, false)                                                                       \
    X(cuMemUnmap, false)                                                                           \
    X(cuMemcpy2DAsync_v2, true)                                                                    \
    X(cuMemcpy3DAsync_v2, true)                                                                    \
    X(cuMemcpyAsync, true)                                                                         \
    X(cuMemcpyBatchAsync, false) /* CUDA 12.8 */                                                   \
    X(cuModuleGetFunction, false)                                                                  \
    X(cuModuleLoadData, false)                                                                     \
    X(cuModuleUnload, false)                                                                       \
    X(cuPointerGetAttributes, true)                                                                \
    X(cuPointerSetAttribute, true)                                                                 \
    X(cuStreamCreate, true)                                                                        \
    X(cuStreamDestroy_v2, true)                                                                    \
    X(cuStreamGetCtx, false)      /* CUDA 9.2 */                                                   \
    X(cuStreamIsCapturing, false) /* CUDA 10.0 */                                                  \
    X(cuStreamQuery, false)                                                                        \
    X(cuStreamSynchronize, true)                                                                   \
    X(cuStreamWriteValue64_v2, false)           /* CUDA 11.7 */                                    \
    X(cuThreadExchangeStreamCaptureMode, false) /* CUDA 10.1 */

// Declarations that older CUDA headers lack. Newer ones have the batch's second version alone,
// which drivers before CUDA 13 do not have.
#if CUDA_VERSION < 12080
typedef struct CUmemcpyAttributes_st {
    unsigned srcAccessOrder;
    CUmemLocation srcLocHint, dstLocHint;
    unsigned flags;
} CUmemcpyAttributes;
#define CU_MEMCPY_SRC_ACCESS_ORDER_STREAM 1
#endif
#undef cuMemcpyBatchAsync
extern CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes,
                                           size_t count, CUmemcpyAttributes *attributes,
                                           size_t *from, size_t attribute_count, size_t *failed,
                                           CUstream stream);
#if CUDA_VERSION < 12000
extern CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *id);
typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
    void *kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS_v2;
extern CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                                const CUgraphNode *dependencies, size_t count,
                                                const CUDA_KERNEL_NODE_PARAMS_v2 *params);
extern CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                          const CUDA_KERNEL_NODE_PARAMS_v2 *params);
extern CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address,
                                                cuuint64_t value, unsigned flags);
#endif
#if CUDA_VERSION < 11070
extern CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                                      size_t bytes, int type,
                                                      unsigned long long flags);
#endif
#if CUDA_VERSION < 11040
extern CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                    unsigned long long flags);
extern CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
#endif

// Handle types. Headers before CUDA 12.3 lack the fabric handle's.
#define FR_CUDA_FD     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define FR_CUDA_FABRIC ((CUmemAllocationHandleType)0x8)

// An attribute of devices, and a type of handle. Headers before CUDA 11.7 lack them.
#define FR_CUDA_DMA_BUF_SUPPORTED ((CUdevice_attribute)124)
#define FR_CUDA_RANGE_DMA_BUF     0x1

// The driver's functions. A function that is not needed may be NULL.
struct fr_cuda_driver {
#define FR_CU_MEMBER(name, needed) __typeof__(name) *name;
    FR_CU_FUNCTIONS(FR_CU_MEMBER)
#undef FR_CU_MEMBER
    int version; // as cuDriverGetVersion says, such as 12020
};

// Valid from the first time that fr_cuda_present returned true, and constant from then on.
extern FR_OWN struct fr_cuda_driver fr_cu;

// Returns whether the CUDA driver is loaded. Most members of the row may be called before it is.
bool fr_cuda_present(void);

// Logs the CUresult that the driver call `call` gave, and translates it. A driver that is shutting
// down at exit, or was never initialised, is not logged.
enum fr_status fr_cuda_fail(const char *call, int answer);

// Returns whether `result` says that the driver is not up: not initialised by the application, shut
// down at exit, or on the wrong side of a fork.
bool fr_cuda_result_is_down(CUresult result);

// Returns the driver's name of `result`. The text is constant.
const char *fr_cuda_result_name(CUresult result);

#endif
