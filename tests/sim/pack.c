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

// A copy: its parameters, where the CPU sees the table, and the shape of the other side, if any.
struct copy {
    const struct fr_pack *pack;
    const void *table;
    const struct fr_pack_shape *far;
};

// A chunk, and where it begins on either side.
struct chunk {
    uint64_t first;
    struct fr_pack_base base, far_base;
};

static int64_t user_place(const struct copy *copy, const struct chunk *chunk, uint32_t at)
{
    return fr_pack_place(&copy->pack->shape, copy->table, &chunk->base, at);
}

static int64_t other_place(const struct copy *copy, const struct chunk *chunk, uint32_t at)
{
    if (copy->far)
        return fr_pack_place(copy->far, NULL, &chunk->far_base, at);
    return copy->pack->keeps_gaps ? user_place(copy, chunk, at)
                                  : (int64_t)(chunk->first - copy->pack->first + at);
}

// Copies a chunk. Loads that follow one another on both sides are copied together.
static CUresult copy_chunk(CUcontext ctx, const struct copy *copy, uint64_t first, uint32_t bytes)
{
    const struct fr_pack *pack = copy->pack;
    struct chunk chunk = {.first = first};
    fr_pack_begin(&pack->shape, first, &chunk.base);
    if (copy->far)
        fr_pack_begin(copy->far, first, &chunk.far_base);
    CUresult result = CUDA_SUCCESS;
    uint32_t run = 0;
    for (uint32_t at = 0; at < bytes && result == CUDA_SUCCESS; at += run) {
        int64_t place = user_place(copy, &chunk, at), far = other_place(copy, &chunk, at);
        for (run = pack->width; at + run < bytes; run += pack->width)
            if (user_place(copy, &chunk, at + run) != place + (int64_t)run ||
                other_place(copy, &chunk, at + run) != far + (int64_t)run)
                break;
        uint64_t user = pack->user + (uint64_t)place, other = pack->packed + (uint64_t)far;
        result = pack->unpacks ? copy_run(ctx, user, other, run) : copy_run(ctx, other, user, run);
    }
    return result;
}

static CUresult pack_block(CUcontext ctx, const struct copy *copy, struct sim_launch_shape shape)
{
    const struct fr_pack *pack = copy->pack;
    uint64_t step = shape.blocks * pack->chunk_bytes;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t first = pack->first + shape.block * pack->chunk_bytes;
         first < pack->last && result == CUDA_SUCCESS; first += step) {
        uint64_t left = pack->last - first;
        result = copy_chunk(ctx, copy, first,
                            (uint32_t)(left < pack->chunk_bytes ? left : pack->chunk_bytes));
    }
    return result == CUDA_SUCCESS ? sim_kernel_tell(ctx, pack->words, pack->value, shape.block)
                                  : result;
}

static CUresult block_with_table(CUcontext ctx, const struct fr_pack *pack,
                                 const struct fr_pack_shape *far, struct sim_launch_shape shape)
{
    struct copy copy = {.pack = pack, .far = far};
    if (pack->shape.blocks) {
        if (!sim_kernel_may(ctx, pack->table, fr_pack_table_bytes(&pack->shape), false))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        const struct sim_range *range = sim_range_find(pack->table);
        copy.table = range->alias + (pack->table - range->base);
    }
    return pack_block(ctx, &copy, shape);
}

static CUresult plain_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    return block_with_table(ctx, given, NULL, shape);
}

static CUresult fused_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack_fused *params = given;
    return block_with_table(ctx, &params->pack, &params->far, shape);
}

static CUresult inline_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack_inline *params = given;
    const struct copy copy = {.pack = &params->pack, .table = params->table};
    return pack_block(ctx, &copy, shape);
}

static bool shape_is_sound(const struct fr_pack_shape *shape, uint16_t width)
{
    bool sound = shape->levels >= 1 && shape->levels <= FR_PACK_LEVELS && shape->period.value > 0;
    uint64_t all = shape->period.value | (uint64_t)shape->offset;
    for (uint32_t i = 0; sound && i < shape->levels; i++) {
        sound = i + 1 == shape->levels || shape->level[i].count.value > 0;
        all |= (uint64_t)shape->level[i].stride;
    }
    return sound && all % width == 0 && shape->align % width == 0;
}

static bool is_sound(const struct fr_pack *pack)
{
    uint64_t all = pack->user | pack->packed | pack->first | pack->last | pack->chunk_bytes;
    return pack->width && pack->width <= FR_PACK_MAX_WIDTH &&
           (pack->width & (pack->width - 1)) == 0 && pack->first < pack->last &&
           pack->chunk_bytes && pack->chunk_bytes < FR_PACK_SMALL && all % pack->width == 0 &&
           shape_is_sound(&pack->shape, pack->width);
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

static bool fused_is_sound(const void *given)
{
    const struct fr_pack_fused *params = given;
    return plain_is_sound(given) && params->pack.unpacks && !params->pack.keeps_gaps &&
           !params->far.blocks && shape_is_sound(&params->far, params->pack.width);
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
const struct sim_kernel sim_kernel_pack_fused = {
    .name = FR_PACK_FUSED_NAME,
    .param_bytes = sizeof(struct fr_pack_fused),
    .max_threads = FR_PACK_MAX_THREADS,
    .are_sound = fused_is_sound,
    .run_block = fused_block,
};
