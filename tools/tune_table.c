// SPDX-License-Identifier: BSD-3-Clause
// The tables of fabrail tune, and where one way overtakes the other.
#include "config.h"

#include "tune.h"

#include "fabrail/policy/coll_plan.h"

#include <stdio.h>
#include <unistd.h>

enum { MOST_SIZES = 40, PASSES = 5 };

// Measured times, by size of transfer.
struct table {
    size_t count;
    size_t bytes[MOST_SIZES];
    double us[FR_SIZE_COUNT][MOST_SIZES][FR_TUNE_WAYS];
};

static const struct {
    const char *title, *ways[FR_TUNE_WAYS];
    const char *before, *after; // of the size that was found
} rows[FR_SIZE_COUNT] = {
    [FR_SIZE_EXCHANGE_CE] = {"exchange", {"kernels", "engines"}, "exchanges beyond", ""},
    [FR_SIZE_SPREAD_CE] = {"one to all",
                           {"kernels", "engines"},
                           "one GPU storing to all others beyond",
                           ""},
    [FR_SIZE_GATHER_CE] = {"all to one", {"kernels", "engines"}, "GPUs storing to one beyond", ""},
    [FR_SIZE_MESSAGE_CE] = {"message", {"kernels", "engines"}, "single messages beyond", ""},
    [FR_SIZE_COPY_CE] = {"copy", {"kernels", "engines"}, "copies within a GPU beyond", ""},
    [FR_SIZE_BCAST_SPLIT] = {"broadcast",
                             {"one step", "two"},
                             "broadcasts among three GPUs from",
                             " on"},
    [FR_SIZE_REDUCE_SHARE] = {"allreduce", {"by one", "by all"}, "reductions from", " on"},
    [FR_SIZE_PACK_FIRST] = {"short blocks",
                            {"read", "packed"},
                            "messages with which NVLink would carry in vain",
                            " and more"},
};

static void print_heading(const struct fr_tune_rig *rig)
{
    printf("machine: %s\n", rig->gpus->machine);
    if (rig->is_simulated)
        puts("SIMULATED device: the figures mean nothing");
    if (rig->count < rig->gpus->visible)
        printf("%d of %d GPUs, which can all reach each other\n", rig->count, rig->gpus->visible);
    if (!rig->has_kernels)
        puts("no kernels, since the library was built without nvcc or the driver does not take "
             "them:\ncopy engines move all sizes");
}

// Sizes from `first` to before `end` that are measured, side by side. A star is at the faster way.
static void print_table(const struct fr_tune_rig *rig, const struct table *table, int first,
                        int end)
{
    printf("\n%12s", "");
    for (int size = first; size < end; size++) {
        if (fr_tune_measures(rig, (enum fr_policy_size)size))
            printf("%18s ", rows[size].title);
    }
    printf("\n%12s", "bytes");
    for (int size = first; size < end; size++) {
        if (fr_tune_measures(rig, (enum fr_policy_size)size))
            printf("%9s%9s ", rows[size].ways[0], rows[size].ways[1]);
    }
    for (size_t row = 0; row < table->count; row++) {
        printf("\n%12zu", table->bytes[row]);
        for (int size = first; size < end; size++) {
            const double *us = table->us[size][row];
            if (fr_tune_measures(rig, (enum fr_policy_size)size))
                printf("%9.1f%c%8.1f%c", us[0], us[0] < us[1] ? '*' : ' ', us[1],
                       us[0] < us[1] ? ' ' : '*');
        }
    }
    puts("");
}

// Measures one size of transfer and keeps the better of this and earlier passes.
static bool fill_row(const struct fr_tune_rig *rig, struct table *table, enum fr_policy_size size,
                     size_t row, bool is_first, const struct fr_policy_tuning *tuning)
{
    double us[FR_TUNE_WAYS];
    double *best = table->us[size][row];
    if (!fr_tune_measure(rig, size, table->bytes[row], tuning, us))
        return false;
    for (int way = 0; way < FR_TUNE_WAYS; way++)
        best[way] = is_first || us[way] < best[way] ? us[way] : best[way];
    return true;
}

// On a terminal, a bar of what is done. Without one, and once all is done, nothing.
static void show_progress(size_t done, size_t all)
{
    static const char full[] = "########################################";
    enum { WIDTH = sizeof(full) - 1 };
    if (!isatty(STDERR_FILENO))
        return;
    if (done < all)
        fprintf(stderr, "\r[%-*.*s] %3zu%%", WIDTH, (int)(done * WIDTH / all), full,
                done * 100 / all);
    else
        fprintf(stderr, "\r%*s\r", WIDTH + 8, "");
}

