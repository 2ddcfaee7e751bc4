// SPDX-License-Identifier: BSD-3-Clause
// fabrail bench: runs the benchmarks that were installed with the library, under each MPI on the
// path, and shows what they print, or makes CSV, JSON, Markdown and plots of it.
#include "config.h"

#include "command.h"
#include "figures.h"
#include "info.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CODE_LAUNCHER_OPTION = FR_TOOL_NO_LETTER,
    CODE_FAMILY,
    CODE_PROGRAMS,
    CODE_TIMEOUT,
    CODE_FROM,
    SKIPPED = 77,
};
enum { FEWEST_BYTES = 4096 };

const struct fr_tool_option fabrail_bench_options[] = {
    {"tests", 't', "LIST", "start limit host device exchange collective message fabric",
     "of start, limit, host, device, exchange, collective, message, fabric, with commas (all)"},
    {"mpi", 'M', "LAUNCHER", NULL, "under this launcher's MPI alone (all on the path)"},
    {"family", CODE_FAMILY, "FAMILY", "openmpi mpich",
     "take the programs of this family, for srun"},
    {"ranks", 'n', "NUMBER", NULL, "ranks of the tests that take any number (4)"},
    {"largest", 'l', "SIZE", NULL, "messages up to SIZE (256M; 1M on a simulated device)"},
    {"format", 'f', "FORMAT", "table csv json markdown", "table, csv, json or markdown (table)"},
    {"output", 'o', "FILE", FR_TOOL_FILES, "write to FILE in place of standard output"},
    {"plots", 'p', "FOLDER", FR_TOOL_FOLDERS, "draw plots (SVG) into FOLDER, which is made"},
    {"from", CODE_FROM, "FILE", FR_TOOL_FILES,
     "measure nothing, and show what a former run has written as JSON"},
    {"launcher-option", CODE_LAUNCHER_OPTION, "WORD", NULL,
     "a word for the launcher, as --bind-to and then core; any number of times"},
    {"timeout", CODE_TIMEOUT, "SECONDS", NULL, "end a test that takes longer (1200)"},
    {"programs", CODE_PROGRAMS, "FOLDER", FR_TOOL_FOLDERS, "take the programs from FOLDER"},
    {NULL, 0, NULL, NULL, NULL},
};

// One benchmark. Its program is NAME, or NAME-FLAVOUR where it is one of MPI.
static const struct test {
    const char *name;
    bool mpi;
    int ranks; // 0: as many as asked for
    bool both; // without the preload first
    bool sized;
    bool needs_aware; // an MPI that takes device pointers
    const char *settings[3];
    const char *about;
} tests[] = {
    {.name = "start", .both = true, .about = "starting a process that has no MPI, us"},
    {.name = "limit",
     .sized = true,
     .about = "alltoall without MPI, the raw limit of this machine"},
    {.name = "host",
     .mpi = true,
     .ranks = 2,
     .both = true,
     .about = "what host pointers cost, ns a call"},
    {.name = "device",
     .mpi = true,
     .sized = true,
     .about = "device buffers, staged by hand and by Fabrail"},
    {.name = "exchange",
     .mpi = true,
     .sized = true,
     .settings = {"NCCL_NVLS_ENABLE=0"},
     .about = "MPI_Alltoall on device buffers"},
    {.name = "collective",
     .mpi = true,
     .sized = true,
     .settings = {"NCCL_NVLS_ENABLE=0"},
     .about = "other collectives on device buffers"},
    {.name = "message",
     .mpi = true,
     .ranks = 2,
     .sized = true,
     .settings = {"NCCL_NVLS_ENABLE=0"},
     .about = "messages between device buffers"},
    {.name = "fabric",
     .mpi = true,
     .ranks = 1,
     .sized = true,
     .needs_aware = true,
     .settings = {"FABRAIL_FABRIC=force"},
     .about = "copies through the fabric workspace"},
};
enum { TESTS = sizeof(tests) / sizeof(tests[0]) };

