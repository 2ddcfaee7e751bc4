// SPDX-License-Identifier: BSD-3-Clause
// Memory that the processes of fabrail tune share, the driver as they call it, and what their
// buffers hold.
#ifndef FR_TOOLS_TUNE_RIG_H
#define FR_TOOLS_TUNE_RIG_H

#include "tune.h"

#include <cuda.h>

#define FR_TUNE_FUNCTIONS(X)                                                                       \
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

// Valid once fr_tune_driver_start has returned true.
extern struct fr_tune_driver fr_tune_cu;

// Loads and starts the driver. Returns false after a line on stderr.
bool fr_tune_driver_start(void);

// Where processes meet.
struct fr_tune_meeting {
    _Atomic unsigned arrived __attribute__((aligned(64)));
    _Atomic unsigned round __attribute__((aligned(64)));
};

struct fr_tune_board {
    struct fr_tune_meeting all, parts; // all processes, and those that have a part
    _Atomic bool failed __attribute__((aligned(64)));
    struct fr_tune_memory memory[FR_TUNE_MAX_GPUS]; // where each has its own
    struct fr_device_export sends[FR_TUNE_MAX_GPUS], receives[FR_TUNE_MAX_GPUS];
    bool has_kernels[FR_TUNE_MAX_GPUS], can_reduce[FR_TUNE_MAX_GPUS], can_pack[FR_TUNE_MAX_GPUS];
    double us[FR_TUNE_MAX_GPUS][FR_TUNE_WAYS][FR_TUNE_MAX_ROUNDS];
    struct fr_policy_tuning tuning; // as the first process has found it
};

// Waits for so many processes. Returns false when some process has failed.
FR_MUST_CHECK bool fr_tune_meet(struct fr_tune_board *board, struct fr_tune_meeting *meeting,
                                int count);
// All processes.
FR_MUST_CHECK bool fr_tune_meet_all(const struct fr_tune_rig *rig);

// Says why this process fails, unless another one has; those that wait for it then end as well.
// Returns false.
bool fr_tune_fail(struct fr_tune_board *board, const char *format, ...) FR_PRINTF(2, 3);
// Returns whether the call went well; if not, this process fails.
bool fr_tune_ok(struct fr_tune_board *board, const char *call, CUresult result);

// Every word of what one GPU, by its place in the rig, sends to another.
static inline uint32_t fr_tune_word(int from, int to)
{
    return 0x9e3779b9u * (uint32_t)(from * FR_TUNE_MAX_GPUS + to + 1);
}

#endif
