// SPDX-License-Identifier: BSD-3-Clause
// The time of a message of short blocks from the second GPU to the first: the first one reads them
// where they are, or the second one packs them while the first one's kernel waits at a gate. The
// blocks have 8 bytes and stand 16 apart, so that NVLink carries as many bytes in vain.
#include "config.h"

#include "tune_pack.h"

#include "fabrail/device/pack.h"
#include "tune_rig.h"

enum { RECEIVER, SENDER };
enum { BLOCK_BYTES = 8, SPIN_NS = 100000 };
#define GATE_VALUE UINT64_C(0xfab6a7e5c0de0000) // plus the number of the transfer

// The blocks of what is sent, which are read again and again where they are too few.
static struct fr_pack_shape blocks_of(const struct fr_tune_plan *plan)
{
    const uint64_t stride = 2 * (uint64_t)BLOCK_BYTES;
    return (struct fr_pack_shape){
        .period = BLOCK_BYTES,
        .levels = 2,
        .align = BLOCK_BYTES,
        .level = {{.count = plan->rig->piece_bytes / stride, .stride = (int64_t)stride}},
    };
}

// Bytes without gaps.
static struct fr_pack_shape line_of(const struct fr_tune_plan *plan)
{
    return (struct fr_pack_shape){
        .period = plan->bytes,
        .levels = 1,
        .align = FR_PACK_MAX_WIDTH,
        .level = {{.stride = (int64_t)plan->bytes}},
    };
}

static bool launch(const struct fr_tune_plan *plan, const struct fr_device_range *range,
                   enum fr_device_direction direction, const struct fr_device_packing *packing,
                   struct fr_device_batch *batch)
{
    return fr_device_batch_pack(batch, range, direction, packing,
                                (unsigned)fr_core_settings()->peer_sms) ||
           fr_tune_fail(plan->rig->board, "no kernel packs %zu bytes", plan->bytes);
}

static bool finish(const struct fr_tune_plan *plan, struct fr_device_batch *batch)
{
    return fr_device_batch_finish(batch) == FR_OK ||
           fr_tune_fail(plan->rig->board, "a transfer of %zu bytes failed", plan->bytes);
}

static uintptr_t target(const struct fr_tune_plan *plan)
{
    return plan->rig->memory[RECEIVER].receive + plan->rig->piece_bytes;
}

// Packs blocks of what is sent, and opens the gate of transfer `number`; 0: there is no gate.
static bool pack(const struct fr_tune_plan *plan, const struct fr_device_range *range,
                 uintptr_t packed, uint64_t number)
{
    const struct fr_tune_rig *rig = plan->rig;
    const struct fr_pack_shape blocks = blocks_of(plan);
    const struct fr_device_packing packing = {
        .shape = &blocks, .user = rig->memory[SENDER].send, .packed = packed, .last = plan->bytes};
    struct fr_device_batch batch;
    fr_device_batch_begin(&batch);
    if (number > 0)
        fr_device_batch_set_gate(&batch, packed + rig->piece_bytes, GATE_VALUE + number);
    return launch(plan, range, FR_TO_STAGE, &packing, &batch) && finish(plan, &batch);
}

// Copies what the sender packs, once its gate is open. A kernel that is launched long before waits
// in vain, and is launched again.
static bool fetch(const struct fr_tune_plan *plan, uint64_t number)
{
    const struct fr_tune_rig *rig = plan->rig;
    const struct fr_pack_shape line = line_of(plan);
    uintptr_t packed = rig->memory[SENDER].receive;
    const struct fr_pack_gate gate = {
        .words = packed + rig->piece_bytes,
        .value = GATE_VALUE + number,
        .count = fr_device_gate_words((unsigned)fr_core_settings()->peer_sms),
        .spin_ns = SPIN_NS};
    const struct fr_device_packing packing = {
        .shape = &line, .user = target(plan), .packed = packed, .last = plan->bytes, .gate = &gate};
    struct fr_device_batch batch;
    do {
        fr_device_batch_begin(&batch);
        if (!launch(plan, &rig->receive_range, FR_FROM_STAGE, &packing, &batch) ||
            !finish(plan, &batch))
            return false;
    } while (fr_device_batch_is_late(&batch) && !atomic_load(&rig->board->failed));
    return true;
}

bool fr_tune_pack_has_part(int gpu)
{
    return gpu == RECEIVER || gpu == SENDER;
}

bool fr_tune_pack_work(const struct fr_tune_plan *plan, int way)
{
    static uint64_t number; // alike in all processes
    int own = plan->rig->own;
    number += way == FR_TUNE_PACKED;
    if (way != FR_TUNE_PACKED)
        return own != RECEIVER || pack(plan, &plan->rig->receive_range, target(plan), 0);
    if (own == SENDER)
        return pack(plan, &plan->rig->send_range, plan->rig->memory[SENDER].receive, number);
    return own != RECEIVER || fetch(plan, number);
}
