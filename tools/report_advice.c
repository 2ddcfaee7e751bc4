// SPDX-License-Identifier: BSD-3-Clause
// The part of the page that says what staging has cost and what would avoid it: from the reasons
// that the library recorded, so it says nothing that the job has not shown.
#include "config.h"

#include "report.h"

#include <string.h>

static int topic_of(const struct fr_tools_job_function *function)
{
    const struct fr_verdict_reason reason = {
        .name = function->name,
        .scheme = function->scheme,
        .reason = function->reason,
        .path = fr_tools_job_policy_path(function->path),
        .has_buffers = function->totals.buffers > 0,
    };
    return fr_verdict_topic(&reason);
}

const char *fr_tools_job_advice(const struct fr_tools_job_function *function, const char **title)
{
    int topic = topic_of(function);
    if (topic < 0)
        return NULL;
    *title = fr_verdict_topic_title(topic);
    return fr_verdict_topic_advice(topic);
}

// The functions of a topic that weigh most.
static void write_names(FILE *out, const struct fr_job *job, int topic)
{
    enum { MOST = 4 };
    int written = 0;
    const char *last = "";
    for (size_t i = 0; i < job->function_count && written < MOST; i++) {
        const struct fr_tools_job_function *function = &job->functions[i];
        if (topic_of(function) != topic || strcmp(function->name, last) == 0)
            continue;
        fputs(written++ ? ", <code>" : "<code>", out);
        fr_html_text(out, function->name);
        fputs("</code>", out);
        last = function->name;
    }
}

static uint64_t cost_of(const struct fr_tools_job_totals *totals)
{
    return totals->copies_ns + totals->fabrail_ns;
}

static void write_topic(FILE *out, const struct fr_job *job, int topic,
                        const struct fr_tools_job_totals *totals)
{
    fprintf(out, "<li><h3>%s</h3><p class=\"cost\">", fr_verdict_topic_title(topic));
    fr_html_number(out, FR_UNIT_BYTES, totals->bytes, "advice.%d.bytes", topic);
    fputs(" in ", out);
    fr_html_number(out, FR_UNIT_COUNT, totals->buffers, NULL);
    fputs(" buffers, ", out);
    fr_html_number(out, FR_UNIT_NS, cost_of(totals), "advice.%d.ns", topic);
    fputs(" outside MPI: ", out);
    write_names(out, job, topic);
    fprintf(out, "</p><p>%s</p></li>\n", fr_verdict_topic_advice(topic));
}

// Writes the topic that has cost most first.
static void write_topics(FILE *out, const struct fr_job *job,
                         const struct fr_tools_job_totals *totals)
{
    bool written[FR_VERDICT_TOPICS] = {false};
    for (int place = 0; place < FR_VERDICT_TOPICS; place++) {
        int next = -1;
        for (int topic = 0; topic < FR_VERDICT_TOPICS; topic++) {
            if (!written[topic] && totals[topic].buffers &&
                (next < 0 || cost_of(&totals[topic]) > cost_of(&totals[next])))
                next = topic;
        }
        if (next < 0)
            return;
        written[next] = true;
        write_topic(out, job, next, &totals[next]);
    }
}

void fr_page_advice(FILE *out, const struct fr_job *job)
{
    struct fr_tools_job_totals totals[FR_VERDICT_TOPICS] = {{.calls = 0}},
                               paths[FR_TOOLS_JOB_PATHS];
    bool any = false;
    fr_tools_job_sum(job, paths);
    for (size_t i = 0; i < job->function_count; i++) {
        int topic = topic_of(&job->functions[i]);
        if (topic >= 0)
            fr_tools_job_add(&totals[topic], &job->functions[i].totals);
        any = any || topic >= 0;
    }
    const struct fr_tools_job_totals *host = &paths[FR_TOOLS_JOB_HOST];
    fputs("<section id=\"advice\"><h2>What staging cost</h2>\n<p class=\"about\">", out);
    if (!host->calls && !host->buffers && !any) {
        fputs("Nothing was staged through host memory.</p></section>\n", out);
        return;
    }
    fputs("Calls on path host took ", out);
    fr_html_number(out, FR_UNIT_NS, fr_tools_job_ns(host), "staging.ns");
    fputs(" of all ranks together, of which ", out);
    fr_html_number(out, FR_UNIT_NS, host->copies_ns, "staging.copies_ns");
    fputs(" in copies and ", out);
    fr_html_number(out, FR_UNIT_NS, host->fabrail_ns, "staging.fabrail_ns");
    fputs(" in Fabrail.</p>\n<ol class=\"advice\">\n", out);
    write_topics(out, job, totals);
    fputs("</ol></section>\n", out);
}
