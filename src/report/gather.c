// SPDX-License-Identifier: BSD-3-Clause
// The verdict on rank 0: what each rank has counted goes there in one exchange, at the end of the
// job. It takes place where the facts of all processes say that they come to it.
#include "config.h"

#include "fabrail/core/wait.h"
#include "fabrail/job.h"
#include "report/report_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool known;
    char lines[FR_VERDICT_LINES][FR_VERDICT_LINE_BYTES];
} verdict;

bool fr_report_gathers(void)
{
    return fr_report_on && fr_report_target[0];
}

static void add_rows(struct fr_verdict_rank *own, bool with_buffers)
{
    unsigned count;
    const struct fr_report_sum *sums = fr_report_sums(&count);
    for (unsigned i = 0; i < count; i++) {
        const struct fr_report_sum *sum = &sums[i];
        if (sum->path >= FR_PATH_COUNT || (sum->buffers != 0) != with_buffers ||
            (!sum->buffers && !sum->calls))
            continue;
        const struct fr_verdict_reason why = {
            .name = fr_abi_rows[sum->fn].name,
            .scheme = sum->scheme,
            .reason = sum->reason,
            .path = (enum fr_policy_path)sum->path,
            .has_buffers = with_buffers,
        };
        fr_verdict_add_row(own, &why,
                           &(struct fr_verdict_row){.calls = sum->calls,
                                                    .bytes = sum->bytes,
                                                    .fabrail_ns = fr_report_sum_within(sum),
                                                    .copies_ns = sum->copies_ns,
                                                    .mpi_ns = sum->mpi_ns,
                                                    .wait_ns = sum->wait_ns});
    }
}

static void add_sites(struct fr_verdict_rank *own)
{
    unsigned count;
    const struct fr_core_site *found;
    const struct fr_report_site *sites = fr_report_sites(&found, &count);
    for (unsigned i = 0; i < count; i++) {
        const struct fr_report_label *label = fr_report_label(sites[i].label);
        struct fr_verdict_site site = {.ns = fr_report_site_within(&sites[i]) + sites[i].copies_ns +
                                             sites[i].mpi_ns + sites[i].wait_ns,
                                       .wait_ns = sites[i].wait_ns};
        if (!sites[i].site || !found[i].object[0]) // none, or in code made at run time
            continue;
        fr_core_site_text(found[i].function, found[i].object, found[i].address, site.where);
        snprintf(site.name, sizeof(site.name), "%s", fr_report_site_function(&sites[i]));
        snprintf(site.comm, sizeof(site.comm), "%s", label ? label->name : "");
        site.comm_ranks = label ? label->ranks : 0;
        fr_verdict_add_site(own, &site);
    }
}

// Describes this rank in the order in which the command reads its file.
static void describe(struct fr_verdict_rank *own)
{
    memset(own, 0, sizeof(*own));
    own->rank = fr_job_rank();
    own->wall_ns = fr_report_wall_ns();
    add_rows(own, true);
    add_rows(own, false);
    add_sites(own);
    for (int rank = 0; rank < fr_job_size(); rank++) {
        uint64_t ns = fr_report_waited_ns(rank);
        if (ns)
            fr_verdict_add_wait(own, rank, ns);
    }
    fr_report_count_rails(&own->rails, &own->rails_lost);
}

// Returns whether all processes gather, alike on all of them.
static bool all_gather(void)
{
    bool all = fr_job_comm() != fr_abi_mpi.COMM_NULL && !fr_job_has_failed();
    for (int rank = 0; rank < fr_job_size() && all; rank++) {
        const struct fr_job_facts *facts = fr_job_facts_of(rank);
        all = facts && facts->reports;
    }
    return all;
}

// Returns whether to go on waiting for the others, which have all come.
static bool look(struct fr_wait *wait)
{
    enum { LIMIT_S = 60 };
    return fr_wait_judge(wait, LIMIT_S) != FR_WAIT_OVER;
}

// Gathers all ranks' records on rank 0. They first wait for the last one, which may still compute.
// Returns false if MPI fails or a rank does not come. Memory that MPI may still use is then not
// freed.
static bool gather(const struct fr_verdict_rank *own, struct fr_verdict_rank *all)
{
    _Alignas(8) char request[8] = {0};
    fr_job_finalize_sync(NULL);
    if (fr_job_has_failed())
        return false;
    int result = FR_MPI(Igather, FR_PTR(own), sizeof(*own), fr_abi_mpi.BYTE, FR_PTR(all),
                        sizeof(*own), fr_abi_mpi.BYTE, 0, fr_job_comm(), FR_PTR(request));
    return result == fr_abi_mpi.SUCCESS && fr_job_complete(request, NULL, look, &result) &&
           result == fr_abi_mpi.SUCCESS;
}

static void judge(struct fr_verdict_rank *ranks, int count)
{
    struct fr_verdict found;
    verdict.known = fr_verdict_judge(ranks, count, fr_job_size(), &found);
    if (verdict.known)
        fr_verdict_lines(&found, verdict.lines);
}

void fr_report_gather(void)
{
    bool is_first = fr_job_rank() == 0, alone = fr_job_size() == 1;
    if (!fr_report_gathers() || fr_job_size() < 1 || !(alone || all_gather()))
        return;
    size_t count = is_first ? (size_t)fr_job_size() : 0;
    struct fr_verdict_rank *own = malloc(sizeof(*own));
    struct fr_verdict_rank *all = count ? calloc(count, sizeof(*all)) : NULL;
    static struct fr_verdict_rank nothing; // the others wait for this rank in any case
    describe(own ? own : &nothing);
    bool gathered = alone || (!is_first || all ? gather(own ? own : &nothing, all) : false);
    if (!gathered)
        return;
    if (is_first && all) {
        if (alone)
            all[0] = own ? *own : nothing;
        judge(all, (int)count);
    }
    free(own);
    free(all);
}

const char *fr_report_verdict_line(unsigned line)
{
    return verdict.known && line < FR_VERDICT_LINES ? verdict.lines[line] : NULL;
}
