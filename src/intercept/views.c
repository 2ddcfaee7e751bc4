// SPDX-License-Identifier: BSD-3-Clause
// Views of a call: which bytes of its buffers it reads and writes on this rank. Those of
// collectives are in coll_views.c.
#include "config.h"

#include "intercept/views.h"

static bool is_large(const struct fr_request_op *op)
{
    return fr_abi_rows[op->fn].flags & FR_ROW_LARGE;
}

FR_OFTEN int64_t fr_intercept_count_at(const struct fr_request_op *op,
                                       const struct fr_abi_side *side, int index)
{
    fr_word given = op->args[side->count];
    if (!side->has_counts)
        return is_large(op) || side->wide_count ? (int64_t)given : (int)given;
    const void *array = (const void *)given;
    return is_large(op) ? ((const int64_t *)array)[index] : ((const int *)array)[index];
}

int64_t fr_intercept_displacement_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                                     int index)
{
    const void *array = (const void *)op->args[side->displacements];
    bool wide = is_large(op) || side->wide_displacements;
    return wide ? ((const int64_t *)array)[index] : ((const int *)array)[index];
}

fr_word fr_intercept_type_at(const struct fr_request_op *op, const struct fr_abi_side *side,
                             int index)
{
    fr_word given = op->args[side->type];
    return side->has_types ? fr_abi_handle_load((const void *)given, (size_t)index)
                           : fr_abi_handle(given);
}

bool fr_intercept_measure_bytes(fr_word type, int64_t count, int64_t *bytes)
{
    int64_t size = 0; // MPI_Count
    enum fr_fn fn =
        fr_abi_has(FR_FN_MPI_Type_size_x) ? FR_FN_MPI_Type_size_x : FR_FN_MPI_Type_size_c;
    if (fr_abi_call(fn, (const fr_word[]){type, FR_PTR(&size)}) != fr_abi_mpi.SUCCESS)
        return false;
    *bytes = count * size;
    return true;
}

FR_OFTEN enum fr_status fr_intercept_view_elements(struct fr_request_op *op, int64_t first,
                                                   int64_t count, fr_word type,
                                                   struct fr_intercept_use use)
{
    const struct fr_layout *layout = NULL;
    if (count < 0)
        return FR_ERR_INVALID;
    enum fr_status status = fr_datatype_acquire(fr_abi_handle(type), &layout);
    if (status != FR_OK)
        return status;
    struct fr_staging_view_block block = {
        .user_offset = (ptrdiff_t)first * layout->extent,
        .count = (size_t)count,
        .layout = layout,
        .in = use.in,
        .out = use.out,
    };
    fr_request_op_add_block(op, &block);
    return FR_OK;
}

static enum fr_status add_bytes(struct fr_request_op *op, ptrdiff_t offset, int64_t count,
                                fr_word type, struct fr_intercept_use use)
{
    // MPI looks at no datatype whose count is zero, so neither does Fabrail.
    enum fr_status status =
        fr_intercept_view_elements(op, 0, count, count ? type : fr_abi_mpi.BYTE, use);
    if (status == FR_OK)
        op->blocks[op->block_count - 1].user_offset = offset;
    return status;
}

// Views entries of one count and datatype, which follow one another.
static enum fr_status view_simple(struct fr_request_op *op, const struct fr_abi_side *side,
                                  int copies, struct fr_intercept_use use)
{
    int64_t count = fr_intercept_count_at(op, side, 0);
    fr_word type = op->args[side->type];
    enum fr_status status = FR_OK;
    if (use.own < 0 && !use.apart)
        return fr_intercept_view_elements(op, 0, count * copies, type, use);
    for (int i = 0; i < copies && status == FR_OK; i++) {
        struct fr_intercept_use each = use;
        each.in = use.own < 0 ? use.in : i == use.own;
        status = fr_intercept_view_elements(op, i * count, count, type, each);
    }
    return status;
}

static enum fr_status add_entry(struct fr_request_op *op, const struct fr_abi_side *side, int index,
                                struct fr_intercept_use use)
{
    int64_t count = fr_intercept_count_at(op, side, index);
    int64_t displacement = fr_intercept_displacement_at(op, side, index);
    fr_word type = fr_intercept_type_at(op, side, index);
    return side->has_types ? add_bytes(op, (ptrdiff_t)displacement, count, type, use)
                           : fr_intercept_view_elements(op, displacement, count, type, use);
}

