// SPDX-License-Identifier: BSD-3-Clause
// The messages that a collective is made of: what a rank sends to each other one and receives from
// it, by the arguments of the call and the shape of its function. A rank copies on the device what
// it sends itself, where that can be.
#include "config.h"

#include "intercept/coll_messages.h"

#include "fabrail/job.h"
#include "fabrail/policy/coll_plan.h"
#include "fabrail/request/schedule.h"
#include "fabrail/staging/own_copy.h"
#include "intercept/views.h"

#include <limits.h>

// One message.
struct part {
    fr_word address;
    int64_t count;
    fr_word type;
    int64_t bytes;
    int peer;
    int tag;
    bool is_packed_type; // the type is one of module datatype's
    bool is_made;        // the type was made for this part
};

static bool is_large(const struct fr_request_op *op)
{
    return fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
}

static enum fr_fn wide(const struct fr_request_op *op, enum fr_fn fn)
{
    return is_large(op) ? fn + 1 : fn;
}
_Static_assert(FR_FN_MPI_Isend_c == FR_FN_MPI_Isend + 1, "a _c form follows");
_Static_assert(FR_FN_MPI_Irecv_c == FR_FN_MPI_Irecv + 1, "a _c form follows");

// Frees what belongs to one part. A packed type is freed with the one that it belongs to, unseen.
static void end_part(const struct part *part)
{
    _Alignas(8) char handle[8];
    if (part->is_packed_type || part->is_made)
        fr_datatype_forget(part->type);
    if (!part->is_made)
        return;
    fr_abi_handle_store(handle, 0, part->type);
    FR_MPI(Type_free, FR_PTR(handle));
}

// Begins to send or to receive a part.
static int start_part(struct fr_request_op *op, const struct part *part, bool sends)
{
    enum fr_fn fn = wide(op, sends ? FR_FN_MPI_Isend : FR_FN_MPI_Irecv);
    void *request = fr_request_schedule_add(op->schedule);
    fr_word args[FR_MAX_ARGS] = {part->address,       (fr_word)part->count, part->type,
                                 (fr_word)part->peer, (fr_word)part->tag,   fr_job_comm(),
                                 FR_PTR(request)};
    return fr_intercept_call_part(fn, args, op->fn);
}

enum { EACH = -1 };

// One side of a collective: what goes to other ranks, or comes from them.
struct side {
    const struct fr_request_op *op;
    const struct fr_abi_side *at;       // where its arguments stand
    bool others;                        // other ranks have a part in this side
    int peer;                           // the only one of them, or EACH
    int slice;                          // the slice that all get, or EACH for one each
    const struct fr_staging_view *copy; // copy of the data of an in-place call, or NULL
};

static bool measure(struct part *part, ptrdiff_t *extent)
{
    ptrdiff_t true_lower = 0;
    size_t true_extent = 0;
    part->bytes = 0;
    *extent = 0;
    if (!part->count)
        return true; // nobody looks at its datatype
    return fr_datatype_bounds(part->type, extent, &true_lower, &true_extent) &&
           fr_intercept_measure_bytes(part->type, part->count, &part->bytes);
}

// Points a part at the copy of the data of an in-place call, which cannot be overwritten.
static void move_to_copy(const struct side *side, int index, struct part *part, ptrdiff_t extent)
{
    const struct fr_staging_view *copy = side->copy;
    bool each = copy->block_count > 1;
    const struct fr_staging_view_block *block = &copy->blocks[each ? index : 0];
    bool packed = copy->shape == FR_SHAPE_PACKED;
    int64_t step = packed ? (part->count ? part->bytes / part->count : 0) : extent;
    part->address = copy->stage_base + block->stage_offset;
    if (!each)
        part->address += (fr_word)(index * part->count * step);
    bool as_bytes = packed && (part->bytes <= INT_MAX || is_large(side->op));
    if (as_bytes) {
        part->type = fr_abi_mpi.BYTE;
        part->count = part->bytes;
    } else if (packed) {
        part->type = block->layout->packed_type;
        part->is_packed_type = part->type != fr_abi_mpi.BYTE;
    }
}

