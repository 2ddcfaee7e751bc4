// SPDX-License-Identifier: BSD-3-Clause
// Reductions by operations of the program's own, of which no kernel knows. The ranks exchange
// slices of their vectors on their devices, without gaps. Each copies its slices to the host once,
// combines them there in rank order by MPI_Reduce_local, and copies the result to its device. A
// second exchange takes it where it belongs.
//
// The program's memory is written by the second exchange alone. So all ranks can still do the
// reduction otherwise where one of them fails before.
#include "config.h"

#include "fabrail/coll/alltoall.h"
#include "fabrail/ipc/tuned.h"
#include "fabrail/job.h"
#include "fabrail/policy/coll_plan.h"
#include "fabrail/staging/packed.h"
#include "intercept/coll_reduction.h"
#include "intercept/views.h"

enum {
    LINE_BYTES = 64,
    // Bytes that the program's function combines in one call, so that they stay in the cache from
    // one vector to the next.
    BLOCK_BYTES = 64 << 10,
};

struct combination {
    struct fr_intercept_reduction *reduction;
    struct fr_coll_team *team;
    const struct fr_layout *layout; // of an element
    fr_word type, operation;
    bool scans;                                // in either form
    struct fr_policy_slice *slices;            // that each rank combines
    struct fr_coll_slot *sends, *receives;     // of the exchange under way, by rank
    struct fr_staging_view_block sent, result; // the elements in the program's memory
    // Slices of all ranks' vectors without gaps, on the device and on the host, and room for two
    // blocks of elements with their gaps behind those of the host. In the place of each vector, or
    // of the last, comes the result of those up to it.
    struct fr_staging_lease device, host;
    struct fr_device_range range; // of the device's
    size_t stride;                // bytes from one slice to the next
    size_t block_elements;        // combined in one call
    size_t block_bytes;           // of a block with its gaps
    ptrdiff_t block_first;        // offset of its first byte
};

