// SPDX-License-Identifier: BSD-3-Clause
// A job as it was read: sums, order, and the names of paths.
#include "config.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *about;
} paths[FR_TOOLS_JOB_PATHS] = {
    [FR_TOOLS_JOB_PASS] = {"pass", "the MPI library got the pointer"},
    [FR_TOOLS_JOB_HOST] = {"host", "staged through host memory"},
    [FR_TOOLS_JOB_FABRIC] = {"fabric", "copied to fabric memory, which the MPI library got"},
    [FR_TOOLS_JOB_PEER] = {"peer", "moved by Fabrail over NVLink"},
    [FR_TOOLS_JOB_RAIL] = {"rail", "moved by Fabrail over all NICs"},
    [FR_TOOLS_JOB_REFUSE] = {"refuse", "refused with an MPI error"},
    [FR_TOOLS_JOB_NONE] =
        {"none", "calls without a device buffer of their own, or that have posted a receive"},
};

const char *fr_tools_job_path_name(unsigned path)
{
    return paths[path].name;
}

const char *fr_tools_job_path_about(unsigned path)
{
    return paths[path].about;
}

enum fr_policy_path fr_tools_job_policy_path(unsigned path)
{
    static const enum fr_policy_path known[FR_TOOLS_JOB_PATHS] = {
        [FR_TOOLS_JOB_PASS] = FR_PATH_PASS,     [FR_TOOLS_JOB_HOST] = FR_PATH_HOST,
        [FR_TOOLS_JOB_FABRIC] = FR_PATH_FABRIC, [FR_TOOLS_JOB_PEER] = FR_PATH_PEER,
        [FR_TOOLS_JOB_RAIL] = FR_PATH_RAIL,     [FR_TOOLS_JOB_REFUSE] = FR_PATH_REFUSE,
        [FR_TOOLS_JOB_NONE] = FR_PATH_COUNT,
    };
    return known[path];
}

bool fr_tools_job_path_named(const char *name, unsigned *path)
{
    for (unsigned i = 0; i < FR_TOOLS_JOB_PATHS; i++) {
        if (strcmp(paths[i].name, name) == 0) {
            *path = i;
            return true;
        }
    }
    return false;
}

void fr_tools_job_add(struct fr_tools_job_totals *to, const struct fr_tools_job_totals *from)
{
    to->calls += from->calls;
    to->buffers += from->buffers;
    to->bytes += from->bytes;
    to->fabrail_ns += from->fabrail_ns;
    to->copies_ns += from->copies_ns;
    to->mpi_ns += from->mpi_ns;
    to->wait_ns += from->wait_ns;
}

void fr_tools_job_sum(const struct fr_job *job, struct fr_tools_job_totals sums[FR_TOOLS_JOB_PATHS])
{
    memset(sums, 0, FR_TOOLS_JOB_PATHS * sizeof(*sums));
    for (size_t i = 0; i < job->rank_count; i++) {
        for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++)
            fr_tools_job_add(&sums[path], &job->ranks[i].paths[path]);
    }
}

// Adds a zeroed element to an array whose capacity follows from its length; NULL without memory.
void *fr_tools_append(void *array_of_pointers, size_t *count, size_t bytes)
{
    void **array = array_of_pointers;
    if ((*count & (*count - 1)) == 0) { // full: 0, 1, 2, 4, 8...
        void *more = realloc(*array, (*count ? 2 * *count : 1) * bytes);
        if (!more) {
            (void)fr_tool_complain("out of memory");
            return NULL;
        }
        *array = more;
    }
    return memset((char *)*array + (*count)++ * bytes, 0, bytes);
}

static int by_number(const void *a, const void *b)
{
    const struct fr_tools_job_rank *first = a, *second = b;
    return first->rank < second->rank ? -1 : first->rank > second->rank;
}

static int compare(uint64_t a, uint64_t b)
{
    return a > b ? -1 : a < b;
}

bool fr_tools_job_is_of_start(const char *name)
{
    return strncmp(name, "MPI_Init", 8) == 0 || strncmp(name, "MPI_Session", 11) == 0 ||
           strcmp(name, "MPI_Finalize") == 0;
}

// Puts the function that took longest first, and the start of MPI last.
static int by_time(const void *a, const void *b)
{
    const struct fr_tools_job_function *first = a, *second = b;
    int order =
        (int)fr_tools_job_is_of_start(first->name) - (int)fr_tools_job_is_of_start(second->name);
    if (order == 0)
        order = compare(fr_tools_job_ns(&first->totals), fr_tools_job_ns(&second->totals));
    if (order == 0)
        order = compare(first->totals.bytes, second->totals.bytes);
    return order ? order : strcmp(first->name, second->name);
}

