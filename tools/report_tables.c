// SPDX-License-Identifier: BSD-3-Clause
// Parts of the page: functions, ranks, rails and warnings.
#include "config.h"

#include "report.h"

#include <string.h>

enum { MANY = 24 }; // rows beyond which a table is folded up

// Where the time of calls went: waiting, Fabrail, copies, the MPI library.
void fr_page_split(FILE *out, const struct fr_tools_job_totals *totals, uint64_t longest)
{
    const struct {
        const char *class;
        uint64_t ns;
    } parts[] = {{"t-wait", totals->wait_ns},
                 {"t-own", totals->fabrail_ns},
                 {"t-copy", totals->copies_ns},
                 {"t-mpi", totals->mpi_ns}};
    fputs("<div class=\"row\" aria-hidden=\"true\">", out);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(parts); i++) {
        if (parts[i].ns && longest)
            fprintf(out, "<span class=\"seg %s\" style=\"width:%.2f%%\"></span>", parts[i].class,
                    (double)parts[i].ns * 100 / (double)longest);
    }
    fputs("</div>", out);
}

void fr_page_time_legend(FILE *out)
{
    fputs("<p class=\"legend\"><span><span class=\"swatch t-wait\"></span>waiting</span> "
          "<span><span class=\"swatch t-own\"></span>in Fabrail</span> <span><span class=\"swatch "
          "t-copy\"></span>in copies</span> <span><span "
          "class=\"swatch t-mpi\"></span>in the MPI library</span></p>\n",
          out);
}

// Bytes a second while ranks did not wait.
void fr_page_rate(FILE *out, const struct fr_tools_job_totals *totals)
{
    char text[FR_UNIT_TEXT_BYTES];
    uint64_t ns = fr_tools_job_ns(totals) - totals->wait_ns;
    if (!totals->bytes || !ns)
        return;
    uint64_t rate = (uint64_t)((double)totals->bytes * 1e9 / (double)ns);
    fprintf(out, "<small>%s/s</small>", fr_unit_text(FR_UNIT_BYTES, rate, text));
}

static void write_function(FILE *out, const struct fr_tools_job_function *function, size_t index,
                           uint64_t longest)
{
    const struct fr_tools_job_totals *totals = &function->totals;
    fputs("<tr><th scope=\"row\"><code>", out);
    fr_html_text(out, function->name);
    fprintf(out, "</code></th><td class=\"text\"><span class=\"swatch p-%s\"></span>%s",
            fr_tools_job_path_name(function->path),
            function->path == FR_TOOLS_JOB_NONE ? "no buffer"
                                                : fr_tools_job_path_name(function->path));
    if (function->scheme) {
        fputs("<small>", out);
        fr_html_text(out, function->scheme);
        fputs("</small>", out);
    }
    fputs("</td><td class=\"plot\">", out);
    fputs("<div class=\"beside\">", out);
    fr_page_split(out, totals, fr_tools_job_is_of_start(function->name) ? 0 : longest);
    fr_html_number(out, FR_UNIT_NS, fr_tools_job_ns(totals), "functions.%zu.ns", index);
    fputs("</div></td><td>", out);
    fr_html_number(out, FR_UNIT_NS, totals->wait_ns, "functions.%zu.wait_ns", index);
    fputs(totals->bytes ? "</td><td>" : "</td><td class=\"zero\">", out);
    fr_html_number(out, FR_UNIT_BYTES, totals->bytes, "functions.%zu.bytes", index);
    fr_page_rate(out, totals);
    fputs("</td><td>", out);
    fr_html_number(out, FR_UNIT_COUNT, totals->calls, "functions.%zu.calls", index);
    fputs("</td><td class=\"text why\">", out);
    fr_html_text(out, function->reason ? function->reason : "");
    fputs("</td></tr>\n", out);
}

