// SPDX-License-Identifier: BSD-3-Clause
// Options, the loop over memory kinds, steps and sizes, and the exit status of an included program.
#include "harness.h"

#include <execinfo.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SIZES = 64, MAX_KINDS = 32 };

struct options {
    enum memory_kind kinds[MAX_KINDS];
    int kind_count;
    size_t sizes[MAX_SIZES];
    int size_count; // 0: the default list
    const char *only;
    uint64_t seed;
    int repeat;
    double warm_s;
    bool table;
    bool thorough;
    bool device_first;
    bool expect_windows;
};

// Empty, one byte, odd, around cache lines, below and above the eager limits of the common
// transports (4 KiB, 8 KiB, 64 KiB, 128 KiB) and a few pipelined ones.
static const size_t default_sizes[] = {0,    1,    3,     64,    1000,   4096,
                                       4097, 9999, 65535, 65536, 262145, 1 << 21};

static const char usage[] =
    "usage: %s [--memory=KIND[,KIND..]] [--bytes=N[,N..]] [--seed=N] [--repeat=N]\n"
    "          [--only=STEP] [--thorough] [--device-first] [--table] [--expect-windows] "
    "[--warm=MS]\n"
    "--warm has the ranks exchange messages for so many milliseconds before all else\n"
    "--device-first makes the device's context current before MPI_Init instead of after it\n"
    "kinds: device host pinned managed pool vmm vmm-fd vmm-fabric mixed all\n%s";

static bool parse_kinds(char *text, struct options *options)
{
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ",")) {
        if (options->kind_count + MEMORY_KINDS > MAX_KINDS)
            return false;
        if (strcmp(name, "all") == 0) {
            for (int kind = 0; kind < MEMORY_KINDS; kind++)
                options->kinds[options->kind_count++] = (enum memory_kind)kind;
            continue;
        }
        enum memory_kind kind = memory_kind_named(name);
        if (kind == MEMORY_KINDS)
            return false;
        options->kinds[options->kind_count++] = kind;
    }
    return options->kind_count > 0;
}

static bool parse_sizes(char *text, struct options *options)
{
    for (char *word = strtok(text, ","); word != NULL; word = strtok(NULL, ",")) {
        char *end = NULL;
        unsigned long long value = strtoull(word, &end, 0);
        int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : 0;
        end += shift != 0;
        if (*end != '\0' || options->size_count == MAX_SIZES)
            return false;
        options->sizes[options->size_count++] = (size_t)value << shift;
    }
    return options->size_count > 0;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {{"memory", required_argument, NULL, 'm'},
                                          {"bytes", required_argument, NULL, 'b'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"repeat", required_argument, NULL, 'r'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"table", no_argument, NULL, 't'},
                                          {"thorough", no_argument, NULL, 'T'},
                                          {"expect-windows", no_argument, NULL, 'x'},
                                          {"device-first", no_argument, NULL, 'd'},
                                          {"warm", required_argument, NULL, 'w'},
                                          {NULL, 0, NULL, 0}};
    bool good = true;
    *options = (struct options){.seed = 1, .repeat = 1};
    for (int c; good && (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'm':
            good = parse_kinds(optarg, options);
            break;
        case 'b':
            good = parse_sizes(optarg, options);
            break;
        case 's':
            options->seed = strtoull(optarg, NULL, 0);
            break;
        case 'r':
            options->repeat = atoi(optarg);
            break;
        case 'o':
            options->only = optarg;
            break;
        case 't':
            options->table = true;
            break;
        case 'd':
            options->device_first = true;
            break;
        case 'T':
            options->thorough = true;
            break;
        case 'x':
            options->expect_windows = true;
            break;
        case 'w':
            options->warm_s = atof(optarg) / 1000;
            break;
        default:
            good = false;
        }
    }
    char all[] = "all";
    if (good && options->kind_count == 0)
        parse_kinds(all, options);
    return good && optind == argc && options->repeat > 0;
}

// The rank among those of this host as the launcher says it, or -1.
static int local_rank_told(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "PMI_LOCAL_RANK", "SLURM_LOCALID"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value >= '0' && *value <= '9')
            return atoi(value);
    }
    return -1;
}

static int local_rank(void)
{
    MPI_Comm host;
    int rank = local_rank_told();
    if (rank >= 0)
        return rank;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
}

static void call_step(struct run *run, const char *name,
                      void (*call)(struct run *run, size_t bytes), size_t bytes)
{
    run->step = name;
    run->bytes = bytes;
    run->round++;
    call(run, bytes);
    run_check(run, memory_context_unchanged(), "the current context is not the program's any more");
    int foreign = memory_foreign_context();
    run_check(run, foreign < 0, "a context was made on GPU %d, which the rank does not use",
              foreign);
}

// Every size with the first kind of memory; a third of them, another third each time, with the
// others, since what differs between kinds is how they are recognised and not how they are moved.
static bool size_wanted(const struct run *run, const struct options *options, int i)
{
    return options->thorough || run->kind_number == 0 || (i + run->kind_number) % 3 == 0;
}

