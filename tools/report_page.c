// SPDX-License-Identifier: BSD-3-Clause
// The page: its frame, what stands at its top, and the order of its parts. It needs nothing but
// itself: style and script are part of it.
#include "config.h"

#include "report.h"
#include "report_assets.h"

#include <signal.h>
#include <string.h>
#include <time.h>

static size_t count_hosts(const struct fr_job *job)
{
    size_t hosts = 0;
    for (size_t i = 0; i < job->rank_count; i++) {
        bool known = false;
        for (size_t j = 0; j < i && !known; j++)
            known = strcmp(job->ranks[i].host, job->ranks[j].host) == 0;
        hosts += !known;
    }
    return hosts;
}

static void write_lead(FILE *out, const struct fr_job *job)
{
    char text[64];
    time_t started = (time_t)(job->started_unix_ns / 1000000000);
    struct tm utc;
    size_t hosts = count_hosts(job);
    fprintf(out, "<header><h1>Fabrail report</h1>\n<p class=\"lead\">");
    if (job->name && job->name[0]) {
        fputs("Job ", out);
        fr_html_text(out, job->name);
        fputs(" · ", out);
    }
    fprintf(out, "<data value=\"%d\" data-k=\"size\">%d</data> rank%s on %zu host%s · ", job->size,
            job->size, job->size == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s");
    fr_html_text(out, job->mpi ? job->mpi : "an unknown MPI");
    if (job->detailed)
        fputs(job->gpu_aware ? ", GPU-aware" : ", not GPU-aware", out);
    if (gmtime_r(&started, &utc) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc))
        fprintf(out, " · started %s", text);
    fputs("</p>\n", out);
}

static void write_notice(FILE *out, const char *mark, const char *text)
{
    fprintf(out, "<p class=\"notice\"><b>%s</b> ", mark);
    fr_html_text(out, text);
    fputs("</p>\n", out);
}

// Writes the notices that a reader has to know before he believes the rest.
static void write_notices(FILE *out, const struct fr_job *job)
{
    char text[256];
    size_t early = 0;
    const struct fr_tools_job_rank *first = NULL;
    for (size_t i = 0; i < job->rank_count; i++) {
        const struct fr_tools_job_rank *rank = &job->ranks[i];
        if (strcmp(rank->ended, "finalize") == 0)
            continue;
        // Launchers end the other ranks so.
        if (!first || (first->signal == SIGTERM && rank->signal != SIGTERM))
            first = rank;
        early++;
    }
    if (job->rank_count < (size_t)job->size) {
        snprintf(text, sizeof(text), "%zu of %d ranks have a report here; the others are missing.",
                 job->rank_count, job->size);
        write_notice(out, "Incomplete.", text);
    }
    if (early) {
        char how[64] = "";
        if (first->signal)
            snprintf(how, sizeof(how), " by signal %d (%s)", first->signal,
                     strsignal(first->signal));
        else if (strcmp(first->ended, "abort") == 0)
            snprintf(how, sizeof(how), " by MPI_Abort");
        snprintf(text, sizeof(text),
                 "%zu rank%s ended before MPI_Finalize, rank %d%s; what they did until then is "
                 "counted.",
                 early, early == 1 ? "" : "s", first->rank, how);
        write_notice(out, "Ended early.", text);
    }
    if (!job->detailed)
        write_notice(out, "Summary.",
                     "This is the summary alone. With the files of the ranks beside it, the page "
                     "has functions, sizes and who talked to whom, too.");
}

static void begin_tile(FILE *out, const char *title)
{
    fprintf(out, "<div class=\"tile\"><dt>%s</dt><dd>", title);
}

