// SPDX-License-Identifier: BSD-3-Clause
// fabrail tune: options, which file, and what is kept in it.
#include "config.h"

#include "tune.h"

#include "command.h"
#include "fabrail/core/files.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CODE_PROGRAMS = FR_TOOL_NO_LETTER, CODE_TIMEOUT, CODE_FAMILY };

#define LARGEST        ((size_t)64 << 20)
#define MOST           ((size_t)1 << 34)
#define LARGEST_RAILS  ((size_t)16 << 20)
#define SMALLEST_RAILS ((size_t)1 << 10)
#define MOST_RAILS     ((size_t)1 << 30)

struct options {
    const char *output;   // NULL: where the library looks
    size_t largest_bytes; // 0: as said in the table below
    bool dry_run;
    bool rails;
    const char *programs; // NULL: where they are installed
    enum fr_launch_family family;
    int timeout_s;
};

const struct fr_tool_option fabrail_tune_options[] = {
    {"dry-run", 'n', NULL, NULL, "measure, and write nothing"},
    {"output", 'o', "FILE", FR_TOOL_FILES, "write to FILE in place of where the library looks"},
    {"largest", 'l', "SIZE", NULL, "measure messages up to SIZE (64M; 16M between hosts)"},
    {"rails", 'r', NULL, NULL,
     "measure rails between the two ranks that LAUNCHER starts, on a host each"},
    {"family", CODE_FAMILY, "FAMILY", "openmpi mpich",
     "have LAUNCHER start the program of this family, for srun"},
    {"timeout", CODE_TIMEOUT, "SECONDS", NULL, "end a run of LAUNCHER that takes longer (300)"},
    {"programs", CODE_PROGRAMS, "FOLDER", FR_TOOL_FOLDERS,
     "take the program that LAUNCHER starts from FOLDER"},
    {NULL, 0, NULL, NULL, NULL},
};

static bool take_seconds(struct options *options, const char *text)
{
    char *end = NULL;
    long seconds = strtol(text, &end, 10);
    options->timeout_s = (int)seconds;
    return end != text && *end == '\0' && seconds >= 1 && seconds <= 86400;
}

static bool take_size(struct options *options, const char *text)
{
    return fr_core_bytes_parse(text, &options->largest_bytes) &&
           options->largest_bytes >= FR_TUNE_SMALLEST && options->largest_bytes <= MOST;
}

// Returns -1, or an exit status after a complaint.
static int take(struct options *options, int code)
{
    switch (code) {
    case 'n':
        options->dry_run = true;
        return -1;
    case 'o':
        options->output = optarg;
        return -1;
    case 'r':
        options->rails = true;
        return -1;
    case 'l':
        return take_size(options, optarg) ? -1
                                          : fr_tool_refuse_value(code, "a size from 256 to 16G");
    case CODE_PROGRAMS:
        options->programs = optarg;
        return -1;
    case CODE_TIMEOUT:
        return take_seconds(options, optarg) ? -1 : fr_tool_refuse_value(code, "seconds");
    default:
        options->family = fr_launch_family_named(optarg);
        return options->family == FR_LAUNCH_OPENMPI || options->family == FR_LAUNCH_MPICH
                   ? -1
                   : fr_tool_refuse_value(code, "openmpi or mpich");
    }
}

// Returns the exit status where there is nothing to do but to end, else -1.
static int parse_options(int argc, char **argv, struct options *options)
{
    for (int code = 0; (code = fr_tool_next(argc, argv)) != FR_TOOL_END;) {
        if (code == FR_TOOL_HELP || code == FR_TOOL_BAD)
            return fr_tool_status(code);
        int status = take(options, code);
        if (status >= 0)
            return status;
    }
    if (options->largest_bytes == 0)
        options->largest_bytes = options->rails ? LARGEST_RAILS : LARGEST;
    if (options->rails &&
        (options->largest_bytes < SMALLEST_RAILS || options->largest_bytes > MOST_RAILS))
        return fr_tool_misuse("--largest takes a size from 1K to 1G with --rails");
    if (options->rails && optind == argc)
        return fr_tool_misuse("--rails wants a launcher of two ranks, as mpirun -n 2 --host a,b");
    if (!options->rails && optind < argc)
        return fr_tool_misuse("\"%s\" is one argument too many", argv[optind]);
    return -1;
}

