// SPDX-License-Identifier: BSD-3-Clause
// Exchanges by path peer: from a call's views to the slices that go to each rank and come from it.
#include "config.h"

#include "intercept/coll_exchange.h"

#include "intercept/views.h"

#include <string.h>

static bool is_of_one_buffer(const struct fr_intercept_exchange *exchange)
{
    const struct fr_abi_row *row = &fr_abi_rows[exchange->op->fn];
    return row->send.buffer == row->receive.buffer;
}

// Returns one of `count` slices of a view. It is a block of its own, or part of the only block,
// which has all of them one after the other. Writes the number of the block.
static struct fr_coll_slot find_slice(const struct fr_intercept_coll_buffer *buffer, size_t count,
                                      size_t index, size_t *number)
{
    const struct fr_staging_view *view = &buffer->view;
    size_t slices = view->block_count ? count / view->block_count : 1; // in each block
    *number = index / slices;
    const struct fr_staging_view_block *block = &view->blocks[*number];
    size_t bytes = block->count * block->layout->size_bytes / slices;
    ptrdiff_t step = (ptrdiff_t)bytes;
    if (buffer->shapes.blocks)
        step = (ptrdiff_t)(block->count / slices) * block->layout->extent;
    return (struct fr_coll_slot){
        .address = fr_intercept_coll_buffer_block(buffer, block) + index % slices * (uintptr_t)step,
        .bytes = bytes,
    };
}

// Fills the slot of a rank with one of `count` slices.
static void fill_slot(struct fr_intercept_coll_buffer *buffer, int rank, size_t count, size_t index)
{
    size_t block;
    buffer->slots[rank] = find_slice(buffer, count, index, &block);
    fr_intercept_shapes_place(&buffer->shapes, rank, block, &buffer->slots[rank]);
}

static void fill_ranks(struct fr_intercept_coll_buffer *buffer, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fill_slot(buffer, (int)i, count, i);
}

// Fills the slots of neighbours. `shares`: all get the same slice. Returns false if a rank has two
// slices, which only the real MPI can tell apart.
static bool fill_neighbours(struct fr_intercept_coll_buffer *buffer, size_t count, const int *ranks,
                            bool shares)
{
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] == fr_abi_mpi.PROC_NULL)
            continue;
        if (buffer->slots[ranks[i]].address)
            return false;
        fill_slot(buffer, ranks[i], shares ? 1 : count, shares ? 0 : i);
    }
    return true;
}

static enum fr_status fill_neighbourhood(struct fr_intercept_exchange *exchange)
{
    struct fr_intercept_neighbours *list = &exchange->neighbours;
    bool shares = !exchange->shape->sends_each;
    enum fr_status status = exchange->knows_neighbours
                                ? FR_OK
                                : fr_intercept_neighbours_find(exchange->op->object, list);
    if (status != FR_OK)
        return status;
    exchange->knows_neighbours = true;
    bool distinct =
        fill_neighbours(&exchange->send, (size_t)list->out_degree, list->destinations, shares) &&
        fill_neighbours(&exchange->receive, (size_t)list->in_degree, list->sources, false);
    return distinct ? FR_OK : FR_ERR_UNSUPPORTED;
}

// Fills the slots of a buffer: a slice for each rank, or one that is for the root or for all.
static void fill_side(const struct fr_intercept_exchange *exchange,
                      struct fr_intercept_coll_buffer *buffer, bool each, bool is_for_root)
{
    size_t size = (size_t)exchange->team->size;
    if (each)
        fill_ranks(buffer, size);
    else if (!is_for_root)
        for (size_t i = 0; i < size; i++)
            fill_slot(buffer, (int)i, 1, 0);
    else if (buffer->view.span > 0)
        fill_slot(buffer, exchange->root, 1, 0);
}

// Returns whether this rank's own slice is in the receive buffer and goes from there to all others.
static bool shares_receive(const struct fr_intercept_exchange *exchange)
{
    return exchange->in_place && fr_abi_shape_spreads(exchange->shape);
}

// Returns whether what this rank sends must not be overwritten by what it receives in its place.
static bool swaps_in_place(const struct fr_intercept_exchange *exchange)
{
    return exchange->in_place && fr_abi_shape_swaps(exchange->shape);
}

