// SPDX-License-Identifier: BSD-3-Clause
// The work that a target does for other ranks of its window, as their messages ask for it. Bytes of
// a message are checked before use.
#include "config.h"

#include "fabrail/rndv/progress.h"
#include "rma/remote_access.h"
#include "rma/target_memory.h"

#include <string.h>

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_rma_window *windows FR_GUARDED_BY(lock); // that messages come for
_Atomic unsigned fr_rma_remote_count;
_Atomic unsigned fr_rma_by_calls_count;

void fr_rma_remote_enter(struct fr_rma_window *window)
{
    fr_core_lock(&lock);
    window->next_remote = windows;
    windows = window;
    fr_core_unlock(&lock);
    window->is_remote = true;
    fr_rndv_progress_add(FR_RNDV_WINDOWS, fr_rma_progress);
    atomic_fetch_add(&fr_rma_remote_count, 1);
    atomic_fetch_add(&fr_rma_by_calls_count, window->server == FR_RMA_BY_CALLS);
}

void fr_rma_remote_leave(struct fr_rma_window *window)
{
    if (!window->is_remote)
        return;
    fr_core_lock(&lock);
    struct fr_rma_window **at = &windows;
    while (*at != window)
        at = &(*at)->next_remote;
    *at = window->next_remote;
    fr_core_unlock(&lock);
    window->is_remote = false;
    atomic_fetch_sub(&fr_rma_remote_count, 1);
    atomic_fetch_sub(&fr_rma_by_calls_count, window->server == FR_RMA_BY_CALLS);
    fr_rma_progress_hold(); // no thread acts on its messages any more
    fr_rma_progress_release();
}

struct fr_rma_window *fr_rma_remote_after(const struct fr_rma_window *window)
{
    fr_core_lock(&lock);
    struct fr_rma_window *next = window ? window->next_remote : windows;
    fr_core_unlock(&lock);
    return next;
}

static struct fr_rma_window *find(uint64_t name)
{
    struct fr_rma_window *window = fr_rma_remote_after(NULL);
    while (window && window->name != name)
        window = fr_rma_remote_after(window);
    return window;
}

void fr_rma_answer(struct fr_rma_window *window, struct fr_rma_message *message,
                   struct fr_rma_message *with, enum fr_status status)
{
    const struct fr_rma_head head = {
        .window = window->name,
        .number = message->head->number,
        .kind = FR_RMA_ANSWER,
        .extra = with ? with->head->extra : 0,
        .from = window->rank,
        .status = status,
    };
    int to = window->world[message->head->from];
    if (with && status == FR_OK) {
        fr_rma_message_free(message);
        message = with;
    } else {
        fr_rma_message_free(with);
        fr_rma_message_empty(message);
    }
    *message->head = head;
    (void)!fr_rma_message_send(message, to); // which logs a failure
}

static void put(struct fr_rma_window *window, struct fr_rma_message *message)
{
    bool fits = message->head->bytes <=
                message->bytes - (size_t)(fr_rma_message_data(message) - (char *)message->head);
    fr_rma_answer(window, message, NULL,
                  fits ? fr_rma_copy_runs(window, message, fr_rma_message_packed(message), false)
                       : FR_ERR_INVALID);
}

static uint64_t most_bytes(const struct fr_rma_message *message)
{
    return message->head->extra & FR_RMA_BY_RENDEZVOUS ? FR_RMA_SLICE_BYTES : FR_RMA_MOST_BYTES;
}

static struct fr_rma_message *new_answer(const struct fr_rma_message *message)
{
    return message->head->bytes <= most_bytes(message)
               ? fr_rma_message_new(sizeof(struct fr_rma_head) + message->head->bytes)
               : NULL;
}

static void get(struct fr_rma_window *window, struct fr_rma_message *message)
{
    struct fr_rma_message *result = new_answer(message);
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (result)
        status = fr_rma_copy_runs(window, message, fr_rma_message_packed(result), true);
    fr_rma_answer(window, message, result, status);
}

// Returns whether the origin's data of an update come apart from its message.
static bool has_to_land(const struct fr_rma_message *message)
{
    const unsigned both = FR_RMA_BY_RENDEZVOUS | FR_RMA_WITH_ORIGIN;
    return message->head->kind == FR_RMA_ACCUMULATE && (message->head->extra & both) == both;
}

