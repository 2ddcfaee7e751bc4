// SPDX-License-Identifier: BSD-3-Clause
// fabrail report: makes one page of the reports of a job, and one trace of its traces.
#include "config.h"

#include "report.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const struct fr_tool_option fabrail_report_options[] = {
    {"output", 'o', "FILE", FR_TOOL_FILES,
     "write the page to FILE in place of fabrail-report.html; - is standard output"},
    {"text", 'x', NULL, NULL, "print the verdict in lines, and write no page"},
    {"against", 'a', "FILE", FR_TOOL_FILES, "compare with the report of another job, in one FILE"},
    {"trace", 't', "FILE", FR_TOOL_FILES, "merge the traces given into FILE, and write no page"},
    {"events", 'e', "N", NULL,
     "with --trace, keep the last N events, as many of each rank; 524288 if not given"},
    {NULL, 0, NULL, NULL, NULL},
};

struct page {
    const struct fr_job *job;
    const struct fr_job *other;
};

static void write_page(FILE *out, const void *cookie)
{
    const struct page *page = cookie;
    fr_page_write(out, page->job, page->other);
}

static bool put_page(const struct fr_job *job, const struct fr_job *other, const char *output)
{
    const struct page page = {job, other};
    if (!output) {
        fr_text_write(stdout, job);
        return true;
    }
    if (strcmp(output, "-") == 0) {
        fr_page_write(stdout, job, other);
        return true; // fabrail.c looks at standard output
    }
    if (!fr_tool_write_file(output, write_page, &page))
        return false;
    printf("%s: %zu of %d ranks\n", output, job->rank_count, job->size);
    return true;
}

// Makes the page, or prints the verdict if there is no output.
static bool make_page(char *const *names, size_t count, const char *output, const char *against)
{
    struct fr_job job = {.size = -1}, other = {.size = -1};
    bool done = !against || (fr_tools_job_read(&other, against) && fr_tools_job_finish(&other));
    for (size_t i = 0; i < count && done; i++)
        done = fr_tools_job_read(&job, names[i]);
    done = done && (!against || (fr_tools_job_is_detailed(&job, names[0]) &&
                                 fr_tools_job_is_detailed(&other, against)));
    done = done && fr_tools_job_finish(&job) && put_page(&job, against ? &other : NULL, output);
    fr_tools_job_free(&job);
    fr_tools_job_free(&other);
    return done;
}

int fabrail_report(int argc, char **argv)
{
    const char *output = "fabrail-report.html", *trace = NULL, *against = NULL;
    long long most = 1 << 19;
    char *end = NULL;
    int code;
    while ((code = fr_tool_next(argc, argv)) != FR_TOOL_END) {
        if (code == 'o')
            output = optarg;
        else if (code == 'x')
            output = NULL;
        else if (code == 'a')
            against = optarg;
        else if (code == 't')
            trace = optarg;
        else if (code == 'e')
            most = strtoll(optarg, &end, 10);
        else
            return fr_tool_status(code);
    }
    size_t count = (size_t)(argc - optind);
    if ((end && *end) || most < 1)
        return fr_tool_misuse("--events wants a number of events");
    if (count == 0)
        return fr_tool_misuse("which files? FABRAIL_REPORT=FILE makes a job write them");
    bool done = trace ? fr_trace_merge(argv + optind, count, (size_t)most, trace)
                      : make_page(argv + optind, count, output, against);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
