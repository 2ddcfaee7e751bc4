// SPDX-License-Identifier: BSD-3-Clause
// Words of a window: shared memory in which its ranks begin and end epochs, and take turns at
// updates. Each rank has a line, and a cell for each other rank.
#ifndef FR_RMA_EPOCH_WORDS_H
#define FR_RMA_EPOCH_WORDS_H

#include "fabrail/core/wait.h"
#include "fabrail/job/shm.h"

struct fr_rma_header;
struct fr_rma_line;

struct fr_rma_words {
    struct fr_job_shm shm;
    struct fr_job_secret secret;
    struct fr_rma_header *header;
    char *rows;       // one for each rank: its line and its cells
    const int *world; // ranks in MPI_COMM_WORLD; the window's
    int rank, size;
    bool named;        // the name may still exist
    bool is_dynamic;   // each rank has a directory
    uint64_t barriers; // that this rank has come to
};

// Makes the words with `create`, which draws their secret; else maps those of the secret.
FR_MUST_CHECK enum fr_status fr_rma_words_open(struct fr_rma_words *words, bool create);

// Removes the name, once all ranks have mapped the words or none will any more.
void fr_rma_words_seal(struct fr_rma_words *words);
void fr_rma_words_close(struct fr_rma_words *words);

// A wait for other ranks.
struct fr_rma_wait {
    const struct fr_rma_words *words;
    const char *what; // that is waited for, for the log
    int rank;         // of the window, that it is waited for; -1: none alone
    bool is_endless;  // a call of MPI's own would wait as long
    struct fr_wait wait;
    int64_t looked_ns;
};
struct fr_rma_wait fr_rma_wait_begin(const struct fr_rma_words *words, const char *what, int rank);

// Takes a step of a wait, and makes progress. Returns FR_ERR_MPI, after an error is logged, when a
// rank is gone or FABRAIL_TIMEOUT has passed.
FR_MUST_CHECK enum fr_status fr_rma_wait_step(struct fr_rma_wait *wait);

// Waits until all ranks have come here.
FR_MUST_CHECK enum fr_status fr_rma_words_barrier(struct fr_rma_words *words);

// Take and give back a rank's lock, first come first served. A lock that was not given back for a
// rank that is gone fails all who wait for it.
FR_MUST_CHECK enum fr_status fr_rma_words_lock(struct fr_rma_words *words, int target,
                                               bool exclusive);
void fr_rma_words_unlock(struct fr_rma_words *words, int target, bool exclusive);

// Take the lock for a rank that waits elsewhere. The first draws a ticket. The second looks whether
// its turn has come, which gives the lock to `rank`: FR_ERR_NOT_FOUND means not yet, FR_ERR_MPI
// never. The third gives a ticket up.
uint32_t fr_rma_words_draw(struct fr_rma_words *words, int target);
FR_MUST_CHECK enum fr_status fr_rma_words_look(struct fr_rma_words *words, int target,
                                               uint32_t ticket, bool exclusive, int rank);
void fr_rma_words_give_up(struct fr_rma_words *words, int target, int rank);

// Begin and end an update of a rank's memory, of which there is one at a time. The second form
// waits for nobody, and returns whether the update has begun.
FR_MUST_CHECK enum fr_status fr_rma_words_update_begin(struct fr_rma_words *words, int target);
bool fr_rma_words_update_try(struct fr_rma_words *words, int target);
void fr_rma_words_update_end(struct fr_rma_words *words, int target);

// Directories, of dynamic windows: memory that a rank shows to the others of its host. One thread
// of the owner at a time puts memory on it, if there is room, and takes it away.
struct fr_ipc_handle;
void fr_rma_words_show(struct fr_rma_words *words, const struct fr_ipc_handle *handle,
                       uint64_t base, uint64_t bytes);
void fr_rma_words_hide(struct fr_rma_words *words, uint64_t base);

// Returns how often a rank has taken memory away.
uint32_t fr_rma_words_version(const struct fr_rma_words *words, int rank);

// Finds memory of a rank that holds bytes [low, high). Returns FR_ERR_NOT_FOUND if there is none,
// and FR_ERR_LIMIT where the directory has been changing for so long that nobody can tell.
FR_MUST_CHECK enum fr_status fr_rma_words_find(const struct fr_rma_words *words, int rank,
                                               uint64_t low, uint64_t high,
                                               struct fr_ipc_handle *handle, uint64_t *base,
                                               uint64_t *bytes);

// Tell a rank that this one has posted its memory for it, or has completed its accesses there.
void fr_rma_words_post(struct fr_rma_words *words, int to);
void fr_rma_words_complete(struct fr_rma_words *words, int to);

// Notes that a rank of another host has told this one so.
void fr_rma_words_note(struct fr_rma_words *words, int from, bool posted);

// Return how many times a rank has told this one so.
uint32_t fr_rma_words_posts_of(const struct fr_rma_words *words, int from);
uint32_t fr_rma_words_completes_of(const struct fr_rma_words *words, int from);

#endif