struct bench {
    unsigned wanted; // a bit for each test
    const char *launcher;
    enum fr_launch_family family; // of the programs, where the launcher does not tell
    int ranks, timeout_s;
    size_t largest_bytes; // 0: by the device
    char format;          // of table, csv, json, markdown
    const char *output, *plots, *from;
    bool measures; // an option says what to measure
    char programs[FR_FILE_NAME_BYTES], library[FR_FILE_NAME_BYTES];
    struct fr_words launcher_options;
    struct fr_figures figures;
    struct fr_figures_source source;
    FILE *out;
    int ran, failed;
};

static bool take_tests(struct bench *bench, const char *list)
{
    bench->wanted = 0;
    for (;;) {
        size_t length = strcspn(list, ",");
        unsigned before = bench->wanted;
        for (int i = 0; i < TESTS; i++) {
            if (strlen(tests[i].name) == length && strncmp(tests[i].name, list, length) == 0)
                bench->wanted |= 1u << i;
        }
        if (bench->wanted == before)
            return false;
        if (list[length] == '\0')
            return true;
        list += length + 1;
    }
}

static bool take_number(const char *text, int least, int most, int *number)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    *number = (int)value;
    return end != text && *end == '\0' && value >= least && value <= most;
}

static bool take_format(struct bench *bench, const char *text)
{
    bench->format = text[0];
    return strcmp(text, "table") == 0 || strcmp(text, "csv") == 0 || strcmp(text, "json") == 0 ||
           strcmp(text, "markdown") == 0;
}

// Returns NULL, or what the option takes.
static const char *take(struct bench *bench, int code)
{
    switch (code) {
    case 't':
        return take_tests(bench, optarg) ? NULL : "names of tests with commas";
    case 'M':
        bench->launcher = optarg;
        return NULL;
    case CODE_FAMILY:
        bench->family = fr_launch_family_named(optarg);
        return bench->family == FR_LAUNCH_OPENMPI || bench->family == FR_LAUNCH_MPICH
                   ? NULL
                   : "openmpi or mpich";
    case 'n':
        return take_number(optarg, 2, 16, &bench->ranks) ? NULL : "2 to 16 ranks";
    case 'l':
        return fr_core_bytes_parse(optarg, &bench->largest_bytes) &&
                       bench->largest_bytes >= FEWEST_BYTES &&
                       bench->largest_bytes <= (size_t)1 << 30
                   ? NULL
                   : "a size from 4K to 1G";
    case 'f':
        return take_format(bench, optarg) ? NULL : "table, csv, json or markdown";
    case 'o':
        bench->output = optarg;
        return NULL;
    case 'p':
        bench->plots = optarg;
        return NULL;
    case CODE_LAUNCHER_OPTION:
        fr_words_add(&bench->launcher_options, "%s", optarg);
        return NULL;
    case CODE_TIMEOUT:
        return take_number(optarg, 1, 86400, &bench->timeout_s) ? NULL : "seconds";
    case CODE_FROM:
        bench->from = optarg;
        return NULL;
    default:
        snprintf(bench->programs, sizeof(bench->programs), "%s", optarg);
        return NULL;
    }
}

static bool find_programs(struct bench *bench)
{
    return bench->programs[0] != '\0' || fr_launch_find_programs(bench->programs) ||
           fr_tool_complain("the benchmarks are not in %s; name their folder by --programs",
                            bench->programs);
}

static bool find_program(const struct bench *bench, const struct test *test,
                         const struct fr_info_mpi *mpi, char *path, size_t room)
{
    if (test->mpi)
        return fr_launch_find_benchmark(bench->programs, test->name, &mpi->launcher, bench->family,
                                        path, room);
    snprintf(path, room, "%s/%s", bench->programs, test->name);
    return access(path, X_OK) == 0;
}

