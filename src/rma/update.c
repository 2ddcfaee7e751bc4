// SPDX-License-Identifier: BSD-3-Clause
// Updates: what MPI calls accumulates. The rank's update word keeps others out while one reads and
// writes the target. A kernel does it in place where all data stand in one piece. Otherwise packed
// copies in host memory are combined there, by the real MPI.
#include "config.h"

#include "rma/remote_access.h"

#include "fabrail/staging/packed.h"

#include <limits.h>
#include <stdlib.h>

enum { SMALL_BYTES = 1 << 12 }; // of host memory, which kernels are given by room of the queue

// An update by kernel. Host memory of the application is replaced by room of the queue.
struct in_place {
    const struct fr_device_range *mover;
    enum fr_reduce_row row;
    size_t bytes, elements;
    uintptr_t there, origin, result; // 0: there is none
    void *result_room;
};

// Finds where a kernel reads or writes the data of a view. Returns 0 where it cannot.
static uintptr_t reach(struct fr_rma_window *window, const struct fr_rma_target *target,
                       const struct fr_staging_view *view, void **room)
{
    if (fr_rma_is_native(target, view) && fr_staging_view_is_in_one_piece(view))
        return fr_rma_address_of(view);
    if (!fr_rma_is_on_host(view) || !view->blocks[0].layout->contiguous ||
        fr_rma_bytes_of(view) > SMALL_BYTES)
        return 0;
    *room = fr_rma_queue_room(window->queue, fr_rma_bytes_of(view));
    return (uintptr_t)*room;
}

// Returns whether the kernel of a row takes an address. Elements that are only moved may stand
// anywhere.
static bool suits(const struct in_place *work, uintptr_t address)
{
    return work->row == FR_REDUCE_ROWS || fr_device_reduce_is_aligned(work->row, address);
}

static enum fr_status sync_app_work(const struct fr_rma_target *target,
                                    const struct fr_staging_view *view)
{
    if (!view || !fr_rma_is_native(target, view))
        return FR_OK;
    return fr_device_sync_app_work(&view->range, view->base + (uintptr_t)view->first, view->span);
}

// Describes an update by kernel. Returns false where kernels cannot do it.
static bool plan(struct fr_rma_window *window, const struct fr_rma_target *target,
                 const struct fr_rma_update *update, struct in_place *work)
{
    bool combines = update->origin && update->operation != fr_abi_mpi.REPLACE;
    void *origin_room = NULL;
    *work = (struct in_place){.mover = &target->part->range, .row = update->row};
    if (update->compare || (combines && update->row == FR_REDUCE_ROWS) ||
        !target->part->mapping.direct || !fr_staging_view_is_in_one_piece(&target->view) ||
        !fr_device_has_kernels(work->mover, FR_IMAGE_REDUCE))
        return false;
    work->bytes = fr_rma_bytes_of(&target->view);
    work->there = fr_rma_address_of(&target->view);
    if (combines)
        work->elements = work->bytes / fr_device_reduce_element_bytes(work->row);
    if (update->origin)
        work->origin = reach(window, target, update->origin, &origin_room);
    if (update->result)
        work->result = reach(window, target, update->result, &work->result_room);
    bool fits = suits(work, work->there) && suits(work, work->origin) &&
                suits(work, work->result) && (!update->origin || work->origin) &&
                (!update->result || work->result);
    if (fits && origin_room)
        memcpy(origin_room, (const void *)fr_rma_address_of(update->origin), work->bytes);
    return fits;
}

static enum fr_status push(const struct in_place *work, uintptr_t dst, uintptr_t src)
{
    const struct fr_device_push_piece piece = {.dst = dst, .src = src, .bytes = work->bytes};
    struct fr_device_work push;
    fr_device_push_begin(work->mover, &piece, 1, FR_ENGINE_SM,
                         (unsigned)fr_core_settings()->peer_sms, FR_ORIGIN_SYNCED, &push);
    return fr_device_work_end(&push);
}

// Combines by one launch. With a result it is a scan over the target and the origin: what comes
// first is the old value, what comes second the new one.
static enum fr_status combine(const struct in_place *work)
{
    struct fr_device_reduction reduction = {
        .row = work->row,
        .mode = work->result ? FR_REDUCE_SCAN : FR_REDUCE_ALL,
        .elements = work->elements,
        .sources = 2,
        .targets = work->result ? 2 : 1,
        .source = {work->there, work->origin},
        .target = {work->result ? work->result : work->there, work->there},
    };
    return fr_device_reduce(work->mover, &reduction, (unsigned)fr_core_settings()->peer_sms);
}

static enum fr_status work_in_place(const struct in_place *work)
{
    if (work->elements > 0)
        return combine(work);
    enum fr_status status = work->result ? push(work, work->result, work->there) : FR_OK;
    if (status == FR_OK && work->origin)
        status = push(work, work->there, work->origin);
    return status;
}

static enum fr_status update_in_place(struct fr_rma_window *window, int rank,
                                      const struct fr_rma_target *target,
                                      const struct fr_rma_update *update,
                                      const struct in_place *work)
{
    enum fr_status status = sync_app_work(target, update->origin);
    if (status == FR_OK)
        status = sync_app_work(target, update->result);
    if (status == FR_OK)
        status = fr_rma_words_update_begin(&window->words, rank);
    if (status != FR_OK)
        return status;
    status = work_in_place(work);
    fr_rma_words_update_end(&window->words, rank);
    if (status == FR_OK && work->result_room)
        memcpy((void *)fr_rma_address_of(update->result), work->result_room, work->bytes);
    return status;
}

