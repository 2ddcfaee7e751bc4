// SPDX-License-Identifier: BSD-3-Clause
// The measurements: a thread for each GPU that moves bytes, as there is a rank for each in a job,
// which all begin at once. The engines take turns round by round, so that what disturbs the machine
// disturbs both.
#include "config.h"

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
    const struct fr_tune_gpu *gpu;
    const struct fr_device_range *range;
    struct fr_device_push_piece pieces[FR_TUNE_MAX_GPUS];
    size_t piece_count;
    double us[FR_TUNE_ENGINES][FR_TUNE_MAX_ROUNDS];
};

struct measurement {
    struct fr_tune_rig *rig;
    enum fr_policy_transfer transfer;
    size_t bytes;
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

// Writes how long it took until all threads were done.
static bool push(struct part *part, enum fr_device_engine engine, double *us)
{
    if (!meet(part->all))
        return false;
    double start = now_us();
    if (fr_device_push(part->range, part->pieces, part->piece_count, engine,
                       (unsigned)fr_core_settings()->peer_sms) != FR_OK) {
        atomic_store(&part->all->failed, true);
        return false;
    }
    if (!meet(part->all))
        return false;
    *us = now_us() - start;
    return true;
}

static void *serve(void *cookie)
{
    struct part *part = cookie;
    if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(part->gpu->context)))
        atomic_store(&part->all->failed, true);
    for (int round = -WARM_UP; round < part->all->rounds; round++) {
        for (int engine = 0; engine < FR_TUNE_ENGINES; engine++) {
            double us = 0;
            if (!push(part, (enum fr_device_engine)engine, &us))
                return NULL;
            if (round >= 0)
                part->us[engine][round] = us;
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
           fr_tool_complain("a transfer of %zu bytes failed", all->bytes);
}

static void plan_exchange(struct measurement *all)
{
    struct fr_tune_rig *rig = all->rig;
    all->count = rig->count;
    for (int from = 0; from < rig->count; from++) {
        struct part *part = &all->parts[from];
        part->gpu = &rig->gpus[from];
        part->range = &part->gpu->send_range;
        part->piece_count = (size_t)rig->count;
        for (int i = 0; i < rig->count; i++) {
            int to = (from + 1 + i) % rig->count; // each begins with another one
            part->pieces[i] = (struct fr_device_push_piece){
                .dst = rig->gpus[to].receive + (size_t)from * rig->piece_bytes,
                .src = part->gpu->send + (size_t)to * rig->piece_bytes,
                .bytes = all->bytes,
            };
        }
    }
}

static void plan_message(struct measurement *all)
{
    struct part *part = &all->parts[0];
    struct fr_tune_rig *rig = all->rig;
    all->count = 1;
    part->gpu = &rig->gpus[0];
    part->range = &part->gpu->receive_range;
    part->piece_count = 1;
    part->pieces[0] = (struct fr_device_push_piece){
        .dst = part->gpu->receive + rig->piece_bytes,
        .src = rig->gpus[1].send,
        .bytes = all->bytes,
    };
}

// Whether GPU `to` gets a piece of GPU `from`.
static bool is_sent(const struct measurement *all, int from, int to)
{
    return all->transfer == FR_TRANSFER_EXCHANGE || (from == 1 && to == 0);
}

// Bytes of a piece that are looked at: those moved and a word behind them, where there is one.
static size_t looked_at(const struct measurement *all)
{
    return all->bytes < all->rig->piece_bytes ? all->bytes + 4 : all->bytes;
}

// Overwrites what is to come, and waits until that is done, since other GPUs write there next.
static bool wipe(const struct measurement *all)
{
    const struct fr_tune_rig *rig = all->rig;
    for (int to = 0; to < rig->count; to++) {
        const struct fr_tune_gpu *gpu = &rig->gpus[to];
        if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(gpu->context)))
            return false;
        for (int from = 0; from < rig->count; from++) {
            uintptr_t piece = gpu->receive + (size_t)from * rig->piece_bytes;
            if (is_sent(all, from, to) &&
                !fr_tune_ok("cuMemsetD32",
                            fr_tune_cu.cuMemsetD32_v2(piece, WIPED, looked_at(all) / 4)))
                return false;
        }
        if (fr_device_quiesce(&gpu->receive_range, gpu->receive,
                              (size_t)rig->count * rig->piece_bytes) != FR_OK)
            return fr_tool_complain("a GPU does not come to an end");
    }
    return true;
}