static void call_sizes(struct run *run, const struct step *step, const struct options *options)
{
    if (step->limit == STEP_ONCE) {
        call_step(run, step->name, step->call, 0);
        return;
    }
    for (int i = 0; i < options->size_count; i++)
        call_step(run, step->name, step->call, options->sizes[i]);
    for (int i = 0; options->size_count == 0 && i < COUNT_OF(default_sizes); i++)
        if (default_sizes[i] <= step->limit && size_wanted(run, options, i))
            call_step(run, step->name, step->call, default_sizes[i]);
}

static void call_table(struct run *run, const struct program *program,
                       const struct options *options)
{
    const size_t *sizes = options->size_count != 0 ? options->sizes : default_sizes;
    int count = options->size_count != 0 ? options->size_count : COUNT_OF(default_sizes);
    for (int i = 0; i < count; i++)
        call_step(run, "table", program->table, sizes[i]);
}

static void run_steps(struct run *run, const struct program *program, const struct options *options)
{
    if (run->table && program->table != NULL) {
        call_table(run, program, options);
        return;
    }
    for (int again = 0; again < run->repeat; again++) {
        for (int i = 0; i < program->step_count; i++) {
            const struct step *step = &program->steps[i];
            bool wanted = options->only == NULL || strcmp(options->only, step->name) == 0;
            if (wanted && run->size >= step->least_ranks)
                call_sizes(run, step, options);
        }
    }
}

// All ranks must agree to skip, so the lowest that lacks the kind tells the others why.
static bool kind_skipped(struct run *run, enum memory_kind kind, int number)
{
    char reason[256] = "";
    enum memory_kind here = memory_kind_on_rank(kind, run->rank);
    const char *missing = memory_missing(here);
    int first = missing != NULL ? run->rank : run->size;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, run->comm);
    if (first == run->size)
        return false;
    if (run->rank == first)
        snprintf(reason, sizeof reason, "%s", missing);
    MPI_Bcast(reason, sizeof reason, MPI_CHAR, first, run->comm);
    if (run->rank == 0)
        printf("ok %d - %s memory %s # SKIP %s\n", number, run->program, memory_kind_name(kind),
               reason);
    fflush(stdout);
    return true;
}

// Returns whether every rank passed.
static bool run_kind(struct run *run, const struct program *program, const struct options *options,
                     enum memory_kind kind, int number)
{
    long sums[2];
    run->kind = memory_kind_on_rank(kind, run->rank);
    run->memory_name = memory_kind_name(kind);
    run->kind_number = number - 1;
    run->checks = run->failures = 0;
    run_steps(run, program, options);
    sums[0] = run->failures;
    sums[1] = run->checks;
    fflush(stderr);
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_LONG, MPI_SUM, run->comm);
    // A run that compared nothing, say because --only names no step, has proved nothing.
    bool passed = sums[0] == 0 && sums[1] > 0;
    if (run->rank == 0)
        printf("%sok %d - %s memory %s, %ld checks\n", passed ? "" : "not ", number, run->program,
               run->memory_name, sums[1]);
    fflush(stdout);
    return passed;
}

static size_t largest_size(const struct options *options)
{
    size_t most = 0;
    for (int i = 0; i < options->size_count; i++)
        most = options->sizes[i] > most ? options->sizes[i] : most;
    return most;
}

// The program has all kinds at once, and a result for each all the same. Returns the exit status.
static int run_mix(struct run *run, const struct program *program, const struct options *options)
{
    enum memory_kind kinds[MAX_KINDS];
    int numbers[MAX_KINDS], count = 0;
    struct tally tallies[MAX_KINDS] = {{0, 0}};
    long failures = 0, checks = 0;
    for (int i = 0; i < options->kind_count; i++) {
        if (kind_skipped(run, options->kinds[i], i + 1))
            continue;
        kinds[count] = options->kinds[i];
        numbers[count++] = i + 1;
    }
    if (count == 0)
        return SKIPPED_EXIT;
    program->mix(run, kinds, count, largest_size(options), tallies);
    fflush(stderr);
    MPI_Allreduce(MPI_IN_PLACE, tallies, 2 * count, MPI_LONG, MPI_SUM, run->comm);
    for (int i = 0; i < count; i++) {
        const char *name = memory_kind_name(kinds[i]);
        failures += tallies[i].failures;
        checks += tallies[i].checks;
        if (run->rank == 0)
            printf("%sok %d - %s memory %s, %ld checks%s\n", tallies[i].failures ? "not " : "",
                   numbers[i], run->program, name, tallies[i].checks,
                   tallies[i].checks ? "" : " # SKIP it was not drawn");
    }
    fflush(stdout);
    return failures != 0 || checks == 0;
}