// Lines for people go to the table, the others among the figures.
static void take_output(struct bench *bench, const struct fr_figure *like, char *output,
                        const char *column)
{
    for (char *line = output; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        bool is_row = fr_figures_take(&bench->figures, line, like, column);
        if (!is_row && bench->format == 't')
            fprintf(bench->out, "  %s\n", line);
        line = end != NULL ? end + 1 : NULL;
    }
}

static void compose_ranks(const struct bench *bench, const struct test *test,
                          const struct fr_info_mpi *mpi, const char *program,
                          struct fr_words *words)
{
    fr_words_add(words, "%s", mpi->launcher.path);
    for (size_t i = 0; i < bench->launcher_options.count; i++)
        fr_words_add(words, "%s", bench->launcher_options.list[i]);
    fr_words_add(words, "-n");
    fr_words_add(words, "%d", test->ranks ? test->ranks : bench->ranks);
    fr_words_add(words, "%s", program);
    if (test->sized)
        fr_words_add(words, "%zu", bench->largest_bytes);
}

static void compose_alone(const struct bench *bench, const struct test *test, const char *program,
                          bool with, struct fr_words *words)
{
    fr_words_add(words, "%s", program);
    if (test->sized)
        fr_words_add(words, "%zu", bench->largest_bytes);
    if (test->both) { // the preload is an argument
        fr_words_add(words, "%s", with ? bench->library : "");
        fr_words_add(words, "true");
    }
}

static bool compose(const struct bench *bench, const struct test *test,
                    const struct fr_info_mpi *mpi, const char *program, bool with,
                    struct fr_words *command)
{
    struct fr_words words = {.list = NULL}, settings = {.list = NULL};
    if (!test->mpi) {
        compose_alone(bench, test, program, with, command);
        return !command->failed || fr_tool_complain("no memory");
    }
    compose_ranks(bench, test, mpi, program, &words);
    fr_words_add(&settings, "LD_PRELOAD=%s", with ? bench->library : "");
    fr_words_add(&settings, "BENCH_ROWS=1");
    for (size_t i = 0; i < FR_ARRAY_LENGTH(test->settings) && test->settings[i] != NULL; i++)
        fr_words_add(&settings, "%s", test->settings[i]);
    bool good = !words.failed && !settings.failed;
    if (!good)
        fr_tool_complain("no memory");
    good = good && fr_launch_compose(mpi->launcher.family, (int)words.count, words.list,
                                     settings.list, command);
    fr_words_free(&words);
    fr_words_free(&settings);
    return good;
}

// "start" prints its one figure alone.
static void take_start(struct bench *bench, const struct fr_figure *like, const char *output,
                       const char *column)
{
    char line[128];
    snprintf(line, sizeof(line), "row|starting a process|true|start|us|%.*s",
             (int)strcspn(output, "\n"), output);
    (void)fr_figures_take(&bench->figures, line, like, column);
}

static void take_result(struct bench *bench, const struct test *test, const struct fr_figure *like,
                        const struct fr_child_result *result, bool with)
{
    const char *column = test->both ? with ? "with" : "without" : NULL;
    if (strcmp(test->name, "start") == 0)
        take_start(bench, like, result->output, column);
    else if (!test->both || result->status == SKIPPED)
        take_output(bench, like, result->output, column);
    else
        for (char *line = strtok(result->output, "\n"); line != NULL; line = strtok(NULL, "\n"))
            (void)fr_figures_take(&bench->figures, line, like, column);
}

static bool run_once(struct bench *bench, const struct test *test, const struct fr_info_mpi *mpi,
                     const char *program, bool with)
{
    char rows[] = "BENCH_ROWS=1";
    char *const assignments[] = {rows, NULL};
    struct fr_words command = {.list = NULL};
    struct fr_child_result result = {.output = NULL};
    struct fr_figure like = {.ranks = !test->mpi ? 0 : test->ranks ? test->ranks : bench->ranks};
    snprintf(like.test, sizeof(like.test), "%s", test->name);
    snprintf(like.mpi, sizeof(like.mpi), "%.47s", mpi != NULL ? mpi->launcher.version : "");
    if (!compose(bench, test, mpi, program, with, &command))
        return false;
    fr_child_run(command.list, assignments, bench->timeout_s, &result);
    fr_words_free(&command);
    bool good =
        result.started && !result.timed_out && (result.status == 0 || result.status == SKIPPED);
    if (good)
        take_result(bench, test, &like, &result, with);
    else if (result.timed_out)
        fr_tool_complain("%s did not end in %d s", program, bench->timeout_s);
    else
        fr_tool_complain("%s failed with exit status %d:\n%s", program, result.status,
                         result.output != NULL ? result.output : "");
    free(result.output);
    return good;
}

