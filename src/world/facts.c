// SPDX-License-Identifier: BSD-3-Clause
// What all processes of MPI_COMM_WORLD tell each other, once, at MPI_Init.
#include "config.h"

#include "world/world_int.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct fr_world_facts) == 88, "all processes must agree on the layout");

// Written by the thread that is in MPI_Init or MPI_Finalize, while no other calls MPI.
static struct {
    struct fr_world_facts *facts; // by rank, NULL while unknown
    int size;
    int host_count;
    int clique_count;
    int *partners; // ranks
    int partner_count;
} known;

uint64_t fr_world_host(void)
{
    char name[256] = "";
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a of 64 bits
    if (gethostname(name, sizeof(name) - 1) != 0)
        fr_warn("gethostname failed, so this host passes for one without a name");
    for (const char *at = name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

static int compare_hosts(const void *first, const void *second)
{
    uint64_t a = ((const struct fr_world_facts *)first)->host;
    uint64_t b = ((const struct fr_world_facts *)second)->host;
    return (a > b) - (a < b);
}

// Everything but the host: 0 for processes of one clique.
static int compare_cliques(const struct fr_world_facts *a, const struct fr_world_facts *b)
{
    if (a->has_fabric != b->has_fabric)
        return a->has_fabric < b->has_fabric ? -1 : 1;
    int clusters = memcmp(a->cluster, b->cluster, sizeof(a->cluster));
    return clusters ? clusters : (a->clique > b->clique) - (a->clique < b->clique);
}

static int compare_all(const void *first, const void *second)
{
    int cliques = compare_cliques(first, second);
    return cliques ? cliques : compare_hosts(first, second);
}

static bool reaches(const struct fr_world_facts *a, const struct fr_world_facts *b)
{
    return a->has_fabric && a->host != b->host && compare_cliques(a, b) == 0;
}

static int count_hosts(const struct fr_world_facts *by_host, int count)
{
    int hosts = 0;
    for (int i = 0; i < count; i++)
        hosts += i == 0 || by_host[i].host != by_host[i - 1].host;
    return hosts;
}

// The cliques that have processes on several hosts: where such a clique first changes host.
static int count_cliques(const struct fr_world_facts *by_clique, int count)
{
    int cliques = 0, counted_from = -1, start = 0;
    for (int i = 1; i < count; i++) {
        if (compare_cliques(&by_clique[i], &by_clique[start]) != 0)
            start = i;
        else if (counted_from != start && reaches(&by_clique[i], &by_clique[start])) {
            counted_from = start;
            cliques++;
        }
    }
    return cliques;
}

// Returns false when memory runs out.
static bool derive(int rank)
{
    size_t count = (size_t)known.size;
    struct fr_world_facts *sorted = malloc(count * sizeof(*sorted));
    known.partners = malloc(count * sizeof(*known.partners));
    if (!sorted || !known.partners) {
        free(sorted);
        return false;
    }
    memcpy(sorted, known.facts, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_hosts);
    known.host_count = count_hosts(sorted, known.size);
    qsort(sorted, count, sizeof(*sorted), compare_all);
    known.clique_count = count_cliques(sorted, known.size);
    free(sorted);
    for (int i = 0; i < known.size; i++)
        if (reaches(&known.facts[rank], &known.facts[i]))
            known.partners[known.partner_count++] = i;
    return true;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Completes the exchange, which can take as long as the last process takes to start. The first
// polls only yield, later ones sleep, since ranks may outnumber cores.
static int wait_for_all(fr_word *request, void (*progress)(void))
{
    enum { YIELDS = 1000, WARN_SECONDS = 10 };
    const struct timespec nap = {.tv_nsec = 500000};
    int64_t start_ns = now_ns();
    int warned_seconds = 0;
    for (unsigned polls = 0;; polls++) {
        int done = 0;
        int result = FR_MPI(Test, FR_PTR(request), FR_PTR(&done), fr_real_mpi.STATUS_IGNORE);
        if (result != fr_real_mpi.SUCCESS || done)
            return result;
        if (progress)
            progress();
        if (polls < YIELDS) {
            sched_yield();
            continue;
        }
        nanosleep(&nap, NULL);
        int seconds = (int)((now_ns() - start_ns) / 1000000000);
        if (seconds < warned_seconds + WARN_SECONDS)
            continue;
        warned_seconds = seconds;
        fr_warn(
            "waiting for %d s: some ranks of MPI_COMM_WORLD did not start Fabrail; preload it in "
            "all ranks with the same FABRAIL_ settings, or set FABRAIL_FABRIC=off",
            seconds);
    }
}

// The first exchange finds out that all processes are there.
static bool exchange(const struct fr_world_facts *own)
{
    fr_word request = 0;
    fr_word comm = fr_world_comm();
    if (comm == fr_real_mpi.COMM_NULL)
        comm = fr_real_mpi.COMM_WORLD;
    const fr_word bytes = sizeof(*own);
    int result = FR_MPI(Iallgather, FR_PTR(own), bytes, fr_real_mpi.BYTE, FR_PTR(known.facts),
                        bytes, fr_real_mpi.BYTE, comm, FR_PTR(&request));
    if (result == fr_real_mpi.SUCCESS)
        result = wait_for_all(&request, NULL);
    if (result != fr_real_mpi.SUCCESS)
        fr_error("the exchange of hosts and NVLink cliques failed with MPI error %d", result);
    return result == fr_real_mpi.SUCCESS;
}

bool fr_world_meet(void (*progress)(void))
{
    fr_word request = 0;
    if (fr_world_comm() == fr_real_mpi.COMM_NULL)
        return false;
    int result = FR_MPI(Ibarrier, fr_world_comm(), FR_PTR(&request));
    if (result == fr_real_mpi.SUCCESS)
        result = wait_for_all(&request, progress);
    return result == fr_real_mpi.SUCCESS;
}

static void forget(void)
{
    fr_world_clique_release();
    free(known.facts);
    free(known.partners);
    memset(&known, 0, sizeof(known));
}

void fr_world_gather(const struct fr_world_facts *own)
{
    int size = fr_world_size(), rank = fr_world_rank();
    forget();
    if (size < 1)
        return;
    known.size = size;
    known.facts = calloc((size_t)size, sizeof(*known.facts));
    if (!known.facts) {
        fr_error("no memory for the facts of %d ranks, for which the others wait", size);
        known.size = 0;
        return;
    }
    if (!exchange(own) || !fr_world_comm_make() || !derive(rank)) {
        forget();
        return;
    }
    fr_debug("%d hosts, %d cliques across hosts, %d partners", known.host_count, known.clique_count,
             known.partner_count);
    if (known.partner_count > 0)
        fr_world_clique_start();
}

int fr_world_partners(const int **ranks)
{
    *ranks = known.partners;
    return known.partner_count;
}

const struct fr_world_facts *fr_world_facts_of(int rank)
{
    return known.facts && rank >= 0 && rank < known.size ? &known.facts[rank] : NULL;
}

bool fr_world_is_partner(int rank)
{
    const struct fr_world_facts *own = fr_world_facts_of(fr_world_rank());
    const struct fr_world_facts *other = fr_world_facts_of(rank);
    return own && other && reaches(own, other);
}

int fr_world_host_count(void)
{
    return known.host_count;
}

int fr_world_clique_count(void)
{
    return known.clique_count;
}

void fr_world_release(void)
{
    forget();
    fr_world_name_end();
    fr_world_comm_free();
}
