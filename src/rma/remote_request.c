// SPDX-License-Identifier: BSD-3-Clause
// Requests of an origin that are under way, to targets that it reaches by messages alone. Each has
// an answer, which brings data and tells a failure. Few are under way at a time. Waiting for
// answers, locks and epochs of such targets is here too.
#include "config.h"

#include "rma/remote_access.h"
#include "rma/remote_request.h"
#include "rma/window_transfer.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_TO_ONE = 8, // requests under way to one target
    MOST = 32,       // and to all targets of a window
};

// A request under way. Its answer brings data to memory in one piece.
struct fr_rma_request {
    struct fr_rma_request *next;
    uint64_t number;
    int rank;
    uintptr_t to;
    size_t bytes;
    struct fr_device_range range; // of `to`
    struct fr_rma_large *large;   // by rendezvous; NULL otherwise
    bool is_waited_for;           // the caller frees it, once it is over
    _Atomic bool over;
    enum fr_status status;
};

static struct fr_lock lock = FR_LOCK_INIT; // of the requests of all windows

static struct fr_rma_request *enter(struct fr_rma_window *window, int rank)
{
    struct fr_rma_request *request = calloc(1, sizeof(*request));
    if (!request)
        return NULL;
    request->rank = rank;
    fr_core_lock(&lock);
    request->number = ++window->last_request;
    request->next = window->requests;
    window->requests = request;
    fr_core_unlock(&lock);
    return request;
}

// Takes the first request out of a list that has this number, where that is not 0, and this rank,
// where that is not negative. Returns NULL if there is none. Called under the lock.
static struct fr_rma_request *take_first(struct fr_rma_request **at, uint64_t number, int rank)
{
    while (*at && ((number && (*at)->number != number) || (rank >= 0 && (*at)->rank != rank)))
        at = &(*at)->next;
    struct fr_rma_request *request = *at;
    if (request)
        *at = request->next;
    return request;
}

static struct fr_rma_request *take_out(struct fr_rma_window *window, uint64_t number)
{
    fr_core_lock(&lock);
    struct fr_rma_request *request = take_first(&window->requests, number, -1);
    fr_core_unlock(&lock);
    return request;
}

static void note(struct fr_rma_window *window, enum fr_status status)
{
    fr_core_lock(&lock);
    if (window->remote_status == FR_OK)
        window->remote_status = status;
    fr_core_unlock(&lock);
}

static void count(struct fr_rma_window *window, int rank, unsigned change)
{
    atomic_fetch_add(&window->parts[rank].pending, change);
    atomic_fetch_add(&window->pending, change);
}

static void forget(struct fr_rma_request *requests)
{
    while (requests) {
        struct fr_rma_request *request = requests;
        requests = request->next;
        fr_rma_large_free(request->large);
        free(request);
    }
}

void fr_rma_remote_forget(struct fr_rma_window *window)
{
    forget(window->requests);
    forget(window->declined);
    window->requests = window->declined = NULL;
}

struct fr_rma_request *fr_rma_remote_enter_large(struct fr_rma_window *window, int rank,
                                                 struct fr_rma_large *large)
{
    struct fr_rma_request *request = enter(window, rank);
    if (request)
        request->large = large;
    return request;
}

struct fr_rma_request *fr_rma_remote_enter_access(struct fr_rma_window *window, int rank,
                                                  uintptr_t to, size_t bytes,
                                                  const struct fr_device_range *range)
{
    struct fr_rma_request *request = enter(window, rank);
    if (request && to) {
        request->to = to;
        request->bytes = bytes;
        request->range = *range;
    }
    return request;
}

void fr_rma_remote_complete(struct fr_rma_window *window, struct fr_rma_request *request,
                            enum fr_status status)
{
    if (status != FR_OK)
        note(window, status);
    count(window, request->rank, (unsigned)-1);
    free(request);
}

