// SPDX-License-Identifier: BSD-3-Clause
// The facts that all processes of MPI_COMM_WORLD tell each other once, in MPI_Init, and the hosts
// and cliques that follow from them.
#include "config.h"

#include "job/census.h"
#include "job/job_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(struct fr_job_facts) == 80, "all processes must agree on the layout");

// Written by the thread that is in MPI_Init or MPI_Finalize, while no other calls MPI.
static struct {
    struct fr_job_facts *own; // memory of this process that holds the facts, or NULL
    int host_count;
    int clique_count;
    int *partners; // their ranks
    int partner_count;
} known;

uint64_t fr_job_host(void)
{
    char name[256] = "";
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a of 64 bits
    if (gethostname(name, sizeof(name) - 1) != 0)
        fr_warn("gethostname failed, so this host passes for one without a name");
    for (const char *at = name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

// Compares the cliques of two processes; 0 if they are in the same one. The host does not count.
static int compare_cliques(const struct fr_job_facts *a, const struct fr_job_facts *b)
{
    if (a->has_fabric != b->has_fabric)
        return a->has_fabric < b->has_fabric ? -1 : 1;
    int clusters = memcmp(a->cluster, b->cluster, sizeof(a->cluster));
    return clusters ? clusters : (a->clique > b->clique) - (a->clique < b->clique);
}

static bool reaches(const struct fr_job_facts *a, const struct fr_job_facts *b)
{
    return a->has_fabric && a->host != b->host && compare_cliques(a, b) == 0;
}

static int compare_words(const void *first, const void *second)
{
    uint64_t a = *(const uint64_t *)first, b = *(const uint64_t *)second;
    return (a > b) - (a < b);
}

// Compares ranks by their facts.
static int compare_ranks(const void *first, const void *second)
{
    const struct fr_job_facts *a = &fr_job_world.facts[*(const int *)first];
    const struct fr_job_facts *b = &fr_job_world.facts[*(const int *)second];
    int cliques = compare_cliques(a, b);
    return cliques ? cliques : compare_words(&a->host, &b->host);
}

// Counts hosts. Sorts one word a rank rather than facts, since jobs have many ranks.
static bool count_hosts(void)
{
    size_t count = (size_t)fr_job_size();
    uint64_t *hosts = malloc(count * sizeof(*hosts));
    if (!hosts)
        return false;
    for (size_t i = 0; i < count; i++)
        hosts[i] = fr_job_world.facts[i].host;
    qsort(hosts, count, sizeof(*hosts), compare_words);
    for (size_t i = 0; i < count; i++)
        known.host_count += i == 0 || hosts[i] != hosts[i - 1];
    free(hosts);
    return true;
}

// Returns the number of cliques with processes on several hosts, from sorted ranks. Counts a clique
// where its host first changes.
static int count_changes(const int *ranks, int count)
{
    int cliques = 0, counted_from = -1, start = 0;
    for (int i = 1; i < count; i++) {
        const struct fr_job_facts *facts = &fr_job_world.facts[ranks[i]];
        const struct fr_job_facts *first = &fr_job_world.facts[ranks[start]];
        if (compare_cliques(facts, first) != 0) {
            start = i;
        } else if (counted_from != start && reaches(facts, first)) {
            counted_from = start;
            cliques++;
        }
    }
    return cliques;
}

// Counts cliques and lists partners. The list first holds all ranks that have a clique, sorted,
// then those in this process's reach.
static bool count_cliques(int rank)
{
    int count = 0;
    for (int i = 0; i < fr_job_size(); i++)
        count += fr_job_world.facts[i].has_fabric != 0;
    if (count == 0)
        return true;
    known.partners = malloc((size_t)count * sizeof(*known.partners));
    if (!known.partners)
        return false;
    count = 0;
    for (int i = 0; i < fr_job_size(); i++)
        if (fr_job_world.facts[i].has_fabric)
            known.partners[count++] = i;
    qsort(known.partners, (size_t)count, sizeof(*known.partners), compare_ranks);
    known.clique_count = count_changes(known.partners, count);
    for (int i = 0; i < fr_job_size(); i++)
        if (reaches(&fr_job_world.facts[rank], &fr_job_world.facts[i]))
            known.partners[known.partner_count++] = i;
    return true;
}

// Judges the wait for the first exchange. Has no limit if the launcher has told that all processes
// take part, since they will come.
static bool look_at_start(struct fr_wait *wait)
{
    enum { LIMIT_S = 60 };
    size_t limit_s = fr_core_settings()->timeout_s ? fr_core_settings()->timeout_s : LIMIT_S;
    enum fr_wait_verdict verdict = fr_wait_judge(wait, fr_job_census_is_taken() ? 0 : limit_s);
    if (verdict == FR_WAIT_ON)
        return true;
    int seconds = (int)(fr_wait_ns(wait) / FR_SECOND_NS);
    if (verdict == FR_WAIT_LONG)
        fr_warn("waiting for %d s: some ranks of MPI_COMM_WORLD did not start Fabrail; preload it "
                "in all ranks with the same FABRAIL_ settings, or set FABRAIL_PATHS=pass,host in "
                "those that have it",
                seconds);
    else
        fr_error("some ranks of MPI_COMM_WORLD did not start Fabrail within %d s, so that MPI_Init "
                 "fails; preload it in all ranks with the same FABRAIL_ settings, or set "
                 "FABRAIL_PATHS=pass,host in those that have it",
                 seconds);
    return verdict != FR_WAIT_OVER;
}

enum outcome { EXCHANGED, FAILED, GAVE_UP };

// Exchanges facts. The first exchange finds out whether all processes are there.
static enum outcome exchange(const struct fr_job_facts *own)
{
    fr_word request = 0;
    fr_word comm = fr_job_comm();
    if (comm == fr_abi_mpi.COMM_NULL)
        comm = fr_abi_mpi.COMM_WORLD;
    const fr_word bytes = sizeof(*own);
    int result = FR_MPI(Iallgather, FR_PTR(own), bytes, fr_abi_mpi.BYTE, FR_PTR(known.own), bytes,
                        fr_abi_mpi.BYTE, comm, FR_PTR(&request));
    if (result == fr_abi_mpi.SUCCESS && !fr_job_complete(&request, NULL, look_at_start, &result))
        return GAVE_UP;
    if (result == fr_abi_mpi.SUCCESS)
        return EXCHANGED;
    fr_error("the exchange of hosts and NVLink cliques failed with MPI error %d", result);
    return FAILED;
}

static void forget(void)
{
    fr_job_clique_release();
    if (fr_job_world.facts && !known.own)
        munmap((void *)(uintptr_t)fr_job_world.facts, fr_job_facts_bytes());
    free(known.own);
    free(known.partners);
    memset(&known, 0, sizeof(known));
    fr_job_world.facts = NULL;
}

bool fr_job_gather(const struct fr_job_facts *own)
{
    int size = fr_job_size(), rank = fr_job_rank();
    forget();
    if (size < 1)
        return true;
    fr_job_world.facts = known.own = calloc((size_t)size, sizeof(*known.own));
    if (!known.own) {
        fr_error("no memory for the facts of %d ranks, for which the others wait", size);
        return true;
    }
    enum outcome outcome = exchange(own);
    if (outcome == GAVE_UP)
        fr_job_world.facts = known.own = NULL; // MPI may still write there
    if (outcome != EXCHANGED || !fr_job_comm_make() || !count_hosts() || !count_cliques(rank)) {
        forget();
        return outcome != GAVE_UP;
    }
    fr_debug("%d hosts, %d cliques across hosts, %d partners", known.host_count, known.clique_count,
             known.partner_count);
    if (known.partner_count > 0)
        fr_job_clique_start();
    return true;
}

size_t fr_job_facts_bytes(void)
{
    return fr_job_world.facts ? (size_t)fr_job_size() * sizeof(*fr_job_world.facts) : 0;
}

void fr_job_facts_give(const struct fr_job_facts *shared)
{
    free(known.own);
    known.own = NULL;
    fr_job_world.facts = shared;
}

int fr_job_partners(const int **ranks)
{
    *ranks = known.partners;
    return known.partner_count;
}

bool fr_job_is_partner(int rank)
{
    const struct fr_job_facts *own = fr_job_facts_of(fr_job_rank());
    const struct fr_job_facts *other = fr_job_facts_of(rank);
    return own && other && reaches(own, other);
}

int fr_job_host_count(void)
{
    return known.host_count;
}

int fr_job_clique_count(void)
{
    return known.clique_count;
}

void fr_job_release(void)
{
    forget();
    fr_job_name_end();
    fr_job_comm_free();
}