static enum fr_status view_array(struct fr_request_op *op, const struct fr_abi_side *side,
                                 int copies, struct fr_intercept_use use)
{
    enum fr_status status = FR_OK;
    bool all_in = use.in;
    for (int i = 0; i < copies && status == FR_OK; i++) {
        use.in = use.own < 0 ? all_in : i == use.own;
        status = add_entry(op, side, i, use);
    }
    return status;
}

enum fr_status fr_intercept_view_side(struct fr_request_op *op, const struct fr_abi_side *side,
                                      int copies, struct fr_intercept_use use)
{
    bool is_one = !side->has_counts && use.own < 0 && !use.apart;
    enum fr_status status =
        fr_request_op_add_view(op, (unsigned)side->buffer, is_one ? 1 : (size_t)copies);
    if (status != FR_OK)
        return status;
    return side->has_counts ? view_array(op, side, copies, use)
                            : view_simple(op, side, copies, use);
}

// ---- by class

// Views one block of the buffer at position `arg`, as fr_intercept_view_elements does.
static FR_OFTEN enum fr_status view_block(struct fr_request_op *op, int arg, int64_t first,
                                          int64_t count, fr_word type, struct fr_intercept_use use)
{
    enum fr_status status = fr_request_op_add_view(op, (unsigned)arg, 1);
    return status == FR_OK ? fr_intercept_view_elements(op, first, count, type, use) : status;
}

// Views the buffer of a side that has one count and one datatype.
static FR_OFTEN enum fr_status view_one(struct fr_request_op *op, const struct fr_abi_side *side,
                                        struct fr_intercept_use use)
{
    return view_block(op, side->buffer, 0, fr_intercept_count_at(op, side, 0), op->args[side->type],
                      use);
}

static bool to_nobody(const struct fr_request_op *op, int arg)
{
    return (int)op->args[arg] == fr_abi_mpi.PROC_NULL;
}

static enum fr_status send(struct fr_request_op *op)
{
    if (to_nobody(op, fr_abi_rows[op->fn].peer))
        return FR_OK;
    return view_one(op, &fr_abi_rows[op->fn].send, FR_USE_IN);
}

static enum fr_status receive(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    int message = row->message;
    op->prefix_out = true;
    if (message < 0 && to_nobody(op, row->peer))
        return FR_OK;
    if (message >= 0 && (!op->args[message] || fr_abi_handle_load((const void *)op->args[message],
                                                                  0) == fr_abi_mpi.MESSAGE_NO_PROC))
        return FR_OK;
    return view_one(op, &row->receive, FR_USE_OUT);
}

// Returns whether the status tells how much has arrived. In MPICH up to 5.0 that of a nonblocking
// exchange does not. Everything is then copied back, over what was copied in before.
static bool status_counts(const struct fr_request_op *op)
{
    return fr_abi_rows[op->fn].request < 0;
}

static enum fr_status send_receive(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    enum fr_status status = FR_OK;
    op->prefix_out = status_counts(op);
    if (!to_nobody(op, row->peer))
        status = view_one(op, &row->send, FR_USE_IN);
    if (status == FR_OK && !to_nobody(op, row->sender))
        status = view_one(op, &row->receive, op->prefix_out ? FR_USE_OUT : FR_USE_IN_OUT);
    return status;
}

static enum fr_status replace(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    struct fr_intercept_use use = {.out = !to_nobody(op, row->sender), .own = -1};
    op->prefix_out = status_counts(op);
    use.in = !to_nobody(op, row->peer) || (use.out && !op->prefix_out);
    return use.in || use.out ? view_one(op, &row->send, use) : FR_OK;
}

// Returns whether MPI looks at no argument of an origin, which may be anything then. MPI is given
// zeros in their place.
static bool ignores_origin(struct fr_request_op *op, const struct fr_abi_side *side)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    if (side != &row->send || row->operation < 0 ||
        fr_abi_handle(op->args[row->operation]) != fr_abi_mpi.NO_OP)
        return false;
    op->args[side->buffer] = op->args[side->count] = 0;
    op->args[side->type] = fr_abi_mpi.BYTE;
    return true;
}

// Views the buffers of a one-sided operation. Count and datatype follow each buffer, except where
// there is one element of a datatype that all buffers share.
static enum fr_status one_sided(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    enum fr_status status = FR_OK;
    op->rma.target = (int)op->args[row->peer];
    if (to_nobody(op, row->peer))
        return FR_OK;
    for (unsigned i = 0; i < row->buffer_count && status == FR_OK; i++) {
        const struct fr_abi_side *side = fr_abi_side_of(op->fn, row->buffers[i]);
        struct fr_intercept_use use = side == &row->send ? FR_USE_IN : FR_USE_OUT;
        if (side->count >= 0) {
            if (!ignores_origin(op, side))
                status = view_one(op, side, use);
            continue;
        }
        status = view_block(op, row->buffers[i], 0, 1, op->args[side->type], use);
    }
    return status;
}