static void write_tiles(FILE *out, const struct fr_job *job)
{
    struct fr_tools_job_totals paths[FR_TOOLS_JOB_PATHS], all = {.calls = 0};
    uint64_t longest = 0;
    fr_tools_job_sum(job, paths);
    for (unsigned path = 0; path < FR_TOOLS_JOB_NONE; path++)
        fr_tools_job_add(&all, &paths[path]);
    for (size_t i = 0; i < job->rank_count; i++)
        longest = job->ranks[i].wall_ns > longest ? job->ranks[i].wall_ns : longest;
    unsigned staged = fr_permille(paths[FR_TOOLS_JOB_HOST].bytes, all.bytes);
    fputs("<dl class=\"tiles\">\n", out);
    begin_tile(out, "Device data given to MPI");
    fr_html_number(out, FR_UNIT_BYTES, all.bytes, "all.bytes");
    fputs("</dd><dd class=\"sub\">in ", out);
    fr_html_number(out, FR_UNIT_COUNT, all.buffers, "all.buffers");
    fputs(" buffers</dd></div>\n", out);
    begin_tile(out, "Staged through host memory");
    fprintf(out, "%u.%u&thinsp;%%</dd><dd class=\"sub\">", staged / 10, staged % 10);
    fr_html_number(out, FR_UNIT_BYTES, paths[FR_TOOLS_JOB_HOST].bytes, "staged.bytes");
    fputs(" of it</dd></div>\n", out);
    begin_tile(out, "Time in these calls");
    fr_html_number(out, FR_UNIT_NS, fr_tools_job_ns(&all), "all.ns");
    fputs("</dd><dd class=\"sub\">over all ranks, ", out);
    fr_html_number(out, FR_UNIT_COUNT, all.calls, "all.calls");
    fputs(" calls</dd></div>\n", out);
    begin_tile(out, "Longest rank");
    fr_html_number(out, FR_UNIT_NS, longest, "wall.ns");
    fputs("</dd><dd class=\"sub\">from start to end</dd></div>\n</dl></header>\n", out);
}

static void write_style_of_paths(FILE *out)
{
    for (unsigned path = 0; path < FR_TOOLS_JOB_PATHS; path++)
        fprintf(out, ".p-%s{--c:var(--%s)}", fr_tools_job_path_name(path),
                fr_tools_job_path_name(path));
}

void fr_page_write(FILE *out, const struct fr_job *job, const struct fr_job *other)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>Fabrail report</title>\n<style>\n",
          out);
    fputs(fr_report_css, out);
    write_style_of_paths(out);
    fputs("</style></head>\n<body>\n<a class=\"skip\" href=\"#main\">To the report</a>\n", out);
    write_lead(out, job);
    fr_page_verdict(out, job);
    write_notices(out, job);
    write_tiles(out, job);
    fputs("<div class=\"bar\"><nav aria-label=\"Parts\"></nav>"
          "<label class=\"exact\" hidden><input type=\"checkbox\" id=\"exact\"> exact "
          "numbers</label></div>\n<main id=\"main\">\n",
          out);
    if (other)
        fr_page_compare(out, job, other);
    fr_page_functions(out, job);
    fr_page_sites(out, job);
    fr_page_comms(out, job);
    fr_page_paths(out, job);
    fr_page_advice(out, job);
    fr_page_matrix(out, job);
    fr_page_sizes(out, job);
    fr_page_rails(out, job);
    fr_page_ranks(out, job);
    fr_page_warnings(out, job);
    fr_page_job(out, job);
    fputs("</main>\n<footer><p>Written by Fabrail ", out);
    fr_html_text(out, PACKAGE_VERSION);
    fputs(" from reports of Fabrail ", out);
    fr_html_text(out, job->fabrail);
    fputs(". Host buffers are not counted. Waiting is what is known of it: the "
          "rest is part of the time in the MPI library. Of short calls that are made often only "
          "some are timed, and stand for the others. "
          "<b>man 7 fabrail</b> explains paths and settings.</p></footer>\n<script>\n",
          out);
    fputs(fr_report_js, out);
    fputs("</script>\n</body></html>\n", out);
}
