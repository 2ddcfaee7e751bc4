// SPDX-License-Identifier: BSD-3-Clause
// Words of a window. The store that tells others is a release, and the load that sees it an
// acquire. A device has finished its stores before its process tells of them.
#include "config.h"

#include "rma/directory.h"
#include "rma/rma_int.h"

#include "fabrail/rndv/progress.h"

#include <stdio.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "between processes");

struct fr_rma_header {
    _Atomic uint64_t arrived; // ranks at barriers, of all barriers together
    char rest[FR_CONTROL_LINE_BYTES - 8];
};

// The lock is a ticket for each who comes. Readers let the next reader in at once.
struct fr_rma_line {
    _Atomic uint32_t next, read, write;
    _Atomic uint32_t updater; // the rank that updates, plus one; 0: none
    _Atomic uint32_t holder;  // the rank that had the lock last, plus one
    _Atomic uint32_t broken; // the rank, plus one, that has given up its ticket; nobody comes after
    char rest[FR_CONTROL_LINE_BYTES - 24];
};

// Counts of what another rank has told the row's rank.
struct cell {
    _Atomic uint32_t posts, completes;
};
_Static_assert(sizeof(struct fr_rma_header) == FR_CONTROL_LINE_BYTES &&
                   sizeof(struct fr_rma_line) == FR_CONTROL_LINE_BYTES,
               "lines");

static size_t whole_lines(size_t bytes)
{
    return (bytes + FR_CONTROL_LINE_BYTES - 1) / FR_CONTROL_LINE_BYTES * FR_CONTROL_LINE_BYTES;
}

static size_t row_bytes(const struct fr_rma_words *words)
{
    return sizeof(struct fr_rma_line) + whole_lines((size_t)words->size * sizeof(struct cell)) +
           (words->is_dynamic ? fr_rma_directory_bytes() : 0);
}

static struct fr_rma_line *line_of(const struct fr_rma_words *words, int rank)
{
    return (struct fr_rma_line *)(void *)(words->rows + (size_t)rank * row_bytes(words));
}

static struct cell *cell_of(const struct fr_rma_words *words, int rank, int teller)
{
    return (struct cell *)(void *)(line_of(words, rank) + 1) + teller;
}

struct fr_rma_directory *fr_rma_words_directory(const struct fr_rma_words *words, int rank)
{
    size_t cells = whole_lines((size_t)words->size * sizeof(struct cell));
    return (struct fr_rma_directory *)(void *)((char *)(line_of(words, rank) + 1) + cells);
}

enum fr_status fr_rma_words_open(struct fr_rma_words *words, bool create)
{
    enum fr_status status = create ? fr_job_secret_draw(&words->secret) : FR_OK;
    size_t bytes = sizeof(struct fr_rma_header) + (size_t)words->size * row_bytes(words);
    if (status == FR_OK)
        status = fr_job_shm_map(&words->secret, create, bytes, &words->shm);
    if (status != FR_OK)
        return status;
    words->named = create;
    words->header = words->shm.memory;
    words->rows = (char *)(words->header + 1);
    return FR_OK;
}

void fr_rma_words_seal(struct fr_rma_words *words)
{
    if (words->named)
        fr_job_shm_remove(&words->secret);
    words->named = false;
    if (words->header)
        fr_job_shm_close_file(&words->shm);
}

void fr_rma_words_close(struct fr_rma_words *words)
{
    fr_rma_words_seal(words);
    if (words->header)
        fr_job_shm_close(&words->shm);
    words->header = NULL;
}

struct fr_rma_wait fr_rma_wait_begin(const struct fr_rma_words *words, const char *what, int rank)
{
    return (struct fr_rma_wait){.words = words,
                                .what = what,
                                .rank = rank,
                                .wait = {.spins = FR_WAIT_SPINS, .pauses = true}};
}

// Returns whether all ranks of the window are alive, as far as is known.
static bool are_alive(const struct fr_rma_words *words)
{
    for (int rank = 0; rank < words->size; rank++) {
        if (!fr_job_control_is_alive(words->world[rank])) {
            fr_error("rank %d of a window is gone", rank);
            return false;
        }
    }
    return true;
}

enum fr_status fr_rma_wait_step(struct fr_rma_wait *wait)
{
    if (!fr_wait_step(&wait->wait))
        return FR_OK;
    fr_rndv_wait_progress();
    int64_t waited_ns = fr_wait_ns(&wait->wait);
    if (waited_ns - wait->looked_ns < FR_SECOND_NS)
        return FR_OK;
    wait->looked_ns = waited_ns;
    char whom[96];
    if (wait->rank < 0)
        snprintf(whom, sizeof(whom), "%s", wait->what);
    else
        snprintf(whom, sizeof(whom), "%s %d (rank %d of the job)", wait->what, wait->rank,
                 wait->words->world[wait->rank]);
    return are_alive(wait->words) &&
                   (wait->is_endless || fr_rndv_wait_judge(&wait->wait, NULL, whom))
               ? FR_OK
               : FR_ERR_MPI;
}