// Puts the displacement into the datatype where that has addresses. Added to MPI_BOTTOM it would be
// no address, and look like host memory.
static bool move_to_type(const struct fr_request_op *op, struct part *part)
{
    struct fr_device_range range;
    _Alignas(8) char handle[8];
    int rc, length = (int)part->count;
    ptrdiff_t offset = (ptrdiff_t)(part->address - fr_abi_mpi.BOTTOM);
    fr_device_classify((const void *)part->address, 1, &range);
    if (offset == 0 || !part->bytes || fr_device_owns(&range))
        return true;
    if (is_large(op))
        rc = FR_MPI(Type_create_hindexed_c, 1, FR_PTR(&part->count), FR_PTR(&offset), part->type,
                    FR_PTR(handle));
    else
        rc = FR_MPI(Type_create_hindexed, 1, FR_PTR(&length), FR_PTR(&offset), part->type,
                    FR_PTR(handle));
    if (rc != fr_abi_mpi.SUCCESS)
        return false;
    part->address = fr_abi_mpi.BOTTOM;
    part->count = 1;
    part->type = fr_abi_handle_load(handle, 0);
    part->is_made = true;
    return FR_MPI(Type_commit, FR_PTR(handle)) == fr_abi_mpi.SUCCESS;
}

static bool find_part(const struct side *side, int peer, struct part *part)
{
    const struct fr_request_op *op = side->op;
    const struct fr_abi_side *at = side->at;
    int index = side->slice == EACH ? peer : side->slice;
    ptrdiff_t extent = 0;
    part->count = fr_intercept_count_at(op, at, index);
    part->type = fr_intercept_type_at(op, at, index);
    if (!measure(part, &extent))
        return false;
    int64_t offset =
        at->has_counts ? fr_intercept_displacement_at(op, at, index) * (at->has_types ? 1 : extent)
                       : index * part->count * extent;
    part->address = op->args[at->buffer] + (fr_word)offset;
    if (side->copy && part->count)
        move_to_copy(side, index, part, extent);
    else if (op->args[at->buffer] == fr_abi_mpi.BOTTOM)
        return move_to_type(op, part);
    return true;
}

// The memory of a part, as a view with one block.
struct part_view {
    struct fr_staging_view view;
    struct fr_staging_view_block block;
};

static bool view_part(const struct part *part, struct part_view *own)
{
    *own = (struct part_view){.block = {.count = (size_t)part->count}};
    own->view =
        (struct fr_staging_view){.base = part->address, .blocks = &own->block, .block_count = 1};
    own->view.absolute = own->view.base == fr_abi_mpi.BOTTOM;
    if (fr_datatype_acquire(part->type, &own->block.layout) != FR_OK)
        return false;
    fr_staging_view_measure(&own->view);
    return true;
}

static struct fr_staging_elements elements_of(const struct part_view *own)
{
    return (struct fr_staging_elements){
        .layout = own->block.layout, .count = own->block.count, .address = own->view.base};
}

// Copies what a rank sends itself on the device, where that can be. MPI would take it to the host
// and back.
static bool copy_own(const struct part *from, const struct part *to)
{
    struct part_view source, target;
    if (from->bytes != to->bytes || !view_part(from, &source))
        return false;
    bool is_viewed = view_part(to, &target), copied = false;
    if (is_viewed && fr_staging_can_copy_own(&source.view, &target.view)) {
        const struct fr_staging_own_copy copy = {
            .from = elements_of(&source), .to = elements_of(&target), .bytes = (size_t)from->bytes};
        copied = fr_staging_copy_own(&source.view, &target.view, &copy, 1) == FR_OK;
    }
    fr_datatype_release(source.block.layout);
    if (is_viewed)
        fr_datatype_release(target.block.layout);
    return copied;
}

