// SPDX-License-Identifier: BSD-3-Clause
// Inside of module job: functions and data that its files share.
#ifndef FR_JOB_JOB_INT_H
#define FR_JOB_JOB_INT_H

#include "fabrail/core/hash.h"
#include "fabrail/core/wait.h"
#include "fabrail/job.h"

// Writes the ranks in MPI_COMM_WORLD of all processes on other hosts that are in this process's
// clique. Returns their number, 0 while facts are unknown. The list changes in MPI_Init and
// MPI_Finalize alone.
int fr_job_partners(const int **ranks);

// Make and free the keyvals under which clique.c remembers its answers.
void fr_job_clique_start(void);
void fr_job_clique_release(void);

// The copy function of all keyvals: an attribute stays with its object. MPI calls it with the
// family's own handles, of which it reads none.
int fr_job_copy_nothing(fr_word object, int keyval, void *extra, void *value, void *copied,
                        int *flag);

// Makes Fabrail's own communicator unless it exists. Collective. Returns false when MPI fails.
bool fr_job_comm_make(void);

// Frees Fabrail's own communicator.
void fr_job_comm_free(void);

// A barrier of all processes in steps, without waiting; one at a time. fr_job_sync_begin returns
// false if there can be none. fr_job_sync_is_over makes the next step and returns whether the
// barrier is over, for the reasons that end fr_job_finalize_sync.
bool fr_job_sync_begin(void);
bool fr_job_sync_is_over(void);

// Facts remembered with a communicator, freed with it.
struct ranks;
struct fr_job_tally;
struct fr_job_remembered {
    fr_word comm;
    UT_hash_handle hh;
    uint64_t name;                // 0: unknown
    _Atomic uint64_t children;    // communicators that all its processes made of it
    struct fr_job_tally *tallies; // communicators that some of its processes made of it
    struct ranks *_Atomic ranks;  // NULL until somebody asks
    char *promise;                // kinds of memory, NULL for none; under the lock of ranks.c
    _Atomic uint32_t label;       // another module's (fr_job_comm_label)
    atomic_bool is_host;          // host memory alone is promised
    _Atomic(void *) value;        // another module's (fr_job_comm_keep)
    void (*destroy)(void *value);
};

// Returns what is remembered with `comm`, NULL if nothing is. Does not ask MPI, since the handle
// may be none of its own.
struct fr_job_remembered *fr_job_recall(fr_word comm);

// Begins to remember facts of `comm`, with its name. Called once for a communicator. Returns NULL
// when memory runs out.
struct fr_job_remembered *fr_job_remember(fr_word comm, uint64_t name);

// Writes the ranks in MPI_COMM_WORLD of ranks [first, first + count) of a group, -1 for processes
// outside of it. Returns false when MPI fails.
bool fr_job_translate(fr_word group, int first, int count, int *in_world);

// Returns how often something has been made with a tag from the parents that `key` stands for, this
// time included. Returns 0 without memory.
uint64_t fr_job_tally_count(struct fr_job_tally **tallies, uint64_t key, int tag);

// Frees all counts, once nothing is made from the same parents any more.
void fr_job_tallies_free(struct fr_job_tally **tallies);

// Names the communicators that MPI has from the start, and Fabrail's own.
void fr_job_name_start(fr_word own);

// Forgets what names were made from.
void fr_job_name_end(void);

#endif
