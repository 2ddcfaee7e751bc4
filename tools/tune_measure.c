// SPDX-License-Identifier: BSD-3-Clause
// The measurements: the processes of all GPUs that move bytes begin at once. The two ways take
// turns round by round, so that what disturbs the machine disturbs both.
#include "config.h"

#include "fabrail/core/time.h"
#include "tune_pack.h"
#include "tune_rig.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, EDGE_BYTES = 65536 };

#define WIPED 0xababababu

static double now_us(void)
{
    return (double)fr_time_ns() * 1e-3;
}

static bool work_off(const struct fr_tune_plan *plan, int way, int step)
{
    const struct fr_tune_rig *rig = plan->rig;
    const struct fr_tune_work *work = &plan->works[rig->own][way][step];
    if (plan->size == FR_SIZE_PACK_FIRST)
        return fr_tune_pack_work(plan, way);
    unsigned max_sms = (unsigned)fr_core_settings()->peer_sms;
    enum fr_status status =
        plan->size == FR_SIZE_REDUCE_SHARE
            ? fr_device_reduce(work->range, &work->reduction, max_sms)
            : fr_device_push(work->range, work->pieces, work->piece_count, work->engine, max_sms);
    return status == FR_OK ||
           fr_tune_fail(rig->board, "a transfer of %zu bytes failed", plan->bytes);
}

// Writes how long it took until all processes that have a part were done. They meet between steps
// as well.
static bool move(const struct fr_tune_plan *plan, int parts, int way, double *us)
{
    struct fr_tune_board *board = plan->rig->board;
    if (!fr_tune_meet(board, &board->parts, parts))
        return false;
    double start = now_us();
    for (int step = 0; step < plan->steps[way]; step++) {
        if (!work_off(plan, way, step) || !fr_tune_meet(board, &board->parts, parts))
            return false;
    }
    *us = now_us() - start;
    return true;
}

static bool time_ways(const struct fr_tune_plan *plan, int parts, int rounds)
{
    const struct fr_tune_rig *rig = plan->rig;
    for (int round = -WARM_UP; round < rounds; round++) {
        for (int way = 0; way < FR_TUNE_WAYS; way++) {
            double us = 0;
            if (!move(plan, parts, way, &us))
                return false;
            if (round >= 0)
                rig->board->us[rig->own][way][round] = us;
        }
    }
    return true;
}

// Bytes of a piece that are looked at: those moved and a word behind them, where there is one.
static size_t looked_at(const struct fr_tune_plan *plan)
{
    return plan->bytes < plan->rig->piece_bytes ? plan->bytes + 4 : plan->bytes;
}

// Overwrites what is to come, and waits until that is done, since other GPUs write there next.
static bool wipe(const struct fr_tune_plan *plan)
{
    const struct fr_tune_rig *rig = plan->rig;
    uintptr_t receive = rig->memory[rig->own].receive;
    uint32_t word;
    for (int i = 0; i < rig->count; i++) {
        uintptr_t piece = receive + (size_t)i * rig->piece_bytes;
        if (fr_tune_plan_writes(plan, rig->own, i, &word) &&
            !fr_tune_ok(rig->board, "cuMemsetD32",
                        fr_tune_cu.cuMemsetD32_v2(piece, WIPED, looked_at(plan) / 4)))
            return false;
    }
    return fr_device_sync_app_work(&rig->receive_range, receive,
                                   (size_t)rig->count * rig->piece_bytes) == FR_OK ||
           fr_tune_fail(rig->board, "a GPU does not come to an end");
}

// Compares words of one piece from `first` on, up to `bytes` bytes of it.
static bool compare(const struct fr_tune_plan *plan, int piece, uint32_t word, size_t first,
                    size_t bytes)
{
    static uint32_t words[EDGE_BYTES / 4 + 1];
    const struct fr_tune_rig *rig = plan->rig;
    uintptr_t address = rig->memory[rig->own].receive + (size_t)piece * rig->piece_bytes + first;
    if (!fr_tune_ok(rig->board, "cuMemcpyDtoH", fr_tune_cu.cuMemcpyDtoH_v2(words, address, bytes)))
        return false;
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t wanted = first + i * 4 < plan->bytes ? word : WIPED;
        if (words[i] != wanted)
            return fr_tune_fail(rig->board, "wrong bytes at %zu of %zu in GPU %d's piece %d (%s)",
                                first + i * 4, plan->bytes, rig->gpus->devices[rig->own], piece,
                                fr_policy_tuning_name(plan->size));
    }
    return true;
}

