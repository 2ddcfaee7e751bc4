// SPDX-License-Identifier: BSD-3-Clause
// Facts of very many processes: hosts, cliques and partners come out right, in memory that grows no
// faster than the job. The time it takes is printed.
#include "job/process_facts.c" // of which this program has no other copy

#include "check.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { RANKS_A_HOST = 8, HOSTS_A_CLIQUE = 9 };

// Every third clique's hosts have no multi-node NVLink.
static bool has_fabric(int rank)
{
    return rank / RANKS_A_HOST / HOSTS_A_CLIQUE % 3 != 2;
}

static struct fr_job_facts facts_of(int rank)
{
    int host = rank / RANKS_A_HOST, clique = host / HOSTS_A_CLIQUE;
    struct fr_job_facts facts = {
        .host = ((uint64_t)host + 1) * 0x9e3779b97f4a7c15u,
        .clique = (uint32_t)clique % 5, // the same in several clusters
        .has_fabric = has_fabric(rank),
    };
    memcpy(facts.cluster, &(int){clique / 5 + 1}, sizeof(int));
    return facts;
}

// Ranks in no order of their hosts: a step that shares no divisor with the size visits all.
static int shuffled(int i, int size)
{
    return (int)((int64_t)i * 7919 % size);
}

static int ceiling(int count, int of)
{
    return (count + of - 1) / of;
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void check_partners(int size, int own)
{
    const int *partners = NULL;
    int count = fr_job_partners(&partners), expected = 0, wrong = 0;
    int host = shuffled(own, size) / RANKS_A_HOST, clique = host / HOSTS_A_CLIQUE;
    for (int i = 0; i < size && has_fabric(shuffled(own, size)); i++) {
        int other = shuffled(i, size) / RANKS_A_HOST;
        if (other == host || other / HOSTS_A_CLIQUE != clique)
            continue;
        wrong += expected >= count || partners[expected] != i;
        expected++;
    }
    CHECK(count == expected && wrong == 0, "%d partners, not %d, %d of them wrong", count, expected,
          wrong);
}

static int expected_cliques(int size)
{
    int cliques = 0;
    for (int first = 0; first < size; first += RANKS_A_HOST * HOSTS_A_CLIQUE)
        cliques += has_fabric(first) && first + RANKS_A_HOST < size; // two hosts at least
    return cliques;
}

// Uses the same facts in memory of others: the process's own memory for them is small.
static void check_given(const struct fr_job_facts *facts, int size, size_t bytes)
{
    size_t all = fr_job_facts_bytes(), before = allocated();
    void *shared = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all == (size_t)size * sizeof(*facts) && shared != MAP_FAILED);
    memcpy(shared, facts, all);
    fr_job_facts_give(shared);
    size_t left = bytes - (before - allocated());
    CHECK(left <= (size_t)size * 4 + 65536, "%zu bytes are left for %d ranks", left, size);
    CHECK(fr_job_facts_of(size - 1) == (const struct fr_job_facts *)shared + size - 1);
    CHECK(fr_job_host_count() == ceiling(size, RANKS_A_HOST) && fr_job_facts_of(size) == NULL);
}

// Takes facts of processes that are none for those of the job, of which this is rank 0.
static bool replay(const struct fr_job_facts *facts, int size)
{
    forget();
    known.own = malloc((size_t)size * sizeof(*known.own));
    if (!known.own)
        return false;
    memcpy(known.own, facts, (size_t)size * sizeof(*facts));
    fr_job_world = (struct fr_job_world){.rank = 0, .size = size, .facts = known.own};
    return count_hosts() && count_cliques(0);
}

static void check_size(int size)
{
    struct fr_job_facts *facts = malloc((size_t)size * sizeof(*facts));
    CHECK(facts != NULL);
    for (int i = 0; i < size && facts; i++)
        facts[i] = facts_of(shuffled(i, size));
    size_t before = allocated();
    double start = milliseconds();
    CHECK(replay(facts, size));
    double end = milliseconds();
    size_t bytes = allocated() - before;
    printf("%d ranks: %.1f ms, %zu bytes\n", size, end - start, bytes);
    CHECK(bytes <= (size_t)size * 96 + 65536, "%zu bytes for %d ranks", bytes, size);
    CHECK(fr_job_host_count() == ceiling(size, RANKS_A_HOST), "%d hosts", fr_job_host_count());
    CHECK(fr_job_clique_count() == expected_cliques(size), "%d cliques", fr_job_clique_count());
    check_partners(size, 0);
    check_given(facts, size, bytes);
    fr_job_release();
    free(facts);
}

int main(void)
{
    static const int sizes[] = {1, 100, 10000, 40000, 100000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_size(sizes[i]);
    return check_result();
}
