// SPDX-License-Identifier: BSD-3-Clause
// An origin's requests to targets that it reaches by messages alone. Data are cut into fragments.
// Bytes to send are copied within the call. Each request has an answer, which brings data and tells
// a failure; few are under way at a time.
#include "config.h"

#include "rma/far.h"
#include "rma/fragment.h"
#include "rma/transfer.h"

#include "fabrail/staging/packed.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_TO_ONE = 8,      // requests under way to one target
    MOST = 32,            // and to all targets of a window
    LONGEST_ELEMENT = 64, // of the predefined datatypes
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

static struct fr_rma_request *take_out(struct fr_rma_window *window, uint64_t number)
{
    fr_core_lock(&lock);
    struct fr_rma_request **at = &window->requests;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct fr_rma_request *request = *at;
    if (request)
        *at = request->next;
    fr_core_unlock(&lock);
    return request;
}

static void note(struct fr_rma_window *window, enum fr_status status)
{
    fr_core_lock(&lock);
    if (window->far_status == FR_OK)
        window->far_status = status;
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

void fr_rma_far_forget(struct fr_rma_window *window)
{
    forget(window->requests);
    forget(window->declined);
    window->requests = window->declined = NULL;
}

struct fr_rma_request *fr_rma_far_enter_large(struct fr_rma_window *window, int rank,
                                              struct fr_rma_large *large)
{
    struct fr_rma_request *request = enter(window, rank);
    if (request)
        request->large = large;
    return request;
}

void fr_rma_far_complete(struct fr_rma_window *window, struct fr_rma_request *request,
                         enum fr_status status)
{
    if (status != FR_OK)
        note(window, status);
    count(window, request->rank, (unsigned)-1);
    free(request);
}

void fr_rma_far_decline(struct fr_rma_window *window, struct fr_rma_request *request)
{
    fr_core_lock(&lock);
    request->next = window->declined;
    window->declined = request;
    atomic_fetch_add(&window->declined_count, 1);
    fr_core_unlock(&lock);
    count(window, request->rank, (unsigned)-1);
}

// Copies between packed memory of the host and memory in one piece, and waits.
static enum fr_status copy_piece(const struct fr_device_range *range, uintptr_t address,
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
    return come == request->bytes
               ? copy_piece(&request->range, request->to, fr_rma_message_data(answer), come, false)
               : FR_ERR_MPI;
}

void fr_rma_far_take_answer(struct fr_rma_window *window, const struct fr_rma_message *answer)
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
        fr_rma_far_complete(window, request, request->status);
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

enum fr_status fr_rma_far_await_turn(struct fr_rma_window *window, int rank)
{
    return await(window, rank, MOST_TO_ONE - 1, MOST - 1);
}

enum fr_status fr_rma_far_send(struct fr_rma_window *window, struct fr_rma_request *request,
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
    return fr_rma_far_send(window, request, message, kind);
}

enum fr_status fr_rma_far_tell(struct fr_rma_window *window, int rank, enum fr_rma_kind kind,
                               unsigned extra)
{
    return tell(window, rank, kind, extra, 0);
}

enum fr_status fr_rma_far_lock(struct fr_rma_window *window, int rank, bool exclusive)
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
    enum fr_status status = fr_rma_far_send(window, request, message, FR_RMA_LOCK);
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
    struct fr_rma_request **at = &window->declined;
    while (*at && (*at)->rank != rank)
        at = &(*at)->next;
    struct fr_rma_request *request = *at;
    if (request) {
        *at = request->next;
        atomic_fetch_sub(&window->declined_count, 1);
    }
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

enum fr_status fr_rma_far_settle(struct fr_rma_window *window, int rank)
{
    enum fr_status status;
    do {
        status = await(window, rank, 0, MOST);
    } while (status == FR_OK && redo(window, rank, &status));
    return status;
}

enum fr_status fr_rma_far_flush(struct fr_rma_window *window)
{
    enum fr_status status = FR_OK;
    for (int rank = 0; rank < window->size && status == FR_OK; rank++) {
        if (atomic_load(&window->parts[rank].pending) != 0 ||
            atomic_load(&window->declined_count) != 0)
            status = fr_rma_far_settle(window, rank);
    }
    if (status != FR_OK)
        disarm(window);
    fr_core_lock(&lock);
    enum fr_status failed = window->far_status;
    window->far_status = FR_OK;
    fr_core_unlock(&lock);
    return status == FR_OK ? failed : status;
}

// An access that is being cut. Data of this process stand in one piece: where the application has
// them, or packed on the host.
struct cut {
    struct fr_rma_window *window;
    int rank;
    const struct fr_rma_target *target;
    enum fr_rma_kind kind;
    size_t bytes, unit; // of all, and of what is not cut
    const struct fr_device_range *from_range, *to_range;
    uintptr_t from, compare, to; // 0: none
    struct fr_rma_head head;     // with what it says of an update
    struct fr_rma_fragment fragment;
};

static const struct fr_device_range host = FR_DEVICE_HOST;

// Chooses the next fragment, which begins at `first`.
static enum fr_status next_fragment(struct cut *cut, size_t first)
{
    enum fr_status status = FR_ERR_LIMIT;
    size_t most = FR_RMA_MOST_BYTES - FR_RMA_MOST_BYTES % cut->unit;
    for (size_t bytes = most; status == FR_ERR_LIMIT; bytes = bytes / 2) {
        size_t step = bytes - bytes % cut->unit;
        if (step == 0)
            return FR_ERR_LIMIT;
        cut->fragment.first = first;
        cut->fragment.last = cut->bytes - first < step ? cut->bytes : first + step;
        status = fr_rma_fragment_find(cut->target, &cut->fragment);
    }
    return status;
}

static enum fr_status fill(const struct cut *cut, struct fr_rma_message *message)
{
    const struct fr_rma_fragment *fragment = &cut->fragment;
    struct fr_rma_head *head = message->head;
    size_t bytes = fragment->last - fragment->first;
    *head = cut->head;
    head->bytes = bytes;
    head->runs = fragment->count;
    memcpy(fr_rma_message_runs(message), fragment->runs,
           fragment->count * sizeof(fragment->runs[0]));
    char *data = fr_rma_message_data(message);
    if (cut->compare)
        memcpy(data + bytes, (const void *)(cut->compare + fragment->first), bytes);
    return cut->from ? copy_piece(cut->from_range, cut->from + fragment->first, data, bytes, true)
                     : FR_OK;
}

static enum fr_status send_fragment(struct cut *cut)
{
    const struct fr_rma_fragment *fragment = &cut->fragment;
    size_t bytes = fragment->last - fragment->first;
    enum fr_status status = fr_rma_far_await_turn(cut->window, cut->rank);
    if (status != FR_OK)
        return status;
    struct fr_rma_message *message = fr_rma_message_new(
        sizeof(struct fr_rma_head) + fragment->count * sizeof(struct fr_rma_run) +
        ((cut->from != 0) + (cut->compare != 0)) * bytes);
    struct fr_rma_request *request = NULL;
    status = message ? fill(cut, message) : FR_ERR_NO_MEMORY;
    if (status == FR_OK && !(request = enter(cut->window, cut->rank)))
        status = FR_ERR_NO_MEMORY;
    if (status != FR_OK) {
        fr_rma_message_free(message);
        return status;
    }
    if (cut->to) {
        request->to = cut->to + fragment->first;
        request->bytes = bytes;
        request->range = *cut->to_range;
    }
    return fr_rma_far_send(cut->window, request, message, cut->kind);
}

static enum fr_status send_all(struct cut *cut)
{
    enum fr_status status = FR_OK;
    for (size_t first = 0; first < cut->bytes && status == FR_OK; first = cut->fragment.last) {
        status = next_fragment(cut, first);
        if (status == FR_OK)
            status = send_fragment(cut);
    }
    return status;
}

// Data of this process in one piece.
struct piece {
    const struct fr_staging_view *view; // NULL: none
    struct fr_staging_lease packed;     // without an address they stand where the view has them
    const struct fr_device_range *range;
    uintptr_t address;
};

static enum fr_status open_piece(const struct fr_staging_view *view, bool on_host, bool reads,
                                 struct piece *piece)
{
    *piece = (struct piece){.view = view, .range = &host};
    if (!view)
        return FR_OK;
    bool plain = fr_rma_is_on_host(view);
    if (view->blocks[0].layout->contiguous && !view->mixed && !view->absolute &&
        (plain || (!on_host && fr_staging_view_is_in_one_piece(view)))) {
        piece->address = fr_rma_address_of(view);
        piece->range = plain ? &host : &view->range;
        return FR_OK;
    }
    enum fr_status status = fr_staging_borrow(fr_rma_bytes_of(view), &piece->packed);
    piece->address = (uintptr_t)piece->packed.address;
    return status == FR_OK && reads ? fr_rma_copy_packed(view, piece->packed, FR_TO_STAGE) : status;
}

// Ends the use of a piece that requests write to. Packed data go to the application's memory once
// all of them are there. Accesses that were declined are left, since doing one anew comes here.
static enum fr_status close_result(struct cut *cut, struct piece *piece, enum fr_status status)
{
    if (!piece->packed.address)
        return status;
    enum fr_status come = await(cut->window, cut->rank, 0, MOST);
    if (come != FR_OK)
        fr_staging_forsake(&piece->packed); // it may still be written to
    if (status == FR_OK)
        status = come;
    if (status == FR_OK)
        status = fr_rma_copy_packed(piece->view, piece->packed, FR_FROM_STAGE);
    fr_staging_return(&piece->packed);
    return status;
}

static struct cut *new_cut(struct fr_rma_window *window, int rank,
                           const struct fr_rma_target *target, enum fr_rma_kind kind)
{
    struct cut *cut = calloc(1, sizeof(*cut));
    if (!cut)
        return NULL;
    cut->window = window;
    cut->rank = rank;
    cut->target = target;
    cut->kind = kind;
    cut->bytes = fr_rma_bytes_of(&target->view);
    cut->unit = 1;
    return cut;
}

static void free_cut(struct cut *cut)
{
    fr_rma_fragment_free(&cut->fragment);
    free(cut);
}

enum fr_status fr_rma_far_move(struct fr_rma_window *window, int rank,
                               const struct fr_rma_target *target,
                               const struct fr_staging_view *own, bool puts)
{
    struct cut *cut = new_cut(window, rank, target, puts ? FR_RMA_PUT : FR_RMA_GET);
    struct piece piece;
    if (!cut)
        return FR_ERR_NO_MEMORY;
    enum fr_status status = open_piece(own, false, puts, &piece);
    cut->from = puts ? piece.address : 0;
    cut->to = puts ? 0 : piece.address;
    cut->from_range = cut->to_range = piece.range;
    if (status == FR_OK)
        status = send_all(cut);
    if (puts)
        fr_staging_return(&piece.packed);
    else
        status = close_result(cut, &piece, status);
    free_cut(cut);
    return status;
}

void fr_rma_far_describe(const struct fr_rma_update *update, struct fr_rma_head *head)
{
    bool combines = update->origin && !update->compare;
    head->extra = (update->origin ? FR_RMA_WITH_ORIGIN : 0) |
                  (update->compare ? FR_RMA_WITH_COMPARE : 0) |
                  (update->result ? FR_RMA_WITH_RESULT : 0);
    head->operation = fr_rma_operation_index(combines ? update->operation : fr_abi_mpi.REPLACE);
    head->element = fr_rma_element_index(combines ? update->element : 0);
}

enum fr_status fr_rma_far_update(struct fr_rma_window *window, int rank,
                                 const struct fr_rma_target *target,
                                 const struct fr_rma_update *update)
{
    struct cut *cut = new_cut(window, rank, target, FR_RMA_ACCUMULATE);
    struct piece origin = {.view = NULL}, compare = origin, result = origin;
    if (!cut)
        return FR_ERR_NO_MEMORY;
    fr_rma_far_describe(update, &cut->head);
    if (target->block.layout->unit_bytes <= LONGEST_ELEMENT)
        cut->unit = target->block.layout->unit_bytes; // no element is cut
    enum fr_status status = open_piece(update->origin, false, true, &origin);
    if (status == FR_OK)
        status = open_piece(update->compare, true, true, &compare);
    if (status == FR_OK)
        status = open_piece(update->result, false, false, &result);
    cut->from = origin.address;
    cut->from_range = origin.range;
    cut->compare = compare.address;
    cut->to = result.address;
    cut->to_range = result.range;
    if (status == FR_OK)
        status = send_all(cut);
    status = close_result(cut, &result, status);
    fr_staging_return(&origin.packed);
    fr_staging_return(&compare.packed);
    free_cut(cut);
    return status;
}