// Finds the operands of an update in its message, or where they have landed. Returns false where
// they are not all there.
static bool find_operands(const struct fr_rma_message *message, struct fr_rma_operands *operands)
{
    const struct fr_rma_head *head = message->head;
    char *data = fr_rma_message_data(message);
    size_t left = message->bytes - (size_t)(data - (char *)message->head);
    bool origin = head->extra & FR_RMA_WITH_ORIGIN, compare = head->extra & FR_RMA_WITH_COMPARE;
    bool landed = has_to_land(message);
    size_t here = (size_t)(origin && !landed) + compare; // in the message
    *operands = (struct fr_rma_operands){.bytes = head->bytes};
    if (head->bytes > most_bytes(message) || left < here * head->bytes ||
        !fr_rma_element_from(head->element, &operands->element) ||
        !fr_rma_operation_from(head->operation, &operands->operation))
        return false;
    operands->origin = landed ? message->data.address : origin ? data : NULL;
    operands->compare = compare ? data + (here - 1) * head->bytes : NULL;
    return true;
}

// Updates this rank's memory while nobody else does.
static enum fr_status update(struct fr_rma_window *window, const struct fr_rma_message *message,
                             struct fr_rma_operands *operands, struct fr_staging_lease there,
                             struct fr_rma_message *result)
{
    struct fr_rma_memory memory;
    fr_rma_memory_find_rows(window, message, &memory);
    enum fr_status status = fr_rma_memory_copy(window, message, &memory, there, true);
    if (status == FR_OK && result)
        memcpy(fr_rma_message_data(result), operands->there, operands->bytes);
    if (status == FR_OK && fr_rma_combine(operands, &status))
        status = fr_rma_memory_copy(window, message, &memory, there, false);
    fr_rma_memory_close(&memory);
    return status;
}

// Makes what an update needs beside its operands: a copy of the memory, and its result.
static enum fr_status borrow(const struct fr_rma_message *message, struct fr_staging_lease *there,
                             struct fr_rma_message **result)
{
    enum fr_status status = fr_staging_try_borrow(message->head->bytes, there);
    if (status != FR_OK || !(message->head->extra & FR_RMA_WITH_RESULT))
        return status;
    *result = new_answer(message);
    if (*result && message->head->extra & FR_RMA_BY_RENDEZVOUS)
        fr_rma_result_begin(*result);
    return *result ? FR_OK : FR_ERR_NO_MEMORY;
}

static void end_update(struct fr_rma_window *window, struct fr_rma_message *message,
                       struct fr_rma_message *result, enum fr_status status)
{
    bool large = message->head->extra & FR_RMA_BY_RENDEZVOUS;
    fr_rma_land_end(message);
    if (status != FR_OK || !result || !large || !fr_rma_send_result(window, message, result))
        fr_rma_answer(window, message, result, status);
}

// Returns false while another rank updates the memory, data have not come, or results of others
// have the memory that it needs.
static bool accumulate(struct fr_rma_window *window, struct fr_rma_message *message)
{
    struct fr_rma_operands operands;
    struct fr_rma_message *result = NULL;
    struct fr_staging_lease there = {.address = NULL};
    if (has_to_land(message) && !fr_rma_land(window, message))
        return false;
    if (message->landed != FR_OK || !find_operands(message, &operands)) {
        end_update(window, message, NULL,
                   message->landed != FR_OK ? message->landed : FR_ERR_INVALID);
        return true;
    }
    bool may_wait = fr_rma_result_may_wait(message);
    if ((may_wait && !fr_staging_has_room(2 * operands.bytes)) ||
        !fr_rma_words_update_try(&window->words, window->rank))
        return false;
    enum fr_status status = borrow(message, &there, &result);
    bool again = status == FR_ERR_NO_MEMORY && may_wait;
    operands.there = there.address;
    if (status == FR_OK)
        status = update(window, message, &operands, there, result);
    fr_rma_words_update_end(&window->words, window->rank);
    fr_staging_return(&there);
    if (!again)
        end_update(window, message, result, status);
    return !again;
}

// Has a rank of another host wait for this rank's lock.
static void lock_own(struct fr_rma_window *window, struct fr_rma_message *message)
{
    message->ticket = fr_rma_words_draw(&window->words, window->rank);
    message->next = window->waiters;
    window->waiters = message;
}

