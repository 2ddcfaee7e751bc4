// SPDX-License-Identifier: BSD-3-Clause
// Inside of module job: what its files share.
#ifndef FR_JOB_JOB_INT_H
#define FR_JOB_JOB_INT_H

#include "fabrail/core/hash.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"

// The ranks in MPI_COMM_WORLD of all processes on other hosts that are in this process's clique.
// Written at MPI_Init and MPI_Finalize alone; returns their number, 0 while facts are unknown.
int fr_job_partners(const int **ranks);

// Makes and gives back the keyvals under which answers are remembered.
void fr_job_clique_start(void);
void fr_job_clique_release(void);

// Makes the communicator of Fabrail's own unless it is there, collectively, and frees it.
bool fr_job_comm_make(void);
void fr_job_comm_free(void);

// Completes a request of something that other processes take part in, which can take as long as the
// last one takes to come. `progress` and `look`, each of which may be NULL, are called all the
// time. Returns false when `look` no longer wants to wait, else true and MPI's result.
bool fr_job_complete(void *request, void (*progress)(void), bool (*look)(struct fr_wait *wait),
                     int *result);

// What is remembered with a communicator; it dies with it.
struct ranks;
struct fr_job_tally;
struct fr_job_remembered {
    fr_word comm;
    UT_hash_handle hh;
    uint64_t name;                // 0: unknown
    _Atomic uint64_t children;    // communicators that were made of it by all its processes
    struct fr_job_tally *tallies; // of communicators that some of its processes made of it
    struct ranks *_Atomic ranks;  // NULL until somebody asks
    void *value;                  // of another module, and how it goes
    void (*destroy)(void *value);
};

// What is remembered with `comm`, NULL if nothing is: MPI is not asked, to which the handle may be
// none. And the same set, which is called once for a communicator; NULL when memory runs out.
struct fr_job_remembered *fr_job_recall(fr_word comm);
struct fr_job_remembered *fr_job_remember(fr_word comm, uint64_t name);

// The ranks in MPI_COMM_WORLD of ranks [first, first + count) of a group, -1 for processes outside.
// False when MPI fails.
bool fr_job_translate(fr_word group, int first, int count, int *in_world);

// Counts what is made with a tag of what `key` stands for, from 1; 0 without memory. And frees all
// counts, when nothing is made of the same any more.
uint64_t fr_job_tally_count(struct fr_job_tally **tallies, uint64_t key, int tag);
void fr_job_tallies_free(struct fr_job_tally **tallies);

// Names the communicators that MPI has from the start, and Fabrail's own; forgets what names were
// made of.
void fr_job_name_start(fr_word own);
void fr_job_name_end(void);

#endif
