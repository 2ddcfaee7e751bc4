// SPDX-License-Identifier: BSD-3-Clause
// A job from the reports of its ranks: of files of one rank each, or of one that has all, or of a
// summary alone. Files that do not belong together are refused.
#include "config.h"

#include "report.h"
#include "report_file.h"

#include <stdlib.h>
#include <string.h>

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static struct fr_tools_job_totals read_totals(struct fr_file *file, json_object *object)
{
    return (struct fr_tools_job_totals){
        .calls = fr_file_count(file, object, "calls"),
        .buffers = fr_file_count(file, object, "buffers"),
        .bytes = fr_file_count(file, object, "bytes"),
        .fabrail_ns = fr_file_count(file, object, "fabrail_ns"),
        .copies_ns = fr_file_count(file, object, "copies_ns"),
        .mpi_ns = fr_file_count(file, object, "mpi_ns"),
        .wait_ns = fr_file_has(object, "wait_ns") ? fr_file_count(file, object, "wait_ns") : 0,
    };
}

// Paths that a later library has, and this command does not know, are not left out in silence.
static unsigned read_path(struct fr_file *file, json_object *object)
{
    unsigned path = 0;
    const char *name = fr_file_text(file, object, "path");
    if (!file->wrong && !fr_tools_job_path_named(name, &path)) {
        json_object *member = fr_file_member(file, object, "path", json_type_string);
        (void)fr_tool_complain("%s has a path %s, which this version does not know", file->name,
                               json_object_to_json_string(member)); // on one line, whatever it is
        file->wrong = true;
    }
    return path;
}

static struct fr_tools_job_rank *find_rank(struct fr_job *job, int rank)
{
    for (size_t i = 0; i < job->rank_count; i++) {
        if (job->ranks[i].rank == rank)
            return &job->ranks[i];
    }
    return NULL;
}

static void free_rank(struct fr_tools_job_rank *rank)
{
    free(rank->host);
    free(rank->ended);
    free(rank->file);
}

// The line of totals of a rank, which a summary has too.
static bool add_rank(struct fr_job *job, struct fr_file *file, json_object *totals, int signal,
                     bool detailed)
{
    int number = fr_file_int(file, totals, "rank");
    json_object *paths = fr_file_member(file, totals, "paths", json_type_object);
    struct fr_tools_job_rank *twin = find_rank(job, number);
    if (file->wrong)
        return false;
    if (twin && twin->detailed)
        return fr_tool_complain("%s and %s are both of rank %d", twin->file, file->name, number);
    if (number < 0 || number >= job->size)
        return fr_tool_complain("%s is of rank %d in a job of %d ranks", file->name, number,
                                job->size);
    struct fr_tools_job_rank *rank = twin; // known from a summary
    if (!rank)
        rank = fr_tools_append(&job->ranks, &job->rank_count, sizeof(*rank));
    if (!rank)
        return false;
    free_rank(rank);
    memset(rank, 0, sizeof(*rank));
    job->current = (size_t)(rank - job->ranks);
    rank->detailed = detailed;
    rank->rank = number;
    rank->signal = signal;
    rank->file = copy(file->name);
    rank->host = copy(fr_file_text(file, totals, "host"));
    rank->ended = copy(fr_file_text(file, totals, "ended"));
    rank->wall_ns = fr_file_count(file, totals, "wall_ns");
    rank->facts.rank = number;
    rank->facts.wall_ns = rank->wall_ns;
    json_object_object_foreach(paths, key, value)
    {
        unsigned path;
        if (fr_tools_job_path_named(key, &path))
            rank->paths[path] = read_totals(file, value);
    }
    return !file->wrong;
}

// Adds a row to what the verdict rests on, as the library does.
static void add_fact(struct fr_job *job, const char *name, unsigned path, const char *scheme,
                     const char *reason, const struct fr_tools_job_totals *totals)
{
    const struct fr_verdict_reason why = {.name = name,
                                          .scheme = scheme,
                                          .reason = reason,
                                          .path = fr_tools_job_policy_path(path),
                                          .has_buffers = totals->buffers > 0};
    fr_verdict_add_row(&job->ranks[job->current].facts, &why,
                       &(struct fr_verdict_row){.calls = totals->calls,
                                                .bytes = totals->bytes,
                                                .fabrail_ns = totals->fabrail_ns,
                                                .copies_ns = totals->copies_ns,
                                                .mpi_ns = totals->mpi_ns,
                                                .wait_ns = totals->wait_ns});
}

