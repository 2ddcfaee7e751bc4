// SPDX-License-Identifier: BSD-3-Clause
// Epochs. A call that ends one completes the accesses of this process first, and then tells the
// others.
#include "config.h"

#include "rma/region.h"
#include "rma/remote_access.h"

#include "fabrail/ipc.h"
#include "fabrail/rndv/progress.h"

enum fr_status fr_rma_sync(struct fr_rma_window *window)
{
    const struct fr_rma_part *own = fr_rma_own_part(window);
    atomic_thread_fence(memory_order_seq_cst);
    if (window->words.is_dynamic)
        return fr_rma_regions_sync(window);
    if (own->bytes == 0 || !fr_device_owns(&own->range))
        return FR_OK;
    return fr_device_sync_app_work(&own->range, (uintptr_t)own->base, (size_t)own->bytes);
}

// Returns whether this rank has locked any.
static bool has_lock(const struct fr_rma_window *window)
{
    bool any = window->all_locked;
    for (int rank = 0; rank < window->size && !any; rank++)
        any = window->parts[rank].locked != FR_RMA_UNLOCKED;
    return any;
}

bool fr_rma_has_epoch(const struct fr_rma_window *window)
{
    return window->started || window->exposed || has_lock(window);
}

// Returns whether an epoch of another sort may begin. An epoch that a fence has begun is over then.
static bool leave_fence(struct fr_rma_window *window)
{
    if (!atomic_load_explicit(&window->fenced, memory_order_relaxed))
        return true;
    if (atomic_load_explicit(&window->used, memory_order_relaxed))
        return false;
    atomic_store_explicit(&window->fenced, false, memory_order_relaxed);
    return true;
}

enum fr_status fr_rma_fence(struct fr_rma_window *window, bool is_last)
{
    if (fr_rma_has_epoch(window))
        return FR_ERR_EPOCH;
    enum fr_status status = fr_rma_flush(window);
    enum fr_status synced = fr_rma_sync(window);
    enum fr_status reached = fr_rma_barrier_all(window);
    atomic_store_explicit(&window->fenced, !is_last, memory_order_relaxed);
    atomic_store_explicit(&window->used, false, memory_order_relaxed);
    return status != FR_OK ? status : synced != FR_OK ? synced : reached;
}

static enum fr_status show_own(struct fr_rma_window *window, int target)
{
    return target == window->rank ? fr_rma_sync(window) : FR_OK;
}

enum fr_status fr_rma_lock(struct fr_rma_window *window, int target, bool exclusive)
{
    struct fr_rma_part *part = &window->parts[target];
    if (part->locked != FR_RMA_UNLOCKED || window->all_locked || window->started ||
        !leave_fence(window))
        return FR_ERR_EPOCH;
    enum fr_status status = show_own(window, target);
    if (status == FR_OK)
        status = part->is_remote ? fr_rma_remote_lock(window, target, exclusive)
                                 : fr_rma_words_lock(&window->words, target, exclusive);
    if (status == FR_OK)
        part->locked = exclusive ? FR_RMA_EXCLUSIVE : FR_RMA_SHARED;
    return status;
}

static enum fr_status unlock(struct fr_rma_window *window, int target)
{
    struct fr_rma_part *part = &window->parts[target];
    bool exclusive = part->locked == FR_RMA_EXCLUSIVE, locked = part->locked != FR_RMA_UNLOCKED;
    part->locked = FR_RMA_UNLOCKED;
    if (locked && part->is_remote)
        return fr_rma_remote_notify(window, target, FR_RMA_UNLOCK, exclusive);
    if (locked)
        fr_rma_words_unlock(&window->words, target, exclusive);
    return FR_OK;
}

enum fr_status fr_rma_unlock(struct fr_rma_window *window, int target)
{
    if (window->parts[target].locked == FR_RMA_UNLOCKED || window->all_locked)
        return FR_ERR_EPOCH;
    enum fr_status status = fr_rma_flush(window);
    enum fr_status shown = show_own(window, target);
    enum fr_status unlocked = unlock(window, target);
    return status != FR_OK ? status : shown != FR_OK ? shown : unlocked;
}

enum fr_status fr_rma_flush_rank(struct fr_rma_window *window, int target)
{
    bool locked = window->all_locked || window->parts[target].locked != FR_RMA_UNLOCKED;
    return locked ? fr_rma_flush(window) : FR_ERR_EPOCH;
}

enum fr_status fr_rma_flush_all(struct fr_rma_window *window)
{
    return has_lock(window) ? fr_rma_flush(window) : FR_ERR_EPOCH;
}