void fr_page_functions(FILE *out, const struct fr_job *job)
{
    uint64_t longest = 0;
    if (!job->function_count)
        return;
    for (size_t i = 0; i < job->function_count; i++) {
        uint64_t ns = fr_tools_job_ns(&job->functions[i].totals);
        longest = ns > longest && !fr_tools_job_is_of_start(job->functions[i].name) ? ns : longest;
    }
    fputs("<section id=\"functions\"><h2>Functions</h2>\n<p class=\"about\">Of all ranks, the "
          "slowest first.</p>\n",
          out);
    fr_page_time_legend(out);
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of functions\">"
          "<table class=\"sortable\"><thead><tr><th scope=\"col\">Function</th><th scope=\"col\" "
          "class=\"text\">Path</th>"
          "<th scope=\"col\" aria-sort=\"descending\">Time</th><th scope=\"col\">Waiting</th>"
          "<th scope=\"col\">Bytes</th><th scope=\"col\">Calls</th>"
          "<th scope=\"col\" class=\"text\">Because</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < job->function_count; i++)
        write_function(out, &job->functions[i], i, longest);
    fputs("</tbody></table></div></section>\n", out);
}

static struct fr_tools_job_totals served(const struct fr_tools_job_rank *rank)
{
    struct fr_tools_job_totals all = {.calls = 0};
    for (unsigned path = 0; path < FR_TOOLS_JOB_NONE; path++)
        fr_tools_job_add(&all, &rank->paths[path]);
    return all;
}

static void write_rank(FILE *out, const struct fr_tools_job_rank *rank, uint64_t longest)
{
    struct fr_tools_job_totals all = served(rank);
    bool early = strcmp(rank->ended, "finalize") != 0;
    fprintf(out, "<tr%s><th scope=\"row\">%d</th><td class=\"text\">",
            early ? " class=\"bad\"" : "", rank->rank);
    fr_html_text(out, rank->host);
    fputs("</td><td>", out);
    fr_html_number(out, FR_UNIT_BYTES, all.bytes, "ranks.%d.bytes", rank->rank);
    fputs("</td><td>", out);
    fr_html_number(out, FR_UNIT_BYTES, rank->paths[FR_TOOLS_JOB_HOST].bytes, "ranks.%d.staged",
                   rank->rank);
    fputs("</td><td class=\"plot\">", out);
    fputs("<div class=\"beside\">", out);
    fr_page_split(out, &all, longest);
    fr_html_number(out, FR_UNIT_NS, fr_tools_job_ns(&all), "ranks.%d.ns", rank->rank);
    fputs("</div></td><td>", out);
    fr_html_number(out, FR_UNIT_NS, all.wait_ns, "ranks.%d.wait_ns", rank->rank);
    fputs("</td><td>", out);
    fr_html_number(out, FR_UNIT_NS, rank->wall_ns, "ranks.%d.wall_ns", rank->rank);
    fputs("</td><td class=\"text\">", out);
    fr_html_text(out, rank->ended);
    if (rank->signal)
        fprintf(out, " %d", rank->signal);
    fputs("</td></tr>\n", out);
}

void fr_page_ranks(FILE *out, const struct fr_job *job)
{
    uint64_t longest = 0;
    bool many = job->rank_count > MANY;
    for (size_t i = 0; i < job->rank_count; i++) {
        struct fr_tools_job_totals all = served(&job->ranks[i]);
        longest = fr_tools_job_ns(&all) > longest ? fr_tools_job_ns(&all) : longest;
    }
    fputs("<section id=\"ranks\"><h2>Ranks</h2>\n<p class=\"about\">Time in calls with device "
          "buffers, rank by rank.</p>\n",
          out);
    fr_page_time_legend(out);
    if (many)
        fprintf(out, "<details><summary>All %zu ranks</summary>\n", job->rank_count);
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of ranks\">"
          "<table class=\"sortable\"><thead><tr><th scope=\"col\">Rank</th><th scope=\"col\" "
          "class=\"text\">Host</th>"
          "<th scope=\"col\">Bytes</th><th scope=\"col\">Staged</th><th scope=\"col\">Time</th>"
          "<th scope=\"col\">Waiting</th>"
          "<th scope=\"col\">Start to end</th><th scope=\"col\" class=\"text\">Ended "
          "by</th></tr></thead><tbody>\n",
          out);
    for (size_t i = 0; i < job->rank_count; i++)
        write_rank(out, &job->ranks[i], longest);
    fputs("</tbody></table></div>", out);
    fputs(many ? "</details></section>\n" : "</section>\n", out);
}

