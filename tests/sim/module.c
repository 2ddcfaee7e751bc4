// SPDX-License-Identifier: BSD-3-Clause
// Modules and kernels. Device code cannot run here, and only the first bytes of an image are looked
// at. Kernels of Fabrail's own are known by name, and the CPU does them block by block, as
// src/device/cuda/kernels.cu does. All others are refused.
#include "config.h"

#include "sim.h"

#include "fabrail/device/kernels.h"

#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
    struct sim_object object;
    struct CUmod_st *module;
    const struct sim_kernel *kernel;
};

enum { KERNELS = 17, MAX_PARAM_BYTES = 4096 };

// A module. It outlives its context, as an application's copies of the handle do; its handles are
// then refused.
struct CUmod_st {
    struct sim_object object;
    CUcontext ctx;
    uint64_t ctx_id;
    struct CUfunc_st functions[KERNELS];
};

static bool module_is_live(const struct CUmod_st *module)
{
    return module->ctx->alive && module->ctx->id == module->ctx_id;
}

CUresult sim_module_load(CUmodule *module, const char *path)
{
    (void)module;
    return path ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

static void module_free(CUmodule module)
{
    for (int i = 0; i < KERNELS; i++)
        sim_object_remove(&module->functions[i].object);
    sim_object_remove(&module->object);
    free(module);
}

static const struct sim_kernel push_few, push_some, push_many;
static const struct sim_kernel *const kernels[KERNELS] = {&push_few,
                                                          &push_some,
                                                          &push_many,
                                                          &sim_kernel_reduce_few,
                                                          &sim_kernel_reduce,
                                                          &sim_kernel_barrier_push_few,
                                                          &sim_kernel_barrier_push_many,
                                                          &sim_kernel_barrier_reduce_few,
                                                          &sim_kernel_barrier_reduce,
                                                          &sim_kernel_barrier_combine_few,
                                                          &sim_kernel_barrier_combine,
                                                          &sim_kernel_pack,
                                                          &sim_kernel_pack_inline,
                                                          &sim_kernel_pack_fused,
                                                          &sim_kernel_pack_many,
                                                          &sim_kernel_fetch,
                                                          &sim_kernel_standby};

static bool module_register(CUmodule module)
{
    bool added = sim_object_add(&module->object);
    for (int i = 0; i < KERNELS; i++) {
        module->functions[i] = (struct CUfunc_st){
            .object = {.type = SIM_FUNCTION}, .module = module, .kernel = kernels[i]};
        added = sim_object_add(&module->functions[i].object) && added;
    }
    return added;
}

CUresult sim_module_load_data(CUmodule *out, const void *image)
{
    static const unsigned char magic[] = {0x50, 0xed, 0x55, 0xba}; // nvcc -fatbin's first bytes
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(image, magic, sizeof(magic)) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct CUmod_st *module = calloc(1, sizeof(*module));
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->object.type = SIM_MODULE;
    module->ctx = sim_context_here();
    module->ctx_id = module->ctx->id;
    if (!module_register(module)) {
        module_free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = module;
    return CUDA_SUCCESS;
}

CUresult sim_module_load_data_options(CUmodule *module, const void *image, unsigned count,
                                      CUjit_option *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return sim_module_load_data(module, image);
}

CUresult sim_module_unload(CUmodule handle)
{
    struct CUmod_st *module = sim_object_find(handle, SIM_MODULE);
    if (!module || module->ctx != sim_context_here() || !module_is_live(module))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_context_run(module->ctx);
    module_free(module);
    return CUDA_SUCCESS;
}

CUresult sim_module_function(CUfunction *function, CUmodule handle, const char *name)
{
    struct CUmod_st *module = sim_object_find(handle, SIM_MODULE);
    if (!module || !module_is_live(module))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(name, kernels[i]->name) != 0)
            continue;
        *function = &module->functions[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult sim_function_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    const struct CUfunc_st *found = sim_object_find(function, SIM_FUNCTION);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute != CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    *value = (int)found->kernel->max_threads;
    return CUDA_SUCCESS;
}

// A kernel may touch less than a copy: memory of another device only after peer access was enabled,
// memory of another process only in the context that opened it.
bool sim_kernel_may(CUcontext ctx, uintptr_t address, uint64_t bytes, bool write)
{
    if (sim_check(address, bytes, ctx->device, SIM_SIDE_DEVICE, write) != CUDA_SUCCESS)
        return false;
    const struct sim_range *range = sim_range_find(address);
    return range && sim_range_is_open(range, ctx);
}

static CUresult run_share(CUcontext ctx, const struct fr_push_piece *piece, uint32_t share,
                          uint32_t shares)
{
    uint64_t offset, bytes;
    for (uint64_t chunk = share; (bytes = fr_push_chunk(piece, chunk, &offset)) > 0;
         chunk += shares) {
        struct sim_op op = {
            .type = SIM_OP_COPY,
            .dst = piece->dst + offset,
            .src = piece->src + offset,
            .shape = {.width = bytes, .height = 1, .depth = 1},
        };
        bool may =
            sim_kernel_may(ctx, op.dst, bytes, true) && sim_kernel_may(ctx, op.src, bytes, false);
        if (!may || sim_execute(&op) != CUDA_SUCCESS)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return CUDA_SUCCESS;
}

CUresult sim_kernel_tell(CUcontext ctx, uintptr_t words, uint64_t value, unsigned block)
{
    uintptr_t word = words + block * sizeof(uint64_t);
    if (!words)
        return CUDA_SUCCESS;
    const struct sim_range *range = sim_range_find(word);
    if (!range || !sim_range_is_host(range) || word % sizeof(uint64_t) ||
        !sim_kernel_may(ctx, word, sizeof(uint64_t), true))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    // Another thread of the host polls the word.
    __atomic_store_n((uint64_t *)sim_pointer(word), value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

CUresult sim_kernel_push(CUcontext ctx, const struct fr_push_head *head,
                         const struct fr_push_piece *pieces, struct sim_launch_shape shape)
{
    for (uint32_t share = shape.block; share < head->shares; share += shape.blocks) {
        uint32_t i = fr_push_find(head, pieces, share);
        CUresult result =
            run_share(ctx, &pieces[i], share - pieces[i].first, fr_push_shares(head, pieces, i));
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult push_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_push_many *params = given;
    CUresult result = sim_kernel_push(ctx, &params->head, params->pieces, shape);
    return result == CUDA_SUCCESS
               ? sim_kernel_tell(ctx, params->head.words, params->head.value, shape.block)
               : result;
}

// Addresses are checked now and not at the launch: a kernel's faults come late.
CUresult sim_execute_launch(CUcontext ctx, const struct sim_op *op)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_launch_shape shape = {
        .blocks = op->blocks, .threads = op->threads, .began_ns = op->began_ns};
    for (shape.block = op->blocks; shape.block-- > 0 && result == CUDA_SUCCESS;)
        result = op->kernel->run_block(ctx, op->snapshot, shape);
    return result;
}

static bool shape_is_known(const struct sim_kernel *kernel, const unsigned grid[3],
                           const unsigned block[3], unsigned shared_bytes)
{
    return grid[0] > 0 && grid[1] == 1 && grid[2] == 1 && block[0] > 0 &&
           block[0] <= kernel->max_threads && block[1] == 1 && block[2] == 1 && shared_bytes == 0;
}

// A real kernel would take any numbers and fault or hang. The double tells at once that they are
// wrong.
bool sim_kernel_push_is_sound(const struct fr_push_head *head, const struct fr_push_piece *pieces,
                              uint32_t capacity)
{
    if (head->count == 0 || head->count > capacity || pieces[0].first != 0)
        return false;
    for (uint32_t i = 0; i < head->count; i++) {
        const struct fr_push_piece *piece = &pieces[i];
        uint32_t end = i + 1 < head->count ? pieces[i + 1].first : head->shares;
        if (piece->first >= end || piece->chunk_units == 0 || piece->bytes == 0)
            return false;
    }
    return true;
}

static bool few_are_sound(const void *given)
{
    const struct fr_push_few *params = given;
    return sim_kernel_push_is_sound(&params->head, params->pieces, FR_PUSH_FEW);
}

static bool some_are_sound(const void *given)
{
    const struct fr_push_some *params = given;
    return sim_kernel_push_is_sound(&params->head, params->pieces, FR_PUSH_SOME);
}

static bool many_are_sound(const void *given)
{
    const struct fr_push_many *params = given;
    return sim_kernel_push_is_sound(&params->head, params->pieces, FR_PUSH_MANY);
}

static const struct sim_kernel push_few = {
    .name = FR_PUSH_FEW_NAME,
    .param_bytes = sizeof(struct fr_push_few),
    .max_threads = FR_PUSH_MAX_THREADS,
    .are_sound = few_are_sound,
    .run_block = push_block,
};
static const struct sim_kernel push_some = {
    .name = FR_PUSH_SOME_NAME,
    .param_bytes = sizeof(struct fr_push_some),
    .max_threads = FR_PUSH_MAX_THREADS,
    .are_sound = some_are_sound,
    .run_block = push_block,
};
static const struct sim_kernel push_many = {
    .name = FR_PUSH_MANY_NAME,
    .param_bytes = sizeof(struct fr_push_many),
    .max_threads = FR_PUSH_MAX_THREADS,
    .are_sound = many_are_sound,
    .run_block = push_block,
};

size_t sim_function_param_bytes(CUfunction handle)
{
    const struct CUfunc_st *function = sim_object_find(handle, SIM_FUNCTION);
    return function && module_is_live(function->module) ? function->kernel->param_bytes : 0;
}

CUresult sim_launch(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    CUstream stream_handle, void **params, void **extra)
{
    const unsigned grid[3] = {grid_x, grid_y, grid_z};
    const unsigned block[3] = {block_x, block_y, block_z};
    struct CUfunc_st *function = sim_object_find(handle, SIM_FUNCTION);
    CUstream stream = sim_stream_get(stream_handle);
    if (!function || !module_is_live(function->module) || !stream ||
        stream->ctx != function->module->ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!shape_is_known(function->kernel, grid, block, shared_bytes) || !params || !params[0] ||
        extra)
        return CUDA_ERROR_INVALID_VALUE;
    const char *refused = sim_knobs()->refused_kernels;
    if (*refused && strncmp(function->kernel->name, refused, strlen(refused)) == 0)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    void *copy = calloc(1, MAX_PARAM_BYTES);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, params[0], function->kernel->param_bytes);
    struct sim_op op = {
        .type = SIM_OP_LAUNCH,
        .snapshot = copy,
        .kernel = function->kernel,
        .blocks = grid_x,
        .threads = block_x,
    };
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (function->kernel->are_sound(copy))
        result = sim_submit(stream, &op, false);
    if (result != CUDA_SUCCESS)
        free(copy);
    return result;
}