static bool add_function(struct fr_job *job, struct fr_file *file, json_object *row)
{
    const char *name = fr_file_text(file, row, "name"),
               *scheme = fr_file_text_or_null(file, row, "scheme"),
               *reason = fr_file_text_or_null(file, row, "reason");
    unsigned path = read_path(file, row);
    struct fr_tools_job_totals totals = read_totals(file, row);
    struct fr_tools_job_function *found = NULL;
    if (file->wrong || !name)
        return false;
    for (size_t i = 0; i < job->function_count && !found; i++) {
        struct fr_tools_job_function *one = &job->functions[i];
        if (one->path == path && same(one->name, name) && same(one->scheme, scheme) &&
            same(one->reason, reason))
            found = one;
    }
    if (!found) {
        found = fr_tools_append(&job->functions, &job->function_count, sizeof(*found));
        if (!found)
            return false;
        found->path = path;
        found->name = copy(name);
        found->scheme = copy(scheme);
        found->reason = copy(reason);
    }
    fr_tools_job_add(&found->totals, &totals);
    add_fact(job, name, path, scheme, reason, &totals);
    return true;
}

static bool add_size(struct fr_job *job, struct fr_file *file, json_object *row)
{
    unsigned path = read_path(file, row);
    uint64_t from = fr_file_count(file, row, "from_bytes");
    if (file->wrong)
        return false;
    struct fr_tools_job_cell *cell = &job->sizes[path][from ? 63 - __builtin_clzll(from) : 0];
    cell->messages += fr_file_count(file, row, "buffers");
    cell->bytes += fr_file_count(file, row, "bytes");
    return !file->wrong;
}

static bool make_matrix(struct fr_job *job)
{
    job->group = (job->size - 1) / FR_TOOLS_JOB_MOST_SIDE + 1;
    job->side = (job->size - 1) / job->group + 1;
    job->matrix = calloc((size_t)job->side * (size_t)job->side, sizeof(*job->matrix));
    return job->matrix || fr_tool_complain("out of memory");
}

static void add_cell(struct fr_job *job, int from, int to, uint64_t bytes, uint64_t messages)
{
    struct fr_tools_job_cell *cell = &job->matrix[from / job->group * job->side + to / job->group];
    cell->bytes += bytes;
    cell->messages += messages;
}

static bool add_peers(struct fr_job *job, struct fr_file *file, json_object *report, int rank)
{
    json_object *peers = fr_file_member(file, report, "peers", json_type_array);
    json_object *everyone = fr_file_member(file, report, "everyone", json_type_array);
    if (file->wrong || rank < 0 || job->size < 1)
        return !file->wrong;
    if (!job->matrix && !make_matrix(job))
        return false;
    for (size_t i = 0; i < json_object_array_length(peers); i++) {
        json_object *row = json_object_array_get_idx(peers, i);
        int to = fr_file_int(file, row, "rank");
        uint64_t bytes = fr_file_count(file, row, "bytes"),
                 messages = fr_file_count(file, row, "messages");
        if (file->wrong)
            return false;
        if (to < 0 || to >= job->size)
            return fr_tool_complain("%s sends to rank %d in a job of %d ranks", file->name, to,
                                    job->size);
        add_cell(job, rank, to, bytes, messages);
    }
    for (size_t i = 0; i < json_object_array_length(everyone); i++) {
        json_object *row = json_object_array_get_idx(everyone, i);
        for (int to = 0; to < job->size; to++)
            add_cell(job, rank, to, fr_file_count(file, row, "bytes"),
                     fr_file_count(file, row, "messages"));
    }
    return !file->wrong;
}

static bool add_rail(struct fr_job *job, struct fr_file *file, json_object *row)
{
    const char *name = fr_file_text(file, row, "name");
    json_object *lost = fr_file_member(file, row, "lost", json_type_boolean);
    struct fr_tools_job_rail *rail = NULL;
    for (size_t i = 0; i < job->rail_count && !rail; i++)
        rail = same(job->rails[i].name, name) ? &job->rails[i] : NULL;
    if (!rail) {
        rail = fr_tools_append(&job->rails, &job->rail_count, sizeof(*rail));
        if (!rail)
            return false;
        rail->name = copy(name ? name : "");
    }
    struct fr_verdict_rank *facts = &job->ranks[job->current].facts;
    facts->rails++;
    facts->rails_lost += json_object_get_boolean(lost) ? 1 : 0;
    rail->ranks++;
    rail->lost += json_object_get_boolean(lost);
    rail->sent_bytes += fr_file_count(file, row, "sent_bytes");
    rail->received_bytes += fr_file_count(file, row, "received_bytes");
    rail->device_bytes += fr_file_count(file, row, "device_bytes");
    rail->stripes += fr_file_count(file, row, "stripes");
    return !file->wrong;
}