// Fabrail could be told that any MPI is GPU-aware, and it would be given device memory.
static bool suits(const struct bench *bench, const struct test *test, struct fr_info_mpi *mpi)
{
    if (!test->needs_aware)
        return true;
    fr_info_mpi_ask(mpi, bench->library);
    if (mpi->gpu_aware != FR_INFO_YES && bench->format == 't')
        fprintf(bench->out, "\n%s: %s\n  skipped: the MPI is not GPU-aware\n",
                mpi->launcher.version, test->about);
    return mpi->gpu_aware == FR_INFO_YES;
}

static void run_test(struct bench *bench, const struct test *test, struct fr_info_mpi *mpi)
{
    char program[2 * FR_FILE_NAME_BYTES];
    const char *name = mpi != NULL ? mpi->launcher.version : "";
    if (!find_program(bench, test, mpi, program, sizeof(program))) {
        fr_tool_complain("no program %s%s%s in %s", test->name, mpi != NULL ? " for " : "", name,
                         bench->programs);
        return;
    }
    if (!suits(bench, test, mpi))
        return;
    if (bench->format == 't')
        fprintf(bench->out, "\n%s%s%s%s\n", name, mpi != NULL ? ": " : "", test->about,
                test->both ? ": without, with the preload, difference, ratio" : "");
    bool good = (!test->both || run_once(bench, test, mpi, program, false)) &&
                run_once(bench, test, mpi, program, true);
    if (good && test->both && bench->format == 't')
        fr_figures_write_pairs(&bench->figures, test->name, name, bench->out);
    fflush(bench->out);
    bench->ran += good;
    bench->failed += !good;
}

static void run_all(struct bench *bench, struct fr_info_mpis *mpis)
{
    for (int t = 0; t < TESTS; t++) {
        if ((bench->wanted >> t & 1) && !tests[t].mpi)
            run_test(bench, &tests[t], NULL);
    }
    for (int i = 0; i < mpis->count; i++) {
        for (int t = 0; t < TESTS; t++) {
            if ((bench->wanted >> t & 1) && tests[t].mpi)
                run_test(bench, &tests[t], &mpis->mpis[i]);
        }
    }
}

static bool wants_mpi(const struct bench *bench)
{
    bool wants = false;
    for (int t = 0; t < TESTS; t++)
        wants = wants || ((bench->wanted >> t & 1) && tests[t].mpi);
    return wants;
}

// The launchers to measure with: one, or all but Slurm's, which would start other hosts' ranks.
static bool find_mpis(const struct bench *bench, struct fr_info_mpis *mpis)
{
    memset(mpis, 0, sizeof(*mpis));
    if (bench->launcher != NULL) {
        mpis->count = 1;
        return fr_launch_identify_for(bench->launcher, bench->family, &mpis->mpis[0].launcher);
    }
    fr_info_mpis_find(mpis, false, bench->library);
    int kept = 0;
    for (int i = 0; i < mpis->count; i++) {
        if (mpis->mpis[i].launcher.family != FR_LAUNCH_SLURM)
            mpis->mpis[kept++] = mpis->mpis[i];
    }
    mpis->count = kept;
    return kept > 0 || !wants_mpi(bench) ||
           fr_tool_complain("no mpirun or mpiexec is on the path; --mpi names a launcher, and "
                            "--tests=limit,start needs none");
}