// Looks at either end of each piece that has come here.
static bool verify(const struct fr_tune_plan *plan)
{
    const struct fr_tune_rig *rig = plan->rig;
    size_t bytes = looked_at(plan);
    size_t edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
    uint32_t word;
    for (int piece = 0; piece < rig->count; piece++) {
        if (fr_tune_plan_writes(plan, rig->own, piece, &word) &&
            (!compare(plan, piece, word, 0, edge) ||
             !compare(plan, piece, word, bytes - edge, edge)))
            return false;
    }
    return true;
}

// One by one and untimed, to see what each way by itself writes.
static bool try_ways(const struct fr_tune_plan *plan)
{
    const struct fr_tune_rig *rig = plan->rig;
    for (int way = 0; way < FR_TUNE_WAYS; way++) {
        if (!wipe(plan) || !fr_tune_meet_all(rig))
            return false;
        for (int step = 0; step < plan->steps[way]; step++) {
            if (!work_off(plan, way, step) || !fr_tune_meet_all(rig))
                return false;
        }
        if (!verify(plan) || !fr_tune_meet_all(rig))
            return false;
    }
    return true;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_slowest(const struct fr_tune_plan *plan, int way, int rounds)
{
    const struct fr_tune_rig *rig = plan->rig;
    double worst[FR_TUNE_MAX_ROUNDS];
    for (int round = 0; round < rounds; round++) {
        worst[round] = 0;
        for (int gpu = 0; gpu < rig->count; gpu++) {
            double us = fr_tune_plan_has_part(plan, gpu) ? rig->board->us[gpu][way][round] : 0;
            worst[round] = us > worst[round] ? us : worst[round];
        }
    }
    qsort(worst, (size_t)rounds, sizeof(worst[0]), compare_times);
    return worst[rounds / 2];
}

static int rounds_of(const struct fr_tune_rig *rig, size_t bytes)
{
    if (rig->is_simulated)
        return 3;
    return bytes <= 65536 ? FR_TUNE_MAX_ROUNDS : bytes <= (4u << 20) ? 51 : 15;
}

bool fr_tune_measures(const struct fr_tune_rig *rig, enum fr_policy_size size)
{
    switch (size) {
    case FR_SIZE_BCAST_SPLIT:
        return rig->count > 2; // among two nobody can hand anything on
    case FR_SIZE_REDUCE_SHARE:
        return rig->can_reduce;
    case FR_SIZE_PACK_FIRST:
        return rig->can_pack;
    default:
        return size < FR_SIZE_ENGINES && rig->has_kernels;
    }
}

bool fr_tune_measure(const struct fr_tune_rig *rig, enum fr_policy_size size, size_t bytes,
                     const struct fr_policy_tuning *tuning, double us[FR_TUNE_WAYS])
{
    static struct fr_tune_plan plan; // too large for a stack
    int rounds = rounds_of(rig, bytes), parts = 0;
    memset(&plan, 0, sizeof(plan));
    plan.rig = rig;
    plan.size = size;
    plan.bytes = bytes;
    fr_tune_plan_make(&plan, tuning);
    for (int gpu = 0; gpu < rig->count; gpu++)
        parts += fr_tune_plan_has_part(&plan, gpu);
    bool has_part = fr_tune_plan_has_part(&plan, rig->own);
    if (!try_ways(&plan) || (has_part && !time_ways(&plan, parts, rounds)) ||
        !fr_tune_meet_all(rig) || !verify(&plan))
        return false;
    for (int way = 0; way < FR_TUNE_WAYS; way++)
        us[way] = median_of_slowest(&plan, way, rounds);
    return fr_tune_meet_all(rig); // before the next times are written
}