enum fr_status fr_rma_lock_all(struct fr_rma_window *window)
{
    enum fr_status status = FR_OK;
    if (has_lock(window))
        return FR_ERR_EPOCH;
    for (int rank = 0; rank < window->size && status == FR_OK; rank++)
        status = fr_rma_lock(window, rank, false);
    for (int rank = 0; rank < window->size && status != FR_OK; rank++)
        (void)!unlock(window, rank);
    window->all_locked = status == FR_OK;
    return status;
}

enum fr_status fr_rma_unlock_all(struct fr_rma_window *window)
{
    if (!window->all_locked)
        return FR_ERR_EPOCH;
    enum fr_status status = fr_rma_flush(window);
    enum fr_status shown = fr_rma_sync(window);
    for (int rank = 0; rank < window->size; rank++) {
        enum fr_status unlocked = unlock(window, rank);
        shown = shown == FR_OK ? unlocked : shown;
    }
    window->all_locked = false;
    return status == FR_OK ? shown : status;
}

enum fr_status fr_rma_post(struct fr_rma_window *window, const int *ranks, size_t count)
{
    if (window->exposed || !leave_fence(window))
        return FR_ERR_EPOCH;
    enum fr_status status = fr_rma_sync(window);
    window->exposed = true;
    for (size_t i = 0; i < count; i++) {
        struct fr_rma_part *part = &window->parts[ranks[i]];
        part->posted = true;
        part->completes++;
        enum fr_status told = FR_OK;
        if (part->is_remote)
            told = fr_rma_remote_notify(window, ranks[i], FR_RMA_POST, 0);
        else
            fr_rma_words_post(&window->words, ranks[i]);
        status = status == FR_OK ? told : status;
    }
    return status;
}

enum fr_status fr_rma_start(struct fr_rma_window *window, const int *ranks, size_t count)
{
    struct fr_rma_wait wait =
        fr_rma_wait_begin(&window->words, "MPI_Win_post of a window's rank", -1);
    enum fr_status status = FR_OK;
    if (window->started || has_lock(window) || !leave_fence(window))
        return FR_ERR_EPOCH;
    window->started = true;
    for (size_t i = 0; i < count && status == FR_OK; i++) {
        struct fr_rma_part *part = &window->parts[ranks[i]];
        wait.rank = ranks[i];
        while (status == FR_OK &&
               (int32_t)(fr_rma_words_posts_of(&window->words, ranks[i]) - part->starts) <= 0)
            status = fr_rma_wait_step(&wait);
        part->starts += status == FR_OK;
        part->started = status == FR_OK;
    }
    return status;
}

enum fr_status fr_rma_complete(struct fr_rma_window *window)
{
    if (!window->started)
        return FR_ERR_EPOCH;
    enum fr_status status = fr_rma_flush(window);
    window->started = false;
    for (int rank = 0; rank < window->size; rank++) {
        struct fr_rma_part *part = &window->parts[rank];
        enum fr_status told = FR_OK;
        if (part->started && part->is_remote)
            told = fr_rma_remote_notify(window, rank, FR_RMA_COMPLETE, 0);
        else if (part->started)
            fr_rma_words_complete(&window->words, rank);
        part->started = false;
        status = status == FR_OK ? told : status;
    }
    return status;
}

// Looks whether all that this rank has posted for have completed their accesses.
static bool is_over(struct fr_rma_window *window)
{
    bool over = true;
    for (int rank = 0; rank < window->size && over; rank++) {
        struct fr_rma_part *part = &window->parts[rank];
        if (!part->posted)
            continue;
        uint32_t told = fr_rma_words_completes_of(&window->words, rank);
        over = (int32_t)(told - part->completes) >= 0;
        part->posted = !over;
    }
    window->exposed = !over;
    return over;
}

enum fr_status fr_rma_test(struct fr_rma_window *window, bool *over)
{
    if (!window->exposed)
        return FR_ERR_EPOCH;
    *over = is_over(window);
    if (!*over)
        fr_rndv_wait_progress();
    return FR_OK;
}

enum fr_status fr_rma_wait(struct fr_rma_window *window)
{
    struct fr_rma_wait wait = fr_rma_wait_begin(&window->words, "MPI_Win_complete of a window", -1);
    enum fr_status status = window->exposed ? FR_OK : FR_ERR_EPOCH;
    while (status == FR_OK && !is_over(window))
        status = fr_rma_wait_step(&wait);
    return status;
}
