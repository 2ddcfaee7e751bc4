// SPDX-License-Identifier: BSD-3-Clause
// Inside of the row of CUDA: the driver's functions, the context scope, and leased streams.
#ifndef FR_DEVICE_CUDA_CUDA_INT_H
#define FR_DEVICE_CUDA_CUDA_INT_H

#include "device/device.h"

#include <cuda.h>

// Every driver function that Fabrail calls, by the name that libcuda.so.1 exports, and whether it
// is needed. A driver without a needed one is not used at all.
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
    X(cuModuleGetFunction, false)                                                                  \
    X(cuModuleLoadData, false)                                                                     \
    X(cuModuleUnload, false)                                                                       \
    X(cuPointerGetAttributes, true)                                                                \
    X(cuPointerSetAttribute, true)                                                                 \
    X(cuStreamCreate, true)                                                                        \
    X(cuStreamDestroy_v2, true)                                                                    \
    X(cuStreamIsCapturing, false) /* CUDA 10.0 */                                                  \
    X(cuStreamQuery, false)                                                                        \
    X(cuStreamSynchronize, true)                                                                   \
    X(cuThreadExchangeStreamCaptureMode, false) /* CUDA 10.1 */

// Headers that lack newer functions.
#if CUDA_VERSION < 12000
extern CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *id);
#endif
#if CUDA_VERSION < 11040
extern CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
#endif

// Handle types. Headers before CUDA 12.3 lack the second.
#define FR_CUDA_FD     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define FR_CUDA_FABRIC ((CUmemAllocationHandleType)0x8)

struct fr_device_driver {
#define FR_CU_MEMBER(name, needed) __typeof__(name) *name;
    FR_CU_FUNCTIONS(FR_CU_MEMBER)
#undef FR_CU_MEMBER
    int version; // as cuDriverGetVersion says, such as 12020
};

// Valid from the first time that fr_device_present returned true, and constant from then on.
extern struct fr_device_driver fr_cu;

// Translates the result of the driver call `call` and logs it. A driver that is shutting down at
// exit, or that was never initialised, is no news and stays unlogged.
enum fr_status fr_device_fail(const char *call, CUresult result);

// Returns whether `result` says that the driver is not up: not initialised by the application, shut
// down at exit, or on the wrong side of a fork.
bool fr_device_result_is_down(CUresult result);

// Writes the driver's name of `result`; the text is constant.
const char *fr_device_result_name(CUresult result);

// A context made current for some calls. Leave restores what was current before.
struct fr_device_scope {
    CUcontext context; // current while inside
    bool pushed;
    CUstreamCaptureMode capture_mode; // of the thread before
};

// Makes a context current in which `range` can be used: the range's own; else the thread's current
// one if it is on the range's device; else the device's primary context, which is retained until
// fr_device_release.
FR_MUST_CHECK enum fr_status fr_device_scope_enter(const struct fr_device_range *range,
                                                   struct fr_device_scope *scope);

// The same for one given context.
FR_MUST_CHECK enum fr_status fr_device_scope_enter_context(CUcontext context,
                                                           struct fr_device_scope *scope);

// The same for calls that belong to no range: the context that is expected to live longest. The
// primary context of `device` if it is in use, else the thread's current one, else the primary
// context after all.
FR_MUST_CHECK enum fr_status fr_device_scope_enter_lasting(int device,
                                                           struct fr_device_scope *scope);
void fr_device_scope_leave(struct fr_device_scope *scope);

// Inside of a scope, the context that was current outside of it and of those around it, if that is
// another one than there; else NULL.
CUcontext fr_device_scope_outer(void);

// Whether the device's primary context is in use by anyone in this process.
bool fr_device_primary_is_active(int device);

// Returns the device that is to move memory whose kind, context and home are known. Memory of a
// context is moved there; other memory by the device of the thread's current context if it is open
// to that. Else VMM memory is moved by a device whose primary context is active, its home before
// others, and by its home where there is none, unless it is open to other devices only.
int fr_device_choose_mover(const struct fr_device_range *range, uintptr_t address);

// Gives back the primary contexts that scopes retained.
void fr_device_contexts_release(void);

// The device of the last range that a thread of this process asked about, 0 before.
int fr_device_last_used(void);

// A stream of one context for copies in one direction, lent to one batch at a time, so that threads
// never wait for each other's copies.
struct fr_device_stream {
    struct fr_device_stream *next; // in the cache of idle streams
    CUcontext context;
    unsigned long long context_id; // tells a context from an earlier one at the same address
    enum fr_device_direction direction;
    CUstream handle;
    CUevent marks[FR_DEVICE_MARKS]; // each made when it is first set
    size_t max_pitch_bytes;         // of 2D copies on the context's device
    bool cacheable;
};

