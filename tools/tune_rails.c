// SPDX-License-Identifier: BSD-3-Clause
// fabrail tune --rails: from which size on rails beat what messages between hosts take without
// them. The launcher that is given starts the benchmark `between` on two hosts, with rails and
// without in turn; the library's report says whether it was over rails.
#include "config.h"

#include "tune.h"

#include "command.h"
#include "figures.h"
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 32, PASSES = 3 };

extern char **environ;

struct job {
    struct fr_launcher launcher;
    char library[FR_FILE_NAME_BYTES], program[2 * FR_FILE_NAME_BYTES];
    int count; // of the launcher's words
    char *const *words;
};

enum way { WITHOUT, WITH };
static const char *const uses[FR_TUNE_WAYS] = {[WITHOUT] = "off", [WITH] = "force"};

struct table {
    size_t count;
    size_t bytes[MOST_SIZES];
    double us[MOST_SIZES][FR_TUNE_WAYS];
};

static bool prepare(const struct fr_tune_rails *rails, struct job *job)
{
    if (!fr_launch_identify_for(job->words[0], rails->family, &job->launcher))
        return false;
    if (!fr_launch_find_library(job->library))
        return fr_tool_complain("%s is not there", job->library);
    char folder[FR_FILE_NAME_BYTES];
    snprintf(folder, sizeof(folder), "%s", rails->programs != NULL ? rails->programs : "");
    if (folder[0] == '\0' && !fr_launch_find_programs(folder))
        return fr_tool_complain("the benchmarks are not in %s; name their folder by --programs",
                                folder);
    return fr_launch_find_benchmark(folder, "between", &job->launcher, rails->family, job->program,
                                    sizeof(job->program)) ||
           fr_tool_complain("no program between for %s in %s", job->launcher.version, folder);
}

// The environment's own settings go to the ranks but for those that are to be compared.
static void add_settings(const struct job *job, enum way way, struct fr_words *settings)
{
    static const char *const replaced[] = {
        "FABRAIL_RAIL=", "FABRAIL_RAIL_MIN=", "FABRAIL_REPORT=", "FABRAIL_DISABLE="};
    fr_words_add(settings, "LD_PRELOAD=%s", job->library);
    fr_words_add(settings, "BENCH_ROWS=1");
    fr_words_add(settings, "FABRAIL_RAIL=%s", uses[way]);
    fr_words_add(settings, "FABRAIL_RAIL_MIN=64");
    fr_words_add(settings, "FABRAIL_REPORT=text");
    for (char **entry = environ; *entry != NULL; entry++) {
        bool again = strncmp(*entry, "FABRAIL_", 8) != 0;
        for (size_t i = 0; i < FR_ARRAY_LENGTH(replaced) && !again; i++)
            again = strncmp(*entry, replaced[i], strlen(replaced[i])) == 0;
        if (!again)
            fr_words_add(settings, "%s", *entry);
    }
}

static bool compose(const struct job *job, enum way way, size_t largest_bytes,
                    struct fr_words *command)
{
    struct fr_words words = {.list = NULL}, settings = {.list = NULL};
    fr_words_add(&words, "%s", job->launcher.path);
    for (int i = 1; i < job->count; i++)
        fr_words_add(&words, "%s", job->words[i]);
    fr_words_add(&words, "%s", job->program);
    fr_words_add(&words, "%zu", largest_bytes);
    add_settings(job, way, &settings);
    bool good = !words.failed && !settings.failed &&
                fr_launch_compose(job->launcher.family, (int)words.count, words.list, settings.list,
                                  command);
    fr_words_free(&words);
    fr_words_free(&settings);
    return good && !command->failed;
}

// The report's lines of sends: how many of them were over rails, and in all.
static void count_sends(const char *output, uint64_t *over_rails, uint64_t *all)
{
    static const char mark[] = "report: MPI_Send path ";
    *over_rails = *all = 0;
    for (const char *at = strstr(output, mark); at != NULL; at = strstr(at, mark)) {
        at += strlen(mark);
        const char *buffers = strstr(at, " buffers "), *end = strchr(at, '\n');
        if (buffers == NULL || (end != NULL && buffers > end))
            continue;
        uint64_t count = strtoull(buffers + strlen(" buffers "), NULL, 10);
        *all += count;
        *over_rails += strncmp(at, "rail ", 5) == 0 ? count : 0;
    }
}

