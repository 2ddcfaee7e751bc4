// SPDX-License-Identifier: BSD-3-Clause
// Alltoall, Alltoallv, Alltoallw and their neighbourhood forms by path peer: from the call's views
// to the slices that go to each rank and come from it.
//
// A buffer whose slices are contiguous is used where it is. What is not, what cannot be exported,
// and the data of an in-place call, which must not be overwritten before they are sent, go through
// packed device workspace.
#include "config.h"

#include "coll/alltoall.h"
#include "mpi/mpi_int.h"
#include "report/report.h"
#include "world/world.h"

#include <string.h>

// One side of the exchange on this rank.
struct side {
    struct fr_path_view view; // a copy of the operation's, with a lease of its own
    struct fr_device_range range;
    struct fr_coll_slot *slots;
    struct fr_memory_handle handle; // of the memory of an unstaged receive
    bool staged;
};

static bool enabled;

// This rank's own settings do not decide: where those of others allow the path, they ask all ranks
// of a communicator, and this one then says no.
void fr_mpi_peer_start(void)
{
    enabled = fr_world_size() > 1 && fr_world_facts_of(fr_world_rank()) != NULL;
}

bool fr_mpi_peer_serves(enum fr_fn fn)
{
    enum fr_class class = fr_real_rows[fn].class;
    return class == FR_CLASS_ALLTOALL || class == FR_CLASS_NEIGHBOR_ALLTOALL;
}

bool fr_mpi_peer_is_enabled(void)
{
    return enabled;
}

// A rank without a byte does not keep the others from it.
static bool takes_part(struct fr_request_op *op)
{
    bool any = false, empty = true;
    for (unsigned v = 0; v < op->view_count; v++) {
        fr_path_view_measure(&op->views[v]);
        any = any || fr_device_kind_is_device(op->views[v].range.kind);
        empty = empty && !op->views[v].span;
    }
    return any || empty;
}

static bool is_contiguous(const struct fr_path_view *view)
{
    for (size_t i = 0; i < view->block_count; i++) {
        if (view->blocks[i].count && !view->blocks[i].layout->contiguous)
            return false;
    }
    return true;
}

static bool is_exportable(const struct fr_path_view *view, struct fr_memory_handle *handle)
{
    const void *low = (const void *)(view->base + (uintptr_t)view->first);
    return fr_memory_export(&view->range, low, view->span, handle) == FR_OK;
}

static enum fr_status open_side(struct side *side, bool must_stage)
{
    struct fr_path_view *view = &side->view;
    view->path = FR_PATH_PEER;
    side->range = view->range;
    if (!view->span)
        return FR_OK;
    if (!fr_device_kind_is_device(view->range.kind) || view->absolute ||
        !fr_path_view_is_in_range(view))
        return FR_ERR_UNSUPPORTED;
    side->staged = must_stage || !is_contiguous(view);
    if (!side->staged)
        return FR_OK;
    enum fr_status status = fr_path_ops(FR_PATH_PEER)->open(view);
    if (status == FR_OK)
        fr_buffer_classify(view->lease.address, 1, &side->range);
    return status;
}

// A block of the view is one slice, or the only block is all of them, one after the other. `ranks`
// names whose each is, NULL for those of all ranks in order. False if a rank has two, which only
// the real MPI can tell apart.
static bool fill_slots(struct side *side, size_t count, const int *ranks)
{
    const struct fr_path_view *view = &side->view;
    size_t slices = view->block_count ? count / view->block_count : 1; // in a block
    for (size_t i = 0; i < count; i++) {
        const struct fr_path_block *block = &view->blocks[i / slices];
        size_t bytes = block->count * block->layout->size_bytes / slices;
        uintptr_t address = side->staged ? view->stage_base + block->stage_offset
                                         : view->base + (uintptr_t)block->user_offset;
        int rank = ranks ? ranks[i] : (int)i;
        if (rank == fr_real_mpi.PROC_NULL)
            continue;
        if (side->slots[rank].address)
            return false;
        side->slots[rank] = (struct fr_coll_slot){
            .address = address + i % slices * bytes,
            .bytes = bytes,
        };
    }
    return true;
}

static enum fr_status copy_in(const struct side *side)
{
    struct fr_device_batch batch;
    if (!side->staged)
        return FR_OK;
    fr_device_batch_begin(&batch);
    fr_path_ops(FR_PATH_PEER)->copy_in(&side->view, &batch);
    return fr_device_batch_finish(&batch);
}

static enum fr_status copy_out(const struct side *side)
{
    struct fr_device_batch batch;
    if (!side->staged)
        return FR_OK;
    fr_device_batch_begin(&batch);
    fr_path_ops(FR_PATH_PEER)->copy_out(&side->view, SIZE_MAX, &batch);
    return fr_device_batch_finish(&batch);
}

