// SPDX-License-Identifier: BSD-3-Clause
// The verdict of a job: its sums, the ranks that come late, and what would spare most time.
#include "config.h"

#include "fabrail/report/verdict.h"

#include <stdlib.h>
#include <string.h>

static uint64_t work_of(const struct fr_verdict_row *row)
{
    return row->fabrail_ns + row->copies_ns + row->mpi_ns;
}

static bool is_same(const struct fr_verdict_row *a, const struct fr_verdict_row *b)
{
    return a->path == b->path && a->topic == b->topic && strcmp(a->name, b->name) == 0;
}

static void add(struct fr_verdict_row *to, const struct fr_verdict_row *from)
{
    to->calls += from->calls;
    to->bytes += from->bytes;
    to->fabrail_ns += from->fabrail_ns;
    to->copies_ns += from->copies_ns;
    to->mpi_ns += from->mpi_ns;
    to->wait_ns += from->wait_ns;
}

// Adds a row to those of its kind. Returns false if there is neither one nor room.
static bool merge(struct fr_verdict_row *rows, size_t room, size_t *count,
                  const struct fr_verdict_row *row)
{
    size_t i = 0;
    while (i < *count && !is_same(&rows[i], row))
        i++;
    if (i == *count && i >= room)
        return false;
    if (i == *count)
        rows[(*count)++] = *row;
    else
        add(&rows[i], row);
    return true;
}

void fr_verdict_add_row(struct fr_verdict_rank *rank, const struct fr_verdict_reason *why,
                        const struct fr_verdict_row *row)
{
    struct fr_verdict_row added = *row;
    size_t count = rank->row_count, length = strlen(why->name);
    if (why->path >= FR_PATH_COUNT)
        return;
    memset(added.name, 0, sizeof(added.name));
    memcpy(added.name, why->name, length < sizeof(added.name) ? length : sizeof(added.name) - 1);
    added.path = (int32_t)why->path;
    added.topic = fr_verdict_topic(why);
    if (!merge(rank->rows, FR_VERDICT_ROWS - 1, &count, &added)) {
        struct fr_verdict_row *last = &rank->rows[FR_VERDICT_ROWS - 1];
        if (count < FR_VERDICT_ROWS)
            *last =
                (struct fr_verdict_row){.name = "other functions", .path = added.path, .topic = -1};
        add(last, &added);
        count = FR_VERDICT_ROWS;
    }
    rank->row_count = (uint32_t)count;
}

void fr_verdict_add_wait(struct fr_verdict_rank *rank, int awaited, uint64_t ns)
{
    int least = 0;
    for (int i = 1; i < FR_VERDICT_AWAITED; i++)
        least = rank->awaited[i].ns < rank->awaited[least].ns ? i : least;
    if (ns > rank->awaited[least].ns) {
        rank->awaited[least].rank = awaited;
        rank->awaited[least].ns = ns;
    }
}

void fr_verdict_add_site(struct fr_verdict_rank *rank, const struct fr_verdict_site *site)
{
    int least = 0;
    for (int i = 1; i < FR_VERDICT_SITES; i++)
        least = rank->sites[i].ns < rank->sites[least].ns ? i : least;
    if (site->ns > rank->sites[least].ns)
        rank->sites[least] = *site;
}

// Returns whether all ranks leave a function of the MPI library at about the same time, since each
// has to hear of every other one.
static bool leaves_together(const struct fr_verdict_row *row)
{
    static const char *const parts[] = {"_Alltoall", "_Allgather", "_Allreduce", "_Reduce_scatter",
                                        "_Barrier"};
    bool by_mpi =
        row->path == FR_PATH_HOST || row->path == FR_PATH_PASS || row->path == FR_PATH_FABRIC;
    for (size_t i = 0; by_mpi && i < FR_ARRAY_LENGTH(parts); i++) {
        if (strstr(row->name, parts[i]))
            return true;
    }
    return false;
}

static struct fr_verdict_row *row_like(struct fr_verdict_rank *rank,
                                       const struct fr_verdict_row *row)
{
    for (size_t i = 0; i < rank->row_count; i++) {
        if (is_same(&rank->rows[i], row))
            return &rank->rows[i];
    }
    return NULL;
}

// Returns whether a rank has done about as much as the one that has done most.
static bool compares(const struct fr_verdict_row *row, const struct fr_verdict_row *most)
{
    return row && row->calls >= most->calls - most->calls / 4 &&
           row->bytes >= most->bytes - most->bytes / 4;
}