// In several passes over all sizes, so that a disturbance of some milliseconds spoils none.
static bool fill_table(const struct fr_tune_rig *rig, struct table *table, int first, int end,
                       const struct fr_policy_tuning *tuning)
{
    size_t passes = rig->is_simulated ? 1 : PASSES;
    size_t sizes = (size_t)(end - first), each = table->count * sizes;
    bool good = true;
    for (size_t step = 0; step < passes * each && good; step++) {
        enum fr_policy_size size = (enum fr_policy_size)((size_t)first + step % sizes);
        if (rig->own == 0)
            show_progress(step + (size_t)first * table->count * passes,
                          FR_SIZE_RAIL * table->count * passes);
        if (fr_tune_measures(rig, size))
            good = fill_row(rig, table, size, step % each / sizes, step < each, tuning);
    }
    return good;
}

size_t fr_tune_find_cut(double us[][FR_TUNE_WAYS], size_t count)
{
    size_t best = 0;
    double least = 0;
    for (size_t cut = 0; cut <= count; cut++) {
        double loss = 0;
        for (size_t row = 0; row < count; row++) {
            double chosen = us[row][row >= cut], other = us[row][row < cut];
            loss += chosen > other && other > 0 ? chosen / other - 1 : 0;
        }
        if (cut == 0 || loss < least) {
            least = loss;
            best = cut;
        }
    }
    return best;
}

// Kernels serve up to the size that is returned. Beyond the largest that was measured copy engines
// do in any case, since they leave the multiprocessors alone.
static size_t last_of_kernels(struct table *table, int size)
{
    size_t cut = fr_tune_find_cut(table->us[size], table->count);
    return cut > 0 ? table->bytes[cut - 1] : 0;
}

// Another step pays for itself at some size, if not at any that was measured.
static size_t first_of_shared(struct table *table, int size)
{
    size_t cut = fr_tune_find_cut(table->us[size], table->count);
    return cut < table->count ? table->bytes[cut] : table->bytes[table->count - 1] * 2;
}

// As it is among three, by how the policy takes it from there to all GPUs.
static size_t split_among_three(const struct fr_tune_rig *rig, size_t bytes)
{
    size_t unit = (size_t)1 << 20;
    return (size_t)((double)bytes * (double)unit /
                    (double)fr_policy_bcast_split_min(rig->count, unit));
}

static bool measure(const struct fr_tune_rig *rig, struct table *table,
                    struct fr_policy_tuning *tuning)
{
    if (!fill_table(rig, table, 0, FR_SIZE_ENGINES, tuning))
        return false;
    for (int size = 0; size < FR_SIZE_ENGINES; size++) // without kernels 0
        tuning->bytes[size] = last_of_kernels(table, size);
    if (!fill_table(rig, table, FR_SIZE_ENGINES, FR_SIZE_RAIL, tuning))
        return false;
    if (fr_tune_measures(rig, FR_SIZE_BCAST_SPLIT))
        tuning->bytes[FR_SIZE_BCAST_SPLIT] =
            split_among_three(rig, first_of_shared(table, FR_SIZE_BCAST_SPLIT));
    if (fr_tune_measures(rig, FR_SIZE_REDUCE_SHARE))
        tuning->bytes[FR_SIZE_REDUCE_SHARE] = first_of_shared(table, FR_SIZE_REDUCE_SHARE);
    if (fr_tune_measures(rig, FR_SIZE_PACK_FIRST))
        tuning->bytes[FR_SIZE_PACK_FIRST] = first_of_shared(table, FR_SIZE_PACK_FIRST);
    return true;
}

static void print_result(const struct fr_policy_tuning *tuning)
{
    char text[FR_BYTES_TEXT];
    puts("\ncopy engines serve:");
    for (int size = 0; size < FR_SIZE_RAIL; size++) {
        if (size == FR_SIZE_ENGINES)
            puts("all GPUs share the work of:");
        if (tuning->bytes[size] == FR_BYTES_AUTO)
            continue;
        if (size == FR_SIZE_PACK_FIRST)
            puts("senders pack:");
        printf("  %s %s%s\n", rows[size].before, fr_core_bytes_text(tuning->bytes[size], text),
               rows[size].after);
    }
}

bool fr_tune_table_measure(const struct fr_tune_rig *rig, struct fr_policy_tuning *tuning)
{
    static struct table table;
    for (size_t bytes = FR_TUNE_SMALLEST; bytes <= rig->piece_bytes; bytes *= 2)
        table.bytes[table.count++] = bytes;
    *tuning = fr_policy_untuned;
    if (rig->own == 0)
        print_heading(rig);
    fflush(stdout);
    bool good = measure(rig, &table, tuning);
    if (rig->own != 0)
        return good;
    show_progress(1, 1);
    if (!good)
        return false;
    if (rig->has_kernels)
        print_table(rig, &table, 0, FR_SIZE_ENGINES);
    if (rig->count > 2 || rig->can_reduce || rig->can_pack)
        print_table(rig, &table, FR_SIZE_ENGINES, FR_SIZE_RAIL);
    print_result(tuning);
    return true;
}
