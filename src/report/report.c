// SPDX-License-Identifier: BSD-3-Clause
// Counters of device buffers and their report.
#include "config.h"

#include "report/report.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct counter {
    _Atomic uint64_t buffers;
    _Atomic uint64_t bytes;
};
static struct counter by_function[FR_FN_COUNT][FR_PATH_COUNT];
static struct counter by_kind[FR_KIND_COUNT][FR_PATH_COUNT];
static const char *_Atomic reasons[FR_FN_COUNT][FR_PATH_COUNT];

static void add(struct counter *counter, size_t bytes)
{
    atomic_fetch_add_explicit(&counter->buffers, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counter->bytes, bytes, memory_order_relaxed);
}

void fr_report_count(enum fr_fn fn, enum fr_policy_path path, enum fr_device_kind kind,
                     size_t bytes, const char *reason)
{
    add(&by_function[fn][path], bytes);
    add(&by_kind[kind][path], bytes);
    atomic_store_explicit(&reasons[fn][path], reason, memory_order_relaxed);
}

static void subtract(struct counter *counter, size_t bytes)
{
    atomic_fetch_sub_explicit(&counter->buffers, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&counter->bytes, bytes, memory_order_relaxed);
}

void fr_report_recount(enum fr_fn fn, enum fr_policy_path from, enum fr_policy_path to,
                       enum fr_device_kind kind, size_t bytes, const char *reason)
{
    subtract(&by_function[fn][from], bytes);
    subtract(&by_kind[kind][from], bytes);
    fr_report_count(fn, to, kind, bytes, reason);
}

static void sum(enum fr_policy_path path, uint64_t *buffers, uint64_t *bytes)
{
    *buffers = 0;
    *bytes = 0;
    for (int kind = 0; kind < FR_KIND_COUNT; kind++) {
        *buffers += by_kind[kind][path].buffers;
        *bytes += by_kind[kind][path].bytes;
    }
}

static void write_paths(FILE *out)
{
    fprintf(out, "  \"paths\": {");
    for (int path = 0; path < FR_PATH_COUNT; path++) {
        uint64_t buffers, bytes;
        sum((enum fr_policy_path)path, &buffers, &bytes);
        fprintf(out, "%s\n    \"%s\": {\"buffers\": %ju, \"bytes\": %ju}", path ? "," : "",
                fr_policy_path_name((enum fr_policy_path)path), (uintmax_t)buffers,
                (uintmax_t)bytes);
    }
    fprintf(out, "\n  },\n");
}

static void write_kinds(FILE *out)
{
    const char *separator = "";
    fprintf(out, "  \"memory\": [");
    for (int kind = 0; kind < FR_KIND_COUNT; kind++) {
        for (int path = 0; path < FR_PATH_COUNT; path++) {
            const struct counter *counter = &by_kind[kind][path];
            if (!counter->buffers)
                continue;
            fprintf(
                out,
                "%s\n    {\"kind\": \"%s\", \"path\": \"%s\", \"buffers\": %ju, \"bytes\": %ju}",
                separator, fr_device_kind_name((enum fr_device_kind)kind),
                fr_policy_path_name((enum fr_policy_path)path), (uintmax_t)counter->buffers,
                (uintmax_t)counter->bytes);
            separator = ",";
        }
    }
    fprintf(out, "\n  ],\n");
}

static void write_functions(FILE *out)
{
    const char *separator = "";
    fprintf(out, "  \"functions\": [");
    for (int fn = 0; fn < FR_FN_COUNT; fn++) {
        for (int path = 0; path < FR_PATH_COUNT; path++) {
            const struct counter *counter = &by_function[fn][path];
            if (!counter->buffers)
                continue;
            fprintf(
                out,
                "%s\n    {\"name\": \"%s\", \"path\": \"%s\", \"buffers\": %ju, \"bytes\": %ju, "
                "\"reason\": \"%s\"}",
                separator, fr_real_rows[fn].name, fr_policy_path_name((enum fr_policy_path)path),
                (uintmax_t)counter->buffers, (uintmax_t)counter->bytes, reasons[fn][path]);
            separator = ",";
        }
    }
    fprintf(out, "\n  ]\n");
}

static void write_json(FILE *out, const struct fr_report_job *job)
{
    fprintf(out, "{\n  \"fabrail\": \"%s\",\n  \"rank\": %d,\n  \"size\": %d,\n", PACKAGE_VERSION,
            fr_world_rank(), fr_world_size());
    fprintf(out, "  \"mpi\": \"%s\",\n  \"mpi_gpu_aware\": %s,\n", fr_real_mpi.family,
            job->mpi_gpu_aware ? "true" : "false");
    fprintf(out, "  \"hosts\": %d,\n  \"nvlink_cliques\": %d,\n  \"fabric_memory\": \"%s\",\n",
            job->hosts, job->cliques, job->fabric_memory);
    fprintf(out, "  \"workspace_peak_bytes\": %zu,\n", job->workspace_peak_bytes);
    write_paths(out);
    write_kinds(out);
    write_functions(out);
    fprintf(out, "}\n");
}

static void write_text(const struct fr_report_job *job)
{
    if (job->workspace_peak_bytes)
        fr_core_log_write(FR_LOG_INFO, "report: fabric memory %s workspace peak %zu bytes",
                          job->fabric_memory, job->workspace_peak_bytes);
    for (int fn = 0; fn < FR_FN_COUNT; fn++) {
        for (int path = 0; path < FR_PATH_COUNT; path++) {
            const struct counter *counter = &by_function[fn][path];
            if (!counter->buffers)
                continue;
            fr_core_log_write(FR_LOG_INFO, "report: %s path %s buffers %ju bytes %ju because %s",
                              fr_real_rows[fn].name, fr_policy_path_name((enum fr_policy_path)path),
                              (uintmax_t)counter->buffers, (uintmax_t)counter->bytes,
                              reasons[fn][path]);
        }
    }
}

static void expand_name(const char *pattern, char *name, size_t bytes)
{
    const char *mark = strstr(pattern, "%r");
    if (mark)
        snprintf(name, bytes, "%.*s%d%s", (int)(mark - pattern), pattern, fr_world_rank(),
                 mark + 2);
    else
        snprintf(name, bytes, "%s", pattern);
}

void fr_report_write(const struct fr_report_job *job)
{
    static atomic_flag written = ATOMIC_FLAG_INIT;
    char name[4096];
    const char *target = fr_core_settings()->report;
    if (!target || !target[0] || atomic_flag_test_and_set(&written))
        return;
    if (strcmp(target, "text") == 0) {
        write_text(job);
        return;
    }
    expand_name(target, name, sizeof(name));
    FILE *out = fopen(name, "w");
    if (!out) {
        fr_warn("FABRAIL_REPORT: %s cannot be written: %s", name, strerror(errno));
        return;
    }
    write_json(out, job);
    if (fclose(out))
        fr_warn("FABRAIL_REPORT: %s was not written completely: %s", name, strerror(errno));
}