enum fr_status fr_rma_words_barrier(struct fr_rma_words *words)
{
    _Atomic uint64_t *arrived = &words->header->arrived;
    uint64_t all = ++words->barriers * (uint64_t)words->size;
    struct fr_rma_wait wait = fr_rma_wait_begin(words, "all ranks of a window", -1);
    enum fr_status status = FR_OK;
    atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel);
    while (status == FR_OK && atomic_load_explicit(arrived, memory_order_acquire) < all)
        status = fr_rma_wait_step(&wait);
    return status;
}

// Returns whether a lock can still come to those who wait. A ticket whose owner has gone away is
// never given back, so all others have to give up as well.
static bool can_come(const struct fr_rma_line *line, int target)
{
    uint32_t by = atomic_load_explicit(&line->broken, memory_order_acquire);
    if (by != 0)
        fr_error("the lock of rank %d of a window is lost: rank %u has given it up", target,
                 by - 1);
    return by == 0;
}

void fr_rma_words_give_up(struct fr_rma_words *words, int target, int rank)
{
    struct fr_rma_line *line = line_of(words, target);
    uint32_t none = 0;
    uint32_t holder = atomic_load_explicit(&line->holder, memory_order_relaxed);
    if (atomic_compare_exchange_strong(&line->broken, &none, (uint32_t)rank + 1) && holder != 0)
        fr_error("rank %u of a window was the last to get the lock of rank %d", holder - 1, target);
}

uint32_t fr_rma_words_draw(struct fr_rma_words *words, int target)
{
    return atomic_fetch_add_explicit(&line_of(words, target)->next, 1, memory_order_acq_rel);
}

enum fr_status fr_rma_words_look(struct fr_rma_words *words, int target, uint32_t ticket,
                                 bool exclusive, int rank)
{
    struct fr_rma_line *line = line_of(words, target);
    _Atomic uint32_t *turn = exclusive ? &line->write : &line->read;
    if (atomic_load_explicit(turn, memory_order_acquire) != ticket)
        return can_come(line, target) ? FR_ERR_NOT_FOUND : FR_ERR_MPI;
    atomic_store_explicit(&line->holder, (uint32_t)rank + 1, memory_order_relaxed);
    if (!exclusive)
        atomic_store_explicit(&line->read, ticket + 1, memory_order_release);
    return FR_OK;
}

enum fr_status fr_rma_words_lock(struct fr_rma_words *words, int target, bool exclusive)
{
    struct fr_rma_wait wait = fr_rma_wait_begin(words, "the lock of a window's rank", target);
    uint32_t ticket = fr_rma_words_draw(words, target);
    enum fr_status status = FR_OK, found = FR_ERR_NOT_FOUND;
    while (status == FR_OK && found == FR_ERR_NOT_FOUND) {
        found = fr_rma_words_look(words, target, ticket, exclusive, words->rank);
        if (found == FR_ERR_NOT_FOUND)
            status = fr_rma_wait_step(&wait);
    }
    status = status == FR_OK ? found : status;
    if (status != FR_OK)
        fr_rma_words_give_up(words, target, words->rank);
    return status;
}

void fr_rma_words_unlock(struct fr_rma_words *words, int target, bool exclusive)
{
    struct fr_rma_line *line = line_of(words, target);
    if (exclusive)
        atomic_fetch_add_explicit(&line->read, 1, memory_order_acq_rel);
    atomic_fetch_add_explicit(&line->write, 1, memory_order_acq_rel);
}

bool fr_rma_words_update_try(struct fr_rma_words *words, int target)
{
    uint32_t none = 0;
    return atomic_compare_exchange_strong_explicit(&line_of(words, target)->updater, &none,
                                                   (uint32_t)words->rank + 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

enum fr_status fr_rma_words_update_begin(struct fr_rma_words *words, int target)
{
    struct fr_rma_wait wait = fr_rma_wait_begin(words, "an update of a window's rank", target);
    enum fr_status status = FR_OK;
    while (status == FR_OK && !fr_rma_words_update_try(words, target))
        status = fr_rma_wait_step(&wait);
    return status;
}

void fr_rma_words_update_end(struct fr_rma_words *words, int target)
{
    atomic_store_explicit(&line_of(words, target)->updater, 0, memory_order_release);
}

void fr_rma_words_post(struct fr_rma_words *words, int to)
{
    atomic_fetch_add_explicit(&cell_of(words, to, words->rank)->posts, 1, memory_order_release);
}

void fr_rma_words_complete(struct fr_rma_words *words, int to)
{
    atomic_fetch_add_explicit(&cell_of(words, to, words->rank)->completes, 1, memory_order_release);
}

void fr_rma_words_note(struct fr_rma_words *words, int from, bool posted)
{
    struct cell *cell = cell_of(words, words->rank, from);
    atomic_fetch_add_explicit(posted ? &cell->posts : &cell->completes, 1, memory_order_release);
}

uint32_t fr_rma_words_posts_of(const struct fr_rma_words *words, int from)
{
    return atomic_load_explicit(&cell_of(words, words->rank, from)->posts, memory_order_acquire);
}

uint32_t fr_rma_words_completes_of(const struct fr_rma_words *words, int from)
{
    return atomic_load_explicit(&cell_of(words, words->rank, from)->completes,
                                memory_order_acquire);
}