void fr_rma_remote_decline(struct fr_rma_window *window, struct fr_rma_request *request)
{
    fr_core_lock(&lock);
    request->next = window->declined;
    window->declined = request;
    atomic_fetch_add(&window->declined_count, 1);
    fr_core_unlock(&lock);
    count(window, request->rank, (unsigned)-1);
}

enum fr_status fr_rma_copy_piece(const struct fr_device_range *range, uintptr_t address,
                                 void *packed, size_t bytes, bool to_packed)
{
    void *there = (void *)address, *dst = to_packed ? packed : there;
    const void *src = to_packed ? there : packed;
    struct fr_device_batch batch;
    if (!fr_device_owns(range)) {
        memcpy(dst, src, bytes);
        return FR_OK;
    }
    const struct fr_device_copy copy = {.dst = dst, .src = src, .bytes = bytes, .n = {1, 1}};
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, range, to_packed ? FR_TO_STAGE : FR_FROM_STAGE, &copy);
    return fr_device_batch_finish(&batch);
}

// Returns how the request has ended.
static enum fr_status finish(const struct fr_rma_request *request,
                             const struct fr_rma_message *answer)
{
    size_t come = answer->bytes - (size_t)(fr_rma_message_data(answer) - (char *)answer->head);
    enum fr_status status = (enum fr_status)answer->head->status;
    if (status != FR_OK || request->bytes == 0)
        return status;
    return come == request->bytes ? fr_rma_copy_piece(&request->range, request->to,
                                                      fr_rma_message_data(answer), come, false)
                                  : FR_ERR_MPI;
}

void fr_rma_remote_take_answer(struct fr_rma_window *window, const struct fr_rma_message *answer)
{
    struct fr_rma_request *request = take_out(window, answer->head->number);
    if (!request)
        return;
    if (request->large) {
        fr_rma_large_take_answer(request->large, answer);
        return;
    }
    request->status = finish(request, answer);
    if (request->is_waited_for)
        atomic_store_explicit(&request->over, true, memory_order_release);
    else
        fr_rma_remote_complete(window, request, request->status);
}

// Waits until at most so many requests are under way to a rank, and in all. Each answer gives the
// ranks their time anew.
static enum fr_status await(struct fr_rma_window *window, int rank, unsigned to_one, unsigned most)
{
    struct fr_rma_wait wait = fr_rma_wait_begin(&window->words, "answers of a window's rank", rank);
    enum fr_status status = FR_OK;
    unsigned before = atomic_load(&window->pending), pending = before;
    while (status == FR_OK &&
           (atomic_load(&window->parts[rank].pending) > to_one || pending > most)) {
        status = fr_rma_wait_step(&wait);
        pending = atomic_load(&window->pending);
        if (pending < before)
            wait = fr_rma_wait_begin(&window->words, wait.what, rank);
        before = pending;
    }
    return status;
}

enum fr_status fr_rma_remote_await_answers(struct fr_rma_window *window, int rank)
{
    return await(window, rank, 0, MOST);
}

enum fr_status fr_rma_remote_await_turn(struct fr_rma_window *window, int rank)
{
    return await(window, rank, MOST_TO_ONE - 1, MOST - 1);
}

enum fr_status fr_rma_remote_send(struct fr_rma_window *window, struct fr_rma_request *request,
                                  struct fr_rma_message *message, enum fr_rma_kind kind)
{
    const uint64_t number = request->number;
    const bool counts = !request->is_waited_for;
    const int rank = request->rank;
    message->head->kind = kind;
    message->head->window = window->name;
    message->head->number = number;
    message->head->from = window->rank;
    count(window, rank, counts);
    enum fr_status status = fr_rma_message_send(message, window->world[rank]);
    if (status == FR_OK)
        return FR_OK;
    count(window, rank, counts ? (unsigned)-1 : 0);
    free(take_out(window, number));
    return status;
}

