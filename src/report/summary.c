// SPDX-License-Identifier: BSD-3-Clause
// The summary of a job. Rank 0 makes it of the files that the ranks have written, after the real
// MPI_Finalize. So it takes no message, and nobody waits for a rank that writes no file.
#include "config.h"

#include "fabrail/core/files.h"
#include "fabrail/core/time.h"
#include "fabrail/job.h"
#include "report/out.h"
#include "report/report_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_BYTES = 1 << 16, LOOKS = 400, NAP_NS = 5000000 }; // looks for all files together

struct totals {
    uint64_t calls, buffers, bytes, fabrail_ns, copies_ns, mpi_ns, wait_ns;
};

struct summary {
    const char *target;
    int size;
    int found;
    int looks;   // that are left
    bool merges; // the files are taken into the summary
    struct totals paths[FR_PATH_COUNT + 1];
    struct fr_report_out out;
};

// Returns the text of a rank's file of this job, NULL for none. The caller frees it.
static char *await_file(struct summary *summary, int rank)
{
    char name[PATH_MAX], *text = NULL;
    size_t bytes;
    if (!fr_report_expand(summary->target, rank, name, sizeof(name)))
        return NULL;
    while (fr_core_file_read(name, SIZE_MAX - 1, &text, &bytes) != FR_OK && summary->looks-- > 0)
        fr_time_sleep(NAP_NS);
    return text;
}

// Returns the line of totals that json.c has written, without what surrounds it. Returns NULL if
// there is none.
static char *cut_totals(char *text)
{
    static const char mark[] = "\n  \"totals\": ";
    char *line = strstr(text, mark);
    char *end = line ? strstr(line + sizeof(mark) - 1, ",\n") : NULL;
    if (!end)
        return NULL;
    *end = '\0';
    return line + sizeof(mark) - 1;
}

static const char *path_name(unsigned path)
{
    return path == FR_NO_PATH ? "none" : fr_policy_path_name((enum fr_policy_path)path);
}

static void add_totals(struct summary *summary, const char *line)
{
    for (unsigned path = 0; path <= FR_NO_PATH; path++) {
        struct totals one, *all = &summary->paths[path];
        char mark[32];
        snprintf(mark, sizeof(mark), "\"%s\": {\"calls\": ", path_name(path));
        const char *at = strstr(line, mark);
        if (!at || sscanf(at + strlen(mark),
                          "%" SCNu64 ", \"buffers\": %" SCNu64 ", \"bytes\": %" SCNu64
                          ", \"fabrail_ns\": %" SCNu64 ", \"copies_ns\": %" SCNu64
                          ", \"mpi_ns\": %" SCNu64 ", \"wait_ns\": %" SCNu64,
                          &one.calls, &one.buffers, &one.bytes, &one.fabrail_ns, &one.copies_ns,
                          &one.mpi_ns, &one.wait_ns) != 7)
            continue;
        all->calls += one.calls;
        all->buffers += one.buffers;
        all->bytes += one.bytes;
        all->fabrail_ns += one.fabrail_ns;
        all->copies_ns += one.copies_ns;
        all->mpi_ns += one.mpi_ns;
        all->wait_ns += one.wait_ns;
    }
}

static void write_ranks(struct summary *summary)
{
    fr_report_put(&summary->out, "  \"ranks\": [");
    for (int rank = 0; rank < summary->size; rank++) {
        char *text = await_file(summary, rank);
        char *line = text ? cut_totals(text) : NULL;
        if (line) {
            add_totals(summary, line);
            fr_report_put(&summary->out, "%s\n    %s", summary->found++ ? "," : "", line);
        }
        free(text);
    }
    fr_report_put(&summary->out, "\n  ],\n  \"ranks_found\": %i,\n", summary->found);
}

static void write_paths(struct summary *summary)
{
    fr_report_put(&summary->out, "  \"paths\": {");
    for (unsigned path = 0; path <= FR_NO_PATH; path++) {
        const struct totals *all = &summary->paths[path];
        fr_report_put(&summary->out,
                      "%s\n    \"%s\": {\"calls\": %u, \"buffers\": %u, \"bytes\": %u, "
                      "\"fabrail_ns\": %u, \"copies_ns\": %u, \"mpi_ns\": %u, \"wait_ns\": %u}",
                      path ? "," : "", path_name(path), all->calls, all->buffers, all->bytes,
                      all->fabrail_ns, all->copies_ns, all->mpi_ns, all->wait_ns);
    }
    fr_report_put(&summary->out, "\n  },\n");
}

static void write_details(struct summary *summary)
{
    int written = 0;
    fr_report_put(&summary->out, "  \"details\": [");
    for (int rank = 0; rank < summary->size && summary->merges; rank++) {
        char *text = await_file(summary, rank);
        if (text)
            fr_report_put(&summary->out, "%s\n%s", written++ ? "," : "", text);
        free(text);
    }
    fr_report_put(&summary->out, "\n  ]\n}\n");
}

static void remove_parts(const struct summary *summary)
{
    char name[PATH_MAX];
    for (int rank = 0; rank < summary->size; rank++) {
        if (fr_report_expand(summary->target, rank, name, sizeof(name)))
            unlink(name);
    }
}

static void write_verdict(struct fr_report_out *out)
{
    const char *line;
    fr_report_put(out, "  \"verdict\": [");
    for (unsigned i = 0; (line = fr_report_verdict_line(i)); i++)
        fr_report_put(out, "%s\n    %q", i ? "," : "", line);
    fr_report_put(out, "\n  ],\n");
}

static void write_summary(struct summary *summary)
{
    struct fr_report_out *out = &summary->out;
    fr_report_put(out, "{\n  \"format\": \"fabrail-report\",\n  \"version\": %i,\n",
                  FR_REPORT_VERSION);
    fr_report_put(out, "  \"kind\": \"job\",\n  \"fabrail\": %q,\n  \"job\": %q,\n",
                  PACKAGE_VERSION, fr_report_job_name());
    fr_report_put(out, "  \"size\": %i,\n  \"started_unix_ns\": %u,\n  \"mpi\": %q,\n",
                  summary->size, fr_report_started_unix_ns(), fr_abi_mpi.family);
    write_verdict(out);
    write_ranks(summary);
    write_paths(summary);
    write_details(summary);
}

void fr_report_summarise(void)
{
    static char buffer[OUT_BYTES], name[PATH_MAX];
    struct summary summary = {.target = fr_report_target, .looks = LOOKS};
    summary.size = fr_job_size();
    if (!fr_report_on || fr_job_rank() != 0 || !summary.target[0] ||
        strcmp(summary.target, "text") == 0)
        return;
    summary.merges = !strstr(summary.target, "%r");
    if (!fr_report_expand(summary.target, FR_REPORT_JOB, name, sizeof(name)) ||
        !fr_report_out_open(&summary.out, name, buffer, sizeof(buffer))) {
        fr_warn("FABRAIL_REPORT: %s cannot be written: %m", name);
        return;
    }
    write_summary(&summary);
    if (!fr_report_out_close(&summary.out, name))
        fr_warn("FABRAIL_REPORT: %s was not written completely: %m", name);
    else if (summary.merges)
        remove_parts(&summary);
    if (summary.found < summary.size)
        fr_warn("FABRAIL_REPORT: %s has %d of %d ranks: the others have written none, or to a "
                "folder that rank 0 does not see",
                name, summary.found, summary.size);
}
