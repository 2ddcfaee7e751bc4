// SPDX-License-Identifier: BSD-3-Clause
// Packing and unpacking by kernel: how a copy is divided into chunks, and the launch.
#include "config.h"

#include "fabrail/device/pack.h"
#include "fabrail/device/shape_walk.h"

#include "device/device_int.h"
#include "fabrail/core/meter.h"

#include <string.h>

// Another block pays for itself about when each thread has a few loads and stores of its own.
enum {
    BLOCK_LOADS = FR_KERNEL_THREADS,
    DEFAULT_BLOCKS = 32,
    CHUNK_MULTIPLE = 512,
    MOST_CHUNK = 1 << 20
};

struct fr_pack_divisor fr_device_pack_divisor(uint64_t value)
{
    struct fr_pack_divisor divisor = {.value = value};
    while (((uint64_t)1 << divisor.shift) < value)
        divisor.shift++;
    uint64_t scaled = (uint64_t)1 << (31 + divisor.shift);
    divisor.multiplier = (uint32_t)((scaled + value - 1) / value);
    return divisor;
}

static uint16_t width_of(const struct fr_device_packing *packing)
{
    uint64_t all = packing->shape->align | packing->user | packing->packed | packing->first |
                   packing->last | FR_PACK_MAX_WIDTH;
    if (packing->far != NULL)
        all |= packing->far->align;
    return (uint16_t)(all & (0 - all));
}

// Parameters of any of the kernels.
union parameters {
    struct fr_pack pack;
    struct fr_pack_plain plain;
    struct fr_pack_inline with_table;
    struct fr_pack_fused fused;
};
_Static_assert(sizeof(union parameters) <= 4096, "what every driver takes");

// Returns the shape without those outermost levels along which the first `last` packed bytes do not
// go on.
static struct fr_pack_shape trimmed(const struct fr_pack_shape *shape, uint64_t last)
{
    struct fr_pack_shape result = *shape;
    uint64_t bytes[FR_PACK_LEVELS] = {shape->period}; // of one unit of each level
    for (uint32_t i = 1; i < shape->levels; i++)
        if (__builtin_mul_overflow(bytes[i - 1], shape->level[i - 1].count, &bytes[i]))
            bytes[i] = UINT64_MAX;
    while (result.levels > 1 && last <= bytes[result.levels - 1])
        result.levels--;
    return result;
}

static void fill(const struct fr_device_packing *packing, enum fr_device_direction direction,
                 union parameters *params)
{
    uint16_t width = width_of(packing);
    params->pack = (struct fr_pack){
        .user = packing->user,
        .packed = packing->packed,
        .table = packing->table,
        .first = packing->first,
        .last = packing->last,
        .step = (uint32_t)FR_KERNEL_THREADS * width,
        .width = width,
        .unpacks = direction == FR_FROM_STAGE,
        .keeps_gaps = packing->keeps_gaps,
        .is_inline = packing->small_table != NULL,
        .shape = trimmed(packing->shape, packing->last),
    };
    params->pack.walk = fr_pack_walk_of(&params->pack.shape, params->pack.step);
    if (packing->far == NULL)
        params->plain.gate = (struct fr_pack_gate){.words = 0};
    if (packing->small_table != NULL)
        memcpy(params->with_table.table, packing->small_table, fr_pack_table_bytes(packing->shape));
    if (packing->far != NULL) {
        params->fused.far_table = packing->far_table;
        params->fused.far = trimmed(packing->far, packing->last);
        params->fused.far_walk = fr_pack_walk_of(&params->fused.far, params->pack.step);
    }
}

unsigned fr_device_pack_most_blocks(unsigned max_sms)
{
    unsigned most = max_sms > 0 ? max_sms : DEFAULT_BLOCKS;
    return most < FR_PUSH_MAX_BLOCKS ? most : FR_PUSH_MAX_BLOCKS;
}

unsigned fr_device_gate_words(unsigned max_sms)
{
    return fr_device_pack_most_blocks(max_sms);
}

unsigned fr_device_pack_part(struct fr_pack *pack, unsigned most)
{
    uint64_t bytes = pack->last - pack->first;
    uint64_t block_bytes = (uint64_t)BLOCK_LOADS * pack->width;
    uint64_t blocks = (bytes + block_bytes - 1) / block_bytes;
    if (blocks > most)
        blocks = most;
    uint64_t chunk = (bytes + blocks - 1) / blocks;
    chunk = (chunk + CHUNK_MULTIPLE - 1) / CHUNK_MULTIPLE * CHUNK_MULTIPLE;
    pack->chunk_bytes = chunk < MOST_CHUNK ? chunk : MOST_CHUNK;
    uint64_t chunks = (bytes + pack->chunk_bytes - 1) / pack->chunk_bytes;
    return (unsigned)(chunks < blocks ? chunks : blocks);
}

