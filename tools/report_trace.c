// SPDX-License-Identifier: BSD-3-Clause
// Merges the traces of ranks into one file: their events follow each other, and their times count
// from the rank that began first, by the clocks of their hosts.
#include "config.h"

#include "report.h"
#include "report_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct trace {
    const char *name;
    json_object *object;
    json_object *events;
    json_object *about; // otherData
    uint64_t started_unix_ns;
    int rank;
};

static bool is_of_job(const struct trace *first, const struct trace *trace)
{
    static const char *const same[] = {"job", "size", "fabrail"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(same); i++) {
        json_object *a = NULL, *b = NULL;
        json_object_object_get_ex(first->about, same[i], &a);
        json_object_object_get_ex(trace->about, same[i], &b);
        if (!json_object_equal(a, b))
            return fr_tool_complain("%s is of another job than %s", trace->name, first->name);
    }
    return true;
}

static bool read_trace(struct trace *traces, size_t index, const char *name)
{
    struct trace *trace = &traces[index];
    struct fr_file file = {.name = name};
    trace->name = name;
    trace->object = fr_file_read(name, "fabrail-trace");
    if (!trace->object)
        return false;
    trace->events = fr_file_member(&file, trace->object, "traceEvents", json_type_array);
    trace->about = fr_file_member(&file, trace->object, "otherData", json_type_object);
    trace->rank = fr_file_int(&file, trace->about, "rank");
    trace->started_unix_ns = fr_file_count(&file, trace->about, "started_unix_ns");
    if (file.wrong || !is_of_job(traces, trace))
        return false;
    for (size_t i = 0; i < index; i++) {
        if (traces[i].rank == trace->rank)
            return fr_tool_complain("%s and %s are both of rank %d", traces[i].name, name,
                                    trace->rank);
    }
    return true;
}

static void write_event(FILE *out, json_object *event, double later_us, bool first)
{
    json_object *ts = NULL;
    char text[64];
    if (json_object_object_get_ex(event, "ts", &ts)) {
        snprintf(text, sizeof(text), "%.3f", json_object_get_double(ts) + later_us);
        json_object_object_add(event, "ts", json_object_new_double_s(strtod(text, NULL), text));
    }
    fprintf(out, "%s\n%s", first ? "" : ",",
            json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN));
}

struct traces {
    const struct trace *all;
    size_t count;
};

static void write_traces(FILE *out, const void *what)
{
    const struct trace *traces = ((const struct traces *)what)->all;
    size_t count = ((const struct traces *)what)->count;
    uint64_t start = UINT64_MAX, lost = 0;
    bool first = true;
    struct fr_file file = {.name = ""};
    for (size_t i = 0; i < count; i++)
        start = traces[i].started_unix_ns < start ? traces[i].started_unix_ns : start;
    fputs("{\"traceEvents\": [", out);
    for (size_t i = 0; i < count; i++) {
        double later_us = (double)(traces[i].started_unix_ns - start) / 1000;
        for (size_t e = 0; e < json_object_array_length(traces[i].events); e++) {
            write_event(out, json_object_array_get_idx(traces[i].events, e), later_us, first);
            first = false;
        }
        lost += fr_file_count(&file, traces[i].about, "lost_events");
    }
    fprintf(out,
            "\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"ranks\": %zu, "
            "\"started_unix_ns\": %" PRIu64 ", \"lost_events\": %" PRIu64 "}}\n",
            count, start, lost);
}

static bool write_file(const struct trace *traces, size_t count, const char *output)
{
    if (!fr_tool_write_file(output, write_traces, &(struct traces){.all = traces, .count = count}))
        return false;
    printf("%s: %zu rank%s\n", output, count, count == 1 ? "" : "s");
    return true;
}

bool fr_trace_merge(char *const *names, size_t count, const char *output)
{
    struct trace *traces = calloc(count, sizeof(*traces));
    bool done = traces || fr_tool_complain("out of memory");
    for (size_t i = 0; i < count && done; i++)
        done = read_trace(traces, i, names[i]);
    done = done && write_file(traces, count, output);
    for (size_t i = 0; i < count && traces; i++)
        json_object_put(traces[i].object);
    free(traces);
    return done;
}