static void set_bounds(const struct side *receive, struct fr_coll_alltoall *part)
{
    const struct fr_path_view *view = &receive->view;
    part->receive_bytes = view->span;
    part->receive_low = view->base + (uintptr_t)view->first;
    if (!receive->staged)
        part->receive_handle = receive->handle;
    if (receive->staged) {
        part->receive_low = (uintptr_t)view->lease.address;
        part->receive_bytes = view->lease.bytes;
    }
}

// The slots of an exchange among all, or among neighbours.
static enum fr_status fill_both(const struct fr_request_op *op, struct side *send,
                                struct side *receive, size_t size)
{
    struct fr_mpi_neighbours list;
    memset(send->slots, 0, size * sizeof(*send->slots));
    memset(receive->slots, 0, size * sizeof(*receive->slots));
    if (fr_real_rows[op->fn].class == FR_CLASS_ALLTOALL) {
        (void)fill_slots(send, size, NULL);
        (void)fill_slots(receive, size, NULL);
        return FR_OK;
    }
    enum fr_status status = fr_mpi_neighbours_find(op->object, &list);
    if (status != FR_OK)
        return status;
    bool distinct = fill_slots(send, (size_t)list.out_degree, list.destinations) &&
                    fill_slots(receive, (size_t)list.in_degree, list.sources);
    fr_mpi_neighbours_free(&list);
    return distinct ? FR_OK : FR_ERR_UNSUPPORTED;
}

static enum fr_status prepare(const struct fr_request_op *op, struct side *send,
                              struct side *receive, bool in_place, size_t size)
{
    enum fr_status status = open_side(send, in_place);
    if (status == FR_OK)
        status = open_side(receive,
                           receive->view.span && !is_exportable(&receive->view, &receive->handle));
    if (status == FR_OK)
        status = copy_in(send);
    if (status != FR_OK)
        return status;
    return fill_both(op, send, receive, size);
}

static enum fr_status exchange(struct fr_coll_group *group, const struct fr_request_op *op,
                               struct side *send, struct side *receive, bool in_place)
{
    const char *call = fr_real_rows[op->fn].name;
    if (prepare(op, send, receive, in_place, (size_t)group->size) != FR_OK) {
        fr_coll_alltoall_decline(group, call);
        return FR_ERR_UNSUPPORTED;
    }
    struct fr_coll_alltoall part = {
        .call = call,
        .sends = send->slots,
        .receives = receive->slots,
        .send_range = send->range,
        .receive_range = receive->range,
    };
    set_bounds(receive, &part);
    enum fr_status status = fr_coll_alltoall(group, &part);
    return status == FR_OK ? copy_out(receive) : status;
}

static void close_side(struct side *side)
{
    if (side->view.lease.address)
        fr_path_ops(FR_PATH_PEER)->close(&side->view);
}

static void count_views(const struct fr_request_op *op)
{
    for (unsigned v = 0; v < op->view_count; v++) {
        const struct fr_path_view *view = &op->views[v];
        if (fr_device_kind_is_device(view->range.kind))
            fr_report_buffer(&(struct fr_report_buffer){
                .fn = op->fn,
                .path = FR_PATH_PEER,
                .kind = view->range.kind,
                .in_bytes = view->in_bytes,
                .out_bytes = view->out_bytes,
                .reason = "the ranks map each other's memory",
                .call = op->fn,
                .args = op->args,
                .arg = view->arg,
            });
    }
}

// Whether slices can be told from blocks.
static bool is_shaped(const struct fr_request_op *op, size_t size)
{
    if (fr_real_rows[op->fn].class != FR_CLASS_ALLTOALL)
        return op->view_count == 2;
    for (unsigned v = 0; v < op->view_count; v++) {
        size_t blocks = op->views[v].block_count;
        if (blocks != 1 && blocks != size)
            return false;
    }
    return op->view_count > 0;
}

bool fr_mpi_peer_exchange(struct fr_request_op *op, struct fr_coll_group *group, int *result)
{
    const char *call = fr_real_rows[op->fn].name;
    const struct fr_path_view *last = &op->views[op->view_count > 1];
    bool in_place = op->view_count == 1;
    size_t size = (size_t)group->size;
    struct side send = {.view = op->views[0]}, receive = {.view = *last};
    if (!takes_part(op) || !is_shaped(op, size) ||
        fr_request_op_reserve(op, 2 * size * sizeof(struct fr_coll_slot)) != FR_OK) {
        fr_coll_alltoall_decline(group, call);
        return false;
    }
    send.view = op->views[0];
    receive.view = *last;
    send.slots = fr_request_op_carve(op, size * sizeof(struct fr_coll_slot));
    receive.slots = fr_request_op_carve(op, size * sizeof(struct fr_coll_slot));
    enum fr_status status = exchange(group, op, &send, &receive, in_place);
    close_side(&send);
    if (!group->broken) // a rank that was given up may still write to it
        close_side(&receive);
    op->arrays_used = 0;
    if (status == FR_ERR_UNSUPPORTED)
        return false;
    if (status == FR_OK)
        count_views(op);
    *result = status == FR_OK ? fr_real_mpi.SUCCESS : fr_request_fail(op, status);
    return true;
}
