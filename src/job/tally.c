// SPDX-License-Identifier: BSD-3-Clause
// Tallies: how often something has been made from the same parents with each tag. Programs that
// give each communicator a tag of its own mostly count, so a tally remembers runs of tags. A
// program that makes and frees communicators for ever needs a run or two. No count is ever
// forgotten, since the other processes still have it.
#include "config.h"

#include "job/job_int.h"

#include <stdlib.h>

// Tags that have been counted equally often.
struct run {
    int first;
    int last;
    uint64_t count;
};

struct fr_job_tally {
    uint64_t key;
    struct run *runs; // in the order of their tags, each tag in one at most
    size_t run_count, room;
    UT_hash_handle hh;
};
static struct fr_lock tally_lock = FR_LOCK_INIT;

static struct fr_job_tally *add(struct fr_job_tally **tallies, uint64_t key)
{
    struct fr_job_tally *tally = calloc(1, sizeof(*tally));
    if (!tally)
        return NULL;
    tally->key = key;
    HASH_ADD(hh, *tallies, key, sizeof(tally->key), tally);
    if (FR_HASH_HAS(tally))
        return tally;
    free(tally);
    return NULL;
}

static bool reserve(struct fr_job_tally *tally, size_t count)
{
    if (count <= tally->room)
        return true;
    size_t room = count > 2 * tally->room ? count : 2 * tally->room;
    struct run *runs = realloc(tally->runs, room * sizeof(*runs));
    if (!runs)
        return false;
    tally->runs = runs;
    tally->room = room;
    return true;
}

static void insert(struct fr_job_tally *tally, size_t at, struct run run)
{
    struct run *next = &tally->runs[at];
    memmove(next + 1, next, (tally->run_count - at) * sizeof(*next));
    *next = run;
    tally->run_count++;
}

// Joins two runs that follow each other, if they are one.
static void join(struct fr_job_tally *tally, size_t at)
{
    struct run *run = &tally->runs[at];
    if (at + 1 >= tally->run_count || run[0].count != run[1].count ||
        (int64_t)run[0].last + 1 != run[1].first)
        return;
    run[1].first = run[0].first;
    tally->run_count--;
    memmove(run, run + 1, (tally->run_count - at) * sizeof(*run));
}

// Returns the index of the first run that does not end before a tag.
static size_t find(const struct fr_job_tally *tally, int tag)
{
    size_t low = 0, high = tally->run_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tally->runs[middle].last < tag)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Makes the tag a run of its own, and returns its index. There must be room for the runs.
static size_t isolate(struct fr_job_tally *tally, int tag)
{
    size_t at = find(tally, tag);
    if (at == tally->run_count || tally->runs[at].first > tag) {
        insert(tally, at, (struct run){tag, tag, 0});
        return at;
    }
    struct run run = tally->runs[at];
    if (run.last > tag)
        insert(tally, at + 1, (struct run){tag + 1, run.last, run.count});
    if (run.first < tag)
        insert(tally, at++, (struct run){run.first, tag - 1, run.count});
    tally->runs[at] = (struct run){tag, tag, run.count};
    return at;
}

uint64_t fr_job_tally_count(struct fr_job_tally **tallies, uint64_t key, int tag)
{
    enum { MOST_MORE = 2 }; // runs that a tag adds
    struct fr_job_tally *tally = NULL;
    uint64_t count = 0;
    fr_core_lock(&tally_lock);
    HASH_FIND(hh, *tallies, &key, sizeof(key), tally);
    if (!tally)
        tally = add(tallies, key);
    if (tally && reserve(tally, tally->run_count + MOST_MORE)) {
        size_t at = isolate(tally, tag);
        count = ++tally->runs[at].count;
        join(tally, at);
        if (at > 0)
            join(tally, at - 1);
    }
    fr_core_unlock(&tally_lock);
    return count;
}

void fr_job_tallies_free(struct fr_job_tally **tallies)
{
    struct fr_job_tally *tally, *next;
    fr_core_lock(&tally_lock);
    HASH_ITER(hh, *tallies, tally, next)
    {
        HASH_DEL(*tallies, tally);
        free(tally->runs);
        free(tally);
    }
    fr_core_unlock(&tally_lock);
}
