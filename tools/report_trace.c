// SPDX-License-Identifier: BSD-3-Clause
// Merges the traces of ranks into one file. Times count from the rank that began first. The clocks
// of hosts differ, and messages between them say by how much (report_clocks.c). A job with very
// many events keeps the last ones of each rank, so that a viewer can show them.
#include "config.h"

#include "report_trace.h"

#include "report_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// An event as text, without its time. Those without a time name processes and threads.
struct event {
    char *text;
    double us; // since its rank began
    bool timed;
};

struct trace {
    const char *name;
    int rank;
    uint64_t started_unix_ns;
    char *host;
    size_t host_index;
    struct event *events;
    size_t event_count;
};

struct merger {
    struct trace *all;
    size_t count;
    size_t share; // events of a rank that stay
    uint64_t lost;
    json_object *first; // otherData of the first trace
    struct fr_arrows arrows;
    struct fr_clocks clocks;
};

static bool is_of_job(const struct merger *merger, json_object *about, const char *name)
{
    static const char *const same[] = {"job", "size", "fabrail"};
    for (size_t i = 0; i < FR_ARRAY_LENGTH(same); i++) {
        json_object *a = NULL, *b = NULL;
        json_object_object_get_ex(merger->first, same[i], &a);
        json_object_object_get_ex(about, same[i], &b);
        if (!json_object_equal(a, b))
            return fr_tool_complain("%s is of another job than %s", name, merger->all[0].name);
    }
    return true;
}

static double time_of(json_object *event, bool *timed)
{
    json_object *ts = NULL;
    *timed = json_object_object_get_ex(event, "ts", &ts);
    return *timed ? json_object_get_double(ts) : 0;
}

static int by_number(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return first < second ? -1 : first > second;
}

// Returns the time from which on events stay. False without memory.
static bool find_first(json_object *events, size_t share, double *first_us)
{
    size_t count = json_object_array_length(events), timed_count = 0;
    *first_us = -1;
    if (count <= share)
        return true;
    double *times = malloc(count * sizeof(*times));
    if (!times)
        return fr_tool_complain("out of memory");
    for (size_t i = 0; i < count; i++) {
        bool timed;
        double us = time_of(json_object_array_get_idx(events, i), &timed);
        if (timed)
            times[timed_count++] = us;
    }
    qsort(times, timed_count, sizeof(*times), by_number);
    if (timed_count > share)
        *first_us = times[timed_count - share];
    free(times);
    return true;
}

// Notes an end of an arrow.
static bool note_arrow(struct merger *merger, size_t trace, json_object *event, double us)
{
    json_object *phase = NULL, *id = NULL;
    json_object_object_get_ex(event, "ph", &phase);
    const char *text = phase ? json_object_get_string(phase) : "";
    bool begins = strcmp(text, "s") == 0;
    if ((!begins && strcmp(text, "f") != 0) || !json_object_object_get_ex(event, "id", &id))
        return true;
    return fr_arrows_add(
        &merger->arrows,
        &(struct fr_arrow_end){
            .id = (uint64_t)json_object_get_int64(id), .us = us, .trace = trace, .begins = begins});
}

// Keeps the last events as text, in the order of the file.
static bool keep_events(struct merger *merger, size_t index, json_object *events)
{
    struct trace *trace = &merger->all[index];
    size_t count = json_object_array_length(events);
    double first_us;
    if (!find_first(events, merger->share, &first_us))
        return false;
    trace->events = calloc(count ? count : 1, sizeof(*trace->events));
    if (!trace->events)
        return fr_tool_complain("out of memory");
    for (size_t i = 0; i < count; i++) {
        json_object *event = json_object_array_get_idx(events, i);
        if (!json_object_is_type(event, json_type_object))
            return fr_tool_complain("%s: event %zu is no object", trace->name, i);
        struct event kept = {.us = time_of(event, &kept.timed)};
        if (kept.timed && kept.us < first_us) {
            merger->lost++;
            continue;
        }
        if (!note_arrow(merger, index, event, kept.us))
            return false;
        json_object_object_del(event, "ts");
        kept.text = strdup(json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN));
        if (!kept.text)
            return fr_tool_complain("out of memory");
        trace->events[trace->event_count++] = kept;
    }
    return true;
}

static bool is_new(const struct merger *merger, size_t index)
{
    const struct trace *trace = &merger->all[index];
    for (size_t i = 0; i < index; i++) {
        if (merger->all[i].rank == trace->rank)
            return fr_tool_complain("%s and %s are both of rank %d", merger->all[i].name,
                                    trace->name, trace->rank);
    }
    return true;
}

