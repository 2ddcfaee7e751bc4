// SPDX-License-Identifier: BSD-3-Clause
// The driver as fabrail tune itself calls it, and what its buffers hold.
#ifndef FR_TOOLS_TUNE_RIG_H
#define FR_TOOLS_TUNE_RIG_H

#include "tune.h"

#include <cuda.h>

#define FR_TUNE_FUNCTIONS(X)                                                                       \
    X(cuCtxEnablePeerAccess)                                                                       \
    X(cuCtxSetCurrent)                                                                             \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuGetErrorName)                                                                              \
    X(cuInit)                                                                                      \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemsetD32_v2)

struct fr_tune_driver {
#define FR_TUNE_MEMBER(name) __typeof__(name) *name;
    FR_TUNE_FUNCTIONS(FR_TUNE_MEMBER)
#undef FR_TUNE_MEMBER
};

// Valid once fr_tune_rig_find has returned true.
extern struct fr_tune_driver fr_tune_cu;

// Returns whether the call went well, after a line on stderr where it did not.
bool fr_tune_ok(const char *call, CUresult result);

// Every word of what one GPU, by its place in the rig, sends to another.
static inline uint32_t fr_tune_word(int from, int to)
{
    return 0x9e3779b9u * (uint32_t)(from * FR_TUNE_MAX_GPUS + to + 1);
}

#endif
