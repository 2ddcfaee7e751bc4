// SPDX-License-Identifier: BSD-3-Clause
// fabrail tune: options, the table, and where the engines cross over.
#include "config.h"

#include "tune.h"

#include "command.h"
#include "core/files.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SIZES = 40, PASSES = 5 };

#define SMALLEST ((size_t)256)
#define LARGEST  ((size_t)64 << 20)
#define MOST     ((size_t)1 << 34)

struct options {
    const char *output; // NULL: where the library looks
    size_t largest_bytes;
    bool dry_run;
};

// What was measured, by size.
struct table {
    size_t count;
    size_t bytes[MOST_SIZES];
    double us[FR_TRANSFER_COUNT][MOST_SIZES][FR_TUNE_ENGINES];
};

const struct fr_tool_option fabrail_tune_options[] = {
    {"dry-run", 'n', NULL, NULL, "measure, and write nothing"},
    {"output", 'o', "FILE", FR_TOOL_FILES, "write to FILE in place of where the library looks"},
    {"largest", 'l', "SIZE", NULL, "measure messages up to SIZE (64M)"},
    {NULL, 0, NULL, NULL, NULL},
};

// Returns the exit status where there is nothing to do but to end, else -1.
static int parse_options(int argc, char **argv, struct options *options)
{
    for (int code = 0; (code = fr_tool_next(argc, argv)) != FR_TOOL_END;) {
        switch (code) {
        case 'n':
            options->dry_run = true;
            break;
        case 'o':
            options->output = optarg;
            break;
        case 'l':
            if (!fr_core_bytes_parse(optarg, &options->largest_bytes) ||
                options->largest_bytes < SMALLEST || options->largest_bytes > MOST)
                return fr_tool_misuse("--largest takes a size from 256 to 16G, not \"%s\"", optarg);
            break;
        default:
            return fr_tool_status(code);
        }
    }
    if (optind < argc)
        return fr_tool_misuse("\"%s\" is one argument too many", argv[optind]);
    return -1;
}

// Where the library looks first. Makes the folders of the user's own file.
static bool choose_output(const struct options *options, char path[FR_FILE_NAME_BYTES])
{
    const char *named = fr_core_settings()->tuning;
    if (options->output == NULL && (*named == '\0' || strcmp(named, "auto") == 0)) {
        if (!fr_core_file_of_user("tuning", path))
            return fr_tool_complain("there is no home to keep the file in; name one by --output");
        return options->dry_run || fr_tune_file_make_folders(path);
    }
    if (options->output != NULL)
        named = options->output;
    if (*named == '\0' || strlen(named) >= FR_FILE_NAME_BYTES)
        return fr_tool_complain("the name of the file is empty or too long");
    strcpy(path, named);
    return true;
}

static void print_heading(const struct fr_tune_rig *rig, const char *machine)
{
    printf("machine: %s\n", machine);
    if (rig->is_simulated)
        puts("SIMULATED device: the figures mean nothing");
    if (rig->count < rig->visible)
        printf("%d of %d GPUs, which can all reach each other\n", rig->count, rig->visible);
    if (!rig->has_kernels)
        return;
    printf("us with kernels and with copy engines: %d GPUs store to %d peers each, GPU %d fetches "
           "from GPU %d\n",
           rig->count, rig->count - 1, rig->gpus[0].device, rig->gpus[1].device);
    printf("%12s  %10s %10s %-8s  %10s %10s %s\n", "bytes", "exchange", "engines", "faster",
           "message", "engines", "faster");
}

static const char *faster(const double us[FR_TUNE_ENGINES])
{
    return us[FR_ENGINE_SM] < us[FR_ENGINE_CE] ? "kernels" : "engines";
}

static void print_row(const struct table *table, size_t row)
{
    const double *exchange = table->us[FR_TRANSFER_EXCHANGE][row];
    const double *message = table->us[FR_TRANSFER_MESSAGE][row];
    printf("%12zu  %10.1f %10.1f %-8s  %10.1f %10.1f %s\n", table->bytes[row],
           exchange[FR_ENGINE_SM], exchange[FR_ENGINE_CE], faster(exchange), message[FR_ENGINE_SM],
           message[FR_ENGINE_CE], faster(message));
}

