// SPDX-License-Identifier: BSD-3-Clause
// The kernels of src/device/cuda/pack.cu, done by the CPU. They have the same chunks for the same
// blocks, the same places from the same table, and a fault where the GPU would have one.
#include "config.h"

#include "sim.h"

#include "fabrail/device/shape_walk.h"

#include <sched.h>
#include <string.h>

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

// One side of a copy that has a shape, and where the CPU sees its table.
struct side {
    const struct fr_pack_shape *shape;
    const struct fr_pack_walk *walk;
    const void *table;
};

// A copy. The far side has no shape where the other side is packed, or has the same gaps.
struct copy {
    const struct fr_pack *pack;
    struct side near, far;
};

// The words that a thread has loaded and not yet stored, and their offsets.
struct round {
    uint32_t at, count;
    int64_t near[FR_PACK_LOADS], far[FR_PACK_LOADS];
};

// The threads of a block. The first of them have words of the chunk.
struct threads {
    struct fr_pack_cursor near[FR_PACK_MAX_THREADS], far[FR_PACK_MAX_THREADS];
    struct round rounds[FR_PACK_MAX_THREADS];
};

static void begin(const struct copy *copy, struct threads *threads, uint64_t first, unsigned thread)
{
    fr_pack_begin(copy->near.shape, first, &threads->near[thread]);
    if (copy->far.shape)
        fr_pack_begin(copy->far.shape, first, &threads->far[thread]);
}

static void find(const struct side *side, struct fr_pack_cursor *cursor, uint32_t count,
                 int64_t place[FR_PACK_LOADS])
{
    fr_pack_places(side->shape, side->walk, side->table, cursor, count, place);
}

// Finds the places of the next words of a thread, of which the first is byte `at` of the chunk.
static void look_ahead(const struct copy *copy, struct threads *threads, unsigned thread,
                       uint64_t first, uint32_t at, uint32_t bytes)
{
    const struct fr_pack *pack = copy->pack;
    struct round *round = &threads->rounds[thread];
    uint32_t left = at < bytes ? (bytes - at + pack->step - 1) / pack->step : 0;
    round->count = left < FR_PACK_LOADS ? left : FR_PACK_LOADS;
    find(&copy->near, &threads->near[thread], round->count, round->near);
    if (copy->far.shape)
        find(&copy->far, &threads->far[thread], round->count, round->far);
    for (uint32_t j = 0; j < round->count && !copy->far.shape; j++)
        round->far[j] = pack->keeps_gaps ? round->near[j]
                                         : (int64_t)(first - pack->first + at + j * pack->step);
}

// Copies word `j` of all threads. Words that follow one another on both sides are copied together.
static CUresult copy_words(CUcontext ctx, const struct copy *copy, const struct threads *threads,
                           unsigned count, uint32_t j)
{
    const struct fr_pack *pack = copy->pack;
    CUresult result = CUDA_SUCCESS;
    for (unsigned thread = 0, run; thread < count && result == CUDA_SUCCESS; thread += run) {
        const struct round *round = &threads->rounds[thread];
        if (round->count <= j)
            break;
        for (run = 1; thread + run < count && round[run].count > j &&
                      round[run].near[j] == round->near[j] + (int64_t)run * pack->width &&
                      round[run].far[j] == round->far[j] + (int64_t)run * pack->width;)
            run++;
        uint64_t user = pack->user + (uint64_t)round->near[j];
        uint64_t other = pack->packed + (uint64_t)round->far[j];
        result = pack->unpacks ? copy_run(ctx, user, other, run * pack->width)
                               : copy_run(ctx, other, user, run * pack->width);
    }
    return result;
}

static CUresult copy_chunk(CUcontext ctx, const struct copy *copy, struct threads *threads,
                           uint64_t first, uint32_t bytes)
{
    const struct fr_pack *pack = copy->pack;
    unsigned count = (bytes < pack->step ? bytes : pack->step) / pack->width;
    CUresult result = CUDA_SUCCESS;
    for (unsigned thread = 0; thread < count; thread++)
        begin(copy, threads, first + thread * pack->width, thread);
    for (uint32_t at = 0; at < bytes && result == CUDA_SUCCESS; at += FR_PACK_LOADS * pack->step) {
        for (unsigned thread = 0; thread < count; thread++)
            look_ahead(copy, threads, thread, first, at + thread * pack->width, bytes);
        for (uint32_t j = 0; j < FR_PACK_LOADS && result == CUDA_SUCCESS; j++)
            result = copy_words(ctx, copy, threads, count, j);
    }
    return result;
}

