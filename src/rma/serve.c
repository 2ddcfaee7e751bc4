// SPDX-License-Identifier: BSD-3-Clause
// The work that a target does for other ranks of its window, as their messages ask for it. Bytes of
// a message are checked before use.
#include "config.h"

#include "fabrail/rndv/progress.h"
#include "rma/far.h"
#include "rma/region.h"

#include <string.h>

static struct fr_lock lock = FR_LOCK_INIT;
static struct fr_rma_window *windows FR_GUARDED_BY(lock); // that messages come for
_Atomic unsigned fr_rma_far_count;
_Atomic unsigned fr_rma_by_calls_count;

void fr_rma_far_enter(struct fr_rma_window *window)
{
    fr_core_lock(&lock);
    window->next_far = windows;
    windows = window;
    fr_core_unlock(&lock);
    window->is_far = true;
    fr_rndv_progress_add(FR_RNDV_WINDOWS, fr_rma_progress);
    atomic_fetch_add(&fr_rma_far_count, 1);
    atomic_fetch_add(&fr_rma_by_calls_count, window->server == FR_RMA_BY_CALLS);
}

void fr_rma_far_leave(struct fr_rma_window *window)
{
    if (!window->is_far)
        return;
    fr_core_lock(&lock);
    struct fr_rma_window **at = &windows;
    while (*at != window)
        at = &(*at)->next_far;
    *at = window->next_far;
    fr_core_unlock(&lock);
    window->is_far = false;
    atomic_fetch_sub(&fr_rma_far_count, 1);
    atomic_fetch_sub(&fr_rma_by_calls_count, window->server == FR_RMA_BY_CALLS);
    fr_rma_progress_hold(); // no thread acts on its messages any more
    fr_rma_progress_release();
}

struct fr_rma_window *fr_rma_far_after(const struct fr_rma_window *window)
{
    fr_core_lock(&lock);
    struct fr_rma_window *next = window ? window->next_far : windows;
    fr_core_unlock(&lock);
    return next;
}