static bool read_trace(struct merger *merger, size_t index, const char *name)
{
    struct trace *trace = &merger->all[index];
    struct fr_file file = {.name = name};
    json_object *object = fr_file_read(name, "fabrail-trace");
    if (!object)
        return false;
    json_object *events = fr_file_member(&file, object, "traceEvents", json_type_array);
    json_object *about = fr_file_member(&file, object, "otherData", json_type_object);
    trace->name = name;
    trace->rank = fr_file_int(&file, about, "rank");
    trace->started_unix_ns = fr_file_count(&file, about, "started_unix_ns");
    merger->lost += fr_file_count(&file, about, "lost_events");
    const char *host = fr_file_text(&file, about, "host");
    trace->host = strdup(host ? host : "");
    if (!merger->first)
        merger->first = json_object_get(about);
    bool done = !file.wrong && trace->host && is_of_job(merger, about, name) &&
                is_new(merger, index) && keep_events(merger, index, events);
    json_object_put(object);
    return done;
}

// Numbers the hosts, and returns how many there are.
static size_t number_hosts(struct merger *merger)
{
    size_t hosts = 0;
    for (size_t i = 0; i < merger->count; i++) {
        size_t other = 0;
        while (strcmp(merger->all[other].host, merger->all[i].host) != 0)
            other++;
        merger->all[i].host_index = other < i ? merger->all[other].host_index : hosts++;
    }
    return hosts;
}

static bool align(struct merger *merger)
{
    size_t hosts = number_hosts(merger);
    uint64_t start = UINT64_MAX;
    for (size_t i = 0; i < merger->count; i++) {
        uint64_t began = merger->all[i].started_unix_ns;
        start = began < start ? began : start;
    }
    for (size_t i = 0; i < merger->arrows.count; i++) {
        struct fr_arrow_end *end = &merger->arrows.ends[i];
        const struct trace *trace = &merger->all[end->trace];
        end->us += (double)(trace->started_unix_ns - start) / 1000;
        end->host = trace->host_index;
    }
    return fr_clocks_find(&merger->arrows, hosts, &merger->clocks);
}

static void write_trace(FILE *out, const struct trace *trace, double later_us, bool *first)
{
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct event *event = &trace->events[i];
        fputs(*first ? "\n" : ",\n", out);
        *first = false;
        if (event->timed)
            fprintf(out, "{\"ts\":%.3f,%s", event->us + later_us, event->text + 1);
        else
            fputs(event->text, out);
    }
}

static void write_hosts(FILE *out, const struct merger *merger)
{
    size_t written = 0;
    for (size_t i = 0; i < merger->count; i++) {
        const struct trace *trace = &merger->all[i];
        if (trace->host_index != written)
            continue;
        json_object *host = json_object_new_string(trace->host);
        fprintf(out, "%s{\"host\": %s, \"ahead_us\": %.3f}", written++ ? ", " : "",
                json_object_to_json_string(host), merger->clocks.ahead_us[trace->host_index]);
        json_object_put(host);
    }
}

static void write_traces(FILE *out, const void *what)
{
    const struct merger *merger = what;
    uint64_t start = UINT64_MAX;
    double earliest_us = 0;
    bool first = true;
    for (size_t i = 0; i < merger->count; i++)
        start = merger->all[i].started_unix_ns < start ? merger->all[i].started_unix_ns : start;
    for (int pass = 0; pass < 2; pass++) { // no time is below 0
        if (pass)
            fputs("{\"traceEvents\": [", out);
        for (size_t i = 0; i < merger->count; i++) {
            const struct trace *trace = &merger->all[i];
            double later_us = (double)(trace->started_unix_ns - start) / 1000 -
                              merger->clocks.ahead_us[trace->host_index];
            if (pass)
                write_trace(out, trace, later_us - earliest_us, &first);
            else
                earliest_us = later_us < earliest_us ? later_us : earliest_us;
        }
    }
    fprintf(out,
            "\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"ranks\": %zu, "
            "\"started_unix_ns\": %" PRIu64 ", \"lost_events\": %" PRIu64 ", \"arrows\": %zu, "
            "\"hosts\": [",
            merger->count, start, merger->lost, merger->clocks.arrows);
    write_hosts(out, merger);
    fputs("]}}\n", out);
}

static bool write_file(const struct merger *merger, const char *output)
{
    if (!fr_tool_write_file(output, write_traces, merger))
        return false;
    printf("%s: %zu rank%s\n", output, merger->count, merger->count == 1 ? "" : "s");
    return true;
}

static void free_all(struct merger *merger)
{
    for (size_t i = 0; i < merger->count && merger->all; i++) {
        struct trace *trace = &merger->all[i];
        for (size_t e = 0; e < trace->event_count; e++)
            free(trace->events[e].text);
        free(trace->events);
        free(trace->host);
    }
    free(merger->all);
    free(merger->arrows.ends);
    free(merger->clocks.ahead_us);
    json_object_put(merger->first);
}

bool fr_trace_merge(char *const *names, size_t count, size_t most, const char *output)
{
    struct merger merger = {.all = calloc(count, sizeof(*merger.all)), .count = count};
    bool done = merger.all || fr_tool_complain("out of memory");
    merger.share = most / count ? most / count : 1;
    for (size_t i = 0; i < count && done; i++)
        done = read_trace(&merger, i, names[i]);
    done = done && align(&merger) && write_file(&merger, output);
    free_all(&merger);
    return done;
}
