// SPDX-License-Identifier: BSD-3-Clause
// The kernel of src/device/cuda/reduce.cu, done by the CPU. It has the same items for the same
// threads, the same order of sources, the same bytes left alone, and a fault where the GPU would
// have one.
#include "config.h"

#include "sim.h"

#include "fabrail/device/elements.h"

#include <string.h>

// Bytes of neighbouring items that a block's threads do at the same time.
enum { RUN_BYTES = FR_REDUCE_MAX_THREADS * FR_REDUCE_UNIT_BYTES };

#define FR_REDUCE(type, operation, element, result)                                                \
    static void row_##type##_##operation(void *sum, const void *next, size_t bytes)                \
    {                                                                                              \
        element *left = sum;                                                                       \
        const element *right = next;                                                               \
        for (size_t i = 0; i < bytes / sizeof(element); i++) {                                     \
            element a = left[i], b = right[i];                                                     \
            left[i] = result;                                                                      \
        }                                                                                          \
    }
#include "fabrail/device/reduce.def"
#undef FR_REDUCE

static const struct {
    void (*combine)(void *sum, const void *next, size_t bytes);
    size_t element_bytes;
} rows[FR_REDUCE_ROWS] = {
#define FR_REDUCE(type, operation, element, result) {row_##type##_##operation, sizeof(element)},
#include "fabrail/device/reduce.def"
#undef FR_REDUCE
};

// Copies between the simulator's own memory and memory that the kernel may touch.
static CUresult copy(CUcontext ctx, uintptr_t dst, uintptr_t src, size_t bytes, bool is_store)
{
    struct sim_op op = {
        .type = SIM_OP_COPY,
        .dst = dst,
        .src = src,
        .shape = {.width = bytes, .height = 1, .depth = 1},
    };
    if (!sim_kernel_may(ctx, is_store ? dst : src, bytes, is_store))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    return sim_execute(&op);
}

static CUresult store(CUcontext ctx, const struct fr_reduce *params, uintptr_t to, const char *from,
                      size_t bytes)
{
    if (params->gap == FR_REDUCE_DENSE)
        return copy(ctx, to, (uintptr_t)from, bytes, true);
    bool is_within = params->gap == FR_REDUCE_GAP_WITHIN;
    size_t first = is_within ? 2 : 8, second = is_within ? 4 : 8;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < bytes && result == CUDA_SUCCESS; i += params->element_bytes) {
        result = copy(ctx, to + i, (uintptr_t)from + i, first, true);
        if (result == CUDA_SUCCESS)
            result = copy(ctx, to + i + second, (uintptr_t)from + i + second, 4, true);
    }
    return result;
}

// Loads elements. The gap of a single element is not even read, as it may lie past the end of the
// memory.
static CUresult load(CUcontext ctx, const struct fr_reduce *params, char *to, uintptr_t from,
                     size_t bytes, bool is_single)
{
    size_t gap = is_single && params->gap == FR_REDUCE_GAP_BEHIND ? 4 : 0;
    return copy(ctx, (uintptr_t)to, from, bytes - gap, false);
}

static CUresult fold(CUcontext ctx, const struct fr_reduce *params, uint64_t offset, size_t bytes,
                     bool is_single)
{
    _Alignas(16) char sum[RUN_BYTES], next[RUN_BYTES];
    memset(sum, 0, bytes);
    memset(next, 0, bytes);
    CUresult result = load(ctx, params, sum, params->ends[0].source + offset, bytes, is_single);
    if (result == CUDA_SUCCESS && params->mode == FR_REDUCE_SCAN)
        result = store(ctx, params, params->ends[0].target + offset, sum, bytes);
    for (uint32_t i = 1; i < params->sources && result == CUDA_SUCCESS; i++) {
        result = load(ctx, params, next, params->ends[i].source + offset, bytes, is_single);
        if (result == CUDA_SUCCESS && params->mode == FR_REDUCE_EXCLUSIVE)
            result = store(ctx, params, params->ends[i].target + offset, sum, bytes);
        rows[params->row].combine(sum, next, bytes);
        if (result == CUDA_SUCCESS && params->mode == FR_REDUCE_SCAN)
            result = store(ctx, params, params->ends[i].target + offset, sum, bytes);
    }
    for (uint32_t i = 0; params->mode == FR_REDUCE_ALL && i < params->targets; i++) {
        if (result == CUDA_SUCCESS)
            result = store(ctx, params, params->ends[i].target + offset, sum, bytes);
    }
    return result;
}