// Lends a stream of `context`, which must be current. Ownership goes to the caller until return.
FR_MUST_CHECK enum fr_status fr_device_stream_borrow(CUcontext context,
                                                     enum fr_device_direction direction,
                                                     struct fr_device_stream **stream);
// Waits for all work on the stream and gives it back. Returns what went wrong with that work.
FR_MUST_CHECK enum fr_status fr_device_stream_return(struct fr_device_stream *stream);
// Gives back a stream whose work is known to be done, or to have failed.
void fr_device_stream_give(struct fr_device_stream *stream, bool failed);
void fr_device_streams_release(void);

// Records a mark behind all work that is on the stream, and asks whether that is done. Until the
// stream has been given back a mark that was never set counts as reached.
FR_MUST_CHECK enum fr_status fr_device_stream_mark(struct fr_device_stream *stream, unsigned mark);
FR_MUST_CHECK enum fr_status fr_device_stream_ask(struct fr_device_stream *stream, unsigned mark,
                                                  bool *reached);

// Makes sure that what the application has done to the bytes [low, high) with calls that look
// synchronous but are not (cudaMemset, cudaMemcpy between devices or from pageable memory) is done
// before a copy on a stream starts. The range's context must be current.
FR_MUST_CHECK enum fr_status fr_device_sync(const struct fr_device_range *range, uintptr_t low,
                                            uintptr_t high);
void fr_device_synced_release(void);

// The kernels as loaded into one context, with words in page-locked memory that they write. Valid
// until fr_device_kernels_release or the end of the context.
struct fr_device_kernels {
    struct fr_device_kernels *next;
    CUcontext context;
    unsigned long long context_id;
    CUmodule module; // NULL: the driver did not take them
    CUfunction push_few;
    CUfunction push_many;
    CUfunction met_few;
    CUfunction met_many;
    CUmodule reduce_module; // NULL until a reduction asks for it
    CUfunction reduce;      // constant once `reduces` is not FR_KERNEL_UNKNOWN
    CUfunction met_reduce;  // the same
    _Atomic int reduces;
    unsigned multiprocessors;
    uint64_t *words;      // FR_PUSH_MAX_BLOCKS for each slot
    uint64_t values[32];  // last value used with each slot's words, of its borrower
    uint32_t slots_taken; // bit a slot, guarded by the lock of the list
};

// For the launches of pushes and reductions (kernels.h, elements.h). Puts as many pieces as fit
// into one, from *next on, which is advanced, and returns the blocks to launch with; and makes sure
// that what the application has done to its side of the pieces is done.
struct fr_push_head;
struct fr_push_piece;
struct fr_reduce;
struct fr_device_reduction;
unsigned fr_device_push_plan(struct fr_push_head *head, struct fr_push_piece *into, size_t room,
                             const struct fr_device_push_piece *pieces, size_t count,
                             unsigned max_blocks, size_t *next);
FR_MUST_CHECK enum fr_status fr_device_push_sync(const struct fr_device_range *range,
                                                 const struct fr_device_push_piece *pieces,
                                                 size_t count);
void fr_device_reduce_fill(struct fr_reduce *params, const struct fr_device_reduction *reduction);
unsigned fr_device_reduce_blocks(const struct fr_reduce *params, unsigned max_sms);

// What NVML says of the GPUs of this machine, whichever of them the process sees. Returns false
// without NVML.
struct fr_device_machine {
    char name[96]; // NVML's texts are shorter
    unsigned gpus;
    char driver[96];
};
bool fr_device_nvml_machine(struct fr_device_machine *machine);

// The image of the kernels that nvcc made, NULL in a build without. Tests put one here that the
// simulated driver takes.
extern const void *fr_device_kernels_image;

// Returns the kernels of the context, which must be current; NULL where there are none.
struct fr_device_kernels *fr_device_kernels_get(CUcontext context);
// Whether there are kernels for reductions as well: an image of their own, loaded when first asked
// for. The context must be current.
enum { FR_KERNEL_UNKNOWN, FR_KERNEL_LOADED, FR_KERNEL_REFUSED };
extern const void *fr_device_reduce_image;
bool fr_device_kernels_can_reduce(struct fr_device_kernels *kernels);
// Lends the words of one slot with a value that none of them holds. Returns the slot, -1 for none.
int fr_device_words_borrow(struct fr_device_kernels *kernels, uint64_t *value);
void fr_device_words_return(struct fr_device_kernels *kernels, int slot);
uint64_t *fr_device_words_of(const struct fr_device_kernels *kernels, int slot);
// Waits until each block has stored `value`, or the stream has come to its end, well or not.
CUresult fr_device_words_wait(const uint64_t *words, unsigned blocks, uint64_t value,
                              CUstream stream);
void fr_device_kernels_release(void);

#endif
