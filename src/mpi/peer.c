// SPDX-License-Identifier: BSD-3-Clause
// Alltoall, Alltoallv and Alltoallw by path peer: from the call's views to the slices that go to
// each rank and come from it.
//
// A buffer whose slices are contiguous is used where it is. What is not, what cannot be exported,
// and the data of an in-place call, which must not be overwritten before they are sent, go through
// packed device workspace.
#include "config.h"

#include "mpi/mpi_int.h"
#include "peer/alltoall.h"
#include "report/report.h"
#include "world/world.h"

// One side of the exchange on this rank.
struct side {
    struct fr_path_view view; // a copy of the operation's, with a lease of its own
    struct fr_device_range range;
    struct fr_peer_slot *slots;
    bool staged;
};

static bool enabled;

void fr_mpi_peer_start(void)
{
    enabled = (fr_core_settings()->paths & FR_PATH_BIT_PEER) && fr_world_size() > 1 &&
              fr_world_facts_of(fr_world_rank()) != NULL;
}

bool fr_mpi_peer_serves(enum fr_fn fn)
{
    return fr_real_rows[fn].class == FR_CLASS_ALLTOALL && fr_real_arg(fn, 'q', 0) < 0;
}

bool fr_mpi_peer_is_enabled(void)
{
    return enabled;
}

static bool has_device_view(struct fr_request_op *op)
{
    bool any = false;
    for (unsigned v = 0; v < op->view_count; v++) {
        fr_path_view_measure(&op->views[v]);
        any = any || fr_device_kind_is_device(op->views[v].range.kind);
    }
    return any;
}

static bool is_contiguous(const struct fr_path_view *view)
{
    for (size_t i = 0; i < view->block_count; i++) {
        if (view->blocks[i].count && !view->blocks[i].layout->contiguous)
            return false;
    }
    return true;
}

static bool is_exportable(const struct fr_path_view *view)
{
    struct fr_peer_handle handle;
    const void *low = (const void *)(view->base + (uintptr_t)view->first);
    return fr_peer_export(&view->range, low, view->span, &handle) == FR_OK;
}

static enum fr_status open_side(struct side *side, bool must_stage)
{
    struct fr_path_view *view = &side->view;
    view->path = FR_PATH_PEER;
    side->range = view->range;
    if (!view->span)
        return FR_OK;
    if (!fr_device_kind_is_device(view->range.kind) || view->absolute)
        return FR_ERR_UNSUPPORTED;
    side->staged = must_stage || !is_contiguous(view);
    if (!side->staged)
        return FR_OK;
    enum fr_status status = fr_path_ops(FR_PATH_PEER)->open(view);
    if (status == FR_OK)
        fr_buffer_classify(view->lease.address, 1, &side->range);
    return status;
}

// A block of the view is one rank's slice, or the only block is those of all, one after the other.
static void fill_slots(struct side *side, size_t size)
{
    const struct fr_path_view *view = &side->view;
    size_t slices = size / view->block_count; // in a block
    for (size_t i = 0; i < size; i++) {
        const struct fr_path_block *block = &view->blocks[i / slices];
        size_t bytes = block->count * block->layout->size_bytes / slices;
        uintptr_t address = side->staged ? view->stage_base + block->stage_offset
                                         : view->base + (uintptr_t)block->user_offset;
        side->slots[i] = (struct fr_peer_slot){
            .address = address + i % slices * bytes,
            .bytes = bytes,
        };
    }
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

static void set_bounds(const struct side *receive, struct fr_peer_alltoall *part)
{
    const struct fr_path_view *view = &receive->view;
    part->receive_bytes = view->span;
    part->receive_low = view->base + (uintptr_t)view->first;
    if (receive->staged) {
        part->receive_low = (uintptr_t)view->lease.address;
        part->receive_bytes = view->lease.bytes;
    }
}

static enum fr_status prepare(struct side *send, struct side *receive, bool in_place, size_t size)
{
    enum fr_status status = open_side(send, in_place);
    if (status == FR_OK)
        status = open_side(receive, receive->view.span && !is_exportable(&receive->view));
    if (status == FR_OK)
        status = copy_in(send);
    if (status != FR_OK)
        return status;
    fill_slots(send, size);
    fill_slots(receive, size);
    return FR_OK;
}

static enum fr_status exchange(struct fr_peer_group *group, const struct fr_request_op *op,
                               struct side *send, struct side *receive, bool in_place)
{
    const char *call = fr_real_rows[op->fn].name;
    if (prepare(send, receive, in_place, (size_t)group->size) != FR_OK) {
        fr_peer_alltoall_decline(group, call);
        return FR_ERR_UNSUPPORTED;
    }
    struct fr_peer_alltoall part = {
        .call = call,
        .sends = send->slots,
        .receives = receive->slots,
        .send_range = send->range,
        .receive_range = receive->range,
    };
    set_bounds(receive, &part);
    enum fr_status status = fr_peer_alltoall(group, &part);
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
            fr_report_count(op->fn, FR_PATH_PEER, view->range.kind,
                            view->in_bytes + view->out_bytes, "the ranks map each other's memory");
    }
}

static bool is_shaped(const struct fr_path_view *view, size_t size)
{
    return view->block_count == 1 || view->block_count == size;
}

bool fr_mpi_peer_exchange(struct fr_request_op *op, struct fr_peer_group *group, int *result)
{
    const char *call = fr_real_rows[op->fn].name;
    struct fr_path_view *last = &op->views[op->view_count - 1];
    bool in_place = op->view_count == 1;
    size_t size = (size_t)group->size;
    struct side send = {.view = op->views[0]}, receive = {.view = *last};
    if (!has_device_view(op) || !is_shaped(&op->views[0], size) || !is_shaped(last, size) ||
        fr_request_op_reserve(op, 2 * size * sizeof(struct fr_peer_slot)) != FR_OK) {
        fr_peer_alltoall_decline(group, call);
        return false;
    }
    send.view = op->views[0];
    receive.view = *last;
    send.slots = fr_request_op_carve(op, size * sizeof(struct fr_peer_slot));
    receive.slots = fr_request_op_carve(op, size * sizeof(struct fr_peer_slot));
    enum fr_status status = exchange(group, op, &send, &receive, in_place);
    close_side(&send);
    close_side(&receive);
    op->arrays_used = 0;
    if (status == FR_ERR_UNSUPPORTED)
        return false;
    if (status == FR_OK)
        count_views(op);
    *result = status == FR_OK ? fr_real_mpi.SUCCESS : fr_request_fail(op, status);
    return true;
}
