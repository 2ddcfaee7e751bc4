// SPDX-License-Identifier: BSD-3-Clause
// The part of the page that says what staging has cost and what would avoid it: from the reasons
// that the library recorded, so it says nothing that the job has not shown.
#include "config.h"

#include "report.h"

#include <inttypes.h>
#include <string.h>

enum kind { MESSAGE, REDUCTION, COLLECTIVE, OTHER };

// What a function is, by its name.
static enum kind kind_of(const char *name)
{
    static const struct {
        const char *part;
        enum kind kind;
    } parts[] = {
        {"send", MESSAGE},       {"Send", MESSAGE},       {"recv", MESSAGE},
        {"Recv", MESSAGE},       {"lltoall", COLLECTIVE}, {"educe", REDUCTION},
        {"scan", REDUCTION},     {"Scan", REDUCTION},     {"cast", COLLECTIVE},
        {"gather", COLLECTIVE},  {"Gather", COLLECTIVE},  {"scatter", COLLECTIVE},
        {"Scatter", COLLECTIVE},
    };
    if (strncmp(name, "MPI_File", 8) == 0)
        return OTHER;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(parts); i++) {
        if (strstr(name, parts[i].part))
            return parts[i].kind;
    }
    return OTHER;
}

enum {
    UNAWARE_MESSAGES,
    UNAWARE_COLLECTIVES,
    NONBLOCKING,
    UNAWARE_OTHERS,
    TURNS,
    EXCLUDED,
    NO_PASS,
    IN_CHUNKS,
    NO_WORKSPACE,
    REFUSED,
    UNEXPLAINED,
    TOPICS
};

static const struct {
    const char *title;
    const char *advice;
} topics[TOPICS] = {
    [UNAWARE_MESSAGES] =
        {"Messages staged whole",
         "The MPI library is not GPU-aware, and these went neither over NVLink nor over rails. "
         "Those of less than 40 bytes never do, nor do the first between two ranks, until the "
         "receiver has mapped the sender's workspace: send fewer, larger messages. If the GPUs "
         "reach each other by NVLink, see that FABRAIL_PATHS allows peer on all ranks. Between "
         "hosts that NVLink joins, FABRAIL_CLIQUE_MIN is the least that goes that way; between "
         "others it is FABRAIL_RAIL_MIN over two or more NICs, and from FABRAIL_PIPELINE_MIN on "
         "messages overlap their copies with the network."},
    [UNAWARE_COLLECTIVES] =
        {"Collectives staged whole",
         "The MPI library is not GPU-aware, and these did not go over NVLink. Blocking ones do "
         "where all ranks give device memory and their GPUs reach each other, nonblocking ones "
         "that move data on one host alone, reductions by predefined operations on predefined "
         "datatypes; FABRAIL_PATHS has to allow peer on all ranks. The first two on a communicator "
         "may be staged in any case: keep communicators, and make none anew for each step."},
    [NONBLOCKING] = {"Nonblocking and persistent reductions staged",
                     "The MPI library is not GPU-aware, and over NVLink Fabrail moves reductions "
                     "in their blocking forms alone: call these where nothing is done meanwhile."},
    [UNAWARE_OTHERS] =
        {"Files, windows and packing staged",
         "These functions work on host memory where the MPI library is not GPU-aware. Nothing "
         "moves them faster but a GPU-aware MPI library."},
    [TURNS] = {"Messages between ranks that share a GPU",
               "Ranks on one GPU take turns there, by slices of time, and copies within it wait "
               "for them; "
               "short messages wait less through host memory. NVIDIA's MPS lets such ranks use the "
               "GPU at "
               "once: start it, or give each rank a GPU of its own."},
    [EXCLUDED] =
        {"Functions that the GPU-aware MPI excludes",
         "The MPI library's manual lists these as not able to take device memory, so they are "
         "staged. Their blocking forms, or messages in their place, would go the direct way."},
    [NO_PASS] = {"Path pass is switched off",
                 "The MPI library is GPU-aware, but FABRAIL_PATHS leaves out pass: allow it, and "
                 "these buffers need no staging."},
    [IN_CHUNKS] =
        {"Messages in chunks",
         "These went through page-locked memory in chunks, whose copies overlap with the network. "
         "That is the way where GPUs cannot map each other's memory. Between hosts that have two "
         "NICs or more in common path rail is faster: fabrail info says whether it can be taken."},
    [NO_WORKSPACE] =
        {"No room in the workspace",
         "These buffers would have been faster by NVLink or all NICs, through device memory of the "
         "workspace: raise FABRAIL_WORKSPACE_MAX, or see in the warnings what was missing, such as "
         "an IMEX channel."},
    [REFUSED] =
        {"Calls that were refused",
         "No path was correct for these buffers, and the calls returned an MPI error. Windows over "
         "device memory need host memory; for the others allow path host in FABRAIL_PATHS."},
    [UNEXPLAINED] = {"Other staging", "The reasons stand in the table of functions."},
};