static enum fr_status file(struct fr_request_op *op, bool reads)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    op->prefix_out = reads;
    return reads ? view_one(op, &row->receive, FR_USE_OUT) : view_one(op, &row->send, FR_USE_IN);
}

// Returns whether size and position of a packed buffer are wide. They are int, MPI_Count or
// MPI_Aint.
static bool wide_position(const struct fr_request_op *op)
{
    return fr_abi_rows[op->fn].flags & (FR_ROW_LARGE | FR_ROW_EXTERNAL);
}

// Views the part of a packed buffer from the position on, which is all that the call may touch.
static enum fr_status packed_rest(struct fr_request_op *op, int buffer, struct fr_intercept_use use)
{
    fr_word size_word = op->args[fr_abi_rows[op->fn].size];
    const void *position_address = (const void *)op->args[fr_abi_rows[op->fn].position];
    if (!position_address)
        return FR_ERR_INVALID;
    bool wide = wide_position(op);
    int64_t size = wide ? (int64_t)size_word : (int)size_word;
    int64_t position = wide ? *(const int64_t *)position_address : *(const int *)position_address;
    if (position < 0 || position > size)
        return FR_ERR_INVALID;
    enum fr_status status = view_block(op, buffer, position, size - position, fr_abi_mpi.BYTE, use);
    if (status == FR_OK)
        op->views[op->view_count - 1].same_shape_only = true;
    return status;
}

static enum fr_status pack(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    enum fr_status status = view_one(op, &row->send, FR_USE_IN);
    return status == FR_OK ? packed_rest(op, row->receive.buffer, FR_USE_OUT) : status;
}

static enum fr_status unpack(struct fr_request_op *op)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    enum fr_status status = packed_rest(op, row->send.buffer, FR_USE_IN);
    return status == FR_OK ? view_one(op, &row->receive, FR_USE_OUT) : status;
}

static enum fr_status reduce_local(struct fr_request_op *op)
{
    const struct fr_abi_side *side = &fr_abi_rows[op->fn].send;
    enum fr_status status = FR_OK;
    for (int arg = 0; arg < 2 && status == FR_OK; arg++) {
        status = view_block(op, arg, 0, fr_intercept_count_at(op, side, 0), op->args[side->type],
                            arg ? FR_USE_IN_OUT : FR_USE_IN);
        if (status == FR_OK)
            op->views[op->view_count - 1].same_shape_only = true;
    }
    return status;
}

static enum fr_status partitioned(struct fr_request_op *op, bool receives)
{
    const struct fr_abi_row *row = &fr_abi_rows[op->fn];
    const struct fr_abi_side *side = receives ? &row->receive : &row->send;
    int partitions = (int)op->args[side->buffer + 1];
    int64_t count = fr_intercept_count_at(op, side, 0);
    if (partitions < 0 || count < 0)
        return FR_ERR_INVALID;
    if (to_nobody(op, row->peer))
        return FR_OK;
    op->parts.count = (size_t)partitions;
    op->parts.elements = (size_t)count;
    return view_block(op, side->buffer, 0, partitions * count, op->args[side->type],
                      receives ? FR_USE_OUT : FR_USE_IN);
}

FR_OFTEN enum fr_status fr_intercept_views_build(struct fr_request_op *op)
{
    switch (fr_abi_rows[op->fn].class) {
    case FR_CLASS_SEND:
        return send(op);
    case FR_CLASS_RECV:
        return receive(op);
    case FR_CLASS_SENDRECV:
        return send_receive(op);
    case FR_CLASS_REPLACE:
        return replace(op);
    case FR_CLASS_RMA:
        return one_sided(op);
    case FR_CLASS_FILE_READ:
    case FR_CLASS_FILE_READ_BEGIN:
        return file(op, true);
    case FR_CLASS_FILE_WRITE:
    case FR_CLASS_FILE_WRITE_BEGIN:
        return file(op, false);
    case FR_CLASS_PACK:
        return pack(op);
    case FR_CLASS_UNPACK:
        return unpack(op);
    case FR_CLASS_REDUCE_LOCAL:
        return reduce_local(op);
    case FR_CLASS_PSEND:
        return partitioned(op, false);
    case FR_CLASS_PRECV:
        return partitioned(op, true);
    default:
        return fr_abi_rows[op->fn].shape ? fr_intercept_views_collective(op) : FR_ERR_UNSUPPORTED;
    }
}