// Fills the slots of a broadcast. CPUs use all of them; devices take one, as all are alike.
static void fill_broadcast(struct fr_intercept_exchange *exchange)
{
    bool is_root = exchange->team->rank == exchange->root;
    if (!is_root)
        fill_slot(&exchange->receive, exchange->root, 1, 0);
    for (int rank = 0; rank < exchange->team->size && is_root; rank++)
        fill_slot(&exchange->send, rank, 1, 0);
    exchange->send.slots[exchange->root].bytes = 0;
}

static enum fr_status fill(struct fr_intercept_exchange *exchange)
{
    const struct fr_abi_shape *shape = exchange->shape;
    size_t size = (size_t)exchange->team->size;
    int own = exchange->team->rank;
    bool is_root = own == exchange->root;
    memset(exchange->send.slots, 0, size * sizeof(*exchange->send.slots));
    memset(exchange->receive.slots, 0, size * sizeof(*exchange->receive.slots));
    if (shape->is_neighbourly)
        return fill_neighbourhood(exchange);
    if (is_of_one_buffer(exchange)) {
        fill_broadcast(exchange);
        return FR_OK;
    }
    enum fr_abi_in_place in_place =
        exchange->in_place && !swaps_in_place(exchange) ? shape->in_place : FR_IN_PLACE_NEVER;
    if ((is_root || shape->receiver == FR_WHO_ALL) && in_place != FR_IN_PLACE_RECEIVE)
        fill_side(exchange, &exchange->receive, shape->receives_each, shape->sender == FR_WHO_ROOT);
    if ((is_root || shape->sender == FR_WHO_ALL) && in_place != FR_IN_PLACE_SEND)
        fill_side(exchange, &exchange->send, shape->sends_each, shape->receiver == FR_WHO_ROOT);
    for (size_t i = 0; shares_receive(exchange) && i < size; i++) {
        exchange->send.slots[i] = exchange->receive.slots[own];
        if (exchange->receive.shapes.by_rank)
            exchange->receive.shapes.by_rank[i] = exchange->receive.shapes.by_rank[own];
    }
    if (in_place != FR_IN_PLACE_NEVER) // the rank's own slice is there already
        exchange->send.slots[own].bytes = 0;
    return FR_OK;
}

// Copies in at once, unless the team's task does it.
static enum fr_status copy_in(struct fr_intercept_exchange *exchange,
                              const struct fr_intercept_coll_buffer *buffer)
{
    bool plain = exchange->before.piece.bytes == 0 &&
                 fr_intercept_coll_buffer_plain_in(buffer, exchange->team, &exchange->before);
    return plain ? FR_OK : fr_intercept_coll_buffer_copy_in(buffer);
}

static enum fr_status open_side(const struct fr_intercept_exchange *exchange,
                                struct fr_intercept_coll_buffer *buffer, bool must_stage,
                                bool on_host)
{
    bool is_written = buffer == &exchange->receive;
    return on_host ? fr_intercept_coll_buffer_open_on_host(buffer, must_stage)
                   : fr_intercept_coll_buffer_open(
                         buffer, must_stage, is_written ? fr_coll_team_ways(exchange->team) : 0);
}

// Opens both buffers. The data of an in-place all-to-all must not be overwritten before they are
// sent. Parts that a rank gathers in place stay where they are, since nobody writes there.
static enum fr_status prepare(struct fr_intercept_exchange *exchange, bool on_host)
{
    struct fr_intercept_coll_buffer *send = &exchange->send, *receive = &exchange->receive;
    bool swaps = swaps_in_place(exchange);
    enum fr_status status = open_side(exchange, receive, false, on_host);
    if (status == FR_OK && exchange->in_place && !swaps)
        status = copy_in(exchange, receive);
    if (status == FR_OK)
        status = open_side(exchange, send, swaps, on_host);
    if (status == FR_OK)
        status = copy_in(exchange, send);
    if (status == FR_OK && send->shapes.blocks) // a queued exchange waits for more
        status = fr_intercept_coll_buffer_await_app(send);
    if (status == FR_OK)
        (void)fr_intercept_coll_buffer_plain_out(receive, exchange->team, &exchange->after);
    return status == FR_OK ? fill(exchange) : status;
}

// Returns whether slices can be told from blocks.
static bool is_shaped(const struct fr_intercept_exchange *exchange)
{
    const struct fr_request_op *op = exchange->op;
    size_t size = (size_t)exchange->team->size;
    if (exchange->shape->is_neighbourly)
        return op->view_count == 2;
    if (exchange->root >= 0)
        return true;
    for (unsigned v = 0; v < op->view_count; v++) {
        size_t blocks = op->views[v].block_count;
        if (blocks != 1 && blocks != size)
            return false;
    }
    return op->view_count > 0;
}