static int by_rail_name(const void *a, const void *b)
{
    const struct fr_tools_job_rail *first = a, *second = b;
    return strcmp(first->name, second->name);
}

static void sort(void *array, size_t count, size_t bytes, int (*order)(const void *, const void *))
{
    if (count > 0)
        qsort(array, count, bytes, order);
}

static void move_wait(struct fr_tools_job_totals *totals, uint64_t *ns)
{
    uint64_t moved = *ns < totals->mpi_ns ? *ns : totals->mpi_ns;
    totals->mpi_ns -= moved;
    totals->wait_ns += moved;
    *ns -= moved;
}

// Makes waiting of the time in the MPI library that the verdict has found to be waiting, `ns` in a
// row of a rank. Rows of the table that differ in the reason alone give it one after the other.
static void show_wait(struct fr_job *job, struct fr_tools_job_rank *rank,
                      const struct fr_verdict_row *row, uint64_t ns)
{
    uint64_t of_path = ns, of_functions = ns;
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++) {
        if ((int32_t)fr_tools_job_policy_path(path) == row->path)
            move_wait(&rank->paths[path], &of_path);
    }
    for (size_t i = 0; i < job->function_count; i++) {
        struct fr_tools_job_function *function = &job->functions[i];
        if ((int32_t)fr_tools_job_policy_path(function->path) == row->path &&
            strncmp(function->name, row->name, sizeof(row->name) - 1) == 0)
            move_wait(&function->totals, &of_functions);
    }
    fr_tools_job_move_wait(job, row->name, ns);
}

// The tables agree with the verdict above them.
static void show_waits(struct fr_job *job, const struct fr_verdict_rank *judged)
{
    for (size_t i = 0; i < job->rank_count; i++) {
        struct fr_tools_job_rank *rank = &job->ranks[i];
        for (size_t r = 0; rank->detailed && r < judged->row_count; r++) {
            const struct fr_verdict_row *row = &judged->rows[r];
            show_wait(job, rank, row, row->wait_ns - rank->facts.rows[r].wait_ns);
        }
        judged += rank->detailed;
    }
}

static bool judge(struct fr_job *job)
{
    struct fr_verdict_rank *facts = calloc(job->rank_count, sizeof(*facts));
    int count = 0;
    for (size_t i = 0; facts && i < job->rank_count; i++) {
        if (job->ranks[i].detailed)
            facts[count++] = job->ranks[i].facts;
    }
    bool done = facts && fr_verdict_judge(facts, count, job->size, &job->verdict);
    job->judged = done && count > 0;
    if (job->judged)
        show_waits(job, facts);
    free(facts);
    return done || fr_tool_complain("out of memory");
}

bool fr_tools_job_finish(struct fr_job *job)
{
    if (job->rank_count == 0)
        return fr_tool_complain("there is no rank in what was given");
    sort(job->ranks, job->rank_count, sizeof(*job->ranks), by_number);
    sort(job->functions, job->function_count, sizeof(*job->functions), by_time);
    fr_tools_job_sort_sites(job);
    sort(job->rails, job->rail_count, sizeof(*job->rails), by_rail_name);
    return judge(job);
}

void fr_tools_job_free(struct fr_job *job)
{
    for (size_t i = 0; i < job->rank_count; i++) {
        free(job->ranks[i].host);
        free(job->ranks[i].ended);
        free(job->ranks[i].file);
    }
    for (size_t i = 0; i < job->function_count; i++) {
        free(job->functions[i].name);
        free(job->functions[i].scheme);
        free(job->functions[i].reason);
    }
    fr_tools_job_free_sites(job);
    for (size_t i = 0; i < job->rail_count; i++)
        free(job->rails[i].name);
    for (size_t i = 0; i < job->warning_count; i++)
        free(job->warnings[i].text);
    for (size_t i = 0; i < job->setting_count; i++) {
        free(job->settings[i].name);
        free(job->settings[i].value);
    }
    free(job->settings);
    free(job->gpu);
    free(job->command);
    free(job->ranks);
    free(job->functions);
    free(job->rails);
    free(job->warnings);
    free(job->matrix);
    free(job->name);
    free(job->fabrail);
    free(job->mpi);
    free(job->fabric_memory);
}

bool fr_tools_job_is_detailed(const struct fr_job *job, const char *name)
{
    return job->detailed || fr_tool_complain("%s sums up a job; name the files of its ranks", name);
}