static uint64_t read_path_bytes(struct fr_file *file, json_object *row,
                                uint64_t paths[FR_TOOLS_JOB_PATHS])
{
    uint64_t all = 0;
    json_object *bytes = fr_file_member(file, row, "bytes", json_type_object);
    memset(paths, 0, FR_TOOLS_JOB_PATHS * sizeof(*paths));
    if (!bytes)
        return 0;
    json_object_object_foreach(bytes, key, value)
    {
        unsigned path;
        (void)value;
        if (fr_tools_job_path_named(key, &path))
            all += paths[path] = fr_file_count(file, bytes, key);
    }
    return all;
}

static bool add_site(struct fr_job *job, struct fr_file *file, json_object *row)
{
    const char *object = fr_file_text_or_null(file, row, "object");
    const char *function = fr_file_text_or_null(file, row, "function");
    const char *comm = fr_file_text_or_null(file, row, "communicator");
    char where[FR_SITE_TEXT_BYTES];
    uint64_t address = fr_file_count(file, row, "address"), bytes[FR_TOOLS_JOB_PATHS];
    uint64_t all = read_path_bytes(file, row, bytes);
    struct fr_tools_job_site site = {
        .name = fr_file_text(file, row, "name"),
        .comm = comm ? comm : "",
        .comm_ranks = fr_file_int(file, row, "ranks"),
        .totals = {.calls = fr_file_count(file, row, "calls"),
                   .bytes = all,
                   .fabrail_ns = fr_file_count(file, row, "fabrail_ns"),
                   .copies_ns = fr_file_count(file, row, "copies_ns"),
                   .mpi_ns = fr_file_count(file, row, "mpi_ns"),
                   .wait_ns = fr_file_count(file, row, "wait_ns")}};
    if (file->wrong)
        return false;
    memcpy(site.path_bytes, bytes, sizeof(bytes));
    if (object || address) {
        fr_core_site_text(function, object, address, where);
        site.where = where;
    }
    return fr_tools_job_add_site(job, &site);
}

static bool add_wait(struct fr_job *job, struct fr_file *file, json_object *row)
{
    int rank = fr_file_int(file, row, "rank");
    uint64_t ns = fr_file_count(file, row, "ns");
    if (file->wrong)
        return false;
    if (rank < 0 || rank >= job->size)
        return fr_tool_complain("%s waits for rank %d in a job of %d ranks", file->name, rank,
                                job->size);
    fr_verdict_add_wait(&job->ranks[job->current].facts, rank, ns);
    return true;
}

static bool add_setting(struct fr_job *job, struct fr_file *file, json_object *row)
{
    const char *name = fr_file_text(file, row, "name"), *value = fr_file_text(file, row, "value");
    for (size_t i = 0; i < job->setting_count; i++) {
        if (same(job->settings[i].name, name)) // the ranks agree, or the first stands for them
            return true;
    }
    if (file->wrong)
        return false;
    struct fr_tools_job_setting *setting =
        fr_tools_append(&job->settings, &job->setting_count, sizeof(*setting));
    if (!setting)
        return false;
    setting->name = copy(name);
    setting->value = copy(value);
    return true;
}

static bool add_warning(struct fr_job *job, struct fr_file *file, json_object *row)
{
    const char *text = fr_file_text(file, row, "text"), *level = fr_file_text(file, row, "level");
    if (file->wrong || !text || !level)
        return false;
    for (size_t i = 0; i < job->warning_count; i++) {
        if (same(job->warnings[i].text, text)) {
            job->warnings[i].count++;
            return true;
        }
    }
    struct fr_tools_job_warning *warning =
        fr_tools_append(&job->warnings, &job->warning_count, sizeof(*warning));
    if (!warning)
        return false;
    *warning = (struct fr_tools_job_warning){.text = copy(text),
                                             .error = strcmp(level, "error") == 0,
                                             .count = 1,
                                             .rank = job->ranks[job->current].rank};
    return true;
}

typedef bool add_row(struct fr_job *job, struct fr_file *file, json_object *row);

static bool add_rows(struct fr_job *job, struct fr_file *file, json_object *report, const char *key,
                     add_row *add)
{
    json_object *rows = fr_file_member(file, report, key, json_type_array);
    for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
        if (!add(job, file, json_object_array_get_idx(rows, i)))
            return false;
    }
    return rows != NULL;
}