// Finds which view is sent and which is received. A broadcast has one buffer on both sides.
static void set_sides(struct fr_intercept_exchange *exchange)
{
    struct fr_request_op *op = exchange->op;
    static const struct fr_staging_view nothing = {.range = FR_DEVICE_HOST};
    exchange->send.view = exchange->receive.view = nothing;
    for (unsigned v = 0; v < op->view_count; v++) {
        bool receives = is_of_one_buffer(exchange)
                            ? exchange->team->rank != exchange->root
                            : (int)op->views[v].arg == fr_abi_rows[op->fn].receive.buffer;
        *(receives ? &exchange->receive.view : &exchange->send.view) = op->views[v];
    }
    exchange->in_place = fr_intercept_is_in_place(op);
    if (swaps_in_place(exchange))
        exchange->send.view = exchange->receive.view;
}

static bool is_rank(const struct fr_intercept_exchange *exchange, int root_arg)
{
    return root_arg < 0 || (exchange->root >= 0 && exchange->root < exchange->team->size);
}

// Returns whether kernels can move data with gaps. All ranks that follow from sizes find the same.
static bool may_have_gaps(const struct fr_intercept_exchange *exchange)
{
    size_t bytes = exchange->send.view.in_bytes + exchange->receive.view.out_bytes;
    return !is_of_one_buffer(exchange) || !fr_coll_bcast_is_split(bytes, exchange->team->size);
}

enum fr_status fr_intercept_exchange_describe(struct fr_intercept_exchange *exchange,
                                              struct fr_request_op *op,
                                              const struct fr_coll_team *team,
                                              struct fr_coll_slot *slots, bool is_queued)
{
    int root_arg = fr_abi_rows[op->fn].root;
    *exchange = (struct fr_intercept_exchange){
        .op = op,
        .team = team,
        .shape = fr_abi_rows[op->fn].shape,
        .root = root_arg >= 0 ? (int)op->args[root_arg] : -1,
        .is_queued = is_queued,
        .failure = FR_ERR_UNSUPPORTED,
    };
    bool takes_part = fr_intercept_coll_buffer_measure(op) || is_queued;
    if (!takes_part || !is_shaped(exchange) || !is_rank(exchange, root_arg))
        return FR_ERR_UNSUPPORTED;
    set_sides(exchange);
    exchange->send.slots = slots;
    exchange->receive.slots = slots + team->size;
    exchange->send.takes_host = exchange->receive.takes_host = is_queued;
    exchange->receive.is_written = true;
    if (may_have_gaps(exchange))
        exchange->send.shaped_ranks = exchange->receive.shaped_ranks = team->size;
    exchange->failure = FR_OK;
    return FR_OK;
}

static void close(struct fr_intercept_exchange *exchange)
{
    fr_intercept_coll_buffer_close(&exchange->send);
    if (!exchange->team->broken) // a rank that was given up may still write to it
        fr_intercept_coll_buffer_close(&exchange->receive);
}

// Opens both buffers for CPUs in place of the device, whose workspace goes.
static enum fr_status prepare_on_host(struct fr_intercept_exchange *exchange)
{
    close(exchange);
    exchange->before = exchange->after = (struct fr_coll_copy){0};
    return prepare(exchange, true);
}

enum fr_status fr_intercept_exchange_sync(struct fr_intercept_exchange *exchange)
{
    enum fr_status status = fr_intercept_coll_buffer_await_app(&exchange->send);
    if (status == FR_OK)
        status = fr_intercept_coll_buffer_await_app(&exchange->receive);
    bool *synced =
        is_of_one_buffer(exchange) ? &exchange->part.one.is_synced : &exchange->part.all.is_synced;
    *synced = exchange->is_synced = status == FR_OK;
    return status;
}

enum fr_status fr_intercept_exchange_open(struct fr_intercept_exchange *exchange)
{
    enum fr_status status = prepare(exchange, false);
    if (!exchange->is_queued)
        return status;
    bool is_ready = status == FR_OK;
    if (!is_ready)
        exchange->failure = prepare_on_host(exchange);
    if (exchange->failure == FR_OK && !exchange->defers)
        exchange->failure = fr_intercept_exchange_sync(exchange);
    return is_ready ? exchange->failure : FR_ERR_UNSUPPORTED;
}

