// SPDX-License-Identifier: BSD-3-Clause
// The kernel that stands by for an order (include/fabrail/device/standby_order.h), on the CPU. Each
// step that its stream takes is one look for the order, so that it runs beside its host.
#include "config.h"

#include "sim.h"

#include "fabrail/device/standby_order.h"

#include <string.h>

enum { MOST_WAIT_NS = 100000 };

// Returns a word of the slot, NULL where the kernel may not read it.
static const uint64_t *word_at(CUcontext ctx, const struct fr_standby *params, unsigned index)
{
    uintptr_t address = params->words + index * sizeof(uint64_t);
    return sim_kernel_may(ctx, address, sizeof(uint64_t), false) ? sim_pointer(address) : NULL;
}

// Reads the bytes of an order. They are there before the order is.
static bool read_parts(CUcontext ctx, const struct fr_standby *params, uint32_t bytes,
                       uint32_t parts[FR_STANDBY_LOOK])
{
    for (uint32_t i = 0; i < fr_standby_parts(bytes); i++) {
        const uint64_t *at = word_at(ctx, params, FR_STANDBY_PARTS + i);
        uint64_t word = at ? __atomic_load_n(at, __ATOMIC_ACQUIRE) : 0;
        if (word >> 32 != params->flag)
            return false;
        parts[i] = (uint32_t)word;
    }
    return true;
}

static CUresult copy(CUcontext ctx, const struct fr_standby *params, uint32_t bytes)
{
    uint32_t parts[FR_STANDBY_LOOK];
    if (bytes > FR_STANDBY_MOST_BYTES || !read_parts(ctx, params, bytes, parts) ||
        !sim_kernel_may(ctx, params->dst, bytes, true))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    struct sim_op op = {
        .type = SIM_OP_COPY,
        .dst = params->dst,
        .src = (uintptr_t)parts,
        .shape = {.width = bytes, .height = 1, .depth = 1},
    };
    return sim_execute(&op) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult look(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_standby *params = given;
    const uint64_t *at = word_at(ctx, params, FR_STANDBY_ORDER);
    CUresult result =
        sim_kernel_tell(ctx, params->words, fr_standby_word(params->flag, 1), FR_STANDBY_STARTED);
    if (!at || result != CUDA_SUCCESS)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t order = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    bool has_come = order >> 32 == params->flag;
    if (!has_come && (!shape.began_ns || sim_now_ns() - shape.began_ns < params->wait_ns))
        return SIM_KERNEL_RUNS;
    bool copies = has_come && (uint32_t)order > 0;
    result = copies ? copy(ctx, params, (uint32_t)order) : CUDA_SUCCESS;
    uint64_t answer = fr_standby_word(params->flag, copies ? FR_STANDBY_COPIED : FR_STANDBY_IDLE);
    return result == CUDA_SUCCESS ? sim_kernel_tell(ctx, params->words, answer, FR_STANDBY_ANSWER)
                                  : result;
}

static bool is_sound(const void *given)
{
    const struct fr_standby *params = given;
    return params->words && params->dst && params->flag && params->wait_ns <= MOST_WAIT_NS;
}

const struct sim_kernel sim_kernel_standby = {
    .name = FR_STANDBY_NAME,
    .param_bytes = sizeof(struct fr_standby),
    .max_threads = 1024,
    .are_sound = is_sound,
    .run_block = look,
};