// Combines elements that have gaps where they stand in memory.
static enum fr_status combine_spread(const struct fr_rma_operands *operands,
                                     const struct fr_layout *element)
{
    size_t count = operands->bytes / element->size_bytes;
    size_t bytes = count * (size_t)element->extent;
    char *in = calloc(2, bytes);
    if (!in)
        return FR_ERR_NO_MEMORY;
    char *inout = in + bytes;
    fr_staging_copy_shaped(element, count, (uintptr_t)in, operands->origin, operands->bytes, false);
    fr_staging_copy_shaped(element, count, (uintptr_t)inout, operands->there, operands->bytes,
                           false);
    int code = FR_MPI(Reduce_local, FR_PTR(in), FR_PTR(inout), count, operands->element,
                      operands->operation);
    fr_staging_copy_shaped(element, count, (uintptr_t)inout, operands->there, operands->bytes,
                           true);
    free(in);
    return code == fr_abi_mpi.SUCCESS ? FR_OK : FR_ERR_MPI;
}

static enum fr_status combine_on_host(const struct fr_rma_operands *operands)
{
    const struct fr_layout *element = NULL;
    if (operands->operation == fr_abi_mpi.REPLACE) {
        memcpy(operands->there, operands->origin, operands->bytes);
        return FR_OK;
    }
    enum fr_status status = fr_datatype_acquire(operands->element, &element);
    if (status != FR_OK)
        return status;
    size_t count = operands->bytes / element->size_bytes;
    if (count > INT_MAX)
        status = FR_ERR_LIMIT;
    else if (!element->contiguous)
        status = combine_spread(operands, element);
    else if (FR_MPI(Reduce_local, FR_PTR(operands->origin), FR_PTR(operands->there), count,
                    operands->element, operands->operation) != fr_abi_mpi.SUCCESS)
        status = FR_ERR_MPI;
    fr_datatype_release(element);
    return status;
}

bool fr_rma_combine(const struct fr_rma_operands *operands, enum fr_status *status)
{
    if (!operands->origin)
        return false;
    if (!operands->compare) {
        *status = combine_on_host(operands);
        return *status == FR_OK;
    }
    if (memcmp(operands->there, operands->compare, operands->bytes) != 0)
        return false;
    memcpy(operands->there, operands->origin, operands->bytes);
    return true;
}

// Packed copies in host memory.
struct copies {
    struct fr_staging_lease there, origin, compare;
    size_t bytes;
};

// Reads the target, and writes it, while nobody else updates it.
static enum fr_status exchange(const struct fr_rma_target *target,
                               const struct fr_rma_update *update, const struct copies *copies)
{
    const struct fr_rma_operands operands = {
        .there = copies->there.address,
        .origin = copies->origin.address,
        .compare = copies->compare.address,
        .bytes = copies->bytes,
        .element = update->element,
        .operation = update->operation,
    };
    enum fr_status status = fr_rma_copy_target(target, copies->there, FR_TO_STAGE);
    if (status == FR_OK && update->result)
        status = fr_rma_copy_packed(update->result, copies->there, FR_FROM_STAGE);
    if (status == FR_OK && fr_rma_combine(&operands, &status))
        status = fr_rma_copy_target(target, copies->there, FR_FROM_STAGE);
    return status;
}

static enum fr_status borrow(const struct fr_staging_view *view, struct fr_staging_lease *lease)
{
    if (!view)
        return FR_OK;
    enum fr_status status = fr_staging_borrow(fr_rma_bytes_of(view), lease);
    return status == FR_OK ? fr_rma_copy_packed(view, *lease, FR_TO_STAGE) : status;
}

static enum fr_status update_over_host(struct fr_rma_window *window, int rank,
                                       const struct fr_rma_target *target,
                                       const struct fr_rma_update *update)
{
    struct copies copies = {.bytes = fr_rma_bytes_of(&target->view)};
    enum fr_status status = fr_staging_borrow(copies.bytes, &copies.there);
    if (status == FR_OK)
        status = borrow(update->origin, &copies.origin);
    if (status == FR_OK)
        status = borrow(update->compare, &copies.compare);
    if (status == FR_OK)
        status = fr_rma_words_update_begin(&window->words, rank);
    if (status == FR_OK) {
        status = exchange(target, update, &copies);
        fr_rma_words_update_end(&window->words, rank);
    }
    fr_staging_return(&copies.there);
    fr_staging_return(&copies.origin);
    fr_staging_return(&copies.compare);
    return status;
}

static bool has_bytes(const struct fr_staging_view *view, size_t bytes)
{
    return !view || fr_rma_bytes_of(view) == bytes;
}

enum fr_status fr_rma_update(struct fr_rma_window *window, struct fr_rma_access *access,
                             const struct fr_rma_update *update)
{
    struct fr_rma_target target;
    struct in_place work;
    enum fr_status status = fr_rma_target_find(window, access, &target);
    if (status != FR_OK)
        return status;
    size_t bytes = fr_rma_bytes_of(&target.view);
    if (!has_bytes(update->origin, bytes) || !has_bytes(update->result, bytes))
        return FR_ERR_TRUNCATE;
    if (bytes == 0)
        return FR_OK;
    access->facts = fr_rma_facts(target.part, true);
    if (fr_policy_choose_access(&access->facts).way == FR_WAY_MESSAGE)
        return fr_rma_large_update(window, access, &target, update);
    // An earlier one may have gone as a message, where not all of its memory is mapped.
    if (FR_UNLIKELY(atomic_load(&window->parts[access->target].pending) != 0)) {
        status = fr_rma_remote_flush_rank(window, access->target);
        if (status != FR_OK)
            return status;
    }
    fr_rma_enter(window);
    access->facts.by_device = plan(window, &target, update, &work);
    status = access->facts.by_device
                 ? update_in_place(window, access->target, &target, update, &work)
                 : update_over_host(window, access->target, &target, update);
    fr_rma_leave(window);
    return status;
}
