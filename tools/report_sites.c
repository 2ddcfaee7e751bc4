// SPDX-License-Identifier: BSD-3-Clause
// Calls by the place in the program that made them, and by communicator: sums of all ranks, and
// their parts of the page.
#include "config.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 200 }; // of the page; what took least is left out

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static const char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static bool add_to(struct fr_tools_job_site **sites, size_t *count,
                   const struct fr_tools_job_site *added)
{
    struct fr_tools_job_site *found = NULL;
    for (size_t i = 0; i < *count && !found; i++) {
        struct fr_tools_job_site *one = &(*sites)[i];
        if (same(one->where, added->where) && same(one->name, added->name) &&
            same(one->comm, added->comm) && one->comm_ranks == added->comm_ranks)
            found = one;
    }
    if (!found) {
        found = fr_tools_append(sites, count, sizeof(*found));
        if (!found)
            return false;
        found->where = copy(added->where);
        found->name = copy(added->name);
        found->comm = copy(added->comm);
        found->comm_ranks = added->comm_ranks;
    }
    fr_tools_job_add(&found->totals, &added->totals);
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++)
        found->path_bytes[path] += added->path_bytes[path];
    return true;
}

bool fr_tools_job_add_site(struct fr_job *job, const struct fr_tools_job_site *site)
{
    struct fr_tools_job_site of_comm = *site;
    of_comm.where = of_comm.name = NULL;
    if (site->where) {
        struct fr_verdict_site fact = {.comm_ranks = site->comm_ranks,
                                       .ns = fr_tools_job_ns(&site->totals),
                                       .wait_ns = site->totals.wait_ns};
        snprintf(fact.where, sizeof(fact.where), "%s", site->where);
        snprintf(fact.name, sizeof(fact.name), "%s", site->name);
        snprintf(fact.comm, sizeof(fact.comm), "%s", site->comm);
        fr_verdict_add_site(&job->ranks[job->current].facts, &fact);
    }
    return add_to(&job->sites, &job->site_count, site) &&
           add_to(&job->comms, &job->comm_count, &of_comm);
}

// Makes waiting of this row's share of `ns`, which all rows of `all` nanoseconds have to give.
static uint64_t move_part(struct fr_tools_job_totals *totals, uint64_t ns, uint64_t all)
{
    uint64_t part = (uint64_t)((double)ns * (double)totals->mpi_ns / (double)all + 0.5);
    part = part < totals->mpi_ns ? part : totals->mpi_ns;
    totals->mpi_ns -= part;
    totals->wait_ns += part;
    return part;
}

// It is not known which calls of a function have waited: each place gets a share by its time there.
void fr_tools_job_move_wait(struct fr_job *job, const char *name, uint64_t ns)
{
    uint64_t all = 0;
    for (size_t i = 0; i < job->site_count; i++)
        all += same(job->sites[i].name, name) ? job->sites[i].totals.mpi_ns : 0;
    for (size_t i = 0; i < job->site_count && ns; i++) {
        struct fr_tools_job_site *site = &job->sites[i];
        if (!same(site->name, name) || !site->totals.mpi_ns)
            continue;
        uint64_t before = site->totals.mpi_ns, moved = move_part(&site->totals, ns, all);
        all -= before;
        ns -= moved;
        for (size_t c = 0; c < job->comm_count && moved; c++) {
            struct fr_tools_job_site *comm = &job->comms[c];
            if (!same(comm->comm, site->comm) || comm->comm_ranks != site->comm_ranks)
                continue;
            comm->totals.mpi_ns -= moved;
            comm->totals.wait_ns += moved;
        }
    }
}

static int by_time(const void *a, const void *b)
{
    const struct fr_tools_job_site *first = a, *second = b;
    uint64_t one = fr_tools_job_ns(&first->totals), other = fr_tools_job_ns(&second->totals);
    if (one != other)
        return one > other ? -1 : 1;
    int order = strcmp(first->where ? first->where : "", second->where ? second->where : "");
    order =
        order ? order : strcmp(first->name ? first->name : "", second->name ? second->name : "");
    return order ? order : strcmp(first->comm, second->comm);
}

void fr_tools_job_sort_sites(struct fr_job *job)
{
    if (job->site_count)
        qsort(job->sites, job->site_count, sizeof(*job->sites), by_time);
    if (job->comm_count)
        qsort(job->comms, job->comm_count, sizeof(*job->comms), by_time);
}

static void free_all(struct fr_tools_job_site *sites, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)sites[i].where);
        free((void *)(uintptr_t)sites[i].name);
        free((void *)(uintptr_t)sites[i].comm);
    }
    free(sites);
}

void fr_tools_job_free_sites(struct fr_job *job)
{
    free_all(job->sites, job->site_count);
    free_all(job->comms, job->comm_count);
}

