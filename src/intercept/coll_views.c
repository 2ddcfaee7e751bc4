// SPDX-License-Identifier: BSD-3-Clause
// Views of collective operations: which buffers matter on which rank, in place or not, within one
// group of processes or between two.
#include "config.h"

#include "fabrail/coll.h"
#include "intercept/views.h"

// A collective call on this rank.
struct collective {
    struct fr_request_op *op;
    const struct fr_abi_shape *moves;
    struct fr_intercept_shape shape;
    const struct fr_abi_side *send, *receive;
    bool in_place;
    bool is_root; // the root of a rooted collective
    bool is_leaf; // takes part at the other end of a rooted collective
};

static void describe(struct fr_request_op *op, struct collective *call)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    int root = row->root >= 0 ? (int)op->args[row->root] : 0;
    call->op = op;
    call->moves = row->shape;
    call->send = &row->send;
    call->receive = &row->receive;
    call->in_place = fr_intercept_is_in_place(op);
    call->is_root = call->shape.inter ? root == fr_abi_mpi.ROOT : root == call->shape.rank;
    call->is_leaf = call->shape.inter ? root >= 0 : true;
}

static bool has_side(const struct collective *call, enum fr_abi_who who, enum fr_abi_who other)
{
    return who == FR_WHO_ROOT ? call->is_root : other != FR_WHO_ROOT || call->is_leaf;
}

// Returns the use of a receive buffer that also holds what the rank sends in place. In a gather
// that is its own slice, else all.
static struct fr_intercept_use received(const struct collective *call)
{
    struct fr_intercept_use use = FR_USE_OUT;
    if (!call->in_place)
        return use;
    use.in = fr_abi_shape_swaps(call->moves);
    use.own = use.in ? -1 : call->shape.rank;
    return use;
}

static enum fr_status move(const struct collective *call)
{
    const struct fr_abi_shape *moves = call->moves;
    const enum fr_abi_in_place in_place = call->in_place ? moves->in_place : FR_IN_PLACE_NEVER;
    bool sends = has_side(call, moves->sender, moves->receiver) && in_place != FR_IN_PLACE_SEND;
    bool receives =
        has_side(call, moves->receiver, moves->sender) && in_place != FR_IN_PLACE_RECEIVE;
    enum fr_status status = FR_OK;
    if (sends)
        status = fr_intercept_view_side(call->op, call->send,
                                        moves->sends_each ? call->shape.peers : 1, FR_USE_IN);
    if (sends && call->send->buffer == call->receive->buffer)
        return status;
    if (status == FR_OK && receives)
        status = fr_intercept_view_side(
            call->op, call->receive, moves->receives_each ? call->shape.peers : 1, received(call));
    return status;
}

// Adds a view of `count` elements, with room for another block. A reduction works on the true
// datatype.
static enum fr_status reduced(struct fr_request_op *op, const struct fr_abi_side *side,
                              int64_t count, struct fr_intercept_use use)
{
    enum fr_status status = fr_request_op_add_view(op, (unsigned)side->buffer, 2);
    if (status != FR_OK)
        return status;
    op->views[op->view_count - 1].same_shape_only = true;
    return fr_intercept_view_elements(op, 0, count, op->args[side->type], use);
}

static enum fr_status reduce(const struct collective *call, bool sends, bool receives)
{
    int64_t count = fr_intercept_count_at(call->op, call->receive, 0);
    enum fr_status status = FR_OK;
    struct fr_intercept_use use = {.in = call->in_place, .out = receives, .own = -1};
    if (sends && !call->in_place)
        status = reduced(call->op, call->send, count, FR_USE_IN);
    if (status == FR_OK && (use.in || use.out))
        status = reduced(call->op, call->receive, count, use);
    return status;
}