// Takes machine|RANK|HOST|KIND, wherever in a line it begins.
static void take_machines(struct fr_tune_rails *rails, const char *output)
{
    for (int rank = 0; rank < FR_TUNE_RANKS; rank++) {
        char mark[32];
        snprintf(mark, sizeof(mark), "machine|%d|", rank);
        const char *at = strstr(output, mark);
        const char *kind = at != NULL ? strchr(at + strlen(mark), '|') : NULL;
        if (kind != NULL)
            snprintf(rails->machines[rank], sizeof(rails->machines[0]), "%.*s",
                     (int)strcspn(kind + 1, "\n"), kind + 1);
    }
    rails->is_simulated = strstr(rails->machines[0], "simulated") != NULL;
}

static void keep_best(struct table *table, const struct fr_figure *figure, enum way way)
{
    size_t bytes = strtoull(figure->label, NULL, 10), row = 0;
    while (row < table->count && table->bytes[row] != bytes)
        row++;
    if (row == MOST_SIZES)
        return;
    table->count += row == table->count;
    table->bytes[row] = bytes;
    double *best = &table->us[row][way];
    *best = *best == 0 || figure->value < *best ? figure->value : *best;
}

static bool take_output(struct fr_tune_rails *rails, struct table *table, enum way way,
                        const char *output)
{
    const struct fr_figure like = {.test = "between", .ranks = 2};
    struct fr_figures figures = {.list = NULL};
    uint64_t over_rails, all;
    for (const char *at = strstr(output, "row|"); at != NULL; at = strstr(at + 1, "row|")) {
        char line[256];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        (void)fr_figures_take(&figures, line, &like, NULL);
    }
    for (size_t i = 0; i < figures.count; i++)
        keep_best(table, &figures.list[i], way);
    bool measured = figures.count > 0;
    fr_figures_free(&figures);
    take_machines(rails, output);
    count_sends(output, &over_rails, &all);
    if (!measured || rails->machines[0][0] == '\0' || rails->machines[1][0] == '\0')
        return fr_tool_complain("the program has printed nothing:\n%s", output);
    if (way == WITH && over_rails * 10 < all * 9)
        return fr_tool_complain(
            "%ju of %ju messages went over rails, though FABRAIL_RAIL=force: fabrail info on "
            "either host says which NICs there are, FABRAIL_LOG=info why they are not used",
            (uintmax_t)over_rails, (uintmax_t)all);
    return true;
}

static bool run(struct fr_tune_rails *rails, const struct job *job, struct table *table,
                enum way way)
{
    struct fr_words command = {.list = NULL};
    struct fr_child_result result = {.output = NULL};
    bool good = compose(job, way, rails->largest_bytes, &command);
    if (good) {
        fr_child_run(command.list, NULL, rails->timeout_s, &result);
        const char *output = result.output != NULL ? result.output : "";
        if (result.timed_out)
            good = fr_tool_complain("%s did not end in %d s:\n%s", job->program, rails->timeout_s,
                                    output);
        else if (!result.started || result.status != 0)
            good = fr_tool_complain("%s failed with exit status %d:\n%s", job->program,
                                    result.status, output);
        else
            good = take_output(rails, table, way, output);
    }
    free(result.output);
    fr_words_free(&command);
    return good;
}

static void print_table(const struct fr_tune_rails *rails, const struct table *table)
{
    for (int rank = 0; rank < FR_TUNE_RANKS; rank++)
        printf("machine of rank %d: %s\n", rank, rails->machines[rank]);
    if (rails->is_simulated)
        puts("SIMULATED device: the figures mean nothing");
    printf("\none way between hosts, us\n%12s%10s%10s\n", "bytes", "without", "rails");
    for (size_t row = 0; row < table->count; row++) {
        const double *us = table->us[row];
        printf("%12zu%10.1f%c%9.1f%c\n", table->bytes[row], us[WITHOUT],
               us[WITHOUT] < us[WITH] ? '*' : ' ', us[WITH], us[WITHOUT] < us[WITH] ? ' ' : '*');
    }
}

bool fr_tune_rails_measure(struct fr_tune_rails *rails, int count, char *const *words)
{
    static struct table table;
    static struct job job;
    char text[FR_BYTES_TEXT];
    job.count = count;
    job.words = words;
    if (!prepare(rails, &job))
        return false;
    for (int pass = 0; pass < (rails->is_simulated ? 1 : PASSES); pass++) {
        for (int way = 0; way < FR_TUNE_WAYS; way++) {
            if (!run(rails, &job, &table, (enum way)way))
                return false;
        }
    }
    print_table(rails, &table);
    size_t cut = fr_tune_find_cut(table.us, table.count);
    rails->min_bytes = cut < table.count ? table.bytes[cut] : table.bytes[table.count - 1] * 2;
    printf("\nmessages between hosts go over rails from %s on\n",
           fr_core_bytes_text(rails->min_bytes, text));
    return true;
}