static struct fr_rma_window *find(uint64_t name)
{
    struct fr_rma_window *window = fr_rma_far_after(NULL);
    while (window && window->name != name)
        window = fr_rma_far_after(window);
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

// Returns whether a run has rows, and packed data where its message says.
static bool is_packed(const struct fr_rma_run *run, uint64_t packed_bytes)
{
    return run->count > 0 &&
           (uint64_t)run->at + (uint64_t)run->step * (run->count - 1) + run->bytes <= packed_bytes;
}

bool fr_rma_find_run(struct fr_rma_window *window, uint64_t bytes, struct fr_rma_run *run,
                     struct fr_rma_part *part)
{
    int64_t reach, last;
    if (!is_packed(run, bytes) ||
        __builtin_mul_overflow(run->stride, (int64_t)(run->count - 1), &reach) ||
        __builtin_add_overflow(run->offset, reach, &last))
        return false;
    int64_t low = last < run->offset ? last : run->offset;
    int64_t high = last > run->offset ? last : run->offset;
    if (__builtin_add_overflow(high, (int64_t)run->bytes, &high) || low < 0)
        return false;
    if (!window->words.is_dynamic) {
        part->address = fr_rma_own_part(window)->address;
        part->range = fr_rma_own_part(window)->range;
        return (uint64_t)high <= fr_rma_own_part(window)->bytes;
    }
    if (!fr_rma_region_of_own(window, (uint64_t)low, (uint64_t)high, part))
        return false;
    run->offset -= (int64_t)part->base;
    return true;
}

static void copy_on_host(char *memory, char *packed, const struct fr_rma_run *run, bool from_memory)
{
    for (uint32_t i = 0; i < run->count; i++) {
        char *there = memory + run->offset + (ptrdiff_t)i * run->stride;
        char *here = packed + run->at + (size_t)i * run->step;
        memcpy(from_memory ? here : there, from_memory ? there : here, run->bytes);
    }
}

static void copy_by_device(struct fr_device_batch *batch, const struct fr_rma_part *part,
                           char *packed, const struct fr_rma_run *run, bool from_memory)
{
    void *there = (void *)(part->address + (uintptr_t)run->offset), *here = packed + run->at;
    struct fr_device_copy copy = {
        .dst = from_memory ? here : there,
        .src = from_memory ? there : here,
        .bytes = run->bytes,
        .n = {run->count, 1},
        .dst_stride = {from_memory ? (ptrdiff_t)run->step : (ptrdiff_t)run->stride},
        .src_stride = {from_memory ? (ptrdiff_t)run->stride : (ptrdiff_t)run->step},
    };
    fr_device_batch_copy(batch, &part->range, from_memory ? FR_TO_STAGE : FR_FROM_STAGE, &copy);
}

// Packed data that the copies are to and from.
struct packed {
    char *data;
    uint64_t bytes;
    struct fr_device_batch batch;
};

static bool copy_run(struct fr_rma_window *window, struct packed *packed,
                     const struct fr_rma_run *wanted, bool from_memory)
{
    struct fr_rma_part part = {.base = 0};
    struct fr_rma_run run = *wanted;
    if (!fr_rma_find_run(window, packed->bytes, &run, &part))
        return false;
    if (fr_device_owns(&part.range))
        copy_by_device(&packed->batch, &part, packed->data, &run, from_memory);
    else
        copy_on_host((char *)part.address, packed->data, &run, from_memory);
    return true;
}

// Copies bytes in one row, which may go on from one piece of attached memory to the next.
static bool copy_row(struct fr_rma_window *window, struct packed *packed, struct fr_rma_run row,
                     bool from_memory)
{
    bool found = row.offset >= 0;
    for (uint32_t left = row.bytes; left > 0 && found; left -= row.bytes) {
        struct fr_rma_part part = {.base = 0};
        uint64_t low = (uint64_t)row.offset;
        if (!fr_rma_region_of_own(window, low, low + 1, &part))
            return false;
        uint64_t room = part.base + part.bytes - low;
        row.bytes = room < left ? (uint32_t)room : left;
        found = copy_run(window, packed, &row, from_memory);
        row.offset += row.bytes;
        row.at += row.bytes;
    }
    return found;
}

// Copies the rows of a run one by one, which may lie in several pieces of attached memory.
static bool copy_rows(struct fr_rma_window *window, struct packed *packed,
                      const struct fr_rma_run *run, bool from_memory)
{
    bool found = window->words.is_dynamic && is_packed(run, packed->bytes);
    for (uint32_t i = 0; i < run->count && found; i++) {
        struct fr_rma_run row = {.at = run->at + i * run->step, .bytes = run->bytes, .count = 1};
        int64_t offset;
        found = !__builtin_mul_overflow(run->stride, (int64_t)i, &offset) &&
                !__builtin_add_overflow(run->offset, offset, &row.offset) &&
                copy_row(window, packed, row, from_memory);
    }
    return found;
}

enum fr_status fr_rma_copy_runs(struct fr_rma_window *window, const struct fr_rma_message *message,
                                char *data, bool from_memory)
{
    const struct fr_rma_run *runs = fr_rma_message_runs(message);
    struct packed packed = {.data = data, .bytes = message->head->bytes};
    enum fr_status status = FR_OK;
    fr_device_batch_begin(&packed.batch);
    for (uint32_t i = 0; i < message->head->runs && status == FR_OK; i++) {
        if (!copy_run(window, &packed, &runs[i], from_memory) &&
            !copy_rows(window, &packed, &runs[i], from_memory))
            status = FR_ERR_RANGE;
    }
    enum fr_status copied = fr_device_batch_finish(&packed.batch);
    return status == FR_OK ? copied : status;
}

static void put(struct fr_rma_window *window, struct fr_rma_message *message)
{
    bool fits = message->head->bytes <=
                message->bytes - (size_t)(fr_rma_message_data(message) - (char *)message->head);
    fr_rma_answer(window, message, NULL,
                  fits ? fr_rma_copy_runs(window, message, fr_rma_message_data(message), false)
                       : FR_ERR_INVALID);
}

static struct fr_rma_message *new_answer(const struct fr_rma_message *message)
{
    return message->head->bytes <= FR_RMA_MOST_BYTES
               ? fr_rma_message_new(sizeof(struct fr_rma_head) + message->head->bytes)
               : NULL;
}

static void get(struct fr_rma_window *window, struct fr_rma_message *message)
{
    struct fr_rma_message *result = new_answer(message);
    enum fr_status status = FR_ERR_NO_MEMORY;
    if (result)
        status = fr_rma_copy_runs(window, message, fr_rma_message_data(result), true);
    fr_rma_answer(window, message, result, status);
}

// Finds the operands of an update in its message. Returns false where they are not all there.
static bool find_operands(const struct fr_rma_message *message, struct fr_rma_operands *operands)
{
    const struct fr_rma_head *head = message->head;
    char *data = fr_rma_message_data(message);
    size_t left = message->bytes - (size_t)(data - (char *)message->head);
    bool origin = head->extra & FR_RMA_WITH_ORIGIN, compare = head->extra & FR_RMA_WITH_COMPARE;
    *operands = (struct fr_rma_operands){.bytes = head->bytes};
    if (head->bytes > FR_RMA_MOST_BYTES || left < (origin + (size_t)compare) * head->bytes ||
        !fr_rma_element_from(head->element, &operands->element) ||
        !fr_rma_operation_from(head->operation, &operands->operation))
        return false;
    operands->origin = origin ? data : NULL;
    operands->compare = compare ? data + (origin ? head->bytes : 0) : NULL;
    return true;
}

// Updates this rank's memory while nobody else does.
static enum fr_status update(struct fr_rma_window *window, const struct fr_rma_message *message,
                             struct fr_rma_operands *operands, struct fr_rma_message *result)
{
    enum fr_status status = fr_rma_copy_runs(window, message, operands->there, true);
    if (status == FR_OK && result)
        memcpy(fr_rma_message_data(result), operands->there, operands->bytes);
    if (status == FR_OK && fr_rma_combine(operands, &status))
        status = fr_rma_copy_runs(window, message, operands->there, false);
    return status;
}

// Returns false while another rank updates the memory.
static bool accumulate(struct fr_rma_window *window, struct fr_rma_message *message)
{
    struct fr_rma_operands operands;
    struct fr_rma_message *result = NULL;
    struct fr_staging_lease there = {.address = NULL};
    if (!find_operands(message, &operands)) {
        fr_rma_answer(window, message, NULL, FR_ERR_INVALID);
        return true;
    }
    if (!fr_rma_words_update_try(&window->words, window->rank))
        return false;
    enum fr_status status = fr_staging_borrow(operands.bytes, &there);
    bool wants = message->head->extra & FR_RMA_WITH_RESULT;
    operands.there = there.address;
    if (status == FR_OK && wants && !(result = new_answer(message)))
        status = FR_ERR_NO_MEMORY;
    if (status == FR_OK)
        status = update(window, message, &operands, result);
    fr_rma_words_update_end(&window->words, window->rank);
    fr_staging_return(&there);
    fr_rma_answer(window, message, result, status);
    return true;
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
    struct fr_rma_window *window = fr_rma_far_after(NULL);
    for (; window; window = fr_rma_far_after(window))
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
    case FR_RMA_MEET:
        fr_rma_meet_note(window, head);
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
        fr_rma_words_told(&window->words, head->from, true);
        break;
    case FR_RMA_COMPLETE:
        fr_rma_words_told(&window->words, head->from, false);
        break;
    default:
        fr_rma_message_free(message);
        return true;
    }
    fr_rma_answer(window, message, NULL, FR_OK);
    return true;
}

bool fr_rma_act(struct fr_rma_message *message)
{
    const struct fr_rma_head *head = message->head;
    struct fr_rma_window *window = NULL;
    if (message->bytes >= sizeof(*head) &&
        head->runs <= (message->bytes - sizeof(*head)) / sizeof(struct fr_rma_run))
        window = find(head->window);
    if (!window || head->from < 0 || head->from >= window->size ||
        window->world[head->from] != message->from) {
        fr_debug("a message of rank %d of the world is about no window", message->from);
        fr_rma_message_free(message);
        return true;
    }
    if (head->kind != FR_RMA_ANSWER)
        return serve(window, message);
    fr_rma_far_take_answer(window, message);
    fr_rma_message_free(message);
    return true;
}