static CUresult run_units(CUcontext ctx, const struct fr_reduce *params,
                          struct sim_launch_shape shape)
{
    uint64_t step = (uint64_t)shape.blocks * shape.threads;
    uint64_t head_bytes = params->head * params->element_bytes;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = (uint64_t)shape.block * shape.threads;
         at < params->units && result == CUDA_SUCCESS; at += step) {
        uint64_t count = params->units - at < shape.threads ? params->units - at : shape.threads;
        result = fold(ctx, params, head_bytes + at * FR_REDUCE_UNIT_BYTES,
                      count * FR_REDUCE_UNIT_BYTES, false);
    }
    return result;
}

static CUresult run_singles(CUcontext ctx, const struct fr_reduce *params,
                            struct sim_launch_shape shape)
{
    uint64_t step = (uint64_t)shape.blocks * shape.threads;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = (uint64_t)shape.block * shape.threads; at < params->head + params->tail;
         at += step) {
        for (uint64_t i = at; i < at + shape.threads && i < params->head + params->tail; i++) {
            uint64_t skip = i < params->head ? 0 : params->units * FR_REDUCE_UNIT_BYTES;
            result =
                fold(ctx, params, i * params->element_bytes + skip, params->element_bytes, true);
            if (result != CUDA_SUCCESS)
                return result;
        }
    }
    return result;
}

CUresult sim_kernel_fold(CUcontext ctx, const struct fr_reduce *params,
                         struct sim_launch_shape shape)
{
    CUresult result = run_units(ctx, params, shape);
    return result == CUDA_SUCCESS ? run_singles(ctx, params, shape) : result;
}

static CUresult reduce_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_reduce *params = given;
    CUresult result = sim_kernel_fold(ctx, params, shape);
    if (result == CUDA_SUCCESS)
        result = sim_kernel_tell(ctx, params->words, params->value, shape.block);
    return result;
}

static bool is_aligned(const struct fr_reduce *params, uint64_t address)
{
    uint64_t single = params->element_bytes < 4 ? params->element_bytes : 4;
    return address % single == 0 &&
           (!params->units ||
            (address + params->head * params->element_bytes) % FR_REDUCE_UNIT_BYTES == 0);
}

bool sim_kernel_fold_is_sound(const struct fr_reduce *params)
{
    bool sound = params->row < FR_REDUCE_ROWS && params->mode <= FR_REDUCE_EXCLUSIVE &&
                 params->gap <= FR_REDUCE_GAP_WITHIN && params->sources >= 1 &&
                 params->sources <= FR_REDUCE_SOURCES && params->targets <= FR_REDUCE_SOURCES;
    sound = sound && rows[params->row].element_bytes == params->element_bytes &&
            (params->mode == FR_REDUCE_ALL || params->targets == params->sources);
    for (uint32_t i = 0; sound && i < params->sources; i++)
        sound = is_aligned(params, params->ends[i].source);
    for (uint32_t i = 0; sound && i < params->targets; i++)
        sound = is_aligned(params, params->ends[i].target) ||
                (i == 0 && params->mode == FR_REDUCE_EXCLUSIVE);
    return sound;
}

static bool few_are_sound(const void *given)
{
    const struct fr_reduce *params = given; // as far as it goes
    return params->sources <= FR_REDUCE_FEW && params->targets <= FR_REDUCE_FEW &&
           sim_kernel_fold_is_sound(params);
}

static bool reduce_is_sound(const void *params)
{
    return sim_kernel_fold_is_sound(params);
}

const struct sim_kernel sim_kernel_reduce_few = {
    .name = FR_REDUCE_FEW_NAME,
    .param_bytes = sizeof(struct fr_reduce_few),
    .max_threads = FR_REDUCE_MAX_THREADS,
    .are_sound = few_are_sound,
    .run_block = reduce_block,
};

const struct sim_kernel sim_kernel_reduce = {
    .name = FR_REDUCE_NAME,
    .param_bytes = sizeof(struct fr_reduce),
    .max_threads = FR_REDUCE_MAX_THREADS,
    .are_sound = reduce_is_sound,
    .run_block = reduce_block,
};