// Where the library looks first. Makes the folders of the user's own file.
static bool choose_output(const struct options *options, char path[FR_FILE_NAME_BYTES])
{
    const char *named = fr_core_settings()->tuning;
    if (options->output == NULL && (*named == '\0' || strcmp(named, "auto") == 0)) {
        path[0] = '\0';
        if (!fr_core_file_of_user("tuning", path))
            return options->dry_run || fr_tool_complain("HOME is not set, and so there is no "
                                                        "tuning file; name one by --output");
        return options->dry_run || fr_tune_file_make_folders(path);
    }
    if (options->output != NULL)
        named = options->output;
    if (*named == '\0' || strlen(named) >= FR_FILE_NAME_BYTES)
        return fr_tool_complain("the name of the file is empty or too long");
    strcpy(path, named);
    return options->dry_run ||
           fr_tool_check_folder(options->output != NULL ? "--output" : "FABRAIL_TUNING", path);
}

static bool keep(const struct options *options, const char *path,
                 const struct fr_tune_section *section)
{
    if (options->dry_run) {
        printf(*path != '\0' ? "not written to %s:\n" : "not written%s:\n", path);
        return fr_tune_file_show(path, section);
    }
    return fr_tune_file_write(path, section);
}

// Settings that win over the file.
static void print_settings(bool rails)
{
    const struct fr_settings *settings = fr_core_settings();
    const struct {
        const char *name;
        bool rails;
        size_t bytes;
    } rows[] = {
        {"FABRAIL_PEER_CE_MIN", false, settings->peer_ce_min_bytes},
        {"FABRAIL_BCAST_SPLIT_MIN", false, settings->bcast_split_min_bytes},
        {"FABRAIL_REDUCE_SHARE_MIN", false, settings->reduce_share_min_bytes},
        {"FABRAIL_PACK_FIRST_MIN", false, settings->pack_first_min_bytes},
        {"FABRAIL_RAIL_MIN", true, settings->rail_min_bytes},
    };
    for (size_t i = 0; i < FR_ARRAY_LENGTH(rows); i++) {
        if (rows[i].rails == rails && rows[i].bytes != FR_BYTES_AUTO)
            printf("%s is set here; while it is, the file does not count for that\n", rows[i].name);
    }
}

static const char *on_today(char text[32])
{
    time_t now = time(NULL);
    struct tm when;
    text[0] = '\0';
    if (localtime_r(&now, &when) != NULL)
        strftime(text, 32, " on %Y-%m-%d", &when);
    return text;
}

static bool run_gpus(const struct options *options)
{
    static struct fr_tune_gpus gpus;
    char path[FR_FILE_NAME_BYTES], day[32];
    struct fr_tune_section section = {.machine = gpus.machine};
    size_t piece_bytes = FR_TUNE_SMALLEST;
    bool has_kernels = false;
    while (piece_bytes * 2 <= options->largest_bytes)
        piece_bytes *= 2;
    if (!fr_tune_gpus_find(&gpus) || !choose_output(options, path) ||
        !fr_tune_file_check(path, gpus.machine) ||
        !fr_tune_gpus_measure(&gpus, piece_bytes, &section.tuning, &has_kernels))
        return false;
    snprintf(section.comment, sizeof(section.comment), "%s%s, %d GPUs%s", PACKAGE_VERSION,
             on_today(day), gpus.count, has_kernels ? "" : ", built without kernels");
    if (!keep(options, path, &section))
        return false;
    if (!options->dry_run)
        printf("written to %s\n", path);
    print_settings(false);
    return true;
}

// Keeps what was measured between two kinds of machine for both.
static bool run_rails(const struct options *options, int count, char *const *words)
{
    char path[FR_FILE_NAME_BYTES], day[32];
    struct fr_tune_rails rails = {.programs = options->programs,
                                  .family = options->family,
                                  .timeout_s = options->timeout_s,
                                  .largest_bytes = options->largest_bytes};
    struct fr_tune_section section = {.of_rails = true, .tuning = fr_policy_untuned};
    if (!choose_output(options, path) || !fr_tune_file_check(path, "") ||
        !fr_tune_rails_measure(&rails, count, words))
        return false;
    section.tuning.bytes[FR_SIZE_RAIL] = rails.min_bytes;
    snprintf(section.comment, sizeof(section.comment), " %s%s", PACKAGE_VERSION, on_today(day));
    for (int rank = 0; rank < FR_TUNE_RANKS; rank++) {
        section.machine = rails.machines[rank];
        if (rank > 0 && strcmp(rails.machines[rank], rails.machines[0]) == 0)
            continue;
        if (!keep(options, path, &section))
            return false;
    }
    if (!options->dry_run)
        printf("written to %s\n", path);
    print_settings(true);
    return true;
}

int fabrail_tune(int argc, char **argv)
{
    struct options options = {.timeout_s = 300};
    int status = parse_options(argc, argv, &options);
    if (status >= 0)
        return status;
    bool done =
        options.rails ? run_rails(&options, argc - optind, argv + optind) : run_gpus(&options);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
