// SPDX-License-Identifier: BSD-3-Clause
// The measurements: a thread for each GPU that moves bytes, as there is a rank for each in a job,
// which all begin at once. The two ways take turns round by round, so that what disturbs the
// machine disturbs both.
#include "config.h"

#include "tune_plan.h"
#include "tune_rig.h"

#include "command.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 5, LOOKS = 256, EDGE_BYTES = 65536 };

#define WIPED 0xababababu

// What one thread moves.
struct part {
    struct measurement *all;
    pthread_t thread;
    int gpu; // by its place in the rig
    double us[FR_TUNE_WAYS][FR_TUNE_MAX_ROUNDS];
};

struct measurement {
    struct fr_tune_plan plan;
    int rounds;
    int count; // of parts
    _Atomic unsigned arrived __attribute__((aligned(64)));
    _Atomic unsigned round __attribute__((aligned(64)));
    _Atomic bool failed __attribute__((aligned(64)));
    struct part parts[FR_TUNE_MAX_GPUS] __attribute__((aligned(64)));
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

// Returns false when some thread has failed.
static bool meet(struct measurement *all)
{
    unsigned round = atomic_load(&all->round);
    if (atomic_fetch_add(&all->arrived, 1) + 1 == (unsigned)all->count) {
        atomic_store(&all->arrived, 0);
        atomic_store(&all->round, round + 1);
    }
    for (unsigned looks = 1; atomic_load_explicit(&all->round, memory_order_acquire) == round;
         looks++) {
        if (atomic_load_explicit(&all->failed, memory_order_relaxed))
            return false;
        if (looks % LOOKS == 0)
            sched_yield();
    }
    return !atomic_load_explicit(&all->failed, memory_order_relaxed);
}

static enum fr_status work_off(const struct fr_tune_plan *plan, int gpu, int way, int step)
{
    const struct fr_tune_work *work = &plan->works[gpu][way][step];
    unsigned max_sms = (unsigned)fr_core_settings()->peer_sms;
    if (plan->size == FR_SIZE_REDUCE_SHARE)
        return fr_device_reduce(work->range, &work->reduction, max_sms);
    return fr_device_push(work->range, work->pieces, work->piece_count, work->engine, max_sms);
}

// Writes how long it took until all threads were done. They meet between steps as well.
static bool move(struct part *part, int way, double *us)
{
    struct measurement *all = part->all;
    if (!meet(all))
        return false;
    double start = now_us();
    for (int step = 0; step < all->plan.steps[way]; step++) {
        if (work_off(&all->plan, part->gpu, way, step) != FR_OK)
            atomic_store(&all->failed, true);
        if (!meet(all))
            return false;
    }
    *us = now_us() - start;
    return true;
}

static void *serve(void *cookie)
{
    struct part *part = cookie;
    void *context = part->all->plan.rig->gpus[part->gpu].context;
    if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(context)))
        atomic_store(&part->all->failed, true);
    for (int round = -WARM_UP; round < part->all->rounds; round++) {
        for (int way = 0; way < FR_TUNE_WAYS; way++) {
            double us = 0;
            if (!move(part, way, &us))
                return NULL;
            if (round >= 0)
                part->us[way][round] = us;
        }
    }
    return NULL;
}

static bool run_threads(struct measurement *all)
{
    int started = 0;
    for (; started < all->count; started++) {
        struct part *part = &all->parts[started];
        if (pthread_create(&part->thread, NULL, serve, part) != 0) {
            atomic_store(&all->failed, true);
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(all->parts[i].thread, NULL);
    return !atomic_load(&all->failed) ||
           fr_tool_complain("a transfer of %zu bytes failed", all->plan.bytes);
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
    uint32_t word;
    for (int to = 0; to < rig->count; to++) {
        const struct fr_tune_gpu *gpu = &rig->gpus[to];
        if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(gpu->context)))
            return false;
        for (int i = 0; i < rig->count; i++) {
            uintptr_t piece = gpu->receive + (size_t)i * rig->piece_bytes;
            if (fr_tune_plan_writes(plan, to, i, &word) &&
                !fr_tune_ok("cuMemsetD32",
                            fr_tune_cu.cuMemsetD32_v2(piece, WIPED, looked_at(plan) / 4)))
                return false;
        }
        if (fr_device_quiesce(&gpu->receive_range, gpu->receive,
                              (size_t)rig->count * rig->piece_bytes) != FR_OK)
            return fr_tool_complain("a GPU does not come to an end");
    }
    return true;
}