static size_t round_up(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

// Returns how many elements of a scattered result a rank gets.
static size_t part_of(const struct fr_intercept_reduction *reduction, int rank)
{
    const struct fr_abi_side *side = &fr_abi_rows[reduction->op->fn].receive;
    return (size_t)fr_intercept_count_at(reduction->op, side, side->has_counts ? rank : 0);
}

static const struct fr_layout *layout_of(const struct fr_intercept_reduction *reduction)
{
    return reduction->op->views[0].blocks[0].layout;
}

// Returns the slice that a rank combines, which follows the slice of the rank before it.
static struct fr_policy_slice slice_of(const struct fr_intercept_reduction *reduction, int rank,
                                       size_t first)
{
    const struct fr_coll_reduce *part = &reduction->part;
    if (part->form == FR_COLL_SCATTERED)
        return (struct fr_policy_slice){first, part_of(reduction, rank)};
    return fr_policy_slice(part->elements, layout_of(reduction)->size_bytes, reduction->team->size,
                           rank, true);
}

static bool is_own_operation(fr_word operation)
{
    return operation != fr_abi_mpi.OP_NULL && operation != fr_abi_mpi.NO_OP &&
           operation != fr_abi_mpi.REPLACE && fr_abi_operation_of(operation) == FR_OPERATIONS;
}

static fr_word operation_of(const struct fr_request_op *op)
{
    return fr_abi_handle(op->args[fr_abi_rows[op->fn].operation]);
}

bool fr_intercept_reduction_combines(const struct fr_intercept_reduction *reduction)
{
    const struct fr_coll_reduce *part = &reduction->part;
    size_t most = 0, first = 0;
    if (part->elements == 0 || !is_own_operation(operation_of(reduction->op)) ||
        layout_of(reduction)->size_bytes == 0)
        return false;
    for (int rank = 0; rank < reduction->team->size; rank++) {
        struct fr_policy_slice slice = slice_of(reduction, rank, first);
        most = slice.count > most ? slice.count : most;
        first += slice.count;
    }
    return fr_policy_reduction_combines(part->elements, layout_of(reduction)->size_bytes, most,
                                        reduction->team->size, fr_ipc_tuned(FR_SIZE_COMBINE));
}

static struct fr_policy_slice own_slice(const struct combination *combination)
{
    return combination->slices[combination->team->rank];
}

// Carves the arrays out of the operation's memory, and fills the slices.
static enum fr_status make_arrays(struct combination *combination)
{
    struct fr_request_op *op = combination->reduction->op;
    size_t size = (size_t)combination->team->size, first = 0;
    size_t bytes = size * (2 * sizeof(struct fr_coll_slot) + sizeof(struct fr_policy_slice));
    combination->sends = fr_request_op_scratch(op, bytes);
    if (!combination->sends)
        return FR_ERR_NO_MEMORY;
    combination->receives = combination->sends + size;
    combination->slices = (struct fr_policy_slice *)(combination->receives + size);
    for (size_t rank = 0; rank < size; rank++) {
        combination->slices[rank] = slice_of(combination->reduction, (int)rank, first);
        first += combination->slices[rank].count;
    }
    return FR_OK;
}
_Static_assert(sizeof(struct fr_coll_slot) % _Alignof(struct fr_policy_slice) == 0, "stay aligned");

// Gives a buffer one block of elements, whose gaps the exchanges know.
static void set_block(struct fr_intercept_coll_buffer *buffer, struct fr_staging_view_block *block,
                      size_t elements, int ranks)
{
    struct fr_staging_view *view = &buffer->view;
    *block = view->blocks[0];
    block->count = elements;
    view->blocks = block;
    view->block_count = 1;
    view->same_shape_only = false;
    buffer->shaped_ranks = ranks;
}

static void set_sides(struct combination *combination)
{
    struct fr_intercept_reduction *reduction = combination->reduction;
    struct fr_intercept_coll_buffer *send = &reduction->send, *receive = &reduction->receive;
    int ranks = combination->team->size;
    if (reduction->in_place)
        send->view = receive->view;
    set_block(send, &combination->sent, reduction->part.elements, ranks);
    if (!fr_intercept_reduction_receives(reduction))
        receive->view = (struct fr_staging_view){.range = FR_DEVICE_HOST};
    else
        set_block(receive, &combination->result, reduction->part.own_elements, ranks);
    receive->is_written = true;
}

// Opens the program's buffers. Others need not map the memory that is sent.
static enum fr_status open_sides(struct combination *combination)
{
    struct fr_intercept_coll_buffer *send = &combination->reduction->send;
    struct fr_intercept_coll_buffer *receive = &combination->reduction->receive;
    enum fr_status status =
        fr_intercept_coll_buffer_open(receive, false, fr_coll_team_ways(combination->team));
    if (status == FR_OK)
        status = fr_intercept_coll_buffer_open(send, false, 0);
    if (status == FR_OK)
        status = fr_intercept_coll_buffer_copy_in(send);
    if (status == FR_OK && send->shapes.blocks)
        status = fr_intercept_coll_buffer_await_app(send);
    return status;
}

// Finds how many elements are combined in one call, and what memory they take with their gaps.
static void measure_block(struct combination *combination)
{
    const struct fr_layout *layout = combination->layout;
    size_t extent = (size_t)(layout->extent < 0 ? -layout->extent : layout->extent);
    size_t each = extent > layout->true_extent ? extent : layout->true_extent;
    size_t most = own_slice(combination).count;
    size_t elements = each < BLOCK_BYTES ? BLOCK_BYTES / each : 1;
    combination->block_elements = elements < most ? elements : most;
    if (!layout->contiguous)
        fr_datatype_span(layout->extent, layout->true_lower, layout->true_extent,
                         combination->block_elements, &combination->block_first,
                         &combination->block_bytes);
}

static enum fr_status borrow(struct combination *combination)
{
    size_t slice_bytes = own_slice(combination).count * combination->layout->size_bytes;
    size_t blocks_bytes = 0;
    combination->stride = round_up(slice_bytes);
    size_t bytes = (size_t)combination->team->size * combination->stride;
    if (bytes == 0)
        return FR_OK;
    measure_block(combination);
    if (!combination->layout->contiguous) // each is moved to an aligned address
        blocks_bytes = 2 * round_up(combination->block_bytes + LINE_BYTES);
    enum fr_status status = fr_staging_borrow(bytes + blocks_bytes, &combination->host);
    if (status == FR_OK)
        status = fr_staging_borrow_device(combination->reduction->send.range.device, bytes,
                                          &combination->device);
    if (status != FR_OK)
        return status;
    combination->range = fr_staging_lease_range(&combination->device);
    fr_device_range_fix_context(&combination->range);
    return FR_OK;
}

// Returns whether MPI takes the datatype. Where it does not, MPI_Reduce_local would call the error
// handler of another communicator. Nobody gets the message.
static bool is_committed(fr_word type)
{
    fr_word comm = fr_job_comm(); // returns its errors
    return comm != fr_abi_mpi.COMM_NULL &&
           FR_MPI(Send, 0, 0, type, (fr_word)fr_abi_mpi.PROC_NULL, 0, comm) == fr_abi_mpi.SUCCESS;
}

static enum fr_status open(struct combination *combination)
{
    if (!combination->reduction->takes_part || !is_committed(combination->type))
        return FR_ERR_UNSUPPORTED;
    enum fr_status status = make_arrays(combination);
    if (status != FR_OK)
        return status;
    set_sides(combination);
    status = open_sides(combination);
    return status == FR_OK ? borrow(combination) : status;
}

// Memory that a rank which was given up may still write to is kept.
static void close(struct combination *combination)
{
    fr_intercept_coll_buffer_close(&combination->reduction->send);
    fr_staging_return(&combination->host);
    if (combination->team->broken)
        return;
    fr_intercept_coll_buffer_close(&combination->reduction->receive);
    fr_staging_return(&combination->device);
}

// Returns elements of a buffer. Its only block has no gaps, or is used where it is.
static struct fr_coll_slot elements_of(struct fr_intercept_coll_buffer *buffer, int rank,
                                       struct fr_policy_slice slice)
{
    const struct fr_layout *layout = buffer->view.blocks[0].layout;
    ptrdiff_t step = buffer->shapes.blocks ? layout->extent : (ptrdiff_t)layout->size_bytes;
    uintptr_t block = fr_intercept_coll_buffer_block(buffer, &buffer->view.blocks[0]);
    struct fr_coll_slot slot = {.address = block + slice.first * (uintptr_t)step,
                                .bytes = slice.count * layout->size_bytes};
    fr_intercept_shapes_place(&buffer->shapes, rank, 0, &slot);
    return slot;
}

// Returns the slice of a rank's vector in workspace.
static struct fr_coll_slot gathered(const struct combination *combination, int rank)
{
    return (struct fr_coll_slot){
        .address = (uintptr_t)combination->device.address + (size_t)rank * combination->stride,
        .bytes = own_slice(combination).count * combination->layout->size_bytes,
    };
}

// Returns what tells the exchange apart: all ranks are in the same one of the same reduction. The
// number is even, which that of a broadcast never is.
static uint64_t what_of(const struct combination *combination, bool returns)
{
    const struct fr_coll_reduce *part = &combination->reduction->part;
    const uint64_t words[] = {(uint64_t)part->form + 2000, returns, (uint64_t)part->root,
                              part->elements, combination->layout->size_bytes};
    uint64_t what = 0;
    for (size_t i = 0; i < FR_ARRAY_LENGTH(words); i++)
        what = (what ^ words[i]) * 0x9e3779b97f4a7c15u + 1;
    return what & ~(uint64_t)1;
}

static enum fr_status exchange(const struct combination *combination,
                               struct fr_coll_alltoall *exchange)
{
    struct fr_coll_task task;
    exchange->call = combination->reduction->part.call;
    exchange->sends = combination->sends;
    exchange->receives = combination->receives;
    fr_coll_alltoall_begin(&task, combination->team, exchange);
    return fr_coll_task_run(&task);
}

static enum fr_status decline(const struct combination *combination)
{
    fr_coll_decline(combination->team, combination->reduction->part.call);
    return FR_ERR_UNSUPPORTED;
}

// Gives each rank its slice of this rank's vector.
static enum fr_status gather(struct combination *combination)
{
    struct fr_intercept_coll_buffer *send = &combination->reduction->send;
    for (int rank = 0; rank < combination->team->size; rank++) {
        combination->sends[rank] = elements_of(send, rank, combination->slices[rank]);
        combination->receives[rank] = gathered(combination, rank);
    }
    struct fr_coll_alltoall part = {
        .what = what_of(combination, false),
        .shapes = send->shapes.by_rank,
        .send_range = send->range,
        .receive = {.range = combination->range,
                    .low = (uintptr_t)combination->device.address,
                    .bytes = (size_t)combination->team->size * combination->stride,
                    .is_workspace = true},
    };
    return exchange(combination, &part);
}

// Copies the slices of some ranks between device and host, and waits.
static enum fr_status copy(const struct combination *combination, int first, int last,
                           enum fr_device_direction direction)
{
    struct fr_device_batch batch;
    size_t offset = (size_t)first * combination->stride;
    unsigned char *host = combination->host.address, *device = combination->device.address;
    bool out = direction == FR_FROM_STAGE;
    if (first > last)
        return FR_OK;
    const struct fr_device_copy slices = {
        .dst = (out ? device : host) + offset,
        .src = (out ? host : device) + offset,
        .bytes = (size_t)(last - first + 1) * combination->stride,
        .n = {1, 1},
        .own = true,
    };
    fr_device_batch_begin(&batch);
    fr_device_batch_copy(&batch, &combination->range, direction, &slices);
    return fr_device_batch_finish(&batch);
}

// Returns the last rank whose vector counts for some result.
static int last_of(const struct combination *combination)
{
    bool is_exclusive = combination->reduction->part.form == FR_COLL_EXCLUSIVE_SCAN;
    return combination->team->size - 1 - is_exclusive;
}

// Returns where the program's function finds elements of a rank's vector that are packed here.
static uintptr_t place_of(const struct combination *combination, int rank, unsigned char *packed)
{
    if (combination->layout->contiguous)
        return (uintptr_t)packed;
    uintptr_t blocks = (uintptr_t)combination->host.address +
                       (size_t)combination->team->size * combination->stride;
    uintptr_t low = blocks + (size_t)(rank % 2) * round_up(combination->block_bytes + LINE_BYTES);
    return round_up(low - (uintptr_t)combination->block_first);
}

// Combines elements of all vectors: each with what those before it have come to.
static enum fr_status combine_block(const struct combination *combination, size_t first,
                                    size_t count)
{
    const struct fr_layout *layout = combination->layout;
    uintptr_t before = 0;
    for (int rank = 0; rank <= last_of(combination); rank++) {
        unsigned char *packed = (unsigned char *)combination->host.address +
                                (size_t)rank * combination->stride + first * layout->size_bytes;
        uintptr_t elements = place_of(combination, rank, packed);
        bool is_result = rank > 0 && (combination->scans || rank == last_of(combination));
        if (!layout->contiguous)
            fr_staging_copy_shaped(layout, count, elements, packed, count * layout->size_bytes,
                                   false);
        if (rank > 0 && FR_MPI(Reduce_local, before, elements, (fr_word)count, combination->type,
                               combination->operation) != fr_abi_mpi.SUCCESS)
            return FR_ERR_MPI;
        if (is_result && !layout->contiguous)
            fr_staging_copy_shaped(layout, count, elements, packed, count * layout->size_bytes,
                                   true);
        before = elements;
    }
    return FR_OK;
}

// Combines this rank's slices on the host.
static enum fr_status combine(const struct combination *combination)
{
    int last = last_of(combination);
    size_t elements = own_slice(combination).count;
    if (elements == 0 || last == 0)
        return FR_OK;
    enum fr_status status = copy(combination, 0, last, FR_TO_STAGE);
    for (size_t first = 0; first < elements && status == FR_OK;
         first += combination->block_elements) {
        size_t left = elements - first, most = combination->block_elements;
        status = combine_block(combination, first, left < most ? left : most);
    }
    return status == FR_OK ? copy(combination, combination->scans ? 1 : last, last, FR_FROM_STAGE)
                           : status;
}

// Returns the part of a rank's result that this rank has combined.
static struct fr_coll_slot result_for(const struct combination *combination, int rank)
{
    static const struct fr_coll_slot nothing;
    const struct fr_coll_reduce *part = &combination->reduction->part;
    switch (part->form) {
    case FR_COLL_TO_ROOT:
        return rank == part->root ? gathered(combination, last_of(combination)) : nothing;
    case FR_COLL_SCATTERED:
        return rank == combination->team->rank ? gathered(combination, last_of(combination))
                                               : nothing;
    case FR_COLL_SCAN:
        return gathered(combination, rank);
    case FR_COLL_EXCLUSIVE_SCAN:
        return rank > 0 ? gathered(combination, rank - 1) : nothing;
    default:
        return gathered(combination, last_of(combination));
    }
}

// Returns where this rank wants the part of its result that another rank has combined.
static struct fr_coll_slot place_for(const struct combination *combination, int rank)
{
    struct fr_intercept_reduction *reduction = combination->reduction;
    struct fr_policy_slice slice = combination->slices[rank];
    bool is_scattered = reduction->part.form == FR_COLL_SCATTERED;
    bool receives = fr_intercept_reduction_receives(reduction);
    if (!receives || (is_scattered && rank != combination->team->rank))
        return (struct fr_coll_slot){.bytes = 0};
    slice.first = is_scattered ? 0 : slice.first;
    return elements_of(&reduction->receive, rank, slice);
}

// Gives the ranks what this rank has combined. They wait for each other's functions in this
// exchange.
static enum fr_status give(struct combination *combination)
{
    struct fr_intercept_coll_buffer *receive = &combination->reduction->receive;
    for (int rank = 0; rank < combination->team->size; rank++) {
        combination->sends[rank] = result_for(combination, rank);
        combination->receives[rank] = place_for(combination, rank);
    }
    struct fr_coll_alltoall part = {
        .what = what_of(combination, true),
        .layouts = receive->shapes.layouts,
        .layout_count = receive->shapes.layout_count,
        .send_range = combination->range,
        .is_patient = true,
    };
    fr_intercept_coll_buffer_describe(receive, &part.receive);
    enum fr_status status = exchange(combination, &part);
    return status == FR_OK ? fr_intercept_coll_buffer_copy_out(receive) : status;
}

enum fr_status fr_intercept_reduction_combine(struct fr_intercept_reduction *reduction,
                                              struct fr_coll_team *team)
{
    struct combination combination = {
        .reduction = reduction,
        .team = team,
        .layout = layout_of(reduction),
        .type = fr_abi_handle(reduction->op->args[fr_abi_rows[reduction->op->fn].send.type]),
        .operation = operation_of(reduction->op),
        .scans = reduction->part.form >= FR_COLL_SCAN,
        .range = FR_DEVICE_HOST,
    };
    enum fr_status status = open(&combination);
    status = status == FR_OK ? gather(&combination) : decline(&combination);
    if (status == FR_OK)
        status = combine(&combination) == FR_OK ? give(&combination) : decline(&combination);
    close(&combination);
    if (status == FR_OK)
        fr_intercept_coll_buffer_count(reduction->op,
                                       "each rank combines a slice of all vectors on its host");
    return status;
}
