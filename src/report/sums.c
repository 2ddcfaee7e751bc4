// SPDX-License-Identifier: BSD-3-Clause
// The rows of all threads added up, at one moment, so that all that is written of them agrees. This
// may run in a signal handler, while other threads go on counting.
#include "config.h"

#include "report/report_int.h"

#include <string.h>

static struct fr_report_sum sums[FR_ROWS];
static unsigned sum_count;
static double ns_a_tick;
static uint64_t wall_ns;

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static struct fr_report_sum *sum_of(const struct fr_row *row, unsigned *count)
{
    for (unsigned i = 0; i < *count; i++) {
        struct fr_report_sum *sum = &sums[i];
        if (sum->fn == FR_ROW_FN(row->key) && sum->path == FR_ROW_PATH(row->key) &&
            same_text(sum->scheme, row->scheme))
            return sum;
    }
    if (*count == FR_ROWS)
        return NULL;
    sums[*count] = (struct fr_report_sum){
        .fn = FR_ROW_FN(row->key), .path = FR_ROW_PATH(row->key), .scheme = row->scheme};
    return &sums[(*count)++];
}

static void add_row(const struct fr_row *row, unsigned *count)
{
    struct fr_report_sum *sum = sum_of(row, count);
    if (!sum)
        return;
    const char *reason = atomic_load_explicit(&row->reason, memory_order_relaxed);
    sum->reason = reason ? reason : sum->reason;
    sum->buffers += fr_count_get(&row->data.buffers);
    sum->bytes += fr_count_get(&row->data.bytes);
    sum->calls += fr_count_get(&row->calls);
    sum->timed_calls += fr_count_get(&row->timed_calls);
    sum->ns += (uint64_t)((double)fr_count_get(&row->ticks) * ns_a_tick);
    sum->copies_ns += (uint64_t)((double)fr_count_get(&row->metered[FR_METER_COPY]) * ns_a_tick);
    sum->mpi_ns += (uint64_t)((double)fr_count_get(&row->metered[FR_METER_MPI]) * ns_a_tick);
    sum->wait_ns += (uint64_t)((double)fr_count_get(&row->metered[FR_METER_WAIT]) * ns_a_tick);
}

static int by_function_and_path(const struct fr_report_sum *a, const struct fr_report_sum *b)
{
    if (a->fn != b->fn)
        return a->fn < b->fn ? -1 : 1;
    return a->path == b->path ? 0 : a->path < b->path ? -1 : 1;
}

static void sort(unsigned count) // not qsort, which may allocate
{
    for (unsigned i = 1; i < count; i++) {
        struct fr_report_sum moved = sums[i];
        unsigned at = i;
        for (; at > 0 && by_function_and_path(&sums[at - 1], &moved) > 0; at--)
            sums[at] = sums[at - 1];
        sums[at] = moved;
    }
}

void fr_report_sum_up(void)
{
    enum { SAMPLE = 1 << 30 };
    ns_a_tick = (double)fr_report_ns(SAMPLE) / SAMPLE;
    wall_ns = fr_report_ns(fr_core_ticks() - fr_report_start_ticks());
    sum_count = 0;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        for (unsigned i = 0; i < FR_ROWS; i++) {
            if (atomic_load_explicit(&slab->rows[i].taken, memory_order_acquire))
                add_row(&slab->rows[i], &sum_count);
        }
    }
    sort(sum_count);
    fr_report_sites_sum_up(ns_a_tick);
}

const struct fr_report_sum *fr_report_sums(unsigned *count)
{
    *count = sum_count;
    return sums;
}

uint64_t fr_report_wall_ns(void)
{
    return wall_ns;
}

uint64_t fr_report_waited_ns(int rank)
{
    uint64_t ticks = 0;
    for (const struct fr_slab *slab = fr_report_slabs(); slab; slab = slab->next) {
        const fr_count *waits = slab->waits;
        if (waits && rank < slab->peer_count)
            ticks += fr_count_get(&waits[rank]);
    }
    return (uint64_t)((double)ticks * ns_a_tick);
}

uint64_t fr_report_sum_within(const struct fr_report_sum *sum)
{
    uint64_t elsewhere = sum->copies_ns + sum->mpi_ns + sum->wait_ns;
    return sum->ns > elsewhere ? sum->ns - elsewhere : 0;
}