// Compares words of one piece from `first` on, up to `bytes` bytes of it.
static bool compare(const struct measurement *all, int from, int to, size_t first, size_t bytes)
{
    static uint32_t words[EDGE_BYTES / 4 + 1];
    uintptr_t piece = all->rig->gpus[to].receive + (size_t)from * all->rig->piece_bytes;
    if (!fr_tune_ok("cuMemcpyDtoH", fr_tune_cu.cuMemcpyDtoH_v2(words, piece + first, bytes)))
        return false;
    for (size_t i = 0; i < bytes / 4; i++) {
        uint32_t wanted = first + i * 4 < all->bytes ? fr_tune_word(from, to) : WIPED;
        if (words[i] != wanted)
            return fr_tool_complain("wrong bytes at %zu of %zu from GPU %d to GPU %d",
                                    first + i * 4, all->bytes, all->rig->gpus[from].device,
                                    all->rig->gpus[to].device);
    }
    return true;
}

// Looks at either end of each piece.
static bool verify(const struct measurement *all)
{
    size_t bytes = looked_at(all);
    size_t edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
    for (int to = 0; to < all->rig->count; to++) {
        if (!fr_tune_ok("cuCtxSetCurrent", fr_tune_cu.cuCtxSetCurrent(all->rig->gpus[to].context)))
            return false;
        for (int from = 0; from < all->rig->count; from++) {
            if (is_sent(all, from, to) &&
                (!compare(all, from, to, 0, edge) || !compare(all, from, to, bytes - edge, edge)))
                return false;
        }
    }
    return true;
}

// One by one and untimed, to see what each engine by itself writes.
static bool try_engines(struct measurement *all)
{
    for (int engine = 0; engine < FR_TUNE_ENGINES; engine++) {
        if (!wipe(all))
            return false;
        for (int i = 0; i < all->count; i++) {
            const struct part *part = &all->parts[i];
            if (fr_device_push(part->range, part->pieces, part->piece_count,
                               (enum fr_device_engine)engine,
                               (unsigned)fr_core_settings()->peer_sms) != FR_OK)
                return fr_tool_complain("a transfer of %zu bytes failed", all->bytes);
        }
        if (!verify(all))
            return false;
    }
    return true;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_slowest(const struct measurement *all, int engine)
{
    double worst[FR_TUNE_MAX_ROUNDS];
    for (int round = 0; round < all->rounds; round++) {
        worst[round] = 0;
        for (int i = 0; i < all->count; i++) {
            double us = all->parts[i].us[engine][round];
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

bool fr_tune_measure(struct fr_tune_rig *rig, enum fr_policy_transfer transfer, size_t bytes,
                     double us[FR_TUNE_ENGINES])
{
    static struct measurement all; // too large for a stack
    memset(&all, 0, sizeof(all));
    all.rig = rig;
    all.transfer = transfer;
    all.bytes = bytes;
    all.rounds = rounds_of(rig, bytes);
    for (int i = 0; i < FR_TUNE_MAX_GPUS; i++)
        all.parts[i].all = &all;
    if (transfer == FR_TRANSFER_EXCHANGE)
        plan_exchange(&all);
    else
        plan_message(&all);
    if (!try_engines(&all) || !run_threads(&all) || !verify(&all))
        return false;
    for (int engine = 0; engine < FR_TUNE_ENGINES; engine++)
        us[engine] = median_of_slowest(&all, engine);
    return true;
}
