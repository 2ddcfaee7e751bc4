// SPDX-License-Identifier: BSD-3-Clause
// The warning about processes that do not run Fabrail alike: one line of one process, in which
// ranks with the same difference stand together.
#include "config.h"

#include "job/census.h"

#include "fabrail/core/time.h"

#include <stdio.h>
#include <string.h>

enum { KINDS = 4, WHAT_BYTES = 192, LIST_BYTES = 96, LOOK_SECONDS = 3 };

// A list of words, cut off when it is full.
struct list {
    char text[LIST_BYTES];
    bool is_cut;
};

// Processes with the same difference.
struct kind {
    char what[WHAT_BYTES];
    struct list ranks, hosts;
    int count;
    int first, last; // the run of ranks that is not in the list yet
};

static void append(struct list *list, const char *word)
{
    size_t used = strlen(list->text), length = strlen(word);
    if (list->is_cut || used + length + sizeof(", ...") > sizeof(list->text)) {
        if (!list->is_cut)
            strcat(list->text, ", ...");
        list->is_cut = true;
        return;
    }
    snprintf(list->text + used, sizeof(list->text) - used, used ? ", %s" : "%s", word);
}

static void append_host(struct list *list, const char *host)
{
    size_t length = strlen(host);
    for (const char *at = list->text; (at = strstr(at, host)) != NULL; at += length)
        if ((at == list->text || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0'))
            return;
    append(list, host);
}

static void append_run(struct kind *kind)
{
    char text[32];
    snprintf(text, sizeof(text), kind->first == kind->last ? "%d" : "%d-%d", kind->first,
             kind->last);
    append(&kind->ranks, text);
}

static void add(struct kind *kind, int rank, const char *host)
{
    if (kind->count++ == 0)
        kind->first = rank;
    else if (rank != kind->last + 1) {
        append_run(kind);
        kind->first = rank;
    }
    kind->last = rank;
    append_host(&kind->hosts, host);
}

// Writes the fields of a record that differ from those of this process's own.
static void describe(const char *record, const char *own, char what[WHAT_BYTES])
{
    size_t used = 0;
    const char *end = record + fr_job_record_common(record);
    for (const char *at = record; at < end && used < WHAT_BYTES; at++) {
        size_t length = strcspn(at, ";"), own_length = strcspn(own, ";");
        if (length != own_length || memcmp(at, own, length) != 0)
            used +=
                (size_t)snprintf(what + used, WHAT_BYTES - used, "%s%.*s, not %.*s",
                                 used ? " and " : "with ", (int)length, at, (int)own_length, own);
        at += length;
        own += own_length + (own[own_length] == ';');
    }
}

// Returns the kind for a difference. The last kind stands for all that are left.
static struct kind *find_kind(struct kind kinds[KINDS], const char *what)
{
    for (int i = 0; i < KINDS - 1; i++) {
        if (kinds[i].count == 0)
            snprintf(kinds[i].what, sizeof(kinds[i].what), "%s", what);
        if (strcmp(kinds[i].what, what) == 0)
            return &kinds[i];
    }
    snprintf(kinds[KINDS - 1].what, sizeof(kinds[KINDS - 1].what), "with other settings");
    return &kinds[KINDS - 1];
}

static void look_at(const struct fr_job_registry *registry, int rank, const char *own,
                    struct kind kinds[KINDS])
{
    char record[FR_JOB_RECORD_BYTES], host[FR_JOB_HOST_BYTES] = "unknown";
    char what[WHAT_BYTES] = "";
    if (!registry->get(rank, record)) {
        (void)registry->get_host(rank, host);
        add(find_kind(kinds, "without it (no LD_PRELOAD, or FABRAIL_DISABLE)"), rank, host);
        return;
    }
    describe(record, own, what);
    if (what[0])
        add(find_kind(kinds, what), rank, record + fr_job_record_common(record) + 1);
}

void fr_job_census_warn(const struct fr_job_registry *registry, const char *own)
{
    struct kind kinds[KINDS] = {{.count = 0}};
    char text[800] = "";
    size_t used = 0;
    int64_t start_ns = fr_time_ns();
    for (int rank = 0;
         rank < fr_job_size() && fr_time_ns() - start_ns <= LOOK_SECONDS * FR_SECOND_NS; rank++)
        look_at(registry, rank, own, kinds);
    for (int i = 0; i < KINDS && used < sizeof(text); i++) {
        if (kinds[i].count == 0)
            continue;
        append_run(&kinds[i]);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%srank%s %s on host%s %s %s",
                                 used ? "; " : "", kinds[i].count > 1 ? "s" : "",
                                 kinds[i].ranks.text, strchr(kinds[i].hosts.text, ',') ? "s" : "",
                                 kinds[i].hosts.text, kinds[i].what);
    }
    fr_warn("not all ranks run Fabrail alike, so that it only stages messages in this job: %s; "
            "preload it in all ranks with the same settings",
            text);
}