// Does what falls to one block of the launch, which is block `own` of `blocks` of the copy.
static CUresult share_block(CUcontext ctx, const struct copy *copy, struct sim_launch_shape shape,
                            unsigned own, unsigned blocks)
{
    const struct fr_pack *pack = copy->pack;
    uint64_t step = blocks * pack->chunk_bytes;
    CUresult result = CUDA_SUCCESS;
    struct threads threads;
    if (pack->step != shape.threads * pack->width)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t first = pack->first + own * pack->chunk_bytes;
         first < pack->last && result == CUDA_SUCCESS; first += step) {
        uint64_t left = pack->last - first;
        result = copy_chunk(ctx, copy, &threads, first,
                            (uint32_t)(left < pack->chunk_bytes ? left : pack->chunk_bytes));
    }
    return result;
}

// Returns word `i` of a gate; NULL where the kernel may not touch it.
static uint64_t *gate_word(CUcontext ctx, const struct fr_pack_gate *gate, uint32_t i)
{
    uint64_t address = gate->words + i * sizeof(uint64_t);
    const struct sim_range *range = sim_range_find(address);
    if (!range || address % sizeof(uint64_t) ||
        !sim_kernel_may(ctx, address, sizeof(uint64_t), gate->count == 0))
        return NULL;
    return (uint64_t *)(void *)(range->alias + (address - range->base));
}

// Returns whether the gate opens in time. The first block to run waits for it; others look once, so
// that some may find what others have not.
static CUresult wait_at(CUcontext ctx, const struct fr_pack_gate *gate, bool is_first,
                        bool *is_open)
{
    uint64_t begin = sim_now_ns(), least_ns = sim_knobs()->gate_ns;
    uint64_t spin_ns = gate->spin_ns > least_ns ? gate->spin_ns : least_ns;
    uint32_t come = 0;
    while (come < gate->count) {
        const uint64_t *word = gate_word(ctx, gate, come);
        if (!word)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == gate->value)
            come++;
        else if (!is_first || sim_now_ns() - begin >= spin_ns)
            break;
        else
            sched_yield();
    }
    *is_open = come == gate->count;
    return CUDA_SUCCESS;
}

static CUresult open_gate(CUcontext ctx, const struct fr_pack_gate *gate, unsigned block)
{
    uint64_t *word = gate_word(ctx, gate, block);
    if (!word)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    __atomic_store_n(word, gate->value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

// A block whose bytes another device packs, or that packs for another one.
static CUresult pack_block(CUcontext ctx, const struct copy *copy, const struct fr_pack_gate *gate,
                           struct sim_launch_shape shape)
{
    const struct fr_pack *pack = copy->pack;
    CUresult result = CUDA_SUCCESS;
    bool is_open = true;
    if (gate->count > 0)
        result = wait_at(ctx, gate, shape.block + 1 == shape.blocks, &is_open);
    if (result == CUDA_SUCCESS && !is_open)
        result = sim_kernel_tell(ctx, gate->late, pack->value, 0);
    else if (result == CUDA_SUCCESS)
        result = share_block(ctx, copy, shape, shape.block, shape.blocks);
    if (result == CUDA_SUCCESS && gate->words && gate->count == 0)
        result = open_gate(ctx, gate, shape.block);
    return result == CUDA_SUCCESS ? sim_kernel_tell(ctx, pack->words, pack->value, shape.block)
                                  : result;
}

// Finds a table in device memory. Returns false if the kernel may not read it.
static bool find_table(CUcontext ctx, uint64_t address, struct side *side)
{
    if (!side->shape->blocks)
        return true;
    if (!sim_kernel_may(ctx, address, fr_pack_table_bytes(side->shape), false))
        return false;
    const struct sim_range *range = sim_range_find(address);
    side->table = range->alias + (address - range->base);
    return true;
}

static CUresult plain_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack_plain *params = given;
    const struct fr_pack *pack = &params->pack;
    struct copy copy = {.pack = pack, .near = {&pack->shape, &pack->walk, NULL}};
    return find_table(ctx, pack->table, &copy.near) ? pack_block(ctx, &copy, &params->gate, shape)
                                                    : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult share_fused(CUcontext ctx, const struct fr_pack_fused *params,
                            struct sim_launch_shape shape, unsigned own, unsigned blocks)
{
    const struct fr_pack *pack = &params->pack;
    struct copy copy = {.pack = pack,
                        .near = {&pack->shape, &pack->walk, NULL},
                        .far = {&params->far, &params->far_walk, NULL}};
    bool found =
        find_table(ctx, pack->table, &copy.near) && find_table(ctx, params->far_table, &copy.far);
    CUresult result =
        found ? share_block(ctx, &copy, shape, own, blocks) : CUDA_ERROR_ILLEGAL_ADDRESS;
    return result == CUDA_SUCCESS ? sim_kernel_tell(ctx, pack->words, pack->value, shape.block)
                                  : result;
}

static CUresult fused_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    return share_fused(ctx, given, shape, shape.block, shape.blocks);
}

static CUresult many_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack_many *params = given;
    uint32_t i = 0;
    if (shape.block >= params->first[params->count])
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    while (params->first[i + 1] <= shape.block)
        i++;
    return share_fused(ctx, &params->copies[i], shape, shape.block - params->first[i],
                       params->first[i + 1] - params->first[i]);
}