// Makes the copies to workspace that the task was to make.
static enum fr_status copy_before(const struct fr_intercept_exchange *exchange)
{
    struct fr_device_work work;
    bool copies = fr_coll_copy_begin(&exchange->before, false, exchange->is_synced, &work);
    return copies ? fr_device_work_end(&work) : FR_OK;
}

enum fr_status fr_intercept_exchange_leave_device(struct fr_intercept_exchange *exchange)
{
    if (exchange->failure != FR_OK)
        return exchange->failure;
    if (exchange->send.shapes.blocks || exchange->receive.shapes.blocks)
        exchange->failure = prepare_on_host(exchange);
    else if (exchange->before.piece.bytes)
        exchange->failure = copy_before(exchange);
    return exchange->failure;
}

static void begin_broadcast(struct fr_intercept_exchange *exchange, struct fr_coll_task *task,
                            struct fr_coll_team *team)
{
    bool is_root = team->rank == exchange->root;
    const struct fr_intercept_coll_buffer *buffer = is_root ? &exchange->send : &exchange->receive;
    int other = is_root ? (exchange->root + 1) % team->size : exchange->root;
    struct fr_coll_bcast *part = &exchange->part.one;
    *part = (struct fr_coll_bcast){
        .call = fr_abi_rows[exchange->op->fn].name,
        .root = exchange->root,
        .data = buffer->slots[other],
        .layouts = buffer->shapes.layouts,
        .layout_count = buffer->shapes.layout_count,
        .before = exchange->before,
        .after = exchange->after,
        .is_synced = exchange->is_synced,
        .is_queued = exchange->is_queued,
    };
    if (is_root && buffer->shapes.by_rank)
        part->shape = buffer->shapes.by_rank[other];
    fr_intercept_coll_buffer_describe(buffer, &part->memory);
    if (exchange->is_queued)
        fr_device_range_fix_context(&part->memory.range);
    fr_coll_bcast_begin(task, team, part);
}

struct fr_device_range
fr_intercept_exchange_send_range(const struct fr_intercept_exchange *exchange)
{
    return shares_receive(exchange) ? exchange->receive.range : exchange->send.range;
}

static void begin_slices(struct fr_intercept_exchange *exchange, struct fr_coll_task *task,
                         struct fr_coll_team *team)
{
    struct fr_coll_alltoall *part = &exchange->part.all;
    *part = (struct fr_coll_alltoall){
        .call = fr_abi_rows[exchange->op->fn].name,
        // The number is even, which that of a broadcast never is: its slots mean something else.
        .what = (fr_abi_rows[exchange->op->fn].class +
                 ((uint64_t)(unsigned)(exchange->root + 1) << 8)) *
                2,
        .sends = exchange->send.slots,
        .receives = exchange->receive.slots,
        .shapes = (shares_receive(exchange) ? &exchange->receive : &exchange->send)->shapes.by_rank,
        .layouts = exchange->receive.shapes.layouts,
        .layout_count = exchange->receive.shapes.layout_count,
        .send_range = fr_intercept_exchange_send_range(exchange),
        .before = exchange->before,
        .after = exchange->after,
        .is_synced = exchange->is_synced,
        .is_queued = exchange->is_queued,
    };
    fr_intercept_coll_buffer_describe(&exchange->receive, &part->receive);
    if (exchange->is_queued)
        fr_device_range_fix_context(&part->send_range);
    fr_coll_alltoall_begin(task, team, part);
}

void fr_intercept_exchange_begin(struct fr_intercept_exchange *exchange, struct fr_coll_task *task,
                                 struct fr_coll_team *team)
{
    if (is_of_one_buffer(exchange))
        begin_broadcast(exchange, task, team);
    else
        begin_slices(exchange, task, team);
}

enum fr_status fr_intercept_exchange_end(struct fr_intercept_exchange *exchange,
                                         enum fr_status status)
{
    if (status == FR_OK && (exchange->is_by_cpus || !exchange->after.piece.bytes))
        status = fr_intercept_coll_buffer_copy_out(&exchange->receive);
    close(exchange);
    if (exchange->knows_neighbours)
        fr_intercept_neighbours_free(&exchange->neighbours);
    exchange->knows_neighbours = false;
    if (status == FR_OK && exchange->is_by_cpus)
        fr_intercept_coll_buffer_count_staged(exchange->op);
    else if (status == FR_OK)
        fr_intercept_coll_buffer_count(exchange->op, "the ranks map each other's memory");
    return status;
}
