// SPDX-License-Identifier: BSD-3-Clause
// Helpers of the tests of the simulated driver. Each case runs in a process of its own, started
// anew with the environment that it names. It finds the driver by its soname, as programs do.
#ifndef FR_TESTS_SIM_TEST_H
#define FR_TESTS_SIM_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "../unit/check.h"

#include <cuda.h>
#include <stdlib.h>

// One counter for all files of the program; check.h has one for each file.
extern _Atomic unsigned test_failures;
#undef CHECK
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_failures++;                                                                       \
            fprintf(stderr, "%s:%d: failed: %s:", __FILE__, __LINE__, #condition);                 \
            fprintf(stderr, " " __VA_ARGS__);                                                      \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)
#include <sys/types.h>

// The functions of the driver that the tests call, under the names of cuda.h.
// clang-format off
#define TEST_FUNCTIONS(F) \
    F(cuInit) F(cuDeviceGetCount) F(cuDeviceGetName) F(cuDeviceGetUuid) F(cuDeviceGetAttribute) \
    F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease) F(cuDevicePrimaryCtxReset) \
    F(cuDevicePrimaryCtxGetState) F(cuCtxCreate) F(cuCtxDestroy) F(cuCtxPushCurrent) \
    F(cuCtxPopCurrent) F(cuCtxSetCurrent) F(cuCtxGetCurrent) F(cuCtxGetDevice) F(cuCtxGetId) \
    F(cuCtxSynchronize) F(cuCtxEnablePeerAccess) F(cuMemPoolSetAccess) F(cuGetErrorName) F(cuGetProcAddress) \
    F(cuMemGetInfo) F(cuMemAlloc) F(cuMemAllocPitch) F(cuMemAllocManaged) F(cuMemFree) \
    F(cuMemGetAddressRange) F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemHostRegister) \
    F(cuMemHostUnregister) F(cuMemHostGetDevicePointer) F(cuMemAllocAsync) F(cuMemFreeAsync) \
    F(cuDeviceGetDefaultMemPool) F(cuMemPoolCreate) F(cuMemPoolDestroy) F(cuMemPoolGetAttribute) \
    F(cuMemAllocFromPoolAsync) F(cuMemGetAllocationGranularity) F(cuMemAddressReserve) \
    F(cuMemAddressFree) F(cuMemCreate) F(cuMemRelease) F(cuMemMap) F(cuMemUnmap) F(cuMemSetAccess) \
    F(cuMemGetAccess) F(cuMemRetainAllocationHandle) F(cuMemGetAllocationPropertiesFromHandle) \
    F(cuMemExportToShareableHandle) F(cuMemImportFromShareableHandle) F(cuIpcGetMemHandle) \
    F(cuIpcOpenMemHandle) F(cuIpcCloseMemHandle) F(cuMemGetHandleForAddressRange) \
    F(cuPointerGetAttribute) F(cuPointerGetAttributes) F(cuPointerSetAttribute) F(cuMemcpy) \
    F(cuMemcpyAsync) F(cuMemcpyHtoD) F(cuMemcpyDtoH) F(cuMemcpyDtoD) F(cuMemcpyHtoDAsync) \
    F(cuMemcpyDtoHAsync) F(cuMemcpyDtoDAsync) F(cuMemcpyPeer) F(cuMemcpy2D) \
    F(cuMemcpy2DUnaligned) F(cuMemcpy2DAsync) F(cuMemcpy3D) F(cuMemcpy3DAsync) F(cuMemsetD8) \
    F(cuMemsetD16) F(cuMemsetD32) F(cuMemsetD8Async) F(cuMemsetD2D32) F(cuMemsetD2D16Async) \
    F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamSynchronize) F(cuStreamQuery) \
    F(cuStreamWaitEvent) F(cuStreamWaitValue32) F(cuStreamWriteValue64) F(cuStreamGetCtx) F(cuLaunchHostFunc) F(cuEventCreate) F(cuEventDestroy) \
    F(cuEventRecord) F(cuEventQuery) F(cuEventSynchronize) F(cuEventElapsedTime) \
    F(cuModuleLoadData) F(cuModuleGetFunction) F(cuModuleUnload) F(cuLaunchKernel) \
    F(cuGraphCreate) F(cuGraphDestroy) F(cuGraphAddKernelNode) F(cuGraphInstantiate) \
    F(cuGraphExecKernelNodeSetParams) F(cuGraphLaunch) F(cuGraphExecDestroy) \
    F(cuFlushGPUDirectRDMAWrites)
// clang-format on
#define TEST_MEMBER(name) __typeof__(name) *name;
struct test_driver {
    TEST_FUNCTIONS(TEST_MEMBER)
};
extern struct test_driver cu;
extern void *test_library; // the driver, as dlopen returned it

// A case: its name, up to six settings, and the function to run in that environment.
struct test_case {
    const char *name;
    const char *environment[7];
    void (*run)(void);
};
extern const struct test_case test_memory_cases[];
extern const struct test_case test_copy_cases[];
extern const struct test_case test_async_cases[];
extern const struct test_case test_share_cases[];
extern const struct test_case test_process_cases[];
extern const struct test_case test_touch_cases[];

#define EXPECT(code, call)                                                                         \
    do {                                                                                           \
        CUresult expect_result = (call);                                                           \
        CHECK(expect_result == (code), "%s gave %d, not %s", #call, (int)expect_result, #code);    \
    } while (0)
#define OK(call) EXPECT(CUDA_SUCCESS, call)

static inline void *test_pointer(CUdeviceptr address)
{
    return (void *)address;
}

// Calls cuInit, and makes the primary context of a device current.
CUcontext test_begin(int device);
int test_result(void); // returns the exit status so far

// Touches the address with the CPU, in a child process. Returns the signal that ended the child, or
// 0.
int test_touch(CUdeviceptr address, bool write);

const char *test_program(void); // returns the full path of this program
// Starts this program again as another process, with a role and one end of a socket. Returns its
// process id.
pid_t test_spawn(const char *role, int *socket);
void test_join(pid_t pid, int socket);
void test_send(int socket, const void *data, size_t bytes, int descriptor); // descriptor -1: none
int test_receive(int socket, void *data, size_t bytes); // returns a descriptor or -1
// Plays the role of a spawned process. Returns false where no role has that name.
bool test_share_role(const char *role, int socket);

// Memory of the VMM kind. test_map creates and maps it, and gives its device access.
struct test_mapping {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};
CUmemAllocationProp test_prop(int device, unsigned handle_types);
void test_map(struct test_mapping *mapping, size_t bytes, unsigned handle_types);
void test_map_handle(struct test_mapping *mapping, CUmemGenericAllocationHandle handle,
                     size_t bytes);
void test_unmap(struct test_mapping *mapping);

// test_put fills device memory with the bytes of check_fill. test_holds compares it with them.
void test_put(CUdeviceptr address, size_t bytes, uint64_t seed);
bool test_holds(CUdeviceptr address, size_t bytes, uint64_t seed);

#endif