void fr_device_pack_fill_fused(const struct fr_device_packing *packing,
                               struct fr_pack_fused *params)
{
    union parameters all;
    fill(packing, FR_FROM_STAGE, &all);
    *params = all.fused;
}

// Fills in the words for which a launch waits, or by which it tells another device that it has
// packed its bytes. Returns whether it does that.
static bool fill_gate(const struct fr_device_batch *batch, const struct fr_pack_gate *gate,
                      const uint64_t *late, struct fr_pack_gate *params)
{
    if (gate != NULL) {
        *params = *gate;
        params->late = (uintptr_t)late;
        return false;
    }
    params->words = batch->gate_words;
    params->value = batch->gate_value;
    return batch->gate_words != 0;
}

// Launches the kernel. The first launch of a batch tells the host itself that it is done, unless
// something comes behind it. Only such a launch waits for another device, or tells one: then it
// has a block for each word of the gate, some of which may have no bytes.
static bool launch(struct fr_device_batch *batch, struct fr_device_kernels *kernels,
                   struct fr_device_stream *stream, enum fr_device_kernel kernel,
                   const struct fr_pack_gate *gate, union parameters *params, unsigned max_sms)
{
    struct fr_device_signal signal = {.kernels = kernels, .stream = stream, .slot = -1};
    unsigned most = fr_device_pack_most_blocks(max_sms);
    most = gate != NULL && most == FR_PUSH_MAX_BLOCKS ? most - 1 : most;
    signal.blocks = fr_device_pack_part(&params->pack, most);
    if (batch->signal.stream == NULL)
        signal.slot = fr_device_words_borrow(kernels, &signal.value);
    if (signal.slot < 0 && gate != NULL)
        return false;
    if (signal.slot >= 0) {
        uint64_t *words = fr_device_words_of(kernels, signal.slot);
        params->pack.words = (uintptr_t)words;
        params->pack.value = signal.value;
        if (gate != NULL)
            signal.late = &words[FR_PUSH_MAX_BLOCKS - 1];
        if (kernel != FR_KERNEL_PACK_FUSED)
            signal.opens = fill_gate(batch, gate, signal.late, &params->plain.gate);
        if (signal.opens)
            signal.blocks = fr_device_gate_words(max_sms);
    }
    bool taken = kernels->ops->launch(kernels, kernel, signal.blocks, params, stream) == 0;
    if (taken && signal.slot >= 0) {
        signal.is_last = true;
        batch->signal = signal;
    } else if (signal.slot >= 0) {
        fr_device_words_return(kernels, signal.slot);
    }
    if (!taken)
        fr_warn_once("a device has refused a kernel that packs datatypes, so copies of the driver "
                     "do it");
    return taken;
}

static bool pack_here(struct fr_device_batch *batch, const struct fr_device_scope *scope,
                      const struct fr_device_range *range, enum fr_device_direction direction,
                      const struct fr_device_packing *packing, unsigned max_sms)
{
    union parameters params;
    struct fr_device_kernels *kernels = fr_device_kernels_get(scope, FR_IMAGE_PACK);
    if (kernels == NULL)
        return false;
    if (packing->low < packing->high &&
        scope->ops->sync_app_work(range, packing->low, packing->high) != FR_OK)
        return false;
    struct fr_device_stream *stream = fr_device_batch_lane(batch, scope, direction);
    if (stream == NULL || batch->status != FR_OK)
        return false;
    fill(packing, direction, &params);
    enum fr_device_kernel kernel = packing->far != NULL           ? FR_KERNEL_PACK_FUSED
                                   : packing->small_table != NULL ? FR_KERNEL_PACK_INLINE
                                                                  : FR_KERNEL_PACK;
    return launch(batch, kernels, stream, kernel, packing->gate, &params, max_sms);
}

bool fr_device_batch_pack(struct fr_device_batch *batch, const struct fr_device_range *range,
                          enum fr_device_direction direction,
                          const struct fr_device_packing *packing, unsigned max_sms)
{
    struct fr_device_scope scope;
    bool started = packing->first >= packing->last || batch->status != FR_OK;
    if (started)
        return true;
    uint64_t begin = fr_core_meter_begin();
    if (fr_device_scope_enter(range, &scope) == FR_OK) {
        started = pack_here(batch, &scope, range, direction, packing, max_sms);
        fr_device_scope_leave(&scope);
    }
    fr_core_meter_end(FR_METER_COPY, begin);
    return started || batch->status != FR_OK;
}