static CUresult inline_block(CUcontext ctx, const void *given, struct sim_launch_shape shape)
{
    const struct fr_pack_inline *params = given;
    const struct copy copy = {.pack = &params->pack,
                              .near = {&params->pack.shape, &params->pack.walk, params->table}};
    return pack_block(ctx, &copy, &params->gate, shape);
}

static bool walk_is_sound(const struct fr_pack_shape *shape, const struct fr_pack_walk *walk,
                          uint32_t step)
{
    struct fr_pack_walk right = fr_pack_walk_of(shape, step);
    return step > 0 && step < FR_PACK_SMALL && memcmp(walk, &right, sizeof(right)) == 0;
}

static bool shape_is_sound(const struct fr_pack_shape *shape, uint16_t width)
{
    bool sound = shape->levels >= 1 && shape->levels <= FR_PACK_LEVELS && shape->period > 0;
    uint64_t all = shape->period | (uint64_t)shape->offset;
    for (uint32_t i = 0; sound && i < shape->levels; i++) {
        sound = i + 1 == shape->levels || shape->level[i].count > 0;
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
           shape_is_sound(&pack->shape, pack->width) &&
           walk_is_sound(&pack->shape, &pack->walk, pack->step);
}

static bool has_its_table(const struct fr_pack *pack)
{
    return is_sound(pack) && !pack->is_inline && (!pack->shape.blocks || pack->table);
}

// A kernel that waits for another one cannot do without words for the host.
static bool gate_is_sound(const struct fr_pack *pack, const struct fr_pack_gate *gate)
{
    return gate->count == 0 || (pack->unpacks && pack->words && gate->words && gate->late &&
                                gate->count <= FR_PACK_MAX_THREADS);
}

static bool plain_is_sound(const void *given)
{
    const struct fr_pack_plain *params = given;
    return has_its_table(&params->pack) && gate_is_sound(&params->pack, &params->gate);
}

static bool inline_is_sound(const void *given)
{
    const struct fr_pack_inline *params = given;
    return is_sound(&params->pack) && params->pack.is_inline &&
           gate_is_sound(&params->pack, &params->gate) &&
           fr_pack_table_bytes(&params->pack.shape) <= sizeof(params->table);
}

static bool fused_is_sound(const void *given)
{
    const struct fr_pack_fused *params = given;
    return has_its_table(&params->pack) && params->pack.unpacks && !params->pack.keeps_gaps &&
           (!params->far.blocks || params->far_table) &&
           shape_is_sound(&params->far, params->pack.width) &&
           walk_is_sound(&params->far, &params->far_walk, params->pack.step);
}

static bool many_is_sound(const void *given)
{
    const struct fr_pack_many *params = given;
    bool sound = params->count >= 1 && params->count <= FR_PACK_MANY && params->first[0] == 0;
    for (uint32_t i = 0; sound && i < params->count; i++)
        sound = params->first[i] < params->first[i + 1] && fused_is_sound(&params->copies[i]) &&
                params->copies[i].pack.words == params->copies[0].pack.words;
    return sound;
}

const struct sim_kernel sim_kernel_pack = {
    .name = FR_PACK_NAME,
    .param_bytes = sizeof(struct fr_pack_plain),
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
const struct sim_kernel sim_kernel_pack_many = {
    .name = FR_PACK_MANY_NAME,
    .param_bytes = sizeof(struct fr_pack_many),
    .max_threads = FR_PACK_MAX_THREADS,
    .are_sound = many_is_sound,
    .run_block = many_block,
};