// Makes waiting of the time that ranks have spent in one function of the MPI library beyond the
// quickest of them. That is the least they can have waited.
static void find_waits_in(struct fr_verdict_rank *ranks, int count,
                          const struct fr_verdict_row *like)
{
    struct fr_verdict_row most = {.calls = 0}, *row;
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < count; r++) {
        row = row_like(&ranks[r], like);
        most.calls = row && row->calls > most.calls ? row->calls : most.calls;
        most.bytes = row && row->bytes > most.bytes ? row->bytes : most.bytes;
    }
    for (int r = 0; r < count; r++) {
        row = row_like(&ranks[r], like);
        if (compares(row, &most) && row->mpi_ns < least)
            least = row->mpi_ns;
    }
    for (int r = 0; r < count; r++) {
        row = row_like(&ranks[r], like);
        if (compares(row, &most)) {
            row->wait_ns += row->mpi_ns - least;
            row->mpi_ns = least;
        }
    }
}

enum { KINDS = 256 };

// Rows and call sites of all ranks, by kind.
struct kinds {
    size_t count;
    struct fr_verdict_row rows[KINDS];
    struct fr_verdict_site sites[KINDS];
};

static void collect(const struct fr_verdict_rank *ranks, int count, struct kinds *kinds)
{
    kinds->count = 0;
    for (int r = 0; r < count; r++) {
        for (size_t i = 0; i < ranks[r].row_count; i++)
            (void)merge(kinds->rows, KINDS, &kinds->count, &ranks[r].rows[i]);
    }
}

static void sum_rank(const struct fr_verdict_rank *rank, struct fr_verdict *verdict)
{
    verdict->wall_ns += rank->wall_ns;
    verdict->longest_ns = rank->wall_ns > verdict->longest_ns ? rank->wall_ns : verdict->longest_ns;
    verdict->rails = rank->rails > verdict->rails ? rank->rails : verdict->rails;
    verdict->rails_lost += rank->rails_lost;
    for (size_t i = 0; i < rank->row_count; i++) {
        const struct fr_verdict_row *row = &rank->rows[i];
        bool by_rail = row->path == FR_PATH_RAIL;
        verdict->calls += row->calls;
        verdict->bytes += row->bytes;
        verdict->path_bytes[row->path] += row->bytes;
        verdict->wait_ns += row->wait_ns;
        verdict->copies_ns += row->copies_ns;
        verdict->wire_ns += row->mpi_ns + (by_rail ? row->fabrail_ns : 0);
        verdict->fabrail_ns += by_rail ? 0 : row->fabrail_ns;
    }
}

static uint64_t wait_of(const struct fr_verdict_rank *rank)
{
    uint64_t ns = 0;
    for (size_t i = 0; i < rank->row_count; i++)
        ns += rank->rows[i].wait_ns;
    return ns;
}

static uint64_t attributed_of(const struct fr_verdict_rank *rank, int size)
{
    uint64_t ns = 0;
    for (int i = 0; i < FR_VERDICT_AWAITED; i++)
        ns += rank->awaited[i].rank < size ? rank->awaited[i].ns : 0;
    return ns;
}

// Shares out waits in which nobody saw who came last: the ranks that hardly wait there themselves
// are the ones that come late, if they are few.
static void share_out(const struct fr_verdict_rank *ranks, int count, int size, double *score)
{
    double all = 0;
    int few = 0, most = count / 4 > 1 ? count / 4 : 1;
    for (int r = 0; r < count; r++)
        all += (double)wait_of(&ranks[r]) - (double)attributed_of(&ranks[r], size);
    double little = all / count / 4;
    for (int r = 0; r < count; r++)
        few += (double)wait_of(&ranks[r]) - (double)attributed_of(&ranks[r], size) < little;
    for (int r = 0; r < count && all > 0 && few > 0 && few <= most; r++) {
        if ((double)wait_of(&ranks[r]) - (double)attributed_of(&ranks[r], size) < little)
            score[ranks[r].rank] += all / few;
    }
}

// Finds the ranks that the others wait for. A wait of a rank's own is no fault of its. Some
// stand out if they are few and stand for most of what is left.
static bool find_late(const struct fr_verdict_rank *ranks, int count, struct fr_verdict *verdict)
{
    double all = 0, some = 0, *score = calloc((size_t)verdict->size, sizeof(*score));
    if (!score)
        return false;
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < FR_VERDICT_AWAITED; i++) {
            if (ranks[r].awaited[i].rank < verdict->size)
                score[ranks[r].awaited[i].rank] += (double)ranks[r].awaited[i].ns;
        }
    }
    share_out(ranks, count, verdict->size, score);
    for (int r = 0; r < count; r++)
        score[ranks[r].rank] -= (double)wait_of(&ranks[r]);
    for (int r = 0; r < verdict->size; r++)
        all += score[r] > 0 ? score[r] : 0;
    while (verdict->late_count < FR_VERDICT_LATE && some < all * 3 / 4) {
        int worst = 0;
        for (int r = 1; r < verdict->size; r++)
            worst = score[r] > score[worst] ? r : worst;
        some += score[worst];
        score[worst] = 0;
        verdict->late[verdict->late_count++] = worst;
    }
    bool stand_out =
        all > 0 && some >= all * 3 / 4 && 2 * (int)verdict->late_count <= verdict->size;
    verdict->late_count = stand_out ? verdict->late_count : 0;
    free(score);
    return true;
}

