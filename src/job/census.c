// SPDX-License-Identifier: BSD-3-Clause
// The census finds out whether all processes of the job run Fabrail alike. That has to be known
// before any collective call of Fabrail's. A process without it would not come, and nothing may be
// sent to it either.
//
// Each process leaves a record with the launcher before the real MPI_Init, which is a fence for
// such records. Afterwards each looks for the records of its parent and its children in a tree of
// all ranks. Findings are gathered up the tree and told down again, by messages between processes
// that both run this code. Where a process is missing the tree falls apart, and each part has a
// process that knows.
#include "config.h"

#include "job/census.h"
#include "job/job_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHILDREN = 4 };

// Bits of the word that goes through the tree.
enum { MIXED = 1u << 0, NEEDED = 1u << 1, BLIND = 1u << 2 };

static const struct fr_job_registry *const registries[] = {&fr_job_hydra, &fr_job_pmix};
static char own_record[FR_JOB_RECORD_BYTES];

// Written in MPI_Init.
static const struct fr_job_registry *used; // NULL where the launcher has none
static enum fr_job_record outcome;
static bool is_taken;
static atomic_bool has_begun;

size_t fr_job_record_common(const char *record)
{
    const char *host = strrchr(record, ';');
    return host ? (size_t)(host - record) : 0;
}

static bool is_alike(const char *record)
{
    size_t common = fr_job_record_common(own_record);
    return fr_job_record_common(record) == common && memcmp(record, own_record, common) == 0;
}

bool fr_job_census_begin(void)
{
    char alike[FR_ALIKE_BYTES], host[FR_JOB_HOST_BYTES] = "";
    if (atomic_exchange(&has_begun, true))
        return false;
    (void)gethostname(host, sizeof(host) - 1);
    for (char *at = host; *at; at++)
        *at = *at == ';' || *at == ' ' ? '_' : *at;
    snprintf(own_record, sizeof(own_record), "Fabrail-%s;%s;%.200s", PACKAGE_VERSION,
             fr_core_settings_alike(fr_core_settings(), alike), host);
    for (size_t i = 0; i < FR_ARRAY_LENGTH(registries); i++)
        registries[i]->put(own_record);
    return true;
}

// Completes a request without MPI's own waiting, which may spin and keep other ranks from the core.
static bool complete(int result, void *request)
{
    if (result == fr_abi_mpi.SUCCESS)
        (void)fr_job_complete(request, NULL, NULL, &result);
    return result == fr_abi_mpi.SUCCESS;
}

static bool send_word(int to, unsigned word)
{
    _Alignas(8) char request[8];
    int result = FR_MPI(Isend, FR_PTR(&word), sizeof(word), fr_abi_mpi.BYTE, (fr_word)to,
                        FR_JOB_UNUSED_TAG, fr_abi_mpi.COMM_WORLD, FR_PTR(request));
    return complete(result, request);
}

static bool add_word(int from, unsigned *word)
{
    _Alignas(8) char request[8];
    unsigned received = MIXED;
    int result = FR_MPI(Irecv, FR_PTR(&received), sizeof(received), fr_abi_mpi.BYTE, (fr_word)from,
                        FR_JOB_UNUSED_TAG, fr_abi_mpi.COMM_WORLD, FR_PTR(request));
    bool done = complete(result, request);
    *word |= received;
    return done;
}

// Returns whether a neighbour in the tree runs Fabrail. Adds what its record says to the word.
static bool find(const struct fr_job_registry *registry, int rank, unsigned *word)
{
    char record[FR_JOB_RECORD_BYTES];
    bool is_there = registry->get(rank, record);
    if (!is_there || !is_alike(record))
        *word |= MIXED;
    if (!is_there && registry->may_be_elsewhere(rank))
        *word |= BLIND;
    return is_there;
}

static unsigned ask_tree(const struct fr_job_registry *registry, bool needs)
{
    int rank = fr_job_rank(), parent = rank > 0 ? (rank - 1) / CHILDREN : -1;
    int children[CHILDREN], count = 0;
    unsigned word = needs ? NEEDED : 0;
    for (int64_t i = 1; i <= CHILDREN && (int64_t)rank * CHILDREN + i < fr_job_size(); i++) {
        int child = rank * CHILDREN + (int)i;
        if (find(registry, child, &word))
            children[count++] = child;
    }
    bool done = true, has_parent = parent >= 0 && find(registry, parent, &word);
    for (int i = 0; i < count; i++)
        done = add_word(children[i], &word) && done;
    if (has_parent)
        done = send_word(parent, word) && add_word(parent, &word) && done;
    for (int i = 0; i < count; i++)
        done = send_word(children[i], word) && done;
    return done ? word : word | MIXED;
}

// Returns whether no process before this one has a record. Asks for the nearest rank first, so that
// all processes together ask for about as many records as there are.
static bool is_first(const struct fr_job_registry *registry)
{
    char record[FR_JOB_RECORD_BYTES];
    for (int rank = fr_job_rank() - 1; rank >= 0; rank--)
        if (registry->get(rank, record))
            return false;
    return true;
}

bool fr_job_census_is_taken(void)
{
    return is_taken;
}

void fr_job_census_note(void)
{
    for (size_t i = 0; i < FR_ARRAY_LENGTH(registries); i++) {
        enum fr_job_record record = registries[i]->has_put();
        if (used || record == FR_JOB_RECORD_NONE)
            continue;
        used = registries[i];
        outcome = record;
    }
}

bool fr_job_census_end(bool may, bool needs)
{
    if (outcome == FR_JOB_RECORD_FAILED) {
        fr_warn("the launcher (%s) refused to tell the other ranks that this one runs Fabrail",
                used->name);
        return false;
    }
    unsigned word = used ? ask_tree(used, needs) : BLIND;
    is_taken = !(word & BLIND);
    if (!is_taken) {
        fr_debug("the launcher does not tell which ranks run Fabrail");
        return may;
    }
    if (word & MIXED && is_first(used))
        fr_job_census_warn(used, own_record);
    return !(word & MIXED) && word & NEEDED;
}
