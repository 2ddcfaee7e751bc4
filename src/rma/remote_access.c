// SPDX-License-Identifier: BSD-3-Clause
// Accesses of an origin to targets that it reaches by messages alone. Data are cut into fragments,
// each a request (src/rma/remote_request.c). Bytes to send are copied within the call.
#include "config.h"

#include "rma/fragment.h"
#include "rma/remote_access.h"
#include "rma/remote_request.h"

#include "fabrail/staging/packed.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_ELEMENT = 64 }; // of the predefined datatypes

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
    return cut->from
               ? fr_rma_copy_piece(cut->from_range, cut->from + fragment->first, data, bytes, true)
               : FR_OK;
}

static enum fr_status send_fragment(struct cut *cut)
{
    const struct fr_rma_fragment *fragment = &cut->fragment;
    size_t bytes = fragment->last - fragment->first;
    enum fr_status status = fr_rma_remote_await_turn(cut->window, cut->rank);
    if (status != FR_OK)
        return status;
    struct fr_rma_message *message = fr_rma_message_new(
        sizeof(struct fr_rma_head) + fragment->count * sizeof(struct fr_rma_run) +
        ((cut->from != 0) + (cut->compare != 0)) * bytes);
    struct fr_rma_request *request = NULL;
    status = message ? fill(cut, message) : FR_ERR_NO_MEMORY;
    if (status == FR_OK) {
        request = fr_rma_remote_enter_access(
            cut->window, cut->rank, cut->to ? cut->to + fragment->first : 0, bytes, cut->to_range);
        status = request ? FR_OK : FR_ERR_NO_MEMORY;
    }
    if (status != FR_OK) {
        fr_rma_message_free(message);
        return status;
    }
    return fr_rma_remote_send(cut->window, request, message, cut->kind);
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
    enum fr_status come = fr_rma_remote_await_answers(cut->window, cut->rank);
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

enum fr_status fr_rma_remote_move(struct fr_rma_window *window, int rank,
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

void fr_rma_remote_describe(const struct fr_rma_update *update, struct fr_rma_head *head)
{
    bool combines = update->origin && !update->compare;
    head->extra = (update->origin ? FR_RMA_WITH_ORIGIN : 0) |
                  (update->compare ? FR_RMA_WITH_COMPARE : 0) |
                  (update->result ? FR_RMA_WITH_RESULT : 0);
    head->operation = fr_rma_operation_index(combines ? update->operation : fr_abi_mpi.REPLACE);
    head->element = fr_rma_element_index(combines ? update->element : 0);
}

enum fr_status fr_rma_remote_update(struct fr_rma_window *window, int rank,
                                    const struct fr_rma_target *target,
                                    const struct fr_rma_update *update)
{
    struct cut *cut = new_cut(window, rank, target, FR_RMA_ACCUMULATE);
    struct piece origin = {.view = NULL}, compare = origin, result = origin;
    if (!cut)
        return FR_ERR_NO_MEMORY;
    fr_rma_remote_describe(update, &cut->head);
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