static void find_slowest(const struct kinds *kinds, struct fr_verdict *verdict)
{
    for (size_t i = 0; i < kinds->count; i++) {
        const struct fr_verdict_row *row = &kinds->rows[i];
        unsigned at = verdict->slowest_count;
        if (at == FR_VERDICT_SLOWEST && work_of(row) <= work_of(&verdict->slowest[at - 1]))
            continue;
        if (at < FR_VERDICT_SLOWEST)
            verdict->slowest_count++;
        else
            at--;
        for (; at > 0 && work_of(&verdict->slowest[at - 1]) < work_of(row); at--)
            verdict->slowest[at] = verdict->slowest[at - 1];
        verdict->slowest[at] = *row;
    }
}

static bool is_same_site(const struct fr_verdict_site *a, const struct fr_verdict_site *b)
{
    return strcmp(a->where, b->where) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->comm, b->comm) == 0 && a->comm_ranks == b->comm_ranks;
}

// Finds the place that took longest, of those that took longest on the ranks.
static void find_site(const struct fr_verdict_rank *ranks, int count, struct kinds *kinds,
                      struct fr_verdict *verdict)
{
    size_t known = 0;
    for (int i = 0; i < count * FR_VERDICT_SITES; i++) {
        const struct fr_verdict_site *site =
            &ranks[i / FR_VERDICT_SITES].sites[i % FR_VERDICT_SITES];
        size_t at = 0;
        while (at < known && !is_same_site(&kinds->sites[at], site))
            at++;
        if (site->ns == 0 || at == KINDS)
            continue;
        if (at == known) {
            kinds->sites[known] = *site;
            kinds->sites[known++].ns = kinds->sites[at].wait_ns = 0;
        }
        kinds->sites[at].ns += site->ns;
        kinds->sites[at].wait_ns += site->wait_ns;
    }
    for (size_t at = 0; at < known; at++) {
        if (kinds->sites[at].ns > verdict->site.ns)
            verdict->site = kinds->sites[at];
    }
}

// Notes a thing to do. Below a hundredth of the time it is none.
static void note(struct fr_verdict *verdict, int topic, uint64_t ns)
{
    unsigned at = verdict->deed_count;
    if (ns == 0 || ns < verdict->ns / 100)
        return;
    if (at == FR_VERDICT_DEEDS && ns <= verdict->deeds[at - 1].ns)
        return;
    if (at < FR_VERDICT_DEEDS)
        verdict->deed_count++;
    else
        at--;
    for (; at > 0 && verdict->deeds[at - 1].ns < ns; at--)
        verdict->deeds[at] = verdict->deeds[at - 1];
    verdict->deeds[at] = (struct fr_verdict_deed){.ns = ns, .topic = topic};
}

// Better paths spare copies and the time in Fabrail. Waiting is spared by what the program does.
static void find_deeds(const struct kinds *kinds, struct fr_verdict *verdict)
{
    uint64_t ns[FR_VERDICT_TOPICS] = {0};
    for (size_t i = 0; i < kinds->count; i++) {
        const struct fr_verdict_row *row = &kinds->rows[i];
        if (row->topic >= 0)
            ns[row->topic] += row->copies_ns + row->fabrail_ns;
    }
    note(verdict, -1, verdict->wait_ns);
    for (int topic = 0; topic < FR_VERDICT_TOPICS; topic++)
        note(verdict, topic, ns[topic]);
}

bool fr_verdict_judge(struct fr_verdict_rank *ranks, int count, int size,
                      struct fr_verdict *verdict)
{
    struct kinds *kinds = malloc(sizeof(*kinds));
    *verdict = (struct fr_verdict){.size = size, .ranks = count};
    if (!kinds)
        return false;
    collect(ranks, count, kinds);
    for (size_t i = 0; i < kinds->count; i++) {
        if (leaves_together(&kinds->rows[i]))
            find_waits_in(ranks, count, &kinds->rows[i]);
    }
    collect(ranks, count, kinds);
    for (int r = 0; r < count; r++)
        sum_rank(&ranks[r], verdict);
    verdict->ns = verdict->wait_ns + verdict->copies_ns + verdict->wire_ns + verdict->fabrail_ns;
    find_slowest(kinds, verdict);
    find_site(ranks, count, kinds, verdict);
    find_deeds(kinds, verdict);
    free(kinds);
    return find_late(ranks, count, verdict);
}