static enum fr_status tell(struct fr_rma_window *window, int rank, enum fr_rma_kind kind,
                           unsigned extra, uint64_t name)
{
    struct fr_rma_message *message = fr_rma_message_new(sizeof(struct fr_rma_head));
    struct fr_rma_request *request = message ? enter(window, rank) : NULL;
    if (!request) {
        fr_rma_message_free(message);
        return FR_ERR_NO_MEMORY;
    }
    message->head->extra = extra;
    message->head->name = name;
    return fr_rma_remote_send(window, request, message, kind);
}

enum fr_status fr_rma_remote_notify(struct fr_rma_window *window, int rank, enum fr_rma_kind kind,
                                    unsigned extra)
{
    return tell(window, rank, kind, extra, 0);
}

enum fr_status fr_rma_remote_lock(struct fr_rma_window *window, int rank, bool exclusive)
{
    struct fr_rma_wait wait =
        fr_rma_wait_begin(&window->words, "the lock of a window's rank", rank);
    struct fr_rma_message *message = fr_rma_message_new(sizeof(struct fr_rma_head));
    struct fr_rma_request *request = message ? enter(window, rank) : NULL;
    if (!request) {
        fr_rma_message_free(message);
        return FR_ERR_NO_MEMORY;
    }
    const uint64_t number = request->number;
    request->is_waited_for = true;
    message->head->extra = exclusive;
    enum fr_status status = fr_rma_remote_send(window, request, message, FR_RMA_LOCK);
    if (status != FR_OK)
        return status;
    while (status == FR_OK && !atomic_load_explicit(&request->over, memory_order_acquire))
        status = fr_rma_wait_step(&wait);
    if (status != FR_OK && take_out(window, number)) {
        (void)!tell(window, rank, FR_RMA_GIVE_UP, exclusive, number);
        free(request);
        return status;
    }
    while (!atomic_load_explicit(&request->over, memory_order_acquire)) // it has just come
        fr_wait_yield();
    status = request->status;
    free(request);
    return status;
}

// Has no answer write to memory of the application's any more, ends what goes by rendezvous, and
// does nothing anew that was declined.
static void disarm(struct fr_rma_window *window)
{
    fr_rma_progress_hold();
    fr_core_lock(&lock);
    for (struct fr_rma_request *request = window->requests; request; request = request->next) {
        request->bytes = 0;
        if (request->large)
            fr_rma_large_disarm(request->large);
    }
    struct fr_rma_request *declined = window->declined;
    window->declined = NULL;
    atomic_store(&window->declined_count, 0);
    fr_core_unlock(&lock);
    forget(declined);
    fr_rma_transfers_abandon(window);
    fr_rma_progress_release();
}

static struct fr_rma_request *take_declined(struct fr_rma_window *window, int rank)
{
    fr_core_lock(&lock);
    struct fr_rma_request *request = take_first(&window->declined, 0, rank);
    if (request)
        atomic_fetch_sub(&window->declined_count, 1);
    fr_core_unlock(&lock);
    return request;
}

// Does anew, in messages, what a rank has declined. Returns whether there was anything.
static bool redo(struct fr_rma_window *window, int rank, enum fr_status *status)
{
    struct fr_rma_request *request = take_declined(window, rank);
    if (!request)
        return false;
    *status = fr_rma_large_redo(request->large);
    free(request);
    return true;
}

enum fr_status fr_rma_remote_flush_rank(struct fr_rma_window *window, int rank)
{
    enum fr_status status;
    do {
        status = fr_rma_remote_await_answers(window, rank);
    } while (status == FR_OK && redo(window, rank, &status));
    return status;
}

enum fr_status fr_rma_remote_flush(struct fr_rma_window *window)
{
    enum fr_status status = FR_OK;
    for (int rank = 0; rank < window->size && status == FR_OK; rank++) {
        if (atomic_load(&window->parts[rank].pending) != 0 ||
            atomic_load(&window->declined_count) != 0)
            status = fr_rma_remote_flush_rank(window, rank);
    }
    if (status != FR_OK)
        disarm(window);
    fr_core_lock(&lock);
    enum fr_status failed = window->remote_status;
    window->remote_status = FR_OK;
    fr_core_unlock(&lock);
    return status == FR_OK ? failed : status;
}
