// SPDX-License-Identifier: BSD-3-Clause
// The kernels of src/device/cuda/pack.cu, done by the CPU. They have the same chunks for the same
// blocks, the same places from the same table, and a fault where the GPU would have one.
#include "config.h"

#include "sim.h"

#include "fabrail/device/shape.h"

static CUresult copy_run(CUcontext ctx, uint64_t dst, uint64_t src, uint64_t bytes)
{
    struct sim_op op = {
        .type = SIM_OP_COPY,
        .dst = dst,
        .src = src,
        .shape = {.width = bytes, .height = 1, .depth = 1},
    };
    bool may = sim_kernel_may(ctx, dst, bytes, true) && sim_kernel_may(ctx, src, bytes, false);
    return may && sim_execute(&op) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// Copies a chunk. Loads that follow one another on both sides are copied together.
static CUresult copy_chunk(CUcontext ctx, const struct fr_pack *pack, const void *table,
                           uint64_t first, uint32_t bytes)
{
    struct fr_pack_base base;
    fr_pack_begin(&pack->shape, first, &base);
    uint64_t packed = pack->packed + (pack->keeps_gaps ? 0 : first - pack->first);
    CUresult result = CUDA_SUCCESS;
    uint32_t run = 0;
    for (uint32_t at = 0; at < bytes && result == CUDA_SUCCESS; at += run) {
        int64_t place = fr_pack_place(&pack->shape, table, &base, at);
        for (run = pack->width; at + run < bytes; run += pack->width)
            if (fr_pack_place(&pack->shape, table, &base, at + run) != place + (int64_t)run)
                break;
        uint64_t user = pack->user + (uint64_t)place;
        uint64_t other = packed + (pack->keeps_gaps ? (uint64_t)place : at);
        result = pack->unpacks ? copy_run(ctx, user, other, run) : copy_run(ctx, other, user, run);
    }
    return result;
}

static CUresult pack_block(CUcontext ctx, const struct fr_pack *pack, const void *table,
                           struct sim_launch_shape shape)
{
    uint64_t step = shape.blocks * pack->chunk_bytes;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t first = pack->first + shape.block * pack->chunk_bytes;
         first < pack->last && result == CUDA_SUCCESS; first += step) {
        uint64_t left = pack->last - first;
        result = copy_chunk(ctx, pack, table, first,
                            (uint32_t)(left < pack->chunk_bytes ? left : pack->chunk_bytes));
    }
    return result == CUDA_SUCCESS ? sim_kernel_tell(ctx, pack->words, pack->value, shape.block)
                                  : result;
}

static CUresult plain_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack *pack = given;
    const void *table = NULL;
    if (pack->shape.blocks) {
        if (!sim_kernel_may(ctx, pack->table, fr_pack_table_bytes(&pack->shape), false))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        const struct sim_range *range = sim_range_find(pack->table);
        table = range->alias + (pack->table - range->base);
    }
    return pack_block(ctx, pack, table, shape);
}

static CUresult inline_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack_inline *params = given;
    return pack_block(ctx, &params->pack, params->table, shape);
}

static bool is_sound(const struct fr_pack *pack)
{
    const struct fr_pack_shape *shape = &pack->shape;
    bool sound = pack->width && pack->width <= FR_PACK_MAX_WIDTH &&
                 (pack->width & (pack->width - 1)) == 0 && pack->first < pack->last &&
                 pack->chunk_bytes && pack->chunk_bytes < FR_PACK_SMALL && shape->levels >= 1 &&
                 shape->levels <= FR_PACK_LEVELS && shape->period.value > 0;
    uint64_t all = pack->user | pack->packed | pack->first | pack->last | pack->chunk_bytes |
                   shape->period.value | (uint64_t)shape->offset;
    for (uint32_t i = 0; sound && i < shape->levels; i++) {
        sound = i + 1 == shape->levels || shape->level[i].count.value > 0;
        all |= (uint64_t)shape->level[i].stride;
    }
    return sound && all % pack->width == 0 && shape->align % pack->width == 0;
}

static bool plain_is_sound(const void *given)
{
    const struct fr_pack *pack = given;
    return is_sound(pack) && !pack->is_inline && (!pack->shape.blocks || pack->table);
}

static bool inline_is_sound(const void *given)
{
    const struct fr_pack_inline *params = given;
    return is_sound(&params->pack) && params->pack.is_inline &&
           fr_pack_table_bytes(&params->pack.shape) <= sizeof(params->table);
}

const struct sim_kernel sim_kernel_pack = {
    .name = FR_PACK_NAME,
    .param_bytes = sizeof(struct fr_pack),
    .max_threads = FR_PACK_MAX_THREADS,
    .are_sound = plain_is_sound,
    .run_block = plain_block,
};
const struct sim_kernel sim_kernel_pack_inline = {
    .name = FR_PACK_INLINE_NAME,
    .param_bytes = sizeof(struct fr_pack_inline),
    .max_threads = FR_PACK_MAX_THREADS,
    .are_sound = inline_is_sound,
    .run_block = inline_block,
};
