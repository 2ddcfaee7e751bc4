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
    {"trace", 't', "FILE", FR_TOOL_FILES, "merge the traces given into FILE, and write no page"},
    {NULL, 0, NULL, NULL, NULL},
};

static void write_page(FILE *out, const void *job)
{
    fr_page_write(out, job);
}

static bool put_page(const struct fr_job *job, const char *output)
{
    if (strcmp(output, "-") == 0) {
        fr_page_write(stdout, job);
        return true; // fabrail.c looks at standard output
    }
    if (!fr_tool_write_file(output, write_page, job))
        return false;
    printf("%s: %zu of %d ranks\n", output, job->rank_count, job->size);
    return true;
}

static bool make_page(char *const *names, size_t count, const char *output)
{
    struct fr_job job = {.size = -1};
    bool done = true;
    for (size_t i = 0; i < count && done; i++)
        done = fr_tools_job_read(&job, names[i]);
    done = done && fr_tools_job_finish(&job) && put_page(&job, output);
    fr_tools_job_free(&job);
    return done;
}

int fabrail_report(int argc, char **argv)
{
    const char *output = "fabrail-report.html", *trace = NULL;
    int code;
    while ((code = fr_tool_next(argc, argv)) != FR_TOOL_END) {
        if (code == 'o')
            output = optarg;
        else if (code == 't')
            trace = optarg;
        else
            return fr_tool_status(code);
    }
    size_t count = (size_t)(argc - optind);
    if (count == 0)
        return fr_tool_misuse("which files? FABRAIL_REPORT=FILE makes a job write them");
    bool done = trace ? fr_trace_merge(argv + optind, count, trace)
                      : make_page(argv + optind, count, output);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
