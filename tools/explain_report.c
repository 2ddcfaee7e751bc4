// SPDX-License-Identifier: BSD-3-Clause
// fabrail explain --report: what became of the buffers of a job, beside what the policy makes of
// the facts of its reports, and what would help.
#include "config.h"

#include "explain.h"

#include "command.h"
#include "core/files.h"
#include "json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, MOST_BYTES = 1 << 28 };

// One function and path, of all ranks.
struct row {
    char function[64], path[16], reason[160];
    double buffers, bytes;
};

struct summary {
    struct row rows[MOST_ROWS];
    int count;
    int ranks;
    char family[64], fabric_memory[160];
    bool gpu_aware;
    double hosts, cliques;
};

static struct row *find_row(struct summary *summary, const char *function, const char *path)
{
    for (int i = 0; i < summary->count; i++) {
        if (strcmp(summary->rows[i].function, function) == 0 &&
            strcmp(summary->rows[i].path, path) == 0)
            return &summary->rows[i];
    }
    if (summary->count == MOST_ROWS)
        return NULL;
    struct row *row = &summary->rows[summary->count++];
    memset(row, 0, sizeof(*row));
    snprintf(row->function, sizeof(row->function), "%s", function);
    snprintf(row->path, sizeof(row->path), "%s", path);
    return row;
}

static void add_rank(struct summary *summary, const struct fr_json *rank)
{
    const struct fr_json *functions = fr_json_get(rank, "functions");
    summary->ranks++;
    summary->gpu_aware = fr_json_get_truth(rank, "mpi_gpu_aware", false);
    summary->hosts = fr_json_get_number(rank, "hosts", 0);
    summary->cliques = fr_json_get_number(rank, "nvlink_cliques", 0);
    snprintf(summary->family, sizeof(summary->family), "%s", fr_json_get_text(rank, "mpi", ""));
    snprintf(summary->fabric_memory, sizeof(summary->fabric_memory), "%s",
             fr_json_get_text(rank, "fabric_memory", ""));
    for (const struct fr_json *f = functions->first; f != NULL; f = f->next) {
        struct row *row =
            find_row(summary, fr_json_get_text(f, "name", ""), fr_json_get_text(f, "path", ""));
        double buffers = fr_json_get_number(f, "buffers", 0);
        if (row == NULL || buffers <= 0)
            continue;
        row->buffers += buffers;
        row->bytes += fr_json_get_number(f, "bytes", 0);
        snprintf(row->reason, sizeof(row->reason), "%s", fr_json_get_text(f, "reason", ""));
    }
}

static bool is_rank(const struct fr_json *tree)
{
    const struct fr_json *functions = fr_json_get(tree, "functions");
    return fr_json_get_text(tree, "fabrail", NULL) != NULL && functions != NULL &&
           functions->kind == FR_JSON_LIST;
}

// The report of one rank, or of a job with those of its ranks inside.
static bool add_tree(struct summary *summary, const struct fr_json *tree, const char *name)
{
    const struct fr_json *details = fr_json_get(tree, "details");
    if (is_rank(tree)) {
        add_rank(summary, tree);
        return true;
    }
    if (fr_json_get_text(tree, "fabrail", NULL) == NULL || details == NULL)
        return fr_tool_complain("%s is no report of Fabrail", name);
    if (details->first == NULL)
        return fr_tool_complain("%s sums up a job; name the files of its ranks", name);
    for (const struct fr_json *rank = details->first; rank != NULL; rank = rank->next) {
        if (is_rank(rank))
            add_rank(summary, rank);
    }
    return true;
}