// Time, waiting, bytes and calls of a row.
static void write_counts(FILE *out, const char *table, size_t index,
                         const struct fr_tools_job_site *site, uint64_t longest)
{
    const struct fr_tools_job_totals *totals = &site->totals;
    const char *between = "";
    fputs("</td><td class=\"plot\"><div class=\"beside\">", out);
    fr_page_split(out, totals, longest);
    fr_html_number(out, FR_UNIT_NS, fr_tools_job_ns(totals), "%s.%zu.ns", table, index);
    fputs("</div></td><td>", out);
    fr_html_number(out, FR_UNIT_NS, totals->wait_ns, "%s.%zu.wait_ns", table, index);
    fputs(totals->bytes ? "</td><td>" : "</td><td class=\"zero\">", out);
    fr_html_number(out, FR_UNIT_BYTES, totals->bytes, "%s.%zu.bytes", table, index);
    fr_page_rate(out, totals);
    fputs("</td><td class=\"text ways\">", out);
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++) {
        unsigned permille = fr_permille(site->path_bytes[path], totals->bytes);
        if (!site->path_bytes[path])
            continue;
        fprintf(out, "%s<span class=\"swatch p-%s\"></span>%s %u.%u&thinsp;%%", between,
                fr_tools_job_path_name(path), fr_tools_job_path_name(path), permille / 10,
                permille % 10);
        between = "<br>";
    }
    fputs("</td><td>", out);
    fr_html_number(out, FR_UNIT_COUNT, totals->calls, "%s.%zu.calls", table, index);
    fputs("</td></tr>\n", out);
}

static void begin_table(FILE *out, const char *label, const char *first)
{
    fr_page_time_legend(out);
    fprintf(out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
            "<table class=\"sortable\"><thead><tr>%s"
            "<th scope=\"col\" aria-sort=\"descending\">Time</th><th scope=\"col\">Waiting</th>"
            "<th scope=\"col\">Bytes</th><th scope=\"col\" class=\"text\">By path</th>"
            "<th scope=\"col\">Calls</th></tr></thead><tbody>\n",
            label, first);
}

static void write_comm(FILE *out, const struct fr_tools_job_site *site)
{
    char text[FR_VERDICT_LINE_BYTES];
    fr_verdict_comm_text(site->comm, site->comm_ranks, text);
    fr_html_text(out, text);
}

static uint64_t longest_of(const struct fr_tools_job_site *sites, size_t count)
{
    return count ? fr_tools_job_ns(&sites[0].totals) : 0;
}

void fr_page_sites(FILE *out, const struct fr_job *job)
{
    size_t count = job->site_count < MOST_ROWS ? job->site_count : MOST_ROWS;
    if (!job->site_count)
        return;
    fputs("<section id=\"sites\"><h2>Call sites</h2>\n<p class=\"about\">Where the program calls "
          "MPI with device buffers, over all ranks. The number is the address in the file, which "
          "<code>addr2line -e FILE ADDRESS</code> makes a line of source.",
          out);
    if (count < job->site_count)
        fprintf(out, " The %zu of %zu that took longest.", count, job->site_count);
    fputs("</p>\n", out);
    begin_table(out, "Table of call sites",
                "<th scope=\"col\">Call site</th>"
                "<th scope=\"col\" class=\"text\">Function and communicator</th>");
    for (size_t i = 0; i < count; i++) {
        const struct fr_tools_job_site *site = &job->sites[i];
        fputs("<tr><th scope=\"row\"><code>", out);
        fr_html_text(out, site->where ? site->where : "all others");
        fputs("</code></th><td class=\"text\"><code>", out);
        fr_html_text(out, site->name);
        fputs("</code><small>", out);
        write_comm(out, site);
        fputs("</small>", out);
        write_counts(out, "sites", i, site, longest_of(job->sites, count));
    }
    fputs("</tbody></table></div></section>\n", out);
}

void fr_page_comms(FILE *out, const struct fr_job *job)
{
    if (!job->comm_count)
        return;
    fputs("<section id=\"comms\"><h2>Communicators</h2>\n<p class=\"about\">Those of one name and "
          "size are one row. <code>MPI_Comm_set_name</code> before the first use gives a "
          "name.</p>\n",
          out);
    begin_table(out, "Table of communicators", "<th scope=\"col\">Communicator</th>");
    for (size_t i = 0; i < job->comm_count; i++) {
        const struct fr_tools_job_site *comm = &job->comms[i];
        fputs("<tr><th scope=\"row\">", out);
        write_comm(out, comm);
        write_counts(out, "comms", i, comm, longest_of(job->comms, job->comm_count));
    }
    fputs("</tbody></table></div></section>\n", out);
}