// In place, the receive buffer holds everybody's share before and this rank's alone, at its start,
// afterwards.
static enum fr_status reduce_scatter(const struct collective *call, int64_t own, int64_t total)
{
    struct fr_request_op *op = call->op;
    if (!call->in_place) {
        enum fr_status status = reduced(op, call->send, total, FR_USE_IN);
        return status == FR_OK ? reduced(op, call->receive, own, FR_USE_OUT) : status;
    }
    enum fr_status status = reduced(op, call->receive, own, FR_USE_IN_OUT);
    if (status != FR_OK)
        return status;
    return fr_intercept_view_elements(op, own, total - own, op->args[call->receive->type],
                                      FR_USE_IN);
}

static enum fr_status reduce_scatter_counts(const struct collective *call)
{
    int64_t total = 0;
    for (int i = 0; i < call->shape.size; i++)
        total += fr_intercept_count_at(call->op, call->receive, i);
    return reduce_scatter(call, fr_intercept_count_at(call->op, call->receive, call->shape.rank),
                          total);
}

// Leaves out absent neighbours. Nobody is beyond the border of a grid that is not periodic. The
// slice of such a neighbour stays as it was.
static enum fr_status leave_absent(struct fr_request_op *op, fr_word comm)
{
    struct fr_staging_view *view = &op->views[op->view_count - 1];
    int topology = 0;
    if (FR_MPI(Topo_test, comm, FR_PTR(&topology)))
        return FR_ERR_INVALID;
    for (size_t i = 0; topology == fr_abi_mpi.CART && i < view->block_count; i++) {
        int before = 0, after = 0;
        if (FR_MPI(Cart_shift, comm, (fr_word)(i / 2), 1, FR_PTR(&before), FR_PTR(&after)))
            return FR_ERR_INVALID;
        view->blocks[i].out = (i % 2 ? after : before) != fr_abi_mpi.PROC_NULL;
    }
    return FR_OK;
}

static enum fr_status neighbours(const struct collective *call)
{
    int in_degree = 0, out_degree = 0;
    fr_word comm = fr_abi_comm(call->op->fn, call->op->args);
    enum fr_status status = fr_intercept_neighbours_of(comm, &in_degree, &out_degree);
    if (status != FR_OK)
        return status;
    struct fr_intercept_use into = FR_USE_OUT;
    into.apart = true;
    status = fr_intercept_view_side(call->op, call->send, call->moves->sends_each ? out_degree : 1,
                                    FR_USE_IN);
    if (status == FR_OK)
        status = fr_intercept_view_side(call->op, call->receive, in_degree, into);
    return status == FR_OK ? leave_absent(call->op, comm) : status;
}

static enum fr_status reduction(const struct collective *call)
{
    switch (fr_abi_rows[call->op->fn].class) {
    case FR_CLASS_REDUCE:
        return reduce(call, call->is_leaf, call->is_root);
    case FR_CLASS_EXSCAN: // nothing is before rank 0, so its receive buffer is left alone
        return reduce(call, true, call->shape.rank > 0);
    case FR_CLASS_REDUCE_SCATTER:
        return reduce_scatter_counts(call);
    case FR_CLASS_REDUCE_SCATTER_BLOCK: {
        int64_t own = fr_intercept_count_at(call->op, call->receive, 0);
        return reduce_scatter(call, own, own * call->shape.size);
    }
    default:
        return reduce(call, true, true);
    }
}

static enum fr_status view(struct fr_request_op *op, struct collective *call)
{
    describe(op, call);
    return call->moves->reduces          ? reduction(call)
           : call->moves->is_neighbourly ? neighbours(call)
                                         : move(call);
}

enum fr_status fr_intercept_views_collective(struct fr_request_op *op)
{
    struct collective call;
    enum fr_status status = fr_intercept_shape_of(fr_abi_comm(op->fn, op->args), &call.shape);
    return status == FR_OK ? view(op, &call) : status;
}

enum fr_status fr_intercept_views_of_team(struct fr_request_op *op, const struct fr_coll_team *team)
{
    struct collective call = {
        .shape = {.rank = team->rank, .size = team->size, .peers = team->size}};
    return view(op, &call);
}