static int start_own(struct fr_request_op *op, const struct fr_coll_team *team,
                     const struct side *send, const struct side *receive)
{
    struct part from = {.peer = team->rank, .tag = op->schedule->tag}, to = from;
    int rc = fr_abi_mpi.SUCCESS;
    if (!find_part(send, team->rank, &from) || !find_part(receive, team->rank, &to)) {
        rc = fr_abi_mpi.ERR_TYPE;
    } else if ((from.bytes || to.bytes) && !copy_own(&from, &to)) {
        from.peer = to.peer = fr_job_rank();
        rc = start_part(op, &to, false);
        if (rc == fr_abi_mpi.SUCCESS)
            rc = start_part(op, &from, true);
    }
    end_part(&to);
    end_part(&from);
    return rc;
}

// Starts receives or sends with all other ranks. Each rank has an order of its own: it first
// receives from the rank that first sends to it.
static int start_others(struct fr_request_op *op, const struct fr_coll_team *team,
                        const struct side *side, bool sends)
{
    int rc = fr_abi_mpi.SUCCESS;
    if (!side->others)
        return rc;
    for (int step = 1; step < team->size && rc == fr_abi_mpi.SUCCESS; step++) {
        struct part part = {.peer = fr_policy_partner(team->rank, team->size, step, sends),
                            .tag = op->schedule->tag};
        if (side->peer != EACH && side->peer != part.peer)
            continue;
        if (!find_part(side, part.peer, &part)) {
            rc = fr_abi_mpi.ERR_TYPE;
        } else if (part.bytes) {
            part.peer = team->world[part.peer];
            rc = start_part(op, &part, sends);
        }
        end_part(&part);
    }
    return rc;
}

static int root_of(const struct fr_request_op *op)
{
    int arg = fr_abi_rows[op->fn].root;
    return arg < 0 ? EACH : (int)op->args[arg];
}

// Finds both sides of a collective on this rank. Returns whether it has a slice for itself.
static bool find_sides(const struct fr_request_op *op, const struct fr_coll_team *team,
                       struct side *send, struct side *receive)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_abi_shape *shape = row->shape;
    const struct fr_staging_view *view = &op->views[0];
    int root = root_of(op);
    bool is_rooted = row->root >= 0, is_root = root == team->rank;
    bool in_place = fr_intercept_is_in_place(op);
    bool is_other = !is_rooted || !is_root;
    *send = (struct side){
        .op = op,
        .at = &row->send,
        .others = shape->sender == FR_WHO_ROOT ? is_root : is_other,
        .peer = shape->receiver == FR_WHO_ROOT ? root : EACH,
        .slice = shape->sends_each ? EACH : 0,
    };
    *receive = (struct side){
        .op = op,
        .at = &row->receive,
        .others = shape->receiver == FR_WHO_ROOT ? is_root : is_other,
        .peer = shape->sender == FR_WHO_ROOT ? root : EACH,
        .slice = shape->receives_each ? EACH : 0,
    };
    if (in_place && shape->in_place == FR_IN_PLACE_SEND) {
        send->at = receive->at;
        send->slice = shape->sends_each ? EACH : team->rank;
        send->copy = shape->sends_each && view->lease.address ? view : NULL;
    }
    return (!is_rooted || is_root) && !in_place && row->send.buffer != row->receive.buffer;
}

// Saves what an in-place call sends from what it receives.
static enum fr_status save(struct fr_request_op *op)
{
    struct fr_device_batch batch;
    const struct fr_staging_view *view = &op->views[0];
    if (!view->span)
        return FR_OK;
    fr_device_batch_begin(&batch);
    fr_staging_view_copy_in(view, &batch);
    return fr_device_batch_finish(&batch);
}