// Measures a size and keeps the better of this and earlier passes.
static bool fill_row(struct fr_tune_rig *rig, struct table *table, size_t row, int pass)
{
    for (int t = 0; t < FR_TRANSFER_COUNT; t++) {
        double us[FR_TUNE_ENGINES];
        double *best = table->us[t][row];
        if (!fr_tune_measure(rig, (enum fr_policy_transfer)t, table->bytes[row], us))
            return false;
        for (int engine = 0; engine < FR_TUNE_ENGINES; engine++)
            best[engine] = pass == 0 || us[engine] < best[engine] ? us[engine] : best[engine];
    }
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
static bool fill_table(struct fr_tune_rig *rig, size_t largest_bytes, struct table *table)
{
    for (size_t bytes = SMALLEST; bytes <= largest_bytes; bytes *= 2)
        table->bytes[table->count++] = bytes;
    size_t passes = rig->is_simulated ? 1 : PASSES, all = passes * table->count;
    for (size_t step = 0; step < all; step++) {
        show_progress(step, all);
        if (!fill_row(rig, table, step % table->count, (int)(step / table->count))) {
            show_progress(all, all);
            return false;
        }
    }
    show_progress(all, all);
    for (size_t row = 0; row < table->count; row++)
        print_row(table, row);
    return true;
}

// The size up to which kernels serve: the one that loses least against the faster engine at each
// size, so that one odd figure does not decide. Beyond the largest size copy engines serve in any
// case, since they leave the multiprocessors alone.
static size_t find_crossover(const struct table *table, enum fr_policy_transfer transfer)
{
    size_t best = 0;
    double least = 0;
    for (size_t cut = 0; cut <= table->count; cut++) {
        double loss = 0;
        for (size_t row = 0; row < table->count; row++) {
            const double *us = table->us[transfer][row];
            double chosen = us[row < cut ? FR_ENGINE_SM : FR_ENGINE_CE];
            double other = us[row < cut ? FR_ENGINE_CE : FR_ENGINE_SM];
            loss += chosen > other && other > 0 ? chosen / other - 1 : 0;
        }
        if (cut == 0 || loss < least) {
            least = loss;
            best = cut;
        }
    }
    return best > 0 ? table->bytes[best - 1] : 0;
}

// Without kernels there is nothing to compare: copy engines serve all sizes.
static bool measure(struct fr_tune_rig *rig, const char *machine, size_t largest_bytes,
                    struct fr_policy_tuning *tuning)
{
    struct table table = {.count = 0};
    size_t piece_bytes = SMALLEST;
    while (piece_bytes * 2 <= largest_bytes)
        piece_bytes *= 2;
    if (!fr_tune_rig_open(rig, piece_bytes))
        return false;
    print_heading(rig, machine);
    if (rig->has_kernels && !fill_table(rig, largest_bytes, &table))
        return false;
    for (int t = 0; t < FR_TRANSFER_COUNT; t++)
        tuning->ce_min_bytes[t] = find_crossover(&table, (enum fr_policy_transfer)t);
    return true;
}

static void compose(const struct fr_tune_rig *rig, const char *machine,
                    const struct fr_policy_tuning *tuning, char *section, size_t room)
{
    char day[32] = "";
    time_t now = time(NULL);
    struct tm when;
    if (localtime_r(&now, &when) != NULL)
        strftime(day, sizeof(day), " on %Y-%m-%d", &when);
    int used =
        snprintf(section, room, "[%s]\n# fabrail tune %s%s, %d GPUs%s\n", machine, PACKAGE_VERSION,
                 day, rig->count, rig->has_kernels ? "" : ", built without kernels");
    for (int t = 0; t < FR_TRANSFER_COUNT; t++)
        used +=
            snprintf(section + used, room - (size_t)used, "%s = %zu\n",
                     fr_policy_tuning_name((enum fr_policy_transfer)t), tuning->ce_min_bytes[t]);
}

static void print_result(const struct fr_tune_rig *rig, const struct fr_policy_tuning *tuning)
{
    char exchange[FR_BYTES_TEXT], message[FR_BYTES_TEXT];
    if (!rig->has_kernels)
        puts("no kernels, since the library was built without nvcc or the driver does not take "
             "them:\ncopy engines move all sizes");
    printf("copy engines serve exchanges beyond %s and single messages beyond %s\n",
           fr_core_bytes_text(tuning->ce_min_bytes[FR_TRANSFER_EXCHANGE], exchange),
           fr_core_bytes_text(tuning->ce_min_bytes[FR_TRANSFER_MESSAGE], message));
}

static bool run(const struct options *options, struct fr_tune_rig *rig)
{
    char path[FR_FILE_NAME_BYTES], machine[FR_DEVICE_MACHINE_BYTES], section[1024];
    struct fr_policy_tuning tuning;
    if (!fr_tune_rig_find(rig))
        return false;
    if (fr_device_machine_text(machine) != FR_OK)
        return fr_tool_complain("neither NVML nor the driver says what machine this is");
    if (!choose_output(options, path) || !fr_tune_file_check(path, machine) ||
        !measure(rig, machine, options->largest_bytes, &tuning))
        return false;
    print_result(rig, &tuning);
    compose(rig, machine, &tuning, section, sizeof(section));
    if (options->dry_run) {
        printf("not written to %s:\n%s", path, section);
        return true;
    }
    if (!fr_tune_file_write(path, machine, section))
        return false;
    printf("written to %s\n", path);
    if (fr_core_settings()->peer_ce_min_bytes != FR_BYTES_AUTO)
        puts("FABRAIL_PEER_CE_MIN is set here; while it is, the file does not count");
    return true;
}

int fabrail_tune(int argc, char **argv)
{
    static struct fr_tune_rig rig;
    struct options options = {.largest_bytes = LARGEST};
    int status = parse_options(argc, argv, &options);
    if (status >= 0)
        return status;
    bool done = run(&options, &rig);
    fr_tune_rig_release(&rig);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