// Ends a wait for the lock. Where it is over, the rank has the lock without knowing, and gives it
// back.
static void give_up(struct fr_rma_window *window, const struct fr_rma_head *head)
{
    struct fr_rma_message **at = &window->waiters;
    while (*at && ((*at)->head->from != head->from || (*at)->head->number != head->name))
        at = &(*at)->next;
    struct fr_rma_message *waiter = *at;
    if (waiter) {
        *at = waiter->next;
        fr_rma_words_give_up(&window->words, window->rank, head->from);
    } else {
        fr_rma_words_unlock(&window->words, window->rank, head->extra);
    }
    fr_rma_message_free(waiter);
}

static void grant(struct fr_rma_window *window)
{
    struct fr_rma_message **at = &window->waiters;
    while (*at) {
        struct fr_rma_message *waiter = *at;
        enum fr_status status = fr_rma_words_look(&window->words, window->rank, waiter->ticket,
                                                  waiter->head->extra, waiter->head->from);
        if (status == FR_ERR_NOT_FOUND) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        fr_rma_answer(window, waiter, NULL, status);
    }
}

void fr_rma_grant_locks(void)
{
    struct fr_rma_window *window = fr_rma_remote_after(NULL);
    for (; window; window = fr_rma_remote_after(window))
        grant(window);
}

void fr_rma_waiters_free(struct fr_rma_window *window)
{
    while (window->waiters) {
        struct fr_rma_message *waiter = window->waiters;
        window->waiters = waiter->next;
        fr_rma_message_free(waiter);
    }
}

// Serves a request, and owns it from then on. Returns false if it has to be tried again later.
static bool serve(struct fr_rma_window *window, struct fr_rma_message *message)
{
    const struct fr_rma_head *head = message->head;
    switch ((enum fr_rma_kind)head->kind) {
    case FR_RMA_BARRIER:
        fr_rma_barrier_note(window, head);
        fr_rma_message_free(message);
        return true;
    case FR_RMA_PUT:
        if (head->extra & FR_RMA_BY_RENDEZVOUS)
            return fr_rma_serve_large_put(window, message);
        put(window, message);
        return true;
    case FR_RMA_GET:
        if (head->extra & FR_RMA_BY_RENDEZVOUS)
            fr_rma_serve_large_get(window, message);
        else
            get(window, message);
        return true;
    case FR_RMA_ACCUMULATE:
        return accumulate(window, message);
    case FR_RMA_LOCK:
        lock_own(window, message);
        return true;
    case FR_RMA_GIVE_UP:
        give_up(window, head);
        break;
    case FR_RMA_UNLOCK:
        fr_rma_words_unlock(&window->words, window->rank, head->extra);
        break;
    case FR_RMA_POST:
        fr_rma_words_note(&window->words, head->from, true);
        break;
    case FR_RMA_COMPLETE:
        fr_rma_words_note(&window->words, head->from, false);
        break;
    default:
        fr_rma_message_free(message);
        return true;
    }
    fr_rma_answer(window, message, NULL, FR_OK);
    return true;
}

// Returns the window of a message; NULL for a message that makes no sense.
static struct fr_rma_window *window_of(const struct fr_rma_message *message)
{
    const struct fr_rma_head *head = message->head;
    struct fr_rma_window *window = NULL;
    if (message->bytes >= sizeof(*head) &&
        head->runs <= (message->bytes - sizeof(*head)) / sizeof(struct fr_rma_run))
        window = find(head->window);
    bool good = window && head->from >= 0 && head->from < window->size &&
                window->world[head->from] == message->from;
    return good ? window : NULL;
}

void fr_rma_act_early(struct fr_rma_message *message)
{
    struct fr_rma_window *window = window_of(message);
    if (window && has_to_land(message))
        (void)fr_rma_land(window, message);
}

bool fr_rma_act(struct fr_rma_message *message)
{
    const struct fr_rma_head *head = message->head;
    struct fr_rma_window *window = window_of(message);
    if (!window && message->landing == FR_RMA_LANDING)
        return false; // until its transfer has ended with the window
    if (!window) {
        fr_debug("a message of rank %d of the world is about no window", message->from);
        fr_rma_message_free(message);
        return true;
    }
    if (head->kind != FR_RMA_ANSWER)
        return serve(window, message);
    fr_rma_remote_take_answer(window, message);
    fr_rma_message_free(message);
    return true;
}