// Reads what the first reports of Fabrail did not have.
static bool add_surroundings(struct fr_job *job, struct fr_file *file, json_object *report)
{
    if (fr_file_has(report, "gpu") && !job->gpu)
        job->gpu = copy(fr_file_text_or_null(file, report, "gpu"));
    if (fr_file_has(report, "command") && !job->command)
        job->command = copy(fr_file_text_or_null(file, report, "command"));
    return (!fr_file_has(report, "settings") ||
            add_rows(job, file, report, "settings", add_setting)) &&
           (!fr_file_has(report, "sites") || add_rows(job, file, report, "sites", add_site)) &&
           (!fr_file_has(report, "waits") || add_rows(job, file, report, "waits", add_wait));
}

// The first report says what the job is; the others have to agree.
static bool is_of_job(struct fr_job *job, struct fr_file *file, json_object *report)
{
    const char *name = fr_file_text(file, report, "job"),
               *mpi = fr_file_text_or_null(file, report, "mpi"),
               *version = fr_file_text(file, report, "fabrail");
    int size = fr_file_int(file, report, "size");
    uint64_t started = fr_file_count(file, report, "started_unix_ns");
    const uint64_t apart_ns = (uint64_t)300 * 1000000000;
    if (file->wrong)
        return false;
    if (!job->fabrail) {
        job->name = copy(name);
        job->mpi = copy(mpi);
        job->fabrail = copy(version ? version : "");
        job->size = size;
        job->started_unix_ns = started;
        return size > 0 || fr_tool_complain("%s is of a process without MPI_COMM_WORLD, and has no "
                                            "rank in a job",
                                            file->name);
    }
    const char *other = job->rank_count ? job->ranks[0].file : "the file before it";
    bool differs = !same(job->name, name) || !same(job->mpi, mpi) || job->size != size ||
                   !same(job->fabrail, version) || started > job->started_unix_ns + apart_ns ||
                   started + apart_ns < job->started_unix_ns;
    if (started < job->started_unix_ns)
        job->started_unix_ns = started;
    return !differs || fr_tool_complain("%s is of another job than %s", file->name, other);
}

static bool add_report(struct fr_job *job, struct fr_file *file, json_object *report)
{
    json_object *totals = fr_file_member(file, report, "totals", json_type_object);
    json_object *aware = fr_file_member(file, report, "mpi_gpu_aware", json_type_boolean);
    uint64_t peak = fr_file_count(file, report, "workspace_peak_bytes");
    int signal = fr_file_int(file, report, "signal");
    if (file->wrong || !is_of_job(job, file, report) || !add_rank(job, file, totals, signal, true))
        return false;
    job->detailed = true;
    job->gpu_aware = json_object_get_boolean(aware);
    job->hosts = fr_file_count(file, report, "hosts");
    job->cliques = fr_file_count(file, report, "nvlink_cliques");
    job->workspace_peak_bytes = peak > job->workspace_peak_bytes ? peak : job->workspace_peak_bytes;
    if (!job->fabric_memory)
        job->fabric_memory = copy(fr_file_text(file, report, "fabric_memory"));
    return add_surroundings(job, file, report) &&
           add_rows(job, file, report, "functions", add_function) &&
           add_rows(job, file, report, "calls", add_function) &&
           add_rows(job, file, report, "sizes", add_size) &&
           add_peers(job, file, report, job->ranks[job->current].rank) &&
           add_rows(job, file, report, "rails", add_rail) &&
           add_rows(job, file, report, "warnings", add_warning) && !file->wrong;
}

static bool add_job(struct fr_job *job, struct fr_file *file, json_object *object)
{
    json_object *details = fr_file_member(file, object, "details", json_type_array);
    json_object *ranks = fr_file_member(file, object, "ranks", json_type_array);
    if (file->wrong)
        return false;
    for (size_t i = 0; i < json_object_array_length(details); i++) {
        if (!add_report(job, file, json_object_array_get_idx(details, i)))
            return false;
    }
    if (json_object_array_length(details) > 0)
        return true;
    // A summary beside the files of the ranks adds nothing; alone it is what there is.
    if (job->detailed)
        return is_of_job(job, file, object);
    bool done = is_of_job(job, file, object);
    for (size_t i = 0; done && i < json_object_array_length(ranks); i++)
        done = add_rank(job, file, json_object_array_get_idx(ranks, i), 0, false);
    return done;
}

bool fr_tools_job_read(struct fr_job *job, const char *name)
{
    struct fr_file file = {.name = name};
    json_object *object = fr_file_read(name, "fabrail-report");
    if (!object)
        return false;
    const char *kind = fr_file_text(&file, object, "kind");
    bool done = !file.wrong &&
                (same(kind, "job") ? add_job(job, &file, object) : add_report(job, &file, object));
    json_object_put(object);
    return done;
}