static bool write_results(struct bench *bench)
{
    if (bench->format == 'c')
        fr_figures_write_csv(&bench->figures, bench->out);
    if (bench->format == 'j')
        fr_figures_write_json(&bench->figures, &bench->source, bench->out);
    if (bench->format == 'm')
        fr_figures_write_markdown(&bench->figures, bench->out);
    bool written = fflush(bench->out) == 0 && !ferror(bench->out); // or in an earlier flush
    if (bench->out != stdout)
        written = fclose(bench->out) == 0 && written;
    if (!written)
        return fr_tool_complain("the results cannot be written: %s", strerror(errno));
    if (bench->plots == NULL)
        return true;
    int plots = fr_figures_plot(&bench->figures, &bench->source, bench->plots);
    if (plots >= 0)
        fprintf(stderr, "%d plots in %s\n", plots, bench->plots);
    return plots >= 0;
}

static bool make_folder(const char *plots)
{
    struct stat facts;
    if (mkdir(plots, 0777) != 0 && errno != EEXIST)
        return fr_tool_complain("--plots=%s cannot be made: %s", plots, strerror(errno));
    return (stat(plots, &facts) == 0 && S_ISDIR(facts.st_mode)) ||
           fr_tool_complain("--plots=%s is no folder", plots);
}

static bool open_output(struct bench *bench)
{
    if (bench->plots != NULL && !make_folder(bench->plots))
        return false;
    bench->out = bench->output != NULL ? fopen(bench->output, "w") : stdout;
    return bench->out != NULL ||
           fr_tool_complain("--output=%s cannot be made: %s", bench->output, strerror(errno));
}

static bool show_former(struct bench *bench)
{
    if (!fr_figures_read(bench->from, &bench->figures, &bench->source) || !open_output(bench))
        return false;
    if (bench->format == 't')
        fr_figures_write_tables(&bench->figures, &bench->source, bench->out);
    return write_results(bench);
}

static bool run(struct bench *bench, int argc, char *const *argv)
{
    static struct fr_info_mpis mpis;
    if (!fr_launch_find_library(bench->library))
        return fr_tool_complain("%s is not there", bench->library);
    if (!find_programs(bench) || !find_mpis(bench, &mpis) || !open_output(bench))
        return false;
    fr_figures_describe(&bench->source, argc, argv);
    if (bench->largest_bytes == 0)
        bench->largest_bytes = bench->source.simulated ? (size_t)1 << 20 : (size_t)256 << 20;
    if (bench->format == 't')
        fprintf(bench->out, "machine: %s\ndevice: %s%s\n", bench->source.machine,
                bench->source.device,
                bench->source.simulated ? "; SIMULATED, its figures mean nothing" : "");
    run_all(bench, &mpis);
    bool written = write_results(bench);
    if (bench->ran == 0)
        return fr_tool_complain("nothing was measured");
    return written && bench->failed == 0;
}

int fabrail_bench(int argc, char **argv)
{
    static struct bench bench = {
        .wanted = (1u << TESTS) - 1, .ranks = 4, .timeout_s = 1200, .format = 't'};
    for (int code = 0; (code = fr_tool_next(argc, argv)) != FR_TOOL_END;) {
        if (code == FR_TOOL_HELP || code == FR_TOOL_BAD)
            return fr_tool_status(code);
        const char *what = take(&bench, code);
        if (what != NULL)
            return fr_tool_refuse_value(code, what);
        bench.measures =
            bench.measures || !(code == CODE_FROM || code == 'f' || code == 'o' || code == 'p');
    }
    if (optind < argc)
        return fr_tool_misuse("\"%s\" is one argument too many", argv[optind]);
    if (bench.from != NULL && bench.measures)
        return fr_tool_misuse("--from measures nothing: beside it stand --format, --output and "
                              "--plots alone");
    bool good = bench.from != NULL ? show_former(&bench) : run(&bench, argc, argv);
    fr_figures_free(&bench.figures);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