static int run_all(struct run *run, const struct program *program, const struct options *options)
{
    int failed = 0, ran = 0;
    if (run->rank == 0)
        printf("1..%d\n", options->kind_count);
    if (program->mix != NULL)
        return run_mix(run, program, options);
    for (int i = 0; i < options->kind_count; i++) {
        if (kind_skipped(run, options->kinds[i], i + 1))
            continue;
        ran++;
        failed += !run_kind(run, program, options, options->kinds[i], i + 1);
    }
    if (failed != 0)
        return 1;
    return ran != 0 ? 0 : SKIPPED_EXIT;
}

// Each pair of ranks sends messages both ways for a while: those that have to meet first have met.
static void warm_up(struct run *run, const struct options *options)
{
    enum { BYTES = 4097 };
    run->kind = memory_kind_on_rank(options->kinds[0], run->rank);
    int missing = memory_missing(run->kind) != NULL, on = 1;
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_MAX, run->comm);
    if (missing)
        return;
    struct buffer *send = buffer_new(run, "send", BYTES), *recv = buffer_new(run, "recv", BYTES);
    for (double end = MPI_Wtime() + options->warm_s; on;) {
        for (int i = 1; i < run->size; i++)
            MPI_Sendrecv(send->data, BYTES, MPI_BYTE, (run->rank + i) % run->size, 0, recv->data,
                         BYTES, MPI_BYTE, (run->rank + run->size - i) % run->size, 0, run->comm,
                         MPI_STATUS_IGNORE);
        on = MPI_Wtime() < end;
        MPI_Bcast(&on, 1, MPI_INT, 0, run->comm);
    }
    buffer_accept(recv, 0, BYTES); // what the other ranks' buffers held
    buffer_finish(recv);
    buffer_finish(send);
}

// Runs everything once MPI is there. Returns the exit status.
static int run_program(struct run *run, const struct program *program,
                       const struct options *options, int provided)
{
    if (provided < program->thread_level) {
        if (run->rank == 0)
            printf("1..0 # SKIP this MPI does not provide the thread level that %s needs\n",
                   program->name);
        return SKIPPED_EXIT;
    }
    if (!options->device_first)
        memory_start(local_rank());
    if (options->warm_s > 0)
        warm_up(run, options);
    int status = run_all(run, program, options);
    memory_stop();
    return status;
}

#ifdef LARGE_COUNTS
#define LABEL_SUFFIX "_c"
#else
#define LABEL_SUFFIX ""
#endif

// The name that the binary has, too.
static const char *program_label(const char *name)
{
    static char label[64];
    snprintf(label, sizeof label, "%s%s", name, LABEL_SUFFIX);
    return label;
}

static const struct run *volatile watched; // whose step is printed

// Prints the step of a rank whose time is about to run out, and the calls of the thread that takes
// the signal.
static void print_where(int signal)
{
    enum { DEEPEST = 64 };
    const struct run *run = watched;
    void *calls[DEEPEST];
    (void)signal;
    fprintf(stderr, "# rank %d is still in step %s, memory %s, within\n", run->rank,
            run->step != NULL ? run->step : "-", run->memory_name != NULL ? run->memory_name : "-");
    fflush(stderr);
    backtrace_symbols_fd(calls, backtrace(calls, DEEPEST), 2);
}

// Has a rank print where it is after so many seconds as the environment says.
static void watch(const struct run *run)
{
    const char *after = getenv("FR_TEST_WHERE_AFTER");
    void *call;
    if (after == NULL)
        return;
    (void)backtrace(&call, 1); // loads what it needs, which a handler may not
    watched = run;
    signal(SIGALRM, print_where);
    alarm((unsigned)atoi(after));
}

int program_main(int argc, char **argv, const struct program *program)
{
#if defined LARGE_COUNTS && MPI_VERSION < 4
    return program_skip(argc, argv, "this MPI has no large-count forms");
#endif
    struct options options;
    int provided = MPI_THREAD_SINGLE, initialized = 0, status = USAGE_EXIT;
    bool good = parse_options(argc, argv, &options);
    struct run run = {.program = program_label(program->name),
                      .comm = MPI_COMM_WORLD,
                      .seed = options.seed,
                      .repeat = options.repeat,
                      .table = options.table,
                      .expect_windows = options.expect_windows};
    if (good && options.device_first)
        memory_start(local_rank_told() >= 0 ? local_rank_told() : 0);
    MPI_Initialized(&initialized);
    if (!initialized)
        MPI_Init_thread(&argc, &argv, program->thread_level, &provided);
    MPI_Comm_rank(run.comm, &run.rank);
    MPI_Comm_size(run.comm, &run.size);
    watch(&run);
    if (good)
        status = run_program(&run, program, &options, provided);
    else if (run.rank == 0)
        fprintf(stderr, usage, program->name, program->usage != NULL ? program->usage : "");
    MPI_Finalize();
    return status;
}

int program_skip(int argc, char **argv, const char *reason)
{
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("1..0 # SKIP %s\n", reason);
    MPI_Finalize();
    return SKIPPED_EXIT;
}
