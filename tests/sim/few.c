// SPDX-License-Identifier: BSD-3-Clause
// The kernel that brings few bytes of a device to the host, on the CPU.
#include "config.h"

#include "sim.h"

#include "fabrail/device/kernels.h"

#include <string.h>

static CUresult copy(uintptr_t dst, uintptr_t src, size_t bytes)
{
    struct sim_op op = {.type = SIM_OP_COPY,
                        .dst = dst,
                        .src = src,
                        .shape = {.width = bytes, .height = 1, .depth = 1}};
    return sim_execute(&op) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool fetch_is_sound(const void *given)
{
    const struct fr_fetch *params = given;
    return params->bytes > 0 && params->bytes <= FR_FETCH_BYTES && params->flag != 0;
}

static CUresult run_fetch(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_fetch *params = given;
    unsigned char bytes[FR_FETCH_BYTES + FR_FETCH_PART_BYTES] = {0};
    if (shape.block > 0) // the others store the same
        return CUDA_SUCCESS;
    if (!sim_kernel_may(ctx, params->src, params->bytes, false))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    CUresult result = copy((uintptr_t)bytes, params->src, params->bytes);
    unsigned parts = (params->bytes + FR_FETCH_PART_BYTES - 1) / FR_FETCH_PART_BYTES;
    for (unsigned i = parts; i-- > 0 && result == CUDA_SUCCESS;) {
        uint32_t part;
        memcpy(&part, bytes + (size_t)i * FR_FETCH_PART_BYTES, sizeof(part));
        result = sim_kernel_tell(ctx, params->words, (uint64_t)params->flag << 32 | part, i);
    }
    return result;
}

const struct sim_kernel sim_kernel_fetch = {
    .name = FR_FETCH_NAME,
    .param_bytes = sizeof(struct fr_fetch),
    .max_threads = FR_PUSH_MAX_THREADS,
    .are_sound = fetch_is_sound,
    .run_block = run_fetch,
};