static bool says(const struct fr_tools_job_function *function, const char *words)
{
    return function->reason && strstr(function->reason, words) != NULL;
}

static bool is_deferred(const char *name)
{
    const char *suffix = strstr(name, "_init");
    return strncmp(name, "MPI_I", 5) == 0 || (suffix && suffix[5] == '\0');
}

static int topic_of(const struct fr_tools_job_function *function)
{
    enum kind kind = kind_of(function->name);
    if (function->path == FR_TOOLS_JOB_REFUSE)
        return REFUSED;
    if (function->path == FR_TOOLS_JOB_PASS && says(function, "no fabric workspace"))
        return NO_WORKSPACE;
    if (function->path != FR_TOOLS_JOB_HOST || !function->totals.buffers)
        return -1;
    if (function->scheme && strcmp(function->scheme, "pipeline") == 0)
        return IN_CHUNKS;
    if (says(function, "excludes pass"))
        return NO_PASS;
    if (says(function, "GPU support excludes"))
        return EXCLUDED;
    if (says(function, "take turns on one GPU"))
        return TURNS;
    if (says(function, "no device workspace"))
        return NO_WORKSPACE;
    if (kind == MESSAGE)
        return UNAWARE_MESSAGES;
    if (!function->reason)
        return UNEXPLAINED;
    if (kind == REDUCTION && is_deferred(function->name))
        return NONBLOCKING;
    return kind == OTHER ? UNAWARE_OTHERS : UNAWARE_COLLECTIVES;
}

const char *fr_tools_job_advice(const struct fr_tools_job_function *function, const char **title)
{
    int topic = topic_of(function);
    if (topic < 0)
        return NULL;
    *title = topics[topic].title;
    return topics[topic].advice;
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
    fprintf(out, "<li><h3>%s</h3><p class=\"cost\">", topics[topic].title);
    fr_html_number(out, FR_UNIT_BYTES, totals->bytes, "advice.%d.bytes", topic);
    fputs(" in ", out);
    fr_html_number(out, FR_UNIT_COUNT, totals->buffers, NULL);
    fputs(" buffers, ", out);
    fr_html_number(out, FR_UNIT_NS, cost_of(totals), "advice.%d.ns", topic);
    fputs(" outside MPI: ", out);
    write_names(out, job, topic);
    fprintf(out, "</p><p>%s</p></li>\n", topics[topic].advice);
}

// What has cost most comes first.
static void write_topics(FILE *out, const struct fr_job *job,
                         const struct fr_tools_job_totals *totals)
{
    bool written[TOPICS] = {false};
    for (int place = 0; place < TOPICS; place++) {
        int next = -1;
        for (int topic = 0; topic < TOPICS; topic++) {
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
    struct fr_tools_job_totals totals[TOPICS] = {{.calls = 0}}, paths[FR_TOOLS_JOB_PATHS];
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