static bool add_file(struct summary *summary, const char *name)
{
    struct fr_json_fault fault;
    char *text = NULL;
    size_t bytes = 0;
    if (fr_core_file_read(name, MOST_BYTES, &text, &bytes) != FR_OK)
        return fr_tool_complain("%s cannot be read: %s", name, strerror(errno));
    struct fr_json *tree = fr_json_read(text, bytes, &fault);
    free(text);
    if (tree == NULL)
        return fr_tool_complain("%s is no report: line %u: %s", name, fault.line, fault.text);
    bool good = add_tree(summary, tree, name);
    fr_json_free(tree);
    return good;
}

// What would keep buffers of this function from being staged.
static const char *advice(const struct row *row, const struct summary *summary)
{
    enum fr_fn fn = fr_explain_function(row->function);
    enum fr_class class = fn < FR_FN_COUNT ? fr_real_rows[fn].class : FR_CLASS_PASS;
    bool exchange = class == FR_CLASS_ALLTOALL || class == FR_CLASS_NEIGHBOR_ALLTOALL;
    bool message = class == FR_CLASS_SEND || class == FR_CLASS_RECV || class == FR_CLASS_SENDRECV ||
                   class == FR_CLASS_REPLACE;
    if (strcmp(row->path, "refuse") == 0)
        return "give this function host memory";
    if (strcmp(row->path, "host") != 0)
        return NULL;
    if (strstr(row->reason, "FABRAIL_PATHS") != NULL)
        return "FABRAIL_PATHS excludes better ones";
    if (summary->gpu_aware)
        return "the MPI library's own GPU support excludes this function";
    if (message || exchange)
        return summary->hosts > 1
                   ? "between hosts without a common NVLink this is the way; on one host, use the "
                     "same buffers again, so that they are mapped"
                   : "use the same buffers again, so that the other ranks have mapped them";
    return "a GPU-aware MPI would take the pointers; Fabrail stages this function";
}

static void print_row(const struct row *row, const struct summary *summary,
                      const struct fr_explain_facts *facts)
{
    double average = row->bytes / row->buffers;
    const char *help = advice(row, summary);
    enum fr_fn fn = fr_explain_function(row->function);
    printf("%s path %s: %.0f buffers, %.0f bytes, %.0f each\n", row->function, row->path,
           row->buffers, row->bytes, average);
    if (*row->reason)
        printf("    because %s\n", row->reason);
    if (fn < FR_FN_COUNT) {
        struct fr_explain_answer now = fr_explain(facts, fn, FR_KIND_MALLOC, (size_t)average);
        printf("    policy for such a buffer of cudaMalloc, between %s: %s%s%s, since %s\n",
               fr_explain_place_text(facts->place), now.path, *now.how ? ", " : "", now.how,
               now.reason);
    }
    if (help != NULL)
        printf("    %s\n", help);
}

bool fr_explain_reports(int count, char *const *names, enum fr_explain_place place)
{
    static struct summary summary;
    for (int i = 0; i < count; i++) {
        if (!add_file(&summary, names[i]))
            return false;
    }
    if (place == FR_PLACE_COUNT)
        place = summary.cliques > 0 ? FR_PLACE_CLIQUE
                : summary.hosts > 1 ? FR_PLACE_AWAY
                                    : FR_PLACE_HOST;
    const struct fr_explain_facts facts = {
        .family = summary.family,
        .gpu_aware = summary.gpu_aware,
        .place = place,
        .fabric_memory = strcmp(summary.fabric_memory, "supported") == 0,
    };
    printf("%d rank%s, %s, %sGPU-aware, %.0f host%s, fabric memory %s\n", summary.ranks,
           summary.ranks == 1 ? "" : "s", summary.family, summary.gpu_aware ? "" : "not ",
           summary.hosts, summary.hosts == 1 ? "" : "s", summary.fabric_memory);
    bool any = false;
    for (int i = 0; i < summary.count; i++) {
        any = any || summary.rows[i].buffers > 0;
        if (summary.rows[i].buffers > 0)
            print_row(&summary.rows[i], &summary, &facts);
    }
    if (!any)
        puts("no call had a buffer in device memory");
    return true;
}