int fr_intercept_coll_messages_start(struct fr_request_op *op)
{
    struct fr_coll_team *team = fr_coll_team_find(op->object);
    struct side send, receive;
    if (op->view_count == 1 && save(op) != FR_OK)
        return fr_abi_mpi.ERR_OTHER;
    bool own = find_sides(op, team, &send, &receive);
    int rc = start_others(op, team, &receive, false);
    if (rc == fr_abi_mpi.SUCCESS)
        rc = start_others(op, team, &send, true);
    return rc == fr_abi_mpi.SUCCESS && own ? start_own(op, team, &send, &receive) : rc;
}

// Returns the tag of a message. Two neighbours of a grid can be the same process. Its message
// to the one side arrives from the other.
static int tag_of(const struct fr_request_op *op, bool grid, int index, bool sends)
{
    return op->schedule->tag + (grid ? (sends ? index : index ^ 1) % FR_COLL_TEAM_TAGS : 0);
}

int fr_intercept_coll_messages_start_neighbours(struct fr_request_op *op)
{
    const struct fr_coll_team *team = fr_coll_team_find(op->object);
    struct fr_intercept_neighbours list;
    struct side send, receive;
    int topology = 0, rc = fr_abi_mpi.SUCCESS;
    if (FR_MPI(Topo_test, op->object, FR_PTR(&topology)) != fr_abi_mpi.SUCCESS ||
        fr_intercept_neighbours_find(op->object, &list) != FR_OK)
        return fr_abi_mpi.ERR_OTHER;
    bool grid = topology == fr_abi_mpi.CART;
    (void)find_sides(op, team, &send, &receive);
    for (int i = 0; i < list.in_degree + list.out_degree && rc == fr_abi_mpi.SUCCESS; i++) {
        bool sends = i >= list.in_degree;
        int index = sends ? i - list.in_degree : i;
        struct part part = {.peer = sends ? list.destinations[index] : list.sources[index],
                            .tag = tag_of(op, grid, index, sends)};
        if (part.peer == fr_abi_mpi.PROC_NULL)
            continue;
        part.peer = team->world[part.peer];
        if (!find_part(sends ? &send : &receive, index, &part))
            rc = fr_abi_mpi.ERR_TYPE;
        else if (part.bytes)
            rc = start_part(op, &part, sends);
        end_part(&part);
    }
    fr_intercept_neighbours_free(&list);
    return rc;
}

enum fr_status fr_intercept_coll_messages_open_copy(struct fr_request_op *op)
{
    struct fr_staging_view *view = &op->views[0];
    if (op->view_count != 1)
        return FR_OK;
    fr_staging_view_measure(view);
    if (!view->span)
        return FR_OK;
    view->path = fr_device_owns(&view->range) ? FR_PATH_PEER : FR_PATH_HOST;
    enum fr_status status = fr_staging_view_open(view);
    if (status == FR_OK || view->path == FR_PATH_HOST)
        return status;
    view->path = FR_PATH_HOST;
    return fr_staging_view_open(view);
}

// Drops a side that this rank's call does not look at. Its arrays and datatype may be anything.
static void drop_side(struct fr_request_op *op, const struct fr_abi_side *side)
{
    op->args[side->type] = side->has_types ? 0 : fr_abi_mpi.DATATYPE_NULL;
    if (side->has_counts)
        op->args[side->count] = op->args[side->displacements] = 0;
}

void fr_intercept_coll_messages_drop_sides(struct fr_request_op *op,
                                           const struct fr_coll_team *team)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_abi_shape *shape = row->shape;
    bool is_root = root_of(op) == team->rank, in_place = fr_intercept_is_in_place(op);
    if (row->send.buffer == row->receive.buffer)
        return;
    if ((in_place && shape->in_place == FR_IN_PLACE_SEND) ||
        (shape->sender == FR_WHO_ROOT && !is_root))
        drop_side(op, &row->send);
    if ((in_place && shape->in_place == FR_IN_PLACE_RECEIVE) ||
        (shape->receiver == FR_WHO_ROOT && !is_root))
        drop_side(op, &row->receive);
}