// By the rank that has read or written them: the other one's NIC does not tell.
static uint64_t moved_by(const struct fr_tools_job_rail *rail)
{
    return rail->sent_bytes + rail->received_bytes;
}

void fr_page_rails(FILE *out, const struct fr_job *job)
{
    uint64_t all = 0;
    if (!job->rail_count)
        return;
    for (size_t i = 0; i < job->rail_count; i++)
        all += moved_by(&job->rails[i]);
    fputs(
        "<section id=\"rails\"><h2>Rails</h2>\n<p class=\"about\">What each NIC read from other "
        "ranks and wrote to them, over all ranks that have one of that name. Each byte is counted "
        "by the rank that read or wrote it alone.</p>\n<div class=\"scroll\" tabindex=\"0\" "
        "role=\"region\" aria-label=\"Table of rails\"><table><thead><tr><th scope=\"col\">Rail"
        "</th><th scope=\"col\">Share of what was moved</th><th scope=\"col\">Read</th><th "
        "scope=\"col\">Written</th>"
        "<th scope=\"col\">Straight into GPUs</th><th scope=\"col\">Stripes</th><th "
        "scope=\"col\">Ranks</th></tr></thead><tbody>\n",
        out);
    for (size_t i = 0; i < job->rail_count; i++) {
        const struct fr_tools_job_rail *rail = &job->rails[i];
        unsigned permille = fr_permille(moved_by(rail), all);
        fprintf(out, "<tr%s><th scope=\"row\">", rail->lost ? " class=\"bad\"" : "");
        fr_html_text(out, rail->name);
        if (rail->lost)
            fprintf(out, "<small>lost by %u</small>", rail->lost);
        fprintf(out,
                "</th><td class=\"plot\"><div class=\"row\" aria-hidden=\"true\"><span "
                "class=\"seg p-rail\" style=\"width:%u.%u%%\"></span></div>",
                permille / 10, permille % 10);
        fr_html_number(out, FR_UNIT_BYTES, moved_by(rail), "rails.%zu.moved", i);
        fprintf(out, "<small>%u.%u%%</small></td><td>", permille / 10, permille % 10);
        fr_html_number(out, FR_UNIT_BYTES, rail->received_bytes, "rails.%zu.read", i);
        fputs("</td><td>", out);
        fr_html_number(out, FR_UNIT_BYTES, rail->sent_bytes, "rails.%zu.written", i);
        fputs("</td><td>", out);
        fr_html_number(out, FR_UNIT_BYTES, rail->device_bytes, "rails.%zu.device", i);
        fputs("</td><td>", out);
        fr_html_number(out, FR_UNIT_COUNT, rail->stripes, NULL);
        fprintf(out, "</td><td>%u</td></tr>\n", rail->ranks);
    }
    fputs("</tbody></table></div></section>\n", out);
}

void fr_page_warnings(FILE *out, const struct fr_job *job)
{
    if (!job->warning_count)
        return;
    fputs("<section id=\"warnings\"><h2>Warnings</h2>\n<ul class=\"warnings\">\n", out);
    for (size_t i = 0; i < job->warning_count; i++) {
        const struct fr_tools_job_warning *warning = &job->warnings[i];
        fprintf(out, "<li><b>%s</b> ", warning->error ? "error" : "warning");
        fr_html_text(out, warning->text);
        if (warning->count == 1)
            fprintf(out, " <small>rank %d</small></li>\n", warning->rank);
        else
            fprintf(out, " <small>%u times, first on rank %d</small></li>\n", warning->count,
                    warning->rank);
    }
    fputs("</ul></section>\n", out);
}