// Compares words of one piece from `first` on, up to `bytes` bytes of it.
static bool compare(const struct fr_tune_plan *plan, int to, int piece, uint32_t word, size_t first,
                    size_t bytes)
{
    static uint32_t words[EDGE_BYTES / 4 + 1];
    const struct fr_tune_gpu *gpu = &plan->rig->gpus[to];
    uintptr_t address = gpu->receive + (size_t)piece * plan->rig->piece_bytes + first;
    if (!fr_tune_ok("cuMemcpyDtoH", fr_tune_cu.cuMemcpyDtoH_v2(words, address, bytes)))
        return false;
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t wanted = first + i * 4 < plan->bytes ? word : WIPED;
        if (words[i] != wanted)
            return fr_tool_complain("wrong bytes at %zu of %zu in GPU %d's piece %d (%s)",
                                    first + i * 4, plan->bytes, gpu->device, piece,
                                    fr_policy_tuning_name(plan->size));
    }
    return true;
}

// Looks at either end of each piece.
static bool verify(const struct fr_tune_plan *plan)
{
    const struct fr_tune_rig *rig = plan->rig;
    size_t bytes = looked_at(plan);
    size_t edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
    uint32_t word;
    for (int to = 0; to < rig->count; to++) {
        if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(rig->gpus[to].context)))
            return false;
        for (int piece = 0; piece < rig->count; piece++) {
            if (fr_tune_plan_writes(plan, to, piece, &word) &&
                (!compare(plan, to, piece, word, 0, edge) ||
                 !compare(plan, to, piece, word, bytes - edge, edge)))
                return false;
        }
    }
    return true;
}

// One by one and untimed, to see what each way by itself writes.
static bool try_ways(const struct fr_tune_plan *plan)
{
    for (int way = 0; way < FR_TUNE_WAYS; way++) {
        if (!wipe(plan))
            return false;
        for (int step = 0; step < plan->steps[way]; step++) {
            for (int gpu = 0; gpu < plan->rig->count; gpu++) {
                if (work_off(plan, gpu, way, step) != FR_OK)
                    return fr_tool_complain("a transfer of %zu bytes failed", plan->bytes);
            }
        }
        if (!verify(plan))
            return false;
    }
    return true;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_slowest(const struct measurement *all, int way)
{
    double worst[FR_TUNE_MAX_ROUNDS];
    for (int round = 0; round < all->rounds; round++) {
        worst[round] = 0;
        for (int i = 0; i < all->count; i++) {
            double us = all->parts[i].us[way][round];
            worst[round] = us > worst[round] ? us : worst[round];
        }
    }
    qsort(worst, (size_t)all->rounds, sizeof(worst[0]), compare_times);
    return worst[all->rounds / 2];
}

static int rounds_of(const struct fr_tune_rig *rig, size_t bytes)
{
    if (rig->is_simulated)
        return 3;
    return bytes <= 65536 ? FR_TUNE_MAX_ROUNDS : bytes <= (4u << 20) ? 51 : 15;
}

bool fr_tune_measures(const struct fr_tune_rig *rig, enum fr_policy_size size)
{
    if (size == FR_SIZE_BCAST_SPLIT)
        return rig->count > 2; // among two nobody can hand anything on
    return size < FR_SIZE_ENGINES ? rig->has_kernels
                                  : size == FR_SIZE_REDUCE_SHARE && rig->can_reduce;
}

bool fr_tune_measure(const struct fr_tune_rig *rig, enum fr_policy_size size, size_t bytes,
                     const struct fr_policy_tuning *tuning, double us[FR_TUNE_WAYS])
{
    static struct measurement all; // too large for a stack
    memset(&all, 0, sizeof(all));
    all.plan.rig = rig;
    all.plan.size = size;
    all.plan.bytes = bytes;
    all.rounds = rounds_of(rig, bytes);
    fr_tune_plan_make(&all.plan, tuning);
    for (int gpu = 0; gpu < rig->count; gpu++) {
        if (fr_tune_plan_has_part(&all.plan, gpu))
            all.parts[all.count++] = (struct part){.all = &all, .gpu = gpu};
    }
    if (!try_ways(&all.plan) || !run_threads(&all) || !verify(&all.plan))
        return false;
    for (int way = 0; way < FR_TUNE_WAYS; way++)
        us[way] = median_of_slowest(&all, way);
    return true;
}
