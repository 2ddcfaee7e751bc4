// SPDX-License-Identifier: BSD-3-Clause
// fabrail explain --report: what became of the buffers of a job, beside what the policy makes of
// the facts of its reports, and what would help.
#include "config.h"

#include "explain.h"

#include "report.h"

#include <inttypes.h>
#include <string.h>

static void print_function(const struct fr_tools_job_function *function,
                           const struct fr_explain_facts *facts)
{
    const struct fr_tools_job_totals *totals = &function->totals;
    uint64_t average = totals->bytes / totals->buffers;
    enum fr_fn fn = fr_explain_function(function->name);
    printf("%s path %s%s%s: %" PRIu64 " buffers, %" PRIu64 " bytes, %" PRIu64 " each\n",
           function->name, fr_tools_job_path_name(function->path), function->scheme ? ", " : "",
           function->scheme ? function->scheme : "", totals->buffers, totals->bytes, average);
    if (function->reason)
        printf("    because %s\n", function->reason);
    if (fn == FR_FN_COUNT)
        return;
    struct fr_explain_answer now = fr_explain(facts, fn, FR_KIND_MALLOC, (size_t)average);
    printf("    policy for such a buffer of cudaMalloc, between %s: %s%s%s, since %s\n",
           fr_explain_place_text(facts->place), now.path, *now.how ? ", " : "", now.how,
           now.reason);
}

static bool print_functions(const struct fr_job *job, const struct fr_explain_facts *facts)
{
    bool any = false;
    for (size_t i = 0; i < job->function_count; i++) {
        if (job->functions[i].totals.buffers > 0)
            print_function(&job->functions[i], facts);
        any = any || job->functions[i].totals.buffers > 0;
    }
    return any;
}

// Each advice once, however many functions it is for.
static void print_advice(const struct fr_job *job)
{
    for (size_t i = 0; i < job->function_count; i++) {
        const char *title = NULL, *advice = fr_tools_job_advice(&job->functions[i], &title);
        bool is_new = advice != NULL;
        for (size_t j = 0; j < i && is_new; j++) {
            const char *other = NULL;
            is_new = fr_tools_job_advice(&job->functions[j], &other) != advice;
        }
        if (is_new)
            printf("\n%s\n    %s\n", title, advice);
    }
}

static void print_job(const struct fr_job *job, enum fr_explain_place place)
{
    const char *fabric_memory = job->fabric_memory ? job->fabric_memory : "unknown";
    const struct fr_explain_facts facts = {
        .family = job->mpi ? job->mpi : "",
        .gpu_aware = job->gpu_aware,
        .place = place != FR_PLACE_COUNT ? place
                 : job->cliques > 0      ? FR_PLACE_CLIQUE
                 : job->hosts > 1        ? FR_PLACE_AWAY
                                         : FR_PLACE_HOST,
        .fabric_memory = strcmp(fabric_memory, "supported") == 0,
    };
    printf("%zu rank%s, %s, %sGPU-aware, %" PRIu64 " host%s, fabric memory %s\n", job->rank_count,
           job->rank_count == 1 ? "" : "s", job->mpi ? job->mpi : "an unknown MPI",
           job->gpu_aware ? "" : "not ", job->hosts, job->hosts == 1 ? "" : "s", fabric_memory);
    if (!print_functions(job, &facts))
        puts("no call had a buffer in device memory");
    print_advice(job);
}

bool fr_explain_reports(int count, char *const *names, enum fr_explain_place place)
{
    struct fr_job job = {.size = -1};
    bool done = true;
    for (int i = 0; i < count && done; i++)
        done = fr_tools_job_read(&job, names[i]);
    done = done && fr_tools_job_is_detailed(&job, names[0]) && fr_tools_job_finish(&job);
    if (done)
        print_job(&job, place);
    fr_tools_job_free(&job);
    return done;
}
