// SPDX-License-Identifier: BSD-3-Clause
// The work of each GPU in a measurement: the patterns of modules coll and rndv, by the policy that
// they go by. A collective's root is the first GPU, and its data the first piece.
#include "config.h"

#include "tune_pack.h"

#include "fabrail/policy/coll_plan.h"
#include "tune_rig.h"

// The ways of a size of engines are these two.
static const enum fr_device_engine engines[FR_TUNE_WAYS] = {
    [FR_POLICY_KERNELS] = FR_ENGINE_SM, [FR_POLICY_COPY_ENGINES] = FR_ENGINE_CE};

static uintptr_t sent(const struct fr_tune_plan *plan, int gpu, int piece)
{
    return plan->rig->memory[gpu].send + (size_t)piece * plan->rig->piece_bytes;
}

static uintptr_t received(const struct fr_tune_plan *plan, int gpu, int piece)
{
    return plan->rig->memory[gpu].receive + (size_t)piece * plan->rig->piece_bytes;
}

static void add_piece(struct fr_tune_work *work, uintptr_t dst, uintptr_t src, size_t bytes)
{
    work->pieces[work->piece_count++] =
        (struct fr_device_push_piece){.dst = dst, .src = src, .bytes = bytes};
}

// One GPU's pieces of a pattern in which it stores the piece for each GPU to where that has its
// own. Each begins with another one.
static void add_pushes(const struct fr_tune_plan *plan, int from, struct fr_tune_work *work)
{
    int count = plan->rig->count;
    work->range = &plan->rig->send_range;
    for (int i = 0; i < count; i++) {
        int to = (from + 1 + i) % count;
        bool sends = plan->size == FR_SIZE_EXCHANGE_CE ||
                     (plan->size == FR_SIZE_SPREAD_CE && from == 0) ||
                     (plan->size == FR_SIZE_GATHER_CE && to == 0) ||
                     (plan->size == FR_SIZE_COPY_CE && to == from);
        if (sends)
            add_piece(work, received(plan, to, from), sent(plan, from, to), plan->bytes);
    }
}

static void plan_engines(struct fr_tune_plan *plan)
{
    for (int gpu = 0; gpu < plan->rig->count; gpu++) {
        for (int way = 0; way < FR_TUNE_WAYS; way++) {
            struct fr_tune_work *work = &plan->works[gpu][way][0];
            work->engine = engines[way];
            if (plan->size != FR_SIZE_MESSAGE_CE) {
                add_pushes(plan, gpu, work);
            } else if (gpu == 0) {
                work->range = &plan->rig->receive_range;
                add_piece(work, received(plan, 0, 1), sent(plan, 1, 0), plan->bytes);
            }
        }
    }
}

static void plan_bcast_step(struct fr_tune_plan *plan, int way, int step,
                            const struct fr_policy_tuning *tuning)
{
    const struct fr_policy_bcast bcast = {
        .bytes = plan->bytes, .ranks = plan->rig->count, .root = 0, .is_split = way == 1};
    for (int gpu = 0; gpu < plan->rig->count; gpu++) {
        struct fr_tune_work *work = &plan->works[gpu][way][step];
        uintptr_t source = gpu == 0 ? sent(plan, 0, 0) : received(plan, gpu, 0);
        struct fr_policy_send send;
        size_t largest = 0;
        for (int index = 1; index < plan->rig->count; index++) {
            if (!fr_policy_bcast_send(&bcast, gpu, step, index, &send))
                continue;
            add_piece(work, received(plan, send.rank, 0) + send.slice.first,
                      source + send.slice.first, send.slice.count);
            largest = send.slice.count > largest ? send.slice.count : largest;
        }
        enum fr_policy_size traffic =
            fr_policy_traffic(work->piece_count, step > 0 ? work->piece_count : 0);
        work->range = gpu == 0 ? &plan->rig->send_range : &plan->rig->receive_range;
        work->engine = engines[fr_policy_engine(
            largest, fr_policy_crossover(traffic, FR_BYTES_AUTO, tuning).bytes)];
    }
}

// An allreduce of whole numbers, whose sums wrap: by one GPU, or by all.
static void plan_reduction(struct fr_tune_plan *plan, int way)
{
    enum fr_reduce_row row = fr_device_reduce_row(FR_TYPE_U32, FR_OP_SUM);
    size_t elements = plan->bytes / sizeof(uint32_t);
    int count = plan->rig->count;
    for (int gpu = 0; gpu < count; gpu++) {
        struct fr_tune_work *work = &plan->works[gpu][way][0];
        struct fr_policy_slice slice =
            fr_policy_slice(elements, sizeof(uint32_t), count, gpu, way != 0);
        size_t offset = slice.first * sizeof(uint32_t);
        work->range = &plan->rig->send_range;
        work->reduction = (struct fr_device_reduction){
            .row = row,
            .mode = FR_REDUCE_ALL,
            .elements = slice.count,
            .sources = (unsigned)count,
            .targets = (unsigned)count,
        };
        for (int i = 0; i < count && slice.count > 0; i++) {
            work->reduction.source[i] = sent(plan, i, 0) + offset;
            work->reduction.target[i] = received(plan, (gpu + 1 + i) % count, 0) + offset;
        }
    }
}

void fr_tune_plan_make(struct fr_tune_plan *plan, const struct fr_policy_tuning *tuning)
{
    plan->steps[0] = 1;
    plan->steps[1] = plan->size == FR_SIZE_BCAST_SPLIT ? 2 : 1;
    if (plan->size < FR_SIZE_ENGINES)
        plan_engines(plan);
    for (int way = 0; way < FR_TUNE_WAYS; way++) {
        for (int step = 0; step < plan->steps[way] && plan->size == FR_SIZE_BCAST_SPLIT; step++)
            plan_bcast_step(plan, way, step, tuning);
        if (plan->size == FR_SIZE_REDUCE_SHARE)
            plan_reduction(plan, way);
    }
}

bool fr_tune_plan_has_part(const struct fr_tune_plan *plan, int gpu)
{
    if (plan->size == FR_SIZE_PACK_FIRST)
        return fr_tune_pack_has_part(gpu);
    for (int way = 0; way < FR_TUNE_WAYS; way++) {
        for (int step = 0; step < plan->steps[way]; step++) {
            const struct fr_tune_work *work = &plan->works[gpu][way][step];
            if (work->piece_count > 0 || work->reduction.elements > 0)
                return true;
        }
    }
    return false;
}

bool fr_tune_plan_writes(const struct fr_tune_plan *plan, int gpu, int piece, uint32_t *word)
{
    *word = fr_tune_word(piece, gpu);
    switch (plan->size) {
    case FR_SIZE_EXCHANGE_CE:
        return true;
    case FR_SIZE_SPREAD_CE:
        return piece == 0;
    case FR_SIZE_GATHER_CE:
        return gpu == 0;
    case FR_SIZE_MESSAGE_CE:
    case FR_SIZE_PACK_FIRST:
        return gpu == 0 && piece == 1;
    case FR_SIZE_COPY_CE:
        return gpu == piece;
    case FR_SIZE_BCAST_SPLIT:
        *word = fr_tune_word(0, 0);
        return gpu != 0 && piece == 0;
    default:
        *word = 0;
        for (int from = 0; from < plan->rig->count; from++)
            *word += fr_tune_word(from, 0);
        return piece == 0;
    }
}
